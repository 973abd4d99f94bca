"""Going back and forth: checkpoint, rewind, undo, redo, fork, switch.

Whatever touches files shows its plan first and asks; everything here can be undone.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ...client.refs import Resolved
from ...client.session import Session
from ...errors import Invalid
from ...model import words
from ...model.operation import Operation
from ...shell import documents, times
from ...shell.failures import CONFLICT, NOT_FOUND, USAGE, Stop
from .. import plans
from ..consent import choose, is_terminal, tell
from ..frame import Frame, option, point_of, ref_argument, ref_option, verb
from ..output import line
from ..params import directories, files
from . import history

if TYPE_CHECKING:
    from ...client.rewind import Rewind

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
        tell(f"Dry run: would save checkpoint {name or '(unnamed)'} at turn {session.turn_count} of {short}.")
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


# ---------------------------------------------------------------------- rewind


@verb("rewind", changes=True)
@ref_argument("point", required=False)
@option("--files", "only_files", is_flag=True, help="Rewind only files, not the conversation.")
@option("--conversation", "only_conversation", is_flag=True, help="Rewind only the conversation, not files.")
@option("--overwrite", multiple=True, metavar="PATH", shell_complete=files, help="Revert your own edit of PATH too.")
@option("--take-over", is_flag=True, help="Take the session from whoever is running it.")
def rewind(
    frame: Frame,
    point: str | None,
    only_files: bool,
    only_conversation: bool,
    overwrite: tuple[str, ...],
    take_over: bool,
) -> None:
    """Go back to a point in a session, after a preview and a confirmation; undo takes it back.

    POINT is REF:12 (the end of turn 12), REF:12^ (before it), REF:name (a checkpoint), or :12 and :name in the newest
    session here. Without a point, a terminal lists the prompts to choose from.
    """
    if only_files and only_conversation:
        raise Stop("--files and --conversation exclude each other; without either, both go back", USAGE)
    for path in overwrite:
        if path.startswith("-"):
            raise Stop(
                f"--overwrite needs a path, not {path!r}; write a path that starts with a dash as ./{path}", USAGE
            )
    found = find_point(frame, point)
    if found.seq is None and found.branch is None:
        chosen = _chosen(frame, found.session)
        if chosen is None:
            return
        found = chosen
    target = point_of(found)
    if target is None or found.seq is None:
        raise Stop(f"{point!r} names a branch; switch to it with: takeback switch {point}", USAGE)
    with frame.progress("Rewind", "scanning files"):
        plan = found.session.preview_rewind(
            target, files=not only_conversation, conversation=not only_files, overwrite=overwrite
        )
    plans.Plan(frame, found.session, plan, "Rewind").carry_out(conversation=not only_files, take_over=take_over)


def find_point(frame: Frame, point: str | None) -> Resolved[Session]:
    """Find a point; ``:12`` and a bare checkpoint name refer to the default session."""
    if point is not None and not point.startswith(":"):
        try:
            return frame.resolve(point)
        except Stop as error:
            session = frame.session(None) if frame.workspace is not None else None
            if session is None or all(each.name != point for each in session.checkpoints()):
                if session is not None and point.removesuffix("^").isdigit():
                    raise Stop(f"{error}\nFor a turn of the newest session here write :{point}", error.code) from error
                raise
            point = f":{point}"
    return frame.resolve(point and f"{frame.session(None).id}{point}")


def find_side(frame: Frame, text: str) -> Resolved[Session]:
    """Find a point, or a branch of the default session by its bare name."""
    if frame.workspace is not None and not {"/", ":"} & {*text}:
        session = frame.session(None)
        if any(each.name == text for each in session.branches()):
            return Resolved(session, text, None, None)
    return find_point(frame, text)


def _chosen(frame: Frame, session: Session) -> Resolved[Session] | None:
    """Let the user choose the turn to go back before; without a terminal raise ``Stop``, asking for a point."""
    name = frame.short(session.id)
    if not is_terminal():
        raise Stop(
            f"name a point: takeback rewind {name}:{max(session.turn_count - 1, 0)}; turns: takeback show {name}",
            USAGE,
        )
    prompts = [*_prompts(session)]
    if not prompts:
        raise Stop(f"{name} has no turns yet, so there is nothing to go back to", NOT_FOUND)
    rows = [[str(turn), age, text] for turn, age, text in prompts]
    for each in frame.out.table((">TURN", "<AGE", "<PROMPT"), rows):
        tell(each)
    chosen = choose(session.turn_count)
    if chosen is None:
        tell("Nothing was changed.")
        return None
    return frame.resolve(f"{session.id}:{chosen}^")


def _prompts(session: Session) -> Iterator[tuple[int, str, str]]:
    """Yield turn, age and text of the latest prompts."""
    said = [each for each in session.messages(limit=_PROMPTS * 10, tools=False) if each.role == "user"]
    for each in said[-_PROMPTS:]:
        yield each.turn, times.age(each.created_at), " ".join(each.text.split())[:200]


# ---------------------------------------------------------------------- undo and redo


@verb("undo", changes=True)
@option("--all", "everywhere", is_flag=True, help="Undo the last operation in any workspace.")
@option("--op", "wanted", metavar="ID", help="Undo this operation, as listed by takeback ops.")
def undo(frame: Frame, everywhere: bool, wanted: str | None) -> None:
    """Undo the last operation in this workspace; one that touches files shows its plan first."""
    frame.require_store()
    operation = _named(frame, wanted) if wanted else _last(frame, everywhere)
    if operation.session_id is None:
        _simply(frame, "Undo", operation, None)
        return
    session = frame.store.get_session(operation.session_id)
    try:
        plan = session.preview_undo(operation.id)
    except Invalid:  # it moves neither the conversation nor files
        plan = None
    if plan is None or plan.is_empty:
        _simply(frame, "Undo", operation, session)
        return
    _carry_out(frame, session, plan, "Undo")


def _carry_out(frame: Frame, session: Session, plan: Rewind, word: str) -> None:
    """Apply a plan; without asking if it touches no files, because then nothing can be lost."""
    if not (plan.files or plan.kept or frame.settings.dry_run):
        frame.settings.yes = True
    plans.Plan(frame, session, plan, word).carry_out()


def _simply(frame: Frame, word: str, operation: Operation, session: Session | None) -> None:
    """Undo or redo an operation that moves neither the conversation nor files, so there is no plan to show."""
    what = f"{word.lower()} {operation.kind}: {line(operation.summary)}"
    if frame.settings.dry_run:
        tell(f"Dry run: would {what}.")
        return
    if word == "Redo" and session is not None:
        done = session.redo()
    else:
        done = frame.store.undo(operation.id) if session is None else session.undo(operation.id)
    frame.out.one("operation", documents.operation(done), lambda: [f"{done.kind}: {line(done.summary)}"])
    if frame.out.for_people:
        tell(f"Take it back with: takeback {'redo' if word == 'Undo' else 'undo'}")


def _last(frame: Frame, everywhere: bool) -> Operation:
    for each in history.here(frame, everywhere):
        if not each.undone and each.kind not in ("undo", "redo", "purge"):
            return each
    where = "" if everywhere else " in this workspace; in any workspace: takeback undo --all"
    raise Stop(f"there is nothing to undo{where}", CONFLICT)


def _named(frame: Frame, wanted: str) -> Operation:
    found = [each for each in history.here(frame, True) if each.id.startswith(wanted.lower())]
    if not found:
        raise Stop(f"no such operation: {wanted!r}; list them with: takeback ops --all", NOT_FOUND)
    if len(found) > 1:
        listed = "\n".join(f"  {each.id}  {each.kind}" for each in found[:10])
        raise Stop(f"{wanted!r} matches several operations:\n{listed}", NOT_FOUND)
    return found[0]


@verb("redo", changes=True)
@option("--all", "everywhere", is_flag=True, help="Redo the last undo in any workspace.")
def redo(frame: Frame, everywhere: bool) -> None:
    """Redo what the last undo in this workspace took back."""
    frame.require_store()
    undone = next((each for each in history.here(frame, everywhere) if each.kind == "undo" and not each.undone), None)
    if undone is None or undone.session_id is None:
        where = "" if everywhere else " in this workspace; in any workspace: takeback redo --all"
        raise Stop(f"there is nothing to redo{where}", CONFLICT)
    session = frame.store.get_session(undone.session_id)
    try:
        plan = session.preview_redo()
    except Invalid:
        plan = None
    if plan is None or plan.is_empty:
        _simply(frame, "Redo", undone, session)
        return
    _carry_out(frame, session, plan, "Redo")


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
        _carry_out(frame, session, session.preview_switch(branch), "Switch")
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
    "rewind": rewind,
    "undo": undo,
    "redo": redo,
    "fork": fork,
    "switch": switch,
}
