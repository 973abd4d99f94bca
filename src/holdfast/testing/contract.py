"""The contract that every store keeps, as a test class.

A backend's whole test is a subclass that says how to open it:

    class TestMyBackend(StoreContract):
        def open(self, tmp_path, **options):
            return my_open(tmp_path / "store", **options)

``open`` called twice with one ``tmp_path`` must reach the same data if the store says it is persistent.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Conflict, Invalid, NotFound, Session, Store, Usage

from .clock import ManualClock


def said(session: Session) -> list[str]:
    """The texts of a session's path."""
    return [message.text for message in session.messages()]


class StoreContract:
    """Subclass and define ``open``."""

    def open(self, tmp_path: Path, **options: Any) -> Store:
        """Open the store under test."""
        raise AssertionError("a contract test says how to open its store")

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        """An open store; verified and closed after the test."""
        with self.open(tmp_path) as store:
            yield store
            report = store.verify()
            assert not report, str(report)

    @pytest.fixture
    def session(self, store: Store) -> Session:
        """An empty session."""
        return store.create_session("work")

    # ------------------------------------------------------------------ append and read

    @pytest.mark.feature("A2", "C2", "E6")
    def test_messages_come_back_in_order_with_all_their_fields(self, session: Session) -> None:
        usage = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=3, reasoning_tokens=2, cost=0.0125)
        session.system("be brief")
        session.user("hello", id="u1", metadata={"k": [1, None, True]})
        session.assistant(
            [{"type": "text", "text": "hi"}], model="m", usage=usage, duration=1.5, parent_id="u1", raw=b'{"b": 1}'
        )
        first, second, third = session.messages()
        assert [m.role for m in (first, second, third)] == ["system", "user", "assistant"]
        assert (second.id, second.metadata, second.turn) == ("u1", {"k": [1, None, True]}, 1)
        assert (third.text, third.model, third.usage, third.duration) == ("hi", "m", usage, 1.5)
        assert (third.parent_id, third.raw, third.status) == ("u1", b'{"b": 1}', "complete")
        assert [m.seq for m in (first, second, third)] == [1, 2, 3]

    @pytest.mark.feature("C2")
    def test_unknown_fields_and_roles_survive(self, session: Session) -> None:
        given = {"role": "oracle", "content": "so it is", "refusal": None, "audio": {"id": "a1"}, "x": 1}
        session.append(given)
        message = session.messages()[0]
        assert message.role == "oracle"
        assert message.extra == {"refusal": None, "audio": {"id": "a1"}, "x": 1}

    @pytest.mark.feature("A2")
    def test_what_append_returns_is_what_is_read(self, session: Session) -> None:
        returned = [session.user("a"), *session.append({"role": "tool", "content": "b"}, {"role": "user"})]
        assert returned == session.messages()
        assert [m.turn for m in returned] == [1, 1, 2]

    @pytest.mark.feature("A2")
    def test_an_append_of_many_is_all_or_nothing(self, session: Session) -> None:
        with pytest.raises(Invalid):
            session.append({"role": "user", "content": "fine"}, {"role": "user", "content": object()})
        assert said(session) == []
        assert session.refresh().revision == 0

    @pytest.mark.feature("A6")
    def test_every_append_call_is_one_revision(self, session: Session) -> None:
        session.user("a")
        session.append({"role": "user", "content": "b"}, {"role": "user", "content": "c"})
        assert session.revision == 2
        assert session.refresh().revision == 2

    @pytest.mark.feature("D10")
    def test_windows_from_either_end(self, session: Session) -> None:
        session.append(*({"role": "user", "content": str(n)} for n in range(1, 11)))

        def texts(**window: int) -> list[str]:
            return [m.text for m in session.messages(**window)]  # type: ignore[arg-type]

        assert texts(limit=3) == ["8", "9", "10"]
        assert texts(limit=3, after=2) == ["3", "4", "5"]
        assert texts(limit=3, before=5) == ["2", "3", "4"]
        assert texts(after=7) == ["8", "9", "10"]
        assert texts(before=3) == ["1", "2"]
        assert texts(after=3, before=6) == ["4", "5"]
        assert texts(limit=0) == texts(after=10) == texts(before=1) == []
        assert texts(limit=99) == [str(n) for n in range(1, 11)]

    @pytest.mark.feature("D6")
    def test_the_limit_counts_after_the_filter(self, session: Session) -> None:
        for n in range(6):
            session.append({"role": "user", "content": str(n)}, *[{"role": "tool", "content": "t"}] * 40)
        assert [m.text for m in session.messages(limit=2, tools=False)] == ["4", "5"]
        assert [m.text for m in session.messages(limit=2, after=0, tools=False)] == ["0", "1"]
        assert [m.text for m in session.iter_messages(tools=False)] == list("012345")

    @pytest.mark.feature("D10")
    def test_a_stream_shows_the_path_as_it_was_when_it_began(self, session: Session) -> None:
        session.append(*({"role": "user", "content": str(n)} for n in range(1200)))
        stream = session.iter_messages()
        assert next(stream).text == "0"
        session.user("later")
        session.rewind(3)
        assert [m.seq for m in stream] == list(range(2, 1201))

    @pytest.mark.feature("A2")
    def test_a_message_is_found_by_its_id(self, session: Session) -> None:
        given, own = session.user("a", id="mine"), session.user("b")
        assert session.message("mine") == given
        assert session.message(own.id) == own
        with pytest.raises(NotFound):
            session.message("nosuch")
        session.rewind(1)
        with pytest.raises(NotFound):
            session.message(own.id)

    @pytest.mark.feature("C5")
    @pytest.mark.parametrize(
        "bad", ["text", None, 5, ["role"], {"content": "no role"}, {"role": 5}, {"role": "user", "metadata": 3}]
    )
    def test_what_is_no_message_is_refused(self, session: Session, bad: Any) -> None:
        with pytest.raises(Invalid):
            session.append(bad)
        with pytest.raises(ValueError):
            session.append(bad)
        assert said(session) == []

    @pytest.mark.feature("C5")
    def test_a_misspelt_field_is_refused(self, session: Session) -> None:
        with pytest.raises(TypeError, match="metdata"):
            session.user("a", metdata={})  # type: ignore[call-arg]

    # ------------------------------------------------------------------ races and retries

    @pytest.mark.feature("A2")
    @pytest.mark.promise("R8")
    def test_a_retry_stores_nothing_twice(self, session: Session) -> None:
        first = session.user("pay", idempotency_key="k")
        session.user("next")
        assert session.user("pay", idempotency_key="k") == first
        assert said(session) == ["pay", "next"]
        batch = [{"role": "user", "content": "x"}, {"role": "user", "content": "y"}]
        assert session.append(*batch, idempotency_key="b") == session.append(*batch, idempotency_key="b")
        assert said(session) == ["pay", "next", "x", "y"]

    @pytest.mark.feature("A2")
    def test_a_key_with_other_content_is_a_conflict(self, session: Session) -> None:
        session.user("pay 5", idempotency_key="k")
        with pytest.raises(Conflict):
            session.user("pay 6", idempotency_key="k")
        with pytest.raises(Conflict):
            session.append({"role": "user", "content": "pay 5"}, {"role": "user"}, idempotency_key="k")
        assert said(session) == ["pay 5"]

    @pytest.mark.feature("A2")
    def test_equal_content_in_another_key_order_is_the_same(self, session: Session) -> None:
        session.user("a", metadata={"x": 1, "y": 2}, idempotency_key="k")
        session.user("a", metadata={"y": 2, "x": 1}, idempotency_key="k")
        assert said(session) == ["a"]

    @pytest.mark.feature("A2")
    def test_a_key_counts_only_on_the_path(self, session: Session) -> None:
        session.user("a")
        session.user("b", idempotency_key="k")
        session.rewind(1)
        session.user("c", idempotency_key="k")
        assert said(session) == ["a", "c"]
        session.switch("main")
        session.user("b", idempotency_key="k")
        assert said(session) == ["a", "b"]

    @pytest.mark.feature("A2")
    def test_a_batch_that_a_rewind_cut_in_two_is_stored_again(self, session: Session) -> None:
        batch = [{"role": "user", "content": text} for text in "abc"]
        session.append(*batch, idempotency_key="k")
        session.rewind(1)
        session.user("x")
        session.user("y")
        assert [m.text for m in session.append(*batch, idempotency_key="k")] == ["a", "b", "c"]
        assert said(session) == ["a", "x", "y", "a", "b", "c"]

    @pytest.mark.feature("A2")
    def test_a_retry_of_a_very_large_batch_is_the_same(self, session: Session) -> None:
        batch = [{"role": "user", "content": letter * 9_000_000} for letter in "abc"]
        first = session.append(*batch, idempotency_key="k")
        assert [m.seq for m in session.append(*batch, idempotency_key="k")] == [m.seq for m in first]

    @pytest.mark.promise("R10")
    def test_a_lost_race_is_told(self, session: Session) -> None:
        session.user("a")
        seen = session.revision
        session.append({"role": "user", "content": "b"}, expected_revision=seen)
        with pytest.raises(Conflict) as lost:
            session.append({"role": "user", "content": "c"}, expected_revision=seen)
        assert (lost.value.expected, lost.value.found) == (seen, seen + 1)
        assert said(session) == ["a", "b"]

    @pytest.mark.feature("D9")
    def test_threads_lose_and_reorder_nothing(self, store: Store, session: Session) -> None:
        def write(writer: int) -> list[int]:
            mine = store.get_session(session.id)
            return [mine.user(f"{writer}:{n}").seq for n in range(25)]

        with ThreadPoolExecutor(8) as pool:
            seqs = list(pool.map(write, range(8)))
        assert sorted(seq for per_writer in seqs for seq in per_writer) == list(range(1, 201))
        texts = said(session)
        for writer in range(8):
            assert [t for t in texts if t.startswith(f"{writer}:")] == [f"{writer}:{n}" for n in range(25)]

    @pytest.mark.feature("D9")
    def test_one_failing_operation_does_not_harm_the_others(self, store: Store, session: Session) -> None:
        session.user("start")

        def write(n: int) -> bool:
            mine = store.get_session(session.id)
            try:
                mine.append({"role": "user", "content": str(n)}, expected_revision=10**6 if n % 3 == 0 else None)
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            stored = list(pool.map(write, range(90)))
        assert stored == [n % 3 != 0 for n in range(90)]
        assert sorted(said(session)[1:]) == sorted(str(n) for n in range(90) if n % 3)

    # ------------------------------------------------------------------ branches and time

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
        for wrong in (2, 10**9):
            with pytest.raises(NotFound):
                session.rewind(wrong)
        no_points: tuple[Any, ...] = (-1, "1", True, None)
        for nothing in no_points:
            with pytest.raises(Invalid):
                session.rewind(nothing)
        with pytest.raises(NotFound):
            session.switch("nosuch")
        session.fork(name="taken")
        with pytest.raises(Conflict):
            session.fork(name="taken")

    @pytest.mark.feature("C5", "F7")
    def test_a_message_of_another_path_is_no_point_of_this_one(self, store: Store, session: Session) -> None:
        for text in "abc":
            session.user(text)
        left = session.messages()[2]
        session.rewind(1)
        session.user("x")
        session.user("y")
        foreign = store.create_session().user("elsewhere")
        for wrong in (left, foreign):
            with pytest.raises(NotFound):
                session.rewind(wrong)
            with pytest.raises(NotFound):
                session.fork(wrong)
        session.rewind(session.messages()[1])
        assert said(session) == ["a", "x"]

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

    # ------------------------------------------------------------------ sessions and scopes

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
    def test_a_name_is_unique_per_agent_and_workspace(self, store: Store, session: Session) -> None:
        with pytest.raises(Conflict):
            store.create_session("work")
        store.create_session("work", agent="other")
        store.create_session("work", workspace="/elsewhere")

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

    # ------------------------------------------------------------------ large content

    @pytest.mark.feature("E3")
    @pytest.mark.parametrize("size", [65_000, 70_000, 1_100_000, 3_000_000])
    def test_large_messages_come_back_whole(self, store: Store, session: Session, size: int) -> None:
        text, raw = "ä" * (size // 2), bytes(range(256)) * (size // 256)
        session.user(text, raw=raw)
        message = session.messages()[0]
        assert (message.text, message.raw) == (text, raw)

    @pytest.mark.feature("E3")
    def test_equal_content_is_stored_once(self, store: Store, session: Session) -> None:
        for _ in range(3):
            session.user("x" * 200_000)
        assert store.stats().blobs == 1

    # ------------------------------------------------------------------ feed

    @pytest.mark.feature("E6")
    def test_the_feed_shows_every_change_once_in_order(self, store: Store, session: Session) -> None:
        session.user("a")
        session.append({"role": "user"}, {"role": "user"})
        session.rewind(1)
        session.undo()
        changes = list(store.events())
        assert [c.kind for c in changes] == ["session", "entries", "entries", "rewind", "undo"]
        assert [(c.first_seq, c.last_seq) for c in changes][1:3] == [(1, 1), (2, 3)]
        assert [c.kind for c in store.events(after=changes[2].cursor)] == ["rewind", "undo"]
        assert list(store.events(after=changes[-1].cursor)) == []

    @pytest.mark.feature("C5")
    @pytest.mark.parametrize("cursor", ["", "1", "1.", "2.5", "1.xyz", "1.-1", "1." + "f" * 40, "'; drop table feed"])
    def test_a_cursor_that_we_did_not_give_is_refused(self, store: Store, cursor: str) -> None:
        with pytest.raises(Invalid):
            list(store.events(after=cursor))

    # ------------------------------------------------------------------ time

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

    # ------------------------------------------------------------------ what it says of itself

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

    @pytest.mark.feature("E6")
    def test_a_read_only_store_reads_and_refuses_to_write(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            persistent = store.capabilities.persistent
            session_id = store.create_session("kept").id
        with self.open(tmp_path, read_only=True) as store:
            assert store.capabilities.read_only
            for write in (store.create_session, lambda: store.delete_session(session_id)):
                with pytest.raises(holdfast.Unsupported):
                    write()
            assert len(store.list_sessions()) == (1 if persistent else 0)

    @pytest.mark.feature("C5")
    def test_a_closed_store_says_so(self, tmp_path: Path) -> None:
        store = self.open(tmp_path)
        session = store.create_session()
        store.close()
        store.close()
        for call in (store.create_session, session.messages, lambda: session.user("a"), store.verify):
            with pytest.raises(holdfast.Closed):
                call()
