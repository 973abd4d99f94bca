"""A session as people read it: ``show`` turn by turn or as Markdown, ``tail`` live. Long ones are read in pages."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import click

from ...client.refs import Resolved
from ...client.session import Session
from ...model import words
from ...model.message import Message
from .. import documents, times
from ..consent import tell
from ..failing import NOT_FOUND, Stop
from ..frame import Frame, point_of, ref_argument, verb
from ..output import block, line

_SHORT = 100


class Turns(click.ParamType[tuple[int, int | None]]):
    """A turn or a range of them: 12, 10-20, 10-, -20."""

    name = "range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"(\d{0,9})(-?)(\d{0,9})", value, re.ASCII)
        if not found or not (found[1] or found[3]):
            self.fail(f"{value!r} is no range of turns; write 12, 10-20, 10- or -20", param, ctx)
        first = int(found[1] or 0)
        last = int(found[3]) if found[3] else None if found[2] else first
        if last is not None and last < first:
            self.fail(f"the range {value!r} ends before it begins", param, ctx)
        return first, last


@verb("show")
@ref_argument("ref", required=False)
@click.option("--turns", type=Turns(), help="Only these: 12, 10-20, 10-, -20.")
@click.option("--tools", type=click.Choice(["full", "short", "none"]), default="short", show_default=True)
@click.option("--md", is_flag=True, help="As Markdown.")
def show(frame: Frame, ref: str | None, turns: tuple[int, int | None] | None, tools: str, md: bool) -> None:
    """Read a session; REF:12 reads it up to the end of turn 12."""
    found = frame.resolve(ref)
    after, before = _bounds(frame, found, turns)
    said = _messages(found, after, before, tools)
    write = _Markdown(tools) if md else _Plain(frame, tools)
    frame.out.items(
        "messages",
        map(documents.message, said),
        lambda: write.all(found.session, said),
        about={"session": documents.session(found.session)} if frame.settings.json else None,
        long=True,
    )


def _bounds(frame: Frame, found: Resolved[Session], turns: tuple[int, int | None] | None) -> tuple[int, int | None]:
    """Give the seq behind which to begin, and the one before which to end."""
    if turns is None:
        return 0, None
    first, last = turns
    count = found.session.stats(point_of(found)).turns
    if first > count:
        raise Stop(f"the session has turns 1 to {count}; there is no turn {first}", NOT_FOUND)
    after = _end_of(frame, found, first - 1) if first > 0 else 0
    return after, None if last is None or last >= count else _end_of(frame, found, last) + 1


def _end_of(frame: Frame, found: Resolved[Session], turn: int) -> int:
    branch = "" if found.branch is None else f"/{found.branch}"
    return frame.store.resolve(f"{found.session.id}{branch}:{turn}").seq or 0


def _messages(found: Resolved[Session], after: int, before: int | None, tools: str) -> Iterator[Message]:
    for message in found.session.iter_messages(after=after, tools=tools != "none", at=point_of(found)):
        if before is not None and (not message.seq or message.seq >= before):
            return
        yield message


# ---------------------------------------------------------------------- for people


class _Plain:
    """Writes messages as text."""

    def __init__(self, frame: Frame, tools: str) -> None:
        self._frame, self._out, self.tools = frame, frame.out, tools
        self._turn = -1

    def all(self, session: Session, messages: Iterator[Message]) -> Iterator[str]:
        """Write a session from its heading on."""
        yield from heading(self._frame, session)
        yield from self.those(messages)

    def those(self, messages: Iterator[Message]) -> Iterator[str]:
        """Write messages; each turn begins with a line of its own."""
        for message in messages:
            if message.turn != self._turn:
                self._turn = message.turn
                yield ""
                when = times.ago(message.created_at)
                yield self._out.paint(f"-- turn {message.turn}, {when}", "dim") if message.turn else ""
            yield from self._message(message)

    def _message(self, message: Message) -> Iterator[str]:
        if not message.tool_results:
            state = "" if message.status == "complete" else f" ({message.status})"
            yield self._out.paint(f"{line(message.role)}{state}", _STYLES.get(message.role, "bold"))
            yield from (f"  {each}".rstrip() for each in block(message.text)) if message.text else ()
        if self.tools == "none":
            return
        for call in message.tool_calls:
            yield f"  -> {line(call.name)} {self._shortened(documents.compact(call.arguments))[0]}"
        for result in message.tool_results:
            name = line(result.name or message.tool_name or result.call_id)
            state = self._out.paint("ok", "green") if result.success else self._out.paint("failed", "red")
            first, *rest = self._shortened(documents.said(result))
            yield self._out.paint(f"tool {name}", "bold") + f" {state}: {first}"
            yield from (f"  {each}" for each in rest)

    def _shortened(self, text: str) -> list[str]:
        if self.tools == "full":
            return block(text)
        flat = " ".join(text.split())
        return [line(flat if len(flat) <= _SHORT else f"{flat[: _SHORT - 3]}...")]


_STYLES = {"user": "cyan", "assistant": "green"}


def heading(frame: Frame, session: Session) -> Iterator[str]:
    """Say in a few lines which session this is."""
    out, utc = frame.out, frame.out.utc
    title = line(session.title or session.name or "untitled")
    name = f", named {line(session.name)}" if session.name and session.name != session.title else ""
    yield f"{out.paint(frame.short(session.id), 'cyan')} {out.paint(title, 'bold')}{name}"
    stats = session.stats()
    tokens = f"{words.short_number(stats.estimated_tokens)} tokens"
    cost = f", {words.money(stats.usage.cost)}" if stats.usage.cost else ""
    branch = line(documents.head_branch(session))
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
    """Writes messages as a Markdown document."""

    def __init__(self, tools: str) -> None:
        self._tools = tools

    def all(self, session: Session, messages: Iterator[Message]) -> Iterator[str]:
        yield f"# {line(session.title or session.name or 'Session')}"
        turn = 0
        for message in messages:
            if message.turn != turn:
                turn = message.turn
                yield from ("", f"## Turn {turn}")
            yield from self._message(message)

    def _message(self, message: Message) -> Iterator[str]:
        if message.text and not message.tool_results:
            yield from ("", f"**{line(message.role)}**", "", *block(message.text))
        if self._tools == "none":
            return
        for call in message.tool_calls:
            yield from ("", f"**calls {line(call.name)}**", *_fenced(documents.compact(call.arguments), self._tools))
        for result in message.tool_results:
            name = line(result.name or message.tool_name or result.call_id)
            failed = "" if result.success else " (failed)"
            yield from ("", f"**{name}**{failed}", *_fenced(documents.said(result), self._tools))


def _fenced(text: str, tools: str) -> list[str]:
    """Write a text as a block of code; the fence is longer than any in it."""
    shown = text if tools == "full" or len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", shown)), default=0))
    return ["", fence, *block(shown), fence]


# ---------------------------------------------------------------------- following


@verb("tail")
@ref_argument("ref", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with each new message until Ctrl-C.")
@click.option(
    "-n", "--lines", "count", type=click.IntRange(0), default=10, show_default=True, help="How many messages."
)
@click.option("--tools", type=click.Choice(["full", "short", "none"]), default="short", show_default=True)
def tail(frame: Frame, ref: str | None, follow: bool, count: int, tools: str) -> None:
    """Show the last messages of a session; -f follows it live."""
    session = frame.session(ref)
    write = _Plain(frame, tools)
    cursor = _now(frame) if follow else None
    said = [each for each in session.messages(limit=count, tools=tools != "none") if each.seq or not follow]
    seen = max((each.seq for each in said), default=session.refresh().head.seq)
    if frame.settings.json:
        about = {"session": documents.session(session)}
        frame.out.items("messages", map(documents.message, said), lambda: (), about=about)
        return
    _show(frame, write, iter(said))
    if follow:
        _follow(frame, session, write, seen, cursor)


def _now(frame: Frame) -> str | None:
    """Give the place of the feed behind everything that is there."""
    cursor = None
    for change in frame.store.events():
        cursor = change.cursor
    return cursor


def _show(frame: Frame, write: _Plain, messages: Iterator[Message]) -> None:
    frame.out.items("messages", map(documents.message, messages), lambda: write.those(messages))
    sys.stdout.flush()


def _follow(frame: Frame, session: Session, write: _Plain, seen: int, cursor: str | None) -> None:
    for change in frame.store.follow(cursor):
        if change.session_id != session.id:
            continue
        head = session.refresh().head.seq
        if head < seen:
            tell(f"went back to turn {session.turn_count}")
            seen = head
        fresh = [each for each in session.iter_messages(after=seen, tools=write.tools != "none") if each.seq]
        seen = head
        _show(frame, write, iter(fresh))


COMMANDS = {"show": show, "tail": tail}
