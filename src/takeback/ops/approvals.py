"""Approvals: a call that waits for a person's yes or no.

Question and answer are entries, found by the call they are about. So they survive restarts, any process can answer,
and a rewind takes them back. A call is asked about once and answered once.
"""

from __future__ import annotations

from typing import Any

from .. import codec
from ..errors import Conflict, NotFound
from ..model.approval import Approval
from ..model.entry import APPROVAL, Draft, More
from ..model.status import FINISHED, require_open
from ..storage.base import Tx
from ..tables.entries import ENTRY
from . import branches, calls, entries, log, open_calls, sessions
from .calls import FoundCall
from .open_calls import OpenCall
from .sessions import SessionRow, Whole

ASKED = "INDEXED BY entry_approval WHERE scope = ? AND kind = 'approval' AND key < ? ORDER BY key DESC LIMIT ?"
_LAST = (1 << 63) - 1
_MANY = 500


def ask(
    tx: Tx, scope: str, session_id: str, call_id: str, question: str | None, *, now_ms: int
) -> tuple[SessionRow, Approval]:
    """Ask about an open call, unless somebody already did."""
    session = entries.writable(tx, scope, session_id)
    require_open(session.status)
    found = FoundCall(calls.require_waiting(tx, session, call_id))
    if not found.marks.ask:
        session = _put(tx, session, "ask", {"call_id": call_id, "question": question}, now_ms)
        found = found.noted("ask", session.seq)
    return session, _value(tx, session, found)


def answer(
    tx: Tx, scope: str, session_id: str, call_id: str, said: dict[str, Any], *, now_ms: int
) -> tuple[SessionRow, Approval]:
    """Answer a question; none asked raises ``NotFound``, one already answered raises ``Conflict``."""
    session = entries.writable(tx, scope, session_id)
    found = calls.newest(tx, session, call_id)
    if found is None or not found.marks.ask:
        raise NotFound(f"nobody asked for approval of tool call {call_id!r} on the path of this session")
    if found.marks.answer:
        status = _value(tx, session, found).status
        raise Conflict(f"tool call {call_id!r} is already {status}", found=status)
    session = _put(tx, session, "answer", {"call_id": call_id, **said}, now_ms)
    return session, _value(tx, session, found.noted("answer", session.seq))


def find(tx: Tx, session: SessionRow, call_id: str) -> Approval | None:
    """Return what was asked about a call, and the answer if there is one."""
    found = calls.newest(tx, session, call_id)
    return _value(tx, session, found) if found and found.marks.ask else None


def of_path(tx: Tx, session: SessionRow) -> list[Approval]:
    """Return the approvals, answered or not, of the open calls on the path."""
    return [_value(tx, session, FoundCall(marks)) for marks in open_calls.at(tx, session) if marks.ask]


def waiting(tx: Tx, scope: str, *, before: int | None, limit: int) -> tuple[list[tuple[Whole, Approval]], int | None]:
    """Return the questions of all sessions that nobody has answered, newest sessions first, each with its session.

    It costs one step of an index for every question ever asked. The number returned with a page is where the next one
    begins. Sessions that ended or are in the trash ask nothing.
    """
    found, whole, asks = list[tuple[Whole, Approval]](), dict[int, Whole | None](), dict[int, dict[int, OpenCall]]()
    while True:
        rows = ENTRY.all(tx, ASKED, (scope, _LAST if before is None else before, _MANY))
        for row in rows:
            branch = branches.get(tx, scope, row.branch)
            sid = branch.session
            if sid not in whole:
                whole[sid] = _shown(tx, scope, sid)
                asks[sid] = {} if (there := whole[sid]) is None else _asks(tx, there[0])
            session, marks = whole[sid], asks[sid].get(row.seq)
            if session is None or marks is None or not log.is_on_path(tx, session[0], branch.uid, row.seq):
                continue
            found.append((session, _value(tx, session[0], FoundCall(marks))))
            if len(found) == limit:
                return found, row.key
        if len(rows) < _MANY:
            return found, None
        before = rows[-1].key


def _shown(tx: Tx, scope: str, sid: int) -> Whole | None:
    row = sessions.find_number(tx, scope, sid)
    return None if row is None or row.hidden or row.status in FINISHED else sessions.whole(tx, scope, row.id)


def _asks(tx: Tx, session: SessionRow) -> dict[int, OpenCall]:
    """Return the open calls of a path that wait for an answer, by the seq of the question."""
    return {marks.ask: marks for marks in open_calls.at(tx, session) if marks.ask > marks.answer}


def _put(tx: Tx, session: SessionRow, what: str, body: dict[str, Any], now_ms: int) -> SessionRow:
    kept = {name: value for name, value in body.items() if value is not None}
    draft = Draft(APPROVAL, codec.encode(kept), more=More(calls=((what, body["call_id"]),)))
    return entries.put(tx, session, [draft], now_ms=now_ms).session


def _value(tx: Tx, session: SessionRow, found: FoundCall) -> Approval:
    call = calls.described(tx, session, found)
    asked, asked_ms = _body(tx, session, found.marks.ask)
    if not found.marks.answer:
        return Approval(call, asked.get("question"), asked_ms=asked_ms)
    said, said_ms = _body(tx, session, found.marks.answer)
    return Approval(
        call, asked.get("question"), said["approved"], said.get("by"), said.get("note"), asked_ms, answered_ms=said_ms
    )


def _body(tx: Tx, session: SessionRow, seq: int) -> tuple[dict[str, Any], int]:
    _, row = calls.entry_at(tx, session, seq)
    return codec.decode(row.body) if row.body is not None else {"approved": None}, row.at_ms
