"""Things as the documents of ``--json`` show them: plain values, whole ids, times in RFC 3339 UTC.

The schemas in ``schemas/`` describe them; a field is added, never renamed or taken away.
"""

from __future__ import annotations

from typing import Any

from ..client.session import Session
from .times import rfc3339


def session(found: Session) -> dict[str, Any]:
    """Describe a session: its fields, and what its path adds up to."""
    given, stats = found.to_dict(), found.stats()
    times = ("created_at", "updated_at", "last_message_at", "finished_at")
    return {
        **given,
        **{name: rfc3339(getattr(found, name)) for name in times},
        "branch": head_branch(found),
        "branches": len(found.branches()),
        "tokens": stats.estimated_tokens,
        "cost": stats.usage.cost,
        "holder": None if found.holder is None else str(found.holder),
        "stopped_at": found.stopped_at,
        "error": found.error,
        "deleted": found.deleted,
    }


def head_branch(found: Session) -> str:
    """Name the branch that a session's head is on."""
    return next((each.name for each in found.branches() if each.is_head), "")
