"""What follows from an entry's content: which tool calls it touches, which blobs it needs, which state it continues.

Verify compares this with what is stored; repair stores it where it is missing. A result that named a tool instead of a
call was tied to a call when it came, and its body says to which.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ... import codec
from ... import providers as forms
from ...files import snapshots
from ...model import items
from ...model.entry import APPROVAL, CALL, STATUS, Numbers
from ...model.message import MESSAGE_KINDS, Message, draft
from ...storage.base import Tx
from ...tables.branches import BranchRow
from ...tables.entries import EntryRow
from ...tables.sessions import SessionRow
from .. import entries, sessions, work
from .base import UNREADABLE as UNREADABLE

Mark = tuple[str, str]
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


def needs(row: EntryRow, body: bytes | None, raw: bytes | None) -> Needs:
    """Read what an entry needs; content that cannot be read raises one of ``UNREADABLE``."""
    if body is None:
        return Needs()
    if row.kind == CALL:
        said = codec.decode(body)
        marks = [("start", said["call_id"])]
        return Needs((("call", said["call_id"]), *marks) if "arguments" in said else tuple(marks))
    if row.kind == STATUS:
        return Needs(tuple(("lost", call_id) for call_id in codec.decode(body).get("calls", ())))
    if row.kind == APPROVAL:
        said = codec.decode(body)
        return Needs((("answer" if "approved" in said else "ask", said["call_id"]),))
    if row.kind.startswith(items.CUSTOM):
        return Needs(blobs=frozenset(items.custom_contents(codec.decode(body))))
    if row.kind in snapshots.NEEDS:
        return Needs(blobs=frozenset(snapshots.NEEDS[row.kind](codec.decode(body))))
    return _needs_of(Message("", 0, 0, 0, body, raw)) if row.kind in MESSAGE_KINDS else Needs()


def _needs_of(message: Message) -> Needs:
    """Make what the append of a message made, by the same function."""
    body = message.body
    if body.form is None and not (body.tool_calls or body.tool_results or body.attachments):
        return Needs()
    given = None
    if body.form is not None:
        given = forms.Given(body.form, body.role, {}, calls=message.tool_calls, results=message.tool_results)
    more = draft(codec.decode(message.data or b""), given=given).more
    if more is None:
        return Needs()
    marks = more.calls
    if body.answers is not None:
        marks = (*(mark for mark in marks if mark[0] != "result"), *(("result", each) for each in body.answers))
    return Needs(tuple(mark for mark in marks if mark[1]), frozenset(more.blobs))


def links(row: EntryRow, needed: Needs) -> set[str]:
    """Return the hashes of all blobs that an entry needs."""
    return {*row.spilled, *needed.blobs} - {""}


def standing(branch: BranchRow, seq: int, numbers: Numbers = sessions.NO_NUMBERS) -> SessionRow:
    """Return a session that stands at an entry of a branch's path, for the functions that read from there."""
    return sessions.standing_at(_NOBODY._replace(scope=branch.scope), branch, seq, numbers)


# ---------------------------------------------------------------------- the state of work


def state_fault(tx: Tx, branch: BranchRow, row: EntryRow, body: bytes, before: Numbers | None) -> str:
    """Return what is wrong with a state entry that can be read; ``before`` are the numbers that it continues."""
    said = codec.decode(body)
    if before is not None and not _continues(tx, branch, row.seq, said["last"], before):
        return "it does not continue the state of work before it"
    if row.kind in MAPS and said["base"] and not _is_base(tx, branch, row, said["base"]):
        return f"entry {said['base']}, which it changes, holds no whole state of its kind"
    return ""


def is_state(kind: str, body: bytes) -> bool:
    """Whether the content of a state entry has the form that its kind promises."""
    said: Any = codec.decode(body)
    return isinstance(said, dict) and isinstance(said.get("last"), dict) and said.keys() >= _SHAPES[kind]


def _continues(tx: Tx, branch: BranchRow, seq: int, last: dict[str, int], before: Numbers) -> bool:
    try:
        return work.lasts(tx, standing(branch, seq - 1, before)) == last
    except UNREADABLE:
        return True  # the entry before is damaged or lost: reported there


def _is_base(tx: Tx, branch: BranchRow, row: EntryRow, base: object) -> bool:
    if not isinstance(base, int) or not 0 < base < row.seq:
        return False
    try:
        (found,) = entries.read(tx, branch.scope, entries.path_segments(tx, standing(branch, row.seq), base - 1, base))
        return found.kind == row.kind and (found.body is None or not codec.decode(found.body)["base"])
    except UNREADABLE:
        return True


def version_of(kind: str, body: bytes) -> int:
    """Return the version that an entry gives the state of its session; 1 for all others."""
    return int(codec.decode(body)["version"]) if kind == "state" else 1
