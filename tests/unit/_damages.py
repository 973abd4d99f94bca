"""A store with some of everything, and a table of damages that can be planted in it.

A damage is a change made with SQL in the closed store: ``flip`` leaves the check of the row as it was, ``forge``
computes it again, so that only what other records say can give it away.
"""

from __future__ import annotations

import contextlib
import functools
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

import takeback
from takeback import presence
from takeback.storage.base import row_check
from takeback.testing.contract.base import die

# ---------------------------------------------------------------------- the store that is damaged


def build(path: Path) -> Path:
    """Make a small store with some of everything in it."""
    with takeback.open(path, durability="relaxed") as store:
        store.create_agent("coder", name="Coder", system_prompt="be brief", config={"x": 1})
        store.update_agent("coder", metadata={"team": "one"})
        agent = store.get_agent("coder")
        for number in range(3):
            agent.state.set("count", number)
        talk = store.create_session("talk", agent="coder", title="A talk", tags=["a", "b"], metadata={"m": 1})
        for number in range(1, 6):
            talk.user(f"question {number}", id=f"user-{number}")
            talk.assistant(
                f"answer {number}", usage={"input_tokens": number, "output_tokens": 2, "cost": 0.5}, raw=b"{}"
            )
        talk.set_tasks(["one", "two"])
        talk.update_task(0, "completed")
        talk.set_plan("the plan")
        talk.state.set("k", 1)
        talk.state.set("k", 2)
        talk.add_build_attempt()
        talk.user("with a key", idempotency_key="once")
        talk.checkpoint("here", description="a point")
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        talk.append({"role": "assistant", "content": None, "tool_calls": [call]})
        talk.tool_result("c1", "done")
        talk.append({"role": "model", "parts": [{"functionCall": {"name": "g", "args": {}}}]})
        talk.append({"role": "user", "parts": [{"functionResponse": {"name": "g", "response": {"a": 1}}}]})
        talk.user("see", attachments=[b"attached " * 9])
        talk.user("large " + random.Random(1).randbytes(40_000).hex())
        talk.user("last but one")
        talk.user("last")
        talk.fork(4, name="aside")
        talk.rewind(8)
        talk.undo()
        talk.switch("aside")
        talk.user("on the side")
        talk.user("more on the side")
        talk.switch("main")
        talk.rename("Another title")
        child = store.create_session("child", agent="coder", kind="subagent", parent=talk)
        child.user("from the parent")
        other = talk.fork(6, as_session=True, name="forked")
        other.user("on its own")
        gone = store.create_session("gone", agent="passing")
        gone.user("in the trash")
        store.delete_session(gone)
        purged = store.create_session("purged", agent="coder")
        purged.user("erased")
        purged.rename("erased title")
        store.purge_session(purged)
        store.main_session("coder").user("main")
        _leave_under_way(store.create_session("live", agent="coder"))
        store.scoped("elsewhere").create_session("talk", agent="coder").user("in another scope")
        store.checkpoint_agent("coder", "first", description="of an agent")
        talk.user("behind the first")
        child.rewind(0)
        store.checkpoint_agent("coder", "second", type="automatic")
        talk.user("behind the second")
        store.checkpoint_agent("coder", "third", type="recovery")
        last = store.create_session("last", agent="other")
        last.user("the end")
        last.tag("late")
    _add_files(path)
    return path


def _add_files(path: Path) -> None:
    """Put in what is kept of files: a directory as it was seen, and a change of files under way."""
    database = apsw.Connection(str(path))
    holder = presence.encode(presence.here(0))
    for table, row in (
        ("seen", ("", "", b"", b"{}")),
        ("seen", ("", "w", b"src", b"{}")),
        ("journal", ("", "w", 1, "j" * 25, 7, holder, b"/w", b"[]")),
    ):
        _insert(table, *row)(database)
    database.close()


def _leave_under_way(session: takeback.Session) -> None:
    """Leave a session as kill -9 leaves it: held, half an answer written, messages received and waiting."""
    session.user("go")
    for text in ("one", "two", "three"):
        session.send(text)
    session.receive(1)
    with session:
        stream = session.stream(model="m")
        for text, kind in (("think", "thinking"), ("half an ", "text"), ("answer", "text")):
            stream.write(text, kind)
            stream.flush()
        die(session)


TABLES = (
    *("agent", "agent_version", "session", "detail", "branch", "entry", "call", "link", "lost", "checkpoint"),
    *("idempotency", "operation", "blob", "chunk", "feed", "lease", "stream", "delta", "inbox"),
    *("seen", "journal", "agent_checkpoint", "pin", "meta", "migration"),
)


def rows_of(path: Path) -> dict[str, set[Any]]:
    """Give all rows of all tables; text as bytes, since damaged text may be no UTF-8."""
    database = apsw.Connection(str(path))
    try:
        return {table: set(database.execute(_all_columns(database, table)).fetchall()) for table in TABLES}
    finally:
        database.close()


def _all_columns(database: apsw.Connection, table: str) -> str:
    columns = database.execute(f"SELECT name, type FROM pragma_table_info('{table}')").fetchall()
    shown = [f"CAST({name} AS BLOB)" if kind == "TEXT" else name for name, kind in columns]
    return f"SELECT {', '.join(shown)} FROM {table}"


Plant = Callable[[apsw.Connection], None]


def _flip(table: str, where: str, change: str) -> Plant:
    """Change a value and leave the check as it was."""

    def plant(db: apsw.Connection) -> None:
        db.execute(f"UPDATE {table} SET {change} WHERE {where}")
        assert db.changes() == 1

    return plant


def _forge(table: str, where: str, change: str) -> Plant:
    """Change a value and compute the check again."""

    def plant(db: apsw.Connection) -> None:
        names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        ((rowid, *_),) = db.execute(f"SELECT {_rowid(table)}, * FROM {table} WHERE {where}").fetchall()
        db.execute(f"UPDATE {table} SET {change} WHERE {where}")
        ((*row,),) = db.execute(f"SELECT * FROM {table} WHERE {_rowid(table)} = ?", (rowid,)).fetchall()
        for name, check in _checks(table, names, row).items():
            db.execute(f"UPDATE {table} SET {name} = ? WHERE {_rowid(table)} = ?", (check, rowid))

    return plant


_KEYS = {
    "idempotency": "scope || session || ikey || branch || '.' || seq",
    "call": "scope || key || what || call_id",
    "link": "scope || hash || key",
    "agent_version": "scope || agent || '.' || version",
    "lease": "scope || session",
    "stream": "scope || session || id",
    "delta": "scope || stream || '.' || n",
    "inbox": "scope || session || '.' || n",
    "seen": "scope || '.' || place || '.' || hex(dir)",
    "journal": "scope || '.' || place",
    "pin": "scope || session || '.' || checkpoint",
}


def _rowid(table: str) -> str:
    keys = {"call": "call_id || what || key", "link": "hash || key", "idempotency": "ikey", "meta": "name"}
    return keys.get(table, _KEYS.get(table, "rowid"))


def _checks(table: str, names: list[str], row: list[Any]) -> dict[str, int]:
    if table == "session":
        return {"chk": row_check(row[:21]), "head_chk": row_check([row[0], *row[22:-1]])}
    if table == "entry":
        return {"chk": row_check(row[:8]), "chain_chk": row_check([row[0], row[3], *row[9:24]])}
    return {"chk": row_check(row[:-1])}


def _drop(table: str, where: str) -> Plant:
    def plant(db: apsw.Connection) -> None:
        db.execute(f"DELETE FROM {table} WHERE {where}")
        assert db.changes() >= 1

    return plant


def _swap_entries(db: apsw.Connection) -> None:
    """Let two entries change places, with all their checks right."""
    both = db.execute("SELECT * FROM entry WHERE key IN (1 << 32 | 5, 1 << 32 | 6) ORDER BY key").fetchall()
    db.execute("DELETE FROM entry WHERE key IN (1 << 32 | 5, 1 << 32 | 6)")
    for row, key in zip(both, (1 << 32 | 6, 1 << 32 | 5), strict=True):
        new = [key, *row[1:]]
        new[8], new[24] = _checks("entry", [], new).values()
        db.execute(f"INSERT INTO entry VALUES ({', '.join('?' * 25)})", new)


def _add_entry(db: apsw.Connection) -> None:
    """Put an entry behind the last one, with checks that are right."""
    (row,) = db.execute("SELECT * FROM entry WHERE key >> 32 = 1 ORDER BY key DESC LIMIT 1").fetchall()
    new = [row[0] + 1, *row[1:]]
    new[8], new[24] = _checks("entry", [], new).values()
    db.execute(f"INSERT INTO entry VALUES ({', '.join('?' * 25)})", new)


def _insert(table: str, *values: Any) -> Plant:
    def plant(db: apsw.Connection) -> None:
        row = (*values, row_check(values))
        db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)

    return plant


def _circle(db: apsw.Connection) -> None:
    _forge("session", "sid = 1", "parent = 2")(db)


def _all(*plants: Plant) -> Plant:
    return lambda db: [plant(db) for plant in plants] and None


def _e(seq: int, branch: int = 1) -> str:
    return f"key = ({branch} << 32 | {seq})"


_LAST = "key = (SELECT max(key) FROM entry WHERE key >> 32 = 1)"
_SPILLED = "blob_id = (SELECT blob_id FROM blob ORDER BY size DESC LIMIT 1)"
_ATTACHED = "blob_id = (SELECT blob_id FROM blob ORDER BY size LIMIT 1)"
_ENTRY = {"entry": 1, "lost": 1}
_PIN = "session = 1"
_OTHER_TOTALS = "checksum = CAST(substr(checksum, 1, 83) || x'63' || substr(checksum, 85) AS BLOB)"  # 99 messages
_ALL_OF_AGENT = {"agent_checkpoint": 3, "pin": 9}  # a state that they were taken of is lost
_FIRST = {"agent_checkpoint": 2, "pin": 9}  # of sessions that it alone pins, the second one has the pins then
_PASSED_ON = {"agent_checkpoint": 2, "pin": 2}  # it is gone, and the next one has its pins
_PINNED = {"agent_checkpoint": 1, "pin": 1}
_SPILL = {**_ENTRY, "blob": 1, "chunk": 1, "link": 1}

# Name: how to plant it, the kinds of problem that tell of it, and in how many rows of which tables the repaired copy
# may differ from the store as it was.
DAMAGES: dict[str, tuple[Plant, set[str], dict[str, int]]] = {
    "content of an entry changed": (_flip("entry", _e(3), "body = x'7b7d'"), {"entry"}, _ENTRY),
    "content of an entry forged": (
        _forge("entry", _e(3), "body = CAST(replace(CAST(body AS TEXT), 'question', 'Question') AS BLOB)"),
        {"chain"},
        _ENTRY,
    ),
    "numbers of an entry changed": (_flip("entry", _e(4), "input_tokens = input_tokens + 64"), {"entry"}, {}),
    "numbers of an entry forged": (_forge("entry", _e(4), "cost_nano = cost_nano + 1"), {"chain"}, {}),
    "turn of an entry changed": (_flip("entry", _e(5), "turns = turns + 8"), {"entry"}, {}),
    "time of an entry forged": (_forge("entry", _e(5), "at_ms = at_ms + 1"), {"chain"}, _ENTRY),
    "kind of an entry forged": (_forge("entry", _e(5), "kind = 'tool'"), {"chain"}, _ENTRY),
    "id of an entry changed": (_flip("entry", _e(5), "mid = 'user-9'"), {"entry"}, {}),
    "check of an entry changed": (_flip("entry", _e(5), "chk = chk + 1"), {"entry"}, {}),
    "scope of an entry forged": (_forge("entry", _e(5), "scope = 'other'"), {"entry"}, {}),
    "raw bytes of an entry changed": (_flip("entry", _e(6), "raw = x'7b20'"), {"entry"}, _ENTRY),
    "salt of an entry changed": (_flip("entry", _e(6), "salt = zeroblob(16)"), {"entry"}, _ENTRY),
    "salt of an entry forged": (_forge("entry", _e(6), "salt = zeroblob(16)"), {"chain"}, _ENTRY),
    "entry missing in the middle": (_drop("entry", _e(7)), {"missing"}, _ENTRY),
    "several entries missing": (_drop("entry", f"{_e(7)} OR {_e(8)}"), {"missing"}, {"entry": 2, "lost": 2}),
    "first entry missing": (_drop("entry", _e(1)), {"missing"}, _ENTRY),
    "last entry missing": (_drop("entry", _LAST), {"missing"}, _ENTRY),
    "entry where a branch starts missing": (_drop("entry", _e(4)), {"missing"}, _ENTRY),
    "entry of state missing": (_drop("entry", _e(11)), {"missing"}, _ENTRY),
    "entry behind the end": (_add_entry, {"entry"}, {}),
    "hash of an entry changed": (_flip("entry", _e(5), "hash = zeroblob(32)"), {"entry"}, {}),
    "hash of an entry forged": (_forge("entry", _e(5), "hash = zeroblob(32)"), {"chain"}, {}),
    "hash of the last entry forged": (_forge("entry", _LAST, "hash = zeroblob(32)"), {"chain"}, {}),
    "two entries swapped": (_swap_entries, {"chain"}, {"entry": 2, "lost": 2}),
    "text of an entry no UTF-8": (_flip("entry", _e(5), "kind = CAST(x'ff' AS TEXT)"), {"entry"}, _ENTRY),
    "entries of a branch that is not there": (_drop("branch", "bid = 2"), {"missing"}, {"branch": 1}),
    "blob of a large message missing": (_all(_drop("chunk", _SPILLED), _drop("blob", _SPILLED)), {"blob"}, _SPILL),
    "record of a blob missing": (_drop("blob", _SPILLED), {"blob"}, {"blob": 1}),
    "chunk of a blob changed": (_flip("chunk", _SPILLED, "data = zeroblob(9)"), {"blob"}, _SPILL),
    "chunk of a blob forged": (_forge("chunk", _SPILLED, "data = x'00', codec = 'raw'"), {"blob"}, _SPILL),
    "chunk of a blob missing": (_drop("chunk", _SPILLED), {"blob"}, _SPILL),
    "chunk too many": (_insert("chunk", "", 1, 7, "raw", b"x"), {"blob"}, {}),
    "size of a blob forged": (_forge("blob", _SPILLED, "size = size + 1"), {"blob"}, {}),
    "number of chunks forged": (_forge("blob", _SPILLED, "chunks = 2"), {"blob"}, {}),
    "hash of a blob changed": (_flip("blob", _SPILLED, "hash = hex(zeroblob(32))"), {"blob"}, {}),
    "attachment missing": (
        _all(_drop("chunk", _ATTACHED), _drop("blob", _ATTACHED)),
        {"blob"},
        {"blob": 1, "chunk": 1, "lost": 1},
    ),
    "title of a session changed": (_flip("session", "sid = 1", "title = 'Other'"), {"session"}, {}),
    "name of a session changed": (_flip("session", "sid = 1", "name = 'other'"), {"session"}, {"session": 1}),
    "tags of a session changed": (_flip("session", "sid = 1", "tags = ''"), {"session"}, {"session": 1}),
    "text of a session no UTF-8": (
        _flip("session", "sid = 1", "label = CAST(x'ff' AS TEXT)"),
        {"session"},
        {},
    ),
    "head of a session changed": (_flip("session", "sid = 1", "head_seq = head_seq - 1"), {"session"}, {}),
    "head of a session forged": (_forge("session", "sid = 1", "head_seq = head_seq - 1"), {"session", "entry"}, {}),
    "hash of a head changed": (_flip("session", "sid = 1", "head_hash = zeroblob(32)"), {"session"}, {}),
    "totals of a session forged": (_forge("session", "sid = 1", "input_tokens = input_tokens + 1"), {"session"}, {}),
    "tasks of a session forged": (_forge("session", "sid = 1", "tasks = 7"), {"session"}, {}),
    "completed tasks forged": (_forge("session", "sid = 1", "completed = 2"), {"session"}, {}),
    "build attempts forged": (_forge("session", "sid = 1", "builds = 0"), {"session"}, {}),
    "versions of state forged": (_forge("session", "sid = 1", "states = 0"), {"state"}, {}),
    "revision of a session changed": (_flip("session", "sid = 1", "revision = revision + 4"), {"session"}, {}),
    "rank of a session forged": (_forge("session", "sid = 1", "rank = 1"), {"feed"}, {}),
    "last change of a session forged": (_forge("session", "sid = 1", "updated = updated - 1"), {"missing"}, {}),
    "session row missing": (_drop("session", "sid = 3"), {"missing"}, {"session": 1}),
    "last session row missing": (
        _drop("session", "sid = (SELECT max(sid) FROM session)"),
        {"branch"},
        {"session": 1, "agent": 1, "agent_version": 1, "feed": 1},
    ),
    "parent missing": (_forge("session", "sid = 2", "parent = 99"), {"missing"}, {"session": 1}),
    "circle of parents": (_circle, {"session"}, {}),
    "details missing": (_drop("detail", "sid = 1"), {"detail"}, {"detail": 1}),
    "details changed": (_flip("detail", "sid = 1", "doc = x'7b7d'"), {"detail"}, {"detail": 1}),
    "details unreadable": (_forge("detail", "sid = 1", "doc = x'5b'"), {"detail"}, {"detail": 1}),
    "details of nobody": (_insert("detail", 99, b"{}"), {"missing"}, {}),
    "agent changed": (_flip("agent", "aid = 1", "fields = x'7b7d'"), {"agent"}, {}),
    "agent missing": (_drop("agent", "aid = 1"), {"missing", "agent"}, {"agent": 1}),
    "last agent missing": (_drop("agent", "id = 'other'"), {"missing", "agent"}, {"agent": 1}),
    "version of an agent missing": (
        _drop("agent_version", "agent = 1 AND version = 4"),
        {"missing"},
        {"agent_version": 1},
    ),
    "newest version of an agent missing": (
        _drop("agent_version", "agent = 1 AND version = 5"),
        {"agent"},
        {"agent_version": 1, **_ALL_OF_AGENT},
    ),
    "version of an agent changed": (
        _flip("agent_version", "agent = 1 AND version = 4", "state = x'7b7d'"),
        {"agent"},
        {"agent_version": 1},
    ),
    "state of an agent unreadable": (
        _forge("agent_version", "agent = 1 AND version = 4", "state = x'21'"),
        {"agent"},
        {"agent_version": 1},
    ),
    "number of an agent's version forged": (_forge("agent", "aid = 1", "version = 4"), {"agent"}, {}),
    "name of a branch changed": (_flip("branch", "bid = 2", "name = 'x'"), {"branch"}, {"branch": 1}),
    "parent of a branch changed": (_flip("branch", "bid = 2", "parent = NULL"), {"branch"}, {}),
    "parent of a branch forged": (_forge("branch", "bid = 4", "parent = 2"), {"branch", "chain"}, {}),
    "start of a branch changed": (_flip("branch", "bid = 2", "fork_seq = 3"), {"branch"}, {}),
    "start of a branch forged": (_forge("branch", "bid = 2", "fork_seq = 3"), {"missing"}, {}),
    "id of a branch changed": (_flip("branch", "bid = 2", "uid = '" + "0" * 25 + "'"), {"branch"}, {}),
    "id of a branch forged": (_forge("branch", "bid = 2", "uid = '" + "0" * 25 + "'"), {"chain"}, {}),
    "end of a branch changed": (_flip("branch", "bid = 2", "tip_seq = 5"), {"branch"}, {}),
    "end of a branch forged": (_forge("branch", "bid = 2", "tip_seq = 5"), {"branch", "entry"}, {}),
    "hash of the end of a branch forged": (_forge("branch", "bid = 2", "tip_hash = zeroblob(32)"), {"branch"}, {}),
    "jump of a branch forged": (_forge("branch", "bid = 2", "jump_seq = 2"), {"branch"}, {}),
    "depth of a branch forged": (_forge("branch", "bid = 4", "depth = 3"), {"branch"}, {}),
    "session of a branch forged": (_forge("branch", "bid = 2", "session = 3"), {"missing"}, {}),
    "branch missing": (_drop("branch", "bid = 4"), {"missing"}, {"branch": 1}),
    "operation changed": (_flip("operation", "oid = 2", "after = x'7b7d'"), {"operation"}, {"operation": 1}),
    "operation missing in the middle": (_drop("operation", "oid = 3"), {"missing"}, {"operation": 1}),
    "last operation missing": (_drop("operation", "kind = 'tag'"), {"missing"}, {"operation": 1}),
    "operation unreadable": (_forge("operation", "oid = 2", "before = x'5b'"), {"operation"}, {"operation": 1}),
    "undo of nothing": (_forge("operation", "kind = 'undo'", "undoes = 99"), {"operation"}, {"operation": 2}),
    "undone by nothing": (_forge("operation", "undone_by > 0", "undone_by = 1"), {"operation"}, {"operation": 2}),
    "idempotency key changed": (
        _flip("idempotency", "ikey = 'once'", "last_seq = 3"),
        {"idempotency"},
        {"idempotency": 1},
    ),
    "idempotency key of nothing": (
        _forge("idempotency", "ikey = 'once'", "seq = 900, last_seq = 900"),
        {"idempotency"},
        {"idempotency": 1},
    ),
    "record of a call missing": (_drop("call", "call_id = 'c1' AND what = 'result'"), {"call"}, {}),
    "record of a call by name missing": (_drop("call", "call_id = 'call-0' AND what = 'result'"), {"call"}, {}),
    "record of a call changed": (_flip("call", "call_id = 'c1' AND what = 'call'", "chk = chk + 1"), {"call"}, {}),
    "call too many": (_insert("call", "", 1 << 32 | 2, "call", "c9"), {"call"}, {}),
    "call of no entry": (_insert("call", "", 1 << 32 | 900, "call", "c9"), {"call"}, {}),
    "link missing": (_drop("link", "key > 0 AND hash = (SELECT hash FROM blob ORDER BY size LIMIT 1)"), {"link"}, {}),
    "link changed": (
        _flip("link", "hash = (SELECT hash FROM blob ORDER BY size LIMIT 1)", "chk = chk + 1"),
        {"link"},
        {},
    ),
    "link too many": (_insert("link", "", "0" * 64, 1 << 32 | 2), {"link"}, {}),
    "link of no entry": (_insert("link", "", "0" * 64, 1 << 32 | 900), {"link"}, {}),
    "checkpoint changed": (_flip("checkpoint", "cid = 1", "seq = 3"), {"checkpoint"}, {"checkpoint": 1}),
    "checkpoint of another entry": (_forge("checkpoint", "cid = 1", "seq = 3"), {"checkpoint"}, {"checkpoint": 1}),
    "hash of a checkpoint changed": (_flip("checkpoint", "cid = 1", "hash = zeroblob(32)"), {"checkpoint"}, {}),
    "checkpoint of nothing": (_forge("checkpoint", "cid = 1", "branch = 99"), {"checkpoint"}, {}),
    "checkpoint of an agent changed": (
        _flip("agent_checkpoint", "acid = 1", "name = 'other'"),
        {"checkpoint"},
        {"agent_checkpoint": 1},
    ),
    "type of a checkpoint of an agent changed": (
        _flip("agent_checkpoint", "acid = 2", "type = 'manual'"),
        {"checkpoint"},
        {},
    ),
    "fields in a checkpoint of an agent changed": (
        _flip("agent_checkpoint", "acid = 2", "fields = x'7b7d'"),
        {"checkpoint"},
        {},
    ),
    "fields in a checkpoint of an agent forged": (
        _forge("agent_checkpoint", "acid = 2", "fields = x'7b7d'"),
        {"checkpoint"},
        _PASSED_ON,
    ),
    "position of a checkpoint of an agent changed": (
        _flip("agent_checkpoint", "acid = 2", "position = position + 8"),
        {"checkpoint"},
        {"agent_checkpoint": 1},
    ),
    "sessions of a checkpoint of an agent changed": (
        _flip("agent_checkpoint", "acid = 1", "sessions = sessions + 1"),
        {"checkpoint"},
        {},
    ),
    "checksum of a checkpoint of an agent forged": (
        _forge("agent_checkpoint", "acid = 2", "checksum = zeroblob(72)"),
        {"checkpoint"},
        _PASSED_ON,
    ),
    "statistics of a checkpoint of an agent changed": (
        _flip("agent_checkpoint", "acid = 2", _OTHER_TOTALS),
        {"checkpoint"},
        {},
    ),
    "statistics of a checkpoint of an agent forged": (
        _forge("agent_checkpoint", "acid = 2", _OTHER_TOTALS),
        {"checkpoint"},
        {},
    ),
    "checkpoint of an agent missing": (_drop("agent_checkpoint", "acid = 1"), {"checkpoint"}, _FIRST),
    "pin changed": (_flip("pin", f"{_PIN} AND checkpoint = 2", "seq = 3"), {"checkpoint"}, _PINNED),
    "branch of a pin changed": (_flip("pin", f"{_PIN} AND checkpoint = 2", "branch = 2"), {"checkpoint"}, {}),
    "hash of a pin changed": (_flip("pin", f"{_PIN} AND checkpoint = 2", "hash = zeroblob(32)"), {"checkpoint"}, {}),
    "check of a pin changed": (_flip("pin", f"{_PIN} AND checkpoint = 2", "chk = chk + 1"), {"checkpoint"}, {}),
    "trash of a pin changed": (_flip("pin", f"{_PIN} AND checkpoint = 1", "hidden = 1"), {"checkpoint"}, {}),
    "pin of another entry": (_forge("pin", f"{_PIN} AND checkpoint = 2", "seq = 3"), {"checkpoint"}, _PINNED),
    "pin missing": (_drop("pin", f"{_PIN} AND checkpoint = 2"), {"checkpoint"}, _PASSED_ON),
    "pin of nothing": (_insert("pin", "", 1, 99, 1, 0, 0, bytes(32), 0), {"checkpoint"}, {}),
    "pin too many": (
        _insert("pin", "", 3, 3, 4, 0, 0, bytes(32), 0),
        {"checkpoint"},
        _PASSED_ON,
    ),
    "directory seen changed": (_flip("seen", "place = 'w'", "doc = x'7b'"), {"seen"}, {"seen": 1}),
    "sweeps of contents changed": (_flip("seen", "place = ''", "doc = x'7b'"), {"seen"}, {"seen": 1}),
    "change of files changed": (_flip("journal", "1", "steps = x'5b'"), {"journal"}, {"journal": 1}),
    "change of files of nobody": (_forge("journal", "1", "session = 99"), {"journal"}, {"journal": 1}),
    "change of files by nobody": (_forge("journal", "1", "holder = x'5b'"), {"journal"}, {"journal": 1}),
    "lease changed": (_flip("lease", "1", "token = token + 1"), {"lease"}, {"lease": 1}),
    "lease of nobody": (_insert("lease", "", 99, 1, None, 0, 0, 0), {"lease"}, {}),
    "holder of a lease unreadable": (_forge("lease", "1", "holder = x'5b'"), {"lease"}, {"lease": 1}),
    "stream changed": (_flip("stream", "1", "seq = seq + 1"), {"stream"}, {"stream": 1, "delta": 3, "detail": 1}),
    "stream on no branch": (_forge("stream", "1", "branch = 99"), {"stream"}, {"stream": 1, "delta": 3, "detail": 1}),
    "stream about nothing": (
        _forge("stream", "1", "about = x'5b'"),
        {"stream"},
        {"stream": 1, "delta": 3, "detail": 1},
    ),
    "stream missing": (_drop("stream", "1"), {"stream"}, {"stream": 1, "delta": 3, "detail": 1}),
    "piece of a stream changed": (_flip("delta", "n = 2", "data = x'21'"), {"stream"}, {"delta": 2, "stream": 1}),
    "piece of a stream missing": (_drop("delta", "n = 2"), {"stream"}, {"delta": 2, "stream": 1}),
    "first piece of a stream missing": (_drop("delta", "n = 1"), {"stream"}, {"delta": 3, "stream": 1}),
    "last piece of a stream missing": (_drop("delta", "n = 3"), {"stream"}, {"delta": 1, "stream": 1}),
    "sent message changed": (_flip("inbox", "n = 2", "body = x'7b7d'"), {"inbox"}, {"inbox": 2, "detail": 1}),
    "sent message unreadable": (_forge("inbox", "n = 3", "body = x'5b'"), {"inbox"}, {"inbox": 1, "detail": 1}),
    "sent message missing": (_drop("inbox", "n = 2"), {"inbox"}, {"inbox": 2, "detail": 1}),
    "received message of nothing": (_forge("inbox", "n = 1", "key = 900 << 32"), {"inbox"}, {"inbox": 3, "detail": 1}),
    "last sent message missing": (_drop("inbox", "n = 3"), {"missing"}, {"inbox": 1, "detail": 1}),
    "all sent messages missing": (_drop("inbox", "n > 0"), {"missing"}, {"inbox": 3, "detail": 1}),
    "sent message to nobody": (_insert("inbox", "", 99, 1, "x", None, 0, b"{}", 0), {"inbox"}, {}),
    "change missing": (_drop("feed", "pos = 9"), {"feed"}, {}),
    "change changed": (_flip("feed", "pos = 9", "last_seq = 1"), {"feed"}, {}),
    "change forged": (_forge("feed", "pos = 9", "last_seq = 900"), {"missing"}, {}),
    "change of too few entries": (_forge("feed", "pos = 9", "first_seq = 1"), {"feed"}, {}),
    "change of nobody": (_forge("feed", "pos = 9", "session = 99"), {"missing"}, {}),
    "last change missing": (_drop("feed", "pos = (SELECT max(pos) FROM feed)"), {"feed"}, {"feed": 1}),
    "schema record changed": (_flip("migration", "version = 1", "chk = chk + 1"), {"migration"}, {}),
    "another record of the store changed": (
        _all(_insert("meta", "more", b"x"), _flip("meta", "name = 'more'", "value = x'79'")),
        {"meta"},
        {},
    ),
}


@functools.cache
def _template() -> bytes:
    """Give the file of the store, which is all of it once it is closed."""
    with tempfile.TemporaryDirectory() as place:
        return build(Path(place) / "a.db").read_bytes()


def damaged(tmp_path: Path, name: str) -> tuple[Path, dict[str, set[Any]]]:
    """Plant a damage in a closed store; give it with the rows that it had."""
    path = tmp_path / "a.db"
    path.write_bytes(_template())
    before = rows_of(path)
    database = apsw.Connection(str(path))
    DAMAGES[name][0](database)
    database.close()
    return path, before


# ---------------------------------------------------------------------- damage by chance


def plant_some(path: Path, rng: random.Random) -> list[str]:
    """Damage a closed store in one to four places; say how."""
    database = apsw.Connection(str(path))
    try:
        return [_plant_one(database, rng) for _ in range(rng.choice((1, 1, 2, 4)))]
    finally:
        database.close()


def _plant_one(db: apsw.Connection, rng: random.Random) -> str:
    table = rng.choice([name for name in TABLES[:-2] if db.execute(f"SELECT 1 FROM {name}").fetchall()])
    key = _KEYS.get(table, "rowid")
    (chosen,) = rng.choice(db.execute(f"SELECT {key} FROM {table}").fetchall())
    columns = db.execute(f"SELECT name, type FROM pragma_table_info('{table}') WHERE NOT pk").fetchall()
    columns = [each for each in columns if "chk" not in each[0]]
    how = rng.choice(("flip", "flip", "forge", "drop"))
    if how == "drop" or not columns:
        db.execute(f"DELETE FROM {table} WHERE {key} = ?", (chosen,))
        return f"drop {table} {chosen}"
    name, kind = rng.choice(columns)
    ((old,),) = db.execute(f"SELECT {name} FROM {table} WHERE {key} = ?", (chosen,)).fetchall()
    with contextlib.suppress(apsw.ConstraintError):
        db.execute(f"UPDATE {table} SET {name} = ? WHERE {key} = ?", (_other(old, kind, rng), chosen))
        if how == "forge":
            ((*row,),) = db.execute(f"SELECT * FROM {table} WHERE {key} = ?", (chosen,)).fetchall()
            for check, value in _checks(table, [], row).items():
                db.execute(f"UPDATE {table} SET {check} = ? WHERE {key} = ?", (value, chosen))
    return f"{how} {name} of {table} {chosen}, was {old!r:.60}"


def _other(old: Any, kind: str, rng: random.Random) -> Any:
    if kind == "INTEGER":
        return (old or 0) ^ 1 << rng.choice((0, 1, 2, 5, 31))
    if kind == "TEXT":
        return rng.choice((f"{old or ''}x", f"x{(old or '')[1:]}"))
    data = bytearray(old or b"x")
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)
