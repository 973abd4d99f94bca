"""Sub-agents: the sessions below a session, what they spent, and how to end all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import add
from typing import TYPE_CHECKING

from ..model.entry import Numbers
from ..model.session import Stats
from ..model.status import FINISHED
from ..model.subagents import Tree
from ..storage.base import LOCK, Tx
from ..tables.sessions import SESSION, LeaseRow, SessionRow
from ..tables.table import several, slots
from . import entries, idempotency, sessions, stats, statuses
from .listing import shown_status
from .sessions import Whole

if TYPE_CHECKING:
    from .idempotency import ApiCall

CHILDREN = f"""{sessions.SELECT_WHOLE} WHERE s.scope = ? AND s.parent = ? AND s.parent > 0 AND s.hidden < 2
ORDER BY s.sid"""
BELOW = "INDEXED BY session_parent WHERE scope = ? AND parent > 0 AND hidden < 2 AND parent IN"
_MANY = 500  # sessions of one read


def children(tx: Tx, session: SessionRow) -> list[Whole]:
    """Return the sub-agents of a session in the order they were created, including those in the trash."""
    return [sessions.checked_whole(row) for row in tx.all(CHILDREN, (session.scope, session.sid))]


def tree(tx: Tx, session: SessionRow, is_gone: Callable[[LeaseRow], bool], now_ms: int) -> Tree:
    """Return a session and all below it; those in the trash are not shown, but their totals count."""
    return _tree(tx, sessions.with_rest(tx, session), is_gone, now_ms)[0]


def _tree(tx: Tx, whole: Whole, is_gone: Callable[[LeaseRow], bool], now_ms: int) -> tuple[Tree, Numbers]:
    session, own = whole[0], stats.spent(tx, whole[0])
    below, total = list[Tree](), own
    for child in children(tx, session):
        found, numbers = _tree(tx, child, is_gone, now_ms)
        total = Numbers._make(map(add, total, numbers))
        below += [found] if not child[0].hidden else []
    status = shown_status(whole, is_gone)
    made = Tree(
        id=session.id,
        key=session.key,
        name=session.name,
        title=session.title,
        label=session.label,
        agent_id=session.agent,
        status=status,
        seconds=statuses.seconds(whole, status, now_ms),
        stats=Stats.from_numbers(own, started_ms=session.created_ms),
        totals=Stats.from_numbers(total, started_ms=session.created_ms),
        children=tuple(below),
    )
    return made, total


def subtree(tx: Tx, session: SessionRow) -> Iterator[SessionRow]:
    """Yield a session and all below it, each after its parent."""
    yield session
    for child, _, _ in children(tx, session):
        yield from subtree(tx, child)


def below(tx: Tx, *above: SessionRow) -> list[SessionRow]:
    """Return all sessions below some of one scope, including those in the trash, each level after the one above it."""
    found, parents = dict[int, SessionRow](), [row.sid for row in above]
    while parents:
        level = list[SessionRow]()
        for some in several(parents, _MANY):
            level += SESSION.all(tx, f"{BELOW} ({slots(len(some))}){LOCK}", (above[0].scope, *some))
        parents = [row.sid for row in level if row.sid not in found]
        found |= {row.sid: row for row in level}
    return [*found.values()]


def above(tx: Tx, session: SessionRow) -> list[int]:
    """Return the numbers of the sessions above one, nearest first."""
    found, parent = list[int](), session.parent
    while parent and parent not in found:
        found.append(parent)
        row = sessions.find_number(tx, session.scope, parent)
        parent = 0 if row is None else row.parent
    return found


def end_once(
    tx: Tx, scope: str, session_id: str, call: ApiCall, status: str, reason: str | None, *, below: bool
) -> Whole:
    """End a session, and with ``below`` all unfinished sub-agents, once per idempotency key."""
    session = entries.writable(tx, scope, session_id)

    def do() -> tuple[SessionRow, str]:
        return end(tx, session, status, below=below, now_ms=call.now_ms, reason=reason), session.id

    ended = idempotency.once(tx, scope, session.sid, call, kind="session", do=do, again=lambda _: session)
    return sessions.with_rest(tx, ended)


def end(tx: Tx, session: SessionRow, status: str, *, below: bool, now_ms: int, reason: str | None) -> SessionRow:
    """End a session, and with ``below`` all unfinished ones below it; nothing to end raises ``Conflict``."""
    ended, others = session, [each.sid for each in subtree(tx, session)][1:] if below else []
    found = [sessions.by_number(tx, session.scope, sid) for sid in others]  # read again, now locked
    going = [each for each in found if each.status not in FINISHED and not each.hidden]
    if session.status not in FINISHED or not going:
        ended = statuses.change(tx, session, status, now_ms=now_ms, error=reason)
    for each in going:
        statuses.change(tx, each, status, now_ms=now_ms, error=reason)
    return ended
