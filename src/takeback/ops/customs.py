"""Finding custom entries by kind or id on the path or on every branch, and entries of any kind by the caller's id.

The partial index ``entry_custom`` holds custom entries by kind and place, so finding some costs what is found, however
many messages lie between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..errors import Invalid, NotFound
from ..model.items import CUSTOM, Custom, as_custom
from ..storage.base import Tx, Value
from ..tables.branches import BranchRow
from ..tables.entries import ENTRY, IS_CUSTOM, EntryRow
from ..tables.sessions import SESSION
from . import branches, log, sessions
from .branches import Segment
from .sessions import SessionRow

# Which index serves is known here and not to the engine: without statistics SQLite would guess.
_IN_RANGE = "key > ? AND key <= ?"
OF_PATH = f"NOT INDEXED WHERE scope = ? AND {_IN_RANGE} AND {IS_CUSTOM}"
OF_KIND = f"INDEXED BY entry_custom WHERE scope = ? AND {_IN_RANGE} AND {IS_CUSTOM} AND kind = ?"
BY_PREFIX = f"INDEXED BY entry_mid WHERE scope = ? AND {_IN_RANGE} AND mid IS NOT NULL AND mid >= ? AND mid < ?"
BY_ID = "INDEXED BY entry_mid WHERE scope = ? AND mid = ? AND mid IS NOT NULL AND key > ? ORDER BY key LIMIT ?"
_LAST, MAX_ID = 0x10FFFF, 1000


class WantedCustoms(NamedTuple):
    """Which custom entries: of a kind, with ids that begin in a way, how many, behind which cursor."""

    kind: str | None
    id_prefix: str | None
    newest: bool
    limit: int
    cursor: str | None
    all_branches: bool


def as_value(uid: str, row: EntryRow) -> Custom:
    """Return a stored custom entry."""
    times = row.at_ms, row.at_ms + row.chain.late_ms
    return as_custom(uid, (row.seq, row.turns), row.kind, row.mid, row.body, times)


def get(tx: Tx, session: SessionRow, wanted: str) -> Custom:
    """Return a custom entry on the path by its id."""
    segment = log.find_message(tx, session, wanted)
    rows = [] if segment is None else log.read(tx, session.scope, [segment])
    if segment is None or not rows[0].kind.startswith(CUSTOM):
        raise NotFound(f"there is no custom entry {wanted!r} on the path of this session")
    return as_value(segment.uid, rows[0])


def page(tx: Tx, session: SessionRow, wanted: WantedCustoms) -> tuple[list[Custom], str | None]:
    """Return a page of custom entries in the order of the path, or branch by branch, and the cursor of the next."""
    found = list[Custom]()
    for segment in _segments(tx, session, wanted):
        rows = _rows(tx, session.scope, segment, wanted, wanted.limit + 1 - len(found))
        loaded = log.loaded(tx, rows)
        found += [as_value(segment.uid, row) for row in loaded]
        if len(found) > wanted.limit or len(loaded) < len(rows):  # a page also ends once it holds many megabytes
            last = found[: wanted.limit][-1]
            return found[: wanted.limit], f"{last.branch}:{last.seq}"
    return found, None


def _segments(tx: Tx, session: SessionRow, wanted: WantedCustoms) -> Sequence[Segment]:
    """Return where to look, in order."""
    found: Sequence[Segment]
    if wanted.all_branches:
        found = branches.every_segment(tx, session)
    else:
        found = log.path_segments(tx, session, 0, session.seq)
    found = found[::-1] if wanted.newest else found
    return found if wanted.cursor is None else _behind(found, wanted.cursor, newest=wanted.newest)


def _behind(segments: Sequence[Segment], cursor: str, *, newest: bool) -> list[Segment]:
    """Return what follows the place that a cursor names."""
    uid, _, number = cursor.rpartition(":")
    place = next((index for index, each in enumerate(segments) if each.uid == uid), None)
    if place is None or not number.isdecimal():
        raise Invalid("this cursor does not belong to these custom entries; start again without one")
    first, seq = segments[place], int(number)
    cut = first._replace(high=min(first.high, seq - 1)) if newest else first._replace(low=max(first.low, seq))
    return [cut, *segments[place + 1 :]]


def _behind_prefix(prefix: str) -> str:
    """Return the first text behind all that begin with a prefix, in the order of code points."""
    last = ord(prefix[-1])
    if last == _LAST:
        return _behind_prefix(prefix[:-1]) if len(prefix) > 1 else prefix * MAX_ID
    return prefix[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)  # no text holds half of a surrogate pair


def _rows(tx: Tx, scope: str, segment: Segment, wanted: WantedCustoms, limit: int) -> list[EntryRow]:
    """Read the custom entries of one segment that match, at most ``limit``."""
    if segment.high <= segment.low:
        return []
    args: list[Value] = [scope, log.key_of(segment.bid, segment.low), log.key_of(segment.bid, segment.high)]
    kind, prefix = wanted.kind, wanted.id_prefix
    if prefix:
        where = f"{BY_PREFIX} AND {IS_CUSTOM}{' AND kind = ?' if kind else ''}"
        args += [prefix, _behind_prefix(prefix), *([CUSTOM + kind] if kind else [])]
    elif kind is not None:
        where = OF_KIND
        args.append(CUSTOM + kind)
    else:
        where = OF_PATH
    order = "DESC" if wanted.newest else "ASC"
    return ENTRY.all(tx, f"{where} ORDER BY key {order} LIMIT ?", (*args, limit))


# ---------------------------------------------------------------------- entries by id, in every session


class FoundRow(NamedTuple):
    """An entry, the branch that holds it, and a session that has it."""

    session: sessions.Whole
    uid: str
    row: EntryRow


def parse_cursor(cursor: str) -> int:
    """Read the cursor of a page of entries in the order of their keys."""
    if not isinstance(cursor, str) or not cursor.isdecimal() or len(cursor) > 19 or int(cursor) >= 1 << 63:
        raise Invalid("this is not the cursor of such a page; start again without one")
    return int(cursor)


def with_id(tx: Tx, scope: str, wanted: str, *, after: int, limit: int) -> tuple[list[FoundRow], int | None]:
    """Return the entries that callers gave this id, each once per session that has it; forks have it, too.

    A page holds ``limit`` entries; the number returned with it is where the next one begins. Sessions in the trash are
    left out.
    """
    rows, found = ENTRY.all(tx, BY_ID, (scope, wanted, after, limit + 1)), list[FoundRow]()
    whole = log.loaded(tx, rows[:limit])
    for row in whole:
        branch = branches.get(tx, scope, row.branch)
        numbers = dict.fromkeys([branch.session, *(each.session for each in _readers(tx, branch, row.seq))])
        shown = SESSION.numbered(tx, scope, numbers)
        visible = [shown[sid].id for sid in numbers if sid in shown and not shown[sid].hidden]
        found += [FoundRow(sessions.whole(tx, scope, each), branch.uid, row) for each in visible]
    return found, whole[-1].key if len(rows) > len(whole) else None


def _readers(tx: Tx, branch: BranchRow, seq: int) -> Iterator[BranchRow]:
    """Yield the branches that read an entry of this one, however deep they are."""
    left = [branch]
    while left:
        forks = [fork for fork in branches.forks(tx, branch.scope, left.pop().bid) if fork.fork_seq >= seq]
        yield from forks
        left += forks
