"""Exports whose hashes all fit and whose trees no scan made are refused with the reason, and nothing is stored."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _made import lines_of, read_into

import takeback
from _forged import (
    CONTENT,
    Forged,
    a_directory,
    a_file,
    a_link,
    below,
    bomb,
    chain_of,
    digest,
    exported,
    hostile,
    pack,
    put_objects,
    root_of,
    sound,
    tree_of,
)
from takeback import Corrupt, Session, Store
from takeback.files import roots, timeline
from takeback.files.roots import Root
from takeback.model import tree
from takeback.ops import operations, sessions
from takeback.ops.verify.base import Fault
from takeback.ops.verify.files import TreeChecks

pytestmark = [pytest.mark.trial("T1"), pytest.mark.promise("R27")]

CONFIG = b"[core]\n\tfsmonitor = touch pwned\n"
REPOSITORY = tree_of([a_file(b"HEAD", b"ref: refs/heads/main\n"), a_file(b"config", CONFIG)])
PARTS = (REPOSITORY, CONFIG, b"ref: refs/heads/main\n", CONTENT, pack([]))
Judge = Callable[[Forged], Fault | None]


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A real export of a session with two snapshots, a branch and a checkpoint."""
    work = tmp_path_factory.mktemp("work")
    (work / "sub").mkdir()
    (work / "sub" / "a.py").write_text("one\n")
    with takeback.open(":memory:") as source, source.session("work", workspace=work) as s:
        s.user("go")
        with s.tool("shell"):
            (work / "b.py").write_text("two\n")
        s.checkpoint("here")
        s.fork(1, name="aside")
        return lines_of(source, s)


@pytest.fixture
def target() -> Iterator[Store]:
    """A store that nothing of a refused file gets into."""
    with takeback.open(":memory:") as opened:
        yield opened


@pytest.fixture
def judge(store: Store) -> Judge:
    """Judge a tree as verify does, in a store that has its objects."""
    session = store.create_session()

    def look(forged: Forged) -> Fault | None:
        root = root_of(digest(forged.top))
        put_objects(session, [*forged.objects, forged.top, root])
        return store._read(lambda tx: TreeChecks().root_fault(tx, store.scope, digest(root).hex()))

    return look


def is_untouched(store: Store) -> bool:
    return not [*store.iter_sessions(archived=None), *store.iter_sessions(trash=True), *store.events()]


def refused(target: Store, data: bytes, why: str) -> None:
    with pytest.raises(Corrupt) as told:
        read_into(target, data)
    assert why in str(told.value), str(told.value)
    assert "nothing was imported" in str(told.value)
    assert str(told.value).isascii(), "no escape sequence, no invisible character"
    assert is_untouched(target)


# ---------------------------------------------------------------------- the kit itself


def test_a_forged_export_with_sound_trees_is_accepted(export: bytes, target: Store, seed: int) -> None:
    """So whatever else is refused below is refused for its trees."""
    rng = random.Random(f"sound {seed}")
    for spill in (False, True):
        forged = exported(export, sound(rng), spill=spill)
        assert read_into(target, forged, dry_run=True).sessions


def test_the_files_of_a_forged_export_are_those_that_were_forged(export: bytes, target: Store) -> None:
    read_into(target, exported(export, Forged(tree_of([a_file(b"new")]), (CONTENT,))))
    (session,) = target.iter_sessions()
    assert session.file_at("new", "here") == CONTENT
    assert not target.verify()


# ---------------------------------------------------------------------- what is refused


TABLE: dict[str, tuple[bytes, str]] = {
    "a repository": (tree_of([a_directory(b".git", REPOSITORY)]), "it contains '.git', which belongs to a repository"),
    "one in capitals": (tree_of([a_directory(b".GIT", REPOSITORY)]), "it contains '.GIT', which belongs"),
    "one by its short name": (tree_of([a_directory(b"git~1", REPOSITORY)]), "it contains 'git~1', which belongs"),
    "one with an unseen character": (tree_of([a_file(".g\u200cit".encode())]), "'.g\\u200cit', which belongs"),
    "a file that names one": (tree_of([a_file(b".git")]), "which belongs to a repository"),
    "a link that is one": (tree_of([a_link(b".hg", b"/tmp/hg")]), "'.hg', which belongs to a repository"),
    "a path as a name": (tree_of([a_file(b"../x")]), "it contains the name '../x', which is a path"),
    "the directory above": (tree_of([a_directory(b"..", REPOSITORY)]), "'..', which leads elsewhere"),
    "an empty name": (tree_of([a_file(b"")]), "it contains an empty name"),
    "a NUL": (tree_of([a_file(b"a\0b")]), "'a\\x00b', which contains a NUL"),
    "a name twice": (tree_of([a_file(b"a"), a_link(b"a")]), "it contains the name 'a' twice"),
    "names out of order": (pack([a_file(b"b"), a_file(b"a")]), "its names are not sorted"),
    "setuid": (tree_of([a_file(b"a", mode=0o4755)]), "'a' has the mode 0o4755"),
    "a kind of its own": (tree_of([(b"a", "b", 0o644, 0, b"")]), "'a' has the unknown kind 'b'"),
    "a short digest": (tree_of([(b"a", "f", 0o644, 0, b"\1")]), "'a' names its content by 1 bytes instead of 32"),
    "a size below zero": (tree_of([(b"a", "f", 0o644, -1, digest(CONTENT))]), "'a' has the size -1"),
    "another size": (tree_of([(b"a", "f", 0o644, 7, digest(CONTENT))]), "the content of 'a' has 8 bytes instead of 7"),
    "no content": (tree_of([a_file(b"a", b"nowhere")]), "the content of 'a' is missing"),
    "no directory": (tree_of([a_directory(b"a", b"nowhere")]), "the record of directory 'a' is missing or damaged"),
    "a link with a mode": (tree_of([(b"a", "l", 0o777, 1, b"x")]), "'a' is a link with a mode"),
    "a directory with a size": (tree_of([(b"a", "d", 0o755, 9, digest(pack([])))]), "'a' has the size 9, but is not"),
    "no list": (pack({"a": 1}), "it cannot be decoded"),
    "another form": (b"\xdc\x00\x01" + tree_of([a_file(b"a")])[1:], "not in canonical form"),
    "a field too many": (pack([[*a_file(b"a"), 1]]), "not in canonical form"),
}


@pytest.mark.parametrize("what", TABLE)
@pytest.mark.parametrize("deep", [False, True], ids=["top", "deep"])
def test_a_tree_that_no_scan_made_is_refused_with_the_reason(
    export: bytes, target: Store, what: str, deep: bool
) -> None:
    top, why = TABLE[what]
    if deep and ("content of" in why or "directory 'a'" in why):
        why = why.replace("'a'", "'y/x/a'")
    forged = below(Forged(top, PARTS), [b"x", b"y"]) if deep else Forged(top, PARTS)
    refused(target, exported(export, forged), why)


@pytest.mark.parametrize("spill", [False, True], ids=["in the row", "spilled"])
@pytest.mark.parametrize("field", ["root", "from"])
def test_every_root_that_an_entry_names_is_judged(export: bytes, target: Store, field: str, spill: bool) -> None:
    def change(body: dict[str, Any], root: str) -> None:
        body[field] = root

    forged = Forged(tree_of([a_directory(b".git", REPOSITORY)]), PARTS)
    refused(target, exported(export, forged, change=change, spill=spill), "belongs to a repository")


@pytest.mark.parametrize(
    ("root", "why"),
    [
        (lambda top: roots.encode(Root(top[:5], 0, [], 0)), "it names its tree by 5 bytes"),
        (lambda top: roots.encode(Root(top, -1, [], 0)), "is too small"),
        (lambda top: roots.encode(Root(top, 0, [(b"a", "b")], 0)), "is too small"),
        (lambda top: b"nonsense", "the root cannot be read"),
    ],
    ids=["short", "negative", "fewer than shown", "nonsense"],
)
def test_a_root_that_no_scan_made_is_refused(
    export: bytes, target: Store, root: Callable[[bytes], bytes], why: str
) -> None:
    refused(target, exported(export, Forged(tree_of([a_file(b"a")]), (CONTENT,)), root=root), why)


def test_an_announced_file_is_one_inside_the_workspace(tmp_path: Path, target: Store) -> None:
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a").write_text("a")
    with takeback.open(":memory:") as source, source.session("s", workspace=tmp_path / "work", capture="off") as s:
        s.snapshot_file("a")
        plain = lines_of(source, s)
    assert read_into(target, plain, dry_run=True).sessions
    forged = Forged(pack([]), ())
    data = exported(plain.replace(b'"set":{"a":', b'"set":{"../outside":'), forged)
    refused(target, data, "a file is announced under a path that is none: it holds the name '..'")


# ---------------------------------------------------------------------- bombs


@pytest.mark.parametrize(
    ("forged", "why"),
    [
        (bomb(21, 2), "the tree holds more than 2,000,000 paths"),
        (bomb(90, 50), "the tree holds more than 2,000,000 paths"),
        (chain_of(101), "the tree holds directories more than 100 levels deep"),
        (chain_of(3_000), "the tree holds directories more than 100 levels deep"),
    ],
    ids=["two by two", "fifty by fifty", "one too deep", "far too deep"],
)
def test_a_bomb_is_refused_without_walking_its_paths(export: bytes, target: Store, forged: Forged, why: str) -> None:
    refused(target, exported(export, forged), why)


def test_as_deep_and_as_many_as_a_scan_gives_is_fine(judge: Judge) -> None:
    assert judge(chain_of(tree.DEEPEST)) is None
    assert judge(bomb(18, 2)) is None  # half a million paths in 19 objects


def test_an_empty_directory_need_not_be_stored(judge: Judge) -> None:
    assert judge(Forged(tree_of([a_directory(b"empty", pack([]))]), ())) is None


def test_a_directory_of_too_many_names_is_refused(judge: Judge) -> None:
    lines = [(b"%06d" % number, "x", 0, 0, b"") for number in range(tree.MOST_NAMES + 1)]
    assert judge(Forged(pack(lines[:-1]), ())) is None
    fault = judge(Forged(pack(lines), ()))
    assert fault is not None
    assert "it contains more than 500,000 names" in fault.what


# ---------------------------------------------------------------------- many


def test_no_forged_tree_is_accepted_in_silence(
    export: bytes, target: Store, judge: Judge, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    rng = random.Random(f"forged {seed}")
    cases, every = counts(2_000, 50_000), counts(33, 100)
    for number in range(cases):
        forged = hostile(rng)
        fault = judge(forged)
        assert fault is not None, (number, forged)
        assert fault.kind == "snapshot"
        assert forged.why in fault.what, (number, forged.why, fault.what)
        assert fault.what.isascii()
        if number % every == 0:
            refused(target, exported(export, forged, spill=rng.random() < 0.3), forged.why)
    tally("R27 forged trees", cases)


def test_no_tree_that_a_scan_makes_is_refused(judge: Judge, seed: int, counts: Callable[[int, int], int]) -> None:
    rng = random.Random(f"sound {seed}")
    for _ in range(counts(300, 10_000)):
        forged = sound(rng)
        assert judge(forged) is None, forged


# ---------------------------------------------------------------------- verify


@pytest.mark.parametrize("named_by", ["scan", "operation"])
def test_roots_that_only_a_scan_or_an_operation_names_are_judged(store: Store, tmp_path: Path, named_by: str) -> None:
    (tmp_path / "a").write_text("a")
    with store.session("s", workspace=tmp_path) as s:
        s.user("go")
    root = _planted(s, Forged(tree_of([a_directory(b".git", REPOSITORY)]), PARTS))
    assert not store.verify()

    def name_it(tx: Any) -> None:
        row, now_ms = sessions.get(tx, "", s.id), store._clock.now_ms()
        if named_by == "scan":
            here = timeline.of_session(tx, row)
            assert here is not None
            timeline.add(tx, here, root, None, None, now_ms=now_ms)
        else:
            files = {"files": {"scan": ["", 1, root], "paths": []}}
            operations.on_session(tx, row, "rewind", {}, now_ms=now_ms, beside=operations.Beside(0, {}, files))

    store._write(name_it)
    problems = store.verify().problems
    assert {(each.kind, "belongs to a repository" in each.what) for each in problems} == {("snapshot", True)}


def _planted(session: Session, forged: Forged) -> str:
    root = root_of(digest(forged.top))
    put_objects(session, [*forged.objects, forged.top, root])
    return digest(root).hex()
