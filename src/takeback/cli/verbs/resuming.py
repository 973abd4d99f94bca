"""``resume``: shows where a session stopped and what is open, and changes nothing; ``--exec`` starts a program."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Any

from ...client.session import Session
from ...model import words
from ...shell import documents, times
from ...shell.failures import USAGE, Stop
from .. import programs
from ..frame import Frame, option, ref_argument, verb
from ..output import line
from .reading import heading
from .running import environment

_CUT = 200


@verb("resume")
@ref_argument("ref", required=False)
@option("--exec", "command", metavar="CMD", help="Run CMD with TAKEBACK_SESSION and TAKEBACK_STORE set.")
def resume(frame: Frame, ref: str | None, command: str | None) -> int | None:
    """Show where a session stopped and what is open; with --exec run a program that continues it."""
    session = frame.session(ref)
    if command is not None:
        return _run(frame, session, command)
    frame.out.one("resume", _document(session), lambda: _lines(frame, session))
    return None


def _document(session: Session) -> dict[str, Any]:
    last = session.messages(limit=1)
    return {
        "id": session.id,
        "session": documents.session(session),
        "open_calls": [documents.call(each) for each in session.pending_calls()],
        "approvals": [each.call.id for each in session.approvals() if each.approved is None],
        "inbox": len(session.inbox()),
        "open_tasks": [each.description for each in session.tasks() if each.status in ("pending", "in_progress")],
        "rewind_pending": session.rewind_pending(),
        "last_message": documents.message(last[0]) if last else None,
    }


def _lines(frame: Frame, session: Session) -> Iterator[str]:
    yield from heading(frame, session)
    yield from _stopped(session)
    said = [each for each in session.messages(limit=10, tools=False) if each.text.strip()]  # some hold only calls
    for each in said[-2:]:
        text = " ".join(each.text.split())
        state = "" if each.status == "complete" else f" ({each.status})"
        yield f"  last {line(each.role)}{state}: {line(text[:_CUT])}{'...' if len(text) > _CUT else ''}"
    for call in session.pending_calls():
        yield f"  open call {line(call.name)} ({_CALLS.get(call.status, call.status)})"
    waiting = [each for each in session.approvals() if each.approved is None]
    if waiting:
        yield f"  {words.count(len(waiting), 'approval')} waiting for an answer"
    if sent := session.inbox():
        yield f"  {words.count(len(sent), 'message')} in the inbox"
    for task in session.tasks():
        if task.status in ("pending", "in_progress"):
            yield f"  open task: {line(task.description)}"
    if pending := session.rewind_pending():
        yield f"  {line(pending)}; the next run fixes that"
    yield f"  continue: takeback resume {frame.short(session.id)} --exec 'your-agent'"


# The status of a call, for somebody who decides what to do with it.
_CALLS = {"pending": "not started", "running": "running", "unknown": "started; it may or may not have taken effect"}


def _stopped(session: Session) -> Iterator[str]:
    if session.holder is not None:
        yield f"  in use by {line(str(session.holder))}"
    elif session.status == "interrupted":
        turn = "" if session.stopped_at is None else f" in turn {session.stopped_at}"
        times_ = f", {session.crashes} times in a row" if session.crashes > 1 else ""
        yield f"  interrupted{turn}{times_}"
    elif session.status == "active":
        yield f"  not running; last closed cleanly {times.ago(session.updated_at)}"
    else:
        yield f"  {session.status}; opening it again resumes it"


def _run(frame: Frame, session: Session, command: str) -> int:
    """Run a program in the session's workspace and return its exit code."""
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise Stop(f"--exec cannot be parsed: {error}", USAGE) from error
    if not arguments:
        raise Stop("--exec needs a program to run", USAGE)
    place = session.workspace if session.workspace and os.path.isdir(session.workspace) else None
    program = programs.Program(arguments, place, environment(frame, session))
    program.require()
    frame.store.close()  # before the program starts: it may need the store to itself
    return programs.exit_code(programs.run(program))


COMMANDS = {"resume": resume}
