"""A set of file changes is applied whole or not at all, and what somebody else does meanwhile is never lost."""

from __future__ import annotations

import os
import random
import signal
import socket
import stat
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from takeback.errors import Conflict, Corrupt, Invalid, Unsupported
from takeback.files.disk import _syscalls
from takeback.files.disk.apply import Changeset, Step
from takeback.model.tree import DIR, FILE, GAP, LINK, Node

pytestmark = [pytest.mark.feature("F1")]

Thing = tuple[Any, ...]
Things = Mapping[bytes, Thing]


def f(content: bytes = b"", mode: int = 0o644) -> Thing:
    return (FILE, mode, content)


def d(mode: int = 0o755) -> Thing:
    return (DIR, mode)


def ln(target: bytes) -> Thing:
    return (LINK, target)


def build(root: Path, things: Things) -> None:
    """Make a directory that holds exactly these things."""
    root.mkdir(exist_ok=True)
    at = os.fsencode(root) + b"/"
    for path, thing in sorted(things.items()):
        if thing[0] == DIR:
            os.mkdir(at + path)
        elif thing[0] == LINK:
            os.symlink(thing[1], at + path)
        else:
            with open(at + path, "wb") as file:
                file.write(thing[2])
            os.chmod(at + path, thing[1])
    for path, thing in sorted(things.items(), reverse=True):
        if thing[0] == DIR:
            os.chmod(at + path, thing[1])


def read(root: Path | bytes, prefix: bytes = b"", *, ours: bool = False) -> dict[bytes, Thing]:
    """Return what a directory holds; staging directories only if asked for."""
    found: dict[bytes, Thing] = {}
    for entry in os.scandir(os.fsencode(root)):
        if entry.name.startswith(b".takeback-") and not ours:
            continue
        status = entry.stat(follow_symlinks=False)
        path, mode = prefix + entry.name, stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode):
            found[path] = ln(os.readlink(entry.path))
        elif stat.S_ISDIR(status.st_mode):
            found[path] = d(mode)
            found |= read(entry.path, path + b"/", ours=ours)
        elif stat.S_ISREG(status.st_mode):
            with open(entry.path, "rb") as file:
                found[path] = f(file.read(), mode)
        else:
            found[path] = ("other",)
    return found


def node(thing: Thing | None) -> Node | None:
    if thing is None:
        return None
    if thing[0] == FILE:
        return Node(FILE, thing[1], len(thing[2]), sha256(thing[2]).digest())
    return Node(DIR, thing[1], 0, b"") if thing[0] == DIR else Node(LINK, 0o777, len(thing[1]), thing[1])


def steps_between(old: Things, new: Things) -> list[Step]:
    paths = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    return [Step(path, node(old.get(path)), node(new.get(path))) for path in paths]


def contents(*trees: Things) -> Callable[[bytes], Iterator[bytes]]:
    """Return the fetch over what these trees hold, two bytes at a time."""
    known = {sha256(thing[2]).digest(): thing[2] for tree in trees for thing in tree.values() if thing[0] == FILE}

    def fetch(digest: bytes) -> Iterator[bytes]:
        content = known[digest]
        return (content[i : i + 2] for i in range(0, len(content), 2))

    return fetch


class Case:
    """A directory that holds ``old``, and the change that makes it ``new``."""

    def __init__(self, root: Path, old: Things, new: Things, *, id: str = "1") -> None:
        self.root, self.old, self.new, self.id = root, old, new, id
        self.fetch = contents(old, new)
        build(root, old)
        self.change = self.fresh()

    def fresh(self) -> Changeset:
        """The change as another process would make it from what is stored."""
        return Changeset(os.fsencode(self.root), steps_between(self.old, self.new), self.id)

    def staged(self) -> Changeset:
        self.change.stage(self.fetch)
        self.change.check()
        return self.change

    def carried_out(self) -> Changeset:
        self.staged().carry_out()
        return self.change

    def staging(self) -> Path:
        return self.root / f".takeback-{self.id}"


def goes_and_comes_back(root: Path, old: Things, new: Things) -> None:
    case = Case(root, old, new)
    case.carried_out()
    assert read(root) == dict(new)
    assert case.fresh().take_back() == []
    assert read(root) == dict(old)
    assert case.fresh().take_back() == []
    case.fresh().clean()
    assert read(root, ours=True) == dict(old)


PAIRS: dict[str, tuple[Things, Things]] = {
    "create": ({}, {b"a": f(b"x", 0o600), b"b": ln(b"a"), b"c": d(0o700)}),
    "overwrite": ({b"a": f(b"one")}, {b"a": f(b"two", 0o755)}),
    "chmod": ({b"a": f(b"one", 0o644), b"d": d(0o755)}, {b"a": f(b"one", 0o400), b"d": d(0o700)}),
    "relink": ({b"a": ln(b"/etc/passwd")}, {b"a": ln(b"../..")}),
    "file to directory": ({b"a": f(b"x")}, {b"a": d(), b"a/b": d(), b"a/b/c": f(b"y"), b"a/b/l": ln(b"c")}),
    "directory to link": ({b"a": d(), b"a/b": d(0o500), b"a/b/c": f(b"y")}, {b"a": ln(b"elsewhere")}),
    "link to file": ({b"a": ln(b"b"), b"b": f(b"y")}, {b"a": f(b"x"), b"b": f(b"y")}),
    "deep removal": ({b"a": d(), b"a/b": d(), b"a/b/c": d(0o700)}, {}),
    "read-only before": ({b"a": d(0o555), b"a/x": f(b"1"), b"a/y": f(b"2")}, {b"a": d(0o555), b"a/x": f(b"3")}),
    "read-only after": ({}, {b"a": d(0o555), b"a/b": d(0o500), b"a/b/x": f(b"1", 0o444)}),
    "read-only goes": ({b"a": d(0o555), b"a/b": d(0o500), b"a/b/x": f(b"1", 0o444)}, {}),
    "read-only opens": ({b"a": d(0o555), b"a/x": f(b"1")}, {b"a": d(0o755), b"a/x": f(b"2"), b"a/y": f(b"3")}),
    "not UTF-8": ({b"\xff\xfe": f(b"x")}, {b"\xff\xfe": d(), b"\xff\xfe/\x80": f(b"y"), b"\xc3(": ln(b"\xf0\x28")}),
    "empty file": ({b"a": f(b"")}, {b"b": f(b"")}),
    "swap": ({b"a": f(b"1"), b"b": d(), b"b/x": f(b"2")}, {b"a": d(), b"a/x": f(b"2"), b"b": f(b"1")}),
}


@pytest.mark.promise("R15")
@pytest.mark.parametrize("name", PAIRS)
def test_a_change_and_its_taking_back_are_exact_whatever_kind_becomes_whatever_kind(tmp_path: Path, name: str) -> None:
    old, new = PAIRS[name]
    goes_and_comes_back(tmp_path / "one", old, new)
    goes_and_comes_back(tmp_path / "two", new, old)


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o177])
def test_modes_are_exact_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(0o022)
    try:
        for number, (old, new) in enumerate(PAIRS.values()):
            case = Case(tmp_path / str(number), old, new)
            os.umask(umask)
            case.carried_out()
            assert read(case.root) == dict(new)
            case.fresh().take_back()
            assert read(case.root) == dict(old)
            os.umask(0o022)
    finally:
        os.umask(before)


def unprivileged(work: Callable[[], None]) -> None:
    """Do it in a child that is not root, so that modes mean something."""
    child = os.fork()
    if not child:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.promise("R15")
def test_read_only_directories_are_no_hindrance_to_an_ordinary_user(tmp_path: Path) -> None:
    where = os.open(tmp_path, os.O_RDONLY)  # the user nobody cannot walk to it
    os.fchmod(where, 0o777)

    def work() -> None:
        os.fchdir(where)
        for number, (old, new) in enumerate(PAIRS.values()):
            goes_and_comes_back(Path(f"{number}-there"), old, new)
            goes_and_comes_back(Path(f"{number}-back"), new, old)

    unprivileged(work)
    os.close(where)


def test_random_trees_become_one_another_and_come_back(tmp_path: Path, seed: int, counts: Any) -> None:
    chance = random.Random(seed)
    for number in range(counts(60, 2000)):
        old, new = some_tree(chance), some_tree(chance)
        goes_and_comes_back(tmp_path / str(number), old, new)


def some_tree(chance: random.Random, prefix: bytes = b"", depth: int = 0) -> dict[bytes, Thing]:
    found: dict[bytes, Thing] = {}
    for name in chance.sample([b"a", b"b", b"c", b"\xff", b"a.b"], chance.randrange(5)):
        path, kind = prefix + name, chance.choice([FILE, FILE, LINK, DIR, DIR])
        if kind == FILE:
            found[path] = f(chance.choice([b"", b"x", b"yy", b"zz"]), chance.choice([0o644, 0o755, 0o400]))
        elif kind == LINK:
            found[path] = ln(chance.choice([b"a", b"..", b"/nowhere", b"../a/b"]))
        else:
            found[path] = d(chance.choice([0o755, 0o555, 0o700]))
            found |= some_tree(chance, path + b"/", depth + 1) if depth < 3 else {}
    return found


# ---------------------------------------------------------------------- staging


def test_staging_touches_nothing_and_is_private(tmp_path: Path) -> None:
    case = Case(tmp_path / "w", *PAIRS["file to directory"])
    case.change.stage(case.fetch)
    assert read(case.root) == case.old
    assert stat.S_IMODE(case.staging().stat().st_mode) == 0o700


@pytest.mark.parametrize("wrong", [b"other", b"", b"much longer than it ought to be"])
def test_content_that_is_not_what_its_name_says_is_corrupt_and_nothing_stays(tmp_path: Path, wrong: bytes) -> None:
    case = Case(tmp_path / "w", {}, {b"a": f(b"right")})
    with pytest.raises(Corrupt):
        case.change.stage(lambda digest: [wrong])
    assert read(case.root, ours=True) == {}


def test_an_error_of_the_source_is_raised_and_nothing_stays(tmp_path: Path) -> None:
    case = Case(tmp_path / "w", {b"k": f()}, {b"a": f(b"1"), b"b": f(b"2")})
    with pytest.raises(KeyError):
        case.change.stage(contents({b"a": f(b"1")}))
    assert read(case.root, ours=True) == case.old


def test_a_second_staging_under_the_same_id_harms_the_first_one_not(tmp_path: Path) -> None:
    case = Case(tmp_path / "w", {}, {b"a": f(b"right")})
    case.staged()
    with pytest.raises(FileExistsError):
        case.fresh().stage(case.fetch)
    case.change.carry_out()
    assert read(case.root) == case.new


def test_setuid_is_never_set(tmp_path: Path) -> None:
    case = Case(tmp_path / "w", {b"a": f(b"x")}, {b"a": f(b"y", 0o6755), b"d": d(0o3755)})
    case.carried_out()
    assert read(case.root) == {b"a": f(b"y", 0o755), b"d": d(0o755)}
    assert case.change.take_back() == []


def test_bits_that_are_there_stay_when_a_mode_changes(tmp_path: Path) -> None:
    case = Case(tmp_path / "w", {b"d": d(0o755), b"x": f(b"", 0o755)}, {b"d": d(0o555), b"x": f(b"", 0o555)})
    (case.root / "d").chmod(0o2755)
    (case.root / "x").chmod(0o4755)
    case.carried_out()
    assert read(case.root) == {b"d": d(0o2555), b"x": f(b"", 0o555)}, "a file with another mode is another file"
    case.change.take_back()
    assert read(case.root) == {b"d": d(0o2755), b"x": f(b"", 0o4755)}


@pytest.mark.parametrize("path", [b"", b"/a", b"../a", b"a/../b", b"a//b", b"a/", b"./a", b"a\0b", b".takeback-1/x"])
def test_a_path_that_is_not_within_the_directory_is_invalid(tmp_path: Path, path: bytes) -> None:
    with pytest.raises(Invalid):
        Changeset(str(tmp_path), [Step(path, None, node(f(b"")))], "1")


def test_steps_that_make_no_sense_are_invalid(tmp_path: Path) -> None:
    step = Step(b"a", None, node(f()))
    with pytest.raises(Invalid):
        Changeset(str(tmp_path), [step, step], "1")
    with pytest.raises(Invalid):
        Changeset(str(tmp_path), [Step(b"a", None, Node(GAP, 0, 0, b"too large"))], "1")
    with pytest.raises(Invalid):
        Changeset(str(tmp_path), [step], "../1")


# ---------------------------------------------------------------------- checking


BEFORE: Things = {b"f": f(b"one"), b"l": ln(b"f"), b"d": d(), b"d/x": f(b"x")}
AFTER: Things = {b"f": f(b"two"), b"l": ln(b"d"), b"n": f(b"new")}


def edit_content(root: Path) -> bytes:
    (root / "f").write_bytes(b"ONE")
    return b"f"


def edit_mode(root: Path) -> bytes:
    (root / "f").chmod(0o600)
    return b"f"


def edit_link(root: Path) -> bytes:
    (root / "l").unlink()
    (root / "l").symlink_to("g")
    return b"l"


def edit_directory_mode(root: Path) -> bytes:
    (root / "d").chmod(0o700)
    return b"d"


def edit_by_making(root: Path) -> bytes:
    (root / "n").write_bytes(b"mine")
    return b"n"


def edit_by_removing(root: Path) -> bytes:
    (root / "f").unlink()
    return b"f"


def edit_to_fifo(root: Path) -> bytes:
    (root / "f").unlink()
    os.mkfifo(root / "f", 0o644)
    return b"f"


def edit_to_socket(root: Path) -> bytes:
    (root / "f").unlink()
    here = os.getcwd()
    os.chdir(root)  # the address of a socket is short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("f")
    os.chdir(here)
    return b"f"


def edit_to_link_to_the_same(root: Path) -> bytes:
    (root / "f").rename(root.parent / "same")
    (root / "f").symlink_to(root.parent / "same")
    return b"f"


def edit_parent_to_link(root: Path) -> bytes:
    (root / "d").rename(root.parent / "outside")
    (root / "d").symlink_to(root.parent / "outside")
    return b"d/x"


EDITS = [edit_content, edit_mode, edit_link, edit_directory_mode, edit_by_making, edit_by_removing]
EDITS += [edit_to_fifo, edit_to_socket, edit_to_link_to_the_same, edit_parent_to_link]


@pytest.mark.promise("R15")
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_before_the_check_is_a_conflict_that_names_the_path(
    tmp_path: Path, edit: Callable[[Path], bytes]
) -> None:
    case = Case(tmp_path / "w", BEFORE, AFTER)
    case.change.stage(case.fetch)
    path = edit(case.root)
    left = read(case.root)
    for attempt in (case.change.check, case.change.carry_out):
        with pytest.raises(Conflict) as caught:
            attempt()
        assert path in caught.value.found  # type: ignore[operator]
        assert path.decode() in str(caught.value)
        assert read(case.root) == left


@pytest.mark.promise("R15")
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_after_the_check_is_a_conflict_too_and_the_edit_is_what_stays(
    tmp_path: Path, edit: Callable[[Path], bytes]
) -> None:
    case = Case(tmp_path / "w", BEFORE, AFTER)
    case.staged()
    path = edit(case.root)
    left = read(case.root)
    with pytest.raises(Conflict) as caught:
        case.change.carry_out()
    assert path in caught.value.found or path.startswith(b"d/")  # type: ignore[operator]
    assert read(case.root) == left
    assert not case.change.half_done


def test_nothing_outside_is_written_through_a_parent_that_became_a_link(tmp_path: Path) -> None:
    case = Case(tmp_path / "w", {b"d": d()}, {b"d": d(), b"d/x": f(b"new")})
    case.staged()
    edit_parent_to_link(case.root)
    with pytest.raises(Conflict):
        case.change.carry_out()
    assert read(tmp_path / "outside") == {}
    assert case.change.take_back() == []


def test_a_missing_parent_is_a_conflict(tmp_path: Path) -> None:
    case = Case(tmp_path / "w", {}, {b"d/x": f(b"new")})
    with pytest.raises(Conflict):
        case.change.check()


def test_carrying_out_what_is_not_staged_or_was_begun_before_is_a_conflict(tmp_path: Path) -> None:
    case = Case(tmp_path / "w", BEFORE, AFTER)
    with pytest.raises(Conflict):
        case.change.carry_out()
    case.carried_out()
    with pytest.raises(Conflict):
        case.fresh().carry_out()
    assert read(case.root) == AFTER
    case.change.take_back()
    next(case.staging().glob("new-*")).unlink()
    with pytest.raises(Conflict):
        case.fresh().carry_out()
    assert read(case.root) == BEFORE


def test_another_file_system_is_refused_before_anything_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path / "w", BEFORE, AFTER)
    begin = _syscalls.Inside.__init__

    def elsewhere(self: _syscalls.Inside, root: bytes) -> None:
        begin(self, root)
        self.device += 1

    monkeypatch.setattr(_syscalls.Inside, "__init__", elsewhere)
    for attempt in (lambda: case.change.stage(case.fetch), case.change.check):
        with pytest.raises(Unsupported, match="another file system"):
            attempt()
    assert read(case.root, ours=True) == BEFORE


@pytest.mark.needs_root
def test_a_mounted_directory_is_another_file_system(tmp_path: Path) -> None:
    if sys.platform != "linux" or os.stat("/dev/shm").st_dev == os.stat("/dev").st_dev:
        pytest.skip("no mounted directory at hand")
    name = os.urandom(8).hex().encode()
    change = Changeset("/dev", [Step(b"shm/" + name, None, node(f()))], name.decode())
    with pytest.raises(Unsupported):
        change.check()


# ---------------------------------------------------------------------- somebody else's files


def test_a_directory_with_files_of_others_stays_and_that_is_no_error(tmp_path: Path) -> None:
    case = Case(tmp_path / "w", {b"d": d(0o555), b"d/x": f(b"x")}, {})
    (case.root / "d").chmod(0o755)
    (case.root / "d/ignored").write_bytes(b"theirs")
    (case.root / "d").chmod(0o555)
    case.carried_out()
    assert read(case.root) == {b"d": d(0o555), b"d/ignored": f(b"theirs")}
    assert case.fresh().take_back() == []
    assert read(case.root) == {**case.old, b"d/ignored": f(b"theirs")}


def test_a_directory_with_files_of_others_is_not_replaced(tmp_path: Path) -> None:
    case = Case(tmp_path / "w", {b"d": d(), b"d/x": f(b"x")}, {b"d": f(b"file")})
    (case.root / "d/ignored").write_bytes(b"theirs")
    with pytest.raises(Conflict):
        case.carried_out()
    assert read(case.root) == {**case.old, b"d/ignored": f(b"theirs")}


class Meddling:
    """A system in which somebody does something right before the n-th call that changes anything."""

    CALLS = frozenset({"mkdir", "rmdir", "rename", "link", "unlink", "symlink", "fchmod", "fsync", "write", "open"})

    def __init__(self, meddle: Callable[[int, str, tuple[Any, ...]], None]) -> None:
        self.count, self._meddle = 0, meddle

    def __getattr__(self, name: str) -> Any:
        assert name in self.CALLS, name
        real = getattr(os, name)

        def call(*args: Any, **keywords: Any) -> Any:
            self.count += 1
            self._meddle(self.count, name, args)
            return real(*args, **keywords)

        return call


@pytest.mark.promise("R15")
def test_what_appears_at_the_last_moment_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (name, new) in enumerate([("link", f(b"new")), ("link", ln(b"new")), ("rename", d())]):
        case = Case(tmp_path / str(number), {}, {b"n": new})
        case.staged()

        def appear(_: int, call: str, args: tuple[Any, ...], case: Case = case, name: str = name) -> None:
            if call == name and args[1] == b"n" and not (case.root / "n").exists():
                (case.root / "n").write_bytes(b"mine")

        monkeypatch.setattr(_syscalls, "system", Meddling(appear))
        with pytest.raises(Conflict):
            case.change.carry_out()
        monkeypatch.undo()
        assert read(case.root) == {b"n": f(b"mine")}


def test_an_edit_at_the_very_rename_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(tmp_path / "w", {b"a": f(b"one")}, {b"a": f(b"two")})
    case.staged()

    def edit(_: int, call: str, args: tuple[Any, ...]) -> None:
        if call == "rename" and args[0] == b"a":
            (case.root / "a").write_bytes(b"his")

    monkeypatch.setattr(_syscalls, "system", Meddling(edit))
    with pytest.raises(Conflict) as caught:
        case.change.carry_out()
    assert caught.value.found == (b"a",)
    assert read(case.root) == {b"a": f(b"his")}


def test_without_hard_links_it_works_by_renames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, call: str, args: tuple[Any, ...]) -> None:
        if call == "link":
            raise PermissionError(1, "no hard links here")

    monkeypatch.setattr(_syscalls, "system", Meddling(refuse))
    goes_and_comes_back(tmp_path / "w", *PAIRS["file to directory"])
    case = Case(tmp_path / "v", {}, {b"n": f(b"new")})
    case.staged()
    (case.root / "n").write_bytes(b"mine")
    with pytest.raises(Conflict):
        case.change.carry_out()
    assert read(case.root) == {b"n": f(b"mine")}


# ---------------------------------------------------------------------- taking back


@pytest.mark.promise("R15")
def test_what_somebody_changed_afterwards_is_kept_and_the_old_version_lies_beside(tmp_path: Path) -> None:
    old: Things = {b"a": f(b"old"), b"d": d(), b"d/x": f(b"x"), b"c": f(b"c", 0o644), b"z": f(b"z")}
    new: Things = {b"a": f(b"new"), b"n": f(b"n"), b"c": f(b"c", 0o755), b"m": d()}
    case = Case(tmp_path / "w", old, new)
    case.carried_out()
    (case.root / "a").write_bytes(b"his")
    (case.root / "n").chmod(0o600)
    (case.root / "d").symlink_to("..")
    (case.root / "c").write_bytes(b"his")
    (case.root / "m/in").write_bytes(b"his")
    (case.root / "z").write_bytes(b"z")  # the same as before: nothing to tell
    (case.root / "z").chmod(0o644)
    expected = {
        b"a": f(b"his"),
        b"a.takeback-1": f(b"old"),
        b"n": f(b"n", 0o600),
        b"d": ln(b".."),
        b"x.takeback-1": f(b"x"),
        b"c": f(b"his", 0o755),
        b"c.takeback-1": f(b"c", 0o644),
        b"m": d(),
        b"m/in": f(b"his"),
        b"z": f(b"z"),
    }
    for change in (case.fresh(), case.fresh()):
        assert change.take_back() == [b"a", b"c", b"d", b"d/x", b"m", b"n"]
        assert read(case.root) == expected
    case.change.clean()
    assert read(case.root, ours=True) == expected


def test_a_name_beside_that_is_taken_is_not_replaced(tmp_path: Path) -> None:
    case = Case(tmp_path / "w", {b"a": f(b"old")}, {b"a": f(b"new")})
    case.carried_out()
    (case.root / "a").write_bytes(b"his")
    (case.root / "a.takeback-1").write_bytes(b"taken")
    assert case.change.take_back() == [b"a"]
    assert set(read(case.root).values()) == {f(b"his"), f(b"taken"), f(b"old")}


def test_a_file_that_somebody_put_where_ours_never_came_is_kept_even_if_it_is_the_same(tmp_path: Path) -> None:
    case = Case(tmp_path / "w", {}, {b"n": f(b"new")})
    case.staged()
    (case.root / "n").write_bytes(b"new")
    assert case.fresh().take_back() == [b"n"]
    assert read(case.root) == {b"n": f(b"new")}


@pytest.mark.promise("R15")
@pytest.mark.parametrize("name", PAIRS)
def test_a_lost_staging_directory_is_no_loss_where_the_content_is_stored(tmp_path: Path, name: str) -> None:
    case = Case(tmp_path / "w", *PAIRS[name])
    case.carried_out()
    case.change.clean()
    assert read(case.root, ours=True) == case.new
    assert case.fresh().take_back(case.fetch) == []
    assert read(case.root) == case.old
    case.change.clean()
    assert read(case.root, ours=True) == case.old


def test_a_lost_staging_directory_without_a_store_leaves_what_it_cannot_restore_and_names_it(tmp_path: Path) -> None:
    case = Case(tmp_path / "w", {b"a": f(b"old"), b"m": f(b"", 0o644)}, {b"n": f(b"new"), b"m": f(b"", 0o755)})
    case.carried_out()
    case.change.clean()
    assert case.fresh().take_back() == [b"a", b"m"]
    assert read(case.root) == {}
    assert case.fresh().take_back(case.fetch) == []
    case.change.clean()
    assert read(case.root, ours=True) == case.old


def test_taking_back_what_never_began_changes_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    case = Case(tmp_path / "w", BEFORE, AFTER)
    assert case.change.take_back(case.fetch) == []
    case.change.clean()
    assert read(case.root, ours=True) == BEFORE


def test_old_files_come_back_as_the_same_files_with_their_times(tmp_path: Path) -> None:
    case = Case(tmp_path / "w", BEFORE, AFTER)
    os.utime(case.root / "f", ns=(10**18, 10**18))
    before = (case.root / "f").stat()
    case.carried_out()
    case.change.take_back()
    after = (case.root / "f").stat()
    assert (before.st_ino, before.st_mtime_ns, after.st_nlink) == (after.st_ino, after.st_mtime_ns, 1)


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/dev/fd"))

    before = descriptors()
    deep = {b"/".join([b"d"] * n): d() for n in range(1, 150)}
    goes_and_comes_back(tmp_path / "w", {}, {**deep, b"/".join([b"d"] * 149 + [b"x"]): f(b"x")})
    case = Case(tmp_path / "v", BEFORE, AFTER)
    case.staged()
    edit_content(case.root)
    with pytest.raises(Conflict):
        case.change.carry_out()
    assert descriptors() == before


def test_a_signal_that_interrupts_takes_everything_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(tmp_path / "w", BEFORE, AFTER)
    case.staged()

    def interrupt(count: int, *_: object) -> None:
        if count == 4:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(_syscalls, "system", Meddling(interrupt))
    with pytest.raises(KeyboardInterrupt):
        case.change.carry_out()
    assert read(case.root) == BEFORE
