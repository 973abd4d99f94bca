"""The status of a session: a column, an entry in the log for each change, and how the last run ended.

``ended`` in the session's details says how: status, turn, time, error, result, and how many times in a row a crash
interrupted the same turn. A change of status is an entry, not an operation: ``reopen`` reverts it, not ``undo``. Calls
that were running when a session ended are recorded as lost with it, since nobody knows what they did.
"""

from __future__ import annotations

from typing import Any

from .. import codec
from ..errors import Corrupt
from ..model.entry import STATUS, Draft, More
from ..model.status import ACTIVE, INTERRUPTED, require_move
from ..storage.base import Tx
from . import entries, open_calls, sessions
from .sessions import SessionRow, Whole


def change(
    tx: Tx, session: SessionRow, status: str, *, now_ms: int, key: str | None = None, **about: Any
) -> SessionRow:
    """Change the status of a session; ``about`` holds an error or result. A retry with the same key does nothing."""
    said = {"status": status, **{name: value for name, value in about.items() if value is not None}}
    if key is not None and entries.repeat(tx, session, [_draft(said, [])], key):
        return session
    require_move(session.status, status)
    lost = [] if status == ACTIVE else _running(tx, session)
    if status != ACTIVE:
        _remember(tx, session, said, now_ms)
    session = entries.put(tx, session, [_draft(said, lost)], now_ms=now_ms, idempotency_key=key).session
    return sessions.write(tx, session, status=status)


def note_lost(tx: Tx, session: SessionRow, *, now_ms: int) -> SessionRow:
    """Record the running calls as lost, when whoever ran them is gone but the status stays as it is."""
    lost = _running(tx, session)
    if not lost:
        return session
    return entries.put(tx, session, [_draft({"status": session.status}, lost)], now_ms=now_ms).session


def _draft(said: dict[str, Any], lost: list[str]) -> Draft:
    if not lost:
        return Draft(STATUS, codec.encode(said))
    marks = More(calls=tuple(("lost", call_id) for call_id in lost))
    return Draft(STATUS, codec.encode({**said, "calls": lost}), more=marks)


def _running(tx: Tx, session: SessionRow) -> list[str]:
    """Return the calls that were started and have no result; damage must not keep a session from ending."""
    try:
        return [call.id for call in open_calls.at(tx, session) if call.is_running]
    except Corrupt:
        return []


# ---------------------------------------------------------------------- how the last run ended


def seconds(whole: Whole, status: str, now_ms: int) -> float:
    """Return the seconds from a session's start to its end, or to now; ``status`` is the one shown."""
    session, doc, lease = whole
    end = sessions.ended(doc).get("at_ms") if session.status != ACTIVE else None
    if status != session.status and lease is not None:  # its holder is gone: count to its last sign of life
        end = max(lease.beat_ms, session.updated_ms)
    return max(0, (now_ms if end is None else end) - session.created_ms) / 1000


def forget_end(tx: Tx, session: SessionRow) -> None:
    """Drop the record of an earlier end: the session has since been left normally."""
    kept = sessions.decoded(sessions.detail(tx, session))
    if kept.pop("ended", None) is not None:
        sessions.put_detail(tx, session, codec.encode(kept))


def _remember(tx: Tx, session: SessionRow, said: dict[str, Any], now_ms: int) -> None:
    kept = sessions.decoded(sessions.detail(tx, session))
    before = kept.get("ended") or {}
    how = {**said, "turn": session.turns, "at_ms": now_ms}
    if said["status"] == INTERRUPTED:
        again = before.get("status") == INTERRUPTED and before.get("turn") == session.turns
        how["times"] = before.get("times", 1) + 1 if again else 1
    sessions.put_detail(tx, session, codec.encode({**kept, "ended": how}))
