"""Search on PostgreSQL is complete while others write: no open transaction on the server hides what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import _postgres
import takeback
from takeback.search import feeding, terms

pytestmark = pytest.mark.feature("E10")


@contextmanager
def _under_way() -> Iterator[None]:
    """Hold a writing transaction open, as a backup or a migration of somebody else's would."""
    with psycopg.connect(_postgres.server().dsn()) as connection:
        connection.execute("SELECT pg_current_xact_id()")
        yield


def test_what_is_stored_behind_an_older_transaction_is_found(tmp_path: Path) -> None:
    with takeback.open(_postgres.url(tmp_path)) as store:
        session = store.create_session("one")
        session.user("the first marmot")
        assert len(store.search("marmot", kinds=["message"])) == 1
        with _under_way():
            session.user("the second marmot")
            assert len(store.search("marmot", kinds=["message"])) == 2
            session.user("the third marmot")
            assert [hit.seq for hit in store.search("third", kinds=["message"])] == [3]
            session.rewind(1)
            assert len(store.search("marmot", kinds=["message"])) == 1
            session.rename("a burrow")
            assert [hit.kind for hit in store.search("burrow")] == ["title"]
            store.delete_session(session)
            assert not store.search("marmot")
            assert not store.check_search()
        store.restore_session(session)
        assert len(store.search("marmot", kinds=["message"])) == 1
        assert len(store.search("marmot", kinds=["message"], branches=True)) == 3, "none twice"
        assert not store.check_search()


def test_what_is_erased_behind_an_older_transaction_is_gone(tmp_path: Path) -> None:
    with takeback.open(_postgres.url(tmp_path)) as store:
        session = store.create_session("one")
        session.user("a secret marmot", id="it")
        with _under_way():
            session.redact("it", dry_run=False)
            assert not store.search("marmot", branches=True)
            store.create_session("two").user("another marmot")
            assert len(store.search("marmot", kinds=["message"])) == 1
        assert len(store.search("marmot", kinds=["message"])) == 1
        assert not store.check_search()


def test_a_backlog_behind_an_older_transaction_is_read_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "CHANGES", 3)
    monkeypatch.setattr(feeding, "ENTRIES", 4)
    with takeback.open(_postgres.url(tmp_path)) as store:
        sessions = [store.create_session(f"session {number}") for number in range(3)]
        with _under_way():
            for number in range(20):
                said = [{"role": "user", "content": f"marmot {number} {part}"} for part in range(number % 4 + 1)]
                sessions[number % 3].append(*said)
            found = store.search("marmot", kinds=["message"], limit=100)
            assert len(found) == len({hit.ref for hit in found}) == sum(number % 4 + 1 for number in range(20))
            assert not store.check_search()
        assert len(store.search("marmot", kinds=["message"], limit=100)) == len(found)
        sessions[0].user("one more marmot")
        assert len(store.search("marmot", kinds=["message"], limit=100)) == len(found) + 1


def test_an_index_of_other_terms_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an update of the library: what was stored before is found by the terms of now."""
    with takeback.open(_postgres.url(tmp_path)) as store:
        store.create_session("one").user("a ｶﾞｲﾄﾞ for marmots")
        with monkeypatch.context() as before:
            before.setattr(terms, "VERSION", terms.VERSION - 1)
            before.setattr(terms, "_composed", lambda text: text)
            assert store.search("marmots")
            assert not store.search("ガイド")
    with takeback.open(_postgres.url(tmp_path)) as store:
        assert "another version" in store.check_search().problems[0].what
        assert len(store.search("ガイド", kinds=["message"])) == 1
        assert not store.check_search()
        store.purge_session("one")
        assert not store.search("ガイド")
        assert not store.check_search()
