"""Tool calls on a path: announced by a message, started, answered.

Providers reuse call ids between turns, so an id means the newest call with it on the path, and that call is open until
a result follows it there. Open calls are kept in the session's row (``open_calls``); only a call that is not open is
searched for, backwards along the path. Its name and arguments are read from the entry that announces it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from .. import codec, presence
from ..errors import Conflict, NotFound
from ..ids import entry_id
from ..model.entry import CALL, Draft, More, Numbers
from ..model.message import TOOL_MESSAGE, Message, is_unnamed
from ..model.tools import ToolCall, denial
from ..presence import Holder
from ..storage.base import Tx
from ..tables.entries import EntryRow
from . import log, open_calls, sessions
from .open_calls import OpenCall
from .sessions import LeaseRow, SessionRow

Lost = Callable[[LeaseRow | None], bool]  # whether the holder of a lease is gone

SMALL = 64 << 10  # bytes; a larger tool message is stored as it came


class FoundCall(NamedTuple):
    """A call on the path: where its marks are, and the seq of its first result, 0 while it is open."""

    marks: OpenCall
    result: int = 0

    def noted(self, what: str, seq: int) -> FoundCall:
        """Return the call after its next mark."""
        if what == "result":
            return self._replace(result=self.result or seq)
        return self._replace(marks=self.marks.noted(what, seq))


# ---------------------------------------------------------------------- finding calls


def find_open(tx: Tx, session: SessionRow, call_id: str) -> OpenCall | None:
    """Return the open call with this id, or None."""
    kept = open_calls.known(session) or ()
    found = next((call for call in kept if call.id == call_id), None)
    return found or next((call for call in open_calls.at(tx, session) if call.id == call_id), None)


def newest(tx: Tx, session: SessionRow, call_id: str) -> FoundCall | None:
    """Return the newest call with this id on the path, open or answered, or None."""
    waiting = find_open(tx, session, call_id)
    if waiting is not None:
        return FoundCall(waiting)
    behind = list[tuple[str, int]]()
    for seq, what, marked in open_calls.walk_back(tx, session):
        if marked != call_id:
            continue
        if what == "call":
            found = FoundCall(OpenCall(call_id, seq))
            for mark in reversed(behind):
                found = found.noted(*mark)
            return found
        behind.append((what, seq))
    return None


def require_waiting(tx: Tx, session: SessionRow, call_id: str) -> OpenCall:
    """Return the open call with an id; an unknown id raises ``NotFound``, an answered call ``Conflict``."""
    waiting = find_open(tx, session, call_id)
    if waiting is not None:
        return waiting
    answered = newest(tx, session, call_id)
    if answered is None:
        raise NotFound(f"there is no tool call {call_id!r} on the path of this session")
    raise Conflict(f"tool call {call_id!r} already has its result", found=answered.result)


def require_open(tx: Tx, session: SessionRow, call_id: str) -> ToolCall:
    """Return the open call with an id, as ``require_waiting`` does, with its name and arguments."""
    return described(tx, session, FoundCall(require_waiting(tx, session, call_id)))


def name_of(tx: Tx, session: SessionRow, call_id: str) -> str | None:
    """Return the tool name of the newest call with an id; None if the path has no such call."""
    found = newest(tx, session, call_id)
    return announced(tx, session, found.marks.call, call_id).name or None if found else None


def going_on(tx: Tx, session: SessionRow) -> list[str]:
    """Return the calls that may be running now: those started, or else those announced in this turn and still open.

    Only the newest open calls are considered; a caller that knows of older ones still running names them itself.
    """
    found = open_calls.known(open_calls.filled(tx, session)) or ()
    running = [call.id for call in found if call.is_running]
    return running or [call.id for call in _announced_now(tx, session, found)]


def begun(tx: Tx, session: SessionRow, *, announced: bool) -> list[OpenCall]:
    """Return the open calls whose tool may be at work, even those recorded as lost.

    Those only ``announced`` in this turn count, if at all, as long as none is running. A session that went back into
    the middle of a call runs it no more.
    """
    found = open_calls.known(open_calls.filled(tx, session)) or ()
    started = [call for call in found if call.start and _is_on_own_branch(tx, session, call.start)]
    if not announced or any(call.is_running for call in started):
        return started
    return started + _announced_now(tx, session, found)


def _is_on_own_branch(tx: Tx, session: SessionRow, seq: int) -> bool:
    """Whether an entry was added to the branch at whose tip the session is."""
    return bool(session.attached) and log.path_segments(tx, session, seq - 1, seq)[0].uid == session.uid


def _announced_now(tx: Tx, session: SessionRow, found: Sequence[OpenCall]) -> list[OpenCall]:
    """Return the calls of this turn that were announced and never started; none that waits for a person's yes."""
    waiting, turns = list[OpenCall](), dict[int, int]()
    for call in reversed([call for call in found if not call.start]):
        if call.call not in turns:
            turns[call.call] = entry_at(tx, session, call.call)[1].turns
        if turns[call.call] < session.turns:
            break  # the rest are older still
        if call.ask <= call.answer:
            waiting.append(call)
    return waiting[::-1]


def process_of(holder: bytes | None) -> dict[str, Any] | None:
    """Return a process as the start of a call names it; None if it is not known which one runs the tool."""
    found = None if holder is None else presence.decode(holder)
    if found is None or not presence.is_known(found):
        return None
    return {"host": found.host, "pid": found.pid, "machine": found.machine, "began": found.began}


class Start(NamedTuple):
    """When a call was last started, or else announced; the process that runs it; and the paths that it touches.

    The last two are None if they are not known.
    """

    at_ms: int
    by: Holder | None
    paths: list[str] | None


def start_of(tx: Tx, session: SessionRow, call: OpenCall) -> Start:
    """Read how a call was started."""
    row = entry_at(tx, session, call.start or call.call)[1]
    if not call.start or row.kind != CALL:
        return Start(row.at_ms, None, None)
    return Start(row.at_ms, _starter(row), codec.decode(row.body).get("paths") if row.body is not None else None)


def _starter(row: EntryRow) -> Holder | None:
    said = codec.decode(row.body).get("process") if row.body is not None else None
    return None if said is None else Holder("", said["host"], said["pid"], said["machine"], said["began"])


def pending(tx: Tx, session: SessionRow) -> list[ToolCall]:
    """Return the open calls of a path in the order they were announced, but for those that nobody is to run."""
    found = [described(tx, session, FoundCall(call)) for call in open_calls.at(tx, session)]
    return [call for call in found if call.status != "denied"]


def pending_judged(tx: Tx, session: SessionRow, lost: Lost) -> list[ToolCall]:
    """Return the open calls; a running one becomes unknown if the process that ran it is ``lost``."""
    return _judged(tx, session, pending(tx, session), lost)


def all_judged(tx: Tx, session: SessionRow, lost: Lost) -> list[ToolCall]:
    """Return all calls of the path; a running one becomes unknown if the process that ran it is ``lost``."""
    return _judged(tx, session, [*all_calls(tx, session)], lost)


def judged_newest(tx: Tx, session: SessionRow, call_id: str, lost: Lost) -> ToolCall:
    """Return the newest call with an id on the path, or raise ``NotFound``."""
    found = newest(tx, session, call_id)
    if found is None:
        raise NotFound(f"there is no tool call {call_id!r} on the path of session {session.id!r}")
    return _judged(tx, session, [described(tx, session, found)], lost)[0]


def _judged(tx: Tx, session: SessionRow, found: list[ToolCall], lost: Lost) -> list[ToolCall]:
    if not any(call.status == "running" for call in found) or not lost(sessions.find_lease(tx, session)):
        return found
    return [msgspec.structs.replace(call, status="unknown") if call.status == "running" else call for call in found]


def all_calls(tx: Tx, session: SessionRow) -> Iterator[ToolCall]:
    """Yield every call of a path in the order they were announced, with its outcome."""
    found, latest = list[FoundCall](), dict[str, int]()
    for seq, marks in open_calls.walk(tx, session, 0, session.call_seq):
        for what, call_id in marks:
            if what == "call":
                latest[call_id] = len(found)
                found.append(FoundCall(OpenCall(call_id, seq)))
            elif call_id in latest:
                found[latest[call_id]] = found[latest[call_id]].noted(what, seq)
    return (described(tx, session, each) for each in found)


# ---------------------------------------------------------------------- what a call is


def announced(tx: Tx, session: SessionRow, seq: int, call_id: str) -> ToolCall:
    """Read the call that an entry announces."""
    uid, row = entry_at(tx, session, seq)
    nameless = ToolCall(call_id, "", None, seq=seq, entry_id=entry_id(uid, seq))
    if row.kind == CALL:
        body = codec.decode(row.body) if row.body is not None else {}
        return msgspec.structs.replace(nameless, name=body.get("name", ""), arguments=body.get("arguments"))
    return next((call for call in _message(uid, row).tool_calls if call.id == call_id), nameless)


def described(tx: Tx, session: SessionRow, found: FoundCall) -> ToolCall:
    """Read the name, arguments and outcome of a call."""
    marks = found.marks
    call = announced(tx, session, marks.call, marks.id)
    if marks.start:
        row = entry_at(tx, session, marks.start)[1]
        status = "running" if marks.is_running and not found.result and not _is_cut_off(row) else "unknown"
        call = msgspec.structs.replace(call, status=status, started_ms=row.at_ms, attempts=marks.starts)
    is_denied = denied(tx, session, marks) is not None
    if not found.result:
        return msgspec.structs.replace(call, status="denied") if is_denied else call
    uid, row = entry_at(tx, session, found.result)
    result = next((each for each in _message(uid, row).tool_results if each.call_id == marks.id), None)
    if result is None:  # redacted: it has ended, and nobody can say how
        return msgspec.structs.replace(call, status="unknown", finished_ms=row.at_ms)
    status, error = ("completed", None) if result.success else ("failed", str(result.content))
    status = "denied" if result.denied or (is_denied and not result.success) else status
    return msgspec.structs.replace(
        call, status=status, result=result.content, success=result.success, finished_ms=row.at_ms, error=error
    )


def denied(tx: Tx, session: SessionRow, call: OpenCall) -> str | None:
    """Return what a model is told of a call that a person did not allow; None for every other call."""
    row = entry_at(tx, session, call.answer)[1] if call.answer > call.ask else None
    said = codec.decode(row.body) if row is not None and row.body is not None else {}
    return denial(said.get("note")) if said.get("approved") is False else None


def denied_open(tx: Tx, session: SessionRow) -> dict[tuple[int, str], str]:
    """Return the open calls that a person did not allow, by seq and id, with what a model is told of each."""
    found = {(call.call, call.id): denied(tx, session, call) for call in open_calls.at(tx, session) if call.answer}
    return {place: text for place, text in found.items() if text is not None}


def awaited(tx: Tx, session: SessionRow) -> bool:
    """Whether a call of this turn waits for its tool or its result; older ones were given up."""
    found = [call for call in open_calls.at(tx, session) if denied(tx, session, call) is None]
    return any(entry_at(tx, session, call.call)[1].turns >= session.turns for call in reversed(found))


def _is_cut_off(start: EntryRow) -> bool:
    """Whether the process that ran a call is gone, whoever held the session."""
    holder = _starter(start)
    return holder is not None and presence.is_gone(holder)


def entry_at(tx: Tx, session: SessionRow, seq: int) -> tuple[str, EntryRow]:
    """Read an entry of the path; return the id of the branch that owns it, and the entry."""
    segments = log.path_segments(tx, session, seq - 1, seq)
    (row,) = log.read(tx, session.scope, segments)
    return segments[0].uid, row


def _message(uid: str, row: EntryRow) -> Message:
    return Message(uid, row.seq, row.turns, row.at_ms, row.body, row.raw)


# ---------------------------------------------------------------------- starting a call


def start(
    tx: Tx,
    session: SessionRow,
    call_id: str,
    name: str,
    arguments: Any,
    *,
    fresh: bool = False,
    again: bool = False,
    process: Mapping[str, Any] | None = None,
    paths: Sequence[str] | None = None,
) -> tuple[ToolCall, Draft | None]:
    """Prepare the start of a call: the open one with this id if a message announced it, else a new call.

    A call that is already running returns no draft: a start is never recorded twice. A call whose outcome is unknown
    is started only with ``again``. A ``fresh`` id was just generated, so it need not be searched for. ``process`` is
    the one that runs the tool: once it is gone, the outcome of the call is unknown. ``paths`` are all that it touches
    in the workspace, if the caller knows.
    """
    marks: tuple[tuple[str, str], ...] = (("start", call_id),)
    waiting = None if fresh else find_open(tx, session, call_id)
    if waiting is not None:
        call = described(tx, session, FoundCall(waiting))
        if call.status == "running":
            return call, None
        if call.status == "denied":
            raise Conflict(f"tool call {call_id!r} was denied, so it cannot run; the model is told so", found="denied")
        if waiting.start and not again:
            raise Conflict(
                f"it is unknown whether tool call {call_id!r} took effect: the process that ran it is gone; retry it,"
                " or record how it ended with resolve_call",
                found="unknown",
            )
        body: dict[str, Any] = {"call_id": call_id, "name": call.name}
        adds = Numbers()
    else:
        call = ToolCall(call_id, name, arguments, seq=session.seq + 1, entry_id=entry_id(session.uid, session.seq + 1))
        body = {"call_id": call_id, "name": name, "arguments": arguments}
        marks, adds = (("call", call_id), *marks), Numbers(tool_calls=1)
    body |= {"process": dict(process)} if process is not None else {}
    body |= {"paths": [*paths]} if paths is not None else {}
    call = msgspec.structs.replace(call, status="running", attempts=call.attempts + 1)
    return call, Draft(CALL, codec.encode(body), adds=adds, more=More(calls=marks))


# ---------------------------------------------------------------------- which calls a message answers


def settled(tx: Tx, session: SessionRow, drafts: Sequence[Draft]) -> list[Draft]:
    """Tie tool messages to the calls before them, on the path or among these drafts.

    This adds the tool's name, which most providers leave out. Gemini's results may name the tool instead of a call:
    they answer the oldest open call of that tool.
    """
    found = list[Draft]()
    waiting = _waiting(tx, session, drafts)
    for draft in drafts:
        if draft.kind == TOOL_MESSAGE and draft.more is not None:
            small = len(draft.body) <= SMALL
            draft = _settle(tx, session, draft, waiting) if small else _named(draft, draft.more)
        waiting.update(_tools(draft))
        for result in _results(draft):
            waiting.pop(result, None)
        found.append(draft)
    return found


def _waiting(tx: Tx, session: SessionRow, drafts: Sequence[Draft]) -> dict[str, str | OpenCall]:
    """Return the open calls that these drafts may answer: those in the row, or all if they name any other."""
    kept = open_calls.known(session) or ()
    asked = {result for draft in drafts for result in _results(draft)}
    found = kept if asked <= {call.id for call in kept} else open_calls.at(tx, session)
    return {call.id: call for call in found}


def _settle(tx: Tx, session: SessionRow, draft: Draft, waiting: dict[str, str | OpenCall]) -> Draft:
    given, tool = list[str](), None
    results = _results(draft)
    for result in results:
        call_id, name = _answered(tx, session, result, waiting)
        waiting.pop(call_id, None)
        tool = tool or name
        given.append(call_id)
    return _tied(draft, tool, results, given)


def _answered(tx: Tx, session: SessionRow, given: str, waiting: Mapping[str, str | OpenCall]) -> tuple[str, str | None]:
    """Return the call that a result answers, and the name of its tool if known."""

    def name(call: str | OpenCall) -> str:
        return call if isinstance(call, str) else announced(tx, session, call.call, call.id).name

    given = given or by_place([*waiting])
    if not given:
        return given, None
    if given in waiting:
        return given, name(waiting[given])
    for call_id, call in waiting.items():
        if name(call) == given:
            return call_id, given
    return given, name_of(tx, session, given)


def by_place(waiting: Sequence[str]) -> str:
    """Return the call that a result without an id answers: the next one that came without, or the only one open.

    Anything else would be a guess, and gives no call at all.
    """
    nameless = [call_id for call_id in waiting if is_unnamed(call_id)]
    return nameless[0] if nameless else waiting[0] if len(waiting) == 1 else ""


def _named(draft: Draft, more: More) -> Draft:
    """Leave out results that name no call from what a message does to calls."""
    return draft._replace(more=more._replace(calls=tuple([mark for mark in more.calls if mark[1]])))


def _tied(draft: Draft, tool: str | None, results: list[str], given: list[str]) -> Draft:
    """Add to a tool message the name of its tool, and the calls it answers if it does not name them itself."""
    calls = tuple([("result", call_id) for call_id in given if call_id])
    more = (draft.more or More())._replace(calls=calls)
    if given == results and b'"tool_name"' not in draft.body:  # then its name only has to be put in at the end
        body = draft.body[:-1] + b',"tool_name":' + codec.encode(tool) + b"}" if tool else draft.body
        return draft._replace(body=body, more=more)
    value = codec.decode(draft.body)
    if tool and "tool_name" not in value:
        value = {**value, "tool_name": tool}
    if given != results:
        value = {**value, "answers": given}
    return draft._replace(body=codec.encode(value), more=more)


def settled_at_once(draft: Draft, waiting: Mapping[str, str]) -> Draft | None:
    """Tie a tool message to calls whose tools are in ``waiting``; None if one is not."""
    results = _results(draft)
    if not results or len(draft.body) > SMALL or not waiting.keys() >= set(results):
        return None
    tool = next((waiting[result] for result in results if waiting[result]), None)
    return _tied(draft, tool, results, results)


def still_waiting(waiting: Mapping[str, str], drafts: Sequence[Draft]) -> dict[str, str]:
    """Return the calls still open after some messages, each with the name of its tool."""
    found = dict(waiting)
    for draft in drafts:
        tools = _tools(draft)
        for what, call_id in _marks(draft):
            if what == "call":
                found[call_id] = tools.get(call_id, "")
            elif what == "result":
                found.pop(call_id, None)
    return found


def _tools(draft: Draft) -> dict[str, str]:
    """Return the tools of the calls that a message announces."""
    return dict(draft.more.tools) if draft.more else {}


def _marks(draft: Draft) -> Sequence[tuple[str, str]]:
    return draft.more.calls if draft.more else ()


def _results(draft: Draft) -> list[str]:
    return [call_id for what, call_id in _marks(draft) if what == "result"]
