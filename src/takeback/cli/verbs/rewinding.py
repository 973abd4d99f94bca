"""``rewind``: back to a point of a session, or this directory's files back to a moment, whoever changed them.

A plan is shown first, and then the question; undo takes it back.
"""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from ...client.refs import Resolved
from ...client.session import Session
from ...model.checkpoint import Checkpoint
from ...shell import times
from ...shell.failures import NOT_FOUND, USAGE, Stop
from ...shell.points import point_of
from .. import claude_code, plans
from ..consent import choose, is_terminal, tell
from ..frame import GUARD, Frame, option, ref_argument, ref_option, verb
from ..params import Value, after_dashes, files
from .moving import find_point

if TYPE_CHECKING:
    from ...client.rewind import Rewind

_PROMPTS = 30


@verb("rewind", changes=True)
@ref_argument("point", required=False)
@click.argument("paths", nargs=-1, metavar="[-- PATH...]", shell_complete=files)
@option(
    "--at",
    "moment",
    metavar="TIME",
    type=Value("time", times.parse_moment),
    help="All files here as they were then: 14:00, 10m, 2026-01-31T14:00.",
)
@option("--files", "only_files", is_flag=True, help="Rewind only files, not the conversation.")
@option("--conversation", "only_conversation", is_flag=True, help="Rewind only the conversation, not files.")
@option("--overwrite", multiple=True, metavar="PATH", shell_complete=files, help="Restore PATH too; all: every path.")
@ref_option("--with", "sessions", multiple=True, metavar="REF", help="Take back this session's changes too; or all.")
@option("--take-over", is_flag=True, help="Take the session from whoever is running it.")
def rewind(frame: Frame, point: str | None, paths: tuple[str, ...], **given: Any) -> None:
    """Go back to a point in a session, after a preview and a confirmation; undo takes it back.

    POINT is REF:12 (the end of turn 12), REF:12^ (before it), REF:name (a checkpoint), or :12 and :name in the newest
    session here. Without a point, a terminal lists points to choose from. With --at, or a checkpoint of guard, all
    files here go back, whoever changed them. With paths, only these go back, and no conversation.
    """
    wanted = _wanted(frame, point, paths, given)
    if not frame.settings.dry_run and frame.workspace is not None:
        claude_code.settle_calls(frame.store, frame.workspace)
    if given["moment"] is not None:
        _of_directory(frame, frame.workspace or frame.directory, given["moment"], wanted)
        return
    found = find_point(frame, wanted.point)
    if found.seq is None and found.branch is None:
        chosen = _chosen(frame, found.session)
        if chosen is None:
            return
        found = chosen
    target = point_of(found)
    if target is None or found.seq is None:
        raise Stop(f"{wanted.point!r} names a branch; switch to it with: takeback switch {wanted.point}", USAGE)
    if found.session.agent_id == GUARD and found.session.workspace is not None:
        _of_directory(frame, found.session.workspace, found.session.get_checkpoint(str(found.checkpoint)), wanted)
        return
    with frame.progress("Rewind", "scanning files"):
        plan = found.session.preview_rewind(
            target,
            files=not wanted.only_conversation,
            conversation=not wanted.only_files,
            overwrite=wanted.overwrite,
            paths=wanted.paths,
            sessions=wanted.sessions(frame),
        )
    shown = plans.Plan(frame, found.session, plan, "Rewind")
    shown.carry_out(conversation=not wanted.only_files, take_over=wanted.take_over)


class _Wanted(NamedTuple):
    """What the command line asks for."""

    point: str | None
    paths: list[str] | None
    overwrite: list[str] | Literal["all"]
    others: tuple[str, ...]
    only_files: bool
    only_conversation: bool
    take_over: bool

    def sessions(self, frame: Frame) -> list[Session] | Literal["all"]:
        """Return the other sessions whose changes are taken back too."""
        return "all" if "all" in self.others else [frame.session(each) for each in self.others]


def _wanted(frame: Frame, point: str | None, paths: tuple[str, ...], given: dict[str, Any]) -> _Wanted:
    """Check what does not fit together."""
    only_files, only_conversation, overwrite = given["only_files"], given["only_conversation"], given["overwrite"]
    if only_files and only_conversation:
        raise Stop("--files and --conversation exclude each other; without either, both go back", USAGE)
    for path in overwrite:
        if path.startswith("-"):
            raise Stop(
                f"--overwrite needs a path, not {path!r}; write a path that starts with a dash as ./{path}", USAGE
            )
    before, after = after_dashes((*filter(None, (point,)), *paths))
    if len(before) > 1:
        raise Stop(f"{before[1]!r} is one argument too many; paths come after two dashes: -- {before[1]}", USAGE)
    if given["moment"] is not None and (before or given["sessions"] or only_conversation):
        what = "a point" if before else "--with" if given["sessions"] else "--conversation"
        raise Stop(f"--at takes all files here back, whoever changed them; leave out {what}", USAGE)
    if after and only_conversation:
        raise Stop("paths name files, and --conversation leaves files alone; leave out one of them", USAGE)
    return _Wanted(
        before[0] if before else None,
        [_typed(frame, each) for each in after] or None,
        "all" if "all" in overwrite else [_typed(frame, each) for each in overwrite],
        given["sessions"],
        only_files or bool(after),
        only_conversation,
        given["take_over"],
    )


def _typed(frame: Frame, path: str) -> str:
    """Return a path as the library takes it: as plans show it, or with ./ from the current directory."""
    return os.path.join(frame.directory, path) if path.startswith(("./", "../")) else path


def _of_directory(frame: Frame, place: str, moment: datetime | Checkpoint, wanted: _Wanted) -> None:
    """Take the files of a directory back to a moment, whoever changed them."""
    frame.require_store()
    with frame.progress("Rewind", "scanning files"):
        plan: Rewind = frame.store.workspace(place).preview_rewind(
            moment, paths=wanted.paths, overwrite=wanted.overwrite
        )
    plans.Plan(frame, None, plan, "Rewind").carry_out(take_over=wanted.take_over)


# ---------------------------------------------------------------------- choosing a point


class _Choice(NamedTuple):
    """A point to pick: what to type for it, when it was, what it is, and the ref that it stands for."""

    label: str
    at: datetime
    what: str
    ref: str


def _chosen(frame: Frame, session: Session) -> Resolved[Session] | None:
    """Let the user choose a turn to go back before, or a checkpoint; off a terminal raise ``Stop``, asking for one."""
    name, choices = frame.short(session.id), _choices(frame, session)
    if not is_terminal():
        example = f"{name}:{max(session.turn_count - 1, 0)}"
        if session.agent_id == GUARD:
            example = choices[-1].ref.replace(session.id, name) if choices else f"{name}:NAME"
        raise Stop(
            f"name a point: takeback rewind {example}; turns: takeback show {name}; checkpoints: takeback checkpoints"
            f" {name}",
            USAGE,
        )
    if not choices:
        raise Stop(f"{name} has no turns yet, so there is nothing to go back to", NOT_FOUND)
    rows = [[each.label, times.age(each.at), each.what] for each in choices]
    for each in frame.out.table((">POINT", "<AGE", "<WHAT"), rows):
        tell(each)
    picked = choose(session.turn_count, {each.label for each in choices if not each.label.isdigit()})
    if picked is None:
        tell("Nothing was changed.")
        return None
    ref = next((each.ref for each in choices if each.label == picked), f"{session.id}:{picked}^")
    return frame.resolve(ref)


def _choices(frame: Frame, session: Session) -> list[_Choice]:
    """Return the latest prompts of a session and the checkpoints here, oldest first."""
    said = [each for each in session.messages(limit=_PROMPTS * 10, tools=False) if each.role == "user"]
    found = [
        _Choice(str(each.turn), each.created_at, " ".join(each.text.split())[:200], f"{session.id}:{each.turn}^")
        for each in said
    ]
    guard = frame.guard
    for owner in (session, *((guard,) if guard is not None and guard.id != session.id else ())):
        word = GUARD if owner.agent_id == GUARD else "checkpoint"
        for made in owner.checkpoints():
            about = f"{word}: {made.description}" if made.description else word
            found.append(_Choice(made.name, made.created_at, about, f"{owner.id}:{made.id}"))
    return sorted(found, key=lambda each: each.at)[-_PROMPTS:]


COMMANDS = {"rewind": rewind}
