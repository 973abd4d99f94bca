"""What the sessions of an agent add up to at a checkpoint of it.

Each checkpoint carries the sums on from the one before: it takes off what a session that changed had at its old pin,
one read, and adds what the session's row says now. Where they are not known - an old pin names an entry that is damaged
or gone - the row goes without them, and they are added up from the pins whenever somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import add, sub
from typing import TYPE_CHECKING, TypeAlias

from ..errors import Error
from ..model.entry import Numbers
from ..storage.base import Tx
from . import branches, log

if TYPE_CHECKING:
    from .agent_checkpoints import Pin

Changed: TypeAlias = "tuple[Pin, Pin | None, tuple[int, ...]]"  # a place, the one that it replaces, the numbers there
# As in ``Numbers``, but for the last one, which is a place and no total.
Totals: TypeAlias = tuple[int, ...]

_COUNT = len(Numbers._fields) - 1
_WIDTH = 12  # bytes: no number of sessions with totals of 8 bytes each leads beyond it
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


def of_visible(hidden: int, numbers: tuple[int, ...]) -> Totals:
    """Give what a session adds that has these numbers: nothing from the trash, nor from a place that nobody knows."""
    return NOTHING if hidden else numbers[:_COUNT]


def at_pin(tx: Tx, pin: Pin) -> Totals | None:
    """Give what a session adds with a pin; None if the entry there cannot be read or is another one."""
    if pin.hidden:
        return NOTHING
    try:
        point = log.point_on(tx, pin.scope, branches.get(tx, pin.branch), pin.seq)
    except Error:
        return None
    return point.numbers[:_COUNT] if point.hash == pin.hash else None


def at_pins(tx: Tx, pins: Iterable[Pin]) -> Totals | None:
    """Add up pins as they are in force; None if one of them cannot be read."""
    return added(at_pin(tx, pin) for pin in pins)


def added(parts: Iterable[Totals | None]) -> Totals | None:
    """Add totals up; None if some are not known."""
    found = NOTHING
    for part in parts:
        if part is None:
            return None
        found = tuple(map(add, found, part))
    return found


def carried_on(tx: Tx, totals: Totals | None, changes: Iterable[Changed]) -> Totals | None:
    """Carry totals on over what changed; None if they or those of an old place are not known."""
    for pin, old, numbers in changes:
        totals = without(totals, NOTHING if old is None else at_pin(tx, old))
        totals = added((totals, of_visible(pin.hidden, numbers)))
    return totals


def without(totals: Totals | None, part: Totals | None) -> Totals | None:
    """Take a part off; None if that or the whole is not known."""
    return None if totals is None or part is None else tuple(map(sub, totals, part))
