"""Somebody who changes the files of a directory at random, as an agent's shell or a person does."""

from __future__ import annotations

import contextlib
import os
import random
import stat
from pathlib import Path

NAMES = (
    b"a",
    b"b.txt",
    b"src",
    b"lib",
    b"deep",
    "grün".encode(),
    "文件".encode(),
    b"sp ace",
    b"new\nline",
    b"\xff\xfe.bin",
)
TARGETS = (b"a", b"nowhere", b"../outside", b"/etc/hostname", "grün".encode(), b"\xff")
FILE_MODES = (0o644, 0o600, 0o755, 0o444, 0o640)
DIRECTORY_MODES = (0o755, 0o700, 0o750, 0o711, 0o555)
IGNORED_SUFFIX, IGNORED_FOLDER = b".log", b"scratch"
RULES = b"*.log\nscratch\n"


def is_ignored(path: bytes) -> bool:
    """Whether the rules of the tests leave a path out."""
    names = path.split(b"/")
    return IGNORED_FOLDER in names or any(name.endswith(IGNORED_SUFFIX) for name in names)


class Hand:
    """Makes one change after the other; every choice comes from ``rng``."""

    def __init__(self, root: Path, rng: random.Random, names: tuple[bytes, ...] = NAMES) -> None:
        self._root, self._rng, self._names = os.fsencode(root), rng, names

    # ------------------------------------------------------------------ what is there

    def _all(self, kind: str) -> list[bytes]:
        found = []
        for at, folders, files in os.walk(self._root):
            if at == self._root:
                folders[:] = [name for name in folders if not name.startswith(b".takeback-")]
            for name in (*folders, *files):
                path = os.path.join(at, name)
                status = os.lstat(path)
                is_kind = {"file": stat.S_ISREG, "folder": stat.S_ISDIR, "link": stat.S_ISLNK}[kind](status.st_mode)
                if is_kind and name != b".gitignore":
                    found.append(path)
        return sorted(found)

    def some(self, kind: str) -> bytes | None:
        """Choose something that is there."""
        found = self._all(kind)
        return self._rng.choice(found) if found else None

    def free(self) -> bytes:
        """Choose a path that may or may not be there, in a directory that is."""
        folders = [self._root, *(each for each in self._all("folder") if each.count(b"/") < self._root.count(b"/") + 4)]
        return os.path.join(self._rng.choice(folders), self._rng.choice(self._names))

    def data(self) -> bytes:
        """Make content: nothing, text, or bytes."""
        return self._rng.choice((b"", b"text %d\n" % self._rng.randrange(99), self._rng.randbytes(40), b"x" * 5000))

    # ------------------------------------------------------------------ changes

    def act(self) -> str:
        """Change something at random; what the system refuses is not done. Give what was done."""
        acts = [each for each in dir(self) if each.startswith("do_")]
        act = self._rng.choice(acts)
        with contextlib.suppress(OSError):
            getattr(self, act)()
        return act.removeprefix("do_")

    def write(self, path: bytes, data: bytes) -> None:
        """Replace a file's content in place."""
        with open(path, "wb") as file:
            file.write(data)

    def do_create(self) -> None:
        path = self.free()
        if not os.path.lexists(path):
            self.write(path, self.data())

    do_create_more = do_create

    def do_edit(self) -> None:
        if path := self.some("file"):
            self.write(path, self.data())

    def do_edit_and_keep_the_size(self) -> None:
        if path := self.some("file"):
            size = os.lstat(path).st_size
            self.write(path, self._rng.randbytes(size))

    def do_edit_and_keep_size_and_time(self) -> None:
        if path := self.some("file"):
            status = os.lstat(path)
            self.write(path, self._rng.randbytes(status.st_size))
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def do_append(self) -> None:
        if path := self.some("file"):
            with open(path, "ab") as file:
                file.write(b"more\n")

    def do_replace(self) -> None:
        if path := self.some("file"):
            self.write(path + b"~", self.data())
            os.rename(path + b"~", path)

    def do_delete(self) -> None:
        if path := self.some(self._rng.choice(("file", "link"))):
            os.unlink(path)

    def do_rename(self) -> None:
        if path := self.some(self._rng.choice(("file", "link", "folder"))):
            os.rename(path, self.free())

    def do_chmod(self) -> None:
        if path := self.some("file"):
            os.chmod(path, self._rng.choice(FILE_MODES))

    def do_chmod_of_a_directory(self) -> None:
        if path := self.some("folder"):
            os.chmod(path, self._rng.choice(DIRECTORY_MODES))

    def do_link(self) -> None:
        os.symlink(self._rng.choice(TARGETS), self.free())

    def do_mkdir(self) -> None:
        os.mkdir(self.free())

    def do_mkdir_and_fill(self) -> None:
        path = self.free()
        os.mkdir(path)
        self.write(os.path.join(path, b"in"), self.data())
        os.mkdir(os.path.join(path, b"empty"))

    def do_remove_a_tree(self) -> None:
        if path := self.some("folder"):
            remove(path)

    def do_turn_a_file_into_a_directory(self) -> None:
        if path := self.some("file"):
            os.unlink(path)
            os.mkdir(path)
            self.write(os.path.join(path, b"was a file"), self.data())

    def do_turn_a_directory_into_a_file(self) -> None:
        if path := self.some("folder"):
            remove(path)
            self.write(path, self.data())

    def do_turn_a_file_into_a_link(self) -> None:
        if path := self.some("file"):
            os.unlink(path)
            os.symlink(self._rng.choice(TARGETS), path)

    def do_ignored(self) -> None:
        self.write(self.free() + IGNORED_SUFFIX, self.data())

    def do_ignored_folder(self) -> None:
        folder = os.path.join(os.path.dirname(self.free()), IGNORED_FOLDER)
        os.makedirs(folder, exist_ok=True)
        self.write(os.path.join(folder, b"kept"), self.data())


def remove(path: bytes) -> None:
    """Remove a tree, all but what the rules of the tests leave out."""
    for at, folders, files in os.walk(path, topdown=False):
        os.chmod(at, 0o700)
        for name in files:
            if not is_ignored(os.path.join(at, name)):
                os.unlink(os.path.join(at, name))
        for name in folders:
            where = os.path.join(at, name)
            if os.path.islink(where):
                os.unlink(where)
    for at, _, _ in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(at)
