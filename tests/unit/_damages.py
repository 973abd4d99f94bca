"""A store with some of everything, and a table of damages that can be planted in it.

A damage is a change of rows of the closed store: ``flip`` leaves the check of the row as it was, ``forge`` computes it
again, so that only what other records say can give it away. Both change columns with SQL; ``flip_packed`` and
``forge_packed`` change fields that lie in a column with others.
"""

from __future__ import annotations

import contextlib
import functools
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import takeback
from takeback import presence
from takeback.records import stream
from takeback.records.source import Source
from takeback.storage.files import Presence
from takeback.tables import schema
from takeback.tables.entries import Chain, EntryRow
from takeback.tables.table import Table, matches, row_check
from takeback.testing.contract.base import die


@pytest.fixture(autouse=True)
def rot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let damage be the disk's own: it leaves the times of the file, so opening has no reason to check anything."""
    monkeypatch.setattr(Presence, "recorded", lambda self, path: True)


# ---------------------------------------------------------------------- the store that is damaged


def build(path: Path) -> Path:
    """Make a small store with some of everything in it."""
    with takeback.open(path, durability="relaxed") as store:
        store.create_agent("coder", name="Coder", system_prompt="be brief", config={"x": 1}, idempotency_key="agent")
        store.update_agent("coder", metadata={"team": "one"})
        agent = store.get_agent("coder")
        for number in range(3):
            agent.state.set("count", number)
        made = {"title": "A talk", "tags": ["a", "b"], "metadata": {"m": 1}, "idempotency_key": "session"}
        talk = store.create_session("talk", agent="coder", **made)
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
        talk.checkpoint("here", description="a point", idempotency_key="checkpoint")
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
        talk.rename("Another title", idempotency_key="operation")
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
        _leave_calls_open(store.main_session("coder"))
        _leave_under_way(store.create_session("live", agent="coder"))
        store.scoped("elsewhere").create_session("talk", agent="coder").user("in another scope")
        store.checkpoint_agent("coder", "first", description="of an agent")
        talk.user("behind the first")
        child.rewind(0)
        store.checkpoint_agent("coder", "second", type="automatic")
        talk.user("behind the second")
        store.checkpoint_agent("coder", "third", type="recovery")
        _add_timeline(store, path.parent / "work")
        last = store.create_session("last", agent="other")
        last.user("the end")
        last.tag("late")
        _put_documents(store)
    _add_files(path)
    return path


def _put_documents(store: takeback.Store) -> None:
    """Put documents: small, large, deleted, in two scopes; the last change of the store is another one."""
    docs = store.docs(("users", "ann"))
    docs.put("small", {"a": 1}, idempotency_key="document")
    docs.put("small", {"a": 2}, ttl=10**8)
    docs.put("large", random.Random(3).randbytes(70_000))
    docs.put("large text", ["x" * 70_000])
    docs.put("gone", 1)
    docs.delete("gone")
    store.scoped("elsewhere").docs("n").put("k", b"bytes")
    store.get_session("last").user("behind the documents")


def _add_timeline(store: takeback.Store, folder: Path) -> None:
    """Let two sessions and a person change files, two rewinds take some of it back, and a third session be purged."""
    folder.mkdir(exist_ok=True)
    (folder / "kept").write_text("kept")
    names = ("one", "other", "erased")
    one, other, erased = (store.create_session(name, agent="coder", workspace=str(folder)) for name in names)
    for session, name in ((one, "mine"), (other, "theirs"), (erased, "gone")):
        with session, session.tool("write"):
            (folder / name).write_text(name)
    (folder / "gone").unlink()
    (folder / "kept").write_text("by hand")
    with one:
        one.user("and on")
    place = store.workspace(folder)
    first = [*place.timeline(limit=100)][-1]
    place.preview_rewind(first, paths=["theirs"]).apply()
    store.undo(place.preview_rewind(first, paths=["mine"]).apply())
    store.purge_session(erased)


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


def _leave_calls_open(session: takeback.Session) -> None:
    """Let tool calls be announced and not be answered, one of them started."""
    calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in ("o1", "o2")]
    session.user("main")
    session.append({"role": "assistant", "content": None, "tool_calls": calls})
    session.tool(session.pending_calls()[0]).__enter__()
    session.user("behind the calls")


def _leave_under_way(session: takeback.Session) -> None:
    """Leave a session as kill -9 leaves it: held, half an answer written, messages received and waiting."""
    session.user("go")
    for text in ("one", "two", "three"):
        session.send(text, idempotency_key=f"sent {text}")
    session.receive(1)
    with session:
        stream = session.stream(model="m")
        for text, kind in (("think", "thinking"), ("half an ", "text"), ("answer", "text")):
            stream.write(text, kind)
            stream.flush()
        die(session)


TABLES = tuple(schema.BY_NAME)


def rows_of(path: Path) -> dict[str, set[Any]]:
    """Return all rows of all tables; text as bytes, since damaged text may be no UTF-8."""
    database = apsw.Connection(str(path))
    try:
        return {table: set(database.execute(_all_columns(database, table)).fetchall()) for table in TABLES}
    finally:
        database.close()


def records_of(path: Path, *, live: bool = True) -> dict[str, Counter[Any]]:
    """Return all records of a store, by their kind: what holds in any store, so what a repaired copy must have as well.

    A branch ends and a session stands where its entries say; both are told by the entries and by the session's row.
    """
    found: dict[str, Counter[Any]] = {}
    with takeback.open(path, read_only=True) as store:
        source = Source(store._backend.scoped(None).read, live=live)
        for record in [*source.records(Everything()), *source.endings()]:
            kind, values = portable(record)
            found.setdefault(kind, Counter()).update(values)
            if isinstance(record, stream.SessionRecord | stream.AgentRecord):
                found.setdefault("operation", Counter()).update(record.undone)
    return found


class Everything:
    """Wants every record, each content once."""

    def __init__(self) -> None:
        self._contents = set[tuple[str, str]]()

    def agent(self, agent: stream.AgentRecord) -> int:
        return 0

    def has(self, scope: str, content_hash: str) -> bool:
        there = (scope, content_hash) in self._contents
        self._contents.add((scope, content_hash))
        return there

    def has_root(self, scope: str, content_hash: str) -> bool:
        return False

    def session(self, session: stream.SessionRecord, require: Callable[[], None]) -> dict[str, int]:
        return {}

    def workspace(self, workspace: stream.WorkspaceRecord) -> int:
        return 0

    def document(self, document: stream.DocumentRecord) -> bool:
        return True


# Columns that are local to a store, or that a store computes for itself.
_LOCAL = {
    *(
        "sid",
        "aid",
        "bid",
        "blob_id",
        "oid",
        "cid",
        "acid",
        "parent",
        "session",
        "agent",
        "branch",
        "updated",
        "rank",
        "past",
    ),
    *("calls", "depth", "jump", "jump_seq", "tip_seq", "tip_hash", "undoes", "undone_by", "checkpoint", "checksum"),
    *(
        "position",
        "branches",
        "fork",
        "wid",
        "owed",
        "over",
        "by",
        "authors",
        "did",
        "base_version",
        "base_ms",
        "base_hidden",
    ),
}


def portable(record: Any) -> tuple[str, list[Any]]:
    """Return a record without what is local to a store: its kind, and what it says."""
    if isinstance(record, stream.EntriesRecord):
        lost = {row.key & 0xFFFFFFFF: row.what for row in record.lost}
        return "entry", [repr((record.branch, row.seq, row._replace(key=0), lost.get(row.seq))) for row in record.rows]
    kind = (
        record.table.name if isinstance(record, stream.Live) else type(record).__name__.lower().removesuffix("record")
    )
    said = {name: value for name, value in record.row._asdict().items() if name not in _LOCAL}
    if kind == "blob":
        said.pop("created_ms")  # when it was stored in this store
    if kind == "operation":
        said.pop("workspace")
    if kind == "inbox":
        said["key"] = bool(said["key"])
    if kind == "session" and said["hidden"] == 2:
        said["key"] = ""  # what a purge writes there is random
    return kind, [repr((sorted(said.items()), _beside(record)))]


def _beside(record: Any) -> Any:
    """Return what a record names, by names."""
    if isinstance(record, stream.AgentPoint):
        pins = [(pin.session, pin.branch, pin.row.seq, pin.row.hash, pin.row.hidden) for pin in record.pins]
        return record.agent, sorted(pins)
    if isinstance(record, stream.SessionRecord):
        return record.doc, record.parent
    if isinstance(record, stream.BranchRecord):
        return record.parent
    if isinstance(record, stream.WorkspaceRecord):
        row, names = record.row, record.names
        return [_by_names(row.owed, names), _by_names(row.over, names), _by_names(row.by.items(), names)]
    if isinstance(record, stream.ScanRecord):
        authors = [(kind, _by_names(who, record.names)) for kind, who in record.row.authors]
        touched = sorted((each.path, each.author, each.action) for each in record.touched)
        return record.workspace, record.names.get(record.row.session), authors, touched
    return [value for value in record[1:] if isinstance(value, str)]


def _by_names(said: Any, names: dict[int, str]) -> list[Any]:
    return [(names.get(sid), about) for sid, about in said]


def _all_columns(database: apsw.Connection, table: str) -> str:
    columns = database.execute(f"SELECT name, type FROM pragma_table_info('{table}')").fetchall()
    shown = [f"CAST({name} AS BLOB)" if kind == "TEXT" else name for name, kind in columns]
    return f"SELECT {', '.join(shown)} FROM {table}"


Plant = Callable[[apsw.Connection], None]


def _order(table: Table[Any]) -> tuple[str, ...]:
    """Return the columns that find a row, whatever is wrong with its scope."""
    return (table.number,) if table.number else table.key


def _put_again(db: apsw.Connection, table: Table[Any], old: tuple[Any, ...], new: tuple[Any, ...]) -> None:
    """Put a stored row in the place of another."""
    order = _order(table)
    db.execute(f"DELETE FROM {table.name} WHERE {matches(order)}", [old[table.stored.index(name)] for name in order])
    db.execute(table.insert, new)


def _flip(table: str, where: str, change: str) -> Plant:
    """Change a value and leave the check as it was."""

    def plant(db: apsw.Connection) -> None:
        db.execute(f"UPDATE {table} SET {change} WHERE {where}")
        assert db.changes() == 1

    return plant


def _forge(table: str, where: str, change: str) -> Plant:
    """Change a value and compute the check again."""

    def plant(db: apsw.Connection) -> None:
        described = schema.BY_NAME[table]
        before = set(db.execute(described.select).fetchall())
        _flip(table, where, change)(db)
        (changed,) = set(db.execute(described.select).fetchall()) - before
        _put_again(db, described, changed, described.seal(described.unchecked(changed)))

    return plant


def _flip_packed(table: str, where: str, **fields: Any) -> Plant:
    """Change fields, packed ones too, and leave the check as it was."""
    return lambda db: _replace(db, table, where, fields, forge=False)


def _forge_packed(table: str, where: str, **fields: Any) -> Plant:
    """Change fields, packed ones too, and compute the check again."""
    return lambda db: _replace(db, table, where, fields, forge=True)


def _replace(db: apsw.Connection, table: str, where: str, fields: dict[str, Any], *, forge: bool) -> None:
    """Put in other values; one that can be called is given the old one."""
    described = schema.BY_NAME[table]
    (stored,) = db.execute(f"{described.select} WHERE {where}").fetchall()
    row: Any = described.checked(stored)
    target = row.chain if isinstance(row, EntryRow) and fields.keys() <= {*Chain._fields} else row
    values = {name: new(getattr(target, name)) if callable(new) else new for name, new in fields.items()}
    changed = target._replace(**values)
    assert changed != target
    new = described.seal(row.with_chain(changed) if isinstance(changed, Chain) else changed)
    _put_again(db, described, stored, new if forge else (*new[:-1], stored[-1]))


def _flip_bit(table: str, where: str, place: int) -> Plant:
    """Flip one bit of what is packed in a row."""

    def plant(db: apsw.Connection) -> None:
        ((rest,),) = db.execute(f"SELECT rest FROM {table} WHERE {where}").fetchall()
        new = rest[:place] + bytes([rest[place] ^ 4]) + rest[place + 1 :]
        db.execute(f"UPDATE {table} SET rest = ? WHERE {where}", (new,))

    return plant


def _drop(table: str, where: str) -> Plant:
    def plant(db: apsw.Connection) -> None:
        db.execute(f"DELETE FROM {table} WHERE {where}")
        assert db.changes() >= 1

    return plant


def _moved_entry(db: apsw.Connection, stored: tuple[Any, ...], key: int) -> None:
    described = schema.BY_NAME["entry"]
    row: Any = described.checked(stored)
    db.execute(described.insert, described.seal(row._replace(key=key)))


def _swap_entries(db: apsw.Connection) -> None:
    """Let two entries change places, with all their checks right."""
    keys = (1 << 32 | 5, 1 << 32 | 6)
    both = db.execute(f"{schema.BY_NAME['entry'].select} WHERE key IN (?, ?) ORDER BY key", keys).fetchall()
    db.execute("DELETE FROM entry WHERE key IN (?, ?)", keys)
    for stored, key in zip(both, reversed(keys), strict=True):
        _moved_entry(db, stored, key)


def _add_entry(db: apsw.Connection) -> None:
    """Put an entry behind the last one, with a check that is right."""
    (stored,) = db.execute(f"{schema.BY_NAME['entry'].select} WHERE {_LAST}").fetchall()
    _moved_entry(db, stored, schema.BY_NAME["entry"].checked(stored).key + 1)  # type: ignore[attr-defined]


def _insert(table: str, *values: Any) -> Plant:
    def plant(db: apsw.Connection) -> None:
        described = schema.BY_NAME[table]
        db.execute(described.insert, described.seal(described.row(*values)))

    return plant


def _plus(number: int) -> Callable[[int], int]:
    return lambda value: value + number


def _circle(db: apsw.Connection) -> None:
    _forge("session", "sid = 1", "parent = 2")(db)


def _all(*plants: Plant) -> Plant:
    return lambda db: [plant(db) for plant in plants] and None


def _e(seq: int, branch: int = 1) -> str:
    return f"key = ({branch} << 32 | {seq})"


_LAST = "key = (SELECT max(key) FROM entry WHERE key >> 32 = 1)"
_SPILLED = "blob_id = (SELECT blob_id FROM blob ORDER BY size DESC LIMIT 1)"
_TEXT = sha256(b"attached " * 9).hexdigest()
_ATTACHED = f"blob_id = (SELECT blob_id FROM blob WHERE hash = '{_TEXT}')"
_SEEN = "blob_id = (SELECT blob_id FROM blob WHERE hash = (SELECT root FROM scan WHERE n = 3))"
_HELD = "blob_id = (SELECT blob_id FROM blob WHERE hash = '" + sha256(b"theirs").hexdigest() + "')"
_TIMELINE = {"workspace": 1, "scan": 8, "operation": 3}
_ENTRY = {"entry": 1, "lost": 1}
_DOCUMENT = {"document": 1}
_IN_DOCUMENT = "blob_id = (SELECT b.blob_id FROM blob b JOIN document d ON d.hash = b.hash WHERE d.did = 2)"
_KEY = {"idempotency": 1}
_POINT = {"checkpoint": 1, **_KEY}  # the key of the call that made it goes with it
_NO_ID = "id = '" + "0" * 25 + "'"
_SENT = {"inbox": 1, "detail": 1, **_KEY}  # those behind it move up, and the key of the call that sent it is gone
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
    "numbers of an entry changed": (_flip_packed("entry", _e(4), input_tokens=_plus(64)), {"entry"}, {}),
    "numbers of an entry forged": (_forge_packed("entry", _e(4), cost_nano=_plus(1)), {"chain"}, {}),
    "turn of an entry changed": (_flip("entry", _e(5), "turns = turns + 8"), {"entry"}, {}),
    "time of an entry forged": (_forge("entry", _e(5), "at_ms = at_ms + 1"), {"chain"}, _ENTRY),
    "delay of an entry changed": (_flip_packed("entry", _e(5), late_ms=_plus(64)), {"entry"}, {}),
    "delay of an entry forged": (_forge_packed("entry", _e(5), late_ms=_plus(1)), {"chain"}, _ENTRY),
    "turn of an entry forged": (_forge("entry", _e(5), "turns = turns + 8"), {"entry"}, {}),
    "one bit of the chain of an entry changed": (_flip_bit("entry", _e(5), 40), {"entry"}, {}),
    "chain of an entry destroyed": (_flip("entry", _e(5), "rest = x'c1'"), {"entry"}, _ENTRY),
    "chain of an entry unreadable": (_forge("entry", _e(5), "rest = x'c1'"), {"entry"}, _ENTRY),
    "kind of an entry forged": (_forge("entry", _e(5), "kind = 'tool'"), {"chain"}, _ENTRY),
    "id of an entry changed": (_flip("entry", _e(5), "mid = 'user-9'"), {"entry"}, {}),
    "check of an entry changed": (_flip("entry", _e(5), "chk = chk + 1"), {"entry"}, {}),
    "scope of an entry forged": (_forge("entry", _e(5), "scope = 'other'"), {"entry"}, {}),
    "raw bytes of an entry changed": (_flip("entry", _e(6), "raw = x'7b20'"), {"entry"}, _ENTRY),
    "salt of an entry changed": (_flip_packed("entry", _e(6), salt=bytes(16)), {"entry"}, _ENTRY),
    "salt of an entry forged": (_forge_packed("entry", _e(6), salt=bytes(16)), {"chain"}, _ENTRY),
    "entry missing in the middle": (_drop("entry", _e(7)), {"missing"}, _ENTRY),
    "several entries missing": (_drop("entry", f"{_e(7)} OR {_e(8)}"), {"missing"}, {"entry": 2, "lost": 2}),
    "first entry missing": (_drop("entry", _e(1)), {"missing"}, _ENTRY),
    "last entry missing": (_drop("entry", _LAST), {"missing"}, _ENTRY),
    "entry where a branch starts missing": (_drop("entry", _e(4)), {"missing"}, _ENTRY),
    "entry of state missing": (_drop("entry", _e(11)), {"missing"}, _ENTRY),
    "entry behind the end": (_add_entry, {"entry"}, {}),
    "hash of an entry changed": (_flip_packed("entry", _e(5), hash=bytes(32)), {"entry"}, {}),
    "hash of an entry forged": (_forge_packed("entry", _e(5), hash=bytes(32)), {"chain"}, {}),
    "hash of the last entry forged": (_forge_packed("entry", _LAST, hash=bytes(32)), {"chain"}, {}),
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
    "tags of a session changed": (_flip_packed("session", "sid = 1", tags=""), {"session"}, {"session": 1}),
    "text of a session no UTF-8": (
        _flip("session", "sid = 1", "label = CAST(x'ff' AS TEXT)"),
        {"session"},
        {},
    ),
    "head of a session changed": (_flip("session", "sid = 1", "seq = seq - 1"), {"session"}, {}),
    "head of a session forged": (_forge("session", "sid = 1", "seq = seq - 1"), {"session", "entry"}, {}),
    "hash of a head changed": (_flip_packed("session", "sid = 1", hash=bytes(32)), {"session"}, {}),
    "messages of a session changed": (_flip("session", "sid = 1", "messages = messages + 64"), {"session"}, {}),
    "messages of a session forged": (_forge("session", "sid = 1", "messages = messages + 1"), {"session"}, {}),
    "branches of a session changed": (_flip("session", "sid = 1", "branches = branches + 1"), {"session"}, {}),
    "fewer branches of a session forged": (_forge("session", "sid = 1", "branches = 1"), {"missing"}, {}),
    "more branches of a session forged": (_forge("session", "sid = 1", "branches = 3"), {"missing"}, {}),
    "fork of a session changed": (_flip("session", "sid = 3", "fork = 4"), {"session"}, {}),
    "fork of a session forged": (_forge("session", "sid = 3", "fork = 4"), {"session"}, {}),
    "attached head of a session changed": (_flip("session", "sid = 1", "attached = 0"), {"session"}, {}),
    "attached head of a session forged": (_forge("session", "sid = 1", "attached = 0"), {"session"}, {}),
    "detached head of a session forged": (_forge("session", "sid = 2", "attached = 1"), {"missing", "entry"}, {}),
    "branch of a head forged": (_forge_packed("session", "sid = 1", branch=2), {"missing"}, {}),
    "one bit of what is packed in a session changed": (_flip_bit("session", "sid = 1", 40), {"session"}, {}),
    "what is packed in a session destroyed": (_flip("session", "sid = 1", "rest = x'c1'"), {"session"}, {"session": 1}),
    "what is packed in a session unreadable": (
        _forge("session", "sid = 1", "rest = x'c1'"),
        {"session", "file"},
        {"session": 1},
    ),
    "what is packed in a session too short": (
        _forge("session", "sid = 1", "rest = x'9101'"),
        {"session", "file"},
        {"session": 1},
    ),
    "totals of a session forged": (_forge_packed("session", "sid = 1", input_tokens=_plus(1)), {"session"}, {}),
    "tasks of a session forged": (_forge_packed("session", "sid = 1", tasks=7), {"session"}, {}),
    "completed tasks forged": (_forge_packed("session", "sid = 1", completed=2), {"session"}, {}),
    "build attempts forged": (_forge_packed("session", "sid = 1", builds=0), {"session"}, {}),
    "versions of state forged": (_forge_packed("session", "sid = 1", states=0), {"state"}, {}),
    "revision of a session changed": (_flip_packed("session", "sid = 1", revision=_plus(4)), {"session"}, {}),
    "rank of a session forged": (_forge("session", "sid = 1", "rank = 1"), {"tag"}, {}),
    "last change of a session forged": (_forge("session", "sid = 1", "updated = updated - 1"), {"missing"}, {}),
    # Its id is lost, so the places of checkpoints and operations on it have another name.
    "session row missing": (_drop("session", "sid = 3"), {"missing"}, {"session": 1, "agent_checkpoint": 1}),
    "last session row missing": (
        _drop("session", "sid = (SELECT max(sid) FROM session)"),
        {"branch"},
        {"session": 1, "agent": 1, "agent_version": 1, "feed": 1, "operation": 1},
    ),
    "parent missing": (_forge("session", "sid = 2", "parent = 99"), {"missing"}, {"session": 1}),
    "circle of parents": (_circle, {"session"}, {}),
    "details missing": (_drop("detail", "sid = 1"), {"detail"}, {"detail": 1}),
    "details changed": (_flip("detail", "sid = 1", "doc = x'7b7d'"), {"detail"}, {"detail": 1}),
    "details unreadable": (_forge("detail", "sid = 1", "doc = x'5b'"), {"detail"}, {"detail": 1}),
    "details of nobody": (_insert("detail", "", 99, b"{}"), {"missing"}, {}),
    "agent changed": (_flip("agent", "aid = 1", "fields = x'7b7d'"), {"agent"}, {}),
    "mark of an agent without meaning": (_forge("agent", "aid = 1", "hidden = 4"), {"agent"}, {}),
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
    # The operation that it took back and the one that took it back name none any more.
    "operation missing in the middle": (_drop("operation", "oid = 3"), {"missing"}, {"operation": 3}),
    "last operation missing": (_drop("operation", "kind = 'tag'"), {"missing"}, {"operation": 1}),
    "operation unreadable": (_forge("operation", "oid = 2", "before = x'5b'"), {"operation"}, {"operation": 1}),
    "undo of nothing": (
        _forge("operation", "kind = 'undo' AND session > 0", "undoes = 99"),
        {"operation"},
        {"operation": 2},
    ),
    "undo of itself": (_forge("operation", "oid = 2", "undoes = 2"), {"operation"}, {"operation": 1}),
    "undone by nothing": (
        _forge("operation", "undone_by > 0 AND session > 0", "undone_by = 1"),
        {"operation"},
        {"operation": 2},
    ),
    "idempotency key changed": (
        _flip("idempotency", "ikey = 'once'", "last_seq = 3"),
        {"idempotency"},
        _KEY,
    ),
    "idempotency key of nothing": (
        _forge("idempotency", "ikey = 'once'", "seq = 900, last_seq = 900"),
        {"idempotency"},
        _KEY,
    ),
    "idempotency key of no branch": (_forge("idempotency", "ikey = 'once'", "branch = 99"), {"idempotency"}, _KEY),
    "idempotency key of no session": (_forge("idempotency", "ikey = 'session'", _NO_ID), {"idempotency"}, _KEY),
    "idempotency key of no agent": (_forge("idempotency", "ikey = 'agent'", _NO_ID), {"idempotency"}, _KEY),
    "idempotency key of no operation": (_forge("idempotency", "ikey = 'operation'", _NO_ID), {"idempotency"}, _KEY),
    "idempotency key of no checkpoint": (_forge("idempotency", "ikey = 'checkpoint'", _NO_ID), {"idempotency"}, _KEY),
    "idempotency key of no message": (_forge("idempotency", "ikey = 'sent two'", _NO_ID), {"idempotency"}, _KEY),
    "idempotency key without a name": (_forge("idempotency", "ikey = 'session'", "id = ''"), {"idempotency"}, _KEY),
    "idempotency key in a session that is not there": (
        _forge("idempotency", "ikey = 'operation'", "session = 99"),
        {"idempotency"},
        _KEY,
    ),
    "record of a call missing": (_forge_packed("entry", _e(19), calls=()), {"call"}, {}),
    "record of a call by name missing": (_forge_packed("entry", _e(21), calls=()), {"call"}, {}),
    "record of a call changed": (_flip_packed("entry", _e(18), calls=()), {"entry"}, {}),
    "record of another call": (_forge_packed("entry", _e(19), calls=(("result", "c9"),)), {"call"}, {}),
    "call too many": (_forge_packed("entry", _e(2), calls=(("call", "c9"),)), {"call"}, {}),
    "last entry with a call changed": (_flip_packed("entry", _e(22), call_seq=_plus(-1)), {"entry"}, {}),
    "last entry with a call forged": (_forge_packed("entry", _e(22), call_seq=_plus(-1)), {"chain"}, {}),
    "oldest open call changed": (_flip_packed("entry", _e(4, 7), open_seq=_plus(-1)), {"entry"}, {}),
    "oldest open call forged": (_forge_packed("entry", _e(3, 7), open_seq=_plus(1)), {"chain"}, {}),
    "open call of a session changed": (_flip_packed("session", "sid = 6", calls=[]), {"session"}, {}),
    "open call of a session missing": (
        _forge_packed("session", "sid = 6", calls=lambda calls: calls[:1]),
        {"session"},
        {"session": 1},
    ),
    "open call of a session forged": (
        _forge_packed("session", "sid = 6", calls=lambda calls: [[*calls[0][:2], 0, 0, 0, 0, 0], calls[1]]),
        {"session"},
        {"session": 1},
    ),
    "open call of a session too many": (
        _forge_packed("session", "sid = 7", calls=[["c9", 1, 0, 0, 0, 0, 0]]),
        {"session"},
        {"session": 1},
    ),
    "last call of a session forged": (_forge_packed("session", "sid = 1", call_seq=_plus(-1)), {"session"}, {}),
    "oldest open call of a session forged": (_forge_packed("session", "sid = 6", open_seq=0), {"session"}, {}),
    "link missing": (_drop("link", f"hash = '{_TEXT}'"), {"link"}, {}),
    "link changed": (
        _flip("link", f"hash = '{_TEXT}'", "chk = chk + 1"),
        {"link"},
        {},
    ),
    "link too many": (_insert("link", "", "0" * 64, 1 << 32 | 2), {"link"}, {}),
    "link of no entry": (_insert("link", "", "0" * 64, 1 << 32 | 900), {"link"}, {}),
    "tag of a session missing": (_drop("session_tag", "tag = 'a'"), {"tag"}, {}),
    "tag of a session too many": (_insert("session_tag", "", "c", 0, 5, 1), {"tag"}, {}),
    "tag of nobody": (_insert("session_tag", "", "c", 0, 5, 99), {"tag"}, {}),
    "tag of a session with another rank": (_forge("session_tag", "tag = 'a'", "rank = rank - 1"), {"tag"}, {}),
    "rank of a tag changed": (_flip("session_tag", "tag = 'a'", "rank = rank + 64"), {"tag"}, {}),
    "tag of a session in the trash": (_forge("session_tag", "tag = 'a'", "hidden = 1"), {"tag"}, {}),
    "check of a tag changed": (_flip("session_tag", "tag = 'a'", "chk = chk + 1"), {"tag"}, {}),
    "metadata of a session missing": (_drop("session_meta", "sid = 1"), {"metadata"}, {}),
    "metadata of a session too many": (_insert("session_meta", "", '["c",1]', 0, 5, 1), {"metadata"}, {}),
    "metadata of nobody": (_insert("session_meta", "", '["c",1]', 0, 5, 99), {"metadata"}, {}),
    "metadata with another rank": (_forge("session_meta", "sid = 1", "rank = rank - 1"), {"metadata"}, {}),
    "metadata in the trash": (_forge("session_meta", "sid = 1", "hidden = 1"), {"metadata"}, {}),
    "check of metadata changed": (_flip("session_meta", "sid = 1", "chk = chk + 1"), {"metadata"}, {}),
    "rank of a session that is above its past": (_forge("session", "sid = 1", "past = 1"), {"session"}, {}),
    "checkpoint changed": (_flip("checkpoint", "cid = 1", "seq = 3"), {"checkpoint"}, _POINT),
    "checkpoint of another entry": (_forge("checkpoint", "cid = 1", "seq = 3"), {"checkpoint"}, _POINT),
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
    "change of files changed": (_flip("journal", "place = 'w'", "steps = x'5b'"), {"journal"}, {"journal": 1}),
    "change of files of nobody": (_forge("journal", "place = 'w'", "session = 99"), {"journal"}, {"journal": 1}),
    "change of files by nobody": (_forge("journal", "place = 'w'", "holder = x'5b'"), {"journal"}, {"journal": 1}),
    "lease changed": (_flip("lease", "holder IS NOT NULL", "token = token + 1"), {"lease"}, {"lease": 1}),
    "lease of nobody": (_insert("lease", "", 99, 1, None, 0, 0, 0), {"lease"}, {}),
    "holder of a lease unreadable": (_forge("lease", "holder IS NOT NULL", "holder = x'5b'"), {"lease"}, {"lease": 1}),
    "stream changed": (_flip("stream", "1", "seq = seq + 1"), {"stream"}, {"stream": 1, "delta": 3, "detail": 1}),
    "stream on no branch": (_forge("stream", "1", "branch = 99"), {"stream"}, {"stream": 1, "delta": 3, "detail": 1}),
    "stream about nothing": (
        _forge("stream", "1", "about = x'5b'"),
        {"stream"},
        {"stream": 1, "delta": 3, "detail": 1},
    ),
    "stream missing": (_drop("stream", "1"), {"stream"}, {"stream": 1, "delta": 3, "detail": 1}),
    "piece of a stream changed": (_flip("delta", "n = 2", "data = x'21'"), {"stream"}, {"delta": 2, "stream": 1}),
    "kind of a piece of a stream forged": (
        _forge("delta", "n = 2", "kind = 'textx'"),
        {"stream"},
        {"delta": 2, "stream": 1},
    ),
    "piece of a stream no text": (_forge("delta", "n = 3", "data = x'ff'"), {"stream"}, {"delta": 1, "stream": 1}),
    "piece of a stream missing": (_drop("delta", "n = 2"), {"stream"}, {"delta": 2, "stream": 1}),
    "first piece of a stream missing": (_drop("delta", "n = 1"), {"stream"}, {"delta": 3, "stream": 1}),
    "last piece of a stream missing": (_drop("delta", "n = 3"), {"stream"}, {"delta": 1, "stream": 1}),
    "sent message changed": (_flip("inbox", "n = 2", "body = x'7b7d'"), {"inbox"}, {**_SENT, "inbox": 2}),
    "sent message unreadable": (_forge("inbox", "n = 3", "body = x'5b'"), {"inbox"}, _SENT),
    "sent message without a role": (
        _forge("inbox", "n = 3", "body = CAST(replace(CAST(body AS TEXT), 'role', 'vole') AS BLOB)"),
        {"inbox"},
        _SENT,
    ),
    "sent message missing": (_drop("inbox", "n = 2"), {"inbox"}, {**_SENT, "inbox": 2}),
    "received message of nothing": (_forge("inbox", "n = 1", "key = 900 << 32"), {"inbox"}, {**_SENT, "inbox": 3}),
    "last sent message missing": (_drop("inbox", "n = 3"), {"missing"}, _SENT),
    "all sent messages missing": (_drop("inbox", "n > 0"), {"missing"}, {**_SENT, "inbox": 3, "idempotency": 3}),
    "sent message to nobody": (_insert("inbox", "", 99, 1, "x", None, 0, b"{}", 0), {"inbox"}, {}),
    "value of a document changed": (
        _flip("document", "did = 1", "value = x'7b2261223a337d'"),
        {"document"},
        _DOCUMENT,
    ),
    "value of a document that is no JSON": (_forge("document", "did = 1", "value = x'7b'"), {"document"}, _DOCUMENT),
    "value of a document longer than a row": (
        _forge("document", "did = 5", "value = zeroblob(70000), hash = NULL, hidden = 0"),
        {"document"},
        _DOCUMENT,
    ),
    "value of a document twice": (_forge("document", "did = 2", "value = x'00'"), {"document"}, _DOCUMENT),
    "document without a value": (_forge("document", "did = 1", "value = NULL"), {"document"}, _DOCUMENT),
    "document that is gone with a value": (_forge("document", "did = 4", "value = x'00'"), {"document"}, _DOCUMENT),
    "document of an unknown form": (_forge_packed("document", "did = 1", form="pickle"), {"document"}, _DOCUMENT),
    "document of a time that cannot be": (
        _forge_packed("document", "did = 1", updated_ms=1 << 60),
        {"document"},
        _DOCUMENT,
    ),
    "namespace of a document with an empty part": (
        _forge("document", "did = 1", "namespace = 'a' || char(31)"),
        {"document"},
        _DOCUMENT,
    ),
    "key of a document changed": (_flip("document", "did = 1", "key = 'another'"), {"document"}, _DOCUMENT),
    "version of a document set back": (_forge("document", "did = 1", "version = 1"), {"feed"}, _DOCUMENT),
    "mark of a document without meaning": (_forge("document", "did = 1", "hidden = 7"), {"document"}, _DOCUMENT),
    "one bit of the check of a document changed": (
        _flip("document", "did = 1", "chk = chk + 1 - 2 * (chk & 1)"),
        {"document"},
        {},
    ),
    "document missing": (_drop("document", "did = 1"), {"missing"}, _DOCUMENT),
    "last document missing": (_drop("document", "did = (SELECT max(did) FROM document)"), {"missing"}, _DOCUMENT),
    "blob of a document missing": (
        _all(_drop("chunk", _IN_DOCUMENT), _drop("blob", _IN_DOCUMENT)),
        {"missing"},
        {"blob": 1, "chunk": 1, **_DOCUMENT},
    ),
    "blob of a document changed": (
        _flip("chunk", _IN_DOCUMENT, "data = x'00'"),
        {"blob"},
        {"blob": 1, "chunk": 1, **_DOCUMENT},
    ),
    "document with content of another form": (
        _forge_packed("document", "did = 2", form="json"),
        {"missing", "document"},
        _DOCUMENT,
    ),
    "change of a document missing": (
        _drop("feed", "session = -1 AND branch = 3"),
        {"feed"},
        {},
    ),
    "change missing": (_drop("feed", "pos = 9"), {"feed"}, {}),
    "change changed": (_flip("feed", "pos = 9", "last_seq = 1"), {"feed"}, {}),
    "change forged": (_forge("feed", "pos = 9", "last_seq = 900"), {"missing"}, {}),
    "change of an agent too many": (_forge("feed", "pos = 70", "kind = 'xgent_checkpoint'"), {"feed"}, {}),
    "change of too few entries": (_forge("feed", "pos = 9", "first_seq = 1"), {"feed"}, {}),
    "change of nobody": (_forge("feed", "pos = 9", "session = 99"), {"missing"}, {}),
    "last change missing": (_drop("feed", "pos = (SELECT max(pos) FROM feed)"), {"feed"}, {"feed": 1}),
    "schema record changed": (_flip("migration", "version = 1", "chk = chk + 1"), {"migration"}, {}),
    "workspace missing": (_drop("workspace", "wid = 1"), {"scan"}, _TIMELINE),
    "directory of a workspace changed": (_flip("workspace", "wid = 1", "path = '/elsewhere'"), {"workspace"}, {}),
    "directory of a workspace destroyed": (
        _flip("workspace", "wid = 1", "path = '/elsewhere', machine = 'x'"),
        {"workspace"},
        _TIMELINE,
    ),
    "id of a workspace forged": (_forge("workspace", "wid = 1", "uid = '../x'"), {"workspace"}, _TIMELINE),
    "last scan of a workspace forged": (
        _forge_packed("workspace", "wid = 1", tip=_plus(1)),
        {"workspace"},
        {"workspace": 1},
    ),
    "files of a workspace forged": (_forge_packed("workspace", "wid = 1", root="0" * 64), {"workspace"}, {}),
    "missing scans of a workspace forged": (_forge_packed("workspace", "wid = 1", missing=1), {"workspace"}, {}),
    "calls owed in a workspace unreadable": (
        _forge_packed("workspace", "wid = 1", owed="x", over=[["x", 1]]),
        {"workspace"},
        {"workspace": 1},
    ),
    "scan missing": (_drop("scan", "n = 3"), {"workspace"}, {"workspace": 1, "scan": 1}),
    "last scan missing": (_drop("scan", "n = (SELECT max(n) FROM scan)"), {"workspace"}, {"workspace": 1, "scan": 1}),
    "scan changed": (_flip_packed("scan", "n = 3", authors=[]), {"scan"}, {"workspace": 1, "scan": 1}),
    "session of a scan changed": (_flip("scan", "n = 3", "session = 9"), {"scan"}, {}),
    "files of a scan forged": (_forge("scan", "n = 3", "root = hex(zeroblob(32))"), {"scan"}, {"scan": 1}),
    "who made the changes of a scan forged": (
        _forge_packed("scan", "n = 3", authors=[["nobody", []]]),
        {"scan"},
        {"workspace": 1, "scan": 1},
    ),
    "who made the changes of a scan unreadable": (
        _forge_packed("scan", "n = 3", authors=[["calls", "x"]]),
        {"scan"},
        {"workspace": 1, "scan": 1},
    ),
    "who made the changes of a scan not said": (
        _forge_packed("scan", "n = 3", authors=[]),
        {"scan"},
        {"workspace": 1, "scan": 1},
    ),
    "scan that goes back to a later one": (
        _forge_packed("scan", "n = 3", as_of=9),
        {"scan"},
        {"workspace": 1, "scan": 1},
    ),
    "scan of no workspace": (_insert("scan", "", 9, 1, 7, 0, None, "", 0, 0, 0, "", 0, "", []), {"scan"}, {}),
    "changed path missing": (_drop("touched", "n = 3"), {"scan"}, {"scan": 1}),
    "changed path changed": (_flip("touched", "n = 3", "path = x'61', action = 'x'"), {"touched"}, {"scan": 1}),
    "changed path outside": (_forge("touched", "n = 3", "path = CAST('../x' AS BLOB)"), {"touched"}, {"scan": 1}),
    "author of a changed path forged": (_forge("touched", "n = 3", "author = 7"), {"touched"}, {"scan": 1}),
    "changed path of no scan": (_insert("touched", "", 1, b"x", 99, 0, "create"), {"touched"}, {}),
    "root of a scan missing": (
        _all(_drop("chunk", _SEEN), _drop("blob", _SEEN)),
        {"scan"},
        {"scan": 1, "blob": 1, "chunk": 1, "lost": 2},
    ),
    "content of a file of a scan missing": (
        _all(_drop("chunk", _HELD), _drop("blob", _HELD)),
        {"snapshot"},
        {"scan": 8, "blob": 1, "chunk": 1, "lost": 8},
    ),
    "another record of the store changed": (
        _all(_insert("meta", "more", b"x"), _flip("meta", "name = 'more'", "value = x'79'")),
        {"meta"},
        {},
    ),
}


@functools.cache
def _template() -> bytes:
    """Return the file of the store, which is all of it once it is closed."""
    with tempfile.TemporaryDirectory() as place:
        return build(Path(place) / "a.db").read_bytes()


@functools.cache
def _records() -> dict[str, Counter[Any]]:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "a.db"
        path.write_bytes(_template())
        return records_of(path)


def damaged(tmp_path: Path, name: str) -> tuple[Path, dict[str, Counter[Any]]]:
    """Plant a damage in a closed store; give it with the records that it had."""
    path, before = tmp_path / "a.db", _records()
    path.write_bytes(_template())
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
    name = rng.choice([name for name in TABLES[:-2] if db.execute(f"SELECT 1 FROM {name}").fetchall()])
    table = schema.BY_NAME[name]
    stored = rng.choice(db.execute(table.select).fetchall())
    order = _order(table)
    about = f"{name} {[stored[table.stored.index(each)] for each in order]}"
    how = rng.choice(("flip", "flip", "forge", "drop"))
    if how == "drop":
        db.execute(f"DELETE FROM {name} WHERE {matches(order)}", [stored[table.stored.index(each)] for each in order])
        return f"drop {about}"
    columns = [each for each in table.stored if each not in order and each != "chk"] or [*order]
    column = rng.choice(columns)
    at = table.stored.index(column)
    old, new = stored[at], list(stored)
    new[at] = _other_rest(table, stored, rng) if column == "rest" else _other(old, table.types()[column][0], rng)
    if how == "forge":
        new[-1] = row_check(new[:-1])
    with contextlib.suppress(apsw.ConstraintError), db:
        _put_again(db, table, stored, tuple(new))
    return f"{how} {column} of {about}, was {old!r:.60}, is {new[at]!r:.60}"


def _other_rest(table: Table[Any], stored: tuple[Any, ...], rng: random.Random) -> bytes:
    """Change one of the packed values, or a bit of them all."""
    rest = stored[table.stored.index("rest")]
    if rng.random() < 0.3:
        return bytes(_other(rest, "BLOB", rng))
    values = msgspec.msgpack.decode(rest)
    at = rng.randrange(len(values))
    if isinstance(values[at], list):
        values[at] = values[at][1:] or [["call", "x"]]
    else:
        kind = {int: "INTEGER", str: "TEXT"}.get(type(values[at]), "BLOB")
        values[at] = _other(values[at], kind, rng)
    return msgspec.msgpack.encode(values)


def _other(old: Any, kind: str, rng: random.Random) -> Any:
    if kind == "INTEGER":
        return (old or 0) ^ 1 << rng.choice((0, 1, 2, 5, 31))
    if kind == "TEXT":
        return rng.choice((f"{old or ''}x", f"x{(old or '')[1:]}"))
    data = bytearray(old or b"x")
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)
