"""Which records go over when only some sessions are chosen: those, and whatever they cannot be without.

A session cannot be without the sessions that it was forked from, since it reads its beginning there, nor without the
one above it, since its row names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..errors import Corrupt
from ..ops import sessions
from ..ops import subagents as trees
from ..storage.base import Op, Tx
from ..tables.agents import AGENT
from ..tables.sessions import SessionRow

ORIGINS = """SELECT DISTINCT p.session FROM branch b JOIN branch p ON p.scope = b.scope AND p.bid = b.parent
WHERE b.scope = ? AND b.session = ? AND p.session <> b.session"""


class Choice(NamedTuple):
    """The numbers of the sessions and agents of a scope that go over, the ids of the sessions, and if documents do."""

    scope: str
    sids: frozenset[int]
    aids: frozenset[int]
    ids: frozenset[str]
    documents: bool = False


def chooser(scope: str, session_ids: Iterable[str], *, subagents: bool, documents: bool = False) -> Op[Choice]:
    """Return the operation that chooses some sessions, and all documents of the scope or none."""
    return lambda tx: choose(tx, scope, session_ids, subagents=subagents)._replace(documents=documents)


def choose(tx: Tx, scope: str, session_ids: Iterable[str], *, subagents: bool) -> Choice:
    """Find what must go with some sessions; one that is not there raises ``NotFound``."""
    wanted = dict[int, SessionRow]()
    for session_id in session_ids:
        session = sessions.get(tx, scope, session_id)
        wanted |= {each.sid: each for each in (trees.subtree(tx, session) if subagents else (session,))}
    waiting = [*wanted.values()]
    while waiting:
        for sid in _needed(tx, waiting.pop()):
            if sid not in wanted:
                wanted[sid] = sessions.by_number(tx, scope, sid)
                waiting.append(wanted[sid])
    aids = frozenset(_agent(tx, scope, each) for each in sorted({session.agent for session in wanted.values()}))
    return Choice(scope, frozenset(wanted), aids, frozenset(each.id for each in wanted.values()))


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
