"""Checks of sessions, their details and branches: where things are must be what the entries say.

The head of a session is an entry of a branch of its own, and the row repeats its hash and numbers. A branch starts
at an entry that its parent owns, and its depth and jump follow from the parent. Numbers have no gaps: rows are
never deleted, only emptied.
"""

from __future__ import annotations

from ... import codec
from ...errors import Corrupt, Error
from ...storage.base import Row, Tx, row_check
from .. import branches, chain, entries, sessions, work
from ..branches import BranchRow
from ..sessions import SessionRow
from .base import FOLLOW, LOST, PAGE, REBUILD, Found, Key, Table, advance, gaps, is_sound, numbered
from .derived import UNREADABLE

SESSIONS = Table("session", sessions.COLUMNS, "sid")
BRANCHES = Table("branch", branches.COLUMNS, "bid")
DETAILS = Table("detail", "sid, doc, chk", "sid")
SESSION = f"SELECT {sessions.COLUMNS} FROM session WHERE sid = ?"
COUNT = "SELECT count(*) FROM branch WHERE scope = ? AND session = ?"
AGENT = "SELECT 1 FROM agent WHERE scope = ? AND id = ? AND hidden = 0"
ANY_AGENT = "SELECT 1 FROM agent WHERE scope = ? AND id = ?"
ABOVE = """WITH RECURSIVE above (at) AS (
SELECT parent FROM session WHERE sid = ? UNION SELECT parent FROM above JOIN session ON sid = at)
SELECT 1 FROM above WHERE at = ?"""
CHANGED = "SELECT session FROM feed WHERE pos = ?"
HAS_SESSION = "SELECT 1 FROM session WHERE sid = ? AND scope = ?"
HAS_DETAIL = "SELECT 1 FROM detail WHERE sid = ?"
HASH_AT = "SELECT hash FROM entry WHERE key = ? AND scope = ?"

PURGED = 2


# ---------------------------------------------------------------------- sessions


def sessions_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the next sessions."""
    rows = SESSIONS.rows(tx, after, PAGE // 3)
    for first, last in gaps(tx, rows, after):
        found.add("missing", f"session {numbered(first, last)}", "the record is missing")
    for row in rows:
        found.checked += 1
        try:
            session = sessions.checked(row)
        except Corrupt as error:
            found.add("session", f"session {row[2]}", str(error))
            continue
        check_session(tx, found, session)
    return advance(rows, after)


def check_session(tx: Tx, found: Found, session: SessionRow) -> None:
    """Compare a session whose row is sound with everything that it names."""
    where = f"session {session.id}"
    for check in (_flags, _head, _branches, _agent, _parent, _counts, _place):
        check(tx, found, session, where)
    if tx.one(HAS_DETAIL, (session.sid,)) is None:
        found.add("detail", where, "its details (prompt, model, metadata) are missing")


def _flags(tx: Tx, found: Found, session: SessionRow, where: str) -> None:
    flags = (session.attached, session.archived, session.pinned)
    if not set(flags) <= {0, 1} or session.hidden not in (0, 1, PURGED):
        found.add("session", where, "one of its marks (attached, archived, pinned, hidden) has no meaning", REBUILD)


def _head(tx: Tx, found: Found, session: SessionRow, where: str) -> None:
    """The row must agree with the entry at its head."""
    try:
        branch = branches.get(tx, session.branch)
        point = entries.point_on(tx, session.scope, branch, session.seq)
    except Corrupt as error:
        found.add("missing", where, f"its head cannot be read: {error}")
        return
    own = (branch.session, branch.uid, branch.fork_seq)
    # A purge may empty the first branch of a session that was purged before: its row is not written again.
    if own != (session.sid, session.uid, branch.fork_seq if session.hidden == PURGED else session.fork):
        found.add("session", where, "its head is on a branch that is not its own")
    if (point.hash, tuple(point.numbers)) != (session.hash, tuple(session.numbers)):
        found.add("session", where, "its totals are not those of its last entry", REBUILD)
    if not session.attached and session.seq > branch.tip_seq:
        found.add("session", where, "its head is behind the end of its branch", REBUILD)


def _branches(tx: Tx, found: Found, session: SessionRow, where: str) -> None:
    if tx.one(COUNT, (session.scope, session.sid)) != (session.branches,):
        found.add("missing", where, "a branch of this session is missing")


def _agent(tx: Tx, found: Found, session: SessionRow, where: str) -> None:
    """One in the trash is there."""
    asked = session.scope, session.agent
    if not tx.one(AGENT, asked) and not tx.one(ANY_AGENT, asked):
        found.add("agent", where, f"its agent {session.agent!r} has no record")


def _parent(tx: Tx, found: Found, session: SessionRow, where: str) -> None:
    """A parent must exist; a circle of parents has a member that is older than its parent, so only those are walked."""
    if not session.parent:
        return
    if not tx.one(HAS_SESSION, (session.parent, session.scope)):
        found.add("missing", where, f"its parent, session number {session.parent}, is missing")
    elif session.parent >= session.sid and tx.one(ABOVE, (session.sid, session.sid)):
        found.add("session", where, "it is an ancestor of itself")


def _counts(tx: Tx, found: Found, session: SessionRow, where: str) -> None:
    """The row shows the tasks and build attempts of its head."""
    try:
        there = {} if session.hidden == PURGED else work.counts_at_head(tx, session)
    except UNREADABLE:
        return  # a state entry is damaged or lost: reported there
    stored = {"tasks": session.tasks, "completed": session.completed, "builds": session.builds}
    if {**dict.fromkeys(stored, 0), **there} != stored:
        found.add("session", where, "its counts of tasks or build attempts are not those of its head", REBUILD)


def _place(tx: Tx, found: Found, session: SessionRow, where: str) -> None:
    """Its last change, and the one that gave it its rank, are changes of this session in the feed."""
    for position in {session.updated, session.rank}:
        if tx.one(CHANGED, (position,)) != (session.sid,):
            found.add("feed", where, f"change {position}, which it names as its own, is another's or missing", FOLLOW)


OPEN = """SELECT count(*) FROM stream WHERE session = ? AND scope =
(SELECT scope FROM session WHERE sid = stream.session)"""
LAST_SENT = """SELECT max(n) FROM inbox WHERE session = ? AND scope =
(SELECT scope FROM session WHERE sid = inbox.session) HAVING max(n) IS NOT NULL"""


def details_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the next details of sessions."""
    rows = DETAILS.rows(tx, after)
    for row in rows:
        found.checked += 1
        where = f"details of session number {row[0]}"
        if not is_sound(row) or not is_object(row[1]):
            found.add("detail", where, "they are damaged")
        elif not tx.one(SESSION, (row[0],)):
            found.add("missing", where, "there is no such session")
        elif fewer_sent(tx, row):
            found.add("missing", where, "fewer messages lie in its inbox than were sent to it")
        elif other_open(tx, row):
            found.add("missing", where, "it has not as many answers that are being written as it should")
    return advance(rows, after)


def fewer_sent(tx: Tx, row: Row) -> bool:
    """Say whether messages vanished from the end of a session's inbox."""
    sent = codec.decode(row[1]).get("sent", 0) if b'"sent"' in row[1] else 0
    if not sent:
        return False
    last = tx.one(LAST_SENT, (row[0],))
    return last is None or last[0] < sent


def other_open(tx: Tx, row: Row) -> bool:
    """Say whether streams vanished, or are there that were never begun."""
    known = codec.decode(row[1]).get("open", 0) if b'"open"' in row[1] else 0
    return tx.one(OPEN, (row[0],)) != (known,)


def is_object(data: object) -> bool:
    """Say whether stored bytes are a JSON object."""
    try:
        return isinstance(data, bytes) and isinstance(codec.decode(data), dict)
    except Error:
        return False


# ---------------------------------------------------------------------- branches


def branches_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the next branches, without their entries."""
    rows = BRANCHES.rows(tx, after)
    for first, last in gaps(tx, rows, after):
        found.add("missing", f"branch {numbered(first, last)}", "the record is missing")
    for row in rows:
        found.checked += 1
        try:
            branch = branches.checked(row)
        except Corrupt as error:
            found.add("branch", f"branch {row[2]}", str(error))
            continue
        for fault, fix in branch_faults(tx, branch):
            found.add("branch", f"branch {branch.uid}", fault, fix)
    return advance(rows, after)


def branch_faults(tx: Tx, branch: BranchRow) -> list[tuple[str, str]]:
    """Say what does not fit about a branch whose row is sound, and what helps."""
    faults = []
    if not tx.one(HAS_SESSION, (branch.session, branch.scope)):
        faults.append(("it belongs to a session whose record is lost", LOST))
    parent, fault = parent_of(tx, branch)
    if fault:
        return [*faults, (fault, LOST)]
    if (branch.depth, branch.jump, branch.jump_seq) != shortcut(tx, parent, branch.fork_seq):
        faults.append(("its depth or its jump to a far ancestor is wrong", REBUILD))
    if not _tip_fits(tx, branch):
        faults.append(("its end is not an entry of it", REBUILD))
    return faults


def parent_of(tx: Tx, branch: BranchRow) -> tuple[BranchRow | None, str]:
    """Give a branch's parent, or say why it cannot be the parent."""
    if branch.parent is None:
        return None, "it reads from a parent that it does not name" if branch.fork_seq else ""
    row = tx.one(branches.GET, (branch.parent,))
    if row is None or not is_sound(row):
        return None, "the branch that it starts on is damaged or missing"
    parent = branches.checked(row)
    if parent.bid >= branch.bid or parent.scope != branch.scope or not parent.fork_seq < branch.fork_seq:
        return None, "it starts at an entry that its parent does not own"
    if not tx.one(HASH_AT, (entries.key_of(parent.bid, branch.fork_seq), branch.scope)):
        return None, f"entry {branch.fork_seq}, where it starts, is missing"
    return parent, ""


def shortcut(tx: Tx, parent: BranchRow | None, seq: int) -> tuple[int, int | None, int]:
    """Give depth, jump and jump_seq that follow from a parent; a damaged ancestor is ``Corrupt``."""
    if parent is None:
        return 0, None, 0
    jump = parent.bid, seq
    if parent.jump is not None:
        middle = branches.get(tx, parent.jump)
        if middle.jump is not None:
            far = branches.get(tx, middle.jump)
            if parent.depth - middle.depth == middle.depth - far.depth:
                jump = far.bid, middle.jump_seq
    return parent.depth + 1, *jump


def _tip_fits(tx: Tx, branch: BranchRow) -> bool:
    """The recorded end, or lower bound of it, is the hash of an entry of the path."""
    if branch.tip_seq <= branch.fork_seq:
        at, holder = branch.fork_seq, branch.parent
    else:
        at, holder = branch.tip_seq, branch.bid
    row = tx.one(HASH_AT, (entries.key_of(holder or 0, at), branch.scope)) if at else (chain.GENESIS,)
    if row is None:  # the entry itself is missing: reported there
        return branch.tip_seq >= branch.fork_seq
    return branch.tip_seq >= branch.fork_seq and bool(row[0] == branch.tip_hash)


def tip_of(tx: Tx, branch: BranchRow) -> tuple[SessionRow | None, int, bytes]:
    """Give a branch's session, if its row is sound, and where the branch ends: only an attached head knows."""
    row: Row | None = tx.one(SESSION, (branch.session,))
    try:
        session = None if row is None else sessions.checked(row)
    except Corrupt:
        session = None
    if session is not None and session.attached and session.branch == branch.bid:
        return session, session.seq, session.hash
    return session, branch.tip_seq, branch.tip_hash


def detail_row(sid: int, doc: bytes) -> Row:
    """Make a row of ``detail``."""
    return sid, doc, row_check((sid, doc))
