"""The feed as readers see it: which session and branch changed, by their ids."""

from __future__ import annotations

from ..model.feed import Change
from ..storage.base import Tx
from . import branches, feed, sessions


def after(tx: Tx, scope: str, *, position: int, limit: int) -> tuple[list[Change], int]:
    """Give a scope's changes among the next ``limit`` of the store, and the position up to which they go."""
    names: dict[tuple[int, int], tuple[str, str]] = {}
    found = []
    for pos, owner, kind, sid, bid, first, last, _ in feed.rows_after(tx, position, limit):
        position = pos
        if owner != scope:
            continue
        if (sid, bid) not in names:
            names[sid, bid] = sessions.by_number(tx, sid).id, branches.get(tx, bid).uid
        found.append(Change(feed.cursor(pos), kind, *names[sid, bid], first, last))
    return found, position
