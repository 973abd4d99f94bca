"""Listing sessions: newest first by last change or by creation, from the rows alone, by every filter.

Both orders are integers (feed position, local number), never the clock. A page ends with the number of its last
row, so pages neither skip nor repeat while others write. A damaged row is named beside the page, never hidden
and never in the way of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..errors import Corrupt, Invalid
from ..model.status import ACTIVE, INTERRUPTED
from ..storage.base import Tx
from . import sessions
from .sessions import LeaseRow, Whole

_ORDERS = {"updated": "rank", "created": "sid"}
_RANK, _SID = 45, 0


class Filter(NamedTuple):
    """Which sessions to list; None means any."""

    agent: str | None = None
    kinds: tuple[str, ...] | None = None
    statuses: tuple[str, ...] | None = None
    label: str | None = None
    tag: str | None = None
    workspace: str | None = None
    parent: int | None = None
    archived: bool | None = False
    pinned: bool | None = None
    since_ms: int | None = None
    trash: bool = False


class Listed(NamedTuple):
    """A page: sessions with their details, ids of damaged ones, where the next page begins."""

    found: list[Whole]
    damaged: list[str]
    next: int | None


def page(
    tx: Tx,
    scope: str,
    wanted: Filter,
    *,
    order: str,
    before: int | None,
    limit: int,
    is_gone: Callable[[LeaseRow], bool] = lambda lease: False,
) -> Listed:
    """Give sessions that match, below a number of the order; ``is_gone`` says whether a holder is there no more."""
    asked = wanted.statuses
    if asked is None or (ACTIVE in asked) == (INTERRUPTED in asked):
        return _page(tx, scope, wanted, order, before, limit)
    # An active session whose holder is gone is shown as interrupted, which only a look at the holder tells.
    wider, found, damaged = wanted._replace(statuses=tuple({*asked, ACTIVE, INTERRUPTED})), list[Whole](), list[str]()
    while True:
        next_ = _page(tx, scope, wider, order, before, limit - len(found))
        found += [each for each in next_.found if shown_status(each, is_gone) in asked]
        damaged += next_.damaged
        if next_.next is None or len(found) + len(damaged) >= limit:
            return Listed(found, damaged, next_.next)
        before = next_.next


def shown_status(whole: Whole, is_gone: Callable[[LeaseRow], bool]) -> str:
    """Give the status of a session: one that is active and whose holder is gone was interrupted."""
    session, _, lease = whole
    left = session.status == ACTIVE and lease is not None and lease.holder is not None
    return INTERRUPTED if left and lease is not None and is_gone(lease) else session.status


def _page(tx: Tx, scope: str, wanted: Filter, order: str, before: int | None, limit: int) -> Listed:
    column = _ORDERS[order]
    where, values = _conditions(wanted)
    sql = f"{sessions.SELECT_WHOLE} WHERE s.scope = ? AND s.hidden = ? AND s.{column} < ?{where}"
    bound = (1 << 62) if before is None else before
    rows = tx.all(f"{sql} ORDER BY s.{column} DESC LIMIT ?", (scope, int(wanted.trash), bound, *values, limit + 1))
    at = _RANK if order == "updated" else _SID
    found, damaged = [], []
    for row in rows[:limit]:
        try:
            whole = sessions.checked_whole(row)
            if row[at] >= bound:
                raise Corrupt("the order of sessions is damaged; run verify", what=f"session_{column}")
        except Corrupt as error:
            if not error.what.startswith("session "):
                raise
            damaged.append(str(row[2]))
            continue
        bound = row[at]
        found.append(whole)
    more = len(rows) > limit
    return Listed(found, damaged, _next(rows[limit - 1][at], bound) if more else None)


def count(tx: Tx, scope: str, wanted: Filter, most: int) -> int:
    """Count sessions that match, up to a number; what a record says is taken as it is, whole or damaged."""
    where, values = _conditions(wanted)
    sql = f"SELECT count(*) FROM (SELECT 1 FROM session s WHERE s.scope = ? AND s.hidden = ?{where} LIMIT ?) AS found"
    row = tx.one(sql, (scope, int(wanted.trash), *values, most))
    return int(row[0]) if row else 0


def workspaces(tx: Tx, scope: str, among: Sequence[str]) -> set[str]:
    """Say which of these directories have a session, archived or not, in one read."""
    sql = f"SELECT DISTINCT workspace FROM session WHERE scope = ? AND hidden = 0 AND workspace IN ({_slots(among)})"
    return {str(row[0]) for row in tx.all(sql, (scope, *among))}


def _slots(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


def _next(last: Any, bound: int) -> int:
    """Go on behind the last row; a damaged number cannot make the pages go round in circles."""
    return last if isinstance(last, int) and last < bound else bound


def _conditions(wanted: Filter) -> tuple[str, list[Any]]:
    """Write the filter as SQL with every value bound."""
    parts, values = list[str](), list[Any]()

    def add(sql: str, *given: Any) -> None:
        parts.append(f" AND {sql}")
        values.extend(given)

    for column in ("agent", "label", "workspace", "parent"):
        value = getattr(wanted, column)
        if value is not None:
            # The plus keeps to the order's own index where a filter is not selective; children of one parent are few.
            add(f"s.{column} = ?" if column == "parent" else f"+s.{column} = ?", value)
    for column, given in (("kind", wanted.kinds), ("status", wanted.statuses)):
        if given is not None:
            add(f"+s.{column} IN ({_slots(given)})", *given)
    for column, flag in (("archived", wanted.archived), ("pinned", wanted.pinned)):
        if flag is not None:
            add(f"+s.{column} = ?", int(flag))
    if wanted.tag is not None:
        add("instr(s.tags, ?) > 0", f"\n{wanted.tag}\n")
    if wanted.since_ms is not None:
        add("+s.updated_ms >= ?", wanted.since_ms)
    return "".join(parts), values


def cursor(order: str, number: int) -> str:
    """Write where a page ended as the opaque text that callers keep."""
    return f"{order[0]}1.{number:x}"


def parse_cursor(order: str, text: str | None) -> int | None:
    """Read a cursor of this order back; anything else is ``Invalid``."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise Invalid(f"a cursor is a string, not {type(text).__name__}")
    version, _, number = text.partition(".")
    if version != f"{order[0]}1" or not 0 < len(number) <= 15 or not set(number) <= set("0123456789abcdef"):
        raise Invalid(f"{text!r} is not a cursor of a list ordered by {order}; use the one that a page gave, or None")
    return int(number, 16)
