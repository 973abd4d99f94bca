"""Files and messages over time: what differs between two points, and a file as it was."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from ...client.points import Point
from ...client.refs import Resolved
from ...client.session import Session
from ...model.files import Diff
from ...shell import documents
from ...shell.failures import USAGE, Stop
from ...shell.points import point_of
from .. import plans
from ..consent import tell
from ..frame import Frame, option, ref_argument, verb
from ..output import block, line
from ..params import files
from . import status
from .moving import find_point, find_side


@verb("diff")
@ref_argument("a", required=False)
@ref_argument("b", required=False)
@option("--stat", is_flag=True, help="Only paths and line counts.")
@option("--files", "only_files", is_flag=True, help="Only files, not messages.")
def diff(frame: Frame, a: str | None, b: str | None, stat: bool, only_files: bool) -> None:
    """Show how files and messages differ between two points; without B, between A and now.

    Without A, the start is the last checkpoint of the newest session here, or its beginning.
    """
    first = find_point(frame, None) if a is None else find_side(frame, a)
    second = None if b is None else _same_session(first.session, find_side(frame, b))
    if a is None and frame.out.for_people:
        tell(f"{_beginning(first.session)}, in {frame.short(first.session.id)}:")
    found = first.session.diff(_since(first), second)
    said = Diff(found.files, (), ()) if only_files else found
    frame.out.items(
        "changes",
        (documents.file_diff(each) for each in said.files),
        lambda: _stat(frame, said) if stat else _whole(frame, said),
        about={"session_id": first.session.id, "removed_messages": [*said.left], "added_messages": [*said.right]},
        long=True,
    )
    if not said and frame.out.for_people:
        tell("No differences.")


def _since(found: Resolved[Session]) -> Point:
    """Return the point to compare from: the named one, else the last checkpoint, else the beginning."""
    named = point_of(found)
    if named is not None:
        return named
    made = found.session.checkpoints(newest=True, limit=1)
    return made[0].id if made else 0


def _beginning(session: Session) -> str:
    """Describe the starting point when none was named."""
    made = session.checkpoints(newest=True, limit=1)
    return f"Since checkpoint {line(made[0].name)}" if made else "Since the beginning"


def _same_session(session: Session, found: Resolved[Session]) -> Point | None:
    if found.session.id != session.id:
        raise Stop("both points must belong to the same session", USAGE)
    return point_of(found)


def _stat(frame: Frame, found: Diff) -> Iterator[str]:
    yield from _messages(frame, found)
    yield from (status.change_line(frame, each) for each in found.files)


def _whole(frame: Frame, found: Diff) -> Iterator[str]:
    yield from _messages(frame, found)
    for each in found.files:
        yield from plans.colored(frame, each.text)


def _messages(frame: Frame, found: Diff) -> Iterator[str]:
    yield from (frame.out.paint(f"- {line(each)}", "red") for each in found.left)
    yield from (frame.out.paint(f"+ {line(each)}", "green") for each in found.right)


@verb("cat")
@ref_argument("ref")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", shell_complete=files)
def cat(frame: Frame, ref: str, paths: tuple[str, ...]) -> None:
    """Print a file as it was at a point: takeback cat REF:12 -- PATH. A pipe gets the exact bytes."""
    found = find_point(frame, ref)
    point = point_of(found)
    at = found.session.head.seq if point is None else point
    for path in paths:
        data = found.session.file_at(path, at)
        if frame.out.is_terminal:
            frame.out.text(block(data.decode("utf-8", "backslashreplace").removesuffix("\n")), long=True)
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)


COMMANDS = {"diff": diff, "cat": cat}
