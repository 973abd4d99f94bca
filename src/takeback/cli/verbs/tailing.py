"""``tail``: the end of a session, and new messages as they arrive."""

from __future__ import annotations

import contextlib
import sys

import click

from ...client.session import Session
from ...model.message import Message
from ...shell import documents
from ..consent import tell
from ..frame import Frame, option, ref_argument, verb
from .reading import TOOLS, Asked, Plain


@verb("tail")
@ref_argument("ref", required=False)
@option("-f", "--follow", is_flag=True, help="Print new messages as they arrive, until Ctrl-C.")
@option("-n", "--lines", "count", type=click.IntRange(0), default=10, show_default=True, help="Number of messages.")
@option("--tools", type=click.Choice(TOOLS), default="short", show_default=True)
def tail(frame: Frame, ref: str | None, follow: bool, count: int, tools: str) -> None:
    """Show the last messages of a session; -f follows it live."""
    session = frame.session(ref)
    asked = Asked(session)
    write = Plain(frame, tools, asked)
    cursor = _now(frame) if follow else None  # before reading, so that no message falls in between
    said = [each for each in session.messages(limit=count, tools=tools != "none") if each.seq or not follow]
    seen = max((each.seq for each in said), default=session.refresh().head.seq)
    if frame.settings.json:
        about = {"session": documents.session(session)}
        frame.out.items("messages", (documents.message(each, asked.of(each)) for each in said), lambda: (), about=about)
        return
    _show(frame, write, asked, said)
    if follow:
        with contextlib.suppress(KeyboardInterrupt):  # the normal way to stop following
            _follow(frame, session, write, asked, seen, cursor)


def _now(frame: Frame) -> str | None:
    """Return the cursor of the last event in the feed."""
    cursor = None
    for change in frame.store.events():
        cursor = change.cursor
    return cursor


def _show(frame: Frame, write: Plain, asked: Asked, messages: list[Message]) -> None:
    described = (documents.message(each, asked.of(each)) for each in messages)
    frame.out.items("messages", described, lambda: write.those(iter(messages)))
    sys.stdout.flush()


def _follow(frame: Frame, session: Session, write: Plain, asked: Asked, seen: int, cursor: str | None) -> None:
    for change in frame.store.follow(cursor):
        if change.session_id != session.id:
            continue
        head = session.refresh().head.seq
        if head < seen:
            tell(f"went back to turn {session.turn_count}")
            seen = head
        fresh = [each for each in session.iter_messages(after=seen, tools=write.tools != "none") if each.seq]
        seen = head
        _show(frame, write, asked, fresh)


COMMANDS = {"tail": tail}
