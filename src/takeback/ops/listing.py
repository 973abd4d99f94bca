"""Listing sessions, newest first by last change or by creation, with any combination of filters.

Both orders are integers: the rank and then the feed position, or the time of creation and then the local number. A
cursor holds those of the page's last row, so pages neither skip nor repeat rows while others write; listed from the
oldest change on, a session that changes meanwhile comes again at the end. The statement names the index of the most
selective filter, so no plan depends on statistics and the cost of a page follows what it shows. A damaged row is
reported beside the page: it is never hidden, and never blocks the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import Corrupt, Invalid
from ..model.status import ACTIVE, INTERRUPTED
from ..storage.base import Row, Tx, scalar, scalars
from ..tables.sessions import SESSION, folded_whole, own_part
from ..tables.table import slots
from . import sessions
from .sessions import LeaseRow, SessionRow, Whole

if TYPE_CHECKING:
    from .listed_state import Found

Place = tuple[int, ...]  # the position of a row in the order
_BEYOND = (1 << 63) - 1


class Order(NamedTuple):
    """An order of sessions: the columns, which way, and how its cursors begin."""

    columns: tuple[str, str]
    down: bool
    mark: str
    place_of: Callable[[SessionRow], Place]

    @property
    def start(self) -> Place:
        """A place before every session."""
        return (_BEYOND, _BEYOND) if self.down else (-1, -1)

    def follows(self, place: Place, last: Place) -> bool:
        """Whether a position comes after another one."""
        return place < last if self.down else place > last


_BY_CHANGE, _BY_CREATION = ("rank", "updated"), ("created_ms", "sid")
ORDERS = {
    "updated": Order(_BY_CHANGE, True, "u1", attrgetter(*_BY_CHANGE)),
    "created": Order(_BY_CREATION, True, "c2", attrgetter(*_BY_CREATION)),
    "updated_asc": Order(_BY_CHANGE, False, "a1", attrgetter(*_BY_CHANGE)),
}
_WHOLE, _, _BESIDE = sessions.SELECT_WHOLE.partition("\nFROM session s\n")


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
    metadata: tuple[str, ...] = ()  # pairs (tables/metadata.py), all of which a session has
    by_tag: bool = False  # whether fewer sessions have the tag than the first metadata
    held: bool = False  # also active sessions with a holder, in addition to those of ``statuses``


class Listed(NamedTuple):
    """A page: sessions (``Table.folded``) with their details, ids of damaged ones, and where the next page begins.

    ``states`` holds what was asked for of their states.
    """

    found: list[Whole]
    damaged: list[str]
    next: Place | None
    states: Sequence[Found] = ()


def page(
    tx: Tx,
    scope: str,
    wanted: Filter,
    parent_id: str | None = None,
    *,
    order: str,
    before: Place | None,
    limit: int,
    is_gone: Callable[[LeaseRow], bool] = lambda lease: False,
    state: Sequence[str] = (),
) -> Listed:
    """Return matching sessions after a position in the order; ``is_gone`` says whether a holder no longer exists.

    ``state`` names values of their states to read along.
    """
    listed = _shown(tx, scope, wanted, parent_id, order, before, limit, is_gone)
    if not state:
        return listed
    from . import listed_state

    return listed._replace(states=listed_state.of_page(tx, [session for session, _, _ in listed.found], state))


def _shown(
    tx: Tx,
    scope: str,
    wanted: Filter,
    parent_id: str | None,
    order: str,
    before: Place | None,
    limit: int,
    is_gone: Callable[[LeaseRow], bool],
) -> Listed:
    if parent_id is not None:
        wanted = wanted._replace(parent=sessions.get(tx, scope, parent_id).sid)
    wanted = _rarest_first(tx, scope, wanted)
    asked = wanted.statuses
    if asked is None or (ACTIVE in asked) == (INTERRUPTED in asked):
        return _page(tx, scope, wanted, order, before, limit)
    # An active session whose holder is gone counts as interrupted, which no index knows: read more rows and filter.
    wider = wanted if ACTIVE in asked else wanted._replace(held=True)
    found, damaged = list[Whole](), list[str]()
    while True:
        next_ = _page(tx, scope, wider, order, before, limit - len(found))
        found += [each for each in next_.found if shown_status(each, is_gone) in asked]
        damaged += next_.damaged
        if next_.next is None or len(found) + len(damaged) >= limit:
            return Listed(found, damaged, next_.next)
        before = next_.next


def shown_status(whole: Whole, is_gone: Callable[[LeaseRow], bool]) -> str:
    """Return the status to show: an active session whose holder is gone was interrupted."""
    session, _, lease = whole
    left = session.status == ACTIVE and lease is not None and lease.holder is not None
    return INTERRUPTED if left and lease is not None and is_gone(lease) else session.status


def _rarest_first(tx: Tx, scope: str, wanted: Filter) -> Filter:
    """Put the metadata that the fewest sessions have first, and leave the tag to a test if that is more common."""
    if len(wanted.metadata) + (wanted.tag is not None) < 2 or not wanted.metadata:
        return wanted
    counts = {pair: _few(tx, "session_meta", "pair", scope, pair, wanted.trash) for pair in wanted.metadata}
    pairs = tuple(sorted(counts, key=lambda pair: (counts[pair], pair)))
    tagged = _MANY if wanted.tag is None else _few(tx, "session_tag", "tag", scope, wanted.tag, wanted.trash)
    return wanted._replace(metadata=pairs, by_tag=tagged < counts[pairs[0]])


def _few(tx: Tx, table: str, column: str, scope: str, value: str, trash: bool) -> int:
    """Count the sessions that a row of a side table leads to, up to a bound."""
    found = f"SELECT 1 FROM {table} WHERE scope = ? AND {column} = ? AND hidden = ? LIMIT {_MANY}"
    return int(scalar(tx, f"SELECT count(*) FROM ({found}) AS found", (scope, value, int(trash))))


def _page(tx: Tx, scope: str, wanted: Filter, order: str, before: Place | None, limit: int) -> Listed:
    how = ORDERS[order]
    bound = before or how.start
    rows = list[Row]()
    for sql, values in _statements(scope, wanted, order):
        found = tx.all(sql, (*values, bound[0], *bound, limit + 1))
        rows = sorted(rows + found, key=lambda row: _place(row, how), reverse=how.down) if rows else found
    return _listed(rows, how, bound, limit)


@lru_cache(maxsize=32)
def _statements(scope: str, wanted: Filter, order: str) -> list[tuple[str, list[Any]]]:
    """Return the statements that read a page, with the values of their filters; people list the same again and again.

    The position in the order and the limit are bound behind these.
    """
    found, how = [], ORDERS[order]
    for source, where, values in _walks(scope, wanted, order):
        # Tags and metadata have a rank of their own: ordering by it walks their index in order, without a sort.
        aside = source.startswith(_ASIDE)
        names = [f"{'t' if aside and name == 'rank' else 's'}.{name}" for name in how.columns]
        ordered = ", ".join(f"{name} {'DESC' if how.down else 'ASC'}" for name in names)
        sql = f"{_WHOLE} FROM {source} {_BESIDE} WHERE {where}{_behind(names, how)} ORDER BY {ordered} LIMIT ?"
        found.append((sql, values))
    return found


def _listed(rows: list[Row], how: Order, bound: Place, limit: int) -> Listed:
    """Check the rows of a page and their order; report damaged ones."""
    found, damaged, last, ends = list[Whole](), list[str](), bound, False
    for row in rows[:limit]:
        try:
            whole = folded_whole(row)
        except Corrupt as error:
            if not error.what.startswith("session "):
                raise
            session_id: str | None = SESSION.unchecked(own_part(row)).id
            if session_id is None:  # a tag that names no session
                raise Corrupt("the record of a session is missing; run verify", what="session") from error
            damaged.append(str(session_id))
            ends = True
            continue
        place = how.place_of(whole[0])
        if not how.follows(place, last):
            raise Corrupt("the index that orders sessions is damaged; run verify", what=f"session_{how.columns[0]}")
        last, ends = place, False
        found.append(whole)
    if len(rows) <= limit:
        return Listed(found, damaged, None)
    end = _place(rows[limit - 1], how) if ends else last
    # A damaged number must not send the next page back to rows already shown.
    return Listed(found, damaged, end if how.follows(end, last) else last)


def _place(row: Row, how: Order) -> Place:
    """Return the position of a row; one whose numbers are damaged comes last."""
    place = how.place_of(SESSION.unchecked(own_part(row)))
    whole = all(isinstance(value, int) for value in place)
    return place if whole else (-1, -1) if how.down else (_BEYOND, _BEYOND)


def _behind(columns: Sequence[str], how: Order) -> str:
    """Write the condition for rows after a position: a range of the index, then the rest within one rank."""
    first, second = columns
    after = "<" if how.down else ">"
    return f" AND {first} {after}= ? AND ({first} {after} ? OR {second} {after} ?)"


def count(tx: Tx, scope: str, wanted: Filter, most: int) -> int:
    """Count matching sessions, up to ``most``; rows are not checked for damage."""
    total, wanted = 0, _rarest_first(tx, scope, wanted)
    for source, where, values in _walks(scope, wanted, "updated"):
        sql = f"SELECT count(*) FROM (SELECT 1 FROM {source} WHERE {where} LIMIT ?) AS found"
        total += int(scalar(tx, sql, (*values, most)))
    return min(total, most)


def workspaces(tx: Tx, scope: str, among: Sequence[str]) -> set[str]:
    """Return which of these directories have a session, archived or not, in one read."""
    one = """SELECT workspace FROM (SELECT s.workspace FROM session s INDEXED BY session_workspace
WHERE s.scope = ? AND s.workspace = ? AND s.workspace <> '' AND s.hidden = 0 LIMIT 1) AS found"""
    sql = " UNION ALL ".join([one] * len(among))
    return set(scalars(tx, sql, [value for path in among for value in (scope, path)]) if among else ())


# ---------------------------------------------------------------------- filters as SQL


def _walks(scope: str, wanted: Filter, order: str) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield the index ranges that hold every match: the source to walk, the condition, its values."""
    archived = (0, 1) if wanted.archived is None else (int(wanted.archived),)
    column, index = _driver(wanted, order)
    several: Sequence[str | None] = {"status": wanted.statuses, "kind": wanted.kinds}.get(column) or (None,)
    if column == "status" and wanted.held:
        several = (*several, _HELD)
    rest, given = _conditions(wanted, without=column)
    for flag, value in product(archived, dict.fromkeys(several)):
        source, where, end = f"session s INDEXED BY {index}", "s.scope = ? AND s.hidden = ? AND s.archived = ?", ""
        values: list[Any] = [scope, int(wanted.trash), flag]
        if value == _HELD:
            source = "lease h INDEXED BY lease_held CROSS JOIN session s"
            where = f"h.scope = ? AND h.holder IS NOT NULL AND s.scope = h.scope AND s.sid = h.session AND {_ACTIVE}"
            where += " AND s.hidden = ? AND s.archived = ?"
        elif column in ("tag", "pair"):
            source = f"{index} t LEFT JOIN session s ON s.scope = t.scope AND s.sid = t.sid"
            # Also a session that is lost, or displaced by rows of another table: no list is silently shorter.
            where, end = f"t.scope = ? AND t.{column} = ? AND t.hidden = ? AND (s.chk IS NULL OR (s.archived = ?", "))"
            values = [scope, wanted.tag if column == "tag" else wanted.metadata[0], int(wanted.trash), flag]
        elif column:
            where += f" AND s.{column} = ?{_PARTIAL.get(column, '')}"
            values.append(getattr(wanted, column) if value is None else value)
        yield source, where + rest + end, values + given


_MANY = 100  # sessions: which of two filters leads to fewer is counted up to here
_ASIDE = ("session_tag", "session_meta")
_HELD, _ACTIVE = "held", f"s.status = '{ACTIVE}'"
_IS_HELD = """EXISTS (SELECT 1 FROM lease h WHERE h.scope = s.scope AND h.session = s.sid
AND h.holder IS NOT NULL)"""
_HAS = """EXISTS (SELECT 1 FROM {table} a WHERE a.scope = s.scope AND a.{column} = ? AND a.hidden = s.hidden
AND a.rank = s.rank AND a.sid = s.sid)"""
# SQLite uses a partial index only if the statement repeats its condition literally.
_PARTIAL = {"workspace": " AND s.workspace <> ''", "parent": " AND s.parent > 0", "label": " AND s.label IS NOT NULL"}


def _driver(wanted: Filter, order: str) -> tuple[str, str]:
    """Choose the filter whose index is walked, the most selective first; without one, the index of the order."""
    if wanted.label is not None:
        return "label", "session_labels"
    if wanted.parent:
        return "parent", "session_parent"
    if wanted.metadata and not (wanted.tag is not None and wanted.by_tag):
        return "pair", "session_meta"
    if wanted.tag is not None:
        return "tag", "session_tag"
    if order == "created":
        return "", "session_created"
    if wanted.workspace:
        return "workspace", "session_workspace"
    if wanted.agent is not None:
        return "agent", "session_agent"
    if wanted.statuses is not None:
        return "status", "session_status"
    if wanted.kinds is not None:
        return "kind", "session_kind"
    return "", "session_pinned" if wanted.pinned else "session_rank"


def _conditions(wanted: Filter, without: str) -> tuple[str, list[Any]]:
    """Write what the index that is walked does not settle, with every value bound."""
    parts, values = list[str](), list[Any]()

    def add(sql: str, *given: Any) -> None:
        parts.append(f" AND {sql}")
        values.extend(given)

    for column in ("agent", "label", "workspace", "parent"):
        value = getattr(wanted, column)
        if value is not None and column != without:
            add(f"s.{column} = ?", value)
    if wanted.kinds is not None and without != "kind":
        add(f"s.kind IN ({slots(len(wanted.kinds))})", *wanted.kinds)
    if wanted.statuses is not None and without != "status":
        held = f" OR ({_ACTIVE} AND {_IS_HELD})" if wanted.held else ""
        add(f"(s.status IN ({slots(len(wanted.statuses))}){held})", *wanted.statuses)
    if wanted.pinned is not None:
        add("s.pinned = 1" if wanted.pinned else "s.pinned = 0")
    if wanted.tag is not None and without != "tag":
        add(_HAS.format(table="session_tag", column="tag"), wanted.tag)
    for pair in wanted.metadata[1 if without == "pair" else 0 :]:
        add(_HAS.format(table="session_meta", column="pair"), pair)
    if wanted.since_ms is not None:
        add("s.rank >= ? AND s.updated_ms >= ?", sessions.minute_rank(wanted.since_ms), wanted.since_ms)
    return "".join(parts), values


def cursor(order: str, place: Place) -> str:
    """Write the position where a page ended as the opaque text that callers keep."""
    return ".".join([ORDERS[order].mark, *(f"{number:x}" for number in place)])


def parse_cursor(order: str, text: str | None) -> Place | None:
    """Parse a cursor of this order; anything else raises ``Invalid``."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise Invalid(f"a cursor is a string, not {type(text).__name__}")
    version, *numbers = text.split(".")
    known = version == ORDERS[order].mark and len(numbers) == len(ORDERS[order].columns)
    if not known or not all(0 < len(each) <= 16 and set(each) <= set("0123456789abcdef") for each in numbers):
        raise Invalid(f"{text!r} is not a cursor of a list ordered by {order}; use one that a page returned, or None")
    return tuple(int(number, 16) for number in numbers)
