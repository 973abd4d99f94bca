"""A project that an agent works in: many small sources, a few large files, and ten of them changed at a time.

The same seed gives the same files and the same changes, so every way to keep them has the same work.
"""

from __future__ import annotations

import hashlib
import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from . import messages

CHANGED = 10
_PER_FOLDER = 40
_FOLDERS = 25  # beside each other
_LINES = (10, 200)


class Change(NamedTuple):
    """A few files to write to, one to make and one to delete, none of it done yet."""

    written: list[Path]
    made: Path
    deleted: Path
    text: str

    @property
    def paths(self) -> list[Path]:
        """All of them."""
        return [*self.written, self.made, self.deleted]

    def do(self) -> None:
        """Change the files."""
        for path in self.written:
            with open(path, "a", encoding="utf-8") as file:
                file.write(self.text)
        self.made.write_text(self.text * 10, "utf-8")
        self.deleted.unlink()


def build(root: Path, count: int, large: tuple[int, ...], seed: int) -> list[Path]:
    """Write ``count`` small files, and large ones of so many bytes; give the small ones."""
    rng, sources = random.Random(seed), [text.splitlines() for _, text in messages.corpus().sources]
    folders = [root / f"d{n // _FOLDERS:02d}" / f"p{n % _FOLDERS:02d}" for n in range(max(1, count // _PER_FOLDER))]
    for folder in folders:
        folder.mkdir(parents=True)
    found = []
    for number in range(count):
        lines = rng.choice(sources)
        start = rng.randrange(max(1, len(lines) - _LINES[0]))
        path = folders[number % len(folders)] / f"f{number}.py"
        path.write_text("\n".join([f"# file {number}", *lines[start : start + rng.randrange(*_LINES)]]), "utf-8")
        found.append(path)
    for number, size in enumerate(large):
        (root / f"large{number}.bin").write_bytes(rng.randbytes(size))
    return found


def change(root: Path, files: list[Path], rng: random.Random) -> Change:
    """Choose what changes next."""
    *written, deleted = rng.sample(files, CHANGED - 1)
    return Change(written, root / f"new{rng.getrandbits(40)}.py", deleted, f"\n# an edit, {rng.random()}\n")


def look(root: Path) -> float:
    """Return the seconds that it takes to ask for the status of everything, and no more: the floor."""
    started, folders = perf_counter(), [str(root)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    entry.stat(follow_symlinks=False)
    return perf_counter() - started


def fingerprint(root: Path) -> str:
    """Return a hash of all names and all contents."""
    found = hashlib.blake2b()
    for path in sorted(_below(root)):
        if not path.is_dir():
            with open(path, "rb") as file:
                found.update(f"{path.relative_to(root)}\0{os.fstat(file.fileno()).st_size}\0".encode())
                while data := file.read(1 << 20):
                    found.update(data)
    return found.hexdigest()


def on_disk(root: Path) -> int:
    """Return the bytes that a directory and all below it take on the disk; what has several names counts once."""
    statuses = [os.lstat(path) for path in (root, *_below(root))]
    blocks = {(each.st_dev, each.st_ino): each.st_blocks for each in statuses}
    return 512 * sum(blocks.values())


def content(root: Path) -> int:
    """Return the bytes of all files."""
    return sum(each.st_size for each in map(os.lstat, _below(root)) if stat.S_ISREG(each.st_mode))


def _below(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        yield from (Path(folder, name) for name in (*folders, *names))
