"""Proving damaged rows by their checks: one bit flipped back, or one value put in from another row, and all of it fits.

A flipped bit changes a CRC-32 by a value that depends on its place alone, and no two places change it in the same way:
the difference between the check that is stored and the one that follows from the row names the bit. Any other
damage of one value is undone by trying what that column may hold. That a wrong row fits happens once in 2^32 tries.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from ...model.status import STATUSES
from ...ops import checkpoints, sessions
from ...storage.base import Row, Value
from ...tables.content import CHUNK
from ...tables.schema import TABLES
from ...tables.table import Table, matches
from .base import R, Salvage, proved, read_of

Known: TypeAlias = "Callable[[str], Sequence[Value]]"

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[Any]).decode
_NULL = zlib.crc32(b"\0")
_STEP = [zlib.crc32(bytes([byte])) ^ _NULL for byte in range(256)]  # by what a change of the last byte changes it
_LAST = {change >> 24: byte for byte, change in enumerate(_STEP)}
_BITS = {_STEP[1 << bit]: bit for bit in range(8)}
_MARK = "\ufffd"  # stands in a copy for a byte that is no UTF-8
_WORDS = (*checkpoints.TYPES, *STATUSES, *sessions.KINDS, "message", "tool", "zstd", "raw")
_MOST = 100  # values of a column that are tried


def fix_proved(fix: Salvage) -> None:
    """Put every row right that one bit or one value makes fit; the store's own records have a pass of their own."""
    for table in TABLES:

        @functools.cache
        def known(column: str, name: str = table.name) -> list[Value]:
            return [value for (value,) in fix.tx.all(f"SELECT DISTINCT {column} FROM {name} LIMIT ?", (_MOST,))]

        order, size = table.order(fix.tx), 8 if table is CHUNK else 500  # a chunk holds up to a megabyte
        damaged = (stored for stored in table.walk(fix.tx, size) if not table.local and not table.is_sound(stored))
        for stored in damaged:
            found = read_of(table, stored)
            new = _flipped_back(table, stored) or proved(table, found, _values(table, found.row, known))
            before, after = ([getattr(row, name) for name in order] for row in (found.row, new or found.row))
            taken = before != after and fix.tx.one(f"SELECT 1 FROM {table.name} WHERE {matches(order)}", after)
            if new is not None and not taken:
                fix.replace(table, found.row, new)


# ---------------------------------------------------------------------- one bit


def _flipped_back(table: Table[R], stored: Row) -> R | None:
    *values, chk = stored
    data = _pack(values)
    change = zlib.crc32(data) ^ chk
    if change.bit_count() == 1:  # it is one of the check itself
        return table.unchecked(stored)
    place = None if change >> 32 else _place(len(data), change)
    if place is None:
        return None
    at, bit = place
    try:
        new = _unpack(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
    except (msgspec.DecodeError, UnicodeError):
        return None
    return table.unchecked((*new, chk)) if list(map(type, new)) == list(map(type, values)) else None


def _place(length: int, change: int) -> tuple[int, int] | None:
    """Return byte and bit whose flip changes the check so; from the end, each byte takes one step of the CRC back."""
    for at in range(length - 1, -1, -1):
        if (bit := _BITS.get(change)) is not None:
            return at, bit
        byte = _LAST[change >> 24]
        change = (change ^ _STEP[byte]) << 8 | byte
    return None


# ---------------------------------------------------------------------- one value


def _values(table: Table[R], row: R, known: Known) -> Iterator[dict[str, Value]]:
    """Yield what each column may have been: what any may be, and what it is in other rows."""
    for name, value in zip(table.row._fields, row, strict=True):  # type: ignore[attr-defined]
        yield from ({name: other} for other in _others(value))
        if name in table.stored and not isinstance(value, bytes):
            yield from ({name: other} for other in known(name))


def _others(value: Any) -> Iterator[Value]:
    """Yield what a value may have been, whatever column it is of."""
    yield from (None, "", 0, 1, *_WORDS)
    if isinstance(value, int):  # one bit of a number is often more of those that the check is computed from
        yield from (value ^ flip for flip in (*(1 << bit for bit in range(63)), -(1 << 63)))
    elif isinstance(value, str) and value.count(_MARK) == 1:
        yield from (value.replace(_MARK, chr(code)) for code in range(128))
