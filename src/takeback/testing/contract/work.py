"""The contract: tasks, plan, notes, files, builds; tools; statistics; attachments; messages of every format."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from takeback import Conflict, Invalid, NotFound, Session, Store, Task, Unsupported, Usage

from .base import Contract, said

ANTHROPIC = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s=="},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"cmd": "ls"}},
    ],
    "usage": {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 5},
}
CHAT = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"cmd": "ls"}'}}],
}
RESPONSES = {"type": "function_call", "call_id": "call_1", "name": "bash", "arguments": '{"cmd": "ls"}'}
GEMINI = {"role": "model", "parts": [{"text": "ok"}, {"functionCall": {"name": "bash", "args": {"cmd": "ls"}}}]}


class Work(Contract):
    """What a session works on: every change has a history, and a rewind takes it back."""

    @pytest.mark.feature("A3")
    def test_tasks_are_set_added_and_changed_by_index(self, session: Session) -> None:
        session.set_tasks(["one", Task("two", "in_progress")])
        assert session.add_task("three").status == "pending"
        assert session.update_task(0, "completed").status == "completed"
        assert session.update_task(2, description="drei").description == "drei"
        assert [(t.description, t.status) for t in session.tasks()] == [
            ("one", "completed"),
            ("two", "in_progress"),
            ("drei", "pending"),
        ]
        assert len({task.id for task in session.tasks()}) == 3
        assert (session.task_count, session.completed_count) == (3, 1)

    @pytest.mark.feature("A3")
    @pytest.mark.defect("S0-16")
    def test_a_wrong_index_or_state_is_an_error_and_changes_nothing(self, session: Session) -> None:
        session.set_tasks(["one"])
        for index in (1, -1, 99, True, "0", None):
            with pytest.raises(Invalid):
                session.update_task(index, "completed")  # type: ignore[arg-type]
        for status in ("done", "", "COMPLETED"):
            with pytest.raises(Invalid):
                session.update_task(0, status)
            with pytest.raises(Invalid):
                session.set_tasks([Task("x", status)])
        with pytest.raises(Invalid):
            session.set_tasks([Task("a", id="1"), Task("b", id="1")])
        assert [t.status for t in session.tasks()] == ["pending"]
        assert session.head.seq == 1

    @pytest.mark.feature("A3", "A5", "F1")
    def test_work_goes_back_with_a_rewind_and_comes_back_with_undo(self, session: Session) -> None:
        session.set_tasks(["one"])
        session.set_plan("first plan")
        session.user("a")
        session.checkpoint("here")
        session.update_task(0, "completed")
        session.set_plan("second plan")
        session.set_walkthrough("how it went")
        session.note("why", task=0)
        session.record_file("a.py", "created")
        session.add_build_attempt()
        after = (session.tasks(), session.get_plan(), session.get_walkthrough(), session.notes(), session.files())
        session.rewind("here")
        assert [t.status for t in session.tasks()] == ["pending"]
        assert (session.get_plan(), session.get_walkthrough()) == ("first plan", None)
        assert (session.notes(), session.files(), session.build_attempts, session.completed_count) == ([], [], 0, 0)
        session.undo()
        assert after == (
            session.tasks(),
            session.get_plan(),
            session.get_walkthrough(),
            session.notes(),
            session.files(),
        )
        assert (session.build_attempts, session.completed_count) == (1, 1)

    @pytest.mark.feature("A5")
    @pytest.mark.defect("S0-14", "S0-21")
    def test_notes_name_their_task_and_builds_never_saturate(self, session: Session) -> None:
        one, two = session.set_tasks(["one", "two"])
        session.note("general")
        assert session.note("on two", task=1).task == two.id
        session.note("on one", task=one)
        assert [(n.text, n.task) for n in session.notes()] == [
            ("general", None),
            ("on two", two.id),
            ("on one", one.id),
        ]
        for wrong in (2, "nosuch"):
            with pytest.raises(Invalid):
                session.note("x", task=wrong)
        for _ in range(300):
            session.add_build_attempt()
        assert session.build_attempts == 300
        session.set_plan(None)
        assert session.get_plan() is None

    @pytest.mark.feature("A4")
    @pytest.mark.defect("S0-23")
    def test_each_file_is_listed_once_with_its_last_action(self, session: Session) -> None:
        for n in range(60):
            session.record_file(f"src/f{n % 20}.py", "written", call=f"c{n}")
        session.record_file(Path("new.py"), "created")
        session.record_file("src/f3.py", "deleted")
        files = {f.path: (f.action, f.call_id) for f in session.files()}
        assert len(files) == 21
        assert files["src/f4.py"] == ("written", "c44")
        assert files["src/f3.py"] == ("deleted", None)
        for wrong in ("", "a\0b"):
            with pytest.raises(Invalid):
                session.record_file(wrong, "created")

    @pytest.mark.feature("A2", "A5")
    def test_a_retry_of_any_work_is_one_change(self, session: Session) -> None:
        for _ in range(2):
            session.set_tasks(["a", "b"], idempotency_key="1")
            session.add_task("c", idempotency_key="2")
            session.update_task(0, "failed", idempotency_key="3")
            session.set_plan("p", idempotency_key="4")
            session.note("n", idempotency_key="5")
            session.record_file("f", "created", idempotency_key="6")
            assert session.add_build_attempt(idempotency_key="7") == 1
        assert session.head.seq == 7
        with pytest.raises(Conflict):
            session.update_task(0, "completed", idempotency_key="3")

    @pytest.mark.feature("A7", "F1")
    def test_a_compaction_loses_nothing_and_goes_back(self, session: Session) -> None:
        for text in "abc":
            session.user(text)
        session.compact(2, "a and b were said")
        assert said(session) == ["a", "b", "c"]
        with pytest.raises(NotFound):
            session.compact(99, "x")

    @pytest.mark.feature("B1")
    def test_statistics_are_exact_everywhere(self, session: Session) -> None:
        session.user("a")
        session.assistant("b", usage=Usage(10, 5, cost=0.25), duration=2)
        session.assistant("c", usage={"input_tokens": 20, "output_tokens": 1}, duration=40)
        session.rewind(2)
        session.assistant("d", usage=Usage(100, 0))
        stats = session.stats()
        assert (stats.messages, stats.turns, stats.usage) == (3, 1, Usage(110, 5, cost=0.25))
        assert (stats.duration, stats.estimated_tokens, stats.started_at) == (2, 115, session.created_at)
        assert session.stats(at=1).usage == Usage()
        spent = session.stats(spent=True)
        assert (spent.messages, spent.usage, spent.duration) == (4, Usage(130, 6, cost=0.25), 42)
        assert str(spent) == "4 messages, 1 turn, 0 tool calls, 136 tokens, $0.2500, 42s"
        fork = session.fork(2, as_session=True)
        assert fork.stats().usage == Usage(10, 5, cost=0.25)
        assert fork.stats(spent=True).usage == Usage()
        with pytest.raises(Invalid):
            session.stats(at=1, spent=True)


class Tools(Contract):
    """Tool calls and results are entries; a result belongs to a call that exists."""

    @pytest.mark.feature("C2", "B2", "E3")
    @pytest.mark.parametrize(
        "announced", [ANTHROPIC, CHAT, RESPONSES, GEMINI], ids=["anthropic", "chat", "responses", "gemini"]
    )
    def test_a_call_is_announced_run_and_answered(self, session: Session, announced: dict[str, Any]) -> None:
        session.user("look")
        session.append(announced)
        (call,) = session.pending_calls()
        assert (call.name, call.arguments, call.status) == ("bash", {"cmd": "ls"}, "pending")
        with session.tool(call) as run:
            (running,) = session.pending_calls()
            assert (running.status, running.started_at is not None) == ("running", True)
            run.result({"files": ["a"]})
        assert session.pending_calls() == []
        (done,) = session.tool_calls()
        assert (done.status, done.success, done.result) == ("completed", True, {"files": ["a"]})
        result = session.messages()[-1]
        assert (result.role, result.tool_name, result.tool_results[0].call_id) == ("tool", "bash", call.id)
        assert session.stats().tool_calls == 1
        assert [m.role for m in session.messages(tools=False)] == ["user", "assistant"]

    @pytest.mark.feature("C2")
    def test_an_exception_becomes_the_calls_error(self, session: Session) -> None:
        with pytest.raises(ZeroDivisionError), session.tool("divide", {"by": 0}):
            raise ZeroDivisionError("by zero")
        with session.tool("divide", {"by": 0}) as run:
            run.error("refused")
        with session.tool("nothing"):
            pass
        first, second, third = session.tool_calls()
        assert (first.status, first.error) == ("failed", "ZeroDivisionError: by zero")
        assert (second.status, second.error, second.arguments) == ("failed", "refused", {"by": 0})
        assert (third.status, third.success) == ("completed", True)
        assert (session.stats().tool_calls, session.stats().tool_failures) == (3, 2)
        with session.tool("x") as run:
            run.result(1)
            with pytest.raises(Conflict):
                run.result(2)

    @pytest.mark.feature("C2")
    @pytest.mark.defect("S2-4")
    def test_a_result_needs_a_call_and_comes_once(self, session: Session) -> None:
        with pytest.raises(NotFound):
            session.tool_result("nosuch", "x")
        session.append(CHAT)
        session.tool_result("call_1", "ok", idempotency_key="k")
        session.tool_result("call_1", "ok", idempotency_key="k")
        with pytest.raises(Conflict):
            session.tool_result("call_1", "again")
        assert session.head.seq == 2

    @pytest.mark.feature("C2")
    def test_ids_that_repeat_between_turns_are_different_calls(self, session: Session) -> None:
        for n in range(3):
            session.append(CHAT)
            with session.tool("bash", id="call_1") as run:
                run.result(n)
        assert [c.result for c in session.tool_calls()] == [0, 1, 2]
        session.append(CHAT)
        assert [c.id for c in session.pending_calls()] == ["call_1"]
        assert session.stats().tool_calls == 4

    @pytest.mark.feature("C2")
    def test_a_start_is_never_recorded_twice(self, session: Session) -> None:
        session.append(CHAT)
        with session.tool("bash", id="call_1") as first, session.tool("bash", id="call_1"):
            first.result("ok")
            with pytest.raises(Conflict):
                session.tool_result("call_1", "again")
            assert [entry.kind for entry in session.entries()] == ["message", "call", "tool"]
            session.append(CHAT)  # so that leaving the inner run has a call to answer

    @pytest.mark.feature("C2", "F1")
    def test_a_rewind_opens_a_call_again(self, session: Session) -> None:
        session.append(ANTHROPIC)
        session.tool_result("toolu_1", "done")
        session.rewind(1)
        assert [c.id for c in session.pending_calls()] == ["toolu_1"]
        session.tool_result("toolu_1", "done differently")
        assert session.tool_calls()[0].result == "done differently"
        session.switch("main")
        assert session.tool_calls()[0].result == "done"

    @pytest.mark.feature("C2")
    def test_results_in_a_providers_form_answer_their_calls(self, session: Session) -> None:
        session.user("a")
        session.append(ANTHROPIC)
        session.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}]})
        session.append(CHAT, {"role": "tool", "tool_call_id": "call_1", "content": "y"})
        session.append(RESPONSES, {"type": "function_call_output", "call_id": "call_1", "output": "z"})
        session.append(
            GEMINI, {"role": "user", "parts": [{"functionResponse": {"name": "bash", "response": {"r": 1}}}]}
        )
        assert session.pending_calls() == []
        assert [c.status for c in session.tool_calls()] == ["completed"] * 4
        assert [m.tool_name for m in session.messages() if m.role == "tool"] == ["bash"] * 4
        assert session.turn_count == 1, "tool results are no turns"

    @pytest.mark.feature("C2", "F3")
    def test_a_providers_message_is_kept_verbatim(self, session: Session) -> None:
        message = session.append(ANTHROPIC)[0]
        for found in (message, session.messages()[0]):
            assert found.content == ANTHROPIC["content"]
            assert (found.text, found.model, found.role) == ("Let me look.", "claude", "assistant")
            assert found.usage == Usage(100, 5, 90)
            assert found.raw is not None
            assert found.raw.startswith(
                b'{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":['
            )
        assert b"Let me look" not in (next(iter(session.entries())).body or b""), "long text is stored once"
        assert session.append(message)[0].content == ANTHROPIC["content"]

    @pytest.mark.feature("E3")
    @pytest.mark.defect("S4-23")
    def test_parents_are_checked_and_ids_are_unique(self, session: Session) -> None:
        first = session.user("a", id="m1")
        session.assistant("b", parent_id="m1")
        session.assistant("c", parent_id=first.id)
        with pytest.raises(NotFound):
            session.user("d", parent_id="nosuch")
        with pytest.raises(Conflict):
            session.user("e", id="m1")
        with pytest.raises(Conflict):
            session.append({"role": "user", "id": "m2"}, {"role": "user", "id": "m2"})
        session.append({"role": "user", "id": "m3"}, {"role": "assistant", "parent_id": "m3"})
        assert session.head.seq == 5

    @pytest.mark.feature("C2")
    def test_pop_clear_and_replace_tail(self, session: Session) -> None:
        for text in "abcd":
            session.user(text)
        popped = session.pop()
        assert popped is not None
        assert (popped.text, said(session)) == ("d", ["a", "b", "c"])
        new = session.replace_tail(
            2, [{"role": "user", "content": "B"}, {"role": "assistant", "content": "C"}], session.revision
        )
        assert ([m.seq for m in new], said(session)) == ([2, 3], ["a", "B", "C"])
        with pytest.raises(Conflict):
            session.replace_tail(1, [], session.revision - 1)
        with pytest.raises(NotFound):
            session.replace_tail(9, [], session.revision)
        session.undo()
        assert said(session) == ["a", "b", "c"]
        session.clear()
        assert (said(session), session.pop(), session.message_count) == ([], None, 0)
        session.undo()
        assert said(session) == ["a", "b", "c"]


class Attachments(Contract):
    """Attachments are bytes, stored once, streamed."""

    @pytest.mark.feature("E3")
    @pytest.mark.defect("S4-24")
    def test_everything_that_can_be_attached(self, session: Session, tmp_path: Path) -> None:
        (tmp_path / "pic.png").write_bytes(b"\x89PNG")
        given: list[Any] = [
            b"\0\xff",
            tmp_path / "pic.png",
            str(tmp_path / "pic.png"),
            io.BytesIO(b"stream"),
            {"data": "print(1)", "name": "x.py"},
            {"data": b"", "name": "empty", "type": "file", "mime_type": "text/plain"},
            "https://example.org/v.mp4",
            {"url": "https://example.org/a", "type": "audio"},
        ]
        session.user("see", attachments=given)
        found = session.messages()[0].attachments
        assert [a.type for a in found] == ["file", "image", "image", "file", "code", "file", "video", "audio"]
        assert [a.read() for a in found[:6]] == [b"\0\xff", b"\x89PNG", b"\x89PNG", b"stream", b"print(1)", b""]
        assert (found[1].name, found[1].mime_type, found[1].size) == ("pic.png", "image/png", 4)
        assert found[1].hash == found[2].hash
        assert found[6].url == "https://example.org/v.mp4"
        with pytest.raises(Unsupported):
            found[6].read()
        session.user("again", attachments=[found[1], found[6]])
        assert session.messages()[1].attachments[0].read() == b"\x89PNG"

    @pytest.mark.feature("E3")
    def test_content_is_stored_once(self, store: Store, session: Session) -> None:
        for _ in range(3):
            session.user("x", attachments=[b"the same"])
        assert store.stats().blobs == 1

    @pytest.mark.feature("E3", "C5")
    def test_what_cannot_be_attached_is_refused_before_anything_is_stored(
        self, session: Session, tmp_path: Path
    ) -> None:
        wrong: list[tuple[Any, type[Exception]]] = [
            (5, Invalid),
            ({"name": "x"}, Invalid),
            ({"data": b"x", "url": "y://z"}, Invalid),
            ({"data": b"x", "type": "hologram"}, Invalid),
            (tmp_path / "nosuch", NotFound),
            (tmp_path, Invalid),
            (io.StringIO("text"), Invalid),
        ]
        for given, error in wrong:
            with pytest.raises(error):
                session.user("x", attachments=[given])
        assert session.head.seq == 0

    @pytest.mark.feature("E3")
    def test_a_large_one_is_read_in_pieces(self, session: Session) -> None:
        data = bytes(range(256)) * 12_000
        session.user("big", attachments=[{"data": data, "name": "big.bin"}])
        with session.messages()[0].attachments[0].open() as stream:
            pieces = []
            while piece := stream.read(700_001):
                pieces.append(piece)
        assert len(pieces) > 3
        assert b"".join(pieces) == data
