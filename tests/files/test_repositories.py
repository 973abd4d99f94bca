"""A repository's own directory is neither captured nor written, in any spelling, whatever a tree or a plan says.

Trees are put straight into the store or into a change here, past the import that would refuse them.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _folders import ENVIRONMENT, look, shell

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
    hostile,
    pack,
    planted,
    spelling,
    tree_of,
)
from takeback import Corrupt, Session, Store
from takeback.errors import Error, Invalid
from takeback.files.disk import _syscalls, apply
from takeback.files.disk._syscalls import Inside, Slot
from takeback.files.disk.apply import Changeset, Step
from takeback.model import names, tree
from takeback.model.tree import DIR, FILE, LINK, Node

pytestmark = [pytest.mark.trial("T1"), pytest.mark.promise("R27")]

SPELLINGS = [
    *(b".git", b".GIT", b".Git ", b".git.", b"git~1", b"GIT~2", b"git~9", b".git::$INDEX_ALLOCATION", b".git\\config"),
    *(b".g\xe2\x80\x8cit", b"\xef\xbb\xbf.git", b".hg", b".HG", b".svn", b"SVN~1", b".jj", b".jj ", b"a\\.git"),
]


def attack(sentinel: Path) -> dict[bytes, bytes]:
    """The files of a repository that runs a program as soon as somebody asks for its status."""
    program = f"touch '{sentinel}'"
    config = f'[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = "{program}"\n'
    return {b"HEAD": b"ref: refs/heads/main\n", b"config": config.encode(), b"description": b"x\n"}


def repository(sentinel: Path, name: bytes) -> Forged:
    """A tree that holds such a repository beside a file."""
    files = attack(sentinel)
    empty, refs = pack([]), tree_of([a_directory(b"heads", pack([]))])
    inner = tree_of(
        [
            *(a_file(each, data) for each, data in files.items()),
            a_directory(b"objects", empty),
            a_directory(b"refs", refs),
        ]
    )
    objects = (*files.values(), empty, refs, inner, CONTENT)
    return Forged(tree_of([a_file(b"kept.txt"), a_directory(name, inner)]), objects)


def status(root: Path) -> int:
    """Ask git for the status of a directory, as a prompt or an editor does."""
    above = {**ENVIRONMENT, "GIT_CEILING_DIRECTORIES": str(root.parent)}
    return subprocess.run(["git", "status"], cwd=root, env=above, capture_output=True, timeout=60).returncode


def control_paths(root: Path) -> list[bytes]:
    return [path for path in look(root) if names.leads_into_control(path)]


@pytest.fixture
def loose(tmp_path: Path) -> Iterator[Store]:
    """A store that is not verified at the end: it holds what no scan made."""
    with takeback.open(tmp_path / "loose.db") as opened:
        yield opened


@pytest.fixture
def victim(loose: Store, work: Path) -> Iterator[Session]:
    with loose.session("v", workspace=work) as session:
        session.user("go")
        session.checkpoint("before")
        yield session


# ---------------------------------------------------------------------- scans


def odd_directory(root: Path) -> None:
    """Fill a directory with whatever a file system allows."""
    at = os.fsencode(root)
    for name in (
        b"new\nline",
        b"\xff\xfe",
        b"tab\t",
        b"a\\b",
        b"a:b",
        b"...",
        b" ",
        b"-rf",
        b"x" * 255,
        b"dot.",
        b"con",
    ):
        Path(os.fsdecode(os.path.join(at, name))).write_bytes(name)
    for text in (
        "e\u0301",
        "\u00e9",
        "\u200c",
        "\u202etxt",
        ".gitignore",
        ".gitmodules",
        "git~",
        "git",
        "hg",
        ".hgignore",
    ):
        (root / text).write_bytes(b"" if text.startswith(".") else text.encode())
    (root / "empty").mkdir()
    (root / "locked").mkdir()
    (root / "locked" / "f").write_text("f")
    (root / "suid").write_text("s")
    (root / "dangling").symlink_to("no\nwhere")
    (root / "loop").symlink_to("loop")
    (root / "up").symlink_to("../..")
    os.chmod(root / "suid", 0o6755)
    os.chmod(root / "locked", 0o1555)
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(root / "sock"))
    deep = root
    for _ in range(105):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "bottom").write_text("b")


def test_every_scan_of_an_odd_directory_is_sound_and_travels(tmp_path: Path, store: Store) -> None:
    work = tmp_path / "odd"
    work.mkdir()
    odd_directory(work)
    with store.session("s", workspace=work) as session:
        session.user("go")
        session.checkpoint("all")
        with session.tool("shell"):
            shell(work, "rm -r empty; echo more >> suid; mv dangling other")
    assert not store.verify()
    with takeback.open(tmp_path / "copy.db") as other:
        takeback.copy(store, other)
        assert not other.verify()


def test_repositories_are_gaps_in_any_spelling_and_stay_so(tmp_path: Path, store: Store) -> None:
    work = tmp_path / "repos"
    work.mkdir()
    shell(
        work, "git init -q . && git init -q sub && mkdir tree && echo 'gitdir: ../.git' > tree/.git && ln -s .git .hg"
    )
    for name in SPELLINGS[1:9]:
        Path(os.fsdecode(os.path.join(os.fsencode(work), b"sub", name))).write_text("a file")
    for name in (b".GIT", b"git~2", b".SVN"):
        made = Path(os.fsdecode(os.path.join(os.fsencode(work), b"tree", name)))
        made.mkdir()
        (made / "config").write_text("x")
    (work / "a").write_text("one")
    with store.session("s", workspace=work) as session:
        session.user("go")
        session.checkpoint("then")
        before = look(work)
        with session.tool("shell"):
            shell(
                work, "echo two > a; echo changed > tree/.GIT/config; git config x.y z; rm -r sub/git~1; git init -q n"
            )
        assert [each.path for each in session.preview_rewind("then").files] == ["a"], "n holds a repository and stays"
        during = look(work)
        session.rewind("then")
        after = look(work)
    assert after[b"a"] == before[b"a"]
    touched = {path for path in during.keys() | after.keys() if during.get(path) != after.get(path)}
    assert not [path for path in touched if names.leads_into_control(path)]
    assert not store.verify()


def test_a_directory_with_too_many_names_is_a_gap_and_the_rest_is_captured(
    monkeypatch: pytest.MonkeyPatch, store: Store, work: Path
) -> None:
    monkeypatch.setattr(tree, "MOST_NAMES", 20)  # half a million files would take a minute
    (work / "many").mkdir()
    for number in range(25):
        (work / "many" / str(number)).write_text("x")
    with store.session("s", workspace=work) as session:
        session.user("go")
        point = session.checkpoint("then")
        assert "many/ (unreadable: a directory holds more than 20 names" in point.not_captured[0]
        assert session.file_at("a.txt", point) == b"one\n"


@pytest.mark.parametrize("limit", ["MOST_NAMES", "MOST_PATHS"])
def test_a_workspace_with_too_many_names_is_not_captured_and_says_so(
    monkeypatch: pytest.MonkeyPatch, store: Store, work: Path, limit: str
) -> None:
    monkeypatch.setattr(tree, limit, 20)
    for number in range(25):
        (work / str(number)).write_text("x")
    with store.session("s", workspace=work) as session:
        session.user("go")
        assert "more than 20" in str(session.capture_error)


# ---------------------------------------------------------------------- fork and rewind


def test_the_attack_works_where_somebody_writes_it(tmp_path: Path) -> None:
    """So that what follows shows something."""
    sentinel, root = tmp_path / "pwned", tmp_path / "by-hand"
    (root / ".git" / "objects").mkdir(parents=True)
    (root / ".git" / "refs" / "heads").mkdir(parents=True)
    for name, data in attack(sentinel).items():
        (root / ".git" / os.fsdecode(name)).write_bytes(data)
    assert status(root) == 0
    assert sentinel.exists()


@pytest.mark.parametrize("name", SPELLINGS, ids=ascii)
def test_a_fork_writes_no_repository_and_says_so(
    tmp_path: Path, victim: Session, caplog: pytest.LogCaptureFixture, name: bytes
) -> None:
    sentinel, into = tmp_path / "pwned", tmp_path / "into"
    seq = planted(victim, below(repository(sentinel, name), [b"sub"]))
    top = planted(victim, repository(sentinel, name))
    for number, point in enumerate((seq, top)):
        place = Path(f"{into}{number}")
        victim.fork(point, as_session=True, into=place)
        assert (place / ("sub/kept.txt" if point == seq else "kept.txt")).read_bytes() == CONTENT
        assert not control_paths(place)
        assert status(place) != 0, "it is no repository"
    assert not sentinel.exists()
    assert "was not written into" in caplog.text
    assert ascii(name.decode()) in caplog.text


@pytest.mark.parametrize("name", SPELLINGS, ids=ascii)
def test_a_rewind_names_a_repository_and_leaves_it_alone(
    tmp_path: Path, victim: Session, work: Path, name: bytes
) -> None:
    sentinel = tmp_path / "pwned"
    seq = planted(victim, below(repository(sentinel, name), [b"sub"]))
    preview = victim.preview_rewind(seq, conversation=False)
    shown = "sub/" + os.fsdecode(name)
    assert preview.not_written == (shown,)
    assert "belongs to a repository: never written" in str(preview)
    assert not [each for each in preview.files if names.leads_into_control(os.fsencode(each.path))]
    preview.apply()
    assert (work / "sub" / "kept.txt").read_bytes() == CONTENT
    assert not control_paths(work)
    assert status(work) != 0
    assert status(work / "sub") != 0
    assert not sentinel.exists()
    victim.undo()
    assert not control_paths(work)


def test_a_repository_that_is_there_stays_as_it_is(tmp_path: Path, loose: Store, work: Path) -> None:
    shell(work, "git init -q .")
    before = {path: thing for path, thing in look(work).items() if names.leads_into_control(path)}
    with loose.session("v", workspace=work) as session:
        session.user("go")
        seq = planted(session, repository(tmp_path / "pwned", b".git"))
        preview = session.preview_rewind(seq, conversation=False)
        assert preview.not_written == (".git",)
        preview.apply()
        session.undo()
    assert {path: thing for path, thing in look(work).items() if names.leads_into_control(path)} == before


@pytest.mark.parametrize(
    "forged",
    [
        Forged(tree_of([a_file(b"../x")]), (CONTENT,)),
        Forged(tree_of([a_directory(b"..", tree_of([a_file(b"x")]))]), (CONTENT, tree_of([a_file(b"x")]))),
        Forged(tree_of([a_file(b"a"), a_link(b"a", b"/etc")]), (CONTENT,)),
        Forged(tree_of([a_file(b"a", mode=0o4755)]), (CONTENT,)),
        Forged(pack([a_file(b"b"), a_file(b"a")]), (CONTENT,)),
        bomb(60, 9),
        chain_of(400),
    ],
    ids=["a path", "above", "twice", "setuid", "unsorted", "a bomb", "a chain"],
)
def test_other_forged_trees_are_refused_before_anything_is_written(
    tmp_path: Path, victim: Session, work: Path, forged: Forged
) -> None:
    before, seq = look(work), planted(victim, forged)
    with pytest.raises(Corrupt):
        victim.fork(seq, as_session=True, into=tmp_path / "into")
    with pytest.raises(Corrupt):
        victim.rewind(seq, conversation=False)
    assert look(work) == before
    assert not (tmp_path / "into").exists()
    assert {each.name for each in tmp_path.iterdir()} <= {"work", *(each.name for each in tmp_path.glob("loose.db*"))}


def test_no_hostile_tree_writes_a_repository_or_leaves_its_directory(
    tmp_path: Path, victim: Session, work: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    rng, cases, into = random.Random(f"applied {seed}"), counts(60, 2_000), tmp_path / "into"
    outside = {each.name for each in tmp_path.iterdir()}
    for number in range(cases):
        seq = planted(victim, hostile(rng))
        for act in (
            lambda: victim.fork(seq, as_session=True, into=into / str(number)),  # noqa: B023
            lambda: victim.rewind(seq, conversation=False),  # noqa: B023
        ):
            try:
                act()
            except Error:
                continue
        assert not control_paths(work)
        assert not into.exists() or not control_paths(into)
        assert {each.name for each in tmp_path.iterdir()} <= outside | {"into"}
    tally("R27 hostile trees applied", cases)


# ---------------------------------------------------------------------- the lowest layer


def node(kind: str) -> Node:
    return {
        FILE: Node(FILE, 0o644, len(CONTENT), digest(CONTENT)),
        LINK: Node(LINK, 0, 1, b"x"),
        DIR: Node(DIR, 0o755, 0, b""),
    }[kind]


def _carry_out(change: Changeset) -> None:
    change.stage(fetch)
    change.check()
    change.carry_out()


def fetch(wanted: bytes) -> list[bytes]:
    return [CONTENT]


@pytest.mark.parametrize("name", SPELLINGS, ids=ascii)
def test_a_change_refuses_it_at_any_depth(work: Path, name: bytes) -> None:
    for path in (name, b"a/" + name, name + b"/config", b"a/" + name + b"/hooks/x"):
        for old, new in ((None, node(FILE)), (None, node(DIR)), (None, node(LINK)), (node(FILE), None)):
            with pytest.raises(Invalid, match="belongs to a repository"):
                Changeset(os.fsencode(work), [Step(path, old, new)], "1")


CALLS: dict[str, Callable[[Slot, Slot], Any]] = {
    "create a file": lambda there, other: _syscalls.create(there, node(FILE), [CONTENT]),
    "create a link": lambda there, other: _syscalls.create(there, node(LINK), []),
    "create a directory": lambda there, other: _syscalls.create(there, node(DIR), []),
    "make a directory": lambda there, other: _syscalls.make_directory(there),
    "ensure a directory": lambda there, other: _syscalls.ensure_directory(there, 0o700),
    "write": lambda there, other: _syscalls.write(there, [CONTENT], mode=0o644),
    "move there": lambda there, other: _syscalls.move(other, there),
    "move away": lambda there, other: _syscalls.move(there, other),
    "put there": lambda there, other: _syscalls.put(other, there),
    "put away": lambda there, other: _syscalls.put(there, other),
    "unlink": lambda there, other: _syscalls.unlink(there),
    "remove": lambda there, other: _syscalls.remove_if_empty(there),
    "open": lambda there, other: _syscalls.directory(there).__enter__(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", [*SPELLINGS, b"..", b".", b"../x", b"a/b", b"a\0b", b""], ids=ascii)
def test_no_call_of_the_system_is_given_such_a_name(work: Path, call: str, name: bytes) -> None:
    (work / "other").write_text("other")
    before = look(work)
    with Inside(os.fsencode(work)) as inside, pytest.raises(Invalid):
        CALLS[call](Slot(inside.root, name), Slot(inside.root, b"other"))
    assert look(work) == before


@pytest.mark.parametrize("path", [b".git", b".git/config", b"a/.GIT/x", b"git~1", b"../x", b"a/../../x"])
@pytest.mark.parametrize("there", [False, True], ids=["new", "there"])
def test_a_plan_that_nobody_checked_is_stopped_at_the_last_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Path, path: bytes, there: bool
) -> None:
    monkeypatch.setattr(apply, "check_steps", lambda steps, reserved: None)
    (work / "a").mkdir()
    if there:
        shell(work, "git init -q . && mkdir a/.GIT && echo x > a/.GIT/x && echo x > git~1 && echo x > ../x")
    before, outside = look(work), {each.name for each in tmp_path.iterdir()}
    parents = [] if b"/" not in path else [Step(path.rpartition(b"/")[0], None, node(DIR))]
    change = Changeset(
        os.fsencode(work), [Step(b"fine", None, node(FILE)), *parents, Step(path, None, node(FILE))], "1"
    )
    with pytest.raises(Error):
        _carry_out(change)
    change.clean()
    assert look(work) == before, "all of it is taken back"
    assert {each.name for each in tmp_path.iterdir()} == outside


def test_no_change_of_any_spelling_reaches_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Path, seed: int, counts: Callable[[int, int], int]
) -> None:
    monkeypatch.setattr(apply, "check_steps", lambda steps, reserved: None)
    rng, before = random.Random(f"lowest {seed}"), look(work)
    for _ in range(counts(300, 5_000)):
        name, kind = spelling(rng), rng.choice([FILE, LINK, DIR])
        change = Changeset(os.fsencode(work), [Step(name, None, node(kind))], "1")
        with pytest.raises(Invalid):
            _carry_out(change)
        change.clean()
        assert look(work) == before
