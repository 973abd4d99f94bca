"""docs/SPEC.md says what runs: its SQL is executed, and a store written from the page alone is a store."""

import hashlib
import re
import sqlite3
import struct
import sys
import zlib
from pathlib import Path

import apsw
import msgspec
import pytest

import takeback

PAGE = (Path(__file__).parents[2] / "docs" / "SPEC.md").read_text("utf-8")
SCHEMA, *STATEMENTS = re.findall(r"```sql\n(.*?)```", PAGE, re.S)


def check(*values: object) -> int:
    return zlib.crc32(msgspec.msgpack.encode(values))


def packed(*values: object) -> bytes:
    return msgspec.msgpack.encode(values)


@pytest.mark.feature("F5")
def test_every_statement_of_the_page_runs() -> None:
    database = apsw.Connection(":memory:")
    database.execute(SCHEMA).fetchall()
    count = 0
    for block in STATEMENTS:
        for sql in filter(str.strip, block.split(";")):
            database.execute("EXPLAIN " + sql, [None] * sql.count("?")).fetchall()
            count += 1
    assert count > 40


@pytest.mark.feature("F5")
def test_the_page_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "tools"))
    import gen_spec

    assert gen_spec.fill(PAGE) == PAGE
    sys.modules.pop("gen_spec")


@pytest.mark.feature("F5")
def test_a_store_written_from_the_page_alone_is_a_store(tmp_path: Path) -> None:
    """Another program, with the standard SQLite binding and this page: Takeback reads it and goes on."""
    path = tmp_path / "foreign.db"
    database = sqlite3.connect(path)
    database.executescript("PRAGMA journal_mode=wal;" + SCHEMA + ";PRAGMA application_id=0x54414B45;")
    numbers, genesis, salt = (1, 1, *[0] * 12), bytes(32), bytes(range(16))
    session_id, uid = "1" * 25, "2" * 25
    body = b'{"role":"user","content":"from elsewhere"}'
    content = hashlib.sha256(b"takeback body 1\n" + salt + struct.pack(">q", len(body)) + body + b"\0").digest()
    header = struct.pack(">H25sqH7sqqH14q", 25, uid.encode(), 1, 7, b"message", 5, 9, 14, *numbers)
    entry = hashlib.sha256(b"takeback entry 1\n" + genesis + header + content).digest()

    key = f"agent:main:session:{session_id}"
    shown = (session_id, key, "main", "main", "imported", None, "", 0, "active", 0, 0, 0, None, 5, 9, 3, 0, 0)
    shown += (1, 1, 0, 1, 1)
    rest = ("\nred\n", 0, 0, 0, 0, 1, uid, entry, *numbers[1:], [], 1, 5)
    chain = (4, *numbers, [], salt, None, entry)
    rows = {
        "agent": ("", 1, "main", 0, 1, 5, 5, b"{}"),
        "agent_version": ("", 1, 1, 5, b"{}"),
        "session": ("", 1, *shown, packed(*rest)),
        "session_tag": ("", "red", 0, 0, 1),
        "detail": ("", 1, b"{}"),
        "branch": ("", 1, uid, 1, "main", None, 0, 0, None, 0, 5, 0, genesis, 0),
        "entry": ("", 1 << 32 | 1, "message", 5, 1, None, body, None, None, packed(*chain)),
        "migration": (1, "store", 5),
        "meta": ("store", b"s" * 16),
    }
    changes = [("", 1, "agent", 0, 1, 0, 0), ("", 2, "session", 1, 1, 0, 0), ("", 3, "entries", 1, 1, 1, 1)]
    for table, row in [*rows.items(), *(("feed", change) for change in changes)]:
        database.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * (len(row) + 1))})", (*row, check(*row)))
    database.commit()
    database.close()

    with takeback.open(path) as store:
        session = store.find_session("imported")
        assert session is not None
        assert [m.text for m in session.messages()] == ["from elsewhere"]
        assert [each.id for each in store.list_sessions(tag="red")] == [session.id]
        session.user("and on")
        assert not store.verify(), str(store.verify())
