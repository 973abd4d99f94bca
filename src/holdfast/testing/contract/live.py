"""The contract: who runs a session, its status, answers as they arrive, and calls that a crash cut off.

A holder that is gone is made by ``die``: what it leaves behind is what kill -9 leaves behind, in one process.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Busy, Conflict, Error, Invalid, LeaseLost, Session, Store, Usage

from ..clock import ManualClock
from .base import Contract, blocking, die, said

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


def eventually(look: Callable[[], Any], seconds: float = 2.0) -> Any:
    """Look until something is true; give it, or what was seen last."""
    deadline = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def _standing(session: Session) -> tuple[Any, ...]:
    """What no write of somebody else may have changed."""
    return session.head, session.revision, session.title, len(session.children()), session.status


class Leases(Contract):
    """One runs a session at a time, and nobody who lost it can write into it."""

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
            assert f"is run by {who}, this one, through another handle, since 2023-11-14 22:13:20 UTC" in str(
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
    def test_a_wait_ends_soon_after_it_is_given_back(self, store: Store) -> None:
        held, given = store.session("job"), list[float]()

        def give_back() -> None:
            given.append(time.monotonic())
            held.release()

        given_back = threading.Timer(0.15, give_back)
        given_back.start()
        with store.session("job", wait=10) as mine:
            took = time.monotonic() - given[0]
            mine.user("a")
        given_back.join()
        assert took < 0.3, f"it took {took:.3f} s"

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_a_wait_in_vain_is_busy(self, store: Store) -> None:
        with store.session("job"):
            began = time.monotonic()
            with pytest.raises(Busy):
                store.session("job", wait=0.12)
            assert 0.1 < time.monotonic() - began < 1

    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    def test_of_many_that_want_it_each_has_it_alone(self, store: Store) -> None:
        session, inside, most = store.create_session("job"), list[int](), list[int]()

        def work(number: int) -> None:
            mine = store.session("job", wait=20)
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
            thread.join(30)
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
        with store.session("job", wait=2) as again:
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


class Statuses(Contract):
    """A status is true: it says how the last run ended, whoever looks."""

    @pytest.mark.feature("D2")
    @pytest.mark.parametrize(
        ("error", "status", "told"),
        [
            (ValueError("no"), "error", "ValueError: no"),
            (KeyError("k"), "error", "KeyError: 'k'"),
            (SystemExit(3), "error", "SystemExit: 3"),
            (KeyboardInterrupt(), "interrupted", None),
            (asyncio.CancelledError(), "interrupted", None),
            (SystemExit(0), "active", None),
        ],
        ids=["error", "key error", "exit with a code", "ctrl-c", "cancellation", "exit"],
    )
    def test_what_leaves_the_block_is_its_status(
        self, store: Store, error: BaseException, status: str, told: str | None
    ) -> None:
        with pytest.raises(type(error)), store.session("job") as session:  # noqa: PT012
            session.user("a")
            session.user("b")
            raise error
        seen = store.get_session("job")
        for each in (session, seen):
            assert (each.status, each.error, each.holder) == (status, told, None)
            assert each.stopped_at == (2 if status == "interrupted" else None)
        assert [s.id for s in store.list_sessions(status=status)] == [seen.id]
        with store.session("job") as again:
            assert (again.resumed, again.status, again.error) == (True, "active", told)
            assert again.stopped_at == seen.stopped_at
            again.user("c")
        with store.session("job") as third:
            assert (third.error, third.stopped_at) == (None, None), "left in order since"

    @pytest.mark.feature("D2")
    def test_a_holder_that_is_gone_is_shown_as_interrupted_by_every_reader(self, store: Store) -> None:
        parent = store.create_session("boss")
        child = parent.spawn("dig", label="digger").session
        quiet = store.create_session("quiet")
        with child:
            child.user("a")
            child.user("b")
            die(child)
        seen = store.get_session(child.id)
        assert (seen.status, seen.stopped_at, seen.crashes, seen.holder) == ("interrupted", 2, 1, None)
        assert "interrupted" in repr(seen)
        assert seen.to_dict()["status"] == "interrupted"
        assert [s.id for s in store.list_sessions(status="interrupted")] == [child.id]
        assert {s.id for s in store.list_sessions(status="active")} == {parent.id, quiet.id}
        assert {s.id for s in store.list_sessions(active_only=True)} == {parent.id, quiet.id}
        assert len(store.list_sessions(status=["active", "interrupted"])) == 3
        assert [s.status for s in store.list_sessions(parent=parent)] == ["interrupted"]
        assert [s.status for s in parent.children()] == ["interrupted"]
        assert [each.status for each in parent.tree().children] == ["interrupted"]
        assert [s.status for s in parent.wait(timeout=0)] == ["interrupted"]
        assert store.resolve(child.id).session.status == "interrupted"
        assert [e.kind for e in seen.entries()] == ["message", "message"], "nothing is written by looking"

    @pytest.mark.feature("D2")
    def test_the_next_holder_writes_down_what_became_of_the_last(self, store: Store) -> None:
        with store.session("job") as first:
            first.user("a")
            first.user("b")
            die(first)
        with store.session("job") as second:
            assert (second.resumed, second.status, second.stopped_at, second.crashes) == (True, "active", 2, 1)
            kinds = [e.kind for e in second.entries()]
            assert kinds == ["message", "message", "status", "status"]
            second.user("c")
        assert said(second) == ["a", "b", "c"]

    @pytest.mark.feature("D2")
    def test_crashes_in_one_turn_are_counted_and_another_turn_begins_anew(self, store: Store) -> None:
        session = store.create_session("job")
        session.user("a")
        for number in range(1, 4):
            with store.session("job") as held:
                assert held.crashes == number - 1
                held.note("working")
                die(held)
            assert store.get_session("job").crashes == number
        with store.session("job") as held:
            assert (held.crashes, held.stopped_at) == (3, 1)
            held.user("b")
            die(held)
        with store.session("job") as held:
            assert (held.crashes, held.stopped_at) == (1, 2)
        assert store.get_session("job").crashes == 0

    @pytest.mark.feature("D2", "D8")
    @pytest.mark.parametrize("before", ["active", "interrupted", *ENDINGS])
    def test_from_each_status_only_some_follow(self, store: Store, before: str) -> None:
        for after, move in MOVES.items():
            session = store.create_session()
            if before == "interrupted":
                with pytest.raises(KeyboardInterrupt), session:
                    raise KeyboardInterrupt
            elif before != "active":
                ENDINGS[before](session)
            assert session.status == before
            legal = after != before and (before in ("active", "interrupted") or after == "active")
            if legal:
                move(session)
            else:
                with pytest.raises(Conflict):
                    move(session)
            expected = after if legal else before
            assert (session.status, store.get_session(session.id).status) == (expected, expected), (before, after)

    @pytest.mark.feature("D2", "D8")
    @pytest.mark.parametrize("status", ENDINGS)
    def test_a_finished_session_takes_notes_and_results_but_no_messages(self, store: Store, status: str) -> None:
        session = store.create_session("job")
        session.user("a")
        session.append(ASKED)
        other = store.get_session("job")
        ENDINGS[status](session)
        for each in (session, other):
            for speak in MESSAGES:
                with pytest.raises(Conflict):
                    speak(each)
        session.note("afterwards")
        other.tool_result("c1", "paid")
        session.refresh()
        assert (session.status, session.pending_calls(), len(session.notes())) == (status, [], 1)
        with store.session("job") as again:
            assert (again.status, again.resumed) == ("active", True)
            again.user("b")
        assert said(again) == ["a", "", "paid", "b"]

    @pytest.mark.feature("D8")
    def test_a_result_and_an_error_are_kept_for_whoever_asks(self, store: Store, session: Session) -> None:
        session.complete({"answer": [42, None, "ü"]})
        seen = store.get_session(session.id)
        assert (seen.result, seen.error, seen.finished_at is not None) == ({"answer": [42, None, "ü"]}, None, True)
        session.reopen()
        assert (session.result, session.finished_at) == (None, None)
        session.fail(ValueError("bad"))
        seen = store.get_session(session.id)
        assert (seen.status, seen.error, seen.result) == ("error", "ValueError: bad", None)
        with pytest.raises(Invalid):
            store.create_session().complete("x" * (2 << 20))

    @pytest.mark.feature("D8", "A2")
    def test_a_retry_of_an_ending_is_one_ending(self, store: Store, session: Session) -> None:
        for _ in range(2):
            session.complete(1, idempotency_key="end")
        session.reopen(idempotency_key="on")
        session.reopen(idempotency_key="on")
        for _ in range(2):
            session.stop(reason="enough", idempotency_key="stop")
        assert (session.status, session.error) == ("stopped", "enough")
        assert [e.kind for e in session.entries()] == ["status"] * 3

    @pytest.mark.feature("D8")
    def test_the_runtime_is_never_negative_and_stands_still_at_the_end(self, tmp_path: Path) -> None:
        clock = ManualClock()
        with self.open(tmp_path, clock=clock) as store:
            session = store.create_session("job")
            assert session.runtime() == 0
            clock.advance(1500)
            assert session.runtime() == 1.5
            clock.advance(-DAY)
            assert (session.runtime(), session.tree().seconds) == (0, 0)
            session.complete()
            assert (session.runtime(), store.get_session("job").runtime()) == (0, 0)
            clock.advance(DAY)
            session.reopen()
            clock.advance(500)
            session.stop()
            clock.advance(DAY)
            assert (session.runtime(), session.tree().seconds) == (2.0, 2.0)
            with store.session("other") as held:
                held.user("a")
                clock.advance(-2 * DAY)
                die(held)
            assert store.get_session("other").runtime() == 0

    @pytest.mark.feature("D2", "F1")
    def test_a_status_is_not_undone_by_a_rewind(self, session: Session) -> None:
        session.user("a")
        session.complete()
        session.rewind(1)
        assert session.refresh().status == "completed"


class Streams(Contract):
    """Answers as they arrive: on disk soon, seen by others, one message in the end."""

    @pytest.mark.feature("F4")
    def test_what_arrives_is_soon_seen_by_others_as_streaming(self, store: Store) -> None:
        with store.session("job") as session, session.stream(model="m") as stream:
            session.user("hi")
            other = store.get_session("job")
            stream.write("Hel")
            stream.write("lo")
            began = time.monotonic()
            found = eventually(lambda: [m for m in other.messages() if m.text == "Hello"])
            assert time.monotonic() - began < 0.6
            assert [(m.role, m.status, m.seq, m.model) for m in found] == [("assistant", "streaming", 0, "m")]
            assert [m.text for m in other.iter_messages()] == ["hi", "Hello"]
            assert [m.text for m in other.messages(limit=1)] == ["Hello"]
        assert [(m.text, m.status, m.seq) for m in other.messages()] == [
            ("hi", "complete", 1),
            ("Hello", "complete", 2),
        ]

    @pytest.mark.feature("F4")
    def test_much_at_once_is_there_at_once(self, store: Store, session: Session) -> None:
        other = store.get_session(session.id)
        with session.stream(flush_seconds=60, flush_bytes=10) as stream:
            stream.write("123456789")
            assert said(other) == [""]
            stream.write("0")
            assert said(other) == ["1234567890"]
            stream.write("x")
            assert said(other) == ["1234567890"]
            stream.flush()
            assert said(other) == ["1234567890x"]
        assert said(other) == ["1234567890x"]

    @pytest.mark.feature("F4")
    def test_a_stream_ends_with_the_providers_own_message(self, session: Session) -> None:
        session.user("hi")
        with session.stream() as stream:
            stream.write("hm", "thinking")
            stream.write("Hello.")
            stream.write('{"cmd": ', "tool_input")
            stream.write('"ls"}', "tool_input")
            stream.flush()
            done = stream.finish(FINAL)
            assert stream.message == done
        (_, message) = session.messages()
        assert (message.status, message.text, message.usage) == ("complete", "Hello.", Usage(10, 5))
        assert message.raw is not None
        assert json.loads(message.raw) == FINAL
        assert [c.id for c in session.pending_calls()] == ["toolu_1"]
        assert session.stats().usage == Usage(10, 5)
        with pytest.raises(Conflict):
            stream.write("more")
        with pytest.raises(Conflict):
            stream.finish()

    @pytest.mark.feature("F4")
    def test_a_stream_without_a_final_message_is_what_was_written(self, session: Session) -> None:
        with session.stream(model="m", id="own") as stream:
            stream.write("a")
            stream.write("")
            stream.write("b\ud800")
            stream.finish(usage={"input_tokens": 3, "output_tokens": 1})
        message = session.message("own")
        assert (message.text, message.model, message.usage, message.status) == (
            "ab\ud800",
            "m",
            Usage(3, 1),
            "complete",
        )

    @pytest.mark.feature("F4")
    def test_an_id_that_is_taken_is_refused_before_anything_arrives(self, session: Session) -> None:
        session.user("a", id="taken")
        with pytest.raises(Conflict):
            session.stream(id="taken")
        assert said(session) == ["a"]

    @pytest.mark.feature("F4")
    def test_every_kind_of_delta_has_its_part(self, session: Session) -> None:
        with session.stream() as stream:
            for delta, kind in (("think ", "thinking"), ("more", "thinking"), ("say", "text"), ("{}", "tool_input")):
                stream.write(delta, kind)
                stream.flush()
        content = session.messages()[0].content
        assert [(part["type"], part.get("text") or part.get("thinking") or part.get("json")) for part in content] == [
            ("thinking", "think more"),
            ("text", "say"),
            ("tool_input", "{}"),
        ]
        with pytest.raises(Invalid):
            session.stream().write("x", "image")

    @pytest.mark.feature("F4")
    @pytest.mark.parametrize(
        ("error", "status"),
        [
            (ValueError("no"), "interrupted"),
            (KeyboardInterrupt(), "cancelled"),
            (asyncio.CancelledError(), "cancelled"),
        ],
        ids=["error", "ctrl-c", "cancellation"],
    )
    def test_a_stream_that_is_broken_off_keeps_what_arrived(
        self, session: Session, error: BaseException, status: str
    ) -> None:
        with pytest.raises(type(error)), session.stream() as stream:  # noqa: PT012
            stream.write("on disk, ")
            stream.flush()
            stream.write("and not yet")
            raise error
        assert [(m.text, m.status) for m in session.messages()] == [("on disk, and not yet", status)]

    @pytest.mark.feature("F4")
    def test_a_stream_can_be_cancelled(self, session: Session) -> None:
        stream = session.stream()
        stream.write("half")
        message = stream.cancel()
        assert message is not None
        assert (message.text, message.status, message.seq) == ("half", "cancelled", 1)
        assert session.stream().cancel() is None
        with pytest.raises(ValueError, match="no"), session.stream():
            raise ValueError("no")
        assert said(session) == ["half"], "nothing arrived, nothing is kept"

    @pytest.mark.feature("F4")
    def test_what_had_arrived_when_its_writer_died_is_there_once(self, store: Store) -> None:
        with store.session("job") as session:
            session.user("hi")
            stream = session.stream(id="answer")
            stream.write("think", "thinking")
            stream.write("half an ans")
            stream.flush()
            stream.write("wer that was never on disk")
            die(session)
        seen = store.get_session("job")
        assert [(m.text, m.status) for m in seen.messages()] == [("hi", "complete"), ("half an ans", "interrupted")]
        for _ in range(2):
            with store.session("job") as again:
                found = [(m.text, m.status, m.seq > 0) for m in again.messages()]
                assert found == [("hi", "complete", True), ("half an ans", "interrupted", True)]
        assert again.message("answer").text == "half an ans"
        with pytest.raises((Conflict, LeaseLost)):
            stream.finish()

    @pytest.mark.feature("F4")
    def test_a_stream_of_an_old_holder_ends_with_a_take_over(self, store: Store) -> None:
        old = store.session("job")
        stream = old.stream()
        stream.write("half")
        stream.flush()
        new = store.session("job", take_over=True)
        assert [(m.text, m.status) for m in new.messages()] == [("half", "interrupted")]
        stream.write("more")
        with pytest.raises((LeaseLost, Conflict)):
            stream.flush()
        with pytest.raises((LeaseLost, Conflict)):
            stream.finish()
        old.release()
        new.release()
        assert said(new) == ["half"]

    @pytest.mark.feature("F4")
    def test_streams_without_a_lease_stand_beside_each_other(self, store: Store, session: Session) -> None:
        one, two = session.stream(), store.get_session(session.id).stream()
        for number in range(3):
            one.write(f"a{number} ")
            two.write(f"b{number} ")
            one.flush()
            two.flush()
        two.finish()
        one.finish()
        assert said(session) == ["b0 b1 b2 ", "a0 a1 a2 "]

    @pytest.mark.feature("F4")
    def test_a_stream_without_a_lease_that_lives_is_nobody_elses_to_end(self, store: Store, session: Session) -> None:
        stream = session.stream()
        stream.write("a")
        stream.flush()
        with store.session("work"):
            pass
        stream.write("b")
        stream.finish()
        assert [(m.text, m.status) for m in session.messages()] == [("ab", "complete")]

    @pytest.mark.feature("F4")
    def test_a_stream_ends_on_the_branch_where_it_began(self, session: Session) -> None:
        session.user("a")
        session.user("b")
        stream = session.stream()
        stream.write("answer to b")
        stream.flush()
        session.rewind(1)
        assert said(session) == ["a"]
        session.user("c")
        head = session.head
        assert stream.finish().text == "answer to b"
        session.refresh()
        assert (session.head, said(session)) == (head, ["a", "c"])
        session.switch("main")
        assert said(session) == ["a", "b", "answer to b"]

    @pytest.mark.feature("F4")
    def test_a_closed_store_ends_its_streams(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            persistent = store.capabilities.persistent
            session = store.create_session("job")
            stream = session.stream(flush_seconds=60)
            stream.write("half")
        if persistent:
            with self.open(tmp_path) as store:
                (message,) = store.get_session("job").messages()
                assert (message.text, message.status, message.seq) == ("half", "interrupted", 1)


class Calls(Contract):
    """A call is on disk before it runs and its result after; what a crash left open is unknown."""

    @pytest.mark.feature("F4")
    def test_a_call_is_on_disk_before_it_runs_and_its_result_after(self, store: Store) -> None:
        with store.session("job") as session:
            other = store.get_session("job")
            with session.tool("pay", {"amount": 5}) as run:
                (call,) = other.pending_calls()
                assert (call.id, call.name, call.status, call.arguments) == (
                    run.call.id,
                    "pay",
                    "running",
                    {"amount": 5},
                )
                run.result("paid")
                assert other.pending_calls() == []
            (done,) = other.tool_calls()
            assert (done.status, done.result, done.success, done.attempts) == ("completed", "paid", True, 1)

    @pytest.mark.feature("F4")
    def test_a_call_that_a_crash_cut_off_is_unknown(self, store: Store) -> None:
        with store.session("job") as session:
            session.append(ASKED)
            session.tool(session.pending_calls()[0]).__enter__()
            die(session)
        seen = store.get_session("job")
        assert [(c.id, c.status, c.attempts) for c in seen.pending_calls()] == [("c1", "unknown", 1)]
        with store.session("job") as again:
            assert [(c.id, c.status) for c in again.pending_calls()] == [("c1", "unknown")]
            with pytest.raises(Conflict), again.tool(again.pending_calls()[0]):
                pass
        assert [(c.id, c.status) for c in seen.pending_calls()] == [("c1", "unknown")]

    @pytest.mark.feature("F4")
    def test_a_call_that_was_announced_and_never_run_is_still_pending(self, store: Store) -> None:
        with store.session("job") as session:
            session.append(ASKED)
            die(session)
        with store.session("job") as again:
            (call,) = again.pending_calls()
            assert (call.status, call.attempts) == ("pending", 0)
            with again.tool(call) as run:
                run.result("paid")

    @pytest.mark.feature("F4")
    def test_a_call_is_tried_again_with_the_same_key(self, store: Store) -> None:
        keys = list[str]()
        with store.session("job") as session:
            session.append(ASKED)
            run = session.tool(session.pending_calls()[0])
            run.__enter__()
            keys.append(run.call.idempotency_key)
            die(session)
        for _ in range(2):
            with store.session("job") as session:
                (call,) = session.pending_calls()
                keys.append(call.idempotency_key)
                run = session.retry(call)
                run.__enter__()
                keys.append(run.call.idempotency_key)
                die(session)
        assert len(set(keys)) == 1, keys
        with store.session("job") as session:
            (call,) = session.pending_calls()
            assert (call.attempts, call.status) == (3, "unknown")
            with pytest.raises(Conflict), session.retry(call):
                pass
            with session.retry(call, most=4) as run:
                run.result("paid")
            (done,) = session.tool_calls()
            assert (done.status, done.attempts, done.result) == ("completed", 4, "paid")

    @pytest.mark.feature("F4")
    @pytest.mark.parametrize("success", [True, False])
    def test_a_call_is_resolved_by_whoever_knows_how_it_ended(self, store: Store, success: bool) -> None:
        with store.session("job") as session:
            session.append(ASKED)
            session.tool(session.pending_calls()[0]).__enter__()
            die(session)
        with store.session("job") as session:
            (call,) = session.pending_calls()
            session.resolve_call(call, "looked it up", success=success)
            assert session.pending_calls() == []
            assert [c.status for c in session.tool_calls()] == ["completed" if success else "failed"]
            with pytest.raises(Conflict):
                session.resolve_call(call, "again")

    @pytest.mark.feature("F4")
    def test_calls_run_beside_each_other(self, store: Store) -> None:
        asked = [{"id": f"c{number}", "name": "work", "arguments": {"n": number}} for number in range(6)]
        with store.session("job") as session:
            session.append({"role": "assistant", "content": "", "tool_calls": asked})
            started = threading.Barrier(6)

            def work(number: int) -> None:
                with session.tool("work", id=f"c{number}") as run:
                    started.wait(10)
                    run.result(f"result {number}")

            threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
            found = {c.id: (c.result, c.status, c.attempts) for c in session.tool_calls()}
            assert found == {f"c{n}": (f"result {n}", "completed", 1) for n in range(6)}

    @pytest.mark.feature("F4")
    def test_of_parallel_calls_only_those_that_ran_are_unknown(self, store: Store) -> None:
        asked = [{"id": f"c{number}", "name": "work", "arguments": {}} for number in range(3)]
        with store.session("job") as session:
            session.append({"role": "assistant", "content": "", "tool_calls": asked})
            with session.tool("work", id="c0") as run:
                run.result("done")
            session.tool("work", id="c1").__enter__()
            die(session)
        with store.session("job") as session:
            assert [(c.id, c.status) for c in session.pending_calls()] == [("c1", "unknown"), ("c2", "pending")]

    @pytest.mark.feature("F4")
    def test_a_result_goes_to_the_branch_where_its_call_began(self, session: Session) -> None:
        session.user("a")
        session.user("b")
        with session.tool("slow") as run:
            session.rewind(1)
            session.user("c")
            head = session.head
            run.result("at last")
        session.refresh()
        assert (session.head, said(session)) == (head, ["a", "c"])
        session.switch("main")
        assert said(session) == ["a", "b", "at last"]
        assert [c.status for c in session.tool_calls()] == ["completed"]

    @pytest.mark.feature("F4")
    def test_an_interrupted_tool_leaves_its_call_unknown(self, store: Store) -> None:
        with (
            pytest.raises(KeyboardInterrupt),
            store.session("job") as session,
            session.tool("pay"),
        ):
            raise KeyboardInterrupt
        assert [c.status for c in store.get_session("job").pending_calls()] == ["unknown"]
        with pytest.raises(ValueError, match="no"), store.session("job") as session, session.tool("fail"):
            raise ValueError("no")
        assert [c.status for c in store.get_session("job").tool_calls()] == ["unknown", "failed"]
