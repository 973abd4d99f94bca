"""``run``: any program as a session. Its output is recorded as it runs, and what it did to files can be taken back.

The whole run is one turn: the command line is the prompt, the run a tool call whose result is the output. So the
workspace is scanned before and after, and every change in between is attributed to that call.
"""

from __future__ import annotations

import codecs
import os
import shlex
from typing import TYPE_CHECKING, Any

import click

from ...client.session import Session
from ...errors import Error
from ...files import workspaces
from ...model.message import Message
from ...shell import documents
from .. import programs
from ..consent import tell
from ..frame import Frame, option, verb
from ..output import line

if TYPE_CHECKING:
    from ...client.tools import ToolRun
    from ..programs import Program

_KEPT = 1 << 20  # characters of output to keep: the first half and the last half of that many
_MARKS = {"delete": "added", "create": "deleted"}  # what a rewind does is the inverse of what the program did


@verb("run", changes=True, makes=True, context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, metavar="-- CMD...", type=click.UNPROCESSED)
@option("--name", help="Continue the session of this name in this workspace; default: a new one.")
@option("--agent", default="main", show_default=True, help="The agent that owns it.")
def run(frame: Frame, command: tuple[str, ...], name: str | None, agent: str) -> int:
    """Run any program as a session: its output is recorded, and takeback rewind takes back what it did to files.

    The program sees your terminal as usual, finds TAKEBACK_SESSION and TAKEBACK_STORE set, and its exit code is passed
    on. With --json, --jsonl, --fields or -q its output goes to stderr, and the result to stdout.
    """
    program = programs.Program(command, frame.directory, os.environ)
    program.require()
    place = frame.place_of_new()
    if frame.settings.dry_run:
        tell(f"Dry run: would run {line(shlex.join(command))} as a session in {line(place)}.")
        return 0
    fields: dict[str, Any] = {} if (parent := parent_session(frame)) is None else {"kind": "subagent", "parent": parent}
    if (why := _not_captured(place)) is not None:
        fields["capture"] = "off"
    session, ended = frame.store.session(name, agent=agent, workspace=place, **fields), list[int]()
    if why is not None:
        session.capture_error = why
    if place != frame.directory and frame.out.for_people:
        tell(f"takeback: the workspace is {line(place)}")
    file = _file(frame)
    try:
        with session:
            prompt = session.user(shlex.join(command))
            _record(frame, session, program, ended)
            _end(session, ended[0])
        if file is not None and _file(frame) != file:  # we wrote to a deleted file
            tell(f"takeback: the store {line(frame.shown_url)} was deleted or replaced meanwhile, so this run is lost")
        else:
            _report(frame, session, prompt, ended[0])
    except Error as error:
        if not ended:
            raise
        tell(f"takeback: the run was not fully recorded: {line(str(error))}")  # still pass its exit code on
    return programs.exit_code(ended[0])


def _not_captured(place: str) -> str | None:
    """Explain, in the words of sessions, why a workspace is not captured; None if it can be."""
    why = workspaces.why_not(place)
    return None if why is None else f"the workspace {place!r} is not captured: {why}"


def _file(frame: Frame) -> tuple[int, int] | None:
    """Return device and inode of the store's file; None if it is not a file, or gone."""
    try:
        found = os.stat(frame.url.removeprefix("sqlite:///"))
    except OSError:
        return None
    return found.st_dev, found.st_ino


def parent_session(frame: Frame) -> str | None:
    """Return the id of the session that this command runs in, if it is in this store."""
    wanted = os.environ.get("TAKEBACK_SESSION")
    found = None if not wanted else frame.store.find_session(wanted)
    return None if found is None else found.id


def environment(frame: Frame, session: Session) -> dict[str, str]:
    """Return the environment in which a program finds its session."""
    url = frame.url if "://" in frame.url else os.path.realpath(frame.url)
    return {**os.environ, "TAKEBACK_SESSION": session.id, "TAKEBACK_STORE": url}


# ---------------------------------------------------------------------- recording


class _Output:
    """Records a program's output as text; a failing store stops the recording, never the program."""

    def __init__(self, running: ToolRun) -> None:
        self._running, self._decoder = running, codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self.failure: Error | None = None

    def hear(self, data: bytes, *, last: bool = False) -> None:
        """Record a piece of output."""
        text = self._decoder.decode(data, last)
        if text and self.failure is None:
            try:
                self._running.write(text)
            except Error as error:
                self.failure = error


def _record(frame: Frame, session: Session, program: Program, ended: list[int]) -> None:
    """Run the program as a tool call; its return code is added to ``ended`` even if recording fails."""
    given = {"command": [*program.arguments], "directory": program.directory}
    results = programs.STDOUT if frame.out.for_people else programs.STDERR
    with session.tool("run", given, keep=_KEPT) as running:
        output = _Output(running)
        ended.append(programs.run(program._replace(env=environment(frame, session)), output.hear, results=results))
        output.hear(b"", last=True)
        if output.failure is not None:
            raise output.failure
        badly = programs.how_it_ended(ended[0])
        running.result() if badly is None else running.error(badly)


def _end(session: Session, returncode: int) -> None:
    """Record in the session how the program ended."""
    badly = programs.how_it_ended(returncode)
    if badly is None:
        session.complete({"exit_code": 0})
    else:
        session.fail(badly)


# ---------------------------------------------------------------------- what it did


def _report(frame: Frame, session: Session, prompt: Message, returncode: int) -> None:
    point = f"{frame.short(session.id)}:{prompt.turn}^"
    counts = _changes(session, prompt)
    document = {
        "id": session.id,
        "exit_code": programs.exit_code(returncode),
        "point": f"{session.id}:{prompt.turn}^",
        "files": counts,
        "not_captured": session.capture_error,
        "session": documents.session(session.refresh()),
    }
    frame.out.one("run", document, lambda: ())
    if frame.out.for_people:
        tell(f"takeback: {_words(session, counts, point)}")


def _changes(session: Session, prompt: Message) -> dict[str, int]:
    """Count the files that the program added, changed and deleted."""
    counts = {"added": 0, "changed": 0, "deleted": 0}
    for each in session.preview_rewind(prompt, conversation=False).files if session.capture_error is None else ():
        if each.action not in ("mkdir", "rmdir"):
            counts[_MARKS.get(each.action, "changed")] += 1
    return counts


def _words(session: Session, counts: dict[str, int], point: str) -> str:
    place = session.workspace or ""
    if workspaces.is_gone(place) and workspaces.GONE_WITH_PARENT in (session.capture_error or ""):
        back = shlex.join(["takeback", "fork", point, "--into", f"{place}.before"])
        return f"the workspace {line(place)} is gone. Restore its files to a new directory with: {line(back)}"
    if workspaces.is_gone(place) and session.capture_error is None:
        return f"the workspace {line(place)} is gone. Make it again with: takeback rewind {point}"
    if session.capture_error is not None:
        return f"files were not captured: {line(session.capture_error)} (session {point.partition(':')[0]})"
    if not any(counts.values()):
        return f"no files changed (session {point.partition(':')[0]})"
    marks = " ".join(f"{mark} {counts[what]}" for mark, what in (("A", "added"), ("M", "changed"), ("D", "deleted")))
    return f"files {marks}. Take it back with: takeback rewind {point}"


COMMANDS = {"run": run}
