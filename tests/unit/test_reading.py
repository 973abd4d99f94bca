"""Reading and listing: how often the store is asked, and that no damaged column is ever shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import apsw
import pytest

import takeback
from takeback import Store
from takeback.storage.base import Backend, Op, Row, Tx, Value
from takeback.storage.wrap import Wrapper, _PassedTx
from takeback.tables.entries import ENTRY
from takeback.tables.sessions import DETAIL, LEASE, SESSION
from takeback.tables.table import Table

LONG = "x" * 200_000  # kept in a blob
READS: dict[str, Callable[[takeback.Session], object]] = {
    "all": lambda session: session.messages(),
    "last": lambda session: session.messages(limit=5),
    "from the start": lambda session: session.messages(after=0, limit=5),
    "without tools": lambda session: session.messages(limit=5, tools=False),
    "one by one": lambda session: list(session.iter_messages()),
    "entries": lambda session: list(session.entries()),
}


Asked = list[tuple[str, tuple[Value, ...]]]  # the statements of a transaction, with their values


class AskedTx(_PassedTx):
    """Keeps what is asked."""

    def __init__(self, inner: Tx, asked: Asked) -> None:
        super().__init__(inner)
        self._asked = asked

    def one(self, sql: str, args: Sequence[Value] = ()) -> Row | None:
        self._asked.append((sql, tuple(args)))
        return self._inner.one(sql, args)

    def all(self, sql: str, args: Sequence[Value] = ()) -> list[Row]:
        self._asked.append((sql, tuple(args)))
        return self._inner.all(sql, args)


class Watched(Wrapper):
    """Keeps what each transaction that reads asks."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.reads = list[Asked]()

    def read(self, op: Op[Any]) -> Any:
        self.reads.append([])
        return self.inner.read(lambda tx: op(AskedTx(tx, self.reads[-1])))  # type: ignore[arg-type]


@contextmanager
def watching(store: Store) -> Iterator[list[Asked]]:
    """Keep what a block asks of a store, by transaction."""
    backend = store._backend
    store._backend = store._runner.backend = watched = Watched(backend)
    try:
        yield watched.reads
    finally:
        store._backend = store._runner.backend = backend


def talk(store: Store, name: str = "talk") -> takeback.Session:
    session = store.create_session(name)
    session.append(*({"role": "user", "content": f"message {number}"} for number in range(450)))
    return session


@pytest.mark.promise("P4")
def test_the_last_messages_are_read_in_one_transaction_by_two_statements(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        session = talk(store)
        with watching(store) as reads:
            found = session.messages(limit=50)
        assert [message.content for message in found] == [f"message {number}" for number in range(400, 450)]
        assert list(map(len, reads)) == [2]


@pytest.mark.promise("P4")
def test_everything_is_read_in_one_transaction_a_page(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        session = talk(store)
        with watching(store) as reads:
            found = session.messages()
        assert [message.seq for message in found] == list(range(1, 451))
        assert list(map(len, reads)) == [2, 1, 1]


def test_a_window_is_the_same_however_it_is_read(takeback_store: Store) -> None:
    """Tool messages, a message in a blob, two branches and an answer being written lie on the path."""
    session = talk(takeback_store)
    session.rewind(400)
    for number in range(40):
        session.append({"role": "tool", "content": f"result {number}"}, {"role": "user", "content": f"new {number}"})
    session.user(LONG)
    stream = session.stream()
    stream.write("half")
    stream.flush()
    whole = list(session.iter_messages())
    assert [message.text[:9] for message in whole[-2:]] == ["xxxxxxxxx", "half"]
    limits = (0, 1, 3, 199, 200, 201, 449, 450, 451, None)
    for limit, before, tools in product(limits, (None, 2, 300, 1000), (True, False)):
        kept = [each for each in whole if tools or each.role != "tool"]
        kept = kept if before is None else [each for each in kept if 0 < each.seq < before]
        last = kept if limit is None else kept[max(0, len(kept) - limit) :]
        assert session.messages(limit=limit, before=before, tools=tools) == last, (limit, before)
        first = [each for each in kept if not each.seq or each.seq > 5]
        assert session.messages(limit=limit, after=5, before=before, tools=tools) == first[:limit], (limit, before)
    stream.finish()


@pytest.mark.promise("P5")
def test_a_listing_is_one_statement(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        for number in range(60):
            store.create_session(f"s{number}")
        with watching(store) as reads:
            page = store.list_sessions(limit=50)
        assert [session.name for session in page] == [f"s{number}" for number in range(59, 9, -1)]
        assert list(map(len, reads)) == [1]


def test_a_listed_session_is_the_one_that_is_asked_for(tmp_path: Path) -> None:
    """What a listing leaves packed is there when it is asked for, and a listed handle can write."""
    with takeback.open(tmp_path / "s.db") as store:
        made = store.create_session("s", tags=["a", "b"], prompt="Do it", model="m", metadata={"n": 1})
        made.user("hello")
        made.assistant("yes", usage={"input_tokens": 5, "output_tokens": 2})
        made.set_tasks(["one", "two"])
        (listed,) = store.list_sessions()
        got = store.get_session(made.id)
        assert listed.to_dict() == got.to_dict()
        assert repr(listed) == repr(got)
        (listed,) = store.list_sessions()
        assert (listed.message_count, listed.turn_count) == (2, 1)
        listed.user("more")
        assert (listed.message_count, listed.turn_count, listed.head.seq) == (3, 2, 4)


def test_no_statement_of_reading_is_prepared_twice(tmp_path: Path) -> None:
    """SQLite would prepare a statement again whenever a value is bound, if partial indexes might fit it."""
    with takeback.open(tmp_path / "s.db") as store:
        session = talk(store)
        calls: dict[str, Callable[[], object]] = {
            "list": lambda: store.list_sessions(agent="main"),
            "last": lambda: session.messages(limit=5),
            "name": lambda: store.get_session("talk"),
            "id": lambda: store.get_session(session.id),
        }
        session.messages()
        (reader,) = store._backend._readers  # type: ignore[attr-defined]
        prepared = list[int]()

        def prepare(operation: int, *about: object) -> int:
            prepared.append(operation)
            return int(apsw.SQLITE_OK)

        reader.connection.authorizer = prepare  # SQLite asks it while it prepares a statement
        for name, call in calls.items():
            call()
            assert prepared, name
            prepared.clear()
            call()
            assert not prepared, name


# ---------------------------------------------------------------------- a preview


def worked(store: Store, workspace: Path) -> tuple[takeback.Session, int]:
    """Return a session that changed files in two turns, and the last seq of the first one."""
    with store.session("work", workspace=workspace) as session:
        first = 0
        for turn in ("one", "two"):
            first = session.head.seq
            session.user(f"Do {turn}")
            with session.tool("edit", {"path": "a.txt"}) as run:
                (workspace / "a.txt").write_text(turn)
                (workspace / f"{turn}.txt").write_text(turn)
                run.result("done")
            session.assistant("Done.")
    return session, first


@pytest.mark.feature("D2")
def test_a_preview_is_one_transaction_in_which_nothing_is_asked_twice(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    with takeback.open(tmp_path / "s.db") as store:
        session, first = worked(store, tmp_path / "w")
        with watching(store) as reads:
            preview = session.preview_rewind(first)
        assert [(each.path, each.action) for each in preview.files] == [("a.txt", "overwrite"), ("two.txt", "delete")]
        assert (preview.turns, preview.prompt) == (1, "Do two")
        assert all("edit in turn 2" in each.by for each in preview.files)
        of_the_scan = [
            asked for asked in reads if all(" FROM seen " in sql or " FROM workspace " in sql for sql, _ in asked)
        ]
        (asked,) = [each for each in reads if each not in of_the_scan]
        assert len(asked) == len(set(asked))
        assert reads[-1] == asked  # the disk was scanned before


@pytest.mark.feature("D2")
def test_a_preview_by_a_handle_that_saw_no_files_yet_shows_them(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    with takeback.open(tmp_path / "s.db") as store:
        early = store.create_session("work", workspace=tmp_path / "w")
        _, first = worked(store, tmp_path / "w")
        assert early._seen.work_seq == 0
        assert [each.path for each in early.preview_rewind(first).files] == ["a.txt", "two.txt"]


# ---------------------------------------------------------------------- damage


def other_value(value: Any, bit: int = 1) -> Any:
    """Return a value of the same type with one bit flipped."""
    match value:
        case int():
            return value ^ bit
        case str():
            return chr(ord(value[0]) ^ 1) + value[1:] if value else "\x01"
        case bytes():
            return bytes([value[0] ^ 1]) + value[1:] if value else b"\x01"
    return None


def flips(table: Table[Any], *untouched: str) -> list[str]:
    return [name for name in table.stored if name not in untouched]


def flip(path: Path, table: str, column: str, where: str, *values: Any) -> None:
    """Flip a bit of a column of one row of a closed store; a NULL becomes a value of the column's type."""
    connection = apsw.Connection(str(path))
    ((value, kind),) = connection.execute(
        f"SELECT t.{column}, c.type FROM {table} t, pragma_table_info('{table}') c WHERE c.name = ? AND {where}",
        (column, *values),
    )
    bit = 1024 if column == "key" else 1  # the neighbour's key is taken
    changed = {"TEXT": "x", "BLOB": b"x", "INTEGER": 1}[kind] if value is None else other_value(value, bit)
    assert changed != value
    connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (changed, *values))
    connection.close()


@pytest.mark.promise("R11", "P4")
@pytest.mark.feature("F5")
@pytest.mark.parametrize("column", flips(ENTRY))
def test_a_flipped_bit_in_any_column_of_an_entry_is_found_by_every_read(tmp_path: Path, column: str) -> None:
    path = tmp_path / "s.db"
    with takeback.open(path) as store:
        session = store.create_session("talk")
        for number in range(20):
            session.append({"role": "user", "content": f"message {number}", "id": f"m{number}"})
    flip(path, "entry", column, "key & 4294967295 = 18")
    with takeback.open(path) as store:
        session = store.get_session("talk")
        for name, read in READS.items():
            if name == "from the start":
                assert len(session.messages(after=0, limit=5, before=18)) == 5
                continue
            with pytest.raises(takeback.Corrupt, match=r"entry .* is (damaged|missing)"):
                read(session)
        assert [message.content for message in session.messages(before=18, limit=2)] == ["message 15", "message 16"]


@pytest.mark.promise("R11", "P5")
@pytest.mark.feature("F5")
@pytest.mark.parametrize("table", [SESSION, DETAIL], ids=lambda table: table.name)
def test_a_flipped_bit_in_any_column_of_a_session_is_found_by_a_listing(tmp_path: Path, table: Table[Any]) -> None:
    key = {"session": "sid", "detail": "sid"}[table.name]
    for column in flips(table, *table.key):
        path = tmp_path / f"{column}.db"
        with takeback.open(path) as store:
            made = [store.create_session(f"s{number}", prompt="Do it", label=f"l{number}") for number in range(4)]
            shown = {session.id: session.to_dict() for session in store.list_sessions()}
        wrong, sid = made[2], made[2]._seen.sid
        flip(path, table.name, column, f"{key} = ?", sid)
        try:
            with takeback.open(path) as store:
                pages = [store.list_sessions(archived=None), store.list_sessions(trash=True)]
                wanted = {id: fields for id, fields in shown.items() if id != wrong.id}
                assert {session.id: session.to_dict() for page in pages for session in page} == wanted, column
                assert sum(len(page.damaged) for page in pages) == 1, column
        except takeback.Corrupt:
            continue  # an index shows it before any row is read


@pytest.mark.promise("R11", "P5")
@pytest.mark.feature("F5", "E9")
@pytest.mark.parametrize("column", flips(LEASE, *LEASE.key))
def test_a_flipped_bit_in_a_lease_is_found_by_a_listing(tmp_path: Path, column: str) -> None:
    path = tmp_path / "s.db"
    with takeback.open(path) as store, store.session("held"):
        pass
    flip(path, "lease", column, "session = 1")
    with takeback.open(path) as store, pytest.raises(takeback.Corrupt):
        store.list_sessions()
