"""The side files of a SQLite store, and what each is for.

- ``NAME-open``: a shared lock while a store is open; whoever gets it exclusively is alone and may
  check the log, create and migrate. So processes that open a store first wait for one another. It also records what
  the database file looks like: while that is so, whoever opens the store has no reason to check it.
- ``NAME-lock``: the turnstile between writing processes (``turnstile``), and the **high-water mark**: the feed
  position last acknowledged. It is written after the commit was synced, so it is never ahead of
  what is durable: a store that ends before its mark has lost data, whatever the cause.
- ``NAME-ballast``: space that is freed when the disk is full, so that deleting still works.

All have mode 0600 whatever the umask. None of them holds content.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
import zlib

from .. import mounts
from ..errors import BackendError, Invalid, StorageFull

_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "9p", "afs", "ceph", "glusterfs", "lustre", "gpfs", "ocfs2"}
    | {"beegfs", "fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.glusterfs", "fuse.ceph"}
)
_MARK = struct.Struct(">16sqI")
_LOOK = struct.Struct(">QQQQI")  # size, two times and inode of the database file, and their checksum
BALLAST_BYTES = 1 << 20
_SMALLEST_BALLAST = 1 << 15


_FLAGS = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


def create_private(path: str) -> int | None:
    """Create a file with mode 0600 whatever the umask; if it already exists, return None without opening it."""
    if os.path.exists(path):
        return None
    try:
        descriptor = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return None
    os.fchmod(descriptor, 0o600)  # a umask may have removed even the owner's bits
    return descriptor


def open_private(path: str) -> int:
    """Open one of our side files, creating it if it is missing."""
    created = create_private(path)
    return os.open(path, _FLAGS) if created is None else created


def prepare_directory(path: str) -> None:
    """Create missing parent directories, private to the user; existing ones stay as they are."""
    parent = os.path.dirname(path)
    missing = []
    while not os.path.isdir(parent):
        if os.path.lexists(parent) and not os.path.isdir(parent):  # again, as another process may have created it
            raise Invalid(f"{parent!r} is not a directory; choose another place for the store")
        missing.append(parent)
        parent = os.path.dirname(parent)
    for directory in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)
            os.chmod(directory, 0o700)


def translate(error: OSError, path: str) -> Exception:
    """Translate an error of the operating system into one of ours."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull()
    reason = error.strerror or str(error)
    return BackendError(f"cannot use {path!r}: {reason}. Check the path and its permissions")


def _look_of(path: str) -> bytes:
    """Return a file's size, times and inode, with a checksum."""
    found = os.stat(path)
    look = (found.st_size, found.st_mtime_ns % (1 << 64), found.st_ctime_ns % (1 << 64), found.st_ino)
    return _LOOK.pack(*look, zlib.crc32(repr(look).encode()))


BACKUP, BACKUP_PART = ".takeback-backup-", "store.db"  # where a backup is written before it gets its name


def has_other_names(path: str) -> bool:
    """Whether a file has several names; removes the temporary name that a killed backup left behind."""
    if not os.path.isfile(path) or os.stat(path).st_nlink == 1:
        return False
    folder = os.path.dirname(path)
    for name in os.listdir(folder):
        part = os.path.join(folder, name, BACKUP_PART)
        if name.startswith(BACKUP) and os.path.exists(part) and os.path.samefile(part, path):
            with contextlib.suppress(OSError):
                os.unlink(part)
                os.rmdir(os.path.dirname(part))
    return os.stat(path).st_nlink > 1


class FileLock:
    """A lock between processes, on a file of its own."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.descriptor = open_private(path)

    def _try(self, kind: int) -> bool:
        try:
            fcntl.flock(self.descriptor, kind | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def try_exclusive(self) -> bool:
        """Take the lock exclusively if nobody holds it."""
        return self._try(fcntl.LOCK_EX)

    def close(self) -> None:
        """Release the lock and close the file."""
        os.close(self.descriptor)


class Presence(FileLock):
    """The lock that everybody shares who has the store open, and a record of what the database file looks like.

    The record is made whenever a process of the store has changed the file: after the checks of whoever opens it alone,
    after each merge of the log into it, and on closing. Nobody else changes it, so as long as the file looks like this
    it needs no checks, even if its last user was killed.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._recorded = b""
        self.merges = False  # whether closing the connection may change the file

    def join(self, timeout: float) -> bool:
        """Enter alone (True), or beside others once one of them admits us (False); after ``timeout`` raise ``Busy``.

        Whoever enters alone checks the store and then admits those who wait. If it gives up instead, the next one
        is alone: nobody gets past a store that was not checked.
        """
        deadline = time.monotonic() + timeout
        while True:
            if self._try(fcntl.LOCK_EX):
                self._recorded = os.pread(self.descriptor, _LOOK.size, 1)
                os.pwrite(self.descriptor, b"0", 0)  # nobody is admitted until the store is checked
                return True
            if self._try(fcntl.LOCK_SH) and os.pread(self.descriptor, 1, 0) == b"1":
                return False
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
            self._pause(deadline, timeout)

    def admit(self, timeout: float) -> None:
        """Let others in beside us."""
        os.pwrite(self.descriptor, b"1", 0)
        deadline = time.monotonic() + timeout
        while not self._try(fcntl.LOCK_SH):
            self._pause(deadline, timeout)

    def _pause(self, deadline: float, timeout: float) -> None:
        if time.monotonic() > deadline:
            from . import holders

            raise holders.busy(f"opening {self.path.removesuffix('-open')!r}", timeout, self.path)
        time.sleep(0.003)

    def recorded(self, path: str) -> bool:
        """Whether the database file looks as it was recorded last; only for whoever entered alone."""
        with contextlib.suppress(FileNotFoundError):
            return self._recorded == _look_of(path)
        return False

    def record(self, path: str) -> None:
        """Record what the database file looks like now; if the disk fails, it will only be checked once more."""
        with contextlib.suppress(OSError):
            os.pwrite(self.descriptor, _look_of(path), 1)


class Mark:
    """The high-water mark: the feed position last acknowledged, for one store id."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._store, self._seed = bytes(16), 0

    def bind(self, store: bytes) -> None:
        """Set the store that positions are written for."""
        self._store, self._seed = store, zlib.crc32(store)

    def write(self, position: int) -> None:
        """Write a position after its commit was synced; needs no sync of its own, and may fail on a full disk."""
        data = _MARK.pack(self._store, position, zlib.crc32(b"%d" % position, self._seed))
        try:
            noted = os.pread(self._descriptor, 24, 0)
            if noted[:16] != self._store or int.from_bytes(noted[16:], "big", signed=True) < position:
                os.pwrite(self._descriptor, data, 0)  # else another process synced a later commit
        except OSError:
            from . import notices

            notices.note("the high-water mark could not be written; it stays where it was")

    @property
    def relaxed(self) -> bool:
        """Whether a writer that does not sync each commit used the store: its log may have holes after a power cut."""
        return os.pread(self._descriptor, 1, _MARK.size) == b"\1"

    @relaxed.setter
    def relaxed(self, value: bool) -> None:
        os.pwrite(self._descriptor, bytes([value]), _MARK.size)

    def read(self) -> int:
        """Return the position written for this store; 0 if there is none that can be trusted."""
        store, position = self.noted()
        return position if store == self._store else 0

    def noted(self) -> tuple[bytes, int]:
        """Return store id and position as written; no bytes and 0 if they cannot be trusted."""
        data = os.pread(self._descriptor, _MARK.size, 0)
        if len(data) != _MARK.size:
            return b"", 0
        store, position, check = _MARK.unpack(data)
        intact = zlib.crc32(b"%d" % position, zlib.crc32(store)) == check
        return (store, position) if intact else (b"", 0)


class Ballast:
    """Reserved space on the store's disk."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._missing = not os.path.exists(path)

    def restore(self) -> None:
        """Reserve the space if it is not reserved; on a full disk, leave it for later."""
        if not self._missing:
            return
        try:
            descriptor = open_private(self._path)
        except OSError:
            return
        size = BALLAST_BYTES
        while self._missing and size >= _SMALLEST_BALLAST:
            try:
                os.posix_fallocate(descriptor, 0, size)
                self._missing = False
            except (OSError, AttributeError):
                os.ftruncate(descriptor, 0)
                size //= 2  # keep what little is left for the next deletion rather than the next append
        os.close(descriptor)

    def release(self) -> bool:
        """Free the reserved space; return whether there was any."""
        try:
            os.unlink(self._path)
        except OSError:
            return False
        self._missing = True
        return True


def network_filesystem(path: str) -> str | None:
    """Return the type of network file system that holds ``path``; None if it is local or unknown."""
    kind = mounts.kind_of(path)
    return kind if kind in _NETWORK else None
