"""Approvals: a call that waits for a person's yes or no.

The question and the answer are entries, found by the call they are about, so they survive restarts, can be answered
from any process, and go back with a rewind. A call is asked about once and answered once.
"""

from __future__ import annotations

from typing import Any

from .. import codec
from ..errors import Conflict, NotFound
from ..model.approval import Approval
from ..model.entry import APPROVAL, Draft, More
from ..model.tools import ToolCall
from ..storage.base import Tx
from . import calls, entries
from .sessions import SessionRow


def ask(tx: Tx, session: SessionRow, call_id: str, question: str | None, *, now_ms: int) -> tuple[SessionRow, Approval]:
    """Ask about an open call, unless somebody did already."""
    call = calls.require_open(tx, session, call_id)
    marks = calls.newest(tx, session, call_id)
    if "ask" not in marks:
        body = {"call_id": call_id, "question": question}
        session = _put(tx, session, "ask", body, now_ms)
        marks = {**marks, "ask": session.seq}
    return session, _value(tx, session, call, marks)


def answer(
    tx: Tx, session: SessionRow, call_id: str, said: dict[str, Any], *, now_ms: int
) -> tuple[SessionRow, Approval]:
    """Answer what was asked; nothing asked is ``NotFound``, answered already ``Conflict``."""
    marks = calls.newest(tx, session, call_id)
    if "ask" not in marks:
        raise NotFound(f"nobody asked for an approval of tool call {call_id!r} on the path of this session")
    call = calls.announced(tx, session, marks["call"], call_id)
    if "answer" in marks:
        found = _value(tx, session, call, marks)
        raise Conflict(f"tool call {call_id!r} is {found.status} already", found=found.status)
    session = _put(tx, session, "answer", {"call_id": call_id, **said}, now_ms)
    return session, _value(tx, session, call, {**marks, "answer": session.seq})


def find(tx: Tx, session: SessionRow, call_id: str) -> Approval | None:
    """Give what was asked about a call, and the answer if there is one."""
    marks = calls.newest(tx, session, call_id)
    return _value(tx, session, calls.announced(tx, session, marks["call"], call_id), marks) if "ask" in marks else None


def of_path(tx: Tx, session: SessionRow) -> list[Approval]:
    """Give the approvals that open calls of the path wait for or have."""
    return [
        _value(tx, session, calls.announced(tx, session, marks["call"], call_id), marks)
        for call_id, marks in calls.open_calls(tx, session).items()
        if "ask" in marks
    ]


def _put(tx: Tx, session: SessionRow, what: str, body: dict[str, Any], now_ms: int) -> SessionRow:
    kept = {name: value for name, value in body.items() if value is not None}
    draft = Draft(APPROVAL, codec.encode(kept), more=More(calls=((what, body["call_id"]),)))
    return entries.put(tx, session, [draft], now_ms=now_ms).session


def _value(tx: Tx, session: SessionRow, call: ToolCall, marks: dict[str, int]) -> Approval:
    asked, asked_ms = _body(tx, session, marks["ask"])
    if "answer" not in marks:
        return Approval(call, asked.get("question"), asked_ms=asked_ms)
    said, said_ms = _body(tx, session, marks["answer"])
    return Approval(
        call, asked.get("question"), said["approved"], said.get("by"), said.get("note"), asked_ms, answered_ms=said_ms
    )


def _body(tx: Tx, session: SessionRow, seq: int) -> tuple[dict[str, Any], int]:
    (row,) = entries.read(tx, session.scope, entries.path_segments(tx, session, seq - 1, seq))
    return codec.decode(row[5]) if row[5] is not None else {"approved": None}, row[2]
