"""The contract: checkpoints, previews, forks into sessions, and the operations log."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from takeback import Conflict, Invalid, NotFound, Session, Store

from .base import Contract, said


class Points(Contract):
    """Naming points, and going back to them."""

    @pytest.mark.feature("B4", "E4")
    def test_a_checkpoint_names_a_point(self, session: Session) -> None:
        session.user("a")
        session.state.set("k", 1)
        made = session.checkpoint("one", description="why")
        session.user("b")
        found = session.get_checkpoint("one")
        assert found == made == session.get_checkpoint(made.id)
        assert (made.name, made.description, made.type, made.session_id) == ("one", "why", "manual", session.id)
        assert (made.head.seq, made.state_version, made.stats.messages, len(made.checksum)) == (2, 2, 1, 64)
        assert made.size_bytes < 1000
        session.checkpoint(type="automatic")
        assert [c.type for c in session.checkpoints()] == ["manual", "automatic"]
        again = session.checkpoint("one")
        assert session.get_checkpoint("one") == again != made
        assert len(session.checkpoints()) == 3, "nothing is overwritten"
        with pytest.raises(Invalid):
            session.checkpoint("x", type="nosuch")
        with pytest.raises(NotFound):
            session.get_checkpoint("nosuch")
        assert session.checkpoint("two", idempotency_key="k") == session.checkpoint("two", idempotency_key="k")

    @pytest.mark.trial("T10")
    @pytest.mark.feature("D10")
    def test_checkpoints_have_pages(self, store: Store, session: Session) -> None:
        made = [session.checkpoint(f"{number}") for number in range(5)]
        agent = [store.checkpoint_agent("main", f"{number}") for number in range(3)]
        first = session.checkpoints(limit=2)
        second = session.checkpoints(limit=2, cursor=first.cursor)
        third = session.checkpoints(limit=2, cursor=second.cursor)
        assert ([*first, *second, *third], third.cursor) == (made, None)
        last = session.checkpoints(limit=3, newest=True)
        assert last == made[:1:-1]
        assert session.checkpoints(limit=3, newest=True, cursor=last.cursor) == made[1::-1]
        assert session.checkpoints() == made
        assert session.checkpoints().cursor is None
        for of, all_ in ((session, made), (session.id, made), ("main", agent), (store.get_agent("main"), agent)):
            page = store.list_checkpoints(of, limit=2, newest=True)
            assert page == all_[:-3:-1]
            assert store.list_checkpoints(of, limit=9, newest=True, cursor=page.cursor) == all_[-3::-1]
        with pytest.raises(Invalid):
            session.checkpoints(limit=0)
        with pytest.raises(Invalid):
            store.list_checkpoints("main", cursor="nosuch")

    @pytest.mark.feature("B5", "F1")
    def test_a_checkpoint_is_reached_from_any_branch(self, session: Session) -> None:
        for text in "abc":
            session.user(text)
            session.checkpoint(text)
        session.rewind("a")
        session.user("x")
        session.checkpoint("x")
        session.rewind("c")
        assert said(session) == ["a", "b", "c"]
        session.rewind(session.get_checkpoint("x"))
        assert said(session) == ["a", "x"]
        session.undo()
        assert said(session) == ["a", "b", "c"]

    @pytest.mark.feature("B5", "F1")
    def test_a_preview_says_what_leaves_and_apply_does_it(self, session: Session) -> None:
        session.user("a")
        session.checkpoint("here")
        session.user("do this")
        session.assistant("done")
        session.user("and that")
        preview = session.preview_rewind("here")
        assert (preview.turns, preview.prompt, preview.is_empty) == (2, "do this", False)
        assert "removes 3 messages in 2 turns" in str(preview)
        assert said(session)[-1] == "and that", "a preview changes nothing"
        preview.apply()
        assert said(session) == ["a"]
        assert session.preview_rewind(1).is_empty
        session.undo()
        assert len(said(session)) == 4

    @pytest.mark.feature("B5")
    def test_a_preview_that_is_out_of_date_is_refused(self, session: Session) -> None:
        session.user("a")
        session.user("b")
        preview = session.preview_rewind(1)
        session.user("c")
        with pytest.raises(Conflict):
            preview.apply()
        assert said(session) == ["a", "b", "c"]

    @pytest.mark.feature("F2")
    def test_a_fork_into_a_session_copies_nothing_and_goes_its_own_way(self, store: Store, session: Session) -> None:
        for text in "abc":
            session.user(text)
        session.set_tasks(["t"])
        before = store.stats().entries
        fork = session.fork(2, as_session=True, name="fork")
        assert store.stats().entries == before
        fork.user("x")
        session.user("d")
        assert (said(fork), said(session)) == (["a", "b", "x"], ["a", "b", "c", "d"])
        assert (fork.message_count, fork.task_count, fork.agent_id) == (3, 0, "main")
        fork.rewind(1)
        fork.user("y")
        assert said(fork) == ["a", "y"]
        assert [b.name for b in fork.branches()] == ["main", "main-2"]
        fork.switch("main")
        assert said(fork) == ["a", "b", "x"]
        fork.clear()
        assert said(fork) == []
        fork.undo()
        assert session.fork(as_session=True).task_count == 1

    @pytest.mark.feature("F7")
    def test_a_fork_can_be_undone_and_redone(self, store: Store, session: Session) -> None:
        session.user("a")
        session.fork(name="side")
        session.undo()
        assert [b.name for b in session.branches()] == ["main"]
        with pytest.raises(NotFound):
            session.switch("side")
        session.redo()
        session.switch("side")
        fork = session.fork(as_session=True)
        session.undo()
        assert store.get_session(fork.id).deleted
        session.redo()
        assert not store.get_session(fork.id).deleted


class Operations(Contract):
    """The operations log: per session, per handle and by id."""

    @pytest.mark.feature("F7")
    @pytest.mark.parametrize(
        ("do", "look"),
        [
            (lambda s: s.rename("new"), lambda s: s.title),
            (lambda s: s.tag("x", "y"), lambda s: s.tags),
            (lambda s: s.untag("old"), lambda s: s.tags),
            (lambda s: s.archive(), lambda s: s.archived),
            (lambda s: s.pin(), lambda s: s.pinned),
            (lambda s: s.set_metadata({"b": 2}), lambda s: s.metadata),
            (lambda s: s.rewind(1), said),
            (lambda s: s.clear(), said),
            (lambda s: s.switch("side"), said),
            (lambda s: s.fork(name="f"), lambda s: [b.name for b in s.branches()]),
        ],
        ids=["rename", "tag", "untag", "archive", "pin", "metadata", "rewind", "clear", "switch", "fork"],
    )
    def test_every_operation_can_be_undone_and_redone(
        self, store: Store, do: Callable[[Session], object], look: Callable[[Session], object]
    ) -> None:
        session = store.create_session("s", title="old", tags=["old"], metadata={"a": 1})
        for text in "abc":
            session.user(text)
        session.fork(2, name="side")

        def now() -> object:
            return look(store.get_session(session.id))

        before = now()
        do(session)
        after = now()
        assert after != before
        for _ in range(3):
            session.undo()
            assert now() == before
            session.redo()
            assert now() == after
        store.undo()
        assert now() == before
        store.redo()
        assert now() == after

    @pytest.mark.feature("F7")
    def test_the_opposites_are_operations_too(self, session: Session) -> None:
        session.pin()
        session.archive()
        session.unpin()
        session.unarchive()
        assert (session.pinned, session.archived) == (False, False)
        assert [op.kind for op in session.operations()] == ["unarchive", "unpin", "archive", "pin"]

    @pytest.mark.feature("F7")
    def test_an_old_operation_is_undone_by_id_unless_a_later_one_touched_the_same(self, session: Session) -> None:
        for text in "abc":
            session.user(text)
        renamed = session.rename("one")
        tagged = session.tag("t")
        session.rewind(1)
        session.undo(tagged)
        assert (session.tags, session.title, said(session)) == ((), "one", ["a"])
        again = session.rename("two")
        with pytest.raises(Conflict) as later:
            session.undo(renamed)
        assert later.value.found == again.id
        session.undo(again.id)
        session.undo(renamed)
        assert session.title == "a"
        with pytest.raises(Conflict):
            session.undo(renamed)
        with pytest.raises(NotFound):
            session.undo("nosuch")

    @pytest.mark.feature("F7")
    def test_a_handle_undoes_what_was_done_through_it(self, store: Store, session: Session) -> None:
        other = store.scoped(store.scope)
        session.user("a")
        theirs = other.get_session(session.id)
        theirs.rename("theirs")
        session.tag("mine")
        other.undo()
        assert (session.refresh().title, session.tags) == ("a", ("mine",))
        store.undo()
        assert session.refresh().tags == ()
        with pytest.raises(Conflict):
            other.undo()
        other.redo()
        assert session.refresh().title == "theirs"
        listed = store.operations(limit=3)
        assert [op.kind for op in listed] == ["redo", "undo", "undo"]
        assert [op.kind for op in store.operations(limit=3, cursor=listed.cursor)] == ["tag", "rename"]

    @pytest.mark.feature("F7")
    def test_an_undo_names_what_it_leaves_off_the_path(self, session: Session) -> None:
        for text in "abc":
            session.user(text)
        session.rewind(1)
        session.user("x")
        assert "from branch main-2 to main" in session.undo().summary
        assert said(session) == ["a", "b", "c"]
        session.redo()
        assert said(session) == ["a", "x"]

    @pytest.mark.feature("A2", "F7")
    def test_a_retry_of_an_operation_is_one_operation(self, session: Session) -> None:
        session.user("a")
        session.user("b")
        first = session.rewind(1, idempotency_key="k")
        session.user("c")
        assert session.rewind(1, idempotency_key="k").id == first.id
        assert said(session) == ["a", "c"]
        with pytest.raises(Conflict):
            session.rewind(0, idempotency_key="k")
        assert session.rename("x", idempotency_key="r").id == session.rename("x", idempotency_key="r").id
        assert session.undo(idempotency_key="u").id == session.undo(idempotency_key="u").id
        assert session.title == "a"
        assert session.redo(idempotency_key="v").id == session.redo(idempotency_key="v").id
        assert session.fork(1, idempotency_key="f") == session.fork(1, idempotency_key="f")
        made = [session.fork(1, as_session=True, idempotency_key="s").id for _ in range(2)]
        assert made[0] == made[1]
        popped = [session.pop(idempotency_key="p") for _ in range(2)]
        assert [None if m is None else m.text for m in popped] == ["c", "c"]
        assert said(session) == ["a"]
        revision = session.revision
        for _ in range(2):
            session.replace_tail(1, [{"role": "user", "content": "A"}], revision, idempotency_key="t")
        assert said(session) == ["A"]

    @pytest.mark.feature("F7")
    def test_store_undo_takes_back_pops_and_replacements(self, store: Store, session: Session) -> None:
        session.user("a")
        session.pop()
        store.undo()
        assert said(session.refresh()) == ["a"]
        session.replace_tail(1, [{"role": "user", "content": "b"}], session.revision)
        store.undo()
        assert said(session.refresh()) == ["a"]
