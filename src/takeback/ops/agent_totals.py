"""What the sessions of an agent add up to at a checkpoint of it.

Each checkpoint carries the sums on from the one before: it takes off what the sessions that changed had at their old
pins, many in one read, and adds what their rows say now. Where they are not known - an old pin names an entry that is
damaged or gone - the row goes without them, and they are added up from the pins whenever somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import add, sub
from typing import TypeAlias

import msgspec

from ..errors import Error
from ..model.entry import GENESIS, Numbers
from ..storage.base import Tx
from ..tables.agents import PinRow
from ..tables.entries import ENTRY, Chain
from ..tables.table import slots
from . import branches, log

Changed: TypeAlias = "tuple[PinRow, PinRow | None, Numbers]"  # a place, the one that it replaces, the numbers there
# As in ``Numbers``, without the last ones, which are places and no totals.
Totals: TypeAlias = tuple[int, ...]

_COUNT = Numbers._fields.index("work_seq")
_WIDTH = 12  # bytes: no number of sessions with totals of 8 bytes each leads beyond it
_MANY = 64  # entries of one read
SIZE = _COUNT * _WIDTH
NOTHING: Totals = (0,) * _COUNT


def encode(totals: Totals | None) -> bytes:
    """Write totals; nothing if they are not known."""
    return b"" if totals is None else b"".join(each.to_bytes(_WIDTH, "big", signed=True) for each in totals)


def decode(data: bytes) -> Totals | None:
    """Read totals; None where there are none."""
    if len(data) != SIZE:
        return None
    return tuple(int.from_bytes(data[at : at + _WIDTH], "big", signed=True) for at in range(0, SIZE, _WIDTH))


def of_visible(hidden: int, numbers: Numbers) -> Totals:
    """Return what a session with these numbers adds: nothing from the trash, nor from a place that nobody knows."""
    return NOTHING if hidden else numbers[:_COUNT]


def at_pin(tx: Tx, pin: PinRow) -> Totals | None:
    """Return what a session adds with a pin; None if the entry there cannot be read or is another one."""
    return next(at_each(tx, [pin]))


def at_pins(tx: Tx, pins: Iterable[PinRow]) -> Totals | None:
    """Add up pins as they are in force; None if one of them cannot be read."""
    return added(at_each(tx, list(pins)))


def at_each(tx: Tx, pins: Sequence[PinRow]) -> Iterator[Totals | None]:
    """Yield what a session adds with each pin, as ``at_pin`` does; many entries in one read."""
    for first in range(0, len(pins), _MANY):
        some = pins[first : first + _MANY]
        chains = _chains(tx, [pin for pin in some if not pin.hidden and pin.seq])
        for pin in some:
            yield NOTHING if pin.hidden else _at(tx, pin, chains.get(log.key_of(pin.branch, pin.seq)))


def _chains(tx: Tx, pins: Sequence[PinRow]) -> dict[int, Chain]:
    """Return the chains of the entries at pins, by their keys, as far as the pins' own branches hold them."""
    if not pins:
        return {}
    keys = [log.key_of(pin.branch, pin.seq) for pin in pins]
    stored = tx.all(f"{ENTRY.select} WHERE scope = ? AND key IN ({slots(len(keys))})", (pins[0].scope, *keys))
    found = dict[int, Chain]()
    for row in map(ENTRY.unchecked, filter(ENTRY.is_sound, stored)):
        try:
            found[row.key] = row.chain
        except msgspec.MsgspecError:
            continue
    return found


def _at(tx: Tx, pin: PinRow, chain: Chain | None) -> Totals | None:
    """Return what a visible session adds with a pin, whose entry an ancestor of its branch may hold."""
    if chain is not None:
        return chain.numbers[:_COUNT] if chain.hash == pin.hash else None
    if pin.seq == 0:
        return NOTHING if pin.hash == GENESIS else None
    try:
        point = log.point_on(tx, pin.scope, branches.get(tx, pin.scope, pin.branch), pin.seq)
    except Error:
        return None
    return point.numbers[:_COUNT] if point.hash == pin.hash else None


def added(parts: Iterable[Totals | None]) -> Totals | None:
    """Add totals up; None if some are not known."""
    found = NOTHING
    for part in parts:
        if part is None:
            return None
        found = tuple(map(add, found, part))
    return found


def carried_on(tx: Tx, totals: Totals | None, changes: Sequence[Changed]) -> Totals | None:
    """Carry totals on over what changed; None if they or those of an old place are not known."""
    gone = at_pins(tx, [old for _, old, _ in changes if old is not None])
    return added((without(totals, gone), *(of_visible(pin.hidden, numbers) for pin, _, numbers in changes)))


def without(totals: Totals | None, part: Totals | None) -> Totals | None:
    """Take a part off; None if that or the whole is not known."""
    return None if totals is None or part is None else tuple(map(sub, totals, part))
