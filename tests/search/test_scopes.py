"""One file has the index of all scopes: what another scope stores is not even looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

import takeback
from takeback import Store
from takeback.testing.work import SqliteSteps

pytestmark = pytest.mark.feature("E10")
QUERIES = ("marmot", "armo", "marmot and nothing else")


def test_a_search_costs_the_same_however_much_another_scope_has(tmp_path: Path) -> None:
    said = [{"role": "user", "content": f"another marmot, a{number}marmot, and more"} for number in range(400)]
    with SqliteSteps() as counter, takeback.open(tmp_path / "work.db") as store:
        ours, theirs = store.scoped("acme"), store.scoped("rival")
        for each in (ours, store):
            each.create_session("one").user("the marmot")
        before = [_cost(counter, each, query) for each in (ours, store) for query in QUERIES]
        theirs.create_session("many").append(*said)
        assert theirs.search("marmot")
        after = [_cost(counter, each, query) for each in (ours, store) for query in QUERIES]
    assert all(large <= small + 100 for small, large in zip(before, after, strict=True)), (before, after)


def _cost(counter: SqliteSteps, store: Store, query: str) -> int:
    assert store.search(query)
    with counter.counted() as work:
        assert store.search(query)
    return work.total


def test_no_word_of_a_purged_session_stays_where_another_scope_has_it(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "work.db") as store:
        ours, theirs = store.scoped("acme"), store.scoped("rival")
        for each in (ours, theirs, store):
            each.create_session("same").user("the quagga")
            assert each.search("quagga")
        ours.purge_session("same")
        rows = store._searcher
        assert rows is not None
        kept = rows._beside.read(lambda main, side: side.all("SELECT term FROM word WHERE term LIKE '%quagga'"))
    assert len(kept) == 2
