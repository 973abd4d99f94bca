"""Sessions: the row that knows where a session is.

The row holds head, hash, running totals and open tool calls, so an append is one read, one insert and one update. What
is long and rarely read is stored beside it, in ``detail``; tags have rows of their own, so that they can be searched.
The invariant: the totals and the hash in the row are those of the entry at the head.

A session's new row is computed from the one that was read. So statements that read a single session end with ``LOCK``.
Those that read sessions together with details and leases do not, and their rows must never be written back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from .. import codec
from ..errors import Conflict, Corrupt, Invalid, NotFound
from ..ids import new_id
from ..model.entry import GENESIS, Numbers
from ..model.status import require_open
from ..storage.base import LOCK, Row, Tx, scalar
from ..tables.sessions import DETAIL, LEASE, PURGED, SESSION, TAG, DetailRow, TagRow, folded_whole
from ..tables.sessions import WHOLE as WHOLE_COLUMNS
from ..tables.sessions import LeaseRow as LeaseRow
from ..tables.sessions import SessionRow as SessionRow
from ..tables.sessions import Whole as Whole
from ..tables.table import several as several_of
from ..tables.table import slots
from . import branches, session_metadata

SELECT_WHOLE = f"""SELECT {WHOLE_COLUMNS}
FROM session s
LEFT JOIN detail d ON d.scope = s.scope AND d.sid = s.sid
LEFT JOIN lease l ON l.scope = s.scope AND l.session = s.sid"""
WHOLE = f"{SELECT_WHOLE} WHERE s.scope = ? AND s.id = ?"
BY_ID = f"WHERE scope = ? AND id = ?{LOCK}"
NAMED = f"INDEXED BY session_name WHERE scope = ? AND name = ? AND hidden = 0 ORDER BY sid{LOCK}"
OF_AGENT = f"INDEXED BY session_agent WHERE scope = ? AND agent = ? AND hidden = 0 ORDER BY sid{LOCK}"
BY_NAME = f"INDEXED BY session_name WHERE scope = ? AND agent = ? AND workspace = ? AND name = ? AND hidden = 0{LOCK}"
BY_KEY = f"INDEXED BY session_key WHERE scope = ? AND key = ? AND hidden = 0{LOCK}"
BY_LABEL = f"INDEXED BY session_label WHERE scope = ? AND parent = ? AND label = ? AND hidden = 0{LOCK}"
HAS_METADATA = "SELECT 1 FROM session_meta INDEXED BY session_meta_of WHERE scope = ? AND sid = ? LIMIT 1"
# Without a lock: every writer reads this, and a lock would make them all wait for each other.
NEWEST = "SELECT s.rank FROM session s INDEXED BY session_top WHERE s.scope = ? ORDER BY s.rank DESC LIMIT 1"

DEEPEST = 100
KINDS = ("main", "subagent", "cron")
# Details that belong to this store alone: the number of messages sent and of streams open, and what was last seen in
# the workspace. Copies and forks leave them out.
UNDER_WAY = ("sent", "open", "told")
NO_NUMBERS = Numbers()
_TAGGED = ("tags", "hidden", "rank")
_MINUTE = 60_000
_POSITIONS = (1 << 36) - 1  # the bits of a rank that are a feed position
_LAST_MINUTE = (1 << 27) - 1  # in the year 2225
_MANY = 500  # sessions of one read
_FULL = 2048  # changes that share one rank

P = ParamSpec("P")
T = TypeVar("T")


class SessionFields(NamedTuple):
    """What the caller says of a new session; the store adds ids, times and positions."""

    agent: str
    kind: str = "main"
    name: str | None = None
    label: str | None = None
    workspace: str = ""
    parent: str | None = None
    title: str | None = None
    tags: tuple[str, ...] = ()
    key: str | None = None
    archived: bool = False
    detail: bytes = b"{}"
    created_ms: int | None = None


def find_any(tx: Tx, scope: str, session_id: str) -> SessionRow | None:
    """Return a session by id, even one in the trash or purged, or None."""
    kept: SessionRow | None = tx.kept(scope, session_id)
    return SESSION.one(tx, BY_ID, (scope, session_id)) if kept is None else kept


def find(tx: Tx, scope: str, session_id: str) -> SessionRow | None:
    """Return a session by id, even one in the trash; None if it does not exist or was purged."""
    found = find_any(tx, scope, session_id)
    return None if found is None or found.hidden == 2 else found


def get(tx: Tx, scope: str, session_id: str) -> SessionRow:
    """Return a session by id, even one in the trash; a purged one or one of another scope raises ``NotFound``."""
    return existing(find_any(tx, scope, session_id), session_id)


def existing(found: SessionRow | None, session_id: str) -> SessionRow:
    """Return a session that was looked for by id; one that is not there or was purged raises ``NotFound``."""
    if found is None or found.hidden == PURGED:
        raise NotFound(f"there is no session {session_id!r} in this store and scope")
    return found


def given(
    tx: Tx,
    scope: str,
    session_id: str,
    op: Callable[Concatenate[Tx, SessionRow, P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Run a function that takes a session's row."""
    return op(tx, get(tx, scope, session_id), *args, **kwargs)


def is_gone(tx: Tx, scope: str, session_id: str) -> bool | None:
    """Whether a session is in the trash or was purged; None if this store never had it."""
    found = find_any(tx, scope, session_id)
    return None if found is None else found.hidden > 0


def several(tx: Tx, scope: str, ids: Sequence[str]) -> dict[str, SessionRow]:
    """Return sessions by id in one read, even those in the trash; ids that do not exist are left out."""
    where = f"INDEXED BY session_id WHERE scope = ? AND id IN ({slots(len(ids))}) AND hidden < 2{LOCK}"
    return {row.id: row for row in SESSION.all(tx, where, (scope, *ids))}


def by_number(tx: Tx, scope: str, sid: int) -> SessionRow:
    """Return a session by its local number; a missing one raises ``Corrupt``."""
    found = SESSION.get_locked(tx, scope, sid)
    if found is None:
        raise Corrupt(f"the record of session number {sid} is missing", what=f"session number {sid}")
    return found


def find_number(tx: Tx, scope: str, sid: int) -> SessionRow | None:
    """Return a session by its local number for reading only, or None."""
    return SESSION.get(tx, scope, sid)


def named(tx: Tx, scope: str, name: str) -> list[SessionRow]:
    """Return the visible sessions with that name, of any agent and workspace."""
    return SESSION.all(tx, NAMED, (scope, name))


def of_agent(tx: Tx, scope: str, agent: str) -> list[SessionRow]:
    """Return the visible sessions of an agent."""
    return SESSION.all(tx, OF_AGENT, (scope, agent))


def find_by_name(tx: Tx, scope: str, *, agent: str, workspace: str, name: str) -> SessionRow | None:
    """Return the visible session of that agent and workspace with that name, or None."""
    return SESSION.one(tx, BY_NAME, (scope, agent, workspace, name))


def find_by_key(tx: Tx, scope: str, key: str) -> SessionRow | None:
    """Return the visible session with that key, or None."""
    return SESSION.one(tx, BY_KEY, (scope, key))


def find_by_label(tx: Tx, scope: str, parent: int, label: str) -> SessionRow | None:
    """Return the visible child with that label, or None."""
    return SESSION.one(tx, BY_LABEL, (scope, parent, label))


# ---------------------------------------------------------------------- making and changing


def create(tx: Tx, scope: str, fields: SessionFields, *, now_ms: int, origin: Origin | None = None) -> SessionRow:
    """Start a session with one branch, ``main``, empty or at a point of another session's path.

    One that was created in the past is listed there (``placed``). A name, label or key that is taken raises
    ``Conflict``, as does a sub-agent of a finished session; a parent that does not exist raises ``NotFound``.
    """
    from . import feed

    _require_free(tx, scope, fields)  # before any lock is held: a call about to be refused must keep nobody waiting
    above = None if fields.parent is None else get(tx, scope, fields.parent)
    if above is not None and fields.kind == "subagent":
        require_open(above.status)
        _require_shallow(tx, above)
    parent = 0 if above is None else above.sid
    _require_free_label(tx, scope, fields.label, parent)
    # The session and its branch refer to each other: insert the session, then the branch, then set the head.
    session = insert(tx, _new(tx.next("session"), scope, fields, parent, now_ms))
    put_detail(tx, session, fields.detail)
    start = origin or Origin(None, 0, GENESIS, NO_NUMBERS)
    main = branches.create(
        tx, scope, session.sid, name="main", origin=start.branch, seq=start.seq, tip_hash=start.hash, now_ms=now_ms
    )
    position, rank = feed.record(
        tx, session, "session", branch=main.bid, first=start.seq, last=start.seq, now_ms=now_ms
    )
    head: dict[str, Any] = {"branch": main.bid, "uid": main.uid, "fork": main.fork_seq, "seq": start.seq}
    head |= {"hash": start.hash, "calls": None if start.numbers.open_seq else []}
    place = placed(session, position, rank, now_ms, happened_ms=session.updated_ms)
    session = write(tx, session, **place, **head, **start.numbers._asdict())
    if b'"metadata"' in fields.detail:
        session_metadata.put(tx, session, fields.detail)
    return session


def _new(sid: int, scope: str, fields: SessionFields, parent: int, now_ms: int) -> SessionRow:
    session_id = new_id(now_ms)
    created_ms = now_ms if fields.created_ms is None else fields.created_ms
    return SessionRow(
        scope=scope,
        sid=sid,
        id=session_id,
        key=fields.key or key_of(fields, session_id),
        agent=fields.agent,
        kind=fields.kind,
        name=fields.name,
        label=fields.label,
        workspace=fields.workspace,
        parent=parent,
        status="active",
        archived=int(fields.archived),
        pinned=0,
        hidden=0,
        title=fields.title,
        created_ms=created_ms,
        updated_ms=min(created_ms, now_ms),
        updated=0,
        rank=0,
        past=0,
        tags=pack_tags(fields.tags),
        **EMPTY,
    )


# The fields of a session that holds nothing yet and has no branch.
EMPTY: dict[str, Any] = {
    **dict.fromkeys(("tasks", "completed", "builds", "states", "branch", "fork", "seq", "revision"), 0),
    **NO_NUMBERS._asdict(),
    "uid": "",
    "attached": 1,
    "hash": GENESIS,
    "calls": [],
    "branches": 1,
    "message_ms": None,
}


class Origin(NamedTuple):
    """Where a forked session begins."""

    branch: branches.BranchRow | None
    seq: int
    hash: bytes
    numbers: Numbers


def _require_shallow(tx: Tx, above: SessionRow) -> None:
    """Refuse endless nesting of sub-agents: each costs money, and nobody would ever see it."""
    depth, parent = 1, above.parent
    while parent:
        depth, parent = depth + 1, by_number(tx, above.scope, parent).parent
        if depth > DEEPEST:
            raise Invalid(f"sub-agents are at most {DEEPEST} levels deep; let this one do the work itself")


def _require_free(tx: Tx, scope: str, fields: SessionFields) -> None:
    name = fields.name
    if name is not None and find_by_name(tx, scope, agent=fields.agent, workspace=fields.workspace, name=name):
        raise Conflict(f"a session named {name!r} already exists; get it, or choose another name", found=name)
    if fields.key is not None and find_by_key(tx, scope, fields.key):
        raise Conflict(f"a session with the key {fields.key!r} already exists", found=fields.key)


def _require_free_label(tx: Tx, scope: str, label: str | None, parent: int) -> None:
    if label is not None and find_by_label(tx, scope, parent, label):
        raise Conflict(
            f"a sub-agent with the label {label!r} already exists; children() finds it by its label. To get it back"
            " after a crash, spawn with an idempotency_key; for another one, choose another label",
            found=label,
        )


def key_of(fields: SessionFields, session_id: str) -> str:
    """Return the key of a session without a fixed one: unique, since it contains the id."""
    kind = "subagent" if fields.kind == "subagent" else "session"
    return f"agent:{escape(fields.agent)}:{kind}:{session_id}"


def escape(part: str) -> str:
    """Escape a part of a key, so that different parts never make the same key."""
    return part.replace("%", "%25").replace(":", "%3A").replace("/", "%2F")


def insert(tx: Tx, session: SessionRow) -> SessionRow:
    """Store a new session with its tags, but without what its details say."""
    SESSION.put(tx, session)
    _store_tags(tx, (), session.tag_rows)
    return session


def write(tx: Tx, session: SessionRow, **changed: Any) -> SessionRow:
    """Change some fields of a session."""
    return store(tx, session, session._replace(**changed))


def store(tx: Tx, session: SessionRow, new: SessionRow) -> SessionRow:
    """Write what differs between a session as stored and as it should be, including its tags."""
    SESSION.update(tx, session, new)
    if (session.tags or new.tags) and any(getattr(session, name) != getattr(new, name) for name in _TAGGED):
        _store_tags(tx, session.tag_rows, new.tag_rows)
    if (session.hidden, session.rank) != (new.hidden, new.rank) and tx.one(HAS_METADATA, (new.scope, new.sid)):
        session_metadata.move(tx, new)
    return new


def store_many(tx: Tx, pairs: Sequence[tuple[SessionRow, SessionRow]]) -> None:
    """Write sessions, each as stored and as it should be, as ``store`` does for one, many per statement."""
    SESSION.update_many(tx, pairs)
    tagged = [(old.tag_rows, new.tag_rows) for old, new in pairs if old.tags or new.tags]
    TAG.delete_many(tx, [row for old, new in tagged for row in old if row not in new])
    TAG.put_many(tx, [row for old, new in tagged for row in new if row not in old])
    session_metadata.move_many(tx, [new for old, new in pairs if (old.hidden, old.rank) != (new.hidden, new.rank)])


def _store_tags(tx: Tx, old: Sequence[TagRow], new: Sequence[TagRow]) -> None:
    """Write the rows of a session's tags; a tag it keeps is updated in place, which is cheaper on PostgreSQL."""
    kept = {row.tag: row for row in new}
    for row in old:
        if row.tag in kept:
            TAG.update(tx, row, kept.pop(row.tag))
        else:
            TAG.delete(tx, *row)
    for row in kept.values():
        TAG.put(tx, row)


def next_rank(now_ms: int, newest: int, position: int) -> int:
    """Return the rank of a session that changes now; ``newest`` is the highest rank of the scope.

    A rank is a minute and the feed position of the first change that got it. A new one starts with the next minute, or
    after ``_FULL`` changes, which bounds what listings sort within one rank. Ranks never decrease, so listings follow
    the feed even if the clock was set back. An append rewrites the rank indexes only if its session does not have the
    newest rank: at most once a minute, unless a lot else changes.
    """
    if minute_rank(now_ms) > newest:
        return minute_rank(now_ms) | min(position, _POSITIONS)
    began = newest & _POSITIONS
    return newest - began + min(position, _POSITIONS) if position >= rank_end(newest) else newest


def placed(
    session: SessionRow, position: int, rank: int, now_ms: int, *, happened_ms: int | None = None
) -> dict[str, Any]:
    """Return the fields that say when a session last changed and where it is listed, after a change of it.

    ``position`` and ``rank`` are what ``feed.record`` returned. A change now puts the session on top. What happened
    before now puts it where it happened: listings and ``updated_at`` follow the latest time that something happened in
    the session, and never go back, so old entries leave a session that changed later where it is. A rank of the past
    is a minute and a millisecond of it, and always below the rank that a change now gets.
    """
    if happened_ms is not None:
        at_ms = max(session.updated_ms, happened_ms)
        then = max(session.rank, past_rank(at_ms))
        if then < rank and minute_rank(at_ms) < minute_rank(now_ms):
            return {"updated": position, "updated_ms": at_ms, "rank": then, "past": rank}
    return {"updated": position, "updated_ms": now_ms, "rank": rank, "past": 0}


def past_rank(ms: int) -> int:
    """Return the rank of a session in which something happened then, but was stored later."""
    return minute_rank(ms) | max(ms, 0) % _MINUTE


def rank_end(rank: int) -> int:
    """Return the position of the first change that is too late for a rank."""
    return (rank & _POSITIONS) + _FULL


def minute_rank(ms: int) -> int:
    """Return the lowest rank that a change at this time can have."""
    return min(max(ms // _MINUTE, 0), _LAST_MINUTE) << 36


def top_rank(tx: Tx, scope: str) -> int:
    """Return the highest rank of a scope; no later change gets a lower one, since rows are never deleted."""
    kept = tx.kept_rank(scope)
    return (scalar(tx, NEWEST, (scope,)) or 0) if kept is None else kept


def standing_at(session: SessionRow, branch: branches.BranchRow, seq: int, numbers: Numbers) -> SessionRow:
    """Return the row as if its head were at another point: for reading from there, never for writing."""
    place: dict[str, Any] = {"branch": branch.bid, "uid": branch.uid, "fork": branch.fork_seq, "seq": seq}
    return session._replace(**place, attached=0, calls=None, **numbers._asdict())


# ---------------------------------------------------------------------- details and tags


def put_detail(tx: Tx, session: SessionRow, doc: bytes) -> None:
    """Write the details stored beside a session's row."""
    DETAIL.upsert(tx, DetailRow(session.scope, session.sid, doc))


def detail(tx: Tx, session: SessionRow) -> bytes:
    """Read the details stored beside a session's row."""
    found = DETAIL.get(tx, session.scope, session.sid)
    if found is None:
        raise _no_detail(session)
    return found.doc


def detail_in(session: SessionRow, stored: Row) -> bytes:
    """Check the details as joined to a session's row; all columns are None where there are none."""
    if stored[0] is None:
        raise _no_detail(session)
    return DETAIL.checked(stored).doc


def _no_detail(session: SessionRow) -> Corrupt:
    return Corrupt(f"the details of session {session.id!r} are missing", what=f"session {session.id}")


def lasting(doc: bytes) -> bytes:
    """Return details without those that belong to this store alone (``UNDER_WAY``)."""
    if not any(f'"{name}"'.encode() in doc for name in UNDER_WAY):
        return doc
    return codec.encode({name: value for name, value in decoded(doc).items() if name not in UNDER_WAY})


def find_lease(tx: Tx, session: SessionRow) -> LeaseRow | None:
    """Return the lease of a session, held or not; None if nobody ever took it."""
    return LEASE.get(tx, session.scope, session.sid)


def held_leases(tx: Tx, rows: Sequence[SessionRow]) -> dict[int, LeaseRow]:
    """Return the leases that somebody holds, by session, for sessions of one scope."""
    found = dict[int, LeaseRow]()
    for some in several_of(rows, _MANY):
        where = f"INDEXED BY lease_held WHERE scope = ? AND session IN ({slots(len(some))}) AND holder IS NOT NULL"
        held = LEASE.all(tx, where, (some[0].scope, *(row.sid for row in some)))
        found |= {lease.session: lease for lease in held}
    return found


def find_whole(tx: Tx, scope: str, session_id: str) -> Whole | None:
    """Return a session with its details and lease; None if it does not exist or was purged."""
    row = tx.one(WHOLE, (scope, session_id))
    found = None if row is None else checked_whole(row)
    return None if found is None or found[0].hidden == 2 else found


def whole(tx: Tx, scope: str, session_id: str) -> Whole:
    """Return a session with its details and its lease."""
    found = find_whole(tx, scope, session_id)
    if found is None:
        raise NotFound(f"there is no session {session_id!r} in this store and scope")
    return found


def with_rest(tx: Tx, session: SessionRow) -> Whole:
    """Return a session that was read, with its details and lease."""
    return session, detail(tx, session), find_lease(tx, session)


def checked_whole(row: Row) -> Whole:
    """Check a row of ``SELECT_WHOLE``: a session with its details and lease."""
    session, doc, lease = folded_whole(row)
    return SESSION.unfolded(session), doc, lease


def pack_tags(tags: tuple[str, ...]) -> str:
    """Encode tags, each between newlines, in the order given."""
    return "\n" + "".join(f"{tag}\n" for tag in tags) if tags else ""


def unpack_tags(text: str) -> tuple[str, ...]:
    """Decode tags."""
    return tuple(text.split("\n")[1:-1])


def decoded(doc: bytes) -> dict[str, Any]:
    """Decode the details."""
    value = codec.decode(doc)
    if not isinstance(value, dict):
        raise Corrupt("the details of a session are not an object", what="detail")
    return value


def ended(doc: bytes) -> dict[str, Any]:
    """Return how a session's last run ended; empty if it ended normally."""
    found = decoded(doc).get("ended")
    return found if isinstance(found, dict) else {}
