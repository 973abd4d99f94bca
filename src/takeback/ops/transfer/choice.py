"""Which records go over when only some sessions are copied: those, and whatever they cannot be without.

A session cannot be without the sessions that it was forked from, since it reads its beginning there, nor without the
one above it, since its row names it. Content is what its entries link, and of snapshots all that their trees lead to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...errors import Corrupt
from ...storage.base import Tx
from ...tables.agents import AGENT
from ...tables.history import OnceRow
from ...tables.sessions import SessionRow
from .. import blobs, branches, purge, sessions, sweep, trees
from ..log import MAX_SEQ, key_of
from ..verify.base import Read
from ..verify.places import tip_of

ORIGINS = """SELECT DISTINCT p.session FROM branch b JOIN branch p ON p.scope = b.scope AND p.bid = b.parent
WHERE b.scope = ? AND b.session = ? AND p.session <> b.session"""


class Choice(NamedTuple):
    """The numbers of sessions and agents that go over, the ids of the sessions, and how many entries they own."""

    scope: str
    sids: tuple[int, ...]
    ids: frozenset[str]
    aids: frozenset[int]
    entries: int


def choose(tx: Tx, scope: str, session_ids: Iterable[str], *, subagents: bool) -> Choice:
    """Find what must be copied with some sessions; one that is not there raises ``NotFound``."""
    wanted = dict[int, SessionRow]()
    for session_id in session_ids:
        session = sessions.get(tx, scope, session_id)
        wanted |= {each.sid: each for each in (trees.subtree(tx, session) if subagents else (session,))}
    waiting = [*wanted.values()]
    while waiting:
        session = waiting.pop()
        for sid in _needed(tx, session):
            if sid not in wanted:
                wanted[sid] = sessions.by_number(tx, scope, sid)
                waiting.append(wanted[sid])
    found = [wanted[sid] for sid in sorted(wanted)]
    aids = frozenset(_agent(tx, scope, each) for each in sorted({session.agent for session in found}))
    owned = sum(high - low for session in found for _, low, high in _ranges(tx, session))
    return Choice(scope, tuple(sorted(wanted)), frozenset(each.id for each in found), aids, owned)


def _needed(tx: Tx, session: SessionRow) -> Iterator[int]:
    if session.parent:
        yield session.parent
    yield from (sid for (sid,) in tx.all(ORIGINS, (session.scope, session.sid)))


def _agent(tx: Tx, scope: str, agent_id: str) -> int:
    """Return the agent of an id: the visible one, else the last that was put into the trash."""
    found = AGENT.one(tx, "WHERE scope = ? AND id = ? ORDER BY hidden, aid DESC LIMIT 1", (scope, agent_id))
    if found is None:
        raise Corrupt(f"agent {agent_id!r} has no record", what=f"agent {agent_id}")
    return found.aid


def _ranges(tx: Tx, session: SessionRow) -> Iterator[tuple[int, int, int]]:
    """Yield each branch of a session with the seqs that it owns."""
    for branch in branches.of_session(tx, session.scope, session.sid, session.branches):
        _, tip, _ = tip_of(tx, branch)
        yield branch.bid, branch.fork_seq, min(tip, MAX_SEQ)


def contents(read: Read, choice: Choice) -> list[str]:
    """Return the hashes of all content that the chosen sessions need, sorted; one read per session."""
    found = set[str]()
    for sid in choice.sids:
        found |= read(lambda tx: _linked(tx, sessions.by_number(tx, choice.scope, sid)))  # noqa: B023
    return sorted(found)


def _linked(tx: Tx, session: SessionRow) -> set[str]:
    scope, found, roots = session.scope, set[str](), set[str]()
    for bid, low, high in _ranges(tx, session):
        asked = (scope, key_of(bid, low), key_of(bid, high))
        found |= {content_hash for (content_hash,) in tx.all(purge.LINKS, asked)}
        roots |= {content_hash for (content_hash,) in tx.all(purge.ROOTS, asked)}
    return found | {digest.hex() for digest in sweep.reached(tx, scope, roots)}


def size(read: Read, scope: str, hashes: Iterable[str]) -> int:
    """Return how many bytes some contents have."""
    rows = (read(lambda tx: blobs.find(tx, scope, each)) for each in hashes)  # noqa: B023
    return sum(row.size for row in rows if row is not None)


def is_about(choice: Choice | None, key: OnceRow) -> bool:
    """Whether what an idempotency key of the store stands for is among what is copied."""
    return choice is None or (key.kind == "session" and key.id in choice.ids)
