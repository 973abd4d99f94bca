"""``show``: a session as people read it, turn by turn or as Markdown. Long ones are read in pages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import click

from ...client.overview import overview
from ...client.reading import Reading
from ...client.refs import Resolved
from ...model import words
from ...model.message import MESSAGE_KINDS, Message
from ...model.tools import ToolCall, ToolResult
from ...shell import documents, times
from ...shell.failures import NOT_FOUND, Stop
from ...shell.points import point_of
from .. import entries
from ..frame import Frame, option, ref_argument, verb
from ..output import block, line
from ..params import Value

_SHORT = 100


def _turns(text: str) -> tuple[int, int | None]:
    """Parse a turn or a range of turns: 12, 10-20, 10-, -20."""
    before, dash, behind = text.partition("-")
    sound = all(each == "" or (each.isascii() and each.isdigit() and len(each) < 10) for each in (before, behind))
    if not sound or not (before or behind):
        raise ValueError(f"{text!r} is not a range of turns; write 12, 10-20, 10- or -20")
    first = int(before or 0)
    last = int(behind) if behind else None if dash else first
    if last is not None and last < first:
        raise ValueError(f"the range {text!r} ends before it begins")
    return first, last


TOOLS = ("full", "short", "none")
_ENTRY = re.compile(r":e\d+$")


@verb("show", reads=True)
@ref_argument("ref", required=False)
@option("--turns", type=Value("range", _turns), help="Only these turns: 12, 10-20, 10-, -20.")
@option("--tools", type=click.Choice(TOOLS), default="short", show_default=True)
@option("--md", is_flag=True, help="Write Markdown.")
def show(frame: Frame, ref: str | None, turns: tuple[int, int | None] | None, tools: str, md: bool) -> None:
    """Print a session; REF:12 prints it up to the end of turn 12, REF:e340 up to entry 340, and that in full."""
    found = frame.resolve(ref)
    after, before = _bounds(frame, found, turns)
    said = _messages(found, after, before, tools)
    asked = Asked(found.session)
    opened = found.seq if ref is not None and _ENTRY.search(ref) else None
    write = _Markdown(tools, asked) if md else Plain(frame, tools, asked, opened=opened)
    frame.out.items(
        "messages",
        (documents.message(each, asked.of(each)) for each in said),
        lambda: write.all(found.session, said),
        about={"session": documents.session(found.session)} if frame.settings.json else None,
        long=True,
    )


def _bounds(frame: Frame, found: Resolved[Any], turns: tuple[int, int | None] | None) -> tuple[int, int | None]:
    """Return the entry to start after, and the entry to stop before."""
    if turns is None:
        return 0, None
    first, last = turns
    count = found.session.stats(point_of(found)).turns
    if first > count:
        raise Stop(f"no such turn: {first}; the session has turns 1 to {count}", NOT_FOUND)
    after = _end_of(frame, found, first - 1) if first > 0 else 0
    return after, None if last is None or last >= count else _end_of(frame, found, last) + 1


def _end_of(frame: Frame, found: Resolved[Any], turn: int) -> int:
    branch = "" if found.branch is None else f"/{found.branch}"
    return frame.reading.resolve(f"{found.session.id}{branch}:{turn}").seq or 0


def _messages(found: Resolved[Any], after: int, before: int | None, tools: str) -> Iterator[Message]:
    for message in found.session.iter_messages(after=after, tools=tools != "none", at=point_of(found)):
        if before is not None and (not message.seq or message.seq >= before):
            return
        yield message


class Asked:
    """Finds the arguments of tool calls that no message announced: programs report them when they start a tool."""

    def __init__(self, session: Reading) -> None:
        self._session, self._announced = session, set[str]()
        self._calls = dict[str, ToolCall | None]()  # None for calls that are not on this path

    def of(self, message: Message) -> dict[str, ToolCall]:
        """Return the calls, by id, that a message answers and no earlier message announced."""
        return self.answered(message.tool_calls, message.tool_results)

    def answered(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> dict[str, ToolCall]:
        """Do the same for the calls and results of a message."""
        self._announced |= {call.id for call in calls}
        wanted = {each.call_id for each in results} - self._announced
        if not wanted <= self._calls.keys():
            self._calls |= dict.fromkeys(wanted)
            self._calls |= {call.id: call for call in self._session.tool_calls()}
        return {call_id: call for call_id in wanted if (call := self._calls[call_id]) is not None}


# ---------------------------------------------------------------------- for people


class Plain:
    """Writes messages as text."""

    def __init__(self, frame: Frame, tools: str, asked: Asked, *, opened: int | None = None) -> None:
        self._frame, self._out, self.tools, self._asked = frame, frame.out, tools, asked
        self._opened = opened  # the entry that was asked for
        self._turn = -1

    def all(self, session: Reading, messages: Iterator[Message]) -> Iterator[str]:
        """Yield a session's heading and messages."""
        yield from heading(self._frame, session)
        yield from self.those(messages)
        if self._opened is not None:
            yield from self._other(session, self._opened)
        if overview(session).asked:
            yield from self._questions(session)

    def those(self, messages: Iterator[Message]) -> Iterator[str]:
        """Yield messages, each turn under a line of its own."""
        for message in messages:
            if message.turn != self._turn:
                self._turn = message.turn
                yield ""
                when = times.ago(message.created_at)
                yield self._out.paint(f"-- turn {message.turn}, {when}", "dim") if message.turn else ""
            yield from self._message(message)

    def _other(self, session: Reading, seq: int) -> Iterator[str]:
        """Yield an entry that is no message, such as a note: somebody asked for it."""
        for entry in session.entries(after=seq - 1, before=seq + 1):
            if entry.kind not in MESSAGE_KINDS:
                yield ""
                yield self._out.paint(f"entry {seq}", "bold")
                yield from (f"  {each}" for text in entries.said(entry) for each in block(text))

    def _questions(self, session: Reading) -> Iterator[str]:
        """Yield what a person was asked about open calls, and the answers."""
        yield ""
        for asked in session.approvals():
            what = f"{line(asked.call.name)}{f': {line(asked.question)}' if asked.question else ''}"
            if asked.approved is None:
                hint = f"takeback approve {self._frame.short(session.id)}, or deny"
                yield self._out.paint("?", "yellow") + f" {what} (asked {times.ago(asked.asked_at)}): {hint}"
                continue
            by, note = f" by {line(asked.by)}" if asked.by else "", f": {line(asked.note)}" if asked.note else ""
            yield f"{self._out.paint(asked.status, 'yellow')} {what}{by}{note}"

    def _message(self, message: Message) -> Iterator[str]:
        results, text = message.tool_results, message.text  # each access decodes the raw message
        if not results:
            state = "" if message.status == "complete" else f" ({message.status})"
            yield self._out.paint(f"{line(message.role)}{state}", _STYLES.get(message.role, "bold"))
            yield from (f"  {each}".rstrip() for each in block(text)) if text else ()
            yield from (f"  {each}" for each in _attached(message))
        if self.tools == "none":
            return
        calls, full = message.tool_calls, self.tools == "full" or message.seq == self._opened
        for call in calls:
            first, *rest = self._shortened(documents.compact(call.arguments), full=full)
            yield f"  -> {line(call.name)} {first}"
            yield from (f"  {each}" for each in rest)
        asked = self._asked.answered(calls, results)
        for result in results:
            name = line(result.name or message.tool_name or result.call_id)
            if (start := asked.get(result.call_id)) is not None and start.arguments:
                yield f"-> {name} {self._shortened(documents.compact(start.arguments), full=full)[0]}"
            state = self._out.paint(result.outcome, _OUTCOMES[result.outcome])
            first, *rest = self._shortened(documents.said(result), full=full)
            yield self._out.paint(f"tool {name}", "bold") + f" {state}: {first}"
            yield from (f"  {each}" for each in rest)

    def _shortened(self, text: str, *, full: bool) -> list[str]:
        if full:
            return block(text)
        flat = " ".join(text.split())
        return [line(flat if len(flat) <= _SHORT else f"{flat[: _SHORT - 3]}...")]


def _attached(message: Message) -> list[str]:
    """Name what is attached to a message, if there is anything."""
    names = [each.name or f"{each.type} without a name" for each in message.attachments]
    return [f"attached: {', '.join(map(line, names))}"] if names else []


_OUTCOMES = {"ok": "green", "failed": "red", "denied": "yellow"}
_STYLES = {"user": "cyan", "assistant": "green"}


def heading(frame: Frame, session: Reading) -> Iterator[str]:
    """Yield a few lines that identify a session."""
    out, utc = frame.out, frame.out.utc
    title = line(session.title or session.name or "untitled")
    name = f", named {line(session.name)}" if session.name and session.name != session.title else ""
    seen = overview(session)
    stats = seen.stats
    yield f"{out.paint(seen.short, 'cyan')} {out.paint(title, 'bold')}{name}"
    tokens = f"{words.short_number(stats.estimated_tokens)} tokens"
    cost = f", {words.money(stats.usage.cost)}" if stats.usage.cost else ""
    branch = line(seen.branch)
    state = f"in the trash, {session.status}" if session.deleted else session.status
    turns = words.count(session.turn_count, "turn")
    yield f"  agent {line(session.agent_id)}, {session.kind}, branch {branch}, {turns}, {tokens}{cost}, {state}"
    began, last = times.both(session.created_at, utc=utc), times.both(session.last_message_at, utc=utc)
    yield f"  began {began}, last message {last}"
    if session.workspace:
        yield f"  workspace {line(session.workspace)}"
    if session.holder is not None:
        yield f"  run by {line(str(session.holder))}"
    if session.error:
        yield f"  error: {line(session.error)}"
    if session.tags:
        yield f"  tags {', '.join(map(line, session.tags))}"


class _Markdown:
    """Writes messages as Markdown."""

    def __init__(self, tools: str, asked: Asked) -> None:
        self._tools, self._asked = tools, asked

    def all(self, session: Reading, messages: Iterator[Message]) -> Iterator[str]:
        yield f"# {line(session.title or session.name or 'Session')}"
        turn = 0
        for message in messages:
            if message.turn != turn:
                turn = message.turn
                yield from ("", f"## Turn {turn}")
            yield from self._message(message)

    def _message(self, message: Message) -> Iterator[str]:
        said = block(message.text) if message.text else []
        said += _attached(message)
        if said and not message.tool_results:
            quoted = (f"> {each}".rstrip() for each in said)  # so that no text looks like a heading
            yield from ("", f"**{line(message.role)}**", "", *quoted)
        if self._tools == "none":
            return
        for call in message.tool_calls:
            yield from ("", f"**calls {line(call.name)}**", *_fenced(documents.compact(call.arguments), self._tools))
        asked = self._asked.of(message)
        for result in message.tool_results:
            name = line(result.name or message.tool_name or result.call_id)
            if (start := asked.get(result.call_id)) is not None and start.arguments:
                yield from ("", f"**calls {name}**", *_fenced(documents.compact(start.arguments), self._tools))
            failed = "" if result.success else f" ({result.outcome})"
            yield from ("", f"**{name}**{failed}", *_fenced(documents.said(result), self._tools))


def _fenced(text: str, tools: str) -> list[str]:
    """Write a text as a code block, with a fence longer than any in it."""
    import re

    shown = text if tools == "full" or len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", shown)), default=0))
    return ["", fence, *block(shown), fence]


COMMANDS = {"show": show}
