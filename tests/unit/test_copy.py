"""Copying stores: all of it comes over, also when it is interrupted; nothing half-done is ever seen."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _copied import OPENERS, SCOPES, assert_same, assert_sound, go_on, is_empty, memory, rich, small_pages, views
from _damages import DAMAGES, damaged, records_of
from test_verify import grow

import takeback
from takeback import Conflict, Copying, Invalid, NotFound, Store, Unsupported

pytestmark = [pytest.mark.feature("C6"), pytest.mark.feature("E6")]

PAIRS = list(itertools.product(OPENERS, OPENERS))


# ---------------------------------------------------------------------- all of it


@pytest.mark.parametrize(("one", "two"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_whatever_can_be_seen_is_the_same_in_the_copy(tmp_path: Path, one: str, two: str) -> None:
    with OPENERS[one](tmp_path / "a.db") as source, OPENERS[two](tmp_path / "b.db") as target:
        before = views(rich(source))
        done = takeback.copy(source, target)
        assert_same(source, target)
        assert views(source) == before
        counted = [source.scoped(scope).stats() for scope in SCOPES]
        assert done.entries == sum(each.entries for each in counted)
        assert done.blobs == sum(each.blobs for each in counted)
        sessions = [each for scope in SCOPES for each in source.scoped(scope).iter_sessions(archived=None)]
        sessions += [each for scope in SCOPES for each in source.scoped(scope).iter_sessions(trash=True)]
        assert done.checkpoints == sum(len(each.checkpoints()) for each in sessions)
        assert is_empty(takeback.copy(source, target))


@pytest.mark.feature("F9")
def test_to_a_server_and_back_every_record_is_the_same(tmp_path: Path, seed: int) -> None:
    """Record by record, with what a store computes for itself left out: nothing is lost or changed on the way."""
    with OPENERS["file"](tmp_path / "a.db") as store:
        grow(rich(store), random.Random(f"there and back {seed}"), 60)
        store.checkpoint_agent("coder", "one")
        store.get_session("child").user("moved on")
        store.checkpoint_agent("coder", "two")
    with OPENERS["postgres"](tmp_path / "b.db") as server:
        takeback.copy(tmp_path / "a.db", server)
        takeback.copy(server, tmp_path / "c.db")
    one, two = records_of(tmp_path / "a.db", live=False), records_of(tmp_path / "c.db", live=False)
    assert one.keys() == two.keys() >= {"agent", "session", "entry", "operation", "key", "checkpoint", "agentpoint"}
    for kind in one:
        assert one[kind] == two[kind], kind


def test_the_copy_goes_on_where_the_original_is(tmp_path: Path) -> None:
    """Undo, redo, retries, open calls, checkpoints and forks work in the copy as they do in the original."""
    source, target = rich(memory()), memory()
    takeback.copy(source, target)
    seen = []
    for store in (source, target):
        talk = store.get_session("talk", agent="coder")
        steps: list[Callable[[], Any]] = [
            lambda: talk.user("with a key", idempotency_key="once").seq,  # noqa: B023
            lambda: talk.checkpoint("here", description="a point", idempotency_key="point").id,  # noqa: B023
            lambda: talk.rewind(8, idempotency_key="back").id,  # noqa: B023
            lambda: store.get_agent("coder").state.set("count", 2, idempotency_key="count 2"),  # noqa: B023
            lambda: store.create_session("other", idempotency_key="talk"),  # noqa: B023
            lambda: [talk.undo().summary for _ in range(4)],  # noqa: B023
            lambda: [talk.redo().summary for _ in range(4)],  # noqa: B023
            lambda: talk.rewind("here").summary,  # noqa: B023
            lambda: store.restore_session(store.list_sessions(trash=True)[0]).summary,  # noqa: B023
            lambda: store.purge_session(store.get_session("forked")).entries,  # noqa: B023
            lambda: store.undo(next(each for each in store.operations() if each.kind == "update")).summary,  # noqa: B023
        ]
        seen.append([_outcome(step) for step in steps])
        assert_sound(store)
    assert seen[0] == seen[1]
    assert "conflict" in seen[0]


def _outcome(step: Callable[[], Any]) -> Any:
    try:
        return step()
    except takeback.Error as error:
        return error.code


def test_copying_back_brings_nothing_and_on_again_the_same(tmp_path: Path) -> None:
    source, target, third = rich(memory()), memory(), memory()
    takeback.copy(source, target)
    assert is_empty(takeback.copy(target, source))
    takeback.copy(target, third)
    assert_same(source, third)
    talk = target.get_session("talk", agent="coder")
    talk.user("said in the copy")
    talk.rewind(2)
    done = takeback.copy(target, source)
    assert (done.sessions, done.entries, done.operations) == (2, 1, 1), "its sub-agent went back with it"
    assert_same(source, target)
    assert is_empty(takeback.copy(third, source)), "a destination that has more is left alone"


def test_stores_of_all_kinds_come_over(seed: int, counts: Callable[[int, int], int]) -> None:
    for number in range(counts(15, 500)):
        rng = random.Random(f"copy {seed} {number}")
        with memory() as source, memory() as target:
            grow(source, rng, rng.randrange(70))
            grow(source.scoped("anna"), rng, rng.randrange(20))
            takeback.copy(source, target)
            assert_same(source, target)
            go_on(source, rng)
            takeback.copy(source, target)
            assert_same(source, target)
            assert is_empty(takeback.copy(source, target)), f"seed {seed}, store {number}"


def test_what_a_repair_recorded_as_lost_comes_over(tmp_path: Path) -> None:
    for name in [name for name in DAMAGES if name.startswith(("entry", "blob", "branch", "operation"))]:
        path, _ = damaged(tmp_path, name)
        with takeback.open(path) as store:
            repaired = store.repair(tmp_path / f"{path.stem} {len(list(tmp_path.iterdir()))}.db").path
        with takeback.open(repaired) as source, memory() as target:
            takeback.copy(source, target)
            assert_sound(target)
            for session in source.iter_sessions(archived=None):
                assert list(session.entries()) == list(target.get_session(session.id).entries()), name
                target.purge_session(session.id, subagents=False)
            assert_sound(target)


# ---------------------------------------------------------------------- again, and merging


def test_a_second_copy_brings_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    small_pages(monkeypatch, 7)
    source, target = rich(memory()), memory()
    first = takeback.copy(source, target)
    talk = source.get_session("talk", agent="coder")
    talk.append(*({"role": "user", "content": f"new {number}"} for number in range(40)))
    talk.add_task("a third")
    talk.rewind(30)
    talk.user("on a new branch")
    talk.fork(20, as_session=True, name="new fork").user("new session")
    talk.checkpoint("late")
    source.get_agent("coder").state.set("late", True)
    done = takeback.copy(source, target)
    assert (done.sessions, done.entries, done.agents, done.checkpoints, done.operations) == (2, 44, 1, 1, 2)
    assert (done.already.sessions, done.already.entries) == (first.sessions - 1, first.entries)
    assert_same(source, target)
    source.undo()
    talk.undo()
    takeback.copy(source, target)
    assert_same(source, target)


def test_a_name_that_was_given_up_in_between_goes_to_the_next() -> None:
    source, target = memory(), memory()
    first = source.create_session("name", agent="a")
    first.user("first")
    source.delete_agent("b") or source.create_agent("b", name="one")
    takeback.copy(source, target)
    source.delete_session(first)
    source.create_session("name", agent="a").user("second")
    source.restore_session(first)  # as "name (2)", changed last
    first.refresh().user("on")
    source.delete_agent("b")
    source.create_agent("b", name="two")
    takeback.copy(source, target)
    assert_same(source, target)
    assert target.get_session("name (2)").messages()[0].text == "first"


def test_changes_that_leave_no_trace_in_the_session_itself_come_over() -> None:
    """An undone fork or a deleted agent hides sessions without an operation of their own."""
    source, target = memory(), memory()
    talk = source.create_session("talk", agent="a")
    talk.user("hello")
    fork = talk.fork(as_session=True, name="fork")
    source.create_session("other", agent="b").user("x")
    takeback.copy(source, target)
    fork.user("later than the session that it came from")
    takeback.copy(source, target)
    talk.undo()
    source.delete_agent("b")
    takeback.copy(source, target)
    assert_same(source, target)
    assert {session.name for session in target.list_sessions(trash=True)} == {"fork", "other"}
    target.undo(next(operation for operation in target.operations() if operation.kind == "delete"))
    assert is_empty(takeback.copy(source, target)), "what was changed in the destination alone stays"
    assert len(target.list_sessions(trash=True)) == 1
    takeback.copy(target, source)
    assert_same(source, target)


def test_two_stores_merge_into_one() -> None:
    one, two, both = rich(memory()), memory(), memory()
    two.create_session("elsewhere", agent="main").user("hello", attachments=[b"attached " * 9])
    two.create_session("more", agent="passing").user("hello")
    both.create_session("own").user("there before")
    takeback.copy(one, both)
    takeback.copy(two, both)
    assert_sound(both)
    for store in (one, two):
        wanted = views(store)
        assert_sound(store)
        for scope, seen in zip(SCOPES, wanted, strict=True):
            for session_id in seen["listed", False, "created"]:
                assert list(store.scoped(scope).get_session(session_id).entries()) == list(
                    both.scoped(scope).get_session(session_id).entries()
                )
    assert both.stats().sessions == one.stats().sessions + two.stats().sessions + 1
    assert is_empty(takeback.copy(one, both))
    assert is_empty(takeback.copy(two, both))


# ---------------------------------------------------------------------- conflicts


def _diverge(source: Store, target: Store) -> str:
    for store in (source, target):
        store.get_session("talk").user(f"said in {store.url} {id(store)}")
    return source.get_session("talk").id


def _rename_both(source: Store, target: Store) -> str:
    for store in (source, target):
        store.get_session("talk").rename(f"title of {id(store)}")
    return source.get_session("talk").id


def _take_name(source: Store, target: Store) -> str:
    target.create_session("wanted").user("mine")
    return source.create_session("wanted").id


def _take_key(source: Store, target: Store) -> str:
    target.main_session("coder").user("mine")
    return source.main_session("coder").id


def _take_label(source: Store, target: Store) -> str:
    for store in (target, source):
        made = store.create_session(agent="coder", kind="subagent", parent=store.get_session("talk"), label="x")
    return made.id


def _change_agent(source: Store, target: Store) -> str:
    source.create_agent("writer", name="one")
    target.create_agent("writer", name="two")
    return "writer"


def _change_state(source: Store, target: Store) -> str:
    for store in (source, target):
        store.get_agent("coder").state.set("k", id(store))
    return "coder"


def _purge_origin(source: Store, target: Store) -> str:
    target.purge_session("talk")
    return source.get_session("talk").fork(2, as_session=True, name="orphan").id


CONFLICTS = [
    *(_diverge, _rename_both, _take_name, _take_key, _take_label, _change_agent, _change_state, _purge_origin),
]


@pytest.mark.parametrize("make", CONFLICTS, ids=lambda make: make.__name__.strip("_"))
def test_a_conflict_is_named_and_everything_else_is_copied(make: Callable[[Store, Store], str]) -> None:
    source, target = memory(), memory()
    source.create_agent("coder", config={"x": 1})
    source.create_session("talk", agent="coder").append(*({"role": "user", "content": str(n)} for n in range(5)))
    takeback.copy(source, target)
    name = make(source, target)
    before = target._read(lambda tx: tx.one("SELECT count(*) FROM session WHERE id = ?", (name,)))
    mine = [list(session.entries()) for session in target.iter_sessions()]
    source.create_session("free", agent="coder").user("not in conflict")
    for _ in range(2):
        with pytest.raises(Conflict, match="calling again goes on") as caught:
            takeback.copy(source, target)
        assert name in (caught.value.found, str(caught.value.found)) or name in str(caught.value)
    assert_sound(target)
    assert target._read(lambda tx: tx.one("SELECT count(*) FROM session WHERE id = ?", (name,))) == before
    assert all(entries in [list(session.entries()) for session in target.iter_sessions()] for entries in mine)
    assert [message.text for message in target.get_session("free").messages()] == ["not in conflict"]


def test_what_is_in_conflict_follows_when_that_is_settled() -> None:
    source, target = memory(), memory()
    mine = target.create_session("wanted")
    wanted = source.create_session("wanted")
    wanted.user("copied later")
    child = source.create_session("child", parent=wanted)
    wanted.fork(1, as_session=True, name="fork").user("reads from it")
    with pytest.raises(Conflict, match=r"2 conflicts more"):
        takeback.copy(source, target)
    assert len(target.list_sessions()) == 1
    target.delete_session(mine)
    assert takeback.copy(source, target).sessions == 3
    assert target.get_session("wanted").id == wanted.id
    assert [session.id for session in target.list_sessions(parent=wanted.id)] == [child.id]
    assert_sound(target)


def test_a_purge_is_neither_copied_nor_taken_back() -> None:
    source, target = rich(memory()), memory()
    takeback.copy(source, target)
    gone, kept = target.get_session("trash").id, source.get_session("child").id
    target.purge_session(gone)
    source.get_session(gone).user("more")
    source.purge_session(kept)
    done = takeback.copy(source, target)
    assert is_empty(done)
    assert [gone in done.left_out[0], kept in done.left_out[1]] in ([True, True], [False, False])
    assert all(name in str(done) for name in (gone, kept, "left out"))
    assert target.find_session(gone) is None
    assert target.get_session(kept).message_count == 1
    assert_sound(target)


# ---------------------------------------------------------------------- how it is called


def test_progress_says_what_is_done_of_how_much() -> None:
    source, told = rich(memory()), list[Copying]()
    done = takeback.copy(source, memory(), progress=told.append)
    assert list(dict.fromkeys(each.phase for each in told)) == [
        "agents",
        "content",
        "entries",
        "operations",
        "sessions",
        "done",
    ]
    last = told[-1]
    assert (last.sessions, last.entries) == (last.sessions_total, last.entries_total) == (done.sessions, done.entries)
    assert all(one.entries <= two.entries for one, two in itertools.pairwise(told))
    assert str(last).startswith(f"done: sessions {done.sessions}/{done.sessions}, entries ")


def test_a_copy_says_what_it_did(tmp_path: Path) -> None:
    source = memory()
    source.create_session("a").user("hello")
    done = takeback.copy(source, tmp_path / "b.db")
    assert str(done).startswith("1 session, 1 entry, 1 agent, 0.0 MB copied in ")
    again = takeback.copy(source, str(tmp_path / "b.db"))
    assert str(again).startswith("nothing copied in ")
    assert "already there: 1 session, 1 entry, 1 agent" in str(again)
    assert repr(again) == f"<Copied {again}>"
    assert again.already.entries == 1
    assert not (tmp_path / "b.db-wal").exists(), "what was opened by name is closed"


def test_two_different_stores_are_needed(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "a.db") as store:
        for other in (store, store.scoped("x"), tmp_path / "a.db"):
            with pytest.raises(Invalid, match="same store"):
                takeback.copy(store, other)
        with takeback.open(tmp_path / "a.db", read_only=True) as reader, pytest.raises(Unsupported):
            takeback.copy(memory(), reader)
    with pytest.raises(NotFound):
        takeback.copy(tmp_path / "missing.db", tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()
    with pytest.raises(Invalid):
        takeback.copy(store, 7)  # type: ignore[arg-type]
