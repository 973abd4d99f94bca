"""The contract: many writers, and retries."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from takeback import Conflict, Session, Store

from .base import Contract, said


class Races(Contract):
    """Many writers, and retries."""

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
