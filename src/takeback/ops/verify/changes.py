"""Checks of the feed: no gaps, every change names what is there, and all that was done is in it.

The feed and the tables tell the same story twice: an entry is in exactly one change, an operation on a session made one
of its kind, a version of an agent made one. So a record that vanished whole is missed by the other side. These
counts are taken for some thousand numbers at a time, both sides in one read.
"""

from __future__ import annotations

from collections import Counter

from ...errors import Corrupt
from ...storage.base import Row, Tx
from .. import branches, entries
from ..agent_checkpoints import FEED_KIND
from .base import FOLLOW, LOST, Found, Key, Table, advance, gaps, is_sound
from .places import tip_of
from .tables import HAS_ENTRY, LOST_KIND

FEED = Table("feed", "pos, scope, kind, session, branch, first_seq, last_seq, chk", "pos")
OWNER = "SELECT scope, hidden, updated FROM session WHERE sid = ?"
HOLDER = "SELECT session FROM branch WHERE bid = ?"
AGENT = "SELECT scope FROM agent WHERE aid = ?"
# Kinds of operations on one session that leave exactly one change of that kind and are not made by anything else.
KINDS = (
    *("rename", "tag", "untag", "archive", "unarchive", "pin", "unpin", "metadata"),
    *("rewind", "switch", "pop", "clear", "replace", "restore"),
)
_KINDS = ", ".join(f"'{kind}'" for kind in KINDS)
ROWS = "SELECT (SELECT count(*) FROM session) + (SELECT count(*) FROM branch) + (SELECT count(*) FROM agent)"
NEWEST = """SELECT coalesce(max(n), 0) FROM (SELECT max(sid) AS n FROM session UNION ALL
SELECT max(bid) FROM branch UNION ALL SELECT max(aid) FROM agent) AS numbers"""
CHANGES = f"""SELECT session, kind, count(*) FROM feed WHERE session > ? AND session <= ? AND kind IN ({_KINDS})
GROUP BY session, kind"""
OPERATIONS = f"""SELECT session, kind, count(*) FROM operation WHERE session > ? AND session <= ?
AND kind IN ({_KINDS}) GROUP BY session, kind"""
COVERED = """SELECT branch, CAST(sum(last_seq - first_seq + 1) AS BIGINT) FROM feed
WHERE branch > ? AND branch <= ? AND kind = 'entries' AND session > 0 GROUP BY branch"""
OF_AGENTS = f"""SELECT branch, count(*) FROM feed WHERE session = 0 AND branch > ? AND branch <= ?
AND kind <> '{FEED_KIND}' GROUP BY branch"""
AGENTS = "SELECT aid, version, hidden FROM agent WHERE aid > ? AND aid <= ?"
SESSIONS = "SELECT sid, hidden FROM session WHERE sid > ? AND sid <= ?"
BRANCHES = f"SELECT {branches.COLUMNS} FROM branch WHERE bid > ? AND bid <= ?"
LOST_OPERATIONS = f"SELECT session, count(*) FROM operation WHERE kind = '{LOST_KIND}' GROUP BY session"
OPERATION_GAPS = "SELECT max(oid) - count(*) FROM operation"
PURGED = f"""SELECT count(*) FROM feed WHERE session IN (SELECT sid FROM session WHERE hidden = 2)
AND kind NOT IN ('entries', 'session', 'checkpoint', 'purge', 'move', 'below', 'copy', '{LOST_KIND}')"""

WINDOW = 20_000


def feed_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the next changes."""
    rows = FEED.rows(tx, after)
    for first, last in gaps(tx, rows, after):
        found.add("feed", f"change {first}", f"changes {first} to {last} are missing from the feed", FOLLOW)
    for row in rows:
        found.checked += 1
        if not is_sound(row):
            found.add("feed", f"change {row[0]}", "the record does not match its check", FOLLOW)
        elif fault := change_fault(tx, row):
            found.add("missing", f"change {row[0]}", fault, FOLLOW)
    return advance(rows, after)


def change_fault(tx: Tx, row: Row) -> str:
    """Say what a change names that is not there; a purged session need not have its entries."""
    position, scope, kind, sid, bid, first, last = row[:7]
    if sid == 0:
        there = tx.one(AGENT, (bid,)) == (scope,) and kind not in ("entries", "session", "checkpoint", *KINDS)
        return "" if there else "its agent is missing"
    owner = tx.one(OWNER, (sid,))
    if owner is None or owner[0] != scope:
        return "its session is missing"
    if tx.one(HOLDER, (bid,)) != (sid,):
        return "its branch is missing"
    if owner[2] < position:
        return f"its session says that its last change was {owner[2]}"
    if kind != "entries" or owner[1] == 2:
        return ""
    if not all(tx.one(HAS_ENTRY, (entries.key_of(bid, seq), scope)) for seq in {first, last}):
        return f"entry {first} or {last} of branch number {bid} is missing"
    return "" if first <= last else "it names no entries"


# ---------------------------------------------------------------------- counting both sides


def tallies_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Compare the feed with what it tells of, for the next numbers of sessions, branches and agents."""
    newest, low = tx.one(NEWEST) or (0,), max(after[0], 0)
    high = low + WINDOW
    if low == 0 and newest[0] > WINDOW:
        (rows,) = tx.one(ROWS) or (0,)
        if (
            tx.dialect.gapless and newest[0] > 2 * rows + WINDOW
        ):  # numbers are given out in a row: these would take for ever to go through
            raise Corrupt("the numbers of sessions, branches or agents are not those of their rows", what="file")
    _operations(tx, found, low, high)
    _coverage(tx, found, low, high)
    _versions(tx, found, low, high)
    if low == 0:
        _operation_gaps(tx, found)
    return (high,) if high < newest[0] else None


def _operations(tx: Tx, found: Found, low: int, high: int) -> None:
    for sid, missing in operation_deficits(tx, low, high).items():
        found.add("missing", f"session number {sid}", f"{missing} of its operations are missing from the log", LOST)


def operation_deficits(tx: Tx, low: int, high: int) -> dict[int, int]:
    """Give how many operations of each session are in the feed and not in the log."""
    alive = {sid for sid, hidden in tx.all(SESSIONS, (low, high)) if hidden < 2}
    told = Counter({row[:2]: row[2] for row in tx.all(CHANGES, (low, high)) if row[0] in alive})
    told.subtract({row[:2]: row[2] for row in tx.all(OPERATIONS, (low, high))})
    lost = Counter[int](dict(tx.all(LOST_OPERATIONS)))
    deficits: dict[int, int] = {}
    for (sid, _), number in told.items():
        if number > 0:
            deficits[sid] = deficits.get(sid, 0) + number
    return {sid: number - lost[sid] for sid, number in deficits.items() if number > lost[sid] + lost[0]}


def _coverage(tx: Tx, found: Found, low: int, high: int) -> None:
    for bid in uncovered(tx, low, high):
        found.add("feed", f"branch number {bid}", "the feed does not tell of all its entries, or of some twice", FOLLOW)


def uncovered(tx: Tx, low: int, high: int) -> list[int]:
    """Give the branches whose entries are not in the feed exactly once; those of purged sessions are left out."""
    covered: dict[int, int] = dict(tx.all(COVERED, (low, high)))
    found = []
    for row in tx.all(BRANCHES, (low, high)):
        if is_sound(row):
            branch = branches.checked(row)
            session, tip, _ = tip_of(tx, branch)
            if session is not None and session.hidden < 2 and covered.get(branch.bid, 0) != tip - branch.fork_seq:
                found.append(branch.bid)
    return found


def _versions(tx: Tx, found: Found, low: int, high: int) -> None:
    for aid in untold(tx, low, high):
        found.add("feed", f"agent number {aid}", "the feed does not tell of all its versions", FOLLOW)


def untold(tx: Tx, low: int, high: int) -> dict[int, int]:
    """Give the agents whose changes in the feed are not as many as their versions, and how many are missing."""
    told: dict[int, int] = dict(tx.all(OF_AGENTS, (low, high)))
    there = {aid: version for aid, version, hidden in tx.all(AGENTS, (low, high)) if hidden < 2}
    return {aid: version - told.get(aid, 0) for aid, version in there.items() if version != told.get(aid, 0)}


def _operation_gaps(tx: Tx, found: Found) -> None:
    """Numbers of operations are given out in a row; only purges leave some out, as many as the feed remembers."""
    if missing := operation_gaps(tx):
        found.add("missing", "operations", f"{missing} operations are missing from the log", LOST)


def operation_gaps(tx: Tx) -> int:
    """Give how many numbers of operations are left out beyond those that purges can have erased."""
    if not tx.dialect.gapless:
        return 0
    left_out, purged = tx.one(OPERATION_GAPS), tx.one(PURGED)
    return max(0, int(left_out[0] or 0) - int(purged[0])) if left_out and purged else 0
