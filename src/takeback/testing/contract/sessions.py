"""The contract: fields, keys and titles of sessions, listing, refs, trash and purge."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from takeback import Ambiguous, Conflict, Invalid, NotFound, Session, Store

from ..clock import ManualClock
from .base import Contract, said


class Sessions(Contract):
    """Fields, titles, keys, get-or-create."""

    @pytest.mark.feature("A1")
    def test_a_session_has_its_fields(self, store: Store, tmp_path: Path) -> None:
        session = store.create_session(
            "s",
            agent="coder",
            workspace=tmp_path,
            prompt="Fix the flaky test",
            model="m",
            provider="p",
            tags=["a", "b"],
            metadata={"x": [1]},
        )
        for found in (session, store.get_session(session.id)):
            assert (found.name, found.agent_id, found.kind, found.status) == ("s", "coder", "main", "active")
            assert (found.prompt, found.model, found.provider) == ("Fix the flaky test", "m", "p")
            assert (found.workspace, found.tags) == (os.path.realpath(tmp_path), ("a", "b"))
            assert (found.metadata, found.parent_id, found.label) == ({"x": [1]}, None, None)
            assert (found.message_count, found.turn_count, found.task_count, found.build_attempts) == (0, 0, 0, 0)
            assert found.run_id
            assert found.last_message_at is None
            assert found.to_dict()["prompt"] == "Fix the flaky test"
        with pytest.raises(TypeError):
            store.create_session(nosuch=1)  # type: ignore[call-arg]

    @pytest.mark.feature("A1", "E2")
    @pytest.mark.defect("S4-19")
    @pytest.mark.parametrize(
        ("prompt", "first", "title"),
        [
            ("p" * 70, "hello", "p" * 60),
            (None, "short", "short"),
            (None, "x" * 51, "x" * 47 + "..."),
            (None, "x" * 50, "x" * 50),
            (None, "日本語" * 30, ("日本語" * 30)[:47] + "..."),
            (None, "a\n b\t\tc", "a b c"),
            (None, "half \ud83d and \0 nothing", "half ? and nothing"),
            ("👩‍👩‍👧" * 30, "x", "👩‍👩‍👧" * 12),
            (None, "🇩🇪" * 40, "🇩🇪" * 23 + "..."),
            (None, "e\u0301" * 40, "e\u0301" * 23 + "..."),
        ],
    )
    def test_a_title_is_made_and_cut_at_characters(
        self, store: Store, prompt: str | None, first: str, title: str
    ) -> None:
        session = store.create_session(prompt=prompt)
        session.system("not this")
        session.user(first)
        session.user("nor this")
        assert session.title == title
        assert store.get_session(session.id).title == title

    @pytest.mark.feature("A1")
    def test_a_session_can_be_renamed_and_back(self, session: Session) -> None:
        session.user("first")
        session.rename("Better")
        assert session.title == "Better"
        session.undo()
        assert session.title == "first"

    @pytest.mark.feature("D1")
    @pytest.mark.defect("S3-5")
    def test_keys_cannot_collide_whatever_the_ids(self, store: Store) -> None:
        names = ["a", "a:main", "a:cron", "a%3Amain", "agent:a:main", "a/b", "%", ":", "é", "a:subagent:1"]
        keys = [store.main_session(name).key for name in names]
        keys += [store.cron_session(name, job).key for name in names for job in names]
        keys += [store.create_session(agent=name, kind="subagent").key for name in names]
        assert len(set(keys)) == len(keys)
        assert store.main_session("a").key == "agent:a:main"
        assert store.cron_session("a", "nightly").key == "agent:a:cron:nightly"
        assert all(store.get_session(key).key == key for key in keys)

    @pytest.mark.feature("D4", "C1", "D9")
    def test_many_ask_and_one_session_is_made(self, store: Store, tmp_path: Path) -> None:
        def ask(n: int) -> tuple[str, ...]:
            found = (
                store.session("shared", agent="x", hold=False),
                store.main_session("x"),
                store.cron_session("x", "job"),
                store.directory_session(tmp_path),
            )
            return tuple(session.id for session in found)

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(ask, range(16)))) == 1
        assert len(store.list_sessions()) == 4

    @pytest.mark.feature("C1")
    def test_a_directory_has_one_session_by_any_path_and_after_a_move(self, store: Store, tmp_path: Path) -> None:
        real = tmp_path / "project"
        real.mkdir()
        session = store.directory_session(real)
        session.user("work")
        (tmp_path / "link").symlink_to(real)
        assert store.directory_session(tmp_path / "link").id == session.id
        assert store.directory_session(tmp_path / "link" / ".." / "project").id == session.id
        real.rename(tmp_path / "moved")
        moved = store.directory_session(tmp_path / "moved")
        if moved.id == session.id:  # where the system tells birth times
            assert said(moved) == ["work"]
            assert moved.workspace == os.path.realpath(tmp_path / "moved")
        real.mkdir()
        assert store.directory_session(real).id != moved.id
        with pytest.raises(NotFound):
            store.directory_session(tmp_path / "nosuch")

    @pytest.mark.feature("D3")
    @pytest.mark.defect("S3-4", "S3-11")
    def test_parents_exist_and_labels_are_unique_below_them(self, store: Store, session: Session) -> None:
        child = store.create_session(kind="subagent", parent=session, label="tests", task="run them")
        assert (child.parent_id, child.label, child.task, child.kind) == (session.id, "tests", "run them", "subagent")
        assert child.key.startswith("agent:main:subagent:")
        with pytest.raises(Conflict):
            store.create_session(kind="subagent", parent=session, label="tests")
        store.create_session(kind="subagent", parent=child, label="tests")
        with pytest.raises(NotFound):
            store.create_session(parent="nosuch")
        with pytest.raises(Invalid):
            store.create_session(kind="nosuch")
        assert [s.id for s in store.list_sessions(parent=session, label="tests")] == [child.id]

    @pytest.mark.feature("A2")
    def test_a_retry_of_a_creation_gives_the_first(self, store: Store) -> None:
        first = store.create_session("x", idempotency_key="k")
        assert store.create_session("x", idempotency_key="k").id == first.id
        with pytest.raises(Conflict):
            store.create_session("y", idempotency_key="k")

    @pytest.mark.feature("C1")
    def test_get_or_create_keeps_what_is_there(self, store: Store) -> None:
        with store.session("x", prompt="first") as session:
            session.user("a")
        again = store.session("x", prompt="other")
        assert (again.id, again.prompt, said(again)) == (session.id, "first", ["a"])
        assert store.session("x", agent="other").id != session.id
        assert store.session(again).id == session.id
        assert store.session().id != store.session().id


class Listing(Contract):
    """Listing by every filter, exact lookup and refs."""

    @pytest.mark.feature("D5", "A9")
    def test_a_session_may_be_archived_from_its_beginning(self, tmp_path: Path) -> None:
        """It never appears in a listing, and there is no operation to undo; an existing session stays as it is."""
        with self.open(tmp_path) as store:
            made = store.create_session("quiet", archived=True)
            assert (made.archived, [*store.list_sessions()], [*store.operations()]) == (True, [], [])
            assert store.get_session("quiet").archived
            made.unarchive()
            assert not store.session("quiet", hold=False, archived=True).archived
            assert not store.create_session("plain", archived=False).archived
            with pytest.raises(Invalid):
                store.create_session("odd", archived="yes")  # type: ignore[arg-type]

    @pytest.mark.feature("D5", "A9")
    def test_every_filter_filters(self, tmp_path: Path) -> None:
        clock = ManualClock()
        with self.open(tmp_path, clock=clock) as store:
            made = {
                "plain": store.create_session("plain"),
                "tagged": store.create_session("tagged", tags=["t", "u"]),
                "other": store.create_session("other", agent="b", workspace=tmp_path),
            }
            made["child"] = store.create_session("child", kind="subagent", parent=made["plain"], label="l")
            made["cron"] = store.cron_session("b", "job")
            clock.advance(10_000)
            made["late"] = store.create_session("late")
            made["late"].archive()
            made["tagged"].pin()
            since = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=clock.ms)

            def found(**filters: Any) -> list[str]:
                ids = {session.id: name for name, session in made.items()}
                return [ids[session.id] for session in store.list_sessions(**filters)]

            assert found() == ["tagged", "cron", "child", "other", "plain"]
            assert found(order="created") == ["cron", "child", "other", "tagged", "plain"]
            assert found(archived=True) == ["late"]
            assert found(archived=None)[:2] == ["tagged", "late"]
            assert found(tag="u") == found(tag="t") == found(pinned=True) == ["tagged"]
            assert found(tag="tu") == found(tag="%") == []
            assert found(agent="b") == ["cron", "other"]
            assert found(kinds="subagent") == found(parent=made["plain"]) == found(label="l") == ["child"]
            assert found(kinds=["cron", "subagent"]) == ["cron", "child"]
            assert found(workspace=tmp_path) == ["other"]
            assert found(since=since) == ["tagged"]
            assert found(status="active") == found(active_only=True) == found()
            assert found(status="error") == []
            with pytest.raises(Invalid):
                store.list_sessions(order="random")
            with pytest.raises(Invalid):
                store.list_sessions(since=datetime(2026, 1, 1))
            with pytest.raises(Invalid):
                store.list_sessions(cursor=store.list_sessions(limit=1).cursor, order="created")

    @pytest.mark.feature("A9", "C4")
    def test_counts_are_those_of_the_store(self, store: Store, session: Session) -> None:
        session.user("a")
        session.assistant("b")
        session.set_tasks(["x", "y"])
        session.update_task(0, "completed")
        (listed,) = store.list_sessions()
        assert (listed.message_count, listed.turn_count, listed.task_count, listed.completed_count) == (2, 1, 2, 1)
        assert listed.last_message_at is not None
        session.rewind(1)
        (listed,) = store.list_sessions()
        assert (listed.message_count, listed.task_count, listed.completed_count) == (1, 0, 0)

    @pytest.mark.feature("D5")
    @pytest.mark.parametrize("order", ["updated", "created"])
    def test_pages_hold_while_others_write(self, store: Store, order: str) -> None:
        made = [store.create_session(f"s{n}") for n in range(12)]
        seen, cursor = list[str](), None
        while True:
            page = store.list_sessions(limit=5, cursor=cursor, order=order)
            seen += [s.id for s in page]
            cursor = page.cursor
            made[0].user("moves to the front")
            if cursor is None:
                break
        assert len(seen) == len(set(seen))
        assert {s.id for s in made[1:]} <= set(seen)
        assert [s.id for s in store.iter_sessions(limit=3)] == [s.id for s in store.list_sessions()]

    @pytest.mark.feature("C5")
    def test_exact_lookup_parses_nothing(self, store: Store, session: Session) -> None:
        for wanted in (session.id, "work", session.key):
            assert store.get_session(wanted).id == session.id
        for wanted in (session.id[:10], "wor", "work:1", "@", "WORK"):
            assert store.find_session(wanted) is None
        store.create_session("work", agent="b")
        with pytest.raises(Ambiguous) as several:
            store.get_session("work")
        assert session.id in several.value.candidates
        assert store.get_session("work", agent="main").id == session.id

    @pytest.mark.feature("F10")
    def test_refs_are_parsed(self, store: Store, session: Session, tmp_path: Path) -> None:
        for text in "abc":
            session.user(text)
            session.assistant(text)
        session.checkpoint("done")
        session.fork(2, name="side")
        other = store.create_session("other", workspace=tmp_path)
        main = store.main_session()

        def parsed(ref: str, **options: Any) -> tuple[Any, ...]:
            found = store.resolve(ref, **options)
            return found.session.id, found.branch, found.seq

        here = session.id
        assert parsed("work") == parsed(here) == parsed(here[:20]) == parsed(here.upper()) == (here, None, None)
        assert parsed("work:2") == parsed(f"{here}:2") == (here, None, 4)
        assert parsed("work:2^") == (here, None, 2)
        assert parsed("work:0") == (here, None, 0)
        assert parsed("work:3") == (here, None, 6)
        assert parsed("work:e5") == (here, None, 5)
        assert parsed("work:done") == (here, None, 6)
        assert store.resolve("work:done").checkpoint == session.get_checkpoint("done").id
        assert parsed("work/side") == (here, "side", None)
        assert parsed("work/side:1") == (here, "side", 2)
        assert parsed(main.key) == parsed("@") == (main.id, None, None)
        assert parsed("@-1") == parsed("@", workspace=tmp_path) == (other.id, None, None)
        for wrong in ("nosuch", "work:9", "work:e99", "work:nosuch", "work/nosuch", "@-99"):
            with pytest.raises(NotFound):
                store.resolve(wrong)
        for wrong in ("@-x", ""):
            with pytest.raises(Invalid):
                store.resolve(wrong)
        with pytest.raises(Ambiguous) as several:
            store.resolve(here[:3])
        assert {here, other.id} <= set(several.value.candidates)


class Trash(Contract):
    """Deleting moves to the trash; a purge really erases, and reports what it kept."""

    @pytest.mark.feature("E7")
    def test_the_trash_can_be_listed_and_restored(self, store: Store, session: Session) -> None:
        session.user("a")
        store.delete_session(session)
        assert session.deleted
        assert [s.id for s in store.list_sessions(trash=True)] == [session.id]
        assert store.find_session("work") is None
        assert store.get_session(session.id).deleted
        store.undo()
        assert said(store.get_session("work")) == ["a"]

    @pytest.mark.feature("E7", "C1")
    def test_a_main_session_goes_back_to_empty(self, store: Store) -> None:
        main = store.main_session()
        main.user("a")
        store.delete_session(main)
        again = store.main_session()
        assert (again.id, said(again), again.title, again.deleted) == (main.id, [], None, False)
        store.undo()
        assert (said(store.main_session()), store.main_session().title) == (["a"], "a")

    @pytest.mark.feature("E7", "F12")
    def test_a_purge_erases_for_good(self, store: Store, session: Session) -> None:
        session.user("canary", attachments=[b"canary bytes"], metadata={"canary": 1})
        session.rename("canary title")
        session.checkpoint("canary point")
        session.fork(name="canary branch")
        gone = store.purge_session(session)
        assert (gone.sessions, gone.entries, gone.blobs, gone.kept_entries) == ((session.id,), 1, 1, 0)
        assert store.find_session(session.id) is None
        with pytest.raises(NotFound):
            session.messages()
        with pytest.raises(NotFound):
            session.user("b")
        assert store.stats().sessions == store.stats().messages == store.stats().blobs == 0
        assert store.purge_session(session).sessions == ()
        assert store.create_session("work").id != session.id

    @pytest.mark.feature("E7", "F2")
    def test_a_purge_keeps_and_names_what_forks_need(self, store: Store, session: Session) -> None:
        for text in "abcd":
            session.user(text)
        fork = session.fork(2, as_session=True, name="fork")
        fork.user("x")
        gone = store.purge_session(session)
        assert (gone.entries, gone.kept_entries, gone.needed_by) == (2, 2, (fork.id,))
        assert said(fork) == ["a", "b", "x"]
        assert not store.verify()
        assert store.purge_session(fork).entries == 3
        assert store.stats().messages == 0

    @pytest.mark.feature("E7")
    def test_a_purge_can_take_the_forks_along(self, store: Store, session: Session) -> None:
        session.user("a")
        fork = session.fork(as_session=True)
        deeper = fork.fork(as_session=True)
        gone = store.purge_session(session, include_forks=True)
        assert set(gone.sessions) == {session.id, fork.id, deeper.id}
        assert list(store.list_sessions()) == []

    @pytest.mark.feature("E11")
    def test_statistics_count_what_is_there(self, store: Store, session: Session) -> None:
        session.user("a", attachments=[b"x"])
        session.assistant("b")
        session.checkpoint()
        session.rewind(1)
        session.user("c")
        counts = store.stats()
        assert (counts.agents, counts.sessions, counts.checkpoints, counts.messages, counts.blobs) == (1, 1, 1, 3, 1)
        assert (counts.branches, counts.entries) == (2, 3)
        assert counts.total_bytes > 0
        assert "3 messages" in str(counts)
