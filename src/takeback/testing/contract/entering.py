"""The contract: entering sessions by every way to get one, workspaces that are not there, and flags that are none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from takeback import Busy, Conflict, Invalid, Session, Store

from .base import Contract, blocking

WAYS: dict[str, Callable[..., Any]] = {
    "session": lambda store, place, **how: store.session("named", **how),
    "main_session": lambda store, place, **how: store.main_session("a", **how),
    "cron_session": lambda store, place, **how: store.cron_session("a", "nightly", **how),
    "directory_session": lambda store, place, **how: store.directory_session(place, **how),
    "get_session": lambda store, place, **how: store.get_session("got", **how),
    "find_session": lambda store, place, **how: store.find_session("got", **how),
    "spawn": lambda store, place, **how: store.spawn("dig", idempotency_key="k", **how).session,
    "Session.spawn": lambda store, place, **how: (
        store.get_session("got").spawn("dig", idempotency_key="j", **how).session
    ),
}


class Entering(Contract):
    """However a session was found, entering it can wait for whoever runs it."""

    @pytest.mark.trial("T55")
    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    @pytest.mark.parametrize("way", WAYS)
    def test_what_busy_advises_works_for_every_way_to_enter(self, store: Store, tmp_path: Path, way: str) -> None:
        store.create_session("got")
        find = WAYS[way]
        with ExitStack() as stack:
            stack.enter_context(find(store, tmp_path))
            with pytest.raises(Busy, match=r"store\.session\(session, wait=seconds\)") as busy:
                find(store, tmp_path).__enter__()
            assert "take_over=True" in str(busy.value)
            found = store.get_session("got") if way == "session" else find(store, tmp_path)
            with pytest.raises(Invalid):
                find(store, tmp_path, wait=-1)
        with find(store, tmp_path, wait=60) as again:
            again.user("mine")
            handle = again if way == "session" else found
            with pytest.raises(Busy):
                blocking(store).session(blocking(store).get_session(again.id), wait=0.01)
            with store.session(store.get_session(again.id), take_over=True) as other:
                other.user("taken over")
            assert handle is not None

    @pytest.mark.trial("T55")
    @pytest.mark.feature("F6")
    @pytest.mark.promise("R26")
    @pytest.mark.parametrize("way", ["main_session", "cron_session", "directory_session", "get_session", "spawn"])
    def test_entering_waits_until_the_session_is_free(self, store: Store, tmp_path: Path, way: str) -> None:
        store.create_session("got")
        held, waiting = blocking(WAYS[way](store, tmp_path)).__enter__(), WAYS[way](store, tmp_path, wait=60)
        leaving = threading.Timer(0.1, lambda: held.__exit__(None, None, None))
        leaving.start()
        with waiting as session:
            session.user("after it")
        leaving.join()
        assert session.messages()[-1].text == "after it"


class Places(Contract):
    """A new session's workspace is a directory that exists; an old one's may be gone."""

    @pytest.mark.trial("T58")
    @pytest.mark.feature("A7", "F1")
    def test_a_workspace_that_is_not_there_is_refused(self, store: Store, tmp_path: Path) -> None:
        parent, missing, file = store.create_session("parent"), tmp_path / "no" / "such", tmp_path / "file"
        file.write_text("x")
        ways: list[Callable[[Path], Any]] = [
            lambda place: store.create_session("s", workspace=place),
            lambda place: store.session("s", workspace=place),
            lambda place: store.session(workspace=str(place)),
            lambda place: store.spawn("dig", workspace=place),
            lambda place: parent.spawn("dig", workspace=place),
        ]
        for place, why in (
            (missing, "create the directory first"),
            (file, "is not a directory"),
            (file / "x", "exist"),
        ):
            for way in ways:
                with pytest.raises(Invalid, match=why) as refused:
                    way(place)
                assert str(place) in str(refused.value)
        assert [each.name for each in store.list_sessions()] == ["parent"], "nothing was made"
        missing.mkdir(parents=True)
        for way in ways:
            way(missing)

    @pytest.mark.trial("T58", "T21")
    @pytest.mark.feature("A7", "F1")
    def test_a_session_whose_workspace_is_gone_is_opened_all_the_same(self, store: Store, tmp_path: Path) -> None:
        place = tmp_path / "place"
        place.mkdir()
        made = [
            store.create_session("s", workspace=place),
            store.create_session("keyed", workspace=place, idempotency_key="k"),
        ]
        place.rmdir()
        again = [
            store.session("s", workspace=place, hold=False),
            store.create_session("keyed", workspace=place, idempotency_key="k"),
        ]
        assert [each.id for each in again] == [each.id for each in made]
        assert store.get_session("s").spawn("dig").session.workspace == made[0].workspace, "it inherits what is gone"
        assert store.get_session("s").fork(as_session=True).workspace == made[0].workspace
        assert not place.exists()

    @pytest.mark.trial("T56")
    @pytest.mark.feature("A4", "A5")
    def test_a_label_that_is_taken_says_how_to_go_on(self, store: Store, session: Session) -> None:
        first = session.spawn("dig", label="digger", idempotency_key="digger").session
        with pytest.raises(Conflict, match="idempotency_key") as taken:
            session.spawn("dig", label="digger")
        assert "children()" in str(taken.value)
        assert [each.id for each in session.children() if each.label == "digger"] == [first.id]
        again = session.spawn("dig", label="digger", idempotency_key="digger")
        with again.session as child:
            child.user("go on")
        assert (again.session.id, again.status) == (first.id, "accepted")

    @pytest.mark.trial("T11")
    @pytest.mark.feature("E1")
    def test_flags_take_nothing_but_true_and_false(self, store: Store, session: Session, tmp_path: Path) -> None:
        session.user("hello")
        calls: list[Callable[[Any], Any]] = [
            lambda flag: session.fork(as_session=flag),
            lambda flag: session.checkpoint("c", files=flag),
            lambda flag: session.rewind(1, files=flag),
            lambda flag: session.rewind(1, conversation=flag),
            lambda flag: session.rewind(1, take_over=flag),
            lambda flag: session.preview_rewind(1, conversation=flag),
            lambda flag: session.preview_rewind(1).apply(take_over=flag),
            lambda flag: session.switch("main", files=flag),
            lambda flag: session.switch("main", take_over=flag),
            lambda flag: session.undo(take_over=flag),
            lambda flag: session.redo(take_over=flag),
            lambda flag: session.stats(spent=flag),
            lambda flag: session.messages(tools=flag),
            lambda flag: session.stop(subtree=flag),
            lambda flag: session.tool_result("a", "x", success=flag),
            lambda flag: store.session("s", take_over=flag),
            lambda flag: store.session("s", hold=flag),
            lambda flag: store.create_session(archived=flag),
            lambda flag: store.list_sessions(active_only=flag),
            lambda flag: store.undo(take_over=flag),
            lambda flag: store.redo(take_over=flag),
            lambda flag: store.purge_session("s", include_forks=flag),
            lambda flag: store.export(session, tmp_path / "x.jsonl", subagents=flag),
            lambda flag: store.load(tmp_path / "x.jsonl", dry_run=flag),
            lambda flag: self.open(tmp_path, read_only=flag),
        ]
        before = session.refresh().revision
        for call in calls:
            for wrong in ("text", "", 1, 0, None):
                with pytest.raises(Invalid, match="must be True or False"):
                    call(wrong)
        assert (session.refresh().revision, session.status) == (before, "active")
