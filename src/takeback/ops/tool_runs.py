"""Runs of tools: the start of a call is stored before its tool runs, its result or error after.

A result goes where its tool was started. If the head has moved away since, it is stored on that branch without moving
the head back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import Conflict
from ..model import words
from ..model.entry import Draft
from ..model.status import require_open
from ..model.tools import ToolCall
from ..storage.base import Tx
from . import branches, calls, entries, sessions, streams
from .open_calls import OpenCall
from .sessions import SessionRow
from .streams import StreamRow

Stored = tuple[entries.Appended, list[Draft]]
NOWHERE = ("", 0)  # where a call began that was not started here


class ToolStart(NamedTuple):
    """A call that is about to run. ``seq`` is where it was announced, if it was read from this session.

    A ``fresh`` id was made just now. With ``tries`` the call may run again, so many times.
    """

    id: str
    name: str
    arguments: Any
    seq: int = 0
    fresh: bool = False
    tries: int = 0


class ToolOutcome(NamedTuple):
    """What a tool returned, as a draft; ``began`` is where its start was stored, ``output`` what it wrote meanwhile."""

    call_id: str
    drafts: list[Draft]
    key: str | None
    began: tuple[str, int] = NOWHERE
    output: StreamRow | None = None


def start(
    tx: Tx, scope: str, session_id: str, run: ToolStart, *, now_ms: int
) -> tuple[SessionRow, ToolCall, tuple[str, int]]:
    """Store that a tool starts; return the call, and where that record is if it was made now."""
    session = entries.writable(tx, scope, session_id)
    require_open(session.status)  # whoever was stopped starts nothing more
    if run.seq:  # a call that was read from this session must still wait
        _require_patience(calls.require_waiting(tx, session, run.id), run.tries)
    call, draft = calls.start(tx, session, run.id, run.name, run.arguments, fresh=run.fresh, again=run.tries > 0)
    if draft is None:
        return session, call, NOWHERE
    done = entries.put(tx, session, (draft,), now_ms=now_ms)
    return done.session, call, (done.uid, done.last)


def _require_patience(call: OpenCall, tries: int) -> None:
    """Refuse a call that was started too often."""
    if tries and call.starts >= tries:
        raise Conflict(
            f"tool call {call.id!r} was started {words.count(call.starts, 'time')} and never reported; say with"
            " resolve_call how it ended, or allow more tries",
            expected=tries,
            found=call.starts,
        )


def finish(tx: Tx, scope: str, session_id: str, result: ToolOutcome, *, now_ms: int) -> Stored:
    """Store what a tool returned, in the place of what it had written."""
    session = entries.writable(tx, scope, session_id)
    if result.output is not None:
        streams.drop_open(tx, scope, session_id, result.output)
    if result.began[1] and not entries.is_on_path(tx, session, *result.began):
        return _finish_late(tx, session, result, now_ms)
    named = calls.settled(tx, session, result.drafts)
    if result.key is not None and (earlier := entries.repeat(tx, session, named, result.key)):
        return earlier, named
    calls.require_waiting(tx, session, result.call_id)
    return entries.put(tx, session, named, now_ms=now_ms, idempotency_key=result.key), named


def _finish_late(tx: Tx, session: SessionRow, result: ToolOutcome, now_ms: int) -> Stored:
    """Store a result where its tool was started, without moving the head: a rewind came in between."""
    branch = branches.find(tx, session.scope, session.sid, result.began[0])
    end = entries.point_on(tx, session.scope, branch, branch.tip_seq)
    there = sessions.standing_at(session, branch, end.seq, end.numbers)
    calls.require_waiting(tx, there, result.call_id)
    named = calls.settled(tx, there, result.drafts)
    return entries.put_late(tx, session, branch, named, now_ms=now_ms), named
