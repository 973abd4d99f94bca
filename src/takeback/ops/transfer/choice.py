"""Which records go over when only some sessions are copied: those, and whatever they cannot be without.

A session cannot be without the sessions that it was forked from, since it reads its beginning there, nor without the
one above it, since its row names it. Content is what its entries link, and of snapshots all that their trees lead to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...errors import Corrupt
from ...storage.base import Tx
from .. import agents, branches, purge, sessions, sweep, trees
from ..entries import MAX_SEQ, key_of
from ..verify.base import Read
from ..verify.places import tip_of

ORIGINS = """SELECT DISTINCT p.session FROM branch b JOIN branch p ON p.bid = b.parent
WHERE b.scope = ? AND b.session = ? AND p.session <> b.session"""
NEWEST_OF_ID = f"SELECT {agents.COLUMNS} FROM agent WHERE scope = ? AND id = ? ORDER BY hidden, aid DESC LIMIT 1"
SIZE = "SELECT size FROM blob WHERE scope = ? AND hash = ?"


class Choice(NamedTuple):
    """The numbers of sessions and agents that go over, the ids of the sessions, and how many entries they own."""

    scope: str
    sids: tuple[int, ...]
    ids: frozenset[str]
    aids: frozenset[int]
    entries: int


def choose(tx: Tx, scope: str, session_ids: Iterable[str], *, subagents: bool) -> Choice:
    """Find what must be copied with some sessions; one that is not there is ``NotFound``."""
    wanted = dict[int, sessions.SessionRow]()
    for session_id in session_ids:
        session = sessions.get(tx, scope, session_id)
        wanted |= {each.sid: each for each in (trees.subtree(tx, session) if subagents else (session,))}
    waiting = [*wanted.values()]
    while waiting:
        session = waiting.pop()
        for sid in _needed(tx, session):
            if sid not in wanted:
                wanted[sid] = sessions.by_number(tx, sid)
                waiting.append(wanted[sid])
    found = [wanted[sid] for sid in sorted(wanted)]
    aids = frozenset(_agent(tx, scope, each) for each in sorted({session.agent for session in found}))
    owned = sum(high - low for session in found for _, low, high in _ranges(tx, session))
    return Choice(scope, tuple(sorted(wanted)), frozenset(each.id for each in found), aids, owned)


def _needed(tx: Tx, session: sessions.SessionRow) -> Iterator[int]:
    if session.parent:
        yield session.parent
    yield from (row[0] for row in tx.all(ORIGINS, (session.scope, session.sid)))


def _agent(tx: Tx, scope: str, agent_id: str) -> int:
    """Give the agent of an id: the visible one, else the last that was put into the trash."""
    row = tx.one(NEWEST_OF_ID, (scope, agent_id))
    if row is None:
        raise Corrupt(f"agent {agent_id!r} has no record", what=f"agent {agent_id}")
    return agents.checked(row).aid


def _ranges(tx: Tx, session: sessions.SessionRow) -> Iterator[tuple[int, int, int]]:
    """Give each branch of a session with the seqs that it owns."""
    for branch in branches.of_session(tx, session.scope, session.sid, session.branches):
        yield branch.bid, branch.fork_seq, min(tip_of(tx, branch)[1], MAX_SEQ)


def contents(read: Read, choice: Choice) -> list[str]:
    """Give the hashes of all content that the chosen sessions need, sorted; one read per session."""
    found = set[str]()
    for sid in choice.sids:
        found |= read(lambda tx: _linked(tx, sessions.by_number(tx, sid)))  # noqa: B023
    return sorted(found)


def _linked(tx: Tx, session: sessions.SessionRow) -> set[str]:
    scope, found, roots = session.scope, set[str](), set[str]()
    for bid, low, high in _ranges(tx, session):
        asked = (scope, key_of(bid, low), key_of(bid, high))
        found |= {row[0] for row in tx.all(purge.LINKS, asked)}
        roots |= {row[0] for row in tx.all(purge.ROOTS, asked)}
    return found | {digest.hex() for digest in sweep.reached(tx, scope, roots)}


def size(read: Read, scope: str, hashes: Iterable[str]) -> int:
    """Give how many bytes some contents have."""
    return sum(int(row[0]) for each in hashes if (row := read(lambda tx: tx.one(SIZE, (scope, each)))))  # noqa: B023


def is_about(choice: Choice | None, kind: str, name: str) -> bool:
    """Say whether what an idempotency key stands for is among what is copied."""
    return choice is None or (kind == "session" and name in choice.ids)
