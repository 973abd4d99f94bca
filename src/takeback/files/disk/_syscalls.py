"""The system calls on a workspace: everything is reached from the root's descriptor, and no link is followed.

A directory is opened name by name with ``O_DIRECTORY | O_NOFOLLOW``; everything else happens by name in an open
directory. What changes the disk goes through ``system`` and nothing else does, so that a test can intercept it. Each
name is judged before such a call: a repository's own directory, in any spelling, is neither entered nor created,
replaced, moved or removed, whatever a plan says. That raises ``Invalid``, and the change is taken back.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...errors import Conflict, Corrupt, Invalid
from ...model import names
from ...model.tree import DIR, FILE, LINK, THERE, Node

system = os

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CONTENT = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # opening a FIFO must not block
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_NO_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP})  # some file systems cannot sync a directory
_OPEN_DIRECTORIES = 64
_PIECE = 1 << 20
_HOLE = 64 << 10
_ZEROS = bytes(_HOLE)

PERMISSIONS = 0o777
OWNER = 0o700  # what the owner needs to change a directory's contents


class Stamp(NamedTuple):
    """What identifies a file's state without reading it.

    ``ctime_ns`` reveals an edit whose mtime was set back. It is 0 for a file with several hard links: moving any of
    them changes it.
    """

    inode: int
    size: int
    mtime_ns: int
    mode: int
    ctime_ns: int = 0

    @property
    def lasting(self) -> Stamp:
        """What survives a rename."""
        return self._replace(ctime_ns=0)


def stamp(status: os.stat_result) -> Stamp:
    """Return the stamp for a status."""
    ctime_ns = status.st_ctime_ns if status.st_nlink == 1 else 0
    return Stamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode, ctime_ns)


class Slot(NamedTuple):
    """A name in an open directory; it may be free."""

    directory: int
    name: bytes


def judge(*touched: Slot | bytes) -> None:
    """Refuse a name that leads elsewhere or into a repository: the last check before the system call."""
    for each in touched:
        name = each if isinstance(each, bytes) else each.name
        if what := names.fault(name):
            raise Invalid(f"a path within the directory cannot hold {what}")
        if names.is_control(name):
            raise Invalid(f"{names.shown(name)} belongs to a repository (git, hg, svn or jj) and is never written")


class Inside:
    """The directories below a root, opened without following links; a bounded number is kept open."""

    def __init__(self, root: str | bytes) -> None:
        self.root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.device = os.fstat(self.root).st_dev
        self._open: dict[bytes, int] = {}

    def __enter__(self) -> Inside:
        return self

    def __exit__(self, *_: object) -> None:
        self.forget()
        os.close(self.root)

    def forget(self) -> None:
        """Close all kept directories, since some were moved or a new phase begins."""
        while self._open:
            os.close(self._open.popitem()[1])

    def find(self, path: bytes) -> int | None:
        """Open a directory; None if it is missing or behind a link. Valid only until the next call."""
        missing: list[bytes] = []
        at = path
        while at and at not in self._open:
            at, _, name = at.rpartition(b"/")
            missing.append(name)
        here = self._use(at) if at else self.root
        for name in reversed(missing):
            judge(name)  # the only way into a directory, so no path escapes the check
            try:
                here = os.open(name, _DIRECTORY, dir_fd=here)
            except OSError as error:
                if error.errno in _NOT_THERE:
                    return None
                raise
            at = at + b"/" + name if at else name
            self._keep(at, here)
        return here

    def place(self, path: bytes) -> Slot | None:
        """Return the place of a path, or None if its parent is not a directory."""
        parent, _, name = path.rpartition(b"/")
        directory = self.find(parent)
        return None if directory is None else Slot(directory, name)

    def need(self, path: bytes) -> Slot:
        """Return the place of a path; raises ``Conflict`` if its parent is not a directory."""
        place = self.place(path)
        if place is None:
            raise conflict([path], "its directory is gone, or has become a link")
        return place

    def _use(self, path: bytes) -> int:
        descriptor = self._open[path] = self._open.pop(path)  # least recently used first
        return descriptor

    def _keep(self, path: bytes, descriptor: int) -> None:
        self._open[path] = descriptor
        if len(self._open) > _OPEN_DIRECTORIES:
            os.close(self._open.pop(next(iter(self._open))))


def conflict(paths: Iterable[bytes], why: str) -> Conflict:
    """Return the error that names the paths that are not as expected."""
    found = tuple(paths)
    return Conflict(f"{shown(found)}: {why}. Preview again before you apply it", found=found)


def shown(paths: Sequence[bytes]) -> str:
    """Format paths for a sentence; a long list is cut short."""
    more = f" and {len(paths) - 20} more" if len(paths) > 20 else ""
    return ", ".join(path.decode("utf-8", "backslashreplace") for path in paths[:20]) + more


@contextlib.contextmanager
def directory(place: Slot) -> Iterator[int]:
    """Hold a directory open while the block runs."""
    judge(place)
    descriptor = os.open(place.name, _DIRECTORY, dir_fd=place.directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def glance(place: Slot) -> os.stat_result | None:
    """Return the status of what is at a place, or None for nothing."""
    try:
        return os.lstat(place.name, dir_fd=place.directory)
    except FileNotFoundError:
        return None


def same(one: Slot, other: Slot) -> bool:
    """Whether two places are names of the same file."""
    here, there = glance(one), glance(other)
    return here is not None and there is not None and os.path.samestat(here, there)


def seen(place: Slot, node: Node) -> Stamp | None:
    """Return the stamp of what is at a place if it matches a node, else None.

    A directory matches by its mode only, and what was not captured by its inode only.
    """
    status = glance(place)
    if node.kind not in THERE:
        return None if status is None or status.st_ino != node.size else Stamp(status.st_ino, 0, 0, 0)
    if status is None or not _resembles(status, node):
        return None
    if node.kind == DIR:
        return stamp(status)
    if node.kind == FILE:
        return _seen_file(place, node)
    return stamp(status) if os.readlink(place.name, dir_fd=place.directory) == node.content else None


def _resembles(status: os.stat_result, node: Node) -> bool:
    if node.kind == LINK:
        return stat.S_ISLNK(status.st_mode)
    if (status.st_mode ^ node.mode) & PERMISSIONS:
        return False
    if node.kind == DIR:
        return stat.S_ISDIR(status.st_mode)
    return stat.S_ISREG(status.st_mode) and status.st_size == node.size


def _seen_file(place: Slot, node: Node) -> Stamp | None:
    with content(place) as descriptor:
        if descriptor is None:
            return None
        before = os.fstat(descriptor)
        found = hashlib.sha256()
        while piece := os.read(descriptor, _PIECE):
            found.update(piece)
        # An edit during the read must not pass for the content that was hashed.
        as_before = stamp(before) == stamp(os.fstat(descriptor))
    return stamp(before) if as_before and found.digest() == node.content else None


@contextlib.contextmanager
def content(place: Slot) -> Iterator[int | None]:
    """Open a regular file for reading while the block runs; None if it is anything else by now."""
    try:
        descriptor = os.open(place.name, _CONTENT, dir_fd=place.directory)
    except OSError as error:
        if error.errno not in _NOT_THERE | {errno.ENXIO}:
            raise
        yield None
        return
    try:
        yield descriptor if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    finally:
        os.close(descriptor)


def create(place: Slot, node: Node, pieces: Iterable[bytes]) -> None:
    """Create a file, link or directory at a free place; a file is checked and synced, a directory stays writable."""
    judge(place)
    if node.kind == LINK:
        system.symlink(node.content, place.name, dir_fd=place.directory)
    elif node.kind == DIR:
        ensure_directory(place, node.mode | OWNER)
    else:
        write(place, _checked(node, pieces), mode=node.mode)


def make_directory(place: Slot) -> None:
    """Create a directory at a free place, for the owner only."""
    judge(place)
    system.mkdir(place.name, OWNER, dir_fd=place.directory)


def ensure_directory(place: Slot, mode: int) -> None:
    """Create a directory with exactly this mode, whatever the umask; an existing one gets the mode."""
    with contextlib.suppress(FileExistsError):
        make_directory(place)
    with directory(place) as descriptor:
        set_mode(descriptor, mode)


def write(place: Slot, pieces: Iterable[bytes], *, mode: int) -> None:
    """Create a file and sync it."""
    judge(place)
    descriptor = system.open(place.name, _CREATE, 0o600, dir_fd=place.directory)
    try:
        for piece in pieces:
            _write_piece(descriptor, piece)
        set_mode(descriptor, mode)
        system.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_piece(descriptor: int, piece: bytes) -> None:
    """Write a piece of a file; long runs of zeros become holes, as they were in a sparse file."""
    start = at = 0
    while at + _HOLE <= len(piece):
        if piece.startswith(_ZEROS, at):
            _write_all(descriptor, memoryview(piece)[start:at])
            start = at + _HOLE
            # A file that ends in a hole gets its size by this; one that goes on grows beyond it.
            system.ftruncate(descriptor, os.lseek(descriptor, _HOLE, os.SEEK_CUR))
        at += _HOLE
    _write_all(descriptor, memoryview(piece)[start:])


def _write_all(descriptor: int, rest: memoryview) -> None:
    while rest:
        rest = rest[system.write(descriptor, rest) :]


def _checked(node: Node, pieces: Iterable[bytes]) -> Iterator[bytes]:
    found, size = hashlib.sha256(), 0
    for piece in pieces:
        found.update(piece)
        size += len(piece)
        if size > node.size:
            break  # wrong already: do not fill the disk with it
        yield piece
    if size != node.size or found.digest() != node.content:
        raise Corrupt(f"stored content {node.content.hex()} does not match its hash", what=node.content.hex())


def set_mode(descriptor: int, mode: int) -> None:
    """Set the permissions; setuid, setgid and sticky bits are never set or cleared."""
    now = stat.S_IMODE(os.fstat(descriptor).st_mode)
    wanted = now & ~PERMISSIONS | mode & PERMISSIONS
    if now != wanted:
        system.fchmod(descriptor, wanted)


def sync(descriptor: int) -> None:
    """Sync the names in a directory."""
    try:
        system.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def move(source: Slot, target: Slot) -> None:
    """Rename; what is at the target is replaced."""
    judge(source, target)
    system.rename(source.name, target.name, src_dir_fd=source.directory, dst_dir_fd=target.directory)


def unlink(place: Slot) -> None:
    """Remove a file or a link."""
    judge(place)
    system.unlink(place.name, dir_fd=place.directory)


def put(source: Slot, target: Slot) -> None:
    """Move to a free place, else raise FileExistsError; repeating one that was killed halfway is fine."""
    judge(source, target)
    # A rename would silently replace what somebody put there a moment ago; a hard link never does.
    status = glance(source)
    if status is not None and stat.S_ISDIR(status.st_mode):
        return _put_by_rename(source, target)
    try:
        system.link(
            source.name,
            target.name,
            src_dir_fd=source.directory,
            dst_dir_fd=target.directory,
            follow_symlinks=False,
        )
    except FileExistsError:
        if not same(source, target):
            raise
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return _put_by_rename(source, target)
    return unlink(source)


def _put_by_rename(source: Slot, target: Slot) -> None:
    if glance(target) is None:
        try:
            return move(source, target)
        except OSError as error:  # it replaces no file and no non-empty directory, even one that just appeared
            if error.errno not in (errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST):
                raise
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target.name)


def remove_if_empty(place: Slot) -> bool:
    """Remove a directory; False if something is in it."""
    judge(place)
    try:
        system.rmdir(place.name, dir_fd=place.directory)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def remove_all(place: Slot) -> None:
    """Remove a directory of ours with its contents, if it exists; a repository that somebody put there stays."""
    status = glance(place)
    if status is None or names.is_control(place.name):
        return
    if stat.S_ISDIR(status.st_mode):
        with directory(place) as descriptor:
            for name in sorted(os.listdir(descriptor)):
                remove_all(Slot(descriptor, os.fsencode(name)))
        system.rmdir(place.name, dir_fd=place.directory)
    else:
        unlink(place)
