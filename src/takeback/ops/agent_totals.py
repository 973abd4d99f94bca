"""The totals of an agent's sessions at a checkpoint.

Each checkpoint carries the sums forward from the previous one: for the sessions that changed, it subtracts the numbers
at their old pins, many in one read, and adds those in their rows now. If the sums are unknown, because an old pin names
an entry that is damaged or gone, the row is stored without them and they are added up from the pins on demand.
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
from . import branches, log

Changed: TypeAlias = "tuple[PinRow, PinRow | None, Numbers]"  # the new pin, the pin it replaces, the numbers now
# As in ``Numbers``, without the last fields, which are positions rather than totals.
Totals: TypeAlias = tuple[int, ...]

_COUNT = Numbers._fields.index("work_seq")
_WIDTH = 12  # bytes: wide enough for the sum of any number of 8-byte totals
_MANY = 500  # entries of one read
SIZE = _COUNT * _WIDTH
NOTHING: Totals = (0,) * _COUNT


def encode(totals: Totals | None) -> bytes:
    """Encode totals; empty if they are unknown."""
    return b"" if totals is None else b"".join(each.to_bytes(_WIDTH, "big", signed=True) for each in totals)


def decode(data: bytes) -> Totals | None:
    """Decode totals; None if there are none."""
    if len(data) != SIZE:
        return None
    return tuple(int.from_bytes(data[at : at + _WIDTH], "big", signed=True) for at in range(0, SIZE, _WIDTH))


def of_visible(hidden: int, numbers: Numbers) -> Totals:
    """Return what a session contributes: nothing while it is in the trash or its position is unknown."""
    return NOTHING if hidden else numbers[:_COUNT]


def at_pin(tx: Tx, pin: PinRow) -> Totals | None:
    """Return what a session contributes at a pin; None if the entry cannot be read or its hash differs."""
    return next(at_each(tx, [pin]))


def at_pins(tx: Tx, pins: Iterable[PinRow]) -> Totals | None:
    """Add up the totals at pins; None if one of them cannot be read."""
    return added(at_each(tx, list(pins)))


def at_each(tx: Tx, pins: Sequence[PinRow]) -> Iterator[Totals | None]:
    """Yield what a session contributes at each pin, as ``at_pin`` does, reading many entries at once."""
    for first in range(0, len(pins), _MANY):
        some = pins[first : first + _MANY]
        chains = _chains(tx, [pin for pin in some if not pin.hidden and pin.seq])
        for pin in some:
            yield NOTHING if pin.hidden else _at(tx, pin, chains.get(log.key_of(pin.branch, pin.seq)))


def _chains(tx: Tx, pins: Sequence[PinRow]) -> dict[int, Chain]:
    """Return the chains of the entries at pins, by key, for those that the pins' own branches hold."""
    if not pins:
        return {}
    keys = [log.key_of(pin.branch, pin.seq) for pin in pins]
    found = dict[int, Chain]()
    for row in ENTRY.numbered(tx, pins[0].scope, keys, damaged=False).values():
        try:
            found[row.key] = row.chain
        except msgspec.MsgspecError:
            continue
    return found


def _at(tx: Tx, pin: PinRow, chain: Chain | None) -> Totals | None:
    """Return what a visible session contributes at a pin, whose entry an ancestor of its branch may hold."""
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
    """Add up totals; None if any are unknown."""
    found = NOTHING
    for part in parts:
        if part is None:
            return None
        found = tuple(map(add, found, part))
    return found


def carried_on(tx: Tx, totals: Totals | None, changes: Sequence[Changed]) -> Totals | None:
    """Carry totals forward over what changed; None if they or those at an old pin are unknown."""
    gone = at_pins(tx, [old for _, old, _ in changes if old is not None])
    return added((without(totals, gone), *(of_visible(pin.hidden, numbers) for pin, _, numbers in changes)))


def without(totals: Totals | None, part: Totals | None) -> Totals | None:
    """Subtract a part from totals; None if either is unknown."""
    return None if totals is None or part is None else tuple(map(sub, totals, part))
