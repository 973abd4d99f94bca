"""The contract: branches, rewind, undo and redo."""

from __future__ import annotations

from typing import Any

import pytest

from takeback import Conflict, Invalid, NotFound, Session, Store, Usage

from .base import Contract, said


class Branches(Contract):
    """Branches, rewind, undo and redo."""

    @pytest.mark.feature("F2")
    def test_fork_writes_no_messages(self, store: Store, session: Session) -> None:
        session.append(*({"role": "user", "content": str(n)} for n in range(50)))
        before = store.stats().entries
        branch = session.fork(20, name="try")
        assert store.stats().entries == before
        assert (branch.name, branch.parent, branch.fork_seq, branch.head_seq) == ("try", "main", 20, 20)
        assert session.head.seq == 50
        session.switch("try")
        session.user("other")
        assert said(session) == [str(n) for n in range(20)] + ["other"]
        session.switch("main")
        assert said(session) == [str(n) for n in range(50)]

    @pytest.mark.feature("F2")
    def test_seq_and_totals_go_on_over_a_fork(self, session: Session) -> None:
        for n in range(4):
            session.user(str(n), usage=Usage(input_tokens=10, cost=0.1))
        session.rewind(2)
        added = session.user("x", usage=Usage(input_tokens=1))
        assert added.seq == 3
        assert (session.stats().usage.input_tokens, session.stats().usage.cost) == (21, 0.2)
        assert session.stats(at=1).usage.input_tokens == 10
        assert session.stats(at=0).messages == 0

    @pytest.mark.feature("F7")
    def test_rewind_detaches_and_the_next_append_opens_a_branch(self, session: Session) -> None:
        for text in "abcde":
            session.user(text)
        session.rewind(2)
        assert (said(session), session.head.attached, len(session.branches())) == (["a", "b"], False, 1)
        session.user("x")
        assert (said(session), session.head.attached, len(session.branches())) == (["a", "b", "x"], True, 2)

    @pytest.mark.feature("F7")
    def test_undo_and_redo_move_the_head_and_lose_nothing(self, session: Session) -> None:
        for text in "abc":
            session.user(text)
        session.rewind(1)
        session.user("x")
        session.undo()
        assert (said(session), session.head.attached) == (["a", "b", "c"], True)
        session.user("d")
        session.redo()
        assert said(session) == ["a", "x"]
        session.undo()
        assert said(session) == ["a", "b", "c", "d"]

    @pytest.mark.feature("F7")
    def test_undo_of_an_older_operation_is_a_conflict(self, session: Session) -> None:
        for text in "abc":
            session.user(text)
        first, second = session.rewind(2), session.rewind(1)
        with pytest.raises(Conflict):
            session.undo(first)
        session.undo(second)
        session.undo(first)
        assert said(session) == ["a", "b", "c"]
        with pytest.raises(Conflict):
            session.undo()

    @pytest.mark.feature("F7")
    def test_a_new_operation_clears_redo(self, session: Session) -> None:
        for text in "abc":
            session.user(text)
        session.rewind(1)
        session.undo()
        session.rewind(2)
        with pytest.raises(Conflict):
            session.redo()

    @pytest.mark.feature("C5")
    def test_points_that_do_not_exist_are_told(self, session: Session) -> None:
        session.user("a")
        for wrong in (2, 10**9, "nosuch"):
            with pytest.raises(NotFound):
                session.rewind(wrong)
        no_points: tuple[Any, ...] = (-1, 1.5, True, None)
        for nothing in no_points:
            with pytest.raises(Invalid):
                session.rewind(nothing)
        with pytest.raises(NotFound):
            session.switch("nosuch")
        session.fork(name="taken")
        with pytest.raises(Conflict):
            session.fork(name="taken")

    @pytest.mark.feature("C5", "F7")
    def test_a_message_of_another_session_is_no_point_of_this_one(self, store: Store, session: Session) -> None:
        for text in "abc":
            session.user(text)
        session.rewind(1)
        session.user("x")
        session.user("y")
        foreign = store.create_session().user("elsewhere")
        with pytest.raises(NotFound):
            session.rewind(foreign)
        with pytest.raises(NotFound):
            session.fork(foreign)
        session.rewind(session.messages()[1])
        assert said(session) == ["a", "x"]

    @pytest.mark.feature("F2")
    def test_another_branch_is_read_from_where_one_is(self, store: Store, session: Session) -> None:
        for text in "abc":
            session.user(text)
        here = session.head
        session.rewind(1)
        session.user("x")
        main = next(each for each in session.branches() if each.name == "main")
        assert [each.text for each in session.messages(at=main)] == ["a", "b", "c"]
        assert [each.text for each in session.messages(at=main, limit=1)] == ["c"]
        assert [each.text for each in session.iter_messages(at=here._replace(seq=2), after=1)] == ["b"]
        assert session.stats(main).messages == 3
        assert said(session) == ["a", "x"]
        assert session.diff(main).left == ("user: b", "user: c")
        with pytest.raises(NotFound):
            session.messages(at=store.create_session().head)
        with pytest.raises(Invalid):
            session.messages(at=here._replace(seq="x"))  # type: ignore[arg-type]
        session.rewind(main)
        assert said(session) == ["a", "b", "c"]

    @pytest.mark.feature("F11")
    def test_two_branches_are_compared_from_where_they_part(self, session: Session) -> None:
        session.user("Which way?")
        point = session.assistant("Two ways.", usage=Usage(100, 10))
        for way, tokens in (("lock", 900), ("queue", 1100)):
            session.switch(session.fork(point, name=way))
            session.assistant(f"A {way}.", usage=Usage(tokens, 5, cost=0.5))
        lock, queue = (each for each in session.branches() if each.name != "main")
        found = session.compare(lock, queue)
        assert found.parted == point.seq
        assert [each.text for each in found.left.messages] == ["A lock."]
        assert [each.text for each in found.right.messages] == ["A queue."]
        assert (found.left.stats.estimated_tokens, found.right.stats.estimated_tokens) == (905, 1105)
        assert found.right.stats.usage.cost == 0.5
        assert found.files == ()
        assert session.compare(lock) == found, "without a second point the head counts"
        assert not session.compare(queue, queue)
        back = session.compare(queue, point)
        assert (back.parted, len(back.left.messages), back.right.messages) == (point.seq, 1, ())

    @pytest.mark.feature("F2")
    def test_a_path_of_many_branches_reads_right(self, session: Session) -> None:
        session.user("r")
        for n in range(120):
            session.user(f"draft {n}")
            session.rewind(session.head.seq - 1)
            session.user(f"final {n}")
        assert said(session) == ["r"] + [f"final {n}" for n in range(120)]
        assert [m.text for m in session.messages(limit=2, before=50)] == ["final 46", "final 47"]
        assert session.stats(at=60).messages == 60
        session.rewind(5)
        assert said(session)[-1] == "final 3"
