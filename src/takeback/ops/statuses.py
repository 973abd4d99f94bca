"""The status of a session: its column, an entry in the log for each change, and how its last run ended.

``ended`` beside the session's row says how: status, turn, time, error, result, and how many times in a row a crash
cut it off in the same turn. A change of status is an entry, not an operation: ``reopen`` is what takes it back. Calls
that were running when a session ended are noted as lost with it: nobody knows what they did.
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
    """Change the status of a session; ``about`` holds an error or a result. A retry with the same key does nothing."""
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
    """Note the calls that are running as lost, where whoever ran them left and the status stays as it is."""
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
    """Return the calls that were started and have no result; damaged entries are for verify to report."""
    try:
        return [call.id for call in open_calls.at(tx, session) if call.is_running]
    except Corrupt:
        return []


# ---------------------------------------------------------------------- how the last run ended


def seconds(whole: Whole, status: str, now_ms: int) -> float:
    """Return the seconds from a session's beginning to its end, or to now; ``status`` is what is shown of it."""
    session, doc, lease = whole
    end = sessions.ended(doc).get("at_ms") if session.status != ACTIVE else None
    if status != session.status and lease is not None:  # its holder is gone: it was last alive then
        end = max(lease.beat_ms, session.updated_ms)
    return max(0, (now_ms if end is None else end) - session.created_ms) / 1000


def forget_end(tx: Tx, session: SessionRow) -> None:
    """Let the record of an earlier end go: the session was left in order since."""
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
