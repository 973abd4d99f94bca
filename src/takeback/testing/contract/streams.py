"""The contract: what a crash may leave half done: partial answers, and calls whose outcome is unknown."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import pytest

from takeback import Conflict, Invalid, LeaseLost, Session, Store, Usage

from .base import PATIENCE, Contract, blocking, die, eventually, said
from .live import ASKED, FINAL


class Streams(Contract):
    """Streamed answers: on disk soon, visible to others, one message in the end."""

    @pytest.mark.feature("F4")
    def test_what_arrives_is_soon_seen_by_others_as_streaming(self, store: Store) -> None:
        with store.session("job") as session, session.stream(model="m") as stream:
            session.user("hi")
            other = store.get_session("job")
            stream.write("Hel")
            stream.write("lo")
            found = eventually(lambda: [m for m in other.messages() if m.text == "Hello"])
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
    """A call is on disk before it runs and its result after; a call that a crash left open is unknown."""

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
                    started.wait(PATIENCE)
                    run.result(f"result {number}")

            threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)
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

    @pytest.mark.feature("F4")
    def test_what_a_tool_writes_is_soon_seen_and_becomes_its_result(self, store: Store) -> None:
        with store.session("job") as session:
            other = store.get_session("job")
            with session.tool("bash", {"command": "make"}) as run:
                run.write("one\n")
                run.write("two\n")
                (half,) = eventually(lambda: [m for m in other.messages() if m.text == "one\ntwo\n"])
                assert (half.role, half.status, half.tool_name) == ("tool", "streaming", "bash")
            (done,) = other.messages()
            assert (done.text, done.status, done.tool_results[0].success) == ("one\ntwo\n", "complete", True)
            with session.tool("bash") as run:
                run.write("three")
                run.error("exit code 2")
            with pytest.raises(Conflict):
                run.write("late")
            with session.tool("bash") as run:
                run.write("thrown away")
                run.result("four")
        assert [call.result for call in session.tool_calls()] == ["one\ntwo\n", "three\nexit code 2", "four"]
        assert not store.verify()

    @pytest.mark.feature("F4")
    def test_of_endless_output_the_first_and_the_last_part_are_kept(self, store: Store, session: Session) -> None:
        other = store.get_session(session.id)
        with session.tool("yes", keep=100) as run:
            for number in range(300):
                run.write(f"{number:09}\n")
                if number % 7 == 0:
                    blocking(run)._output.flush()
                    (seen,) = other.messages()
                    assert len(seen.text) < 400
                    assert seen.text.endswith(f"{number:09}\n")
            assert blocking(store)._read(lambda tx: tx.one("SELECT count(*) FROM delta")[0]) < 20
        (done,) = other.messages()
        lines = done.text.splitlines()
        assert lines[:5] == [f"{number:09}" for number in range(5)]
        assert lines[-5:] == [f"{number:09}" for number in range(295, 300)]
        assert lines[5:-5] == ["", "[... 2,900 characters left out ...]"]
        with session.tool("short", keep=100) as run:
            run.write("x" * 100)
        assert other.messages(limit=1)[0].text == "x" * 100
        with pytest.raises(Invalid):
            session.tool("none", keep=0)
        assert not store.verify()

    @pytest.mark.feature("F4")
    def test_what_a_tool_wrote_before_it_was_cut_off_is_kept(self, store: Store) -> None:
        with pytest.raises(KeyboardInterrupt), store.session("job") as session, session.tool("bash") as run:  # noqa: PT012
            run.write("half")
            raise KeyboardInterrupt
        assert [(m.text, m.status) for m in session.messages()] == [("half", "interrupted")]
        assert [call.status for call in session.pending_calls()] == ["unknown"]
        with session, session.retry(session.pending_calls()[0]) as run:
            run.write("whole")
        assert [(m.text, m.status) for m in session.messages()] == [("half", "interrupted"), ("whole", "complete")]

    @pytest.mark.feature("F4")
    def test_what_a_tool_writes_goes_to_the_branch_where_it_began(self, session: Session) -> None:
        first = session.user("hi")
        with session.tool("bash") as run:
            run.write("a")
            session.rewind(first)
            session.user("another way")
        assert [m.text for m in session.messages()] == ["hi", "another way"]
        session.switch("main")
        assert [m.text for m in session.messages()] == ["hi", "a"]
