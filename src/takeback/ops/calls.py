"""Tool calls on a path: announced by a message, started, answered.

The ids that providers give repeat between turns, so a call is the newest one of its id on the path, and it is
open as long as no result follows it there. The ``call`` table says where, in the order of entries; a call is looked
up by going back from the head, since its result comes soon after it: an index over ids would cost every
tool message a page. What a call is lies in the entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, NamedTuple, TypeAlias

import msgspec

from .. import codec
from ..errors import Conflict, Corrupt, NotFound
from ..ids import entry_id
from ..model.entry import CALL, Draft, More, Numbers
from ..model.message import TOOL_MESSAGE, Message
from ..model.tools import ToolCall
from ..storage.base import Row, Tx, row_check
from . import branches, entries
from .sessions import SessionRow

COLUMNS = "scope, key, what, call_id, chk"
BACK = f"""SELECT {COLUMNS} FROM call
WHERE scope = ? AND key > ? AND key <= ? AND (key, what, call_id) < (?, ?, ?)
ORDER BY key DESC, what DESC, call_id DESC LIMIT ?"""
LOST = "SELECT 1 FROM lost WHERE key > ? AND key <= ? LIMIT 1"
BETWEEN = f"SELECT {COLUMNS} FROM call WHERE scope = ? AND key > ? AND key <= ? ORDER BY key, what"

_SMALL = 64 << 10
_PAGE = 8
_NEAR = 256


_Found: TypeAlias = tuple[str, dict[str, int]]  # the id of a call, and where its marks are


class Mark(NamedTuple):
    """One place where a call is announced, started or answered."""

    seq: int
    what: str
    call_id: str


def _marks(rows: list[Row]) -> Iterator[Mark]:
    for row in rows:
        if row_check(row[:-1]) != row[-1]:
            raise Corrupt(f"the record of tool call {row[3]!r} is damaged; run verify", what=f"call {row[3]}")
        yield Mark(row[1] & entries.MAX_SEQ, row[2], row[3])


def path(tx: Tx, session: SessionRow) -> list[branches.Segment]:
    """Give the branches that hold the path of the head, oldest first."""
    return entries.path_segments(tx, session, 0, session.seq)


def newest(tx: Tx, session: SessionRow, call_id: str) -> dict[str, int]:
    """Give where the newest call of this id is announced ('call'), last started, lost and answered, and how many
    'starts' it had; nothing if it is not there.
    """
    found, starts = dict[str, int](), 0
    for mark in _backwards(tx, session):
        if mark.call_id == call_id:
            found.setdefault(mark.what, mark.seq)
            starts += mark.what == "start"
            if mark.what == "call":
                return {"starts": starts, **found}
    return {}


def _backwards(tx: Tx, session: SessionRow) -> Iterator[Mark]:
    """Go through the marks of a path from the head back, in pages that grow."""
    size = _PAGE
    for segment in reversed(path(tx, session)):
        base = entries.key_of(segment.bid, 0)
        last: tuple[int, str, str] = (base + segment.high + 1, "", "")
        while True:
            rows = tx.all(BACK, (session.scope, base + segment.low, base + segment.high, *last, size))
            yield from _marks(rows)
            if len(rows) < size:
                break
            last, size = rows[-1][1:4], min(4 * size, 512)


def open_calls(tx: Tx, session: SessionRow) -> dict[str, dict[str, int]]:
    """Give all calls of the path that have no result, in the order they were announced."""
    waiting: dict[str, dict[str, int]] = {}
    for mark in _all_marks(tx, session):
        if mark.what == "result":
            waiting.pop(mark.call_id, None)
        elif mark.what == "call":
            waiting.pop(mark.call_id, None)  # an older call of this id is forgotten, and the order is by the newest
            waiting[mark.call_id] = {"call": mark.seq}
        elif mark.call_id in waiting:
            _note(waiting[mark.call_id], mark)
    return waiting


def going_on(tx: Tx, session: SessionRow) -> list[str]:
    """Give the calls that may be at work now: those that run, or else those that this turn announced and that wait.

    Only the newest marks are looked at: who knows of older calls that still run names them.
    """
    ended, started, announced = set[str](), set[str](), dict[str, int]()
    running = list[str]()
    for mark in islice(_backwards(tx, session), _NEAR):
        if mark.what in ("result", "lost"):
            ended.add(mark.call_id)
        elif mark.call_id in ended:
            continue
        elif mark.what == "start":
            started.add(mark.call_id)
        elif mark.what == "call":
            ended.add(mark.call_id)  # an older call of this id is another one
            if mark.call_id in started:
                running.append(mark.call_id)
            else:
                announced[mark.call_id] = mark.seq
    now = session.turns
    return running[::-1] or [
        call_id
        for call_id, seq in reversed(announced.items())
        if Numbers._make(entries.point(tx, session, seq).numbers).turns == now
    ]


def _note(marks: dict[str, int], mark: Mark) -> None:
    """Take in the next mark of a call: of several starts the last one counts."""
    marks[mark.what] = mark.seq
    if mark.what == "start":
        marks["starts"] = marks.get("starts", 0) + 1


def is_running(marks: Mapping[str, int]) -> bool:
    """Say whether a call was started and nothing is known of its end."""
    return "start" in marks and "result" not in marks and marks.get("lost", 0) < marks["start"]


def _all_marks(tx: Tx, session: SessionRow) -> list[Mark]:
    """Give all marks of a path in order; fewer calls than the path has announced are ``Corrupt``."""
    found = list[Mark]()
    for segment in path(tx, session):
        base = entries.key_of(segment.bid, 0)
        found += _marks(tx.all(BETWEEN, (session.scope, base + segment.low, base + segment.high)))
    if sum(mark.what == "call" for mark in found) != session.tool_calls and not _has_lost(tx, session):
        raise Corrupt("records of tool calls are missing; run verify", what=f"session {session.id}")
    return found


def _has_lost(tx: Tx, session: SessionRow) -> bool:
    """Say whether a repair gave up entries of this path: what they announced nobody knows."""
    keys = ((entries.key_of(s.bid, s.low), entries.key_of(s.bid, s.high)) for s in path(tx, session))
    return any(tx.one(LOST, (low, high)) for low, high in keys)


def settled(tx: Tx, session: SessionRow, drafts: Sequence[Draft]) -> list[Draft]:
    """Tie tool messages to the calls before them, on the path or among these drafts.

    They name their tool, which most providers leave out. Gemini's results may name the tool instead of a call: they
    answer the oldest open call of that name.
    """
    here: dict[str, str] = {}  # open calls among these drafts, with their names
    found = []
    for draft in drafts:
        if draft.more is not None and draft.kind == TOOL_MESSAGE and len(draft.body) <= _SMALL:
            draft = _settle(tx, session, draft, here)
        elif any(what == "call" for what, _ in (draft.more.calls if draft.more else ())):
            here.update({call.id: call.name for call in _announced_by(draft)})
        found.append(draft)
    return found


def settled_at_once(draft: Draft, waiting: Mapping[str, Draft]) -> Draft | None:
    """Tie a tool message to calls whose messages are at hand; None if one of them is not."""
    results = _results(draft)
    if not results or len(draft.body) > _SMALL or not waiting.keys() >= set(results):
        return None
    names = {call.id: call.name for result in results for call in _announced_by(waiting[result])}
    tool = next((names[result] for result in results if names.get(result)), None)
    return _tied(draft, tool, results, results)


def still_waiting(waiting: Mapping[str, Draft], drafts: Sequence[Draft]) -> dict[str, Draft]:
    """Give the calls without a result after some messages, each with the message that announces it."""
    found = dict(waiting)
    for draft in drafts:
        for what, call_id in draft.more.calls if draft.more else ():
            if what == "call":
                found[call_id] = draft
            elif what == "result":
                found.pop(call_id, None)
    return found


def _announced_by(draft: Draft) -> Sequence[ToolCall]:
    return Message("", 0, 0, 0, draft.body, draft.raw).tool_calls


def _results(draft: Draft) -> list[str]:
    return [name for what, name in draft.more.calls if what == "result"] if draft.more else []


def _settle(tx: Tx, session: SessionRow, draft: Draft, here: dict[str, str]) -> Draft:
    marks, tool = list[tuple[str, str]](), None
    results = _results(draft)
    for result in results:
        call_id, name = _answered(tx, session, result, here, marks)
        here.pop(call_id, None)
        tool = tool or name
        marks.append(("result", call_id))
    return _tied(draft, tool, results, [call_id for _, call_id in marks])


def _tied(draft: Draft, tool: str | None, results: list[str], given: list[str]) -> Draft:
    """Write into a tool message which tool it is from, and which calls it answers if it does not say so itself."""
    body = codec.decode(draft.body)
    if tool and "tool_name" not in body:
        body = {**body, "tool_name": tool}
    if given != results:
        body = {**body, "answers": given}
    calls = tuple(("result", call_id) for call_id in given)
    return draft._replace(body=codec.encode(body), more=(draft.more or More())._replace(calls=calls))


def _answered(
    tx: Tx, session: SessionRow, given: str, here: dict[str, str], taken: list[tuple[str, str]]
) -> tuple[str, str | None]:
    """Give the call that a result answers, and the name of its tool if that is known."""
    if given in here:
        return given, here[given]
    near = _answered_near(tx, session, given, taken)
    if near is not None:
        return near
    marks = newest(tx, session, given)
    if marks:
        return given, announced(tx, session, marks["call"], given).name
    for call_id, name in here.items():
        if name == given and ("result", call_id) not in taken:
            return call_id, name
    return given, None


def _answered_near(
    tx: Tx, session: SessionRow, given: str, taken: list[tuple[str, str]]
) -> tuple[str, str | None] | None:
    """Look for the call among the last marks: by its id, else the oldest open one of a tool of that name."""
    answered, waiting = set[str](), list[Mark]()
    for mark in islice(_backwards(tx, session), _NEAR):
        if mark.what == "result":
            answered.add(mark.call_id)
        elif mark.what == "call":
            if mark.call_id == given:
                return given, announced(tx, session, mark.seq, given).name
            if mark.call_id not in answered and ("result", mark.call_id) not in taken:
                waiting.append(mark)
            answered.discard(mark.call_id)
    for mark in reversed(waiting):
        call = announced(tx, session, mark.seq, mark.call_id)
        if call.name == given:
            return mark.call_id, call.name
    return None


def announced(tx: Tx, session: SessionRow, seq: int, call_id: str) -> ToolCall:
    """Read the call that an entry announces."""
    uid, row = _row_at(tx, session, seq)
    if row[1] == CALL:
        body = codec.decode(row[5]) if row[5] is not None else {}
        return ToolCall(call_id, body.get("name", ""), body.get("arguments"), seq=seq, entry_id=entry_id(uid, seq))
    message = Message(uid, seq, row[3], row[2], row[5], row[6])
    found = (call for call in message.tool_calls if call.id == call_id)
    return next(found, ToolCall(call_id, "", None, seq=seq, entry_id=entry_id(uid, seq)))


def pending(tx: Tx, session: SessionRow) -> list[ToolCall]:
    """Give the open calls of a path in the order of announcing."""
    found = open_calls(tx, session).items()
    return [_described(tx, session, *each) for each in _in_order(tx, session, found)]


def _in_order(tx: Tx, session: SessionRow, found: Iterable[_Found]) -> Iterator[_Found]:
    """Order calls as they were announced: those of one message lie in the table by their ids."""
    for seq, run in groupby(found, lambda each: each[1]["call"]):
        group = list(run)
        if len(group) > 1:
            place = {call.id: number for number, call in enumerate(_announced_in(tx, session, seq))}
            group.sort(key=lambda each: place.get(each[0], 0))
        yield from group


def _announced_in(tx: Tx, session: SessionRow, seq: int) -> Sequence[ToolCall]:
    uid, row = _row_at(tx, session, seq)
    return () if row[1] == CALL else Message(uid, seq, row[3], row[2], row[5], row[6]).tool_calls


def all_calls(tx: Tx, session: SessionRow) -> Iterator[ToolCall]:
    """Give every call of a path in the order of announcing, with what became of it."""
    found, latest = list[tuple[str, dict[str, int]]](), dict[str, dict[str, int]]()
    for mark in _all_marks(tx, session):
        if mark.what == "call":
            latest[mark.call_id] = {}
            found.append((mark.call_id, latest[mark.call_id]))
        if mark.call_id in latest and (mark.what != "result" or "result" not in latest[mark.call_id]):
            _note(latest[mark.call_id], mark)
    return (_described(tx, session, *each) for each in _in_order(tx, session, found))


def _described(tx: Tx, session: SessionRow, call_id: str, marks: dict[str, int]) -> ToolCall:
    call = announced(tx, session, marks["call"], call_id)
    if "start" in marks:
        started = _row_at(tx, session, marks["start"])[1][2]
        status = "running" if is_running(marks) else "unknown"
        call = msgspec.structs.replace(call, status=status, started_ms=started, attempts=marks["starts"])
    if "result" not in marks:
        return call
    uid, row = _row_at(tx, session, marks["result"])
    message = Message(uid, marks["result"], row[3], row[2], row[5], row[6])
    result = next((each for each in message.tool_results if each.call_id == call_id), None)
    if result is None:
        return call
    status, error = ("completed", None) if result.success else ("failed", str(result.content))
    return msgspec.structs.replace(
        call, status=status, result=result.content, success=result.success, finished_ms=row[2], error=error
    )


def _row_at(tx: Tx, session: SessionRow, seq: int) -> tuple[str, Row]:
    segments = entries.path_segments(tx, session, seq - 1, seq)
    (row,) = entries.read(tx, session.scope, segments)
    return segments[0].uid, row


def start(
    tx: Tx, session: SessionRow, call_id: str, name: str, arguments: Any, *, fresh: bool = False, again: bool = False
) -> tuple[ToolCall, Draft | None]:
    """Prepare the start of a call: of the open one of this id if a message announced it, else a call of its own.

    A call that runs already gives no draft: there is never a second record. One whose outcome is unknown is started
    only if it is to be tried ``again``. A ``fresh`` id was made just now.
    """
    marks = {} if fresh else newest(tx, session, call_id)
    more: tuple[tuple[str, str], ...] = (("start", call_id),)
    if marks and "result" not in marks:
        call = _described(tx, session, call_id, marks)
        if is_running(marks):
            return call, None
        if "start" in marks and not again:
            raise Conflict(
                f"nobody knows whether tool call {call_id!r} had its effect: the process that ran it is gone; retry it,"
                " or say with resolve_call how it ended",
                found="unknown",
            )
        body, adds = {"call_id": call_id, "name": call.name}, Numbers()
    else:
        call = ToolCall(call_id, name, arguments, seq=session.seq + 1, entry_id=entry_id(session.uid, session.seq + 1))
        body = {"call_id": call_id, "name": name, "arguments": arguments}
        more, adds = (("call", call_id), *more), Numbers(tool_calls=1)
    call = msgspec.structs.replace(call, status="running", attempts=call.attempts + 1)
    return call, Draft(CALL, codec.encode(body), adds=adds, more=More(calls=more))


def name_of(tx: Tx, session: SessionRow, call_id: str) -> str | None:
    """Give the name of the tool that the newest call of an id is for; None if it is not on the path."""
    marks = newest(tx, session, call_id)
    return announced(tx, session, marks["call"], call_id).name or None if marks else None


def require_open(tx: Tx, session: SessionRow, call_id: str) -> ToolCall:
    """Give the newest call of an id if it waits for a result; absent is ``NotFound``, answered ``Conflict``."""
    marks = newest(tx, session, call_id)
    if not marks:
        if call_id in open_calls(tx, session):  # the slow way around the index, before saying that it is not there
            raise Corrupt("the index of tool calls is damaged; run verify", what=f"call {call_id}")
        raise NotFound(f"there is no tool call {call_id!r} on the path of this session")
    if "result" in marks:
        raise Conflict(f"tool call {call_id!r} has its result already", found=marks["result"])
    return _described(tx, session, call_id, marks)
