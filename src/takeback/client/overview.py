"""Sessions at a glance, for lists: their totals, where their head is, and their short names.

A page costs the same few reads however many sessions it holds; asking each handle would cost three transactions per
session. Everything is as of one moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import msgspec

from ..errors import NotFound
from ..model.session import Stats
from ..ops import branches, open_calls, refs
from ..ops.sessions import SessionRow
from .reading import Reading

S = TypeVar("S", bound=Reading)
SHORT = 7  # characters of an id, which tell one second; more if several sessions began in it
_AT_ONCE = 500


class Overview(msgspec.Struct, Generic[S], frozen=True):
    """A session with its totals, the branch of its head, its number of branches, and its short id."""

    session: S
    stats: Stats
    branch: str
    branches: int
    short: str
    asked: int = 0  # how many open calls a person was asked about
    waiting: int = 0  # how many of them wait for an answer


def overview(session: S) -> Overview[S]:
    """Return the overview of one session; raises ``NotFound`` if it is gone."""
    for found in overviews([session]):
        return found
    raise NotFound(f"there is no session {session.id!r} in this store and scope")


def overviews(found: Sequence[S]) -> list[Overview[S]]:
    """Return the overviews of sessions of one store; those purged since they were read are left out."""
    return [each for some in _portions(found) for each in _read_some(some)]


def _portions(found: Sequence[S]) -> Iterator[Sequence[S]]:
    return (found[at : at + _AT_ONCE] for at in range(0, len(found), _AT_ONCE))


def _read_some(found: Sequence[S]) -> Iterable[Overview[S]]:
    store, ids = found[0]._store, [each.id for each in found]
    rows, known, shorts = store._read(refs.overview, store.scope, ids, SHORT)
    return [_overview(each, rows[each.id], known, shorts[each.id]) for each in found if each.id in rows]


def _overview(session: S, row: SessionRow, known: dict[int, list[branches.BranchRow]], short: str) -> Overview[S]:
    shown = [each for each in known[row.sid] if not each.hidden or each.bid == row.branch]
    head = next((each.name for each in shown if each.bid == row.branch), "")
    stats = Stats.from_numbers(row.numbers, started_ms=row.created_ms)
    asks = [call for call in open_calls.known(row) or () if call.ask] if row.open_seq else []
    return Overview(session, stats, head, len(shown), short, len(asks), sum(call.ask > call.answer for call in asks))
