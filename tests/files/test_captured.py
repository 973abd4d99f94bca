"""What was captured stays captured, and comes back as it was: modes of directories and holes included."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from _folders import run, shell
from _memory import Memory

import takeback
from takeback import Session, Store, mounts
from takeback.files.disk import _syscalls
from takeback.files.disk._syscalls import Slot
from takeback.files.disk.scan import Scanner
from takeback.model.tree import FILE, GAP, Node

pytestmark = pytest.mark.feature("F1", "A4")


@pytest.fixture
def keep() -> Memory:
    return Memory()


# ---------------------------------------------------------------------- T23


def put_back(session: Session, work: Path) -> None:
    """Let a person write a rule, the agent remove what it names, and a rewind put that back."""
    session.user("second")
    shell(work, "echo 'lib/' > .gitignore; echo '*.txt' >> .gitignore")
    point = session.user("third")
    run(session, work, "rm -r lib a.txt")
    session.rewind(point)
    assert (work / "lib" / "deep" / "f").read_text() == "1\n"


def is_noticed(session: Session, work: Path) -> bool:
    """Whether a change to what was put back is noticed, and goes back."""
    point = session.user("more")
    run(session, work, "echo broken > lib/deep/f; echo broken > a.txt; echo new > lib/new")
    changed = {each.path for each in session.preview_rewind(point).files}
    session.rewind(point)
    read = [(work / name).read_text() for name in ("lib/deep/f", "a.txt", "lib/new")]
    return changed == {"lib/deep/f", "a.txt"} and read == ["1\n", "one\n", "new\n"]


@pytest.fixture
def lib(work: Path) -> Path:
    shell(work, "mkdir -p lib/deep; echo 1 > lib/deep/f")
    return work


@pytest.mark.trial("T23")
def test_what_was_put_back_is_captured_though_a_rule_names_it_by_now(lib: Path, session: Session) -> None:
    put_back(session, lib)
    assert is_noticed(session, lib)


@pytest.mark.trial("T23")
def test_it_is_captured_by_a_later_process_and_after_undo_and_redo(tmp_path: Path, lib: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=lib) as session:
        session.user("first")
        put_back(session, lib)
        session.undo()
        assert not (lib / "lib").exists()
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=lib) as session:
        session.redo()
        assert (lib / "lib" / "deep" / "f").read_text() == "1\n"
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=lib) as session:
        assert is_noticed(session, lib)


@pytest.mark.trial("T23")
def test_it_is_captured_after_a_prune(tmp_path: Path, store: Store, lib: Path, session: Session) -> None:
    put_back(session, lib)
    other = tmp_path / "other"
    other.mkdir()
    (other / "x").write_text("x" * 100)
    with store.session("t", workspace=other) as second:
        second.checkpoint("c")
    store.purge_session(second)
    assert is_noticed(session, lib)


@pytest.mark.trial("T23")
def test_what_is_distrusted_is_read_again_and_still_counts_as_captured(lib: Path, keep: Memory) -> None:
    scanner = Scanner(str(lib))
    first = scanner.scan(keep).root
    (lib / ".gitignore").write_text("lib/\n*.txt\n")
    scanner.distrust()
    emptied = Memory()
    found = emptied.flat(scanner.scan(emptied).root)
    assert (found[b"lib/deep/f"].kind, found[b"a.txt"].kind) == (FILE, FILE)
    assert emptied.kept[found[b"a.txt"].content] == b"one\n", "kept once more"
    assert keep.flat(first)[b"lib/deep/f"] == found[b"lib/deep/f"]


def test_only_what_was_restored_is_expected(lib: Path, keep: Memory) -> None:
    (lib / ".gitignore").write_text("lib/\n")
    (lib / "lib" / "other").write_text("o")
    scanner = Scanner(str(lib))
    assert keep.flat(scanner.scan(keep).root)[b"lib"].kind == GAP
    scanner.expect({b"lib/deep/f": Node(FILE, 0o644, 2, b"")})
    found = keep.flat(scanner.scan(keep, [b"lib/deep/f"]).root)
    assert (found[b"lib/deep/f"].kind, found[b"lib/other"].kind) == (FILE, GAP)
    assert keep.flat(scanner.copied().scan(keep).root) == found


@pytest.mark.feature("F1")
@pytest.mark.trial("T23")
def test_an_empty_directory_that_a_rule_names_by_now_comes_back_and_goes_again(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "deep" / "empty").mkdir(parents=True)
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
        point = session.checkpoint()
        with session.tool("rm", {}):
            (work / "deep" / "empty").rmdir()
        (work / ".gitignore").write_text("deep\n")
        session.rewind(point, conversation=False)
        assert (work / "deep" / "empty").is_dir()
        session.undo()
        assert not (work / "deep" / "empty").exists()
        session.redo()
        assert (work / "deep" / "empty").is_dir()


# ---------------------------------------------------------------------- T31


@pytest.mark.trial("T31")
def test_the_mode_that_an_agent_gave_a_directory_goes_back(lib: Path, session: Session) -> None:
    os.chmod(lib / "lib", 0o750)
    point = session.user("second")
    with session.tool("edit", {}, paths=["lib/deep/f"]):  # a tool that names what it touches
        (lib / "lib" / "deep" / "f").write_text("2")
        os.chmod(lib / "lib" / "deep", 0o700)
        os.chmod(lib / "lib", 0o777)
    run(session, lib, "mkdir -m 711 made")
    session.rewind(point)
    modes = [os.stat(lib / name).st_mode & 0o7777 for name in ("lib", "lib/deep")]
    assert (modes, (lib / "made").exists()) == ([0o750, 0o755], False)
    session.undo()
    modes = [os.stat(lib / name).st_mode & 0o7777 for name in ("lib", "lib/deep", "made")]
    assert modes == [0o777, 0o700, 0o711]


def written(place: Path, pieces: list[bytes]) -> os.stat_result:
    directory = os.open(place.parent, os.O_RDONLY)
    try:
        _syscalls.write(Slot(directory, os.fsencode(place.name)), pieces, mode=0o644)
    finally:
        os.close(directory)
    return place.stat()


@pytest.mark.trial("T31")
@pytest.mark.parametrize(
    "pieces",
    [
        [bytes(1 << 20)] * 3,
        [b"x" * 70_000 + bytes(1 << 18) + b"y", bytes(1 << 20), b"end"],
        [bytes(100_000)],
        [b"data", bytes(1 << 19)],
        [bytes(65_536), b"", bytes(3), b"z"],
        [b"x" * (1 << 20)],
        [b""],
    ],
    ids=["zeros", "between", "short", "at the end", "at the start", "none", "empty"],
)
def test_long_runs_of_zeros_are_written_as_holes(tmp_path: Path, pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    sparse, status = tmp_path / "sparse", written(tmp_path / "made", pieces)
    assert (tmp_path / "made").read_bytes() == whole
    with open(sparse, "wb") as file:
        file.truncate(1 << 20)
    if not sparse.stat().st_blocks:  # this file system has holes
        zeros = sum(each.count(bytes(65_536)) for each in pieces) * 65_536
        assert status.st_blocks * 512 <= len(whole) - zeros + 2 * 65_536


@pytest.mark.trial("T31")
def test_a_sparse_file_comes_back_sparse(work: Path, session: Session) -> None:
    with open(work / "sparse", "wb") as file:
        file.write(b"start")
        file.truncate(8 << 20)
        file.seek(4 << 20)
        file.write(b"middle")
    before, content = (work / "sparse").stat().st_blocks, (work / "sparse").read_bytes()
    point = session.user("second")
    run(session, work, "rm sparse")
    session.rewind(point)
    assert (work / "sparse").read_bytes() == content
    if before * 512 < 1 << 20:  # this file system has holes
        assert (work / "sparse").stat().st_blocks * 512 < 1 << 20


@pytest.mark.trial("T31")
def test_a_home_that_a_shell_names_is_not_captured(store: Store, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "homes", {os.path.realpath(work)})
    with store.session("s", workspace=work) as session:
        session.user("go")
        assert session.capture_error == f"the workspace {str(work)!r} is not captured: it is a home directory"
