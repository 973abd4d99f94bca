"""Purging: the only operation that erases; it must be requested explicitly and cannot be undone.

Content, names and details of the session are erased and overwritten. Its row and its branches stay, emptied of
anything a person wrote, so that numbers are never reused and the feed keeps its order. Entries that a branch of another
session reads stay until that session is purged too, and are reported.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..files import timeline_purge
from ..ids import new_id
from ..model.entry import GENESIS
from ..model.purge import Purged
from ..storage.base import Tx, scalars
from ..tables.branches import BRANCH
from ..tables.entries import ENTRY
from . import agent_checkpoints, branches, entries, feed, refs, sessions, subagents, sweep
from .branches import BranchRow
from .sessions import SessionRow

LINKS = "SELECT hash FROM link INDEXED BY link_key WHERE scope = ? AND key > ? AND key <= ?"
ROOTS = """SELECT DISTINCT l.hash FROM link l INDEXED BY link_key CROSS JOIN entry e
WHERE l.scope = ? AND l.key > ? AND l.key <= ? AND e.scope = l.scope AND e.key = l.key AND e.kind = 'snapshot'"""
PLACES = "SELECT DISTINCT place FROM seen WHERE scope = ?"
FORGET = "DELETE FROM seen WHERE scope = ? AND place = ?"
DROP = tuple(
    f"DELETE FROM {table} WHERE scope = ? AND key > ? AND key <= ?"
    for table in ("entry", "link INDEXED BY link_key", "lost")
)
DROP_PIECES = """DELETE FROM delta WHERE scope = ? AND stream IN
(SELECT id FROM stream WHERE scope = ? AND session = ?)"""
DROP_OF_SESSION = tuple(
    f"DELETE FROM {table} WHERE scope = ? AND session = ?"
    for table in ("idempotency", "operation", "checkpoint", "lease", "stream", "inbox", "journal")
)
COUNT = "SELECT count(*) FROM entry WHERE scope = ? AND key > ? AND key <= ?"


class Reach(NamedTuple):
    """What a purge erases besides the session itself."""

    forks: bool = False  # the sessions forked from it
    below: bool = True  # its sub-agents


def purge_named(tx: Tx, scope: str, wanted: str, reach: Reach, *, now_ms: int) -> Purged:
    """Erase a session by id, key or name; it is not an error if it does not exist."""
    row = refs.exact(tx, scope, wanted, agent=None, workspace=None)
    return Purged() if row is None else purge(tx, scope, row.id, reach, now_ms=now_ms)


def purge(tx: Tx, scope: str, session_id: str, reach: Reach, *, now_ms: int) -> Purged:
    """Erase a session, and what ``reach`` adds to it; return an empty result if it is absent."""
    found = sessions.find(tx, scope, session_id)
    if found is None:
        return Purged()
    doomed = {found.sid: found}
    if reach.below:
        doomed |= {row.sid: row for row in subagents.below(tx, found)}
    if reach.forks:
        _add_forks(tx, doomed)
    _add_remains(tx, doomed)
    for session in doomed.values():  # before any entry is erased: the totals are computed from entries
        agent_checkpoints.forget_session(tx, scope, session.sid)
    needed_by, hashes, gone, kept = set[str](), set[str](), 0, 0
    needs, roots = _needs(tx, doomed), set[str]()
    for session in doomed.values():
        for branch in branches.of_session(tx, scope, session.sid, session.branches):
            need, users = needs[branch.bid]
            needed_by |= users
            hashes |= set(scalars(tx, LINKS, _behind(branch, need)))
            roots |= set(scalars(tx, ROOTS, _behind(branch, need)))
            gone += drop(tx, branch, need)
            kept += max(0, need - branch.fork_seq)
        roots |= timeline_purge.forget_session(tx, session)
        if session.hidden < 2:
            blank(tx, session, now_ms)
    erased = sweep.drop(tx, scope, hashes, roots)
    ids = tuple(session.id for session in doomed.values() if session.hidden < 2)
    return Purged(ids, gone, erased, kept, tuple(sorted(needed_by)))


def _add_forks(tx: Tx, doomed: dict[int, SessionRow]) -> None:
    waiting = list(doomed.values())
    while waiting:
        session = waiting.pop()
        for branch in branches.of_session(tx, session.scope, session.sid, session.branches):
            for fork in branches.forks(tx, branch.scope, branch.bid):
                if fork.session not in doomed:
                    doomed[fork.session] = sessions.by_number(tx, fork.scope, fork.session)
                    waiting.append(doomed[fork.session])


def _add_remains(tx: Tx, doomed: dict[int, SessionRow]) -> None:
    """Add sessions purged earlier whose entries were kept only for these."""
    waiting = [branch for s in doomed.values() for branch in branches.of_session(tx, s.scope, s.sid, s.branches)]
    seen = {branch.bid for branch in waiting}
    while waiting:
        branch = waiting.pop()
        parent = branch.parent
        if parent is None or parent in seen:
            continue
        seen.add(parent)
        above = branches.get(tx, branch.scope, parent)
        owner = doomed.get(above.session) or sessions.by_number(tx, above.scope, above.session)
        if owner.sid in doomed or owner.hidden == 2:
            doomed[owner.sid] = owner
            waiting.append(above)


def _needs(tx: Tx, doomed: dict[int, SessionRow]) -> dict[int, tuple[int, set[str]]]:
    """Return for each branch of the doomed sessions the last entry that others read, and who reads it.

    A fork has a higher number than the branch it starts on, so in descending order every fork is known before the
    branch it needs. No recursion, so forks may be nested to any depth.
    """
    found = _with_forks(tx, doomed)
    scope = next(iter(doomed.values())).scope
    others = {each.session for each in found.values()} - doomed.keys()
    live = {sid: sessions.by_number(tx, scope, sid) for sid in others}
    needs: dict[int, tuple[int, set[str]]] = {}
    children: dict[int, list[BranchRow]] = {}
    for bid in sorted(found, reverse=True):
        branch = found[bid]
        used = [fork for fork in children.get(bid, ()) if needs[fork.bid][1]]
        users = set().union(*(needs[fork.bid][1] for fork in used))
        owner = live.get(branch.session)
        if owner is not None and owner.hidden < 2:
            users = users | {owner.id}
        needs[bid] = max((fork.fork_seq for fork in used), default=branch.fork_seq), users
        if branch.parent is not None:
            children.setdefault(branch.parent, []).append(branch)
    return needs


def _with_forks(tx: Tx, doomed: dict[int, SessionRow]) -> dict[int, BranchRow]:
    """Return the branches of the doomed sessions and all that start on them, directly or indirectly."""
    waiting = [branch for s in doomed.values() for branch in branches.of_session(tx, s.scope, s.sid, s.branches)]
    found = {branch.bid: branch for branch in waiting}
    while waiting:
        branch = waiting.pop()
        for fork in branches.forks(tx, branch.scope, branch.bid):
            if fork.bid not in found:
                found[fork.bid] = fork
                waiting.append(fork)
    return found


def _behind(branch: BranchRow, need: int) -> tuple[str, int, int]:
    """Return the scope and the key range of a branch's entries after the last one needed."""
    return branch.scope, entries.key_of(branch.bid, need), entries.key_of(branch.bid, entries.MAX_SEQ)


def drop(tx: Tx, branch: BranchRow, need: int) -> int:
    """Erase the entries of a branch after the last one needed; return how many."""
    count = tx.one(COUNT, _behind(branch, need))
    for sql in DROP:
        tx.run(sql, _behind(branch, need))
    _cut(tx, branch, need)
    return int(count[0]) if count else 0


def _cut(tx: Tx, branch: BranchRow, need: int) -> None:
    """End a branch at the last entry still needed; detach it from its parent if none is."""
    cut = branch._replace(name=branch.uid, hidden=1)
    last = ENTRY.get(tx, branch.scope, entries.key_of(branch.bid, need)) if need > branch.fork_seq else None
    if last is not None:
        cut = cut._replace(tip_seq=need, tip_hash=last.chain.hash)
    else:
        start: dict[str, Any] = {"parent": None, "fork_seq": 0, "depth": 0, "jump": None, "jump_seq": 0}
        cut = cut._replace(tip_seq=0, tip_hash=GENESIS, **start)
    BRANCH.update(tx, branch, cut)


def blank(tx: Tx, session: SessionRow, now_ms: int) -> None:
    """Empty a session's row of everything a person wrote."""
    for (place,) in tx.all(PLACES, (session.scope,)) if session.workspace else ():
        if place.endswith(f":{session.workspace}"):
            tx.run(FORGET, (session.scope, place))  # it contains file names; others just scan again
    tx.run(DROP_PIECES, (session.scope, session.scope, session.sid))
    for sql in DROP_OF_SESSION:
        tx.run(sql, (session.scope, session.sid))
    sessions.put_detail(tx, session, b"{}")
    first = branches.of_session(tx, session.scope, session.sid, session.branches)[0]
    texts = {"name": None, "label": None, "title": None, "tags": "", "workspace": "", "key": f"purged:{new_id(now_ms)}"}
    place = {"branch": first.bid, "uid": first.uid, "fork": first.fork_seq, "attached": 0}
    counts = {"states": session.states, "branches": session.branches, "revision": session.revision + 1}
    position, rank = feed.record(tx, session, "purge", branch=first.bid, first=0, last=0, now_ms=now_ms)
    empty = {**sessions.EMPTY, **texts, **place, **counts, "hidden": 2}
    sessions.write(tx, session, **empty, **sessions.placed(session, position, rank, now_ms))
