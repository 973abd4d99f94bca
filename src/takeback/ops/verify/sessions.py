"""What is demanded of sessions, their tags and details, and branches: where things are must be what the entries say.

The head of a session is an entry of a branch of its own, and the row repeats its hash and numbers. A branch starts
at an entry that its parent owns, and its depth and jump follow from the parent. Numbers have no gaps: rows are
never deleted, only emptied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ... import codec
from ...ids import parse_entry_id
from ...storage.base import Tx
from ...tables import metadata
from ...tables.branches import BRANCH, BranchRow
from ...tables.entries import ENTRY
from ...tables.sessions import DETAIL, METADATA, SESSION, TAG, DetailRow, MetadataRow, SessionRow, TagRow
from .. import branches, chain, entries, open_calls, stored_json, work
from ..open_calls import OpenCall
from .base import FOLLOW, PURGED, REBUILD, UNREADABLE, Check, Fault, Rule, has, intact
from .base import is_object as is_object

COUNT = "SELECT count(*) FROM branch WHERE scope = ? AND session = ?"
ANY_AGENT = "SELECT 1 FROM agent WHERE scope = ? AND id = ?"
ABOVE = """WITH RECURSIVE above (at) AS (
SELECT parent FROM session WHERE scope = ? AND sid = ? UNION
SELECT parent FROM above JOIN session ON scope = ? AND sid = at)
SELECT 1 FROM above WHERE at = ?"""
CHANGED = """SELECT f.session FROM session s JOIN feed f ON f.scope = s.scope AND f.pos = s.updated
WHERE s.scope = ? AND s.sid = ?"""
NAMED = "SELECT 1 FROM branch WHERE scope = ? AND uid = ? AND session = ?"
OPEN = "SELECT count(*) FROM stream WHERE scope = ? AND session = ?"
LAST_SENT = "SELECT max(n) FROM inbox WHERE scope = ? AND session = ? HAVING max(n) IS NOT NULL"
LOST_IN = "SELECT 1 FROM lost WHERE scope = ? AND key > ? AND key <= ? LIMIT 1"


def has_session(tx: Tx, scope: str, sid: int) -> bool:
    """Whether a session has a record, even one in the trash or purged."""
    return has(tx, SESSION, scope, sid)


# ---------------------------------------------------------------------- sessions


def session_faults(tx: Tx, session: SessionRow) -> Iterator[Fault]:
    """Compare a session whose row is sound with everything that it names."""
    own = (session.scope, session.sid)
    if not {session.attached, session.archived, session.pinned} <= {0, 1} or session.hidden not in (0, 1, PURGED):
        yield Fault("session", "one of its marks (attached, archived, pinned, hidden) has no meaning", REBUILD)
    yield from _head_faults(tx, session)
    if not _counts_fit(tx, session):
        yield Fault("session", "its counts of tasks or build attempts are not those of its head", REBUILD)
    if not _calls_fit(tx, session):
        yield Fault("session", "its open tool calls are not those of its head", REBUILD)
    if wrong := stored_json.tags_fault(session.tags):
        yield Fault("session", f"its tags cannot be read: {wrong}")
    if not all(has(tx, TAG, *row) for row in session.tag_rows):
        yield Fault("tag", "a record by which it is found by its tags is missing", REBUILD)
    details = intact(tx, DETAIL, *own)
    if details is not None and not all(has(tx, METADATA, *row) for row in _metadata_rows(session, details)):
        yield Fault("metadata", "a record by which it is found by its metadata is missing", REBUILD)
    if tx.one(COUNT, own) != (session.branches,):
        yield Fault("missing", "a branch of this session is missing")
    if not tx.one(ANY_AGENT, (session.scope, session.agent)):
        yield Fault("agent", f"its agent {session.agent!r} has no record")
    if not has(tx, DETAIL, *own):
        yield Fault("detail", "its details (prompt, model, metadata) are missing")
    if session.parent and not has_session(tx, session.scope, session.parent):
        yield Fault("missing", f"its parent, session number {session.parent}, is missing")
    # A circle of parents has a member that is older than its parent, so only those are walked.
    elif session.parent >= session.sid and tx.one(ABOVE, (*own, *own)):
        yield Fault("session", "it is an ancestor of itself")
    yield from _read_faults(tx, session)
    if session.rank < 0 or session.past < 0 or 0 < session.past <= session.rank:
        yield Fault("session", "its rank is below zero, or not below that of its last change", REBUILD)
    if tx.one(CHANGED, own) != (session.sid,):
        what = f"change {session.updated}, which it names as its own, is another's or missing"
        yield Fault("feed", what, FOLLOW)


def _read_faults(tx: Tx, session: SessionRow) -> Iterator[Fault]:
    """Try what people read of a session; what a repair recorded as lost may say that it is."""
    for name, read in READS.items() if session.hidden < PURGED else ():
        try:
            read(tx, session)
        except work.Lost:
            continue
        except UNREADABLE as error:
            if not _is_told(tx, session, error):
                yield Fault("session", f"its {name} cannot be read: {error}")


def _is_told(tx: Tx, session: SessionRow, error: Exception) -> bool:
    """Whether an error names an entry or a content that is damaged itself, and is reported there."""
    kind, _, name = getattr(error, "what", "").partition(" ")
    parsed = parse_entry_id(name) if kind == "entry" else None
    if parsed is None:
        return kind == "blob"
    branch = branches.find_by_uid(tx, session.scope, parsed[0])
    key = (session.scope, entries.key_of(branch.bid if branch else 0, parsed[1]))
    return intact(tx, ENTRY, *key) is None


READS: dict[str, Callable[[Tx, SessionRow], object]] = {
    "tasks": work.task_list,
    "plan": lambda tx, session: work.text_at(tx, session, "plan"),
    "walkthrough": lambda tx, session: work.text_at(tx, session, "walkthrough"),
    "notes": work.note_list,
    "files": work.file_list,
    "build attempts": work.builds,
    "state": work.state,
    "compaction": work.compaction,
    "files seen": lambda tx, session: work.latest(tx, session, "snapshot"),
}


def _head_faults(tx: Tx, session: SessionRow) -> Iterator[Fault]:
    """The row must agree with the entry at its head."""
    try:
        branch = branches.get(tx, session.scope, session.branch)
        point = entries.point_on(tx, session.scope, branch, session.seq)
    except UNREADABLE as error:
        if not _is_damaged(tx, session):
            yield Fault("missing", f"its head cannot be read: {error}")
        return
    own = (branch.session, branch.uid, branch.fork_seq)
    # A purge may empty the first branch of a session that was purged before: its row is not written again.
    if own != (session.sid, session.uid, branch.fork_seq if session.hidden == PURGED else session.fork):
        yield Fault("session", "its head is on a branch that is not its own")
    if (point.hash, point.numbers) != (session.hash, session.numbers):
        yield Fault("session", "its totals are not those of its last entry", REBUILD)
    if not session.attached and session.seq > branch.tip_seq:
        yield Fault("session", "its head is behind the end of its branch", REBUILD)


def _is_damaged(tx: Tx, session: SessionRow) -> bool:
    """Whether the entry at a head is there and does not match its check: then it is reported as such."""
    try:
        holder = branches.owner(tx, branches.get(tx, session.scope, session.branch), session.seq)
    except UNREADABLE:
        return False
    key = (session.scope, entries.key_of(holder.bid, session.seq))
    return has(tx, ENTRY, *key) and intact(tx, ENTRY, *key) is None


def _counts_fit(tx: Tx, session: SessionRow) -> bool:
    stored = {"tasks": session.tasks, "completed": session.completed, "builds": session.builds}
    try:
        return stored == (dict.fromkeys(stored, 0) if session.hidden == PURGED else work.counts_at_head(tx, session))
    except UNREADABLE:
        return True  # a state entry is damaged or lost: reported there


def _calls_fit(tx: Tx, session: SessionRow) -> bool:
    """Whether the row keeps the open calls of its head, or the newest of them; it need not keep any."""
    there = None if session.calls is None else _open_at(tx, session)
    if there is None:
        return True
    stored = tuple(map(OpenCall._make, session.calls))
    newest = there[max(0, len(there) - len(stored)) :]
    return stored == there or (stored == newest and open_calls.is_partial(stored, session.open_seq))


def _open_at(tx: Tx, session: SessionRow) -> tuple[OpenCall, ...] | None:
    """Return the open calls that follow from the log; None where damage or loss of an entry hides them."""
    if session.open_seq == 0:
        return ()
    try:
        for part in entries.path_segments(tx, session, session.open_seq - 1, session.seq):
            bounds = entries.key_of(part.bid, part.low), entries.key_of(part.bid, part.high)
            if tx.one(LOST_IN, (session.scope, *bounds)):
                return None
        return open_calls.at(tx, session._replace(calls=None))
    except UNREADABLE:
        return None


# ---------------------------------------------------------------------- tags and details


def tag_fault(tx: Tx, row: TagRow) -> str:
    """Return what is wrong with a tag: the session must have it, with this rank."""
    session = intact(tx, SESSION, row.scope, row.sid)
    if session is None:  # a damaged one is reported as such
        return "" if has_session(tx, row.scope, row.sid) else "its session is missing"
    return "" if row in session.tag_rows else "its session has no such tag, or another rank"


def metadata_fault(tx: Tx, row: MetadataRow) -> str:
    """Return what is wrong with a row that finds a session by its metadata: the details must say so."""
    session, details = intact(tx, SESSION, row.scope, row.sid), intact(tx, DETAIL, row.scope, row.sid)
    if session is None or details is None:  # damaged ones are reported as such
        return "" if has_session(tx, row.scope, row.sid) else "its session is missing"
    return "" if row in _metadata_rows(session, details) else "its session has no such metadata, or another rank"


def _metadata_rows(session: SessionRow, details: DetailRow) -> list[MetadataRow]:
    try:
        return metadata.rows_of(session, details.doc)
    except UNREADABLE:
        return []  # details that cannot be read are reported as such


def detail_fault(tx: Tx, row: DetailRow) -> str | Fault:
    """Return what is wrong with the details of a session."""
    if not is_object(row.doc):
        return "they cannot be read"
    if wrong := stored_json.fault(row.doc, stored_json.Detail):
        return f"they are not those of a session: {wrong}"
    if not has_session(tx, row.scope, row.sid):
        return Fault("missing", "there is no such session")
    if fewer_sent(tx, row):
        return Fault("missing", "fewer messages lie in its inbox than were sent to it")
    if other_open(tx, row):
        return Fault("missing", "it has not as many answers that are being written as it should")
    return ""


def fewer_sent(tx: Tx, row: DetailRow) -> bool:
    """Whether messages vanished from the end of a session's inbox."""
    sent = codec.decode(row.doc).get("sent", 0) if b'"sent"' in row.doc else 0
    if not sent:
        return False
    last = tx.one(LAST_SENT, (row.scope, row.sid))
    return last is None or last[0] < sent


def other_open(tx: Tx, row: DetailRow) -> bool:
    """Whether streams vanished, or are there that were never begun."""
    known = codec.decode(row.doc).get("open", 0) if b'"open"' in row.doc else 0
    return tx.one(OPEN, (row.scope, row.sid)) != (known,)


# ---------------------------------------------------------------------- branches


def branch_faults(tx: Tx, branch: BranchRow) -> Iterator[Fault]:
    """Return what is wrong with a branch whose row is sound, without its entries."""
    if not has_session(tx, branch.scope, branch.session):
        yield Fault("branch", "it belongs to a session whose record is lost")
    parent, fault = parent_of(tx, branch)
    if fault:
        yield Fault("branch", fault)
        return
    if branch.hidden not in (0, 1):
        yield Fault("branch", "its mark (hidden) has no meaning", REBUILD)
    if (branch.depth, branch.jump, branch.jump_seq) != shortcut(tx, parent, branch.fork_seq):
        yield Fault("branch", "its depth or its jump to a far ancestor is wrong", REBUILD)
    if not _tip_fits(tx, branch):
        yield Fault("branch", "its end is not an entry of it", REBUILD)


def parent_of(tx: Tx, branch: BranchRow) -> tuple[BranchRow | None, str]:
    """Return a branch's parent, or say why it cannot be the parent."""
    if branch.parent is None:
        return None, "it reads from a parent that it does not name" if branch.fork_seq else ""
    parent = intact(tx, BRANCH, branch.scope, branch.parent)
    if parent is None:
        return None, "the branch that it starts on is damaged or missing"
    if parent.bid >= branch.bid or not parent.fork_seq < branch.fork_seq:
        return None, "it starts at an entry that its parent does not own"
    if not has(tx, ENTRY, branch.scope, entries.key_of(parent.bid, branch.fork_seq)):
        return None, f"entry {branch.fork_seq}, where it starts, is missing"
    return parent, ""


def shortcut(tx: Tx, parent: BranchRow | None, seq: int) -> tuple[int, int | None, int]:
    """Return depth, jump and jump_seq that follow from a parent; a damaged ancestor raises ``Corrupt``."""
    if parent is None:
        return 0, None, 0
    jump = parent.bid, seq
    if parent.jump is not None:
        middle = branches.get(tx, parent.scope, parent.jump)
        if middle.jump is not None:
            far = branches.get(tx, parent.scope, middle.jump)
            if parent.depth - middle.depth == middle.depth - far.depth:
                jump = far.bid, middle.jump_seq
    return parent.depth + 1, *jump


def _tip_fits(tx: Tx, branch: BranchRow) -> bool:
    """The recorded end, or lower bound of it, is the hash of an entry of the path."""
    if branch.tip_seq < branch.fork_seq:
        return False
    if branch.tip_seq == 0:
        return branch.tip_hash == chain.GENESIS
    holder = branch.parent or 0 if branch.tip_seq == branch.fork_seq else branch.bid
    entry = intact(tx, ENTRY, branch.scope, entries.key_of(holder, branch.tip_seq))
    return entry is None or entry.chain.hash == branch.tip_hash  # one that is damaged or missing is reported there


def tip_of(tx: Tx, branch: BranchRow) -> tuple[SessionRow | None, int, bytes]:
    """Return a branch's session, if its row is sound, and where the branch ends: only an attached head knows."""
    session = intact(tx, SESSION, branch.scope, branch.session)
    if session is not None and session.attached and _is_head(tx, session, branch):
        return session, session.seq, session.hash
    return session, branch.tip_seq, branch.tip_hash


def _is_head(tx: Tx, session: SessionRow, branch: BranchRow) -> bool:
    """Whether a head is on a branch: its row has id and number of it, and where they differ, the id counts."""
    if session.uid == branch.uid:
        return True
    return session.branch == branch.bid and not tx.one(NAMED, (branch.scope, session.uid, session.sid))


_MISSING = Fault("missing", "the record is missing")
RULES: tuple[Check, ...] = (
    Rule(SESSION, session_faults, "session", gaps=_MISSING),
    Rule(TAG, tag_fault, "tag", REBUILD),
    Rule(METADATA, metadata_fault, "metadata", REBUILD),
    Rule(BRANCH, branch_faults, "branch", gaps=_MISSING),
)
