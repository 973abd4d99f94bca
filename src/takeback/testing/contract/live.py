"""The contract: one process runs a session at a time; also what the related tests share.

``die`` makes a holder look killed with kill -9, within one process.
"""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from takeback import Busy, Conflict, Error, Invalid, LeaseLost, Session, Store

from ..clock import ManualClock
from .base import PATIENCE, Contract, blocking, said

DAY = 86_400_000
CALL = {"id": "c1", "name": "pay", "arguments": {"amount": 5}}
ASKED = {"role": "assistant", "content": "", "tool_calls": [CALL]}
FINAL = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s=="},
        {"type": "text", "text": "Hello."},
        {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"cmd": "ls"}},
    ],
    "usage": {"input_tokens": 10, "output_tokens": 5},
}
ENDINGS: dict[str, Callable[[Session], Any]] = {
    "completed": lambda s: s.complete("done"),
    "error": lambda s: s.fail("broken"),
    "timeout": lambda s: s.timeout(),
    "stopped": lambda s: s.stop(),
}
MOVES: dict[str, Callable[[Session], Any]] = {**ENDINGS, "active": lambda s: s.reopen()}
MESSAGES: tuple[Callable[[Session], Any], ...] = (
    lambda s: s.user("b"),
    lambda s: s.assistant("b", id="x"),
    lambda s: s.append({"role": "user", "content": "b"}, {"role": "user", "content": "c"}),
    lambda s: s.stream(),
    lambda s: s.send("b"),
    lambda s: s.spawn("b"),
)
WRITES: dict[str, Callable[[Session], Any]] = {
    "user": lambda s: s.user("late"),
    "assistant with an id": lambda s: s.assistant("late", id="late"),
    "append with a key": lambda s: s.append({"role": "user", "content": "late"}, idempotency_key="late"),
    "a large message": lambda s: s.user("late" * 50_000),
    "an attachment": lambda s: s.user("late", attachments=[b"late"]),
    "a result": lambda s: s.append({"role": "tool", "content": "late", "tool_call_id": "c1"}),
    "tool_result": lambda s: s.tool_result("c1", "late"),
    "resolve_call": lambda s: s.resolve_call("c1", "late"),
    "tool": lambda s: s.tool("late").__enter__(),
    "stream": lambda s: s.stream(),
    "replace_tail": lambda s: s.replace_tail(1, [{"role": "user", "content": "late"}], s.revision),
    "note": lambda s: s.note("late"),
    "set_tasks": lambda s: s.set_tasks(["late"]),
    "set_plan": lambda s: s.set_plan("late"),
    "record_file": lambda s: s.record_file("late", "created"),
    "build": lambda s: s.add_build_attempt(),
    "state": lambda s: s.state.set("late", 1),
    "compact": lambda s: s.compact(1, "late"),
    "pop": lambda s: s.pop(),
    "clear": lambda s: s.clear(),
    "rewind": lambda s: s.rewind(1),
    "fork": lambda s: s.fork(1, name="late"),
    "checkpoint": lambda s: s.checkpoint("late"),
    "rename": lambda s: s.rename("late"),
    "tag": lambda s: s.tag("late"),
    "undo": lambda s: s.undo(),
    "spawn": lambda s: s.spawn("late"),
    "receive": lambda s: s.receive(),
    "ask_approval": lambda s: s.ask_approval("c1"),
    "complete": lambda s: s.complete(),
    "fail": lambda s: s.fail("late"),
    "stop": lambda s: s.stop(),
    "timeout": lambda s: s.timeout(),
}


def _standing(session: Session) -> tuple[Any, ...]:
    """Return what no write of a former holder may change."""
    return session.head, session.revision, session.title, len(session.children()), session.status


class Leases(Contract):
    """One process runs a session at a time, and a former holder cannot write to it."""

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_a_second_holder_is_told_who_where_and_since_when(self, tmp_path: Path) -> None:
        clock = ManualClock(1_700_000_000_000)
        with self.open(tmp_path, clock=clock) as store, store.session("job") as held:
            clock.advance(5000)
            with pytest.raises(Busy) as busy:
                store.session("job")
            who = f"process {os.getpid()} on {socket.gethostname()}"
            assert busy.value.holder == who
            assert "'job'" in str(busy.value)
            assert f"has been run by {who}, this one, through another handle, since 2023-11-14 22:13:20 UTC" in str(
                busy.value
            )
            seen = store.get_session("job")
            assert seen.holder is not None
            assert held.holder is not None
            assert (str(seen.holder), seen.status) == (who, "active")
            assert (held.holder.pid, held.holder.host) == (os.getpid(), socket.gethostname())
            assert held.user("still mine").seq == 1

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_leaving_in_order_leaves_it_active_and_free(self, store: Store) -> None:
        with store.session("job") as first:
            assert (first.resumed, first.stopped_at, first.error) == (False, None, None)
            first.user("a")
        assert (first.status, first.holder, first.error, first.stopped_at) == ("active", None, None, None)
        with store.session("job") as second:
            assert second.id == first.id
            assert (second.resumed, second.status, second.stopped_at, second.error) == (True, "active", None, None)
            second.user("b")
        assert said(second) == ["a", "b"]

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_a_session_that_exists_is_entered_with_the_block_alone(self, store: Store, session: Session) -> None:
        with session as inside:
            assert inside.holder is not None
            with pytest.raises(Busy):
                store.session("work")
            with session:  # entered twice, left twice
                session.user("a")
            with pytest.raises(Busy):
                store.session("work")
        store.session("work").release()

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_without_the_lease_nobody_is_kept_from_adding(self, store: Store) -> None:
        with store.session("job") as held:
            others = [store.session("job", hold=False), store.get_session(held.id)]
            for number, other in enumerate(others):
                held.user(f"held {number}")
                other.user(f"other {number}")
                other.note(f"note {number}")
            held.user("last")
        assert said(held) == ["held 0", "other 0", "held 1", "other 1", "last"]

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_a_session_is_given_back_once_and_can_be_taken_again(self, store: Store) -> None:
        held = store.session("job")
        held.release()
        held.release()
        held.user("without a lease")
        with store.session("job") as again:
            again.user("with one")
        with held:
            held.user("and again")
        assert said(held) == ["without a lease", "with one", "and again"]

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_a_wait_ends_as_soon_as_it_is_given_back(self, store: Store, told: None) -> None:
        held, given = store.session("job"), threading.Event()

        def give_back() -> None:
            given.set()
            held.release()

        given_back = threading.Timer(0.15, give_back)
        given_back.start()
        with store.session("job", wait=PATIENCE) as mine:
            assert given.is_set()
            mine.user("a")
        given_back.join()

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_a_wait_in_vain_is_busy(self, store: Store) -> None:
        with store.session("job"), pytest.raises(Busy):
            store.session("job", wait=0.12)

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_of_many_that_want_it_each_has_it_alone(self, store: Store) -> None:
        session, inside, most = store.create_session("job"), list[int](), list[int]()

        def work(number: int) -> None:
            mine = store.session("job", wait=PATIENCE)
            inside.append(number)
            most.append(len(inside))
            mine.user(f"{number} a")
            mine.user(f"{number} b")
            inside.remove(number)
            mine.release()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        texts = said(session)
        assert (max(most), len(texts)) == (1, 12)
        assert all(a.split()[0] == b.split()[0] for a, b in zip(texts[::2], texts[1::2], strict=True)), texts

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_after_a_take_over_no_write_of_the_old_holder_gets_through(self, store: Store) -> None:
        for what, write in WRITES.items():
            old = store.session(what)
            old.user("a")
            old.append(ASKED)
            old.rename("named")
            old.send("waiting")
            new = store.session(what, take_over=True)
            before = _standing(new)
            with pytest.raises(LeaseLost):
                write(old)
            assert _standing(new.refresh()) == before, what
            new.user("b")
            with pytest.raises(LeaseLost):
                write(old)
            assert said(new) == ["a", "", "b"], what
            old.release()
            with pytest.raises(Busy):
                store.session(what)
            new.release()

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_a_take_over_is_told_and_leaves_the_session_with_its_new_holder(self, store: Store) -> None:
        old = store.session("job")
        old.user("a")
        with pytest.raises(LeaseLost) as lost, old:  # noqa: PT012
            new = store.session("job", take_over=True)
            assert (new.resumed, new.stopped_at, new.status) == (True, 1, "active")
            old.user("b")
        assert f"process {os.getpid()}" in str(lost.value)
        assert (new.refresh().status, new.holder is not None) == ("active", True)
        new.user("c")
        new.release()
        assert said(new) == ["a", "c"]

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_a_lease_that_was_lost_can_be_asked_for_again(self, store: Store) -> None:
        old = store.session("job")
        store.session("job", take_over=True).release()
        with pytest.raises(LeaseLost):
            old.user("a")
        old.release()
        with old:
            old.user("b")
        assert said(old) == ["b"]

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_forgetting_the_handle_gives_it_back(self, store: Store) -> None:
        held = store.session("job")
        held.user("a")
        del held
        gc.collect()
        with store.session("job", wait=PATIENCE) as again:
            assert (again.status, again.stopped_at) == ("active", None)

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_closing_the_store_gives_it_back(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            persistent = store.capabilities.persistent
            store.session("job").user("a")
            held = store.session("other")
            held.user("b")
        with self.open(tmp_path) as store:
            assert len(store.list_sessions()) == (2 if persistent else 0)
            for session in store.list_sessions():
                assert (session.status, session.holder) == ("active", None)

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    @pytest.mark.parametrize("jump", [DAY, -DAY, 365 * DAY])
    def test_a_clock_that_jumps_takes_a_lease_from_nobody(self, tmp_path: Path, jump: int) -> None:
        clock = ManualClock()
        with self.open(tmp_path, clock=clock) as store, store.session("job") as held:
            held.user("a")
            clock.advance(jump)
            seen = store.get_session("job")
            assert (seen.status, seen.holder is not None) == ("active", True)
            assert [s.id for s in store.list_sessions(status="active")] == [held.id]
            with pytest.raises(Busy):
                store.session("job")
            held.user("b")
            clock.advance(-jump)
            held.user("c")
            with pytest.raises(Busy):
                store.session("job")
            assert said(held) == ["a", "b", "c"]

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_a_session_that_was_purged_while_it_ran_is_gone(self, store: Store) -> None:
        held = store.session("job")
        held.user("a")
        stream = held.stream()
        stream.write("half")
        stream.flush()
        held.send("waits")
        store.purge_session(held.id)
        with pytest.raises(Error):
            held.user("b")
        held.release()
        assert store.find_session(held.id) is None
        for table in ("lease", "stream", "delta", "inbox"):
            assert not blocking(store)._read(lambda tx, name=table: tx.all(f"SELECT scope FROM {name}")), table

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_a_session_in_the_trash_cannot_be_entered(self, store: Store, session: Session) -> None:
        store.delete_session(session)
        with pytest.raises(Conflict):
            store.session(session)
        store.restore_session(session)
        with store.session(session):
            session.user("a")

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_what_makes_no_sense_is_invalid(self, store: Store) -> None:
        for wrong in (-1, "soon", float("nan")):
            with pytest.raises(Invalid):
                store.session("job", wait=wrong)  # type: ignore[arg-type]
        with pytest.raises(Invalid):
            store.session("job", take_over=1)  # type: ignore[arg-type]

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_scopes_do_not_share_leases(self, store: Store) -> None:
        there = store.scoped("elsewhere")
        with store.session("job"), there.session("job") as other:
            other.user("a")
            with pytest.raises(Busy):
                there.session("job")
