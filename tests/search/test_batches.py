"""A large backlog is indexed in batches, and what a batch has done is kept, however long its texts are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import _postgres
import takeback
from takeback import Store
from takeback.search import feeding, fts
from takeback.search.index import IndexedText
from takeback.search.postings import Postings
from takeback.storage.connection import SqliteTx, connect

pytestmark = pytest.mark.feature("E10")


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with takeback.open(tmp_path / "a.db" if request.param == "SQLite" else _postgres.url(tmp_path)) as store:
        yield store


def _counted(patch: pytest.MonkeyPatch, fail_at: int = 0) -> list[int]:
    """Note how many documents there are after each batch; one of them fails at its end."""
    real: Callable[..., Any] = feeding.batch
    counts = list[int]()

    def batch(main: Any, side: Any, *rest: Any) -> Any:
        done = real(main, side, *rest)
        counts.append(side.all("SELECT count(*) FROM search_doc")[0][0])
        if len(counts) == fail_at:
            raise takeback.Error("the power failed")
        return done

    patch.setattr(feeding, "batch", batch)
    return counts


def _fill(store: Store) -> list[str]:
    """Store entries of two sessions and a fork in turns, some of them together, one of them very long."""
    sessions = [store.create_session(name) for name in ("one", "two")]
    said = list[str]()
    for number in range(24):
        texts = [f"marmot n{number}x{part} " + "of many words " * (400 if number == 7 else 5) for part in range(3)]
        sessions[number % 2].append(*({"role": "user", "content": text} for text in texts))
        said += texts
        if number == 11:
            sessions.append(sessions[0].fork(as_session=True, name="three"))
        sessions[-1].rename(f"name {number}")
    return said


def test_long_texts_end_a_batch(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "BYTES", 600)
    said = _fill(store)
    counts = _counted(monkeypatch)
    found = store.search("marmot", kinds=["message"], limit=1000)
    assert len({hit.ref for hit in found}) == len(found) == len(said)
    steps = [after - before for before, after in zip([0, *counts], counts, strict=False)]
    assert len(steps) > 8
    assert max(steps) < 20
    assert not store.check_search()


def test_what_a_batch_has_done_is_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "BYTES", 600)
    said = _fill(store)
    with monkeypatch.context() as patch:
        counts = _counted(patch, fail_at=5)
        with pytest.raises(takeback.Error, match="the power failed"):
            store.search("marmot")
    kept = counts[-2]
    counts = _counted(monkeypatch)
    assert len(store.search("marmot", kinds=["message"], limit=1000)) == len(said)
    assert counts[0] > kept > 0, "it goes on where it was"
    assert not store.check_search()


def test_indexing_may_take_longer_than_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server and this side end what takes longer than a call, unless it says that it will."""
    with takeback.open(_postgres.url(tmp_path)) as store:
        backend: Any = store._backend
        monkeypatch.setattr(backend, "_timeout", 0.2)
        monkeypatch.setattr(backend, "_end", "set_config('transaction_timeout', '200', true)")

        def add(tx: Any) -> None:
            Postings().add(tx, [IndexedText(1, "", 1 << 32 | 1, 0, 0, ["marmot"])])
            tx.all("SELECT pg_sleep(2)")

        backend.write(add)
        with pytest.raises(takeback.Error):
            backend.write(lambda tx: tx.all("SELECT pg_sleep(2)"))


def test_an_erasure_runs_few_statements_however_many_words_go() -> None:
    connection = connect(":memory:", flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
    tx, index, ran = SqliteTx(connection.cursor()), fts.Fts(), list[str]()
    tx.all(fts.SQL)
    words = [[f"{kind}{number:05}" for number in range(3000)] for kind in ("kept", "gone")]
    index.add(tx, [IndexedText(number, "", number << 32 | 1, 0, 0, said) for number, said in enumerate(words, 1)])
    connection.set_exec_trace(lambda cursor, sql, bindings: ran.append(sql) or True)
    index.erase(tx, "", [2])
    connection.set_exec_trace(None)
    assert len(ran) < 20
    assert index.containing(tx, "", "e00", 1000) == []
    assert index.containing(tx, "", "t000", 1000) == words[0][:100]
    assert index.check(tx, "") == []
    connection.close()
