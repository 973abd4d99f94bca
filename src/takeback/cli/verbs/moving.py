"""Points and branches of a session: checkpoint, fork, switch.

What touches files shows its plan first and asks; everything here can be undone.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

import click

from ...client.refs import Resolved
from ...client.session import Session
from ...model import words
from ...shell import documents
from ...shell.failures import USAGE, Stop
from ...shell.points import point_of
from .. import plans
from ..consent import tell
from ..frame import Frame, option, ref_argument, ref_option, verb
from ..output import line
from ..params import directories

if TYPE_CHECKING:
    pass

_PROMPTS = 30
_POINT = re.compile(r"\d+\^?|e\d+", re.ASCII)

# ---------------------------------------------------------------------- checkpoint


@verb("checkpoint", changes=True)
@click.argument("name", required=False)
@ref_option("-s", "--session", "ref", metavar="REF", help="Use this session; default: the newest here.")
@option("-m", "--description", help="A description.")
@option("--no-files", is_flag=True, help="Do not capture files.")
def checkpoint(frame: Frame, name: str | None, ref: str | None, description: str | None, no_files: bool) -> None:
    """Save this point of a session: conversation, work, state and files."""
    if name is not None and _POINT.fullmatch(name):
        raise Stop(f"{name!r} already names a turn or an entry (as do 12, 12^ and e340); choose another name", USAGE)
    session = frame.session(ref)
    short = frame.short(session.id)
    if frame.settings.dry_run:
        called = line(name) if name else "(unnamed)"
        tell(f"Dry run: would save checkpoint {called} at turn {session.turn_count} of {short}.")
        return
    with frame.progress("Checkpoint", "scanning files"):
        made = session.checkpoint(name, description=description, files=not no_files)
    frame.out.one(
        "checkpoint",
        documents.checkpoint(made),
        lambda: [f"Checkpoint {line(made.name)} at turn {made.stats.turns} of {frame.short(session.id)}"],
    )
    if frame.out.for_people:
        if made.not_captured:
            tell(f"Not captured: {', '.join(map(line, made.not_captured))}")
        tell(f"Go back to it with: takeback rewind {line(shlex.quote(f'{short}:{made.name}'))}")


# ---------------------------------------------------------------------- points


def find_point(frame: Frame, point: str | None) -> Resolved[Session]:
    """Find a point; ``:12`` and a bare checkpoint name refer to the default session, or else to the guard."""
    if point is not None and not point.startswith(":"):
        try:
            return frame.resolve(point)
        except Stop as error:
            session = frame.session(None) if frame.workspace is not None else None
            for each in filter(None, (session, frame.guard)):
                if any(made.name == point for made in each.checkpoints()):
                    return frame.resolve(f"{each.id}:{point}")
            if session is not None and point.removesuffix("^").isdigit():
                raise Stop(f"{error}\nFor a turn of the newest session here write :{point}", error.code) from error
            raise
    return frame.resolve(point and f"{frame.session(None).id}{point}")


def find_side(frame: Frame, text: str) -> Resolved[Session]:
    """Find a point, or a branch of the default session by its bare name."""
    if frame.workspace is not None and not {"/", ":"} & {*text}:
        session = frame.session(None)
        if any(each.name == text for each in session.branches()):
            return Resolved(session, text, None, None)
    return find_point(frame, text)


# ---------------------------------------------------------------------- branches


@verb("fork", changes=True)
@ref_argument("point", required=False)
@option("--name", help="Name the new branch or session.")
@option("--session", "as_session", is_flag=True, help="Start a separate session instead of a branch.")
@option(
    "--into",
    metavar="DIR",
    shell_complete=directories,
    help="Start a separate session with the files of that point in DIR, new or empty.",
)
def fork(frame: Frame, point: str | None, name: str | None, as_session: bool, into: str | None) -> None:
    """Start a branch at a point and stay where you are; nothing is copied."""
    found = find_point(frame, point)
    at = point_of(found)
    short = frame.short(found.session.id)
    if frame.settings.dry_run:
        what = "a session" if as_session or into else "a branch"
        where = "the head" if at is None else f"entry {found.seq}"
        tell(f"Dry run: would start {what} at {where} of {short}.")
        return
    if as_session or into:
        made = found.session.fork(at, name=name, as_session=True, into=into)
        new = frame.short(made.id)
        frame.out.one("session", documents.session(made), lambda: [f"Forked {short} into session {new}"])
        return
    branch = found.session.fork(at, name=name)
    said = f"Forked {short} at entry {branch.fork_seq} into branch {line(branch.name)}"
    frame.out.one("branch", documents.branch(branch), lambda: [said])
    if frame.out.for_people:
        tell(f"Switch to it with: takeback switch {line(shlex.quote(f'{short}/{branch.name}'))}")


@verb("switch", changes=True)
@ref_argument("ref")
@option("--files", is_flag=True, help="Switch the files in the workspace too.")
def switch(frame: Frame, ref: str, files: bool) -> None:
    """Switch a session to the tip of a branch: REF/branch, or a branch of the newest session here."""
    session, branch = _branch(frame, ref)
    if files:
        plans.carry_out(frame, session, session.preview_switch(branch), "Switch")
        return
    short = frame.short(session.id)
    if frame.settings.dry_run:
        tell(f"Dry run: would switch {short} to {line(branch)}.")
        return
    was = session.head
    done = session.switch(branch)
    moved = session.refresh().head != was
    said = f"{short} is {'now' if moved else 'already'} on {line(branch)}, at turn {session.turn_count}"
    frame.out.one("operation", documents.operation(done), lambda: [said])
    if frame.out.for_people:
        _tell_of_files(frame, session, branch)
        if moved:
            tell("Take it back with: takeback undo")


def _tell_of_files(frame: Frame, session: Session, branch: str) -> None:
    """Report that the files were not switched, if those of the branch differ."""
    if not session.workspace or not os.path.isdir(session.workspace):
        return
    plan = session.preview_switch(branch)
    if plan.files:
        count = words.count(len(plan.files), "file")
        name = shlex.quote(f"{frame.short(session.id)}/{branch}")
        tell(f"Files were not switched: {count} differ from that branch. Switch them: takeback switch {name} --files")


def _branch(frame: Frame, ref: str) -> tuple[Session, str]:
    """Find a branch by a ref, or by its bare name in the default session."""
    try:
        found = frame.resolve(ref)
    except Stop:
        session = frame.session(None) if frame.workspace is not None else None
        if session is None or all(each.name != ref for each in session.branches()):
            raise
        return session, ref
    if found.branch is None:
        names = ", ".join(each.name for each in found.session.branches())
        raise Stop(f"name a branch: {frame.short(found.session.id)}/NAME; the branches are {names}", USAGE)
    return found.session, found.branch


COMMANDS = {
    "checkpoint": checkpoint,
    "fork": fork,
    "switch": switch,
}
