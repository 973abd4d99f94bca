"""The contract: how a session ends and resumes, the changes of status, and what a finished one refuses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from takeback import Conflict, Invalid, Session, Store

from ..clock import ManualClock
from .base import Contract, die, said
from .live import ASKED, DAY, ENDINGS, MESSAGES, MOVES


class Statuses(Contract):
    """The status says how the last run really ended, whoever reads it."""

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
