"""The contract: listings by metadata, with state, and by when things happened."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback import Invalid, Native, Session, Store
from takeback.clock import to_datetime

from ..clock import ManualClock
from .base import Contract, blocking

MINUTE, DAY = 60_000, 86_400_000
LONG = "z" * 20_000
OLD = datetime(2021, 3, 4, 5, 6, 7, tzinfo=UTC)


def names(page: Any) -> list[str | None]:
    """Return the names of listed sessions."""
    return [session.name for session in page]


def happen(session: Session, ms: int, **more: Any) -> None:
    """Write a message that happened at another time than now."""
    said = {"role": "user", "content": f"at {ms}"}
    session.write(Native(said, role="user", text=f"at {ms}", created_at=to_datetime(ms)), **more)


class ByMetadata(Contract):
    """Listing sessions by the plain values of their metadata."""

    @pytest.mark.feature("D5", "A9")
    def test_metadata_finds_sessions_by_equal_values(self, store: Store) -> None:
        store.create_session("anna", metadata={"user": "anna", "n": 1, "ok": True, "none": None, "many": [1]})
        store.create_session("bob", metadata={"user": "bob", "n": 1.0, "ok": False, "": "", LONG: LONG})
        store.create_session("text", metadata={"n": "1", "user": {"name": "anna"}, "half": 0.5})
        store.create_session("plain")

        def found(**metadata: Any) -> list[str | None]:
            return names(store.list_sessions(metadata=metadata))

        assert (found(user="anna"), found(user="bob"), found(user="carl")) == (["anna"], ["bob"], [])
        assert found(n=1) == found(n=1.0) == ["bob", "anna"], "JSON has one kind of number"
        assert (found(n="1"), found(n=True), found(ok=True), found(ok=1)) == (["text"], [], ["anna"], [])
        assert (found(none=None), found(half=0.5)) == (["anna"], ["text"])
        assert (found(n=1, user="bob"), found(n=1, user="carl"), found(n=1, ok=True)) == (["bob"], [], ["anna"])
        assert found(**{LONG: LONG}) == found(**{"": ""}) == ["bob"]
        assert found(**{LONG: LONG[1:]}) == []
        assert found() == names(store.list_sessions(metadata=None)) == ["plain", "text", "bob", "anna"]
        for wrong in ([1], {"a": 1}, b"x", float("nan"), float("inf"), object()):
            with pytest.raises(Invalid, match="text, finite numbers"):
                store.list_sessions(metadata={"user": wrong})
        for given in ("user", [("user", "anna")], {1: "anna"}):
            with pytest.raises(Invalid):
                store.list_sessions(metadata=given)  # type: ignore[arg-type]

    @pytest.mark.feature("D5", "A9")
    def test_metadata_is_combined_with_filters_orders_and_pages(self, store: Store) -> None:
        for number in range(12):
            tags = ["odd"] if number % 2 else []
            fields: dict[str, Any] = {"metadata": {"team": "core", "number": number}, "tags": tags}
            store.create_session(f"s{number}", agent="a" if number < 6 else "b", archived=number == 3, **fields)
        asked: dict[str, Any] = {"metadata": {"team": "core"}}
        store.get_session("s2").user("hello")
        assert names(store.list_sessions(**asked, agent="a")) == ["s2", "s5", "s4", "s1", "s0"]
        assert names(store.list_sessions(**asked, tag="odd", agent="a")) == ["s5", "s1"]
        assert names(store.list_sessions(metadata={"team": "core", "number": 5}, tag="odd")) == ["s5"]
        assert names(store.list_sessions(metadata={"number": 4}, tag="odd")) == []
        assert names(store.list_sessions(**asked, archived=True)) == ["s3"]
        assert names(store.list_sessions(**asked, order="created"))[:3] == ["s11", "s10", "s9"]
        for order in ("updated", "created", "updated_asc"):
            seen, cursor = list[Any](), None
            while True:
                page = store.list_sessions(**asked, order=order, archived=None, limit=5, cursor=cursor)
                seen += names(page)
                cursor = page.cursor
                if cursor is None:
                    break
            assert seen == names(store.list_sessions(order=order, archived=None))
        assert names(store.iter_sessions(**asked, limit=2)) == names(store.list_sessions())

    @pytest.mark.feature("D5", "A9")
    def test_metadata_finds_a_session_wherever_it_is(self, tmp_path: Path) -> None:
        clock = ManualClock()
        with self.open(tmp_path, clock=clock) as store:
            session = store.create_session("s", metadata={"a": 1, "b": LONG})
            store.create_session("other", metadata={"a": 1})
            for step in (lambda: session.user("hi"), lambda: session.tag("t"), lambda: session.state.set("x", 1)):
                clock.advance(3 * MINUTE)
                step()
                assert names(store.list_sessions(metadata={"a": 1})) == ["s", "other"]
            session.set_metadata({"a": 2, "c": None})
            assert names(store.list_sessions(metadata={"a": 1})) == ["other"]
            assert names(store.list_sessions(metadata={"a": 2, "c": None})) == ["s"]
            session.undo()
            assert names(store.list_sessions(metadata={"a": 1, "b": LONG})) == ["s"]
            session.redo()
            assert names(store.list_sessions(metadata={"b": LONG})) == []
            assert session.refresh().metadata == {"a": 2, "c": None}
            fork = session.fork(as_session=True, name="fork")
            assert names(store.list_sessions(metadata={"a": 2})) == ["s", "fork"]
            store.delete_session(session)
            assert names(store.list_sessions(metadata={"a": 2})) == ["fork"]
            assert names(store.list_sessions(metadata={"a": 2}, trash=True)) == ["s"]
            store.restore_session(session)
            assert names(store.list_sessions(metadata={"a": 2})) == ["s", "fork"]
            store.purge_session(session)
            assert names(store.list_sessions(metadata={"a": 2})) == ["fork"]
            store.purge_session(fork)
            assert [*store.list_sessions(metadata={"a": 2})] == [*store.list_sessions(metadata={"a": 2}, trash=True)]
            assert not store.verify()

    @pytest.mark.feature("D5", "A9", "F9")
    def test_metadata_goes_with_a_copy_and_an_export(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            session = store.scoped("from").create_session("s", metadata={"a": 1, "b": LONG})
            session.user("hello")
            store.scoped("from").export(session, tmp_path / "out.jsonl")
            store.scoped("to").load(tmp_path / "out.jsonl")
            assert names(store.scoped("to").list_sessions(metadata={"a": 1, "b": LONG})) == ["s"]
            takeback.copy(blocking(store.scoped("from")), tmp_path / "copy.db")
            assert not store.verify()
        with takeback.open(tmp_path / "copy.db", scope="from") as copy:
            assert names(copy.list_sessions(metadata={"a": 1, "b": LONG})) == ["s"]
            assert not copy.verify()


class WithState(Contract):
    """Listings that bring values of the sessions' states along."""

    @pytest.mark.feature("D5", "A9")
    def test_a_listing_brings_values_of_the_state_along(self, store: Store) -> None:
        plain, one, many = (store.create_session(name) for name in ("plain", "one", "many"))
        one.state.set("summary", {"text": "painted"})
        one.set_plan("sail")
        one.user("hello")
        many.state.update({f"n{number}": "x" * 100 for number in range(50)})
        many.state.update({"summary": "big", "n1": None})
        many.state.delete("n2")
        forked = many.fork(as_session=True, name="forked")
        seen = {
            each.name: each.state_values for each in store.list_sessions(with_state=("summary", "n1", "n2", "none"))
        }
        big = {"summary": "big", "n1": None}
        assert seen == {"plain": {}, "one": {"summary": {"text": "painted"}}, "many": big, "forked": big}
        forked.state.set("summary", "other")
        many.user("go on")
        point = many.head.seq
        many.state.set("summary", "later")
        many.rewind(point)
        seen = {each.name: each.state_values for each in store.iter_sessions(with_state=["summary"])}
        assert (seen["forked"], seen["many"]) == ({"summary": "other"}, {"summary": "big"})
        assert [each.state_values for each in store.list_sessions()] == [None] * 4
        assert plain.state_values is None
        for wrong in ("summary", [1], 7):
            with pytest.raises(Invalid):
                store.list_sessions(with_state=wrong)  # type: ignore[arg-type]


class InThePast(Contract):
    """Sessions in which things happened before they were stored: listings show them there."""

    @pytest.mark.feature("D5", "F9")
    def test_what_is_loaded_is_listed_when_it_happened(self, tmp_path: Path) -> None:
        clock = ManualClock()
        with self.open(tmp_path, clock=clock) as store:
            source, target = store.scoped("from"), store.scoped("to")
            for name in ("first", "second", "third"):
                source.create_session(name).user("old")
                clock.advance(DAY)
            target.create_session("mine").user("between")  # three days after the first one was made
            clock.advance(DAY)
            source.get_session("second").user("again")
            clock.advance(DAY)
            target.create_session("new").user("now")
            begun = clock.ms
            clock.advance(DAY)
            source.export([*source.iter_sessions()], tmp_path / "out.jsonl")
            target.load(tmp_path / "out.jsonl")
            assert names(target.list_sessions()) == ["new", "second", "mine", "third", "first"]
            assert names(target.list_sessions(order="created")) == ["new", "mine", "third", "second", "first"]
            assert names(target.list_sessions(order="updated_asc")) == ["first", "third", "mine", "second", "new"]
            assert names(target.list_sessions(since=to_datetime(begun - DAY))) == ["new", "second"]
            second = target.get_session("second")
            assert second.last_message_at == second.updated_at == to_datetime(begun - DAY)
            paged = [target.list_sessions(limit=2)]
            while paged[-1].cursor:
                paged.append(target.list_sessions(limit=2, cursor=paged[-1].cursor))
            assert [names(page) for page in paged] == [["new", "second"], ["mine", "third"], ["first"]]
            target.get_session("first").user("it goes on")
            assert names(target.list_sessions())[:2] == ["first", "new"]
            assert not store.verify()

    @pytest.mark.feature("D5", "A1")
    def test_a_session_can_be_created_in_the_past(self, tmp_path: Path) -> None:
        clock = ManualClock()
        with self.open(tmp_path, clock=clock) as store:
            store.create_session("now")
            old = store.create_session("old", created_at=OLD, metadata={"a": 1}, tags=["t"])
            assert (old.created_at, old.updated_at, old.last_message_at) == (OLD, OLD, None)
            with store.session("older", created_at=OLD - timedelta(days=1)) as older:
                assert older.created_at == OLD - timedelta(days=1)
            assert names(store.list_sessions()) == ["now", "old", "older"], "running it does not bring it to the top"
            assert names(store.list_sessions(order="created")) == ["now", "old", "older"]
            assert store.session("old", created_at=OLD + timedelta(days=9), hold=False).created_at == OLD
            happen(older, int(OLD.timestamp() * 1000) + DAY, state={"summary": "old"})
            assert names(store.list_sessions()) == ["now", "older", "old"]
            assert older.refresh().updated_at == older.last_message_at == OLD + timedelta(days=1)
            happen(older, 5)
            assert names(store.list_sessions()) == ["now", "older", "old"], "what is older moves nothing back"
            assert names(store.list_sessions(metadata={"a": 1})) == names(store.list_sessions(tag="t")) == ["old"]
            old.rename("today")
            assert names(store.list_sessions()) == ["old", "now", "older"]
            assert not store.verify()
            for wrong in (datetime(2021, 1, 1), "2021-01-01", 5, OLD.replace(year=1960)):
                with pytest.raises(Invalid):
                    store.create_session(created_at=wrong)  # type: ignore[arg-type]

    @pytest.mark.feature("D5", "F6")
    def test_a_checkpoint_of_an_agent_covers_what_was_stored_in_the_past(self, tmp_path: Path) -> None:
        """Its search for what changed must not overlook a change that is listed in the past."""
        clock = ManualClock()
        with self.open(tmp_path, clock=clock) as store:
            store.create_session("now", agent="a").user("hello")
            clock.advance(DAY)
            store.checkpoint_agent("a", "before")
            clock.advance(DAY)
            old = store.create_session("old", agent="a", created_at=OLD)
            happen(old, 5)
            store.checkpoint_agent("a", "one")
            clock.advance(DAY)
            happen(old, 6)
            store.checkpoint_agent("a", "two")
            clock.advance(DAY)
            old.user("more")
            made = {point.name: point for point in store.list_checkpoints("a")}
            store.restore_checkpoint(made["two"])
            assert [message.text for message in old.messages()] == ["at 5", "at 6"]
            store.restore_checkpoint(made["before"])
            assert names(store.list_sessions()) == ["now"]
            assert not store.verify()

    @pytest.mark.feature("D5")
    def test_a_clock_that_is_set_back_hides_no_change(self, tmp_path: Path) -> None:
        clock = ManualClock()
        with self.open(tmp_path, clock=clock) as store:
            for name in ("a", "b", "c"):
                store.create_session(name)
            clock.advance(-DAY)
            old = store.create_session("old", created_at=OLD)
            store.get_session("a").user("x")
            assert names(store.list_sessions()) == ["a", "c", "b", "old"]
            happen(old, clock.ms)
            assert names(store.list_sessions()) == ["old", "a", "c", "b"]
            assert not store.verify()
