"""Redaction: content goes for good, and everything around it still holds."""

from __future__ import annotations

from pathlib import Path

import pytest

import takeback
from takeback import Busy, Conflict, Custom, Invalid, NotFound, Session, Store

from .base import Contract, said

SECRET = "the secret is 4711-canary"


def _asked(session: Session, *calls: tuple[str, str]) -> str:
    """Let the model ask for tools, each with the id of the call and what to look at; return the id of its message."""
    parts = [{"type": "tool_use", "id": each, "name": "look", "input": {"at": text}} for each, text in calls]
    session.append({"role": "assistant", "content": [{"type": "text", "text": "I will look"}, *parts]})
    return session.messages(limit=1)[0].id


def _calling(session: Session, call_id: str, text: str) -> str:
    """Let the model ask for a tool, run it, and answer; return the id of the message that asked."""
    asked = _asked(session, (call_id, text))
    session.tool_result(call_id, f"found {text}")
    return asked


class Redactions(Contract):
    """What ``session.redact`` erases and what it leaves."""

    @pytest.mark.feature("F12", "F5")
    def test_nothing_changes_in_a_dry_run(self, session: Session) -> None:
        session.user(SECRET, id="mine")
        found = session.redact("mine")
        assert [(each.id, each.seq, each.kind, each.role) for each in found.entries] == [("mine", 1, "message", "user")]
        assert (found.applied, found.calls, found.forks, found.bytes > len(SECRET)) == (False, (), (), True)
        assert "would be erased from 1 entry" in repr(found)
        assert said(session) == [SECRET]
        assert session.title == SECRET

    @pytest.mark.feature("F12", "F5")
    def test_content_goes_and_its_place_stays(self, store: Store, session: Session) -> None:
        first = session.user(SECRET, id="mine", attachments=[SECRET.encode()], metadata={"why": SECRET})
        session.user("second")
        before = session.stats()
        done = session.redact("mine", dry_run=False)
        assert (done.applied, len(done.entries)) == (True, 1)
        gone, kept = session.messages()
        assert (gone.id, gone.seq, gone.role, gone.text, gone.status) == ("mine", 1, "redacted", "", "redacted")
        assert (gone.created_at, gone.raw, gone.attachments, kept.text) == (first.created_at, None, (), "second")
        assert (session.stats(), session.title) == (before, "second")
        assert [entry.redacted for entry in session.entries()] == [True, False]
        assert store.stats().blobs == 0
        assert session.redact("mine", dry_run=False).entries == (), "nothing is left to erase"
        assert store.operations(limit=1)[0].kind == "redact"
        assert SECRET not in repr([*store.operations()])

    @pytest.mark.feature("F12", "F3")
    def test_a_call_goes_as_a_whole_on_every_branch(self, session: Session) -> None:
        session.user("start", id="start")
        asked = _calling(session, "one", SECRET)
        session.user("again")
        _calling(session, "one", "something else")
        session.rewind(session.messages()[1])
        session.tool_result("one", f"on another branch {SECRET}")
        for wanted in (asked, session.messages()[-1].id):
            found = session.redact(wanted)
            assert found.calls == ("one",)
        assert len(session.redact(session.messages()[-1].id).entries) == 3, "not the later call of the same id"
        session.switch("main")
        result = session.messages()[2].id
        done = session.redact(result, dry_run=False)
        assert len(done.entries) == 3
        assert SECRET not in repr([message.to_dict() for message in session.messages()])
        assert [message.role for message in session.messages()[:3]] == ["user", "redacted", "redacted"]
        for provider in ("anthropic", "openai-chat", "openai-responses", "gemini"):
            context = session.context(provider)
            assert SECRET not in repr(context.request())
            assert any("erased" in each for each in map(str, context.repairs)), provider
            assert "something else" in repr(context.request())

    @pytest.mark.feature("F12")
    def test_starts_and_approvals_go_with_their_call(self, session: Session) -> None:
        session.user("start")
        _asked(session, ("a", SECRET), ("b", "nothing"))
        session.ask_approval("a", SECRET)
        session.answer_approval("a", True, note=SECRET)
        with session.tool(session.pending_calls()[0]) as running:
            running.result(SECRET)
        with pytest.raises(Conflict, match="still open"):
            session.redact(session.messages()[1].id, dry_run=False)
        session.tool_result("b", "fine")
        done = session.redact(session.messages()[-1].id, dry_run=False)
        assert done.calls == ("a", "b")
        assert SECRET.encode() not in b"".join(entry.body or b"" for entry in session.entries())
        assert session.pending_calls() == []
        assert [(call.id, call.status) for call in session.tool_calls()] == [("a", "unknown"), ("b", "unknown")]

    @pytest.mark.feature("F12")
    def test_forks_that_read_it_are_named(self, session: Session) -> None:
        session.user(SECRET, id="mine")
        session.user("second")
        fork = session.fork(as_session=True, name="other")
        fork.user("of the fork", id="of the fork")
        session.fork(1, as_session=True, name="early")
        with pytest.raises(Invalid, match="redact it there"):
            fork.redact("mine")
        found = session.redact("mine", dry_run=False)
        assert {(each.id, each.name) for each in found.forks} >= {(fork.id, "other")}
        assert len(found.forks) == 2
        assert said(fork) == ["", "second", "of the fork"]
        assert fork.refresh().title == "second"
        assert fork.redact("of the fork", dry_run=False).forks == ()

    @pytest.mark.feature("F12")
    def test_results_of_forks_go_with_the_call_they_read(self, store: Store, session: Session) -> None:
        session.user("start")
        asked = _asked(session, ("one", SECRET))
        fork = session.fork(as_session=True, name="other")
        fork.tool_result("one", f"in the fork {SECRET}")
        below = fork.fork(2, as_session=True, name="below")
        below.tool_result("one", f"below {SECRET}")
        session.tool_result("one", "in the original")
        early = session.fork(1, as_session=True, name="early")
        _calling(early, "one", "a call of its own")
        done = session.redact(asked, dry_run=False)
        assert (len(done.entries), done.calls) == (4, ("one",))
        assert {each.name for each in done.forks} == {"other", "below"}
        for each in (session, fork, below):
            assert said(each) == ["start", "", ""]
        assert "a call of its own" in said(early)[-1]
        assert not (report := store.verify()), str(report)

    @pytest.mark.feature("F12")
    def test_a_fork_redacts_its_own_part_of_a_call(self, session: Session) -> None:
        session.user("start")
        _asked(session, ("one", "something"))
        fork = session.fork(as_session=True, name="other")
        fork.tool_result("one", f"in the fork {SECRET}")
        session.tool_result("one", "in the original")
        before = said(session)
        done = fork.redact(fork.messages()[-1].id, dry_run=False)
        assert (len(done.entries), done.calls, done.forks) == (1, ("one",), ())
        assert said(session) == before
        assert [message.role for message in fork.messages()] == ["user", "assistant", "redacted"]
        for provider in ("anthropic", "openai-chat", "openai-responses", "gemini"):
            context = fork.context(provider)
            assert SECRET not in repr(context.request())
            assert any("erased" in each for each in map(str, context.repairs)), provider

    @pytest.mark.feature("F12", "F5")
    def test_a_fork_redacts_what_was_kept_of_a_purged_session(self, store: Store, session: Session) -> None:
        session.user(SECRET, id="first")
        session.user(f"again {SECRET}", id="second")
        early = session.fork(1, as_session=True, name="early")
        early.user("of the early one")
        late = session.fork(as_session=True, name="late")
        middle = late.fork(as_session=True, name="middle")
        with pytest.raises(Invalid, match="redact it there"):
            middle.redact("second")
        store.purge_session(session)
        with pytest.raises(NotFound):
            early.redact("second")
        done = middle.redact("second", dry_run=False)
        assert [each.name for each in done.forks] == ["late"]
        assert (said(late), said(middle)) == ([SECRET, ""], [SECRET, ""])
        done = early.redact("first", dry_run=False)
        assert {each.name for each in done.forks} == {"late", "middle"}
        assert (said(early), said(late)) == (["", "of the early one"], ["", ""])
        assert not (report := store.verify()), str(report)
        assert SECRET not in repr([each.title for each in store.list_sessions()])

    @pytest.mark.feature("F12", "F7")
    def test_forks_lose_a_title_whose_message_they_do_not_read(self, store: Store, session: Session) -> None:
        (line,) = session.write(Custom("tool.line", {"said": "nothing"})).entries
        session.user(SECRET, id="mine")
        before = session.fork(line.seq, as_session=True, name="before")
        first = session.fork(0, as_session=True, name="first")
        below = first.fork(0, as_session=True, name="below")
        renamed = session.fork(line.seq, as_session=True, name="renamed")
        renamed.rename("other")
        below.user("of its own")
        trashed = session.fork(line.seq, as_session=True, name="trashed")
        store.delete_session(trashed)
        assert session.redact("mine", dry_run=False).forks == (), "none of them reads it"
        store.restore_session(trashed)
        for each in (session, before, first, trashed):
            assert each.refresh().title == "redacted"
        assert below.refresh().title == "of its own"
        assert renamed.refresh().title == "other"
        renamed.undo()
        assert SECRET not in (renamed.refresh().title or "")
        assert SECRET not in repr([*store.operations()])
        assert not (report := store.verify()), str(report)

    @pytest.mark.feature("F12", "A2")
    def test_a_key_tells_nothing_about_what_was_erased(self, session: Session) -> None:
        message = {"role": "user", "content": "the number is 4711"}
        first = session.write(message, Custom("tool.line", 1), idempotency_key="first")
        kept = session.write({"role": "user", "content": "kept"}, idempotency_key="kept")
        guess = {"role": "user", "content": "the number is 4712"}
        with pytest.raises(Conflict):
            session.write(guess, Custom("tool.line", 1), idempotency_key="first")
        session.redact(session.messages()[0].id, dry_run=False)
        for each in (guess, message):
            again = session.write(each, Custom("tool.line", 1), idempotency_key="first")
            assert [entry.id for entry in again.entries] == [entry.id for entry in first.entries]
        with pytest.raises(Conflict):
            session.write(guess, idempotency_key="kept")
        again = session.write({"role": "user", "content": "kept"}, idempotency_key="kept")
        assert [entry.id for entry in again.entries] == [entry.id for entry in kept.entries]
        assert said(session) == ["", "kept"]

    @pytest.mark.feature("F12", "B1")
    def test_what_was_spent_on_it_still_counts(self, store: Store, session: Session) -> None:
        session.user("start")
        usage = {"input_tokens": 5000, "output_tokens": 7000, "cost": 1.5}
        session.assistant(SECRET, id="mine", usage=usage, model="a-model")
        session.assistant("kept", usage=usage, model="a-model")
        asked = _asked(session, ("one", SECRET), ("two", "nothing"))
        session.tool_result("one", SECRET, success=False)
        session.tool_result("two", "fine")
        before = {by: store.spending(by) for by in ("model", "day", "agent", "tool")}
        session.redact("mine", asked, dry_run=False)
        assert [store.spending(by) for by in ("day", "agent")] == [before["day"], before["agent"]]
        (old,) = before["tool"]
        (new,) = store.spending("tool")
        assert (old.key, new.key) == ("look", "")
        assert (new.tool_calls, new.tool_failures) == (old.tool_calls, old.tool_failures) == (2, 1)
        found = {each.key: each.usage for each in store.spending("model")}
        assert found[""] == found["a-model"]
        assert found[""].input_tokens == 5000

    @pytest.mark.feature("F12", "F7")
    def test_it_cannot_be_undone(self, store: Store, session: Session) -> None:
        session.user(SECRET, id="mine")
        session.pin()
        session.redact("mine", dry_run=False)
        done = store.operations(limit=1)[0]
        with pytest.raises(Conflict, match="cannot be undone"):
            store.undo(done)
        session.undo()
        assert not session.refresh().pinned, "the operation before it still can"
        session.redo()
        assert session.refresh().pinned
        assert said(session) == [""]

    @pytest.mark.feature("F12", "C5")
    def test_what_cannot_be_redacted_says_why(self, tmp_path: Path, store: Store, session: Session) -> None:
        session.set_tasks([SECRET])
        session.user("hello", id="mine")
        tasks, *_ = session.entries()
        with pytest.raises(Invalid, match="anew"):
            session.redact(tasks.id)
        session.compact(session.message("mine"), SECRET)
        with pytest.raises(Invalid, match=r"uncompact\(\).* purge"):
            session.redact(next(each.id for each in session.entries() if each.kind == "compaction"))
        session.uncompact()
        with pytest.raises(NotFound):
            session.redact("nosuch")
        with pytest.raises(NotFound):
            store.create_session().redact("mine")
        with pytest.raises(Invalid):
            session.redact()
        with pytest.raises(NotFound):
            session.redact("mine", "nosuch", dry_run=False)
        assert said(session) == ["hello"], "all or nothing"
        stream = session.stream()
        with pytest.raises(Conflict, match="finish"):
            session.redact("mine", dry_run=False)
        stream.write("x")
        stream.finish()
        if store.capabilities.many_processes:
            with self.open(tmp_path) as other, other.session(session.name), pytest.raises(Busy):
                session.redact("mine", dry_run=False)

    @pytest.mark.feature("F12")
    def test_custom_entries_and_what_they_need_go(self, store: Store, session: Session) -> None:
        content = store.put_content(SECRET.encode())
        session.write(Custom("tool.line", {"said": SECRET}, id="line", contents=[content]))
        done = session.redact("line", dry_run=False)
        assert [each.kind for each in done.entries] == ["custom:tool.line"]
        assert session.custom("line").redacted
        assert store.stats().blobs == 0

    @pytest.mark.feature("F12", "F9", "F5")
    def test_copies_and_exports_stay_sound(self, tmp_path: Path, store: Store, session: Session) -> None:
        session.user(SECRET, id="mine")
        asked = _calling(session, "one", SECRET)
        session.user("x" * 300_000, id="large")
        session.redact("mine", asked, "large", dry_run=False)
        store.export(session, tmp_path / "one.jsonl")
        assert SECRET not in (tmp_path / "one.jsonl").read_text()
        with takeback.open(":memory:") as other:
            other.load(tmp_path / "one.jsonl")
            assert not (report := other.verify()), str(report)
            assert [message.role for message in other.get_session(session.id).messages()] == ["redacted"] * 4
            assert other.get_session(session.id).messages()[0].id == "mine"
        for form in ("markdown", "html"):
            store.export(session, tmp_path / f"one.{form}", format=form)
            assert "redacted" in (tmp_path / f"one.{form}").read_text()
