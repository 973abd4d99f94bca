"""One write in copies, exports and repaired stores, under damage, and how it finds its entries."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback import Custom, Native, Session, Store
from takeback.ops import customs

THEN = datetime(2025, 5, 5, tzinfo=UTC)
LONG = "a text that is long enough to be found inside the value again"
STEP: dict[str, Any] = {"state": {"n": 1}, "tasks": ["t"], "idempotency_key": "step"}


def _items(content: str) -> list[Any]:
    return [
        Native({"in": LONG}, role="user", text=LONG, id="n1", created_at=THEN),
        Native({"m": {"role": "user", "content": LONG}}, role="user", form="anthropic", pointer="/m", origin="harness"),
        Custom("k", {"a": b"\xff"}, id="c1", contents=[content], created_at=THEN),
        Custom("run", None, opens_turn=True),
        Custom("big", "x" * 100_000, id="c2"),
    ]


def _made(store: Store) -> Session:
    session = store.create_session("s")
    first = session.user("first")
    session.write(*_items(store.put_content(b"needed")), **STEP)
    session.write(Custom("k", 2, id="side"), at=first, move=False)
    return session


def _shown(session: Session) -> list[Any]:
    every = session.customs(all_branches=True)
    return [[(m.text, m.origin, m.created_at, m.stored_at, m.turn) for m in session.messages()], [*every]]


@pytest.mark.feature("C6")
@pytest.mark.parametrize("way", ["copy", "jsonl", "repair", "backup"])
def test_what_was_written_comes_along_and_is_not_written_again(tmp_path: Path, way: str) -> None:
    there = tmp_path / "there.db"
    with takeback.open(tmp_path / "here.db") as store:
        session = _made(store)
        shown, name = _shown(session), session.id
        if way == "copy":
            takeback.copy(store, there)
        elif way == "repair":
            store.repair(there)
        elif way == "backup":
            store.backup(there)
        else:
            store.export([session], tmp_path / "lines.jsonl")
            with takeback.open(there) as other:
                other.load(tmp_path / "lines.jsonl")
    with takeback.open(there) as store:
        session = store.get_session(name)
        assert _shown(session) == shown
        assert not store.verify()
        revision = session.revision
        again = session.write(*_items(store.put_content(b"needed")), **STEP)
        assert again.revision == revision, "the key came along"
        with pytest.raises(takeback.Conflict):
            session.write(Custom("k", "other"), **STEP)
        store.prune(dry_run=False, spare_seconds=0)
        assert store.get_content(session.custom("c1").contents[0]) == b"needed"


@pytest.mark.feature("C2")
def test_pruning_keeps_contents_that_a_custom_entry_needs(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        session = store.create_session("s")
        kept, loose = store.put_content(b"kept" * 100), store.put_content(b"loose" * 100)
        session.append(Custom("k", 1, contents=[kept]))
        time.sleep(0.01)  # what was stored in this very millisecond is spared
        store.prune(dry_run=False, spare_seconds=0)
        assert store.get_content(kept) == b"kept" * 100
        with pytest.raises(takeback.NotFound):
            store.get_content(loose)
        with pytest.raises(takeback.Conflict, match="purged"):
            session.append(Custom("k", 1, contents=[loose]))


@pytest.mark.feature("C2")
@pytest.mark.parametrize(
    ("where", "index"),
    [(customs.OF_KIND, "entry_custom"), (customs.BY_PREFIX, "entry_mid"), (customs.BY_ID, "entry_mid")],
)
def test_custom_entries_are_found_through_an_index(tmp_path: Path, where: str, index: str) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        sql = f"EXPLAIN QUERY PLAN SELECT key FROM entry {where}"
        plan = store._read(lambda tx: tx.all(sql, [1] * sql.count("?")))
    text = "\n".join(row[3] for row in plan)
    assert f"USING INDEX {index}" in text or f"USING COVERING INDEX {index}" in text, text
    assert "SCAN" not in text
