"""The input of an engine's own way to append (``base.Quick``)."""

from __future__ import annotations

from typing import Any, NamedTuple


class KnownAppend(NamedTuple):
    """One entry computed from a session's row as last read, complete except for its feed position.

    It is stored only if the session's row still has the same check. ``around_session`` and ``around_change`` are the
    packed columns around that position, from which the engine computes the checks of the session's row and the change.
    """

    scope: str
    sid: int
    check: int
    updated: int
    rank: int
    rank_end: int  # the position from which on the session gets another rank
    entry: Any  # its row
    entry_check: int
    updated_ms: int
    rest: bytes  # the packed columns of the session's row
    around_session: tuple[bytes, bytes]
    around_change: tuple[bytes, bytes]
    branch: int
    seq: int
    messages: int
    once: tuple[str, int] | None = None  # its idempotency key, and the check of that row
