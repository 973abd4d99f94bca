"""Whether the model is to speak next, from how a conversation ends.

A request wants an answer, and so do the results of all calls of the last answer. A half answer wants to be finished.
A finished one does not, and calls that nobody has run yet come before anything the model could say.
"""

from __future__ import annotations

from ..model.message import MESSAGE_KINDS, Message
from ..model.status import FINISHED
from ..storage.base import Tx
from . import calls, log, open_streams
from .sessions import SessionRow

_TOLD = ("system", "developer", "redacted")  # nobody answers these


def needed(tx: Tx, scope: str, session_id: str, now_ms: int) -> bool:
    """Whether the model is to speak next in a session."""
    session, being_written = open_streams.moment(tx, scope, session_id, now_ms)
    if session.status in FINISHED:
        return False
    answers = [message.status for message in being_written if message.role == "assistant"]
    if answers:  # one that is still being written needs no other
        return "streaming" not in answers
    last = _last(tx, session)
    if last is None or last.role not in ("assistant", "tool"):
        return last is not None
    if calls.awaited(tx, session):
        return False
    was_denied = any(seq == last.seq for seq, _ in calls.denied_open(tx, session))
    return last.role == "tool" or last.status != "complete" or was_denied


def _last(tx: Tx, session: SessionRow) -> Message | None:
    """Return the last message that is more than an instruction."""
    high, size = session.seq, 8
    while high > 0:
        segments = log.path_segments(tx, session, max(0, high - size), high)
        uids = {segment.bid: segment.uid for segment in segments}
        for row in reversed(log.read(tx, session.scope, segments)):
            if row.kind in MESSAGE_KINDS:
                message = Message(uids[row.branch], row.seq, row.turns, row.at_ms, row.body, row.raw)
                if message.role not in _TOLD:
                    return message
        high, size = high - size, min(4 * size, log.PAGE)
    return None
