"""Running tools: the start of a call is stored before its tool runs, the result or error after.

A result is stored where its tool was started. If the head has since moved away, it is stored on that branch and the
head stays where it is.
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
NOWHERE = ("", 0)  # the start of a call that was not recorded here


class ToolStart(NamedTuple):
    """A call that is about to run. ``seq`` is where it was announced, if it was read from this session.

    A ``fresh`` id was just generated. ``tries`` is how often a call may be started; 0 allows no retry. ``holder`` is
    the process that runs the tool.
    """

    id: str
    name: str
    arguments: Any
    seq: int = 0
    fresh: bool = False
    tries: int = 0
    holder: bytes | None = None
    paths: list[str] | None = None  # all that it touches, if that is known


class ToolOutcome(NamedTuple):
    """A tool's result as a draft; ``began`` is where its start was stored, ``output`` the stream of its output."""

    call_id: str
    drafts: list[Draft]
    key: str | None
    began: tuple[str, int] = NOWHERE
    output: StreamRow | None = None


def start(
    tx: Tx, scope: str, session_id: str, run: ToolStart, *, now_ms: int
) -> tuple[SessionRow, ToolCall, tuple[str, int]]:
    """Record that a tool starts; return the call, and where the record is if this call made it."""
    session = entries.writable(tx, scope, session_id)
    require_open(session.status)  # a session that was stopped starts no more tools
    if run.seq:  # a call read from this session must still be open
        _require_patience(calls.require_waiting(tx, session, run.id), run.tries)
    call, draft = calls.start(
        *(tx, session, run.id, run.name, run.arguments),
        fresh=run.fresh,
        again=run.tries > 0,
        process=calls.process_of(run.holder),
        paths=run.paths,
    )
    if draft is None:
        return session, call, NOWHERE
    done = entries.put(tx, session, (draft,), now_ms=now_ms)
    return done.session, call, (done.uid, done.last)


def _require_patience(call: OpenCall, tries: int) -> None:
    """Raise ``Conflict`` for a call that was started too often."""
    if tries and call.starts >= tries:
        raise Conflict(
            f"tool call {call.id!r} was started {words.count(call.starts, 'time')} and never finished; record how it"
            " ended with resolve_call, or allow more tries",
            expected=tries,
            found=call.starts,
        )


def finish(tx: Tx, scope: str, session_id: str, result: ToolOutcome, *, now_ms: int) -> Stored:
    """Store a tool's result, which replaces the output streamed so far."""
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
