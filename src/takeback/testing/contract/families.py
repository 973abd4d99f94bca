"""A session and its sub-agents go to the trash together, and come back together."""

from __future__ import annotations

import pytest

from takeback import Invalid, Session, Store

from .base import Contract, said


def _shown(store: Store) -> set[str]:
    return {each.id for each in store.iter_sessions()}


class Families(Contract):
    """What becomes of sub-agents when their parent is deleted, restored or purged."""

    @pytest.fixture
    def family(self, session: Session) -> list[Session]:
        """Return a session, its two sub-agents, and one below the first of them."""
        session.user("start")
        one, two = (session.spawn(f"task {number}", label=f"worker {number}").session for number in (1, 2))
        below = one.spawn("task below", agent="other").session
        for each in (one, two, below):
            each.user(f"work of {each.task}")
        return [session, one, two, below]

    @pytest.mark.trial("T61")
    @pytest.mark.feature("E7", "D4", "F7")
    def test_sub_agents_go_and_come_back_with_their_parent(self, store: Store, family: list[Session]) -> None:
        session, everybody, other = family[0], {each.id for each in family}, store.create_session("other")
        done = store.delete_session(session)
        assert done is not None
        assert "3 sub-agents with it" in done.summary
        assert _shown(store) == {other.id}
        assert {each.id for each in store.iter_sessions(trash=True)} == everybody
        store.undo()
        assert _shown(store) == everybody | {other.id}
        store.redo()
        assert _shown(store) == {other.id}
        back = store.restore_session(session.id)
        assert back is not None
        assert "3 sub-agents with it" in back.summary
        assert _shown(store) == everybody | {other.id}
        assert [said(store.get_session(each.id)) for each in family[1:]] == [
            [f"work of {each.task}"] for each in family[1:]
        ]
        store.undo()
        store.restore_session(session.id)
        assert _shown(store) == everybody | {other.id}, "as long as it was in the trash by an undo"

    @pytest.mark.trial("T61")
    @pytest.mark.feature("E7", "D4")
    def test_what_was_deleted_on_its_own_stays_in_the_trash(self, store: Store, family: list[Session]) -> None:
        session, one, two, below = family
        store.delete_session(two)
        store.delete_session(session)
        store.restore_session(session.id)
        assert _shown(store) == {session.id, one.id, below.id}, "it went before"
        store.delete_session(session)
        store.restore_session(one.id)
        assert _shown(store) == {one.id, below.id}, "the one below went with it"
        store.delete_session(below)
        store.delete_session(one)
        store.restore_session(session.id)
        assert _shown(store) == {session.id}, "both went on their own since"
        store.restore_session(one.id)
        assert _shown(store) == {session.id, one.id}
        store.restore_session(below.id)
        store.restore_session(two.id)
        assert _shown(store) == {each.id for each in family}

    @pytest.mark.trial("T61")
    @pytest.mark.feature("E7", "E1")
    def test_sub_agents_that_an_agent_took_along_come_back_with_their_parent(
        self, store: Store, family: list[Session]
    ) -> None:
        session, one, two, below = family
        store.delete_agent("main")
        assert _shown(store) == {below.id}, "of another agent"
        store.restore_session(session.id)
        assert _shown(store) == {each.id for each in family}
        assert not {one.id, two.id} - {each.id for each in store.iter_sessions(agent="main")}

    @pytest.mark.trial("T61")
    @pytest.mark.feature("E7", "D4")
    def test_sub_agents_stay_if_asked(self, store: Store, family: list[Session]) -> None:
        session, *others = family
        store.delete_session(session, subagents=False)
        assert _shown(store) == {each.id for each in others}
        assert store.delete_session(session) is None, "it is in the trash already"
        store.restore_session(session.id)
        gone = store.purge_session(session, subagents=False)
        assert gone.sessions == (session.id,)
        assert _shown(store) == {each.id for each in others}
        with pytest.raises(Invalid):
            store.delete_session(others[0], subagents="no")  # type: ignore[arg-type]

    @pytest.mark.trial("T61")
    @pytest.mark.feature("E7", "D4", "C1")
    def test_an_emptied_session_takes_its_sub_agents_along(self, store: Store) -> None:
        main = store.main_session()
        child = main.spawn("look").session
        assert store.delete_session(main) is not None
        assert _shown(store) == {main.id}
        assert store.delete_session(main) is None, "it is empty, and nobody is below it"
        store.undo()
        assert _shown(store) == {main.id, child.id}

    @pytest.mark.trial("T61")
    @pytest.mark.feature("E7", "F12")
    def test_a_purge_erases_the_whole_family(self, store: Store, family: list[Session]) -> None:
        session, _, two, _ = family
        fork = two.fork(as_session=True)
        store.delete_session(two)
        gone = store.purge_session(session)
        assert {*gone.sessions} == {each.id for each in family}
        assert (gone.entries, gone.kept_entries, gone.needed_by) == (3, 1, (fork.id,))
        assert _shown(store) == {fork.id}
        assert said(fork) == ["work of task 2"]
        assert [*store.iter_sessions(trash=True)] == []
