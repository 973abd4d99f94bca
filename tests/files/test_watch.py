"""Watching: what the system reports leads to the same tree as a full scan, and any doubt leads to a full scan."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _hands import Hand
from _memory import Memory

from takeback.files.disk.scan import Scanner

pytestmark = [
    pytest.mark.feature("A4", "F1"),
    pytest.mark.trial("T22"),
    pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "src" / "deep").mkdir(parents=True)
    for number in range(20):
        (root / "src" / f"f{number}").write_text(str(number))
    return root


@pytest.fixture
def keep() -> Memory:
    return Memory()


def watched(root: Path, keep: Memory) -> Scanner:
    """A scanner that the system reports to."""
    scanner = Scanner(str(root))
    scanner._watches = True  # whatever the tests run on
    scanner.scan(keep)
    scanner.scan(keep)
    assert scanner._watcher is not None
    return scanner


def plain(root: Path, keep: Memory) -> Scanner:
    """A scanner that always scans everything."""
    scanner = Scanner(str(root))
    scanner._watches = False
    scanner.scan(keep)
    return scanner


@contextlib.contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Note the directories that are scanned completely."""
    found, real = list[str](), Scanner._scan_directory

    def noted(self: Scanner, descriptor: int, path: str, *more: object) -> bytes:
        found.append(path)
        return real(self, descriptor, path, *more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Scanner, "_scan_directory", noted)
        yield found


class Busy(Hand):
    """Changes a directory in ways that are hard to follow by reports."""

    def __init__(self, root: Path, rng: random.Random, outside: Path) -> None:
        super().__init__(root, rng, (b"a", b"b.txt", b"src", b"lib", b"x.log"))
        self._outside = os.fsencode(outside)

    def do_swap_two_directories(self) -> None:
        one, other = self.some("folder"), self.some("folder")
        if one and other and one != other and not (one + b"/").startswith(other) and not (other + b"/").startswith(one):
            away = os.path.join(self._outside, b"away")
            os.rename(one, away)
            os.rename(other, one)
            os.rename(away, other)

    def do_replace_a_directory_by_its_copy(self) -> None:
        if path := self.some("folder"):
            away = os.path.join(self._outside, b"%d" % self._rng.randrange(1 << 60))
            os.rename(path, away)
            shutil.copytree(away, path, symlinks=True)
            self.write(os.path.join(away, b"in"), b"written where nobody looks")

    def do_move_a_directory_in(self) -> None:
        path = os.path.join(self._outside, b"%d" % self._rng.randrange(1 << 60))
        os.makedirs(os.path.join(path, b"deep", b"er"))
        self.write(os.path.join(path, b"deep", b"er", b"f"), self.data())
        os.rename(path, self.free())

    def do_make_a_deep_tree_and_change_it_at_once(self) -> None:
        path = self.free()
        os.makedirs(os.path.join(path, b"1", b"2", b"3"))
        self.write(os.path.join(path, b"1", b"2", b"f"), self.data())
        os.rename(os.path.join(path, b"1"), os.path.join(path, b"one"))
        self.write(os.path.join(path, b"one", b"2", b"3", b"g"), self.data())

    def hard_link(self, known: list[str]) -> None:
        """Give a file another name where it is captured too: links from elsewhere are not reported."""
        place, target = (os.path.join(self._root, os.fsencode(self._rng.choice(known)), name) for name in (b"a", b"z"))
        with contextlib.suppress(OSError):
            os.link(place, target)

    def do_write_through_a_map(self) -> None:
        if (path := self.some("file")) and os.path.getsize(path):
            with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
                mapped[0] = self._rng.randrange(256)

    def do_link_to_a_directory_and_write_behind_it(self) -> None:
        if path := self.some("folder"):
            link = self.free()
            os.symlink(path, link)
            self.write(os.path.join(link, b"behind"), self.data())

    def do_write_rules(self) -> None:
        lines = self._rng.choice((b"*.log\n", b"", b"lib/\n", b"[z-a]\n", b"src/**\n"))
        self.write(os.path.join(os.path.dirname(self.free()), b".gitignore"), lines)

    def do_chmod_everything(self) -> None:
        if path := self.some("folder"):
            subprocess.run(["chmod", "-R", "u+rwX,g-w", path], check=True)


@pytest.mark.promise("R14")
def test_what_is_reported_leads_to_the_tree_of_a_full_scan(
    tmp_path: Path,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    counts: Callable[[int, int], int],
    tally: Callable[..., int],
) -> None:
    rng, keep, outside = random.Random(f"watched {seed}"), Memory(), tmp_path / "outside"
    outside.mkdir()
    scanner, other, hand, partly = watched(root, keep), plain(root, keep), Busy(root, rng, outside), 0
    for number in range(counts(300, 20_000)):
        acts = [hand.act() for _ in range(rng.randint(0, 6))] or [hand.hard_link([*scanner.folders])]
        with counted(monkeypatch) as scanned:
            found = scanner.scan(keep).root
        partly += "" not in scanned
        expected = other.scan(keep).root
        if found != expected:
            ours, theirs = keep.flat(found), keep.flat(expected)
            wrong = {path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path)}
            raise AssertionError(f"{number}: {acts}: {sorted(wrong)}")
        if number % 50 == 49:  # it grows: begin again
            for each in os.listdir(root):
                place = root / each
                shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()
    assert partly > number / 4, "most of it is tried"
    tally("watched scans", partly)
