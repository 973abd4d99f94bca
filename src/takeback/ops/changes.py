"""The feed as readers see it: which session and branch changed, by their ids."""

from __future__ import annotations

from ..model.feed import Change
from ..storage.base import Tx
from . import agents, branches, feed, sessions


def after(tx: Tx, scope: str, *, cursor: str | None, limit: int) -> tuple[list[Change], str | None]:
    """Give a scope's changes among the next ``limit`` of the store, and the cursor up to which they go."""
    seen = feed.parse_cursor(cursor, tx.dialect.feed_parts)
    names: dict[tuple[int, int], tuple[str, str, str]] = {}
    found = []
    for position, (_, owner, kind, sid, bid, first, last, _) in feed.rows_after(tx, scope, seen, limit):
        cursor = feed.cursor(position)
        if owner != scope:
            continue
        if (sid, bid) not in names:
            names[sid, bid] = _names(tx, sid, bid)
        session_id, branch, agent_id = names[sid, bid]
        found.append(Change(cursor, kind, session_id, branch, first, last, agent_id))
    return found, cursor


def _names(tx: Tx, sid: int, bid: int) -> tuple[str, str, str]:
    """Give the ids of session and branch, or of the agent that changed."""
    if sid == 0:
        return "", "", agents.by_number(tx, bid).id
    session = sessions.by_number(tx, sid)
    return session.id, branches.get(tx, bid).uid, session.agent
