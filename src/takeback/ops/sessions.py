"""Sessions: the row that knows where a session is.

The row holds head, hash and running numbers, so an append is one read, one insert and one update.
Its two checks keep apart what an append changes (``head_chk``) and what it does not (``chk``); what is
long and rarely looked at lies beside it, in ``detail``. The invariant: the numbers and the hash of
the row are those of the entry at the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from .. import codec
from ..errors import Conflict, Corrupt, Invalid, NotFound
from ..ids import new_id
from ..model.entry import GENESIS, Numbers
from ..model.status import require_open
from ..storage.base import Row, Tx, row_check
from . import branches

_NUMBERS = ", ".join(Numbers._fields)
COLD = (
    "sid, scope, id, key, agent, kind, name, label, workspace, parent, status, archived, pinned, hidden, title, tags,"
    " created_ms, tasks, completed, builds, states, chk"
)
COLUMNS = (
    f"{COLD}, head_branch, head_uid, head_fork, head_seq, attached, head_hash,"
    f" {_NUMBERS}, branches, revision, updated, updated_ms, message_ms, rank, head_chk"
)
_SLOTS = ", ".join("?" * len(COLUMNS.split(",")))
LEASE = "scope, session, token, holder, taken_ms, beats, beat_ms, chk"
_S, _L = (
    ", ".join(f"{table}.{name.strip()}" for name in names.split(",")) for table, names in (("s", COLUMNS), ("l", LEASE))
)
SELECT_WHOLE = f"SELECT {_S}, d.doc, d.chk, {_L} FROM session s LEFT JOIN detail d ON d.sid = s.sid"
SELECT_WHOLE += " LEFT JOIN lease l ON l.scope = s.scope AND l.session = s.sid"
GET_LEASE = f"SELECT {LEASE} FROM lease WHERE scope = ? AND session = ?"
GET = f"SELECT {COLUMNS} FROM session WHERE scope = ? AND id = ?"
SEVERAL = f"SELECT {COLUMNS} FROM session WHERE scope = ? AND id IN "
BY_NUMBER = f"SELECT {COLUMNS} FROM session WHERE sid = ?"
BY_KEY = f"SELECT {COLUMNS} FROM session WHERE scope = ? AND key = ? AND hidden = 0"
BY_NAME = f"SELECT {COLUMNS} FROM session WHERE scope = ? AND agent = ? AND workspace = ? AND name = ? AND hidden = 0"
NAMED = f"SELECT {COLUMNS} FROM session WHERE scope = ? AND name = ? AND hidden = 0 ORDER BY sid"
BY_LABEL = f"SELECT {COLUMNS} FROM session WHERE scope = ? AND parent = ? AND label = ? AND hidden = 0"
OF_AGENT = f"SELECT {COLUMNS} FROM session WHERE scope = ? AND agent = ? AND hidden = 0 ORDER BY sid"
WHOLE = f"{SELECT_WHOLE} WHERE s.scope = ? AND s.id = ?"
INSERT = f"INSERT INTO session ({COLUMNS}) VALUES ({_SLOTS})"
SET_COLD = f"""UPDATE session SET {", ".join(f"{name} = ?" for name in COLD.split(", ")[1:])} WHERE sid = ?"""
_SET_HEAD = f"""UPDATE session SET head_branch = ?, head_uid = ?, head_fork = ?, head_seq = ?,
attached = ?, head_hash = ?,
{", ".join(f"{name} = ?" for name in Numbers._fields)},
branches = ?, revision = ?, updated = ?, updated_ms = ?, message_ms = ?, head_chk = ?"""
MOVE = f"{_SET_HEAD} WHERE sid = ?"
MOVE_UP = f"{_SET_HEAD}, rank = ? WHERE sid = ?"
GET_DETAIL = "SELECT doc, chk FROM detail WHERE sid = ?"
PUT_DETAIL = """INSERT INTO detail (sid, doc, chk) VALUES (?, ?, ?)
ON CONFLICT (sid) DO UPDATE SET doc = excluded.doc, chk = excluded.chk"""

DEEPEST = 100
KINDS = ("main", "subagent", "cron")
# What lies beside a session and is of this store alone: how many messages were sent and answers are being written, and
# what was last seen in its workspace.
UNDER_WAY = ("sent", "open", "disk", "disk_at", "told")
NO_NUMBERS = tuple(Numbers())
_COLD = len(COLD.split(","))  # with its check


class SessionRow(NamedTuple):
    """A session's row as it lies in the table, checked."""

    sid: int
    scope: str
    id: str
    key: str
    agent: str
    kind: str
    name: str | None
    label: str | None
    workspace: str
    parent: int
    status: str
    archived: int
    pinned: int
    hidden: int
    title: str | None
    tags: str
    created_ms: int
    tasks: int
    completed: int
    builds: int
    states: int
    chk: int
    branch: int
    uid: str
    fork: int
    seq: int
    attached: int
    hash: bytes
    messages: int
    turns: int
    tool_calls: int
    tool_failures: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_nano: int
    active_ms: int
    work_seq: int
    branches: int
    revision: int
    updated: int
    updated_ms: int
    message_ms: int | None
    rank: int
    head_chk: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """The running totals at the head."""
        return (*self[28:40],)

    @property
    def head(self) -> tuple[Any, ...]:
        """The columns from head_branch to rank."""
        return tuple(self)[_COLD:-1]


class LeaseRow(NamedTuple):
    """Who has a session, as it lies in the table, checked."""

    scope: str
    session: int
    token: int
    holder: bytes | None
    taken_ms: int
    beats: int
    beat_ms: int


Whole: TypeAlias = tuple[SessionRow, bytes, LeaseRow | None]  # a session with its details and its lease


class Fields(NamedTuple):
    """What a new session is given; the store adds ids, times and its place."""

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


def checked(row: Row) -> SessionRow:
    """Check a row that was read; damage is ``Corrupt``."""
    if row_check(row[: _COLD - 1]) != row[_COLD - 1] or row_check((row[0], *row[_COLD:-1])) != row[-1]:
        raise Corrupt(f"the record of session {row[2]!r} is damaged", what=f"session {row[2]}")
    return SessionRow._make(row)


def get(tx: Tx, scope: str, session_id: str) -> SessionRow:
    """Give a session by its id, also one in the trash; a purged one and another scope's are not found."""
    row = tx.one(GET, (scope, session_id))
    if row is None or row[13] == 2:
        raise NotFound(f"there is no session {session_id!r} in this store and scope")
    return checked(row)


def is_gone(tx: Tx, scope: str, session_id: str) -> bool | None:
    """Say whether a session is in the trash or was purged; None if this store never had it."""
    row = tx.one(GET, (scope, session_id))
    return None if row is None else checked(row).hidden > 0


def several(tx: Tx, scope: str, ids: Sequence[str]) -> dict[str, SessionRow]:
    """Give sessions by their ids in one read, also those in the trash; those that are not there are left out."""
    rows = tx.all(f"{SEVERAL}({', '.join('?' * len(ids))}) AND hidden < 2", (scope, *ids))
    return {row[2]: checked(row) for row in rows}


def by_number(tx: Tx, sid: int) -> SessionRow:
    """Give a session that must exist by its local number."""
    row = tx.one(BY_NUMBER, (sid,))
    if row is None:
        raise Corrupt(f"the record of session number {sid} is missing", what=f"session number {sid}")
    return checked(row)


def find_by_name(tx: Tx, scope: str, *, agent: str, workspace: str, name: str) -> SessionRow | None:
    """Give the visible session of that name, or None."""
    row = tx.one(BY_NAME, (scope, agent, workspace, name))
    return None if row is None else checked(row)


def find_by_key(tx: Tx, scope: str, key: str) -> SessionRow | None:
    """Give the visible session with that key, or None."""
    row = tx.one(BY_KEY, (scope, key))
    return None if row is None else checked(row)


def find_by_label(tx: Tx, scope: str, parent: int, label: str) -> SessionRow | None:
    """Give the visible child with that label, or None."""
    row = tx.one(BY_LABEL, (scope, parent, label))
    return None if row is None else checked(row)


# ---------------------------------------------------------------------- making and changing


def create(tx: Tx, scope: str, fields: Fields, *, now_ms: int, origin: Origin | None = None) -> SessionRow:
    """Start a session with one branch, ``main``, empty or at a point of another session's path.

    A taken name, label or key is ``Conflict``, and so is a sub-agent of a finished session; a parent that does not
    exist is ``NotFound``.
    """
    _require_free(tx, scope, fields)  # first: a call that is refused waits for others while it keeps nobody waiting
    above = None if fields.parent is None else get(tx, scope, fields.parent)
    if above is not None and fields.kind == "subagent":
        require_open(above.status)
        _require_shallow(tx, above)
    parent = 0 if above is None else above.sid
    _require_free_label(tx, scope, fields.label, parent)
    sid, session_id = tx.next("session"), new_id(now_ms)
    place = (fields.agent, fields.kind, fields.name, fields.label, fields.workspace, parent)
    flags = ("active", int(fields.archived), 0, 0, fields.title, pack_tags(fields.tags), now_ms, 0, 0, 0, 0)
    cold = (sid, scope, session_id, fields.key or key_of(fields, session_id), *place, *flags)
    # The session and its branch point at each other: the branch comes second and the head follows it.
    head: tuple[Any, ...] = (0, "", 0, 0, 1, GENESIS, *NO_NUMBERS, 1, 0, 0, now_ms, None, 0)
    session = SessionRow._make((*cold, row_check(cold), *head, 0))
    tx.run(INSERT, session)
    put_detail(tx, sid, fields.detail)
    start = origin or Origin(None, 0, GENESIS, NO_NUMBERS)
    main = branches.create(
        tx, scope, sid, name="main", origin=start.branch, seq=start.seq, tip_hash=start.hash, now_ms=now_ms
    )
    from . import feed

    position, rank = feed.record(tx, session, "session", branch=main.bid, first=start.seq, last=start.seq)
    counts = (1, 0, position, now_ms, None, rank)
    return write_head(
        tx, session, (main.bid, main.uid, main.fork_seq, start.seq, 1, start.hash, *start.numbers, *counts)
    )


class Origin(NamedTuple):
    """Where a session that is a fork begins."""

    branch: branches.BranchRow | None
    seq: int
    hash: bytes
    numbers: tuple[int, ...]


def _require_shallow(tx: Tx, above: SessionRow) -> None:
    """Refuse sub-agents of sub-agents without end: each costs, and none would ever be looked at."""
    depth, parent = 1, above.parent
    while parent:
        depth, parent = depth + 1, by_number(tx, parent).parent
        if depth > DEEPEST:
            raise Invalid(f"sub-agents are at most {DEEPEST} levels deep; let this one do the work itself")


def _require_free(tx: Tx, scope: str, fields: Fields) -> None:
    name = fields.name
    if name is not None and find_by_name(tx, scope, agent=fields.agent, workspace=fields.workspace, name=name):
        raise Conflict(f"there is a session named {name!r} already; get it, or choose another name", found=name)
    if fields.key is not None and find_by_key(tx, scope, fields.key):
        raise Conflict(f"there is a session with the key {fields.key!r} already", found=fields.key)


def _require_free_label(tx: Tx, scope: str, label: str | None, parent: int) -> None:
    if label is not None and find_by_label(tx, scope, parent, label):
        raise Conflict(f"there is a sub-agent with the label {label!r} already; choose another label", found=label)


def key_of(fields: Fields, session_id: str) -> str:
    """Make the key of a session that has no fixed one: unique because the id in it is."""
    kind = "subagent" if fields.kind == "subagent" else "session"
    return f"agent:{escape(fields.agent)}:{kind}:{session_id}"


def escape(part: str) -> str:
    """Write a part of a key so that no other part list can give the same key."""
    return part.replace("%", "%25").replace(":", "%3A").replace("/", "%2F")


def write_head(tx: Tx, session: SessionRow, head: tuple[Any, ...]) -> SessionRow:
    """Write a session's columns from head_branch to rank.

    An unchanged rank is left alone, since setting it would write its index.
    """
    sid, rank = session.sid, head[-1]
    check = row_check((sid, *head))
    if rank == session.rank:
        tx.run(MOVE, (*head[:-1], check, sid))
    else:
        tx.run(MOVE_UP, (*head[:-1], check, rank, sid))
    return SessionRow._make((*session[:_COLD], *head, check))


def write_cold(tx: Tx, session: SessionRow, **changed: Any) -> SessionRow:
    """Write columns that appends leave alone; nothing is written if they are as asked already."""
    new = session._replace(**changed)
    if new == session:
        return session
    new = new._replace(chk=row_check(new[: _COLD - 1]))
    tx.run(SET_COLD, (*new[1:_COLD], new.sid))
    return new


def standing_at(session: SessionRow, branch: branches.BranchRow, seq: int, numbers: tuple[int, ...]) -> SessionRow:
    """Give the row as it would be with its head at another point: for looking from there, not for writing."""
    place: dict[str, Any] = {"branch": branch.bid, "uid": branch.uid, "fork": branch.fork_seq, "seq": seq}
    return session._replace(**place, attached=0, **Numbers._make(numbers)._asdict())


def head_branch(tx: Tx, session: SessionRow) -> branches.BranchRow:
    """Give the branch of the head with its true tip: while attached, only the session's row knows it."""
    branch = branches.get(tx, session.branch)
    if session.attached:
        return branch._replace(tip_seq=session.seq, tip_hash=session.hash)
    return branch


# ---------------------------------------------------------------------- details and tags


def put_detail(tx: Tx, sid: int, doc: bytes) -> None:
    """Write what lies beside a session's row."""
    tx.run(PUT_DETAIL, (sid, doc, row_check((sid, doc))))


def detail(tx: Tx, session: SessionRow) -> bytes:
    """Read what lies beside a session's row, checked."""
    return checked_detail(session, tx.one(GET_DETAIL, (session.sid,)))


def lasting(doc: bytes) -> bytes:
    """Give details without what is of this store alone: how much is under way in the session here."""
    if not any(f'"{name}"'.encode() in doc for name in UNDER_WAY):
        return doc
    return codec.encode({name: value for name, value in decoded(doc).items() if name not in UNDER_WAY})


def checked_detail(session: SessionRow, row: Row | None) -> bytes:
    """Check a row of ``detail``; damage is ``Corrupt``."""
    if row is None or row[0] is None or row_check((session.sid, row[0])) != row[1]:
        raise Corrupt(f"the details of session {session.id!r} are damaged", what=f"session {session.id}")
    return bytes(row[0])


def find_lease(tx: Tx, session: SessionRow) -> LeaseRow | None:
    """Give the lease of a session, held or not; None if nobody ever had it."""
    row = tx.one(GET_LEASE, (session.scope, session.sid))
    return None if row is None else checked_lease(row)


def checked_lease(row: Row) -> LeaseRow:
    """Check a row of ``lease``; damage is ``Corrupt``."""
    if row_check(row[:-1]) != row[-1]:
        raise Corrupt("the record of a lease is damaged; run verify", what=f"session number {row[1]}")
    return LeaseRow._make(row[:-1])


def find_whole(tx: Tx, scope: str, session_id: str) -> Whole | None:
    """Give a session with its details and its lease, or None; a purged one is gone."""
    row = tx.one(WHOLE, (scope, session_id))
    return None if row is None or row[13] == 2 else checked_whole(row)


def whole(tx: Tx, scope: str, session_id: str) -> Whole:
    """Give a session with its details and its lease."""
    found = find_whole(tx, scope, session_id)
    if found is None:
        raise NotFound(f"there is no session {session_id!r} in this store and scope")
    return found


def with_rest(tx: Tx, session: SessionRow) -> Whole:
    """Give a session that was read with what lies beside it."""
    return session, detail(tx, session), find_lease(tx, session)


def checked_whole(row: Row) -> Whole:
    """Check a session's row that was read with its details and its lease."""
    session, lease = checked(row[:-10]), row[-8:]
    return session, checked_detail(session, row[-10:-8]), None if lease[0] is None else checked_lease(lease)


def pack_tags(tags: tuple[str, ...]) -> str:
    """Write tags so that one can be looked for: each between newlines, in the order given."""
    return "\n" + "".join(f"{tag}\n" for tag in tags) if tags else ""


def unpack_tags(text: str) -> tuple[str, ...]:
    """Read tags back."""
    return tuple(text.split("\n")[1:-1])


def decoded(doc: bytes) -> dict[str, Any]:
    """Read the details as values."""
    value = codec.decode(doc)
    if not isinstance(value, dict):
        raise Corrupt("the details of a session are no object", what="detail")
    return value


def ended(doc: bytes) -> dict[str, Any]:
    """Give how a session's last run ended; nothing if it was left in order."""
    found = decoded(doc).get("ended")
    return found if isinstance(found, dict) else {}
