"""Wrappers are backends: they keep the contract and add one thing."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.client.store import Store
from takeback.clock import SystemClock
from takeback.errors import BackendError, Unsupported
from takeback.storage.memory import MemoryBackend
from takeback.storage.sqlite import SqliteBackend
from takeback.storage.wrap import Faulty, ReadOnly, Traced, Wrapper
from takeback.testing.contract import said
from takeback.testing.contract.messages import Messages
from takeback.testing.contract.races import Races
from takeback.testing.contract.regressions import Regressions
from takeback.testing.contract.stores import Stores


class TestThroughAWrapper(Messages, Races, Stores, Regressions):
    """What asks everything of a backend, through a wrapper that only passes on."""

    def open(self, tmp_path: Path, **options: Any) -> Store:
        clock = options.pop("clock", SystemClock())
        backend = SqliteBackend(str(tmp_path / "s.db"), clock=clock, **options)
        return Store(Traced(Wrapper(backend), lambda sql, seconds: None), clock=clock)


@pytest.mark.feature("E6")
def test_tracing_shows_statements_and_never_values() -> None:
    seen: Counter[str] = Counter()
    store = Store(Traced(MemoryBackend(), lambda sql, seconds: seen.update([sql])), clock=SystemClock())
    session = store.create_session("secret name")
    session.user("secret title")
    seen.clear()
    session.user("secret text")
    assert sum(seen.values()) == 3, "an append that follows another is two inserts and an update"
    assert all("secret" not in sql for sql in seen)


@pytest.mark.feature("F2")
def test_an_append_runs_the_same_statements_at_any_length() -> None:
    seen: list[str] = []
    store = Store(Traced(MemoryBackend(), lambda sql, seconds: seen.append(sql)), clock=SystemClock())
    session = store.create_session()
    counts = []
    for size in (1, 10, 1000, 5000):
        session.append(*({"role": "user", "content": "x"} for _ in range(size)))
        seen.clear()
        session.user("one more")
        counts.append(len(seen))
    assert len(set(counts)) == 1


@pytest.mark.feature("F2")
@pytest.mark.parametrize("crossings", [10, 1000])
def test_a_point_is_found_in_few_reads_however_many_branches_its_path_crosses(crossings: int) -> None:
    seen: list[str] = []
    store = Store(Traced(MemoryBackend(), lambda sql, seconds: seen.append(sql)), clock=SystemClock())
    session = store.create_session()
    session.user("r")
    for n in range(crossings):
        session.user(f"draft {n}")
        session.rewind(session.head.seq - 1)
        session.user(f"final {n}")
    for seq in (1, 2, crossings // 2, crossings):
        seen.clear()
        assert session.stats(at=seq).messages == seq
        assert len(seen) <= 3 + 3 * crossings.bit_length()
    seen.clear()
    assert len(session.messages(limit=50)) == min(50, crossings + 1)
    assert len(seen) <= 4 + 3 * crossings.bit_length()


@pytest.mark.feature("C5")
def test_a_fault_in_any_statement_leaves_nothing_behind(tmp_path: Path) -> None:
    countdown = [10**9]

    def before(sql: str) -> None:
        countdown[0] -= 1
        if countdown[0] == 0:
            raise BackendError("planted")

    inner = SqliteBackend(str(tmp_path / "s.db"))
    with Store(Faulty(inner, before), clock=SystemClock()) as store:
        session = store.create_session()
        session.append(*({"role": "user", "content": str(n)} for n in range(6)))
        expected = said(session)
        steps = [
            lambda: session.user("x", idempotency_key="k", id="m"),
            lambda: session.append({"role": "user"}, {"role": "user", "content": "y" * 100_000}),
            lambda: session.rewind(2),
            lambda: session.fork(1),
            lambda: store.create_session("other"),
            lambda: store.delete_session(session.id),
        ]
        for step in steps:
            for n in range(1, 40):
                countdown[0] = n
                try:
                    step()
                except BackendError:
                    pass
                else:
                    break
                finally:
                    countdown[0] = 10**9
                assert said(session.refresh()) == expected
            else:
                pytest.fail("the step never succeeded")
            expected = said(session.refresh())
        assert not store.verify(), str(store.verify())


@pytest.mark.feature("E6")
def test_read_only_refuses_before_the_engine_sees_it() -> None:
    store = Store(ReadOnly(MemoryBackend()), clock=SystemClock())
    assert store.capabilities.read_only
    with pytest.raises(Unsupported):
        store.create_session()
    assert isinstance(store, takeback.Store)
