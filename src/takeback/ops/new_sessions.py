"""Creating sessions: once per idempotency key, or once per name or per main or cron key.

Finding and creating happen in one transaction, backed by a unique index, so exactly one session exists however many
processes ask for it at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..storage.base import Tx
from . import agents, idempotency, leases, sessions
from .idempotency import ApiCall
from .sessions import SessionFields, SessionRow, Whole

if TYPE_CHECKING:
    from .leases import Fence


def create_once(tx: Tx, scope: str, call: ApiCall, made: SessionFields, fence: Fence | None) -> Whole:
    """Create a session, once per key; ``fence`` is that of the parent's lease, if the spawner holds it."""

    def do() -> tuple[SessionRow, str]:
        row = _make(tx, scope, made, call.now_ms)
        # Last, so that a session that cannot be created never locks its parent.
        if fence is not None and made.parent is not None:
            leases.require(tx, sessions.get(tx, scope, made.parent), fence)
        return row, row.id

    def again(made_id: str) -> SessionRow:
        return sessions.get(tx, scope, made_id)

    return sessions.with_rest(tx, idempotency.once(tx, scope, 0, call, kind="session", do=do, again=again))


def was_made(tx: Tx, scope: str, call: ApiCall) -> bool:
    """Whether an earlier call with this key created its session."""
    return call.key is not None and idempotency.made_before(tx, scope, 0, call.key, call.request) is not None


def find(tx: Tx, scope: str, made: SessionFields) -> Whole | None:
    """Find the one session with the key in these fields, or with their agent, workspace and name."""
    if made.key is not None:
        row = sessions.find_by_key(tx, scope, made.key)
    else:
        name = made.name or ""
        row = sessions.find_by_name(tx, scope, agent=made.agent, workspace=made.workspace, name=name)
    return None if row is None else sessions.with_rest(tx, row)


def ensure(tx: Tx, scope: str, made: SessionFields, *, now_ms: int) -> Whole:
    """Find that session, or create it."""
    tx.lock(f"session {scope} {made.key or made[:5]}")
    return find(tx, scope, made) or (_make(tx, scope, made, now_ms), made.detail, None)


def _make(tx: Tx, scope: str, made: SessionFields, now_ms: int) -> SessionRow:
    agents.ensure(tx, scope, made.agent, now_ms=now_ms)
    return sessions.create(tx, scope, made, now_ms=now_ms)
