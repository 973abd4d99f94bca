"""Verify: recompute everything that can be recomputed, and say what does not fit.

Rows are read in pages, each in a read of its own, so a large store needs little memory and holds up no
writer. A damaged record is reported once, where it is: the entry behind it is judged by the
hash that is stored, so damage never spreads along the chain. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

from ..errors import Corrupt
from ..model.report import Problem, Report
from ..storage.base import Op, Row, Tx, row_check
from . import blobs, branches, chain, entries, operations, sessions

Read = Callable[[Op[Any]], Any]

PAGE = 500
SESSIONS = f"SELECT {sessions.COLUMNS} FROM session WHERE sid > ? ORDER BY sid LIMIT ?"
BRANCHES = f"SELECT {branches.COLUMNS} FROM branch WHERE bid > ? ORDER BY bid LIMIT ?"
OPERATIONS = f"SELECT {operations.COLUMNS} FROM operation WHERE oid > ? ORDER BY oid LIMIT ?"
FEED = "SELECT pos, scope, kind, session, branch, first_seq, last_seq, chk FROM feed WHERE pos > ? ORDER BY pos LIMIT ?"
BLOBS = (
    "SELECT blob_id, scope, hash, size, chunks, created_ms, chk FROM blob WHERE blob_id > ? ORDER BY blob_id LIMIT ?"
)
KEYS = "SELECT scope, session, ikey, branch, seq, last_seq, digest, chk FROM idempotency"
ENTRIES = """SELECT key, kind, at_ms, turns, mid, body, raw, spill, chk,
scope, messages, tool_calls, tool_failures, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens,
reasoning_tokens, cost_nano, active_ms, work_seq, salt, body_hash, hash, chain_chk FROM entry
WHERE key > ? AND key <= ? ORDER BY key LIMIT ?"""
LAST = "SELECT max(key) FROM entry WHERE key > ? AND key <= ?"
SESSION = f"SELECT {sessions.COLUMNS} FROM session WHERE sid = ?"
COUNT = "SELECT count(*) FROM branch WHERE session = ?"
MIGRATIONS = "SELECT version, name, applied_ms, chk FROM migration WHERE version > ? ORDER BY version LIMIT ?"
ALIVE = "SELECT session.hidden FROM session, branch WHERE sid = ? AND bid = ?"
ALIVE_AGENT = "SELECT hidden FROM agent WHERE aid = ?"
META = "SELECT name, value, chk FROM meta"
HASH_AT = "SELECT hash FROM entry WHERE key = ? AND scope = ?"

_LOST = "Its content is lost unless a backup has it; everything else can be read"


class _Findings:
    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.checked = 0

    def add(self, kind: str, where: str, what: str, fix: str = _LOST) -> None:
        self.problems.append(Problem(kind, where, what, fix))


def verify(read: Read, engine_check: Callable[[], list[str]]) -> Report:
    """Check every record of a store, in all scopes."""
    found = _Findings()
    steps: list[Callable[[], None]] = [
        lambda: _check_engine(found, engine_check),
        lambda: _check_log(read, found),
        lambda: _check_rows(read, found, OPERATIONS, "operation"),
        lambda: _check_rows(read, found, MIGRATIONS, "migration"),
        lambda: _check_meta(read, found),
        lambda: _check_feed(read, found),
        lambda: _check_blobs(read, found),
        lambda: _check_keys(read, found),
    ]
    for step in steps:
        try:
            step()
        except Corrupt as error:
            found.add("file", "store", str(error), "Restore a backup")
    return Report(tuple(found.problems), found.checked)


def _check_engine(found: _Findings, engine_check: Callable[[], list[str]]) -> None:
    for complaint in engine_check():
        found.add("file", "store", complaint, "Restore a backup, or copy what can still be read")


def _pages(read: Read, sql: str) -> Iterator[Row]:
    """Give all rows of a table with an integer key, page by page."""
    last = -(1 << 62)
    while rows := read(lambda tx: tx.all(sql, (last, PAGE))):  # noqa: B023
        for row in rows:
            if not isinstance(row[0], int) or row[0] <= last:
                raise Corrupt("the keys of a table are out of order", what="file")
            last = row[0]
            yield row


def _check_rows(read: Read, found: _Findings, sql: str, kind: str) -> None:
    for row in _pages(read, sql):
        found.checked += 1
        if row_check(row[:-1]) != row[-1]:
            found.add(kind, f"{kind} {row[0]}", "the record does not match its check")


# ---------------------------------------------------------------------- sessions, branches, entries


def _check_log(read: Read, found: _Findings) -> None:
    """Check sessions, then branches with their entries. Writers go on meanwhile: what they add is left out."""
    tips: dict[int, tuple[int, bytes]] = {}
    for row in _pages(read, SESSIONS):
        found.checked += 1
        try:
            session = sessions.checked(row)
        except Corrupt as error:
            found.add("session", f"session {row[2]}", str(error))
            continue
        if session.attached:
            tips[session.branch] = (session.seq, session.hash)
        _check_head(read, found, session)
        _check_count(read, found, session.sid, session.id)
    for row in _pages(read, BRANCHES):
        found.checked += 1
        try:
            branch = branches.checked(row)
        except Corrupt as error:
            found.add("branch", f"branch {row[2]}", str(error))
            continue
        _check_branch(read, found, branch, tips.get(branch.bid, (branch.tip_seq, branch.tip_hash)))


def _check_count(read: Read, found: _Findings, sid: int, session_id: str) -> None:
    def both(tx: Tx) -> bool:
        row, count = tx.one(SESSION, (sid,)), tx.one(COUNT, (sid,))
        return row is not None and count is not None and sessions.checked(row).branches == count[0]

    if not read(both):
        found.add("missing", f"session {session_id}", "a branch of this session is missing")


def _check_head(read: Read, found: _Findings, session: sessions.SessionRow) -> None:
    """The row must agree with the entry at its head."""

    def at_head(tx: Tx) -> entries.Point:
        return entries.point_on(tx, session.scope, branches.get(tx, session.branch), session.seq)

    try:
        point = read(at_head)
    except Corrupt as error:
        found.add("missing", f"session {session.id}", f"its head cannot be read: {error}")
        return
    branch = read(lambda tx: branches.get(tx, session.branch))
    if (branch.session, branch.uid, branch.fork_seq) != (session.sid, session.uid, session.fork):
        found.add("session", f"session {session.id}", "its head is on a branch that is not its own")
    if (point.hash, tuple(point.numbers)) != (session.hash, tuple(session.numbers)):
        found.add("session", f"session {session.id}", "its totals are not those of its last entry")


def _check_branch(read: Read, found: _Findings, branch: branches.BranchRow, tip: tuple[int, bytes]) -> None:
    previous = _fork_hash(read, found, branch)
    base, seq, (last, last_hash) = entries.key_of(branch.bid, 0), branch.fork_seq, tip
    while rows := read(_entries_after(branch, seq, last)):
        for row in rows:
            found.checked += 1
            here = row[0] - base
            if here <= seq:
                raise Corrupt(f"the entries of branch {branch.uid} are out of order", what=f"branch {branch.uid}")
            if here != seq + 1:
                _report_gap(found, branch, seq + 1, here - 1)
                previous = None
            seq = here
            previous = _check_entry(read, found, branch, row, previous)
    if seq < last:
        _report_gap(found, branch, seq + 1, last)
    elif previous is not None and previous != last_hash:
        found.add("chain", f"branch {branch.uid}", "the last entry is not the one that was recorded")
    _check_end(read, found, branch)


def _entries_after(branch: branches.BranchRow, seq: int, last: int) -> Op[list[Row]]:
    base = entries.key_of(branch.bid, 0)
    return lambda tx: tx.all(ENTRIES, (base + seq, base + last, PAGE))


def _check_end(read: Read, found: _Findings, branch: branches.BranchRow) -> None:
    """Nothing may lie behind the end of a branch, and its session must exist; both as of now."""

    base = entries.key_of(branch.bid, 0)

    def look(tx: Tx) -> tuple[Row | None, int, int]:
        row, end = tx.one(SESSION, (branch.session,)), tx.one(LAST, (base, base + entries.MAX_SEQ))
        tip = branches.get(tx, branch.bid).tip_seq
        if row is not None:
            session = sessions.checked(row)
            tip = session.seq if session.attached and session.branch == branch.bid else tip
        return row, tip, end[0] - base if end and end[0] is not None else tip

    try:
        row, tip, end = read(look)
    except Corrupt:
        return  # the session's own record is damaged: reported there
    if row is None:
        found.add("session", f"branch {branch.uid}", "it belongs to a session whose record is lost")
    if end > tip:
        found.add("entry", f"branch {branch.uid}", f"entries {tip + 1} to {end} lie behind the end of the branch")


def _report_gap(found: _Findings, branch: branches.BranchRow, first: int, last: int) -> None:
    found.add("missing", f"branch {branch.uid}", f"entries {first} to {last} are missing")


def _fork_hash(read: Read, found: _Findings, branch: branches.BranchRow) -> bytes | None:
    """Give the hash that the branch's first entry must chain to; None when it cannot be known."""
    if branch.fork_seq == 0:
        return chain.GENESIS
    row = read(lambda tx: tx.one(HASH_AT, (entries.key_of(branch.parent or 0, branch.fork_seq), branch.scope)))
    if row is None:
        found.add("missing", f"branch {branch.uid}", f"entry {branch.fork_seq}, where it starts, is missing")
        return None
    return bytes(row[0])


def _check_entry(
    read: Read, found: _Findings, branch: branches.BranchRow, row: Row, previous: bytes | None
) -> bytes | None:
    """Check one entry; give its hash for the next, or None if it cannot be trusted."""
    seq = row[0] & entries.MAX_SEQ
    where = f"entry {branch.uid}-{seq}"
    if row_check((row[0], row[3], *row[9:24])) != row[24]:
        found.add("entry", where, "its place in the chain is damaged")
        return None
    if row_check(row[:8]) != row[8]:
        found.add("entry", where, "its content is damaged")
        return bytes(row[23])
    try:
        content = _content_hash(read, branch.scope, row)
    except Corrupt as error:
        found.add("blob", where, str(error))
        return bytes(row[23])
    numbers = (row[10], row[3], *row[11:21])
    head = chain.header(branch.uid, seq, row[1], row[2], numbers)
    if previous is not None and chain.entry_hash(previous, head, content) != row[23]:
        found.add("chain", where, "its hash does not follow from the entry before it")
    return bytes(row[23])


def _content_hash(read: Read, scope: str, row: Row) -> bytes:
    body, raw, spill, salt, redacted = row[5], row[6], row[7], row[21], row[22]
    if redacted is not None:
        return bytes(redacted)
    if spill is not None:
        body_blob, _, raw_blob = spill.partition(",")
        body = read(lambda tx: blobs.read_whole(tx, scope, body_blob)) if body_blob else body
        raw = read(lambda tx: blobs.read_whole(tx, scope, raw_blob)) if raw_blob else raw
    if body is None or salt is None:
        raise Corrupt("its content is missing")
    return chain.body_hash(salt, body, raw)


# ---------------------------------------------------------------------- the rest


def _check_feed(read: Read, found: _Findings) -> None:
    expected = 1
    for row in _pages(read, FEED):
        found.checked += 1
        if row[0] != expected:
            found.add(
                "feed", f"change {expected}", "changes are missing from the feed", "Followers may have missed them"
            )
        expected = row[0] + 1
        if row_check(row[:-1]) != row[-1]:
            found.add("feed", f"change {row[0]}", "the record does not match its check", "Followers may have missed it")
            continue
        _check_change(read, found, row)


def _check_change(read: Read, found: _Findings, row: Row) -> None:
    """What a change names must be there, unless it was purged."""
    position, scope, kind, sid, bid, _, last = row[:7]
    alive = read(lambda tx: tx.one(ALIVE_AGENT, (bid,)) if sid == 0 else tx.one(ALIVE, (sid, bid)))
    if not alive:
        found.add("missing", f"change {position}", "its session, branch or agent is missing")
        return
    there = kind != "entries" or alive[0] == 2 or read(lambda tx: tx.one(HASH_AT, (entries.key_of(bid, last), scope)))
    if not there:
        found.add("missing", f"change {position}", f"entry {last} of branch number {bid} is missing")


def _check_blobs(read: Read, found: _Findings) -> None:
    for row in _pages(read, BLOBS):
        found.checked += 1
        if row_check(row[:-1]) != row[-1]:
            found.add("blob", f"blob {row[0]}", "the record does not match its check")
        elif row[2] is not None:
            _check_blob(read, found, row)


def _check_blob(read: Read, found: _Findings, row: Row) -> None:
    blob_id, scope, content_hash, size, chunks = row[:5]
    digest, total = sha256(), 0
    try:
        for number in range(chunks):
            data = read(lambda tx: blobs.read_chunk(tx, scope, blob_id, number))  # noqa: B023
            digest.update(data)
            total += len(data)
    except Corrupt as error:
        found.add("blob", f"blob {content_hash}", str(error))
        return
    if digest.hexdigest() != content_hash or total != size:
        found.add("blob", f"blob {content_hash}", "the content does not match its hash")


def _check_meta(read: Read, found: _Findings) -> None:
    for row in read(lambda tx: tx.all(META)):
        found.checked += 1
        if row_check(row[:-1]) != row[-1]:
            found.add("meta", f"meta {row[0]!r}", "the record does not match its check", "Restore a backup")


def _check_keys(read: Read, found: _Findings) -> None:
    for row in read(lambda tx: tx.all(KEYS)):
        found.checked += 1
        if row_check(row[:-1]) != row[-1]:
            found.add(
                "idempotency", f"key {row[2]!r}", "the record does not match its check", "A retry may be stored twice"
            )
