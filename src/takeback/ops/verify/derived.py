"""What follows from an entry's content: which tool calls it touches, which blobs it needs, which state it continues.

Verify compares this with what is stored; repair stores it where it is missing. Results of Gemini may name a tool
instead of a call and were tied to a call of that name when they came; both readings are accepted.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from ... import codec
from ...errors import Error
from ...model import forms
from ...model.entry import APPROVAL, CALL, STATE_KINDS, STATUS, Draft, More
from ...model.message import MESSAGE_KINDS, Message, draft
from ...storage.base import Row, Tx
from .. import calls, entries, sessions, snapshots, work
from ..blobs import zstd  # type: ignore[attr-defined]
from ..branches import BranchRow
from ..sessions import SessionRow

Mark = tuple[str, str]
UNREADABLE = (Error, LookupError, TypeError, ValueError, AttributeError, OverflowError, zstd.ZstdError)
MAPS = frozenset({"tasks", "file", "state", "agents", "announced"})
_MAP = frozenset({"base", "size", "set", "del"})
_SHAPES = {
    **dict.fromkeys(MAPS, _MAP),
    "state": _MAP | {"version"},
    "plan": {"text"},
    "walkthrough": {"text"},
    "note": {"text", "task"},
    "build": {"count"},
    "compaction": {"upto", "summary"},
    "snapshot": {"root", "who", "first"},
}
_NOBODY = SessionRow._make((0,) * len(SessionRow._fields))


class Needs(NamedTuple):
    """What an entry's content says about it: tool calls in order, hashes of attachments."""

    marks: tuple[Mark, ...] = ()
    blobs: frozenset[str] = frozenset()


def needs(row: Row, body: bytes | None, raw: bytes | None) -> Needs:
    """Read what an entry needs; content that cannot be read raises."""
    if body is None:
        return Needs()
    if row[1] == CALL:
        said = codec.decode(body)
        marks = [("start", said["call_id"])]
        return Needs((("call", said["call_id"]), *marks) if "arguments" in said else tuple(marks))
    if row[1] == STATUS:
        return Needs(tuple(("lost", call_id) for call_id in codec.decode(body).get("calls", ())))
    if row[1] == APPROVAL:
        said = codec.decode(body)
        return Needs((("answer" if "approved" in said else "ask", said["call_id"]),))
    if row[1] in snapshots.NEEDS:
        return Needs(blobs=frozenset(snapshots.NEEDS[row[1]](codec.decode(body))))
    if row[1] not in MESSAGE_KINDS:
        return Needs()
    more = _more(Message("", 0, 0, 0, body, raw))
    return Needs() if more is None else Needs(more.calls, frozenset(more.blobs))


def _more(message: Message) -> More | None:
    """Make what the append made, by the same function."""
    body = message.body
    if body.form is None and not (body.tool_calls or body.tool_results or body.attachments):
        return None
    given = None
    if body.form is not None:
        given = forms.Given(body.form, body.role, {}, calls=message.tool_calls, results=message.tool_results)
    return draft(codec.decode(message.data or b""), given=given).more


def links(row: Row, needed: Needs) -> set[str]:
    """Give the hashes of all blobs that an entry needs."""
    return {*(row[7].split(",") if row[7] else ()), *needed.blobs} - {""}


def standing(branch: BranchRow, seq: int, numbers: tuple[int, ...] = sessions.NO_NUMBERS) -> SessionRow:
    """Give a session that stands at an entry of a branch's path, for the functions that look from there."""
    return sessions.standing_at(_NOBODY._replace(scope=branch.scope), branch, seq, numbers)


# ---------------------------------------------------------------------- tool calls


def marks_fit(tx: Tx, branch: BranchRow, seq: int, wanted: tuple[Mark, ...], stored: set[Mark]) -> bool:
    """Say whether the stored marks of an entry can be what its content led to."""
    extra, absent = stored - set(wanted), set(wanted) - stored
    if not extra and not absent:
        return True
    if not extra or any(what != "result" for what, _ in extra | absent):
        return False
    try:
        tied = Counter(("result", _tool_of(tx, branch, seq, call_id)) for _, call_id in extra)
    except UNREADABLE:
        return True  # the call itself is damaged or lost: reported there
    # Each result was tied to a call of its own, or to none and then it is there under the name of the tool.
    given = Counter(mark for mark in wanted if mark in tied or mark in absent)
    return tied <= given and all(mark in stored for mark in given - tied)


def _tool_of(tx: Tx, branch: BranchRow, seq: int, call_id: str) -> str:
    before = standing(branch, seq - 1)
    found = calls.newest(tx, before, call_id)
    if "call" not in found:
        return ""
    name = calls.announced(tx, before, found["call"], call_id).name
    if not name:
        raise LookupError(f"what announced tool call {call_id!r} is lost")
    return name


def rebuilt_marks(tx: Tx, branch: BranchRow, row: Row, wanted: tuple[Mark, ...], body: bytes) -> tuple[Mark, ...]:
    """Give the marks that an append would store for an entry now."""
    made = Draft(row[1], body, more=More(calls=wanted))
    before = standing(branch, (row[0] & entries.MAX_SEQ) - 1)
    try:
        more = calls.settled(tx, before, [made])[0].more
    except UNREADABLE:
        more = made.more
    return tuple(dict.fromkeys(more.calls)) if more else ()


# ---------------------------------------------------------------------- the state of work


def state_fault(tx: Tx, branch: BranchRow, row: Row, body: bytes, before: tuple[int, ...] | None) -> str:
    """Say what does not fit about a state entry: its form, and what it continues; ``before`` are the numbers there."""
    said: Any = codec.decode(body)
    if not isinstance(said, dict) or not isinstance(said.get("last"), dict) or not said.keys() >= _SHAPES[row[1]]:
        return "the state of work in it cannot be read"
    seq = row[0] & entries.MAX_SEQ
    if before is not None and not _continues(tx, branch, seq, said["last"], before):
        return "it does not continue the state of work before it"
    if row[1] in MAPS and said["base"] and not _is_base(tx, branch, seq, row[1], said["base"]):
        return f"entry {said['base']}, which it changes, holds no whole state of its kind"
    return ""


def _continues(tx: Tx, branch: BranchRow, seq: int, last: dict[str, int], before: tuple[int, ...]) -> bool:
    try:
        return work.lasts(tx, standing(branch, seq - 1, before)) == last
    except UNREADABLE:
        return True  # the entry before is damaged or lost: reported there


def _is_base(tx: Tx, branch: BranchRow, seq: int, kind: str, base: int) -> bool:
    if not isinstance(base, int) or not 0 < base < seq:
        return False
    try:
        (row,) = entries.read(tx, branch.scope, entries.path_segments(tx, standing(branch, seq), base - 1, base))
        return row[1] == kind and (row[5] is None or not codec.decode(row[5])["base"])
    except UNREADABLE:
        return True


def is_state(row: Row) -> bool:
    """Say whether an entry is a piece of the state of work."""
    return row[1] in STATE_KINDS


def version_of(row: Row, body: bytes) -> int:
    """Give the version that an entry gives the state of its session; 1 for all others."""
    return int(codec.decode(body)["version"]) if row[1] == "state" else 1
