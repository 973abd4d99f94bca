"""Operations on an agent with many sessions: how many statements they take, which does not follow the sessions."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

import _postgres
import takeback
from takeback import Store
from takeback.storage.wrap import Traced

pytestmark = [pytest.mark.feature("E1", "E4", "E5", "E7"), pytest.mark.trial("T10")]

T = TypeVar("T")
_FEW, _MANY = 5, 75
_PER_SESSION = 0.25  # statements at most: each reads or writes many rows


@contextmanager
def opened(engine: str, place: Path, scope: str) -> Iterator[tuple[Store, list[str]]]:
    """Open a store, and collect the statements that it runs."""
    url = str(place / "s.db") if engine == "sqlite" else _postgres.app_url(place)
    seen = list[str]()
    with takeback.open(url) as inner:
        traced = Traced(inner._backend, lambda sql, _: seen.append(sql))
        with closing(Store(traced, clock=inner._clock, scope=scope, owner=False)) as store:
            yield store, seen


def fill(store: Store, count: int) -> None:
    """Make an agent with sessions that have names, tags and a message each."""
    for number in range(count):
        session = store.create_session(f"name {number}", agent="coder", tags=["all", f"t{number % 3}"])
        session.user(f"message {number}")


def counted(engine: str, place: Path, count: int) -> dict[str, int]:
    """Return how many statements each operation takes on an agent with so many sessions."""
    found = Counter[str]()
    with opened(engine, place, f"of {count}") as (store, seen):
        fill(store, count)

        def run(name: str, call: Callable[[], T]) -> T:
            seen.clear()
            made = call()
            found[name] = len(seen)
            return made

        def shown() -> list[tuple[str, str | None, int, tuple[str, ...]]]:
            return sorted((each.id, each.name, each.head.seq, each.tags) for each in store.iter_sessions())

        point = run("first checkpoint", lambda: store.checkpoint_agent("coder", "first"))
        before = shown()
        run("delete", lambda: store.delete_agent("coder"))
        assert (shown(), store.list_sessions(tag="all").items) == ([], ())
        run("undo of the deletion", store.undo)
        assert (shown(), len(before)) == (before, count)
        run("redo of the deletion", store.redo)
        run("restore of what was deleted", lambda: store.restore_checkpoint(point))
        assert shown() == before
        for each in [*store.iter_sessions()]:
            each.assistant("more")
        later = shown()
        run("restore of heads", lambda: store.restore_checkpoint(point))
        assert shown() == before
        run("undo of a restore", store.undo)
        assert shown() == later
        assert len([*store.iter_sessions(tag="t0")]) == len(range(0, count, 3))
        assert not (report := store.verify()), str(report)
    return dict(found)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_statements_do_not_follow_the_number_of_sessions(engine: str, tmp_path: Path) -> None:
    few, many = (counted(engine, tmp_path, count) for count in (_FEW, _MANY))
    most = _PER_SESSION * (_MANY - _FEW)
    grown = {name: many[name] - few[name] for name in few if many[name] - few[name] > most}
    assert not grown, f"more statements for {_MANY - _FEW} sessions more: {grown}"
