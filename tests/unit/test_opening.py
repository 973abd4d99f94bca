"""Opening a store that was changed from outside, or not closed properly: what only repeats other rows is made again."""

from __future__ import annotations

import logging
from pathlib import Path

import apsw
import pytest
from _damages import DAMAGES, build, rows_of

import takeback
from takeback import Corrupt

pytestmark = [pytest.mark.promise("R11"), pytest.mark.trial("T84")]

# Tags of sessions as they are found by them; the rank of a session is known from its own row.
TAGS = [name for name in DAMAGES if " tag" in f" {name}" and "of a session changed" not in name]


@pytest.mark.parametrize("name", TAGS)
def test_tags_are_made_again_from_the_sessions(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    path = build(tmp_path / "a.db")
    before = rows_of(path)["session_tag"]
    database = apsw.Connection(str(path))
    DAMAGES[name][0](database)
    database.close()
    assert rows_of(path)["session_tag"] != before
    with pytest.raises(Corrupt, match="open the store once for writing"):
        takeback.open(path, read_only=True)
    with caplog.at_level(logging.WARNING), takeback.open(path) as store:
        assert [session.name for session in store.list_sessions(tag="a")] == ["talk"]
        assert not store.list_sessions(tag="c")
        assert not store.verify()
    assert "the tags of sessions were damaged" in caplog.text
    assert rows_of(path)["session_tag"] == before


@pytest.mark.parametrize("name", [name for name in DAMAGES if "metadata " in name])
def test_rows_of_metadata_are_made_again_from_the_details(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = build(tmp_path / "a.db")
    before = rows_of(path)["session_meta"]
    database = apsw.Connection(str(path))
    DAMAGES[name][0](database)
    database.close()
    assert rows_of(path)["session_meta"] != before
    with pytest.raises(Corrupt, match="open the store once for writing"):
        takeback.open(path, read_only=True)
    with caplog.at_level(logging.WARNING), takeback.open(path) as store:
        assert [session.name for session in store.list_sessions(metadata={"m": 1})] == ["talk", "forked"]
        assert not store.list_sessions(metadata={"c": 1})
        assert not store.verify()
    assert "the metadata pairs of sessions were damaged" in caplog.text
    assert rows_of(path)["session_meta"] == before


def test_an_index_is_made_again_from_its_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A row that an index has lost would be missing from listings without a word."""
    path = build(tmp_path / "a.db")
    _spoil_index(path, "session_label")
    with takeback.open(path) as store:
        wanted = {session.id for session in store.iter_sessions()}
    _spoil_index(path, "session_rank")
    with caplog.at_level(logging.WARNING), takeback.open(path) as store:
        assert {session.id for session in store.iter_sessions()} == wanted
        assert not store.verify()
    assert "an index of session was damaged" in caplog.text


def _spoil_index(path: Path, name: str) -> None:
    """Take a row out of an index, as a lost write does: the index is declared to cover nothing, and filled again."""
    database = apsw.Connection(str(path))
    (sql,) = database.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
    database.pragma("writable_schema", True)
    where = " AND 0" if " WHERE " in sql else " WHERE 0"
    for text in (sql + where, sql):
        database.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (text, name))
        database.pragma("schema_version", database.pragma("schema_version") + 1)
        database.close()
        database = apsw.Connection(str(path))
        database.pragma("writable_schema", True)
        if text != sql:
            database.execute(f"REINDEX {name}")
    database.close()


def test_pages_of_entries_that_cannot_be_read_do_not_keep_a_store_from_being_repaired(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with takeback.open(path, durability="relaxed") as store:
        session = store.create_session("long")
        session.append(*({"role": "user", "content": f"message {number} " + "x" * 100} for number in range(600)))
    database = apsw.Connection(str(path))
    asked = "SELECT pageno FROM dbstat WHERE name = 'entry' AND pagetype = 'leaf' ORDER BY pageno"
    (_, page, *_) = [number for (number,) in database.execute(asked)]
    database.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)
    with takeback.open(path) as store:
        with pytest.raises(Corrupt):
            store.get_session("long").messages()
        done = store.repair()
    assert done.lost
    assert not done.report
