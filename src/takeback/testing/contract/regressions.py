"""The contract: bugs that hostile reviews found, kept from coming back."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback import Conflict, Invalid, NotFound, Session, Store

from .base import Contract, said


def _call(n: int) -> dict[str, Any]:
    return {"functionCall": {"name": "f", "args": {"n": n}}}


def _result(n: int) -> dict[str, Any]:
    return {"functionResponse": {"name": "f", "response": {"r": n}}}


class Regressions(Contract):
    """Each test stands for a bug that was found and fixed."""

    @pytest.mark.feature("E1")
    @pytest.mark.promise("R10")
    def test_versions_of_a_forks_state_go_on(self, store: Store, session: Session) -> None:
        for n in range(4):
            session.state.set("k", n)
        fork = session.fork(as_session=True)
        version = fork.state.version()
        other = store.get_session(fork.id)
        for n in range(4):
            other.state.set("k", f"other {n}")
        with pytest.raises(Conflict):
            fork.state.set("k", "mine", expected_version=version)
        assert fork.state.at(version) == {"k": 3}

    @pytest.mark.feature("C2")
    def test_a_call_without_arguments_or_with_foreign_fields_breaks_nothing(self, session: Session) -> None:
        session.append({"role": "assistant", "tool_calls": [{"id": "c1", "name": "ls", "status": "completed"}]})
        assert [(c.status, c.arguments) for c in session.pending_calls()] == [("pending", None)]
        session.context("anthropic")
        for wrong in (5, [5], [{"id": "x"}], [{"id": "x", "name": 5}], [{"id": "", "name": ""}]):
            with pytest.raises(Invalid):
                session.append({"role": "assistant", "tool_calls": wrong})
        session.append({"role": "assistant", "tool_calls": [{"id": "a\tb", "name": "ls"}]})
        session.tool_result("a\tb", "ok")

    @pytest.mark.feature("E7")
    def test_a_session_with_many_branches_is_purged_quickly(self, store: Store, session: Session) -> None:
        turns = 1100 if store.capabilities.groups else 200  # Python's own limit of depth; a server is slower to fill
        for n in range(turns):
            session.user(str(n))
            session.pop()
            session.user(f"again {n}")
        gone = store.purge_session(session)
        assert gone.entries == 2 * turns
        assert gone.kept_entries == 0

    @pytest.mark.feature("E7", "F7")
    def test_undo_goes_around_what_was_purged(self, store: Store, session: Session) -> None:
        first, second = store.session("a", agent="bob"), store.session("b", agent="bob")
        deleted = store.delete_agent("bob")
        store.purge_session(first.id)
        store.undo(deleted)
        assert [s.id for s in store.get_agent("bob").sessions()] == [second.id]
        session.rename("x")
        fork = session.fork(as_session=True)
        store.purge_session(fork)
        session.undo()
        session.undo()
        assert session.title is None

    @pytest.mark.feature("A2", "E3")
    def test_a_retry_with_an_attachment_is_the_same_message(self, session: Session) -> None:
        first = session.user("x", attachments=[b"data"], idempotency_key="k")
        assert session.user("x", attachments=[b"data"], idempotency_key="k").seq == first.seq
        with pytest.raises(Conflict):
            session.user("x", attachments=[b"other"], idempotency_key="k")

    @pytest.mark.feature("A2", "C2")
    def test_a_retry_of_a_tool_result_is_the_same_message(self, session: Session) -> None:
        session.append({"role": "model", "parts": [_call(1)]})
        for _ in range(2):
            session.append({"role": "user", "parts": [_result(1)]}, idempotency_key="k")
        assert session.head.seq == 2

    @pytest.mark.feature("C2")
    def test_parallel_calls_of_one_function_get_their_own_results(self, session: Session) -> None:
        session.append({"role": "model", "parts": [_call(1), _call(2)]})
        session.append({"role": "user", "parts": [_result(1), _result(2)]})
        assert [c.result for c in session.tool_calls()] == [{"r": 1}, {"r": 2}]
        assert session.pending_calls() == []

    @pytest.mark.feature("C2")
    def test_a_replaced_tail_is_tied_to_the_calls_that_stay(self, store: Store, session: Session) -> None:
        session.user("q")
        session.append({"role": "model", "parts": [_call(1)]})
        session.replace_tail(2, [{"role": "user", "parts": [_result(1)]}], session.revision)
        assert session.tool_calls() == []
        assert not store.verify()

    @pytest.mark.feature("B5")
    def test_a_preview_of_another_branch_says_what_leaves_and_comes(self, session: Session) -> None:
        session.user("1")
        session.user("2")
        session.checkpoint("c")
        session.pop()
        session.user("two")
        preview = session.preview_rewind("c")
        assert (preview.is_empty, preview.messages, preview.turns, preview.prompt) == (False, 1, 1, "two")
        assert "1 message from another branch" in str(preview)
        preview.apply()
        assert said(session) == ["1", "2"]
        assert session.preview_rewind("c").is_empty

    @pytest.mark.feature("E3")
    def test_an_attachment_that_was_purged_is_not_found_and_never_anothers(
        self, store: Store, session: Session
    ) -> None:
        message = session.user("x", attachments=[os.urandom(3 << 20)])
        stream = message.attachments[0].open()
        stream.read(1 << 20)
        store.purge_session(session)
        store.session("b").user("y", attachments=[os.urandom(4 << 20)])
        with pytest.raises(NotFound):
            stream.read()

    @pytest.mark.feature("D10")
    def test_a_stream_of_messages_that_are_purged_is_not_found(self, store: Store, session: Session) -> None:
        session.append(*({"role": "user", "content": str(n)} for n in range(900)))
        stream = session.iter_messages()
        next(stream)
        store.purge_session(session)
        with pytest.raises(NotFound):
            list(stream)

    @pytest.mark.feature("A2")
    def test_a_compaction_of_another_range_is_another_request(self, session: Session) -> None:
        for text in "abcd":
            session.user(text)
        assert session.compact(2, "sum", idempotency_key="k").upto == 2
        with pytest.raises(Conflict):
            session.compact(4, "sum", idempotency_key="k")

    @pytest.mark.feature("A2")
    def test_a_key_counts_on_the_path_of_a_fork_too(self, session: Session) -> None:
        session.user("1", idempotency_key="k")
        fork = session.fork(as_session=True)
        fork.user("1", idempotency_key="k")
        assert said(fork) == ["1"]

    @pytest.mark.feature("A2")
    def test_a_retried_creation_is_the_stored_one(self, store: Store) -> None:
        first = store.create_session(idempotency_key="k")
        assert store.create_session(idempotency_key="k").run_id == first.run_id
        store.purge_session(first)
        with pytest.raises(NotFound):
            store.create_session(idempotency_key="k")

    @pytest.mark.feature("C1")
    def test_a_directory_made_again_keeps_the_session_of_its_path(self, store: Store, tmp_path: Path) -> None:
        one, two = tmp_path / "one", tmp_path / "two"
        one.mkdir()
        session = store.directory_session(one)
        session.user("old")
        one.rename(two)
        one.mkdir()
        store.directory_session(one).user("new")
        assert said(store.directory_session(one)) == ["old", "new"]
        assert said(store.directory_session(two)) == []
        one.rename(tmp_path / "three")
        moved = store.directory_session(tmp_path / "three")
        if moved.id == session.id:
            moved.rewind(1)
            moved.undo()
            assert said(moved) == ["old", "new"]

    @pytest.mark.feature("F10")
    def test_odd_refs_get_an_answer(self, store: Store, session: Session) -> None:
        for text in "abc":
            session.user(text)
        session.rewind(1)
        assert store.resolve("work/main:3").seq == 3
        for wrong in ("@-²", "@-" + "9" * 500, "@-"):
            with pytest.raises(Invalid):
                store.resolve(wrong)
        with pytest.raises(NotFound):
            store.resolve(":" * 1500)

    @pytest.mark.feature("A1")
    def test_a_title_that_was_taken_away_is_made_again(self, store: Store, session: Session) -> None:
        session.user("first")
        store.get_session(session.id).rename(None)
        session.user("second")
        assert session.refresh().title == "second"

    @pytest.mark.feature("E3")
    def test_a_message_is_copied_with_its_attachments_into_another_scope(self, store: Store, session: Session) -> None:
        message = session.user("x", attachments=[b"data"])
        (copied,) = store.scoped("other").create_session().append(message)
        assert copied.attachments[0].read() == b"data"

    @pytest.mark.feature("C2")
    def test_a_large_result_names_its_tool(self, session: Session) -> None:
        with session.tool("bash") as run:
            run.result("x" * 200_000)
        assert session.messages()[0].tool_name == "bash"

    @pytest.mark.feature("C2")
    def test_an_answered_call_is_not_run_again(self, session: Session) -> None:
        session.append({"role": "assistant", "tool_calls": [{"id": "c", "name": "pay"}]})
        (call,) = session.pending_calls()
        with session.tool(call) as run:
            run.result("paid")
        with pytest.raises(Conflict):
            session.tool(call).__enter__()
        assert len(session.tool_calls()) == 1

    @pytest.mark.feature("C2")
    def test_an_interrupted_tool_leaves_its_call_open(self, store: Store, session: Session) -> None:
        with pytest.raises(KeyboardInterrupt), session.tool("slow"):
            raise KeyboardInterrupt
        with pytest.raises(Invalid), session.tool("odd") as run:
            run.result(object())
        assert [c.status for c in session.pending_calls()] == ["running", "running"]
        run = session.tool("trashed").__enter__()
        store.delete_session(session.id)
        error = ZeroDivisionError()
        run.__exit__(ZeroDivisionError, error, None)
        assert "trash" in error.__notes__[0]

    @pytest.mark.feature("C5")
    def test_bad_input_is_invalid_whatever_it_is(self, store: Store, session: Session, tmp_path: Path) -> None:
        class Broken:
            def read(self, size: int) -> bytes:
                raise RuntimeError("broken")

        closed = io.BytesIO(b"x")
        closed.close()
        calls: list[Any] = [
            lambda: session.user(None),
            lambda: session.user(123),
            lambda: session.user(b"x"),
            lambda: session.append([{"role": "user"}]),
            lambda: session.append("text"),
            lambda: session.set_tasks("abc"),
            lambda: session.set_tasks([{"nope": 1}]),  # type: ignore[list-item]
            lambda: session.user("x", attachments="path"),
            lambda: session.user("x", attachments=tmp_path),  # type: ignore[arg-type]
            lambda: session.user("x", attachments=[closed]),
            lambda: session.user("x", attachments=[Broken()]),  # type: ignore[list-item]
            lambda: session.user("x", attachments=["a\0b"]),
            lambda: session.user("x", attachments=[{"path": 5}]),
            lambda: session.user("x", attachments=[{"data": b"x", "name": 5}]),
            lambda: session.user("x", attachments=[{"data": "\ud800"}]),
            lambda: session.user("x", attachments=[{"data": b"x", "type": []}]),
            lambda: session.user("x", id="i" * 5000),
            lambda: session.replace_tail(1, None, 0),  # type: ignore[arg-type]
            lambda: session.record_file(None, "created"),  # type: ignore[arg-type]
            lambda: session.state.get([]),  # type: ignore[arg-type]
            session.tag,
            lambda: store.create_session(tags="urgent"),
            lambda: store.create_agent("a", capabilities=5),  # type: ignore[arg-type]
            lambda: store.list_sessions(archived="yes"),  # type: ignore[arg-type]
            lambda: store.list_sessions(trash=2),  # type: ignore[arg-type]
            lambda: store.list_sessions(kinds=5),  # type: ignore[arg-type]
            lambda: store.list_sessions(status="finished"),
        ]
        for number, call in enumerate(calls):
            with pytest.raises(Invalid):
                pytest.fail(f"call {number} gave {call()!r}")
        assert session.head.seq == 0
        assert store.stats().blobs == 0

    @pytest.mark.feature("F7")
    def test_an_operation_that_changes_nothing_is_not_in_the_log(self, session: Session) -> None:
        session.user("a")
        session.rename("t")
        session.archive()
        session.archive()
        session.rewind(1)
        session.switch("main")
        session.rename("t")
        assert [op.kind for op in session.operations()] == ["archive", "rename"]
        session.undo()
        assert not session.archived

    @pytest.mark.feature("E7")
    def test_names_and_keys_delete_too(self, store: Store, session: Session) -> None:
        session.archive()
        assert store.delete_session("work") is not None
        assert [s.id for s in store.list_sessions(trash=True)] == [session.id]
        store.restore_session(session.id)
        assert store.purge_session(session.key).sessions == (session.id,)

    @pytest.mark.feature("A2")
    def test_an_id_that_many_sessions_use_is_found_on_the_path(self, store: Store) -> None:
        made = [store.create_session() for _ in range(40)]
        for n, session in enumerate(made):
            session.user(str(n), id="same")
        assert [s.message("same").text for s in made] == [str(n) for n in range(40)]
        with pytest.raises(Conflict):
            made[3].user("again", id="same")

    @pytest.mark.feature("E7")
    def test_a_restored_session_has_its_agent(self, store: Store) -> None:
        session = store.create_session(agent="bob")
        store.delete_agent("bob")
        store.restore_session(session.id)
        assert store.find_agent("bob") is not None

    @pytest.mark.feature("C2")
    def test_parts_said_by_an_assistant_announce_their_calls(self, session: Session) -> None:
        session.assistant(
            [{"type": "tool_use", "id": "t", "name": "ls", "input": {}}], model="m", usage={"input_tokens": 3}
        )
        message = session.messages()[0]
        assert (message.model, message.usage, len(session.pending_calls())) == ("m", takeback.Usage(3), 1)

    @pytest.mark.feature("A2")
    def test_a_compaction_goes_up_to_a_point_of_this_path(self, store: Store) -> None:
        """A message of another session used to be accepted as if it were its number."""
        session, other = store.create_session("a"), store.create_session("b")
        session.append(*({"role": "user", "content": text} for text in "abc"))
        foreign = other.append(*({"role": "user", "content": text} for text in "xy"))[1]
        with pytest.raises(NotFound):
            session.compact(foreign, "of another session")
        kept = session.checkpoint("early")
        session.fork(name="side")
        assert session.compact(kept, "on the path of both").upto == 3
        session.rewind(2)
        session.user("d")
        with pytest.raises(NotFound):
            session.compact(kept, "of another branch")

    @pytest.mark.feature("C2")
    def test_a_result_is_of_the_newest_call_of_its_id_whoever_announced_it(self, store: Store) -> None:
        """What a handle remembers of its own calls is valid only until somebody else appends."""

        def call(name: str) -> dict[str, Any]:
            function = {"name": name, "arguments": "{}"}
            return {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}

        result = {"role": "tool", "tool_call_id": "c1", "content": "done"}
        session = store.create_session("work")
        session.user("a title")
        other = store.get_session(session.id)
        session.append(call("first"), idempotency_key="k")
        assert session.append(result)[0].tool_name == "first"
        session.append(call("second"))
        session.user("in between")
        assert session.append(result)[0].tool_name == "second"
        session.append(call("third"))
        other.append(call("fourth"))
        assert session.append(result)[0].tool_name == "fourth"
        session.append(call("first"), idempotency_key="k")  # told again, not stored again
        assert session.append(result)[0].tool_name == "fourth"
        session.append(call("fifth"))
        session.rewind(2)
        assert session.append(result)[0].tool_name == "first"
        assert [message.tool_name for message in session.messages() if message.role == "tool"] == ["first"]
        assert not session.pending_calls()
        assert not store.verify()

    @pytest.mark.feature("B1")
    def test_a_handle_of_a_purged_session_never_stands_for_one_that_has_its_id_as_name(self, store: Store) -> None:
        gone = store.create_session("first")
        store.purge_session(gone)
        named = store.create_session(gone.id)
        named.user("mine")
        assert store.delete_session(gone) is None
        assert store.purge_session(gone) == takeback.Purged()
        assert not named.refresh().deleted
        assert said(named) == ["mine"]

    @pytest.mark.feature("B3")
    @pytest.mark.parametrize("point", [3.5, [], object()])
    def test_what_is_not_a_point_is_refused_by_every_call_that_takes_one(self, session: Session, point: Any) -> None:
        for call in (session.fork, session.rewind, session.preview_rewind, session.stats):
            with pytest.raises(Invalid):
                call(point)

    @pytest.mark.feature("F1")
    def test_a_bad_key_is_refused_before_anything_is_stored(self, store: Store, tmp_path: Path) -> None:
        with store.session("work", workspace=tmp_path) as session:
            session.user("begin")
            tmp_path.joinpath("a.txt").write_text("one")
            before = len([*session.entries()])
            with pytest.raises(Invalid):
                session.checkpoint("here", idempotency_key="")
            assert len([*session.entries()]) == before
