"""The contract: sessions, scopes, the feed, the clock, and what a store reports about itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import takeback
from takeback import Conflict, Invalid, NotFound, Session, Store

from ..clock import ManualClock
from .base import Contract, said


class Stores(Contract):
    """Sessions, scopes, the feed, the clock, and what a store reports about itself."""

    @pytest.mark.feature("C5")
    def test_not_found_and_found_are_different_answers(self, store: Store, session: Session) -> None:
        assert store.get_session(session.id).id == session.id
        found = store.find_session("work")
        assert found is not None
        assert found.id == session.id
        assert store.find_session("other") is None
        with pytest.raises(NotFound):
            store.get_session("nosuch")

    @pytest.mark.feature("C5")
    def test_a_name_is_unique_per_agent_and_workspace(self, store: Store, session: Session, tmp_path: Path) -> None:
        with pytest.raises(Conflict):
            store.create_session("work")
        store.create_session("work", agent="other")
        store.create_session("work", workspace=tmp_path)

    @pytest.mark.feature("A6")
    def test_the_list_is_ordered_by_last_change(self, store: Store) -> None:
        made = [store.create_session(f"s{n}") for n in range(5)]
        for n in (3, 1, 3, 4, 3, 0, 1, 1):
            made[n].user("x")
        assert [s.name for s in store.list_sessions()] == ["s1", "s0", "s3", "s4", "s2"]
        made[2].fork()
        assert store.list_sessions()[0].name == "s2"

    @pytest.mark.feature("A6")
    def test_pages_neither_skip_nor_repeat(self, store: Store) -> None:
        names = [store.create_session(f"s{n}").name for n in range(23)]
        seen, cursor = [], None
        while True:
            page = store.list_sessions(limit=5, cursor=cursor)
            seen += [s.name for s in page]
            cursor = page.cursor
            if cursor is None:
                break
        assert seen == names[::-1]

    @pytest.mark.feature("E7")
    def test_deleted_sessions_leave_the_list_and_come_back(self, store: Store, session: Session) -> None:
        session.user("a")
        store.delete_session(session.id)
        assert list(store.list_sessions()) == []
        assert store.find_session("work") is None
        with pytest.raises(Conflict):
            session.user("b")
        other = store.create_session("work")
        store.restore_session(session.id)
        assert {s.name for s in store.list_sessions()} == {"work", "work (2)"}
        assert said(store.get_session(session.id)) == ["a"]
        assert said(other) == []
        assert store.delete_session("never existed") is None
        store.delete_session(session.id)
        assert store.delete_session(session.id) is None

    @pytest.mark.feature("F13")
    def test_scopes_see_nothing_of_each_other(self, store: Store, session: Session) -> None:
        session.user("secret", id="m1", idempotency_key="k")
        other = store.scoped("b")
        assert list(other.list_sessions()) == []
        assert other.find_session("work") is None
        assert list(other.events()) == []
        assert other.stats().sessions == other.stats().entries == 0
        assert other.delete_session(session.id) is None
        for call in (other.get_session, other.restore_session):
            with pytest.raises(NotFound):
                call(session.id)
        mine = other.create_session("work")
        with pytest.raises(NotFound):
            mine.message("m1")
        with pytest.raises(NotFound):
            mine.switch(session.branches()[0].id)
        assert said(mine) == []
        assert len(store.list_sessions()) == 1

    @pytest.mark.feature("E6")
    def test_closing_a_scoped_handle_leaves_the_store_open(self, store: Store, session: Session) -> None:
        with store.scoped("b") as other:
            other.create_session()
        session.user("still open")

    @pytest.mark.feature("E6")
    def test_no_scope_is_the_default_scope_never_all(self, store: Store, session: Session) -> None:
        store.scoped("b").create_session()
        assert len(store.scoped(None).list_sessions()) == len(store.scoped("").list_sessions()) == 1

    @pytest.mark.feature("E6")
    def test_the_feed_shows_every_change_once_in_order(self, store: Store, session: Session) -> None:
        session.user("a")
        session.append({"role": "user"}, {"role": "user"})
        session.rewind(1)
        session.undo()
        changes = list(store.events())
        assert [c.kind for c in changes] == ["agent", "session", "entries", "entries", "rewind", "undo"]
        assert [(c.first_seq, c.last_seq) for c in changes][2:4] == [(1, 1), (2, 3)]
        assert [c.kind for c in store.events(after=changes[3].cursor)] == ["rewind", "undo"]
        assert list(store.events(after=changes[-1].cursor)) == []

    @pytest.mark.feature("C5")
    @pytest.mark.parametrize("cursor", ["", "1", "1.", "2.5", "1.xyz", "1.-1", "1." + "f" * 40, "'; drop table feed"])
    def test_a_cursor_that_we_did_not_give_is_refused(self, store: Store, cursor: str) -> None:
        with pytest.raises(Invalid):
            list(store.events(after=cursor))

    @pytest.mark.feature("A6")
    @pytest.mark.promise("R21")
    @pytest.mark.parametrize(
        "times", [[-90_000_000, -1, 0], [10**12, 10**12 - 86_400_000], [5, 5, 5], [0, 2**44, -(2**40)], [2**60, 1]]
    )
    def test_the_clock_cannot_hurt(self, tmp_path: Path, times: list[int]) -> None:
        clock = ManualClock()
        with self.open(tmp_path, clock=clock) as store:
            session = store.create_session()
            ids = [session.id]
            for number, now in enumerate(times * 2):
                clock.ms = now
                session.user(str(number))
                ids.append(store.create_session().id)
            assert said(session) == [str(n) for n in range(len(times) * 2)]
            assert [m.at_ms for m in session.messages()] == times * 2
            assert len(set(ids)) == len(ids)
            session.user("last")
            assert store.list_sessions()[0].id == session.id
            assert not store.verify()

    @pytest.mark.feature("E6")
    def test_capabilities_are_true(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            claims = store.capabilities
            store.create_session("kept").user("a")
        with self.open(tmp_path) as store:
            kept = store.find_session("kept")
            assert (kept is not None) == claims.persistent
            if kept is not None:
                assert said(kept) == ["a"]

    @pytest.mark.feature("F13")
    def test_scopes_are_listed_by_whoever_can_see_them_all(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            for scope in ("zoe", "anna"):
                store.scoped(scope).create_session()
            if store.capabilities.all_scopes:
                assert store.scopes() == ["anna", "zoe"]
            else:
                with pytest.raises(takeback.Unsupported):
                    store.scopes()
            with pytest.raises(takeback.Invalid):
                store.scoped("anna").scopes()

    @pytest.mark.feature("E6")
    def test_a_read_only_store_reads_and_refuses_to_write(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            persistent = store.capabilities.persistent
            session_id = store.create_session("kept").id
        with self.open(tmp_path, read_only=True) as store:
            assert store.capabilities.read_only
            for write in (store.create_session, lambda: store.delete_session(session_id)):
                with pytest.raises(takeback.Unsupported):
                    write()
            assert len(store.list_sessions()) == (1 if persistent else 0)

    @pytest.mark.feature("C5")
    def test_a_closed_store_says_so(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        session = store.create_session()
        store.close()
        store.close()
        for call in (store.create_session, session.messages, lambda: session.user("a"), store.verify):
            with pytest.raises(takeback.Closed):
                call()
