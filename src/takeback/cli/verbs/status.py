"""``status``: where you are, and what has changed since the last checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ...client.session import Session
from ...errors import Error
from ...model import words
from ...model.approval import Approval
from ...model.checkpoint import Checkpoint
from ...model.files import FileDiff
from ...model.tools import ToolCall
from ...shell import documents, times
from ..frame import Frame, ref_argument, verb
from ..output import line
from .approving import document, question

_SHOWN = 20
_MARKS = {"create": ("A", "green"), "delete": ("D", "red"), "overwrite": ("M", "yellow")}


class _Now(NamedTuple):
    session: Session
    checkpoint: Checkpoint | None
    changes: tuple[FileDiff, ...]
    unknown: str | None  # why the changes are unknown
    calls: list[ToolCall]
    pending: str | None  # a rewind that is in progress or was interrupted
    asked: list[Approval]
    guarded: tuple[Checkpoint, ...] = ()  # what the guard of the directory took, if it is another session


@verb("status")
@ref_argument("ref", required=False)
def status(frame: Frame, ref: str | None) -> None:
    """Show store, workspace and session, what changed since the last checkpoint, and open calls."""
    here = _look(frame, frame.resolve(ref).session) if ref or frame.workspace else None
    frame.out.one("status", _document(frame, here), lambda: _lines(frame, here))


def _look(frame: Frame, session: Session) -> _Now:
    made = session.checkpoints(newest=True, limit=1)
    last = made[0] if made else None
    try:
        changes, unknown = (session.diff(last).files if last is not None else ()), None
    except (Error, OSError) as error:  # a workspace that cannot be scanned must not hide the rest
        changes, unknown = (), str(error)
    guard = frame.guard if session.workspace == frame.workspace else None
    guarded = () if guard is None or guard.id == session.id else tuple(guard.checkpoints())
    calls, pending = session.pending_calls(), session.rewind_pending()
    return _Now(session, last, changes, unknown, calls, pending, session.approvals(), guarded)


def _document(frame: Frame, here: _Now | None) -> dict[str, Any]:
    stats = frame.store.stats()
    return {
        "id": None if here is None else here.session.id,
        "store": {
            "url": frame.missing or frame.store.url,
            "exists": frame.missing is None,
            "agents": stats.agents,
            "sessions": stats.sessions,
            "bytes": stats.total_bytes,
        },
        "workspace": frame.workspace if here is None else here.session.workspace,
        "session": None if here is None else documents.session(here.session),
        "checkpoint": None if here is None or here.checkpoint is None else documents.checkpoint(here.checkpoint),
        "changes": [] if here is None else [documents.file_diff(each) for each in here.changes],
        "changes_unknown": None if here is None else here.unknown,
        "rewind_pending": None if here is None else here.pending,
        "guard": None if here is None or not here.guarded else documents.checkpoint(here.guarded[-1]),
        "approvals": [] if here is None else [document(here.session, each) for each in here.asked],
        "open_calls": [] if here is None else [documents.call(each) for each in here.calls],
    }


def _lines(frame: Frame, here: _Now | None) -> Iterator[str]:
    if frame.missing is not None:
        yield f"store       {line(frame.missing)} (does not exist yet: takeback new NAME)"
        return
    yield f"store       {line(frame.store.url)} ({frame.store.stats()})"
    if here is None:
        yield f"workspace   none: no session belongs to {line(frame.directory)} or a directory above it"
        yield "session     none here: takeback ls -a, or takeback new NAME"
        return
    place = here.session.workspace
    if place is not None:
        yield f"workspace   {line(place)} ({words.count(frame.count(workspace=place)[0], 'session')})"
    yield from _session(frame, here.session)
    if here.pending is not None:
        mark = frame.out.paint("!", "yellow")
        yield f"pending     {mark} {line(here.pending)}; the next rewind or run fixes that"
    yield from _changes(frame, here)
    if here.guarded:
        count, last = words.count(len(here.guarded), "checkpoint"), here.guarded[-1]
        yield f"guard       {count}, the last {times.ago(last.created_at)}: takeback rewind {line(last.name)}"
    for asked in here.asked[:_SHOWN]:
        yield _asked(frame, here.session, asked)
    for call in here.calls[:_SHOWN]:
        yield f"open call   {line(call.name)} ({call.status}) {line(documents.compact(call.arguments))[:80]}"


def _asked(frame: Frame, session: Session, asked: Approval) -> str:
    """Return the line of a question: what is asked, since when, and the answer or how to give one."""
    if asked.approved is None:
        mark, short = frame.out.paint("?", "yellow"), frame.short(session.id)
        when = times.ago(asked.asked_at)
        return f"waiting     {mark} {question(asked)} (asked {when}): takeback approve {short}, or deny"
    by = f" by {line(asked.by)}" if asked.by else ""
    note = f": {line(asked.note)}" if asked.note else ""
    return f"{asked.status:<12}{question(asked)}{by}{note}"


def _session(frame: Frame, session: Session) -> Iterator[str]:
    title = line(session.title or session.name or "untitled")
    where = f"branch {line(documents.head_branch(session))}, turn {session.turn_count}, {session.status}"
    yield f"session     {frame.out.paint(frame.short(session.id), 'cyan')} {title}"
    yield f"            {where}, changed {times.both(session.updated_at, utc=frame.out.utc)}"
    if session.holder is not None:
        yield f"in use by   {line(str(session.holder))}"
    if session.status == "interrupted":
        yield f"interrupted at turn {session.stopped_at}: takeback resume {frame.short(session.id)}"
    if session.task_count:
        yield f"tasks       {session.completed_count} of {session.task_count} done"


def _changes(frame: Frame, here: _Now) -> Iterator[str]:
    if here.checkpoint is None:
        yield "checkpoint  none yet: takeback checkpoint NAME"
        return
    made = here.checkpoint
    name = line(made.name) if made.name != made.id else made.id[:12]
    yield f"checkpoint  {name} at turn {made.stats.turns}, {times.both(made.created_at, utc=frame.out.utc)}"
    if here.unknown is not None:
        yield f"changes     unknown: {line(here.unknown)}"
        return
    if not here.changes:
        yield "changes     none since then"
    for number, each in enumerate(here.changes[:_SHOWN]):
        yield f"{'changes' if number == 0 else '':12}{change_line(frame, each)}"
    if len(here.changes) > _SHOWN:
        yield f"{'':12}... and {len(here.changes) - _SHOWN:,} more"


def change_line(frame: Frame, each: FileDiff) -> str:
    """Format a path with its kind of change and its line counts."""
    mark, style = _MARKS[documents.action(each)]
    added, removed = each.lines
    return f"{frame.out.paint(mark, style)} {line(each.path)} +{added} -{removed}"


COMMANDS = {"status": status}
