"""Checks of the feed: no gaps, every change names what is there, and all that was done is in it.

The feed and the tables tell the same story twice: an entry is in exactly one change, an operation on a session made one
of its kind, a version of an agent made one, the newest version of a document is in one. So a record that vanished whole
is missed by the other side. These counts are taken for some thousand numbers at a time, both sides in one read.
"""

from __future__ import annotations

from collections import Counter

from ...errors import Corrupt
from ...storage.base import Tx
from ...tables.agents import AGENT
from ...tables.branches import BRANCH
from ...tables.documents import DOCUMENT
from ...tables.entries import ENTRY
from ...tables.history import FEED, FeedRow
from .. import entries
from ..agent_checkpoints import FEED_KIND
from ..feed import OF_DOCUMENT
from .base import FOLLOW, LOST, PURGED, Check, Fault, Found, Key, Rule, has
from .sessions import tip_of

OWNER = "SELECT hidden, updated FROM session WHERE scope = ? AND sid = ?"
HOLDER = "SELECT session FROM branch WHERE scope = ? AND bid = ?"
# Kinds of operations on one session that leave exactly one change of that kind and are not made by anything else.
KINDS = (
    *("rename", "tag", "untag", "archive", "unarchive", "pin", "unpin", "metadata"),
    *("rewind", "switch", "pop", "clear", "replace", "restore", "write"),
)
_KINDS = ", ".join(f"'{kind}'" for kind in KINDS)
ROWS = """SELECT (SELECT count(*) FROM session) + (SELECT count(*) FROM branch) + (SELECT count(*) FROM agent)
+ (SELECT count(*) FROM document)"""
NEWEST = """SELECT coalesce(max(n), 0) FROM (SELECT max(sid) AS n FROM session UNION ALL
SELECT max(bid) FROM branch UNION ALL SELECT max(aid) FROM agent UNION ALL SELECT max(did) FROM document) AS numbers"""
# Numbers are unique in a store, so both sides can be counted by them, whatever the scope.
CHANGES = f"""SELECT session, kind, count(*) FROM feed WHERE session > ? AND session <= ? AND kind IN ({_KINDS})
GROUP BY session, kind"""
OPERATIONS = f"""SELECT session, kind, count(*) FROM operation WHERE session > ? AND session <= ?
AND kind IN ({_KINDS}) GROUP BY session, kind"""
COVERED = """SELECT branch, CAST(sum(last_seq - first_seq + 1) AS BIGINT) FROM feed
WHERE branch > ? AND branch <= ? AND kind = 'entries' AND session > 0 GROUP BY branch"""
OF_AGENTS = f"""SELECT branch, count(*) FROM feed WHERE session = 0 AND branch > ? AND branch <= ?
AND kind <> '{FEED_KIND}' GROUP BY branch"""
OF_DOCUMENTS = f"""SELECT branch, max(first_seq) FROM feed WHERE session = {OF_DOCUMENT} AND branch > ? AND branch <= ?
GROUP BY branch"""
DOCUMENTS = "SELECT did, version FROM document WHERE did > ? AND did <= ?"
AGENTS = "SELECT aid, version FROM agent WHERE aid > ? AND aid <= ? AND hidden < 2"
SESSIONS = "SELECT sid FROM session WHERE sid > ? AND sid <= ? AND hidden < 2"
BRANCHES = f"{BRANCH.select} WHERE bid > ? AND bid <= ?"
OPERATION_GAPS = "SELECT max(oid) - count(*) FROM operation"
PURGED_CHANGES = """SELECT count(*) FROM feed WHERE session IN (SELECT sid FROM session WHERE hidden = 2)
AND kind NOT IN ('entries', 'session', 'checkpoint', 'purge', 'move', 'below', 'copy')"""

WINDOW = 20_000


def change_fault(tx: Tx, row: FeedRow) -> str:
    """Return what a change names that is not there; a purged session need not have its entries."""
    if row.session == 0:
        of_agent = row.kind not in ("entries", "session", "checkpoint", *KINDS)
        return "" if of_agent and has(tx, AGENT, row.scope, row.branch) else "its agent is missing"
    if row.session == OF_DOCUMENT:
        return "" if has(tx, DOCUMENT, row.scope, row.branch) else "its document is missing"
    owner = tx.one(OWNER, (row.scope, row.session))
    if owner is None:
        return "its session is missing"
    if tx.one(HOLDER, (row.scope, row.branch)) != (row.session,):
        return "its branch is missing"
    hidden, updated = owner
    if updated < row.pos:
        return f"its session says that its last change was {updated}"
    if row.kind != "entries" or hidden == PURGED:
        return ""
    ends = {entries.key_of(row.branch, seq) for seq in (row.first_seq, row.last_seq)}
    if not all(has(tx, ENTRY, row.scope, key) for key in ends):
        return f"entry {row.first_seq} or {row.last_seq} of branch number {row.branch} is missing"
    return "" if row.first_seq <= row.last_seq else "it names no entries"


def _change_fault(tx: Tx, row: FeedRow) -> Fault | None:
    what = change_fault(tx, row)
    return Fault("missing", what, FOLLOW) if what else None


# ---------------------------------------------------------------------- counting both sides


def tallies_page(tx: Tx, found: Found, after: Key | None) -> Key | None:
    """Compare the feed with what it tells of, for the next numbers of sessions, branches, agents and documents."""
    (newest,) = tx.one(NEWEST) or (0,)
    (low,) = after or (0,)
    high = low + WINDOW
    if low == 0:
        _require_numbers(tx, newest)
        if missing := operation_gaps(tx):
            found.add("missing", "operations", f"{missing} operations are missing from the log", LOST)
    for sid, missing in operation_deficits(tx, low, high).items():
        found.add("missing", f"session number {sid}", f"{missing} of its operations are missing from the log", LOST)
    for bid in uncovered(tx, low, high):
        found.add("feed", f"branch number {bid}", "the feed does not tell of all its entries, or of some twice", FOLLOW)
    for aid in untold(tx, low, high):
        found.add("feed", f"agent number {aid}", "the feed does not tell of all its versions", FOLLOW)
    for did in untold_documents(tx, low, high):
        found.add("feed", f"document number {did}", "the feed does not tell of its version, or of a later one", FOLLOW)
    return (high,) if high < newest else None


def _require_numbers(tx: Tx, newest: int) -> None:
    """Numbers are given out in a row: far more of them than rows would take for ever to go through."""
    if newest > WINDOW and tx.dialect.gapless:
        (rows,) = tx.one(ROWS) or (0,)
        if newest > 2 * rows + WINDOW:
            raise Corrupt("the numbers of sessions, branches, agents or documents are not those of rows", what="file")


def operation_deficits(tx: Tx, low: int, high: int) -> dict[int, int]:
    """Return how many operations of each session are in the feed and not in the log."""
    alive = {sid for (sid,) in tx.all(SESSIONS, (low, high))}
    told = Counter({(sid, kind): count for sid, kind, count in tx.all(CHANGES, (low, high)) if sid in alive})
    told.subtract({(sid, kind): count for sid, kind, count in tx.all(OPERATIONS, (low, high))})
    deficits = Counter[int]()
    for (sid, _), number in told.items():
        deficits[sid] += max(0, number)
    return {sid: number for sid, number in deficits.items() if number}


def uncovered(tx: Tx, low: int, high: int) -> list[int]:
    """Return the branches whose entries are not in the feed exactly once; those of purged sessions are left out."""
    covered: dict[int, int] = dict(tx.all(COVERED, (low, high)))
    found = []
    for branch in map(BRANCH.unchecked, filter(BRANCH.is_sound, tx.all(BRANCHES, (low, high)))):
        session, tip, _ = tip_of(tx, branch)
        if session is not None and session.hidden < PURGED and covered.get(branch.bid, 0) != tip - branch.fork_seq:
            found.append(branch.bid)
    return found


def untold(tx: Tx, low: int, high: int) -> dict[int, int]:
    """Return the agents whose changes in the feed are not as many as their versions, and how many are missing."""
    told: dict[int, int] = dict(tx.all(OF_AGENTS, (low, high)))
    there = tx.all(AGENTS, (low, high))
    return {aid: version - told.get(aid, 0) for aid, version in there if version != told.get(aid, 0)}


def untold_documents(tx: Tx, low: int, high: int) -> list[int]:
    """Return the documents whose version is not the newest that the feed tells of.

    One that was copied here came with a version, so there need not be a change for each.
    """
    told: dict[int, int] = dict(tx.all(OF_DOCUMENTS, (low, high)))
    return [did for did, version in tx.all(DOCUMENTS, (low, high)) if version != told.get(did, 0)]


def operation_gaps(tx: Tx) -> int:
    """Return how many numbers of operations are left out beyond those that purges can have erased.

    They are given out in a row; only purges leave some out, as many as the feed remembers.
    """
    if not tx.dialect.gapless:
        return 0
    left_out, purged = tx.one(OPERATION_GAPS), tx.one(PURGED_CHANGES)
    return max(0, int(left_out[0] or 0) - int(purged[0])) if left_out and purged else 0


RULES: tuple[Check, ...] = (
    Rule(FEED, _change_fault, "feed", FOLLOW, gaps=Fault("feed", "it is missing", FOLLOW)),
    tallies_page,
)
