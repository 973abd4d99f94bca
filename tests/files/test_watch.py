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
from _folders import ENVIRONMENT
from _hands import Hand
from _memory import Memory

import takeback
from takeback.files.disk import read, watch
from takeback.files.disk.scan import Scanner
from takeback.files.disk.watch import Watcher

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
        """Add a name to a file where it is captured too: links from elsewhere are not reported."""
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
        if number % 25 == 24:  # it grows: begin again
            for each in os.listdir(root):
                place = root / each
                shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()
    assert partly > number / 4, "most of it is tried"
    tally("watched scans", partly)


# ---------------------------------------------------------------------- what is scanned


def test_only_what_was_reported_is_scanned(root: Path, keep: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    scanner = watched(root, keep)
    (root / "src" / "f1").write_text("changed")
    opened, real = list[object](), os.open
    with monkeypatch.context() as patch, counted(monkeypatch) as scanned:
        patch.setattr(os, "open", lambda path, *more, **how: opened.append(path) or real(path, *more, **how))
        found = keep.flat(scanner.scan(keep).root)
    assert keep.kept[found[b"src/f1"].content] == b"changed"
    assert scanned == []
    assert [each for each in opened if str(each).startswith("f")] == ["f1"]


def test_what_shells_do_goes_back(tmp_path: Path, root: Path) -> None:
    before = sorted(str(path) for path in root.rglob("*"))
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=root) as session:
        session.user("go")
        for number in range(5):
            with session.tool("bash"):
                command = (
                    f"echo x >> src/f{number}; mkdir -p n{number}/a; echo y > n{number}/a/c; rm src/f{19 - number};"
                )
                subprocess.run(f"{command} mv src/f{7 + number} src/g{number}", shell=True, cwd=root, check=True)
        assert {each.call_id is not None for each in session.files()} == {True}
        planned = session.preview_rewind(0)
        assert planned.kept == ()
        planned.apply()
    assert sorted(str(path) for path in root.rglob("*")) == before
    assert [(root / "src" / f"f{number}").read_text() for number in range(20)] == [str(each) for each in range(20)]


def test_what_is_written_behind_a_link_to_a_directory_goes_back(tmp_path: Path, root: Path) -> None:
    (root / "link").symlink_to("src/deep")
    (root / "src" / "deep" / "f").write_text("before")
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=root) as session:
        for number in range(3):
            session.user(str(number))
        with session.tool("bash"):
            (root / "link" / "f").write_text("broken")
        session.rewind(3)
    assert (root / "src" / "deep" / "f").read_text() == "before"


def test_the_first_scan_watches_nothing_and_the_second_everything(root: Path, keep: Memory) -> None:
    scanner = Scanner(str(root))
    scanner._watches = True
    scanner.scan(keep)
    assert scanner._watcher is None, "a process that scans once pays nothing"
    scanner.scan(keep)
    assert scanner._watcher is not None
    assert scanner._watcher.watches({"", "src/", "src/deep/"})
    scanner.close()


def test_a_preview_scans_everything(root: Path, keep: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    scanner = watched(root, keep)
    with counted(monkeypatch) as scanned:
        scanner.copied().scan(keep)
    assert scanned == ["", "src/", "src/deep/"]


@pytest.mark.feature("F1")
@pytest.mark.trial("T22")
def test_a_rewind_reads_again_what_was_changed_since_whatever_was_reported(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.bin").write_bytes(b"one")
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
        point = session.checkpoint()
        for content in (b"two", b"one"):
            with session.tool("write", {}):
                (work / "a.bin").write_bytes(content)
        with (work / "a.bin").open("r+b") as file, mmap.mmap(file.fileno(), 3) as mapped:
            mapped[0:3] = b"old"
            session.user("nothing is reported of it: the map is still open")
            assert len([*store.workspace(work).timeline()]) == 3, "so it is not seen"
            session.rewind(point, overwrite=["a.bin"])
            assert (work / "a.bin").read_bytes() == b"one"
            session.undo()
            assert (work / "a.bin").read_bytes() == b"old"


def test_a_workspace_that_is_another_directory_by_now_is_scanned_whole(
    tmp_path: Path, root: Path, keep: Memory
) -> None:
    scanner = watched(root, keep)
    shutil.copytree(root, tmp_path / "copy")
    root.rename(tmp_path / "away")
    (tmp_path / "copy").rename(root)
    (root / "src" / "f1").write_text("in the copy")
    found = keep.flat(scanner.scan(keep).root)
    assert keep.kept[found[b"src/f1"].content] == b"in the copy"
    (root / "src" / "f1").write_text("again")
    assert keep.kept[keep.flat(scanner.scan(keep).root)[b"src/f1"].content] == b"again"


# ---------------------------------------------------------------------- doubt


def test_reports_that_were_lost_lead_to_a_full_scan(root: Path, keep: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    scanner = watched(root, keep)
    with open("/proc/sys/fs/inotify/max_queued_events", encoding="ascii") as file:
        most = int(file.read())
    for number in range(most // 2 + 10):  # two reports each, and none like the one before
        os.utime(root / "src" / f"f{number % 2}")
        os.utime(root / "src" / f"f{2 + number % 2}")
    (root / "src" / "f9").write_text("after the queue was full")
    with counted(monkeypatch) as scanned:
        found = keep.flat(scanner.scan(keep).root)
    assert scanned[0] == ""
    assert keep.kept[found[b"src/f9"].content] == b"after the queue was full"
    (root / "src" / "f9").write_text("and then")
    with counted(monkeypatch) as scanned:
        found = keep.flat(scanner.scan(keep).root)
    assert (scanned, keep.kept[found[b"src/f9"].content]) == ([], b"and then"), "and reports count again"


def test_a_limit_of_the_system_leads_to_full_scans(root: Path, keep: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_allowed", lambda: 2)
    scanner = watched(root, keep)
    for text in ("one", "two"):
        (root / "src" / "deep" / "f").write_text(text)
        assert keep.kept[keep.flat(scanner.scan(keep).root)[b"src/deep/f"].content] == text.encode()
    monkeypatch.setattr(watch, "_MOST_WATCHERS", 0)
    scanner = plain(root, keep)
    scanner._watches = True
    (root / "src" / "f1").write_text("none is given")
    assert keep.kept[keep.flat(scanner.scan(keep).root)[b"src/f1"].content] == b"none is given"
    assert scanner._watcher is None


def test_what_may_have_changed_without_a_report_is_looked_at_each_time(
    tmp_path: Path, root: Path, keep: Memory
) -> None:
    (root / "src" / "linked").write_text("one")
    os.link(root / "src" / "linked", tmp_path / "outside")
    shell = f"cd {root} && git init -q . && mkdir -p .git/info && echo nothing > .git/info/exclude"
    subprocess.run(shell, shell=True, check=True, env=ENVIRONMENT)
    scanner = watched(root, keep)
    (tmp_path / "outside").write_text("two")
    assert keep.kept[keep.flat(scanner.scan(keep).root)[b"src/linked"].content] == b"two"
    (root / ".git" / "info" / "exclude").write_text("new\n")
    (root / "new").write_text("new")
    assert keep.flat(scanner.scan(keep).root)[b"new"].kind == "x"
    (root / ".git" / "info" / "exclude").write_text("")
    assert keep.flat(scanner.scan(keep).root)[b"new"].kind == "f"


# ---------------------------------------------------------------------- descriptors


def descriptors() -> set[str]:
    found = (f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd"))
    return {each for each in found if os.path.lexists(each) and "inotify" in os.readlink(each)}


def test_closing_a_store_or_dropping_a_scanner_gives_the_descriptor_back(
    tmp_path: Path, root: Path, keep: Memory
) -> None:
    before = descriptors()
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=root) as session:
        for number in range(3):
            session.user(str(number))
        assert len(descriptors()) == len(before) + 1
    assert descriptors() == before
    scanner: Scanner | None = watched(root, keep)
    assert len(descriptors()) == len(before) + 1
    del scanner
    assert descriptors() == before


def test_a_child_does_not_take_the_parents_reports(root: Path, keep: Memory) -> None:
    scanner = watched(root, keep)
    (root / "src" / "f1").write_text("changed")
    child = os.fork()
    if not child:
        os._exit(0 if not descriptors() and scanner._watcher is not None and scanner._watcher.changed() is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert scanner._watcher is not None
    assert scanner._watcher.changed() == {"src/f1"}


def test_a_directory_that_was_moved_is_known_by_its_new_path(root: Path) -> None:
    watcher = Watcher()
    try:
        for path in ("", "src/"):
            descriptor = os.open(root / path, read.DIRECTORY)
            watcher.add(path, descriptor)
            os.close(descriptor)
        (root / "src").rename(root / "moved")
        assert watcher.changed() == {"src", "moved"}
        descriptor = os.open(root / "moved", read.DIRECTORY)
        watcher.add("moved/", descriptor)
        os.close(descriptor)
        watcher.forget("src/")
        (root / "moved" / "f1").unlink()
        assert watcher.changed() == {"moved/f1"}
        assert watcher.watches(["", "moved/"])
    finally:
        watcher.close()
    assert watcher.changed() is None
