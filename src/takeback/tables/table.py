"""One table, described once: its columns, the check that seals a row, and every statement that follows from them.

A row is a ``NamedTuple``; its fields are the columns, in order, followed by ``chk``. Fields named in ``packed`` share
one column, ``rest``: a MessagePack array that the check covers too. So a field that no statement filters or orders by
costs neither a column nor a line of SQL, and moving one in or out changes only its descriptor.

A column added by a later version is named in ``added`` and comes last. It may be NULL, and then the check leaves it
out, so that rows sealed before it existed still match.

``moving`` names the columns that most updates write. SQLite has the columns in field order, PostgreSQL has these last
(``schema``), so no statement may rely on column order. ``position`` names the column that holds the feed position of a
row's last change.

A read takes no lock unless its statement says so: ``get_locked``, or a condition that ends with ``LOCK``.

The invariant: every row that a descriptor returns has passed its check. Code that must handle damage (``verify``,
``repair``) asks for unchecked rows by name: ``is_sound``, ``unchecked``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress
from operator import itemgetter, ne
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_type_hints

import msgspec

from ..errors import Corrupt
from ..storage.base import CHANGE_ORDER, LOCK, Row, Tx, Value

R = TypeVar("R", bound="tuple[Any, ...]")
V = TypeVar("V")
Key = tuple[Any, ...]

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode
_TYPES = {int: "INTEGER", str: "TEXT", bytes: "BLOB"}
_MANY = 64  # rows of one INSERT
_SEVERAL = 500  # rows of one read by numbers
_LONG = 16  # from so many values on, the header of a MessagePack array takes three bytes


class Index(NamedTuple):
    """An index of a table: its columns, and which rows it covers."""

    name: str
    columns: str
    unique: bool = False
    where: str = ""
    engine: str = ""  # the only one that needs it


def row_check(values: Sequence[Value]) -> int:
    """Return a row's check: CRC-32 of its columns as a MessagePack array."""
    return zlib.crc32(_pack(values))


def packed(values: Sequence[Value]) -> bytes:
    """Pack values as a MessagePack array."""
    return _pack(values)


class Table(Generic[R]):
    """A table of rows of one type. ``number`` is the column whose values the store assigns, if it has one."""

    def __init__(
        self,
        name: str,
        row: type[R],
        *,
        key: str,
        called: Callable[[R], str],
        number: str = "",
        packed: Sequence[str] = (),
        added: Sequence[str] = (),
        moving: str = "",
        position: str = "",
        order: Mapping[str, str] | None = None,
        refs: Mapping[str, str] | None = None,
        indexes: Sequence[Index] = (),
        notes: Mapping[str, str] | None = None,
        local: bool = False,
    ) -> None:
        fields: tuple[str, ...] = row._fields  # type: ignore[attr-defined]
        self._plain, self._behind = len(fields) - len(packed) - len(added), len(fields) - len(added)
        assert fields[self._plain :] == (*packed, *added), "packed fields and then added ones come last"
        self.name = name
        self.row = row
        self.key = tuple(key.split(", "))
        self.number = number
        places = [fields.index(name) for name in self.key]
        self._key_of: Callable[[R], Key] = itemgetter(*places) if len(places) > 1 else lambda row: (row[places[0]],)
        self.packed = tuple(packed)
        self.refs = dict(refs or {})
        self.indexes = tuple(indexes)
        self.notes = dict(notes or {})
        self.local = local  # belongs to the store, not to a scope
        self._called = called
        self._orders = {engine: tuple(columns.split(", ")) for engine, columns in (order or {}).items()}
        self.added = tuple(added)
        self.moving = tuple(moving.split(", ")) if moving else ()  # what most changes of a row write
        self._position = position
        self.stored = (*fields[: self._plain], *(("rest",) if packed else ()), *added, "chk")
        self.columns = ", ".join(self.stored)
        self.width = len(self.stored)  # with the check
        self._make: Callable[[Iterable[Any]], R] = partial(tuple.__new__, row)  # ``_make`` without its length check
        # Makes a row of stored columns whose packed fields stay packed: it has the other fields, by the same names.
        names = {field: row.__dict__[field] for field in fields[: self._plain]}
        folded = type(row.__name__, (tuple,), {"__slots__": (), **names}) if packed else row
        self.fold: Callable[[Iterable[Any]], R] = partial(tuple.__new__, folded)
        self.select = f"SELECT {self.columns} FROM {name}"
        self.into = f"INSERT INTO {name} ({self.columns}) VALUES "
        self._slots = f"({slots(len(self.stored))})"
        self.insert = self.into + self._slots
        self._by_key = f"{self.select} WHERE {matches(self.key)}"
        self._by_key_locked = f"{self._by_key}{LOCK}"
        self._upsert = ""
        self._updates = dict[tuple[int, ...], tuple[str, Callable[[Row], Row]]]()
        self._pages = dict[tuple[str, bool, bool, bool, bool], str]()

    def __repr__(self) -> str:
        return f"<Table {self.name}>"

    # ------------------------------------------------------------------ rows and what is stored of them

    def seal(self, row: R) -> tuple[Value, ...]:
        """Return what is stored of a row: its columns and its check."""
        values: tuple[Any, ...] = row
        if self.packed:
            plain, behind = self._plain, self._behind
            values = (*row[:plain], _pack(row[plain:behind]), *row[behind:])
        return (*values, zlib.crc32(self._covered(values) if self.added else _pack(values)))

    def _covered(self, values: Row) -> bytes:
        """Pack what a check covers."""
        return _pack(values[: self._count(values)])

    def _count(self, values: Row) -> int:
        """Return how many columns a check covers: all except trailing added ones that are NULL."""
        count = len(values)
        if self.added:
            least = count - len(self.added)
            while count > least and values[count - 1] is None:
                count -= 1
        return count

    def rest_of(self, row: R) -> bytes:
        """Return the packed fields of a row."""
        return _pack(tuple(row)[self._plain : self._behind])

    def check(self, row: R) -> int:
        """Return a row's check."""
        return int(self.seal(row)[-1])  # type: ignore[arg-type]

    def around(self, row: R, name: str, rest: bytes = b"") -> tuple[bytes, bytes]:
        """Return the packed columns before and after one of them, for an engine that computes the check around it.

        ``rest`` is what ``rest_of`` returned, if the table has packed fields.
        """
        values = (*row[: self._plain], rest, *row[self._behind :]) if self.packed else row
        at, count = self.stored.index(name), self._count(values)
        before, behind = _pack(values[:at]), _pack(values[at + 1 : count])
        whole = bytes((0x90 | count,)) if count < _LONG else b"\xdc" + count.to_bytes(2, "big")
        return whole + before[_header(at) :], behind[_header(count - at - 1) :]

    def is_sound(self, stored: Row) -> bool:
        """Whether a stored row matches its check."""
        try:
            return bool(zlib.crc32(self._covered(stored[:-1])) == stored[-1])
        except (TypeError, OverflowError, UnicodeError):
            return False

    def unchecked(self, stored: Row) -> R:
        """Return a stored row without comparing its check; fields that cannot be unpacked are None."""
        if not self.packed:
            return self.row(*stored[:-1])
        try:
            rest = (*(found := _unpack(stored[self._plain])), *self._absent(len(found)))
            if len(rest) != len(self.packed):
                raise ValueError(rest)
        except (msgspec.DecodeError, TypeError, ValueError, KeyError):
            rest = (None,) * len(self.packed)
        return self.row(*stored[: self._plain], *rest, *stored[self._plain + 1 : -1])

    def checked(self, stored: Row) -> R:
        """Return a stored row; one that does not match its check raises ``Corrupt``."""
        values = stored[:-1]
        if zlib.crc32(self._covered(values) if self.added else _pack(values)) != stored[-1]:
            raise self.damaged(self.unchecked(stored))
        return self._unfolded(values) if self.packed else self._make(values)

    def unfolded(self, row: R) -> R:
        """Return a row that ``fold`` made with its packed fields."""
        return row if type(row) is self.row else self._unfolded(row)

    def _unfolded(self, values: Row) -> R:
        plain = self._plain
        rest = tuple(_unpack(values[plain]))
        if len(rest) < len(self.packed):
            rest += self._absent(len(rest))
        return self._make(values[:plain] + rest + values[plain + 1 :])

    def _absent(self, known: int) -> tuple[Any, ...]:
        """Return the defaults of packed fields that a row lacks because it was written before they existed."""
        defaults: dict[str, Any] = self.row._field_defaults  # type: ignore[attr-defined]
        return tuple(defaults[name] for name in self.packed[known:])

    def all_checked(self, rows: Sequence[Row]) -> list[R]:
        """Return many stored rows, as ``checked`` does for one; this dominates the cost of reading a conversation."""
        if self.packed or self.added:
            return [self.checked(stored) for stored in rows]
        crc32, make = zlib.crc32, self._make
        found = [make(stored[:-1]) for stored in rows]
        for row, stored in zip(found, rows, strict=True):
            if crc32(_pack(row)) != stored[-1]:
                raise self.damaged(row)
        return found

    def damaged(self, row: R) -> Corrupt:
        """Return the error for a damaged row."""
        what = self.called(row)
        return Corrupt(f"the record of {what} is damaged; run verify to see what else is", what=what)

    def called(self, row: R) -> str:
        """Return a name of a row for people, however damaged the row is."""
        try:
            return self._called(row)
        except (TypeError, ValueError):
            return f"a row of {self.name}"

    # ------------------------------------------------------------------ reading

    def get(self, tx: Tx, *key: Value) -> R | None:
        """Return the row of a key, or None."""
        stored = tx.one(self._by_key, key)
        return None if stored is None else self.checked(stored)

    def get_locked(self, tx: Tx, *key: Value) -> R | None:
        """Return the row of a key, or None; in a write transaction nobody else can change it until the end."""
        stored = tx.one(self._by_key_locked, key)
        return None if stored is None else self.checked(stored)

    def one(self, tx: Tx, where: str, args: Sequence[Value] = ()) -> R | None:
        """Return the first row that matches a condition, or None; ``where`` is SQL from WHERE on."""
        stored = tx.one(f"{self.select} {where}", args)
        return None if stored is None else self.checked(stored)

    def all(self, tx: Tx, where: str, args: Sequence[Value] = ()) -> list[R]:
        """Return every row that matches a condition."""
        return self.all_checked(tx.all(f"{self.select} {where}", args))

    def numbered(self, tx: Tx, scope: str, numbers: Iterable[int], *, damaged: bool = True) -> dict[int, R]:
        """Return rows by number, many per read; missing ones are left out.

        A damaged one raises ``Corrupt``, or is left out as well with ``damaged=False``.
        """
        found = dict[int, R]()
        for some in several(sorted(set(numbers)), _SEVERAL):
            # NOT INDEXED, or SQLite would walk an index of the whole scope instead of seeking each row.
            source = f"SELECT {self.selected('n')} FROM {self.name} n NOT INDEXED"
            sql = f"{source} WHERE n.scope = ? AND n.{self.number} IN ({slots(len(some))})"
            stored = tx.all(sql, (scope, *some))
            for row in map(self.checked, stored if damaged else filter(self.is_sound, stored)):
                found[getattr(row, self.number)] = row
        return found

    def selected(self, alias: str, without: Sequence[str] = ()) -> str:
        """Return the columns for a join, each qualified with the table's alias."""
        return ", ".join(f"{alias}.{name}" for name in self.stored if name not in without)

    # ------------------------------------------------------------------ writing

    def put(self, tx: Tx, row: R) -> R:
        """Insert a row."""
        tx.run(self.insert, self.seal(row))
        return row

    def put_many(self, tx: Tx, rows: Sequence[R]) -> None:
        """Insert rows, many per statement."""
        self._put_many(tx, rows, "")

    def _put_many(self, tx: Tx, rows: Sequence[R], conflict: str) -> None:
        for some in several(rows, _MANY):
            sql = f"{self.into}{', '.join([self._slots] * len(some))}{conflict}"
            tx.run(sql, [value for row in some for value in self.seal(row)])

    def upsert(self, tx: Tx, row: R) -> R:
        """Insert a row, or replace the one with its key."""
        if not self._upsert:
            others = [name for name in self.stored if name not in self.key]
            sets = ", ".join(f"{name} = excluded.{name}" for name in others)
            self._upsert = f"{self.insert} ON CONFLICT ({', '.join(self.key)}) DO UPDATE SET {sets}"
        tx.run(self._upsert, self.seal(row))
        return row

    def update(self, tx: Tx, old: R, new: R) -> R:
        """Write the columns in which ``new`` differs from the stored row; nothing if none does.

        An engine rewrites an index only if one of its columns is set, so an append leaves the session's indexes alone.
        """
        changed = self._differing(old, new)
        if changed:
            after, (sql, pick) = self.seal(new), self._updates.get(changed) or self._new_update(changed)
            tx.run(sql, (*pick(after), *self._key_of(old)))
        return new

    def update_many(self, tx: Tx, pairs: Iterable[tuple[R, R]]) -> None:
        """Write rows, each as stored and as it should be, as ``update`` does for one, many per statement.

        The rows must exist, and the order in which they are written is not that of the pairs.
        """
        alike = dict[tuple[int, ...], list[R]]()
        for old, new in pairs:
            if changed := self._differing(old, new):
                alike.setdefault(changed, []).append(new)
        for changed, rows in alike.items():
            # All of them exist, so each insert meets its row and becomes an update, on any engine by the same text.
            names = [self.stored[n] for n in changed]
            sets = (f"{name} = excluded.{name}{CHANGE_ORDER if name == self._position else ''}" for name in names)
            self._put_many(tx, rows, f" ON CONFLICT ({', '.join(self.order(tx))}) DO UPDATE SET {', '.join(sets)}")

    def delete_many(self, tx: Tx, rows: Sequence[R]) -> None:
        """Delete rows, many per statement."""
        for some in several([self._key_of(row) for row in rows], _MANY):
            sql = f"DELETE FROM {self.name} WHERE ({', '.join(self.key)}) IN ({tuples(some)})"
            tx.run(sql, [value for key in some for value in key])

    def _differing(self, old: R, new: R) -> tuple[int, ...]:
        """Return the positions of the stored columns in which two rows differ, followed by the check's."""
        plain, behind = self._plain, self._behind
        found = [*compress(range(plain), map(ne, old, new))]
        if self.packed and old[plain:behind] != new[plain:behind]:
            found.append(plain)
        if self.added:
            shift = self.width - 1 - len(old)  # the packed fields share one column
            found += [n + shift for n in range(behind, len(old)) if old[n] != new[n]]
        return (*found, self.width - 1) if found else ()

    def _new_update(self, changed: tuple[int, ...]) -> tuple[str, Callable[[Row], Row]]:
        """Return the statement that writes some columns, given by position, and what picks their values."""
        names = [self.stored[n] for n in changed]
        sets = ", ".join(f"{name} = ?{CHANGE_ORDER if name == self._position else ''}" for name in names)
        made = f"UPDATE {self.name} SET {sets} WHERE {matches(self.key)}", itemgetter(*changed)
        self._updates[changed] = made
        return made

    def delete(self, tx: Tx, *key: Value) -> None:
        """Delete the row of a key."""
        tx.run(f"DELETE FROM {self.name} WHERE {matches(self.key)}", key)

    # ------------------------------------------------------------------ every row, in pages

    def order(self, tx: Tx) -> tuple[str, ...]:
        """Return the columns by which rows are stored; the number alone where numbers are unique in the store.

        An engine may have columns of its own there, which rows do not include.
        """
        own = self._orders.get(tx.dialect.name)
        return own or ((self.number,) if self.number and tx.dialect.gapless else self.key)

    def page(
        self, tx: Tx, after: Key | None, limit: int, *, scope: str | None = None, upto: Key | None = None
    ) -> tuple[list[Row], Key | None]:
        """Read the next rows as stored, with the key to go on from, None at the end.

        Only rows of one scope and only those up to a key, if these are named. A row that cannot be read at all is its
        key and nothing else. Keys that do not grow raise ``Corrupt``.
        """
        rows = self._page(tx, after, limit, scope, upto)
        if not rows:
            return [], None
        width = len(self.order(tx))
        reached = tuple(rows[-1][:width])
        if after is not None and not _grows(after, reached):
            raise Corrupt("the keys of a table are out of order", what="file")
        return [row[width:] for row in rows], reached

    def _page(self, tx: Tx, after: Key | None, limit: int, scope: str | None, upto: Key | None) -> list[Row]:
        """Read the next rows, each behind its key."""
        args = (*(() if scope is None else (scope,)), *(after or ()), *(upto or ()), limit)
        asked = (tx.dialect.name, after is not None, scope is not None, upto is not None)
        try:
            return tx.all(self._page_sql(tx, *asked, keys=False), args)
        except Corrupt:
            keys = tx.all(self._page_sql(tx, *asked, keys=True), args)
            return [(*key, *self._single(tx, key)) for key in keys]

    def _page_sql(self, tx: Tx, dialect: str, behind: bool, scoped: bool, bounded: bool, *, keys: bool) -> str:
        asked = (dialect, behind, scoped, bounded, keys)
        sql = self._pages.get(asked)
        if sql is None:
            order, key = ", ".join(self.order(tx)), slots(len(self.order(tx)))
            asks = {"scope = ?": scoped, f"({order}) > ({key})": behind, f"({order}) <= ({key})": bounded}
            where = f" WHERE {' AND '.join(each for each in asks if asks[each])}" if any(asks.values()) else ""
            what = order if keys else f"{order}, {self.columns}"
            # NOT INDEXED: through an index of the scope, every page would sort again; walk in storage order instead.
            walk = " NOT INDEXED" if scoped and "scope" not in self.order(tx) else ""
            sql = self._pages[asked] = f"SELECT {what} FROM {self.name}{walk}{where} ORDER BY {order} LIMIT ?"
        return sql

    def _single(self, tx: Tx, key: Row) -> Row:
        order = self.order(tx)
        try:
            row = tx.one(f"{self.select} WHERE {matches(order)}", key)
        except Corrupt:
            row = None
        known = dict(zip(order, key, strict=True))
        return row or tuple(known.get(name) for name in self.stored)

    def walk(self, tx: Tx, limit: int = 500) -> Iterator[Row]:
        """Yield every row as stored, a page at a time, within one transaction."""
        after: Key | None = None
        while True:
            rows, after = self.page(tx, after, limit)
            yield from rows
            if after is None:
                return

    # ------------------------------------------------------------------ the schema

    def types(self) -> dict[str, tuple[str, bool]]:
        """Return the type of each column and whether it may be NULL."""
        hints = get_type_hints(self.row)
        found = {name: _type(hints[name]) for name in self.stored if name in hints}
        return {**found, **({"rest": ("BLOB", False)} if self.packed else {}), "chk": ("INTEGER", False)}


def slots(count: int) -> str:
    """Return that many placeholders."""
    return ", ".join("?" * count)


def tuples(values: Sequence[Sequence[object]]) -> str:
    """Return placeholders for what ``IN`` compares with: values, or rows of more than one."""
    width = len(values[0])
    return slots(len(values)) if width == 1 else f"VALUES {', '.join([f'({slots(width)})'] * len(values))}"


def several(values: Sequence[V], most: int) -> Iterator[Sequence[V]]:
    """Split values into runs of at most so many."""
    return (values[first : first + most] for first in range(0, len(values), most))


def matches(columns: Sequence[str]) -> str:
    """Return the condition that columns equal the bound values."""
    return " AND ".join(f"{name} = ?" for name in columns)


def _header(count: int) -> int:
    """Return the size in bytes of the header of a MessagePack array."""
    return 1 if count < _LONG else 3


def _grows(after: Key, reached: Key) -> bool:
    try:
        return reached > after
    except TypeError:
        return False


def _type(hint: Any) -> tuple[str, bool]:
    options = get_args(hint) or (hint,)
    (kind,) = (each for each in options if each is not type(None))
    return _TYPES[kind], type(None) in options
