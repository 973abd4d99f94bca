"""The tools that read files as they were: one file at a point, who changed a path and why, two points compared."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from ..errors import Invalid, NotFound
from ..shell import documents
from ..shell.secrets import mask
from .answers import ALL, MOST, NOTE, TEXT, Data, ToolAnswer, cut, line, size, when
from .bound import BoundStore
from .history import PromptSeen, first_prompt
from .parameters import Cursor, Limit, PointRef

if TYPE_CHECKING:
    from ..client.session import Session
    from ..model.scan import Scan, ScanChange

_CHANGES = 50  # of one scan


class FileSeen(Data, frozen=True, kw_only=True, omit_defaults=True):
    """A file as it was; ``content`` begins at ``offset`` and is left out if the file is no text."""

    path: str
    size: int
    offset: int = 0
    next_offset: int | None = None
    content: str | None = None


class CallExplained(ToolAnswer, frozen=True, kw_only=True, omit_defaults=True):
    """A call that changed files, and what the user had asked."""

    id: str
    session_id: str
    tool: str = ""
    arguments: str = ""
    prompt: PromptSeen | None = None


class PathStep(ToolAnswer, frozen=True, kw_only=True, omit_defaults=True):
    """A change of a path: when it was found, what happened, who did it; ``calls`` are explained beside."""

    at: str
    path: str
    action: str
    by: str
    certainty: str
    sessions: list[str] = msgspec.field(default_factory=list)
    calls: list[str] = msgspec.field(default_factory=list)


class FileHistory(Data, frozen=True, kw_only=True, omit_defaults=True):
    """The changes of a path, the newest first, and why: the calls that made them. ``more`` counts those left out."""

    workspace: str
    changes: list[PathStep]
    more: int = 0
    calls: list[CallExplained] = msgspec.field(default_factory=list)
    cursor: str | None = None


class FileDifference(ToolAnswer, frozen=True, kw_only=True, omit_defaults=True):
    """How a path differs."""

    path: str
    action: str
    added: int = 0
    removed: int = 0
    diff: str = ""


class Differences(Data, frozen=True, kw_only=True, omit_defaults=True):
    """How two points differ: files, and the messages that only one of them has."""

    files: list[FileDifference]
    more_files: int = 0
    only_first: list[str] = msgspec.field(default_factory=list)
    only_second: list[str] = msgspec.field(default_factory=list)


def get_file_at(
    here: BoundStore,
    point: PointRef,
    path: Annotated[str, Meta(description="The file's path in the session's directory.", min_length=1)],
    offset: Annotated[int, Meta(description="Begin at this character; 0 by default.", ge=0)] = 0,
    max_chars: Annotated[
        int, Meta(description="Return at most so many characters, 100 to 50000; 20000 by default.", ge=100, le=50_000)
    ] = MOST,
) -> FileSeen:
    """Read a file as it was at a point of a session, whatever became of it since."""
    session, there = here.point(point)
    data = session.file_at(path, there)
    text, end = _text(data), offset + max_chars
    return FileSeen(
        note=NOTE,
        path=cut(path, TEXT),
        size=len(data),
        offset=offset,
        next_offset=end if text is not None and len(text) > end else None,
        content=None if text is None else text[offset:end],
    )


def _text(data: bytes) -> str | None:
    """Return the text of a file, None if it is none; secrets are hidden first, or an offset could begin within one."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else mask(text)


def file_history(
    here: BoundStore,
    path: Annotated[str, Meta(description="A file or directory: absolute, or in the directory.", min_length=1)],
    directory: Annotated[
        str, Meta(description="The directory that sessions worked in; by default the one of this server.")
    ]
    | None = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> FileHistory:
    """See who changed a file and why: each change that was found, whether a session, a person or another program made
    it, and for a session the tool call with what the user had asked.
    """
    place = directory or here.workspace
    if place is None:
        raise Invalid("name the directory that sessions worked in: directory")
    found = _history(here, place, path, limit, cursor)
    while size(found) > ALL and limit > 1:
        limit //= 2
        found = _history(here, place, path, limit, cursor)
    return found


def _history(here: BoundStore, place: str, path: str, limit: int, cursor: str | None) -> FileHistory:
    inside = os.path.relpath(os.path.join(place, path), place) if os.path.isabs(path) else os.path.normpath(path)
    whole = inside == "."
    found = here.store.workspace(place).timeline(path=None if whole else path, limit=limit, cursor=cursor)
    steps, more, wanted = list[PathStep](), 0, dict[tuple[str, str], None]()
    for scan in found:
        under = [each for each in scan.changes if whole or each.path == inside or each.path.startswith(f"{inside}/")]
        steps += [_step(scan, each) for each in under[:_CHANGES]]
        more += max(0, len(under) - _CHANGES) + (scan.more if whole else 0)
        wanted |= {(id, call): None for each in under[:_CHANGES] for id in each.session_ids for call in each.calls}
    calls = _explained(here, wanted)
    return FileHistory(note=NOTE, workspace=place, changes=steps, more=more, calls=calls, cursor=found.cursor)


def _step(scan: Scan, change: ScanChange) -> PathStep:
    return PathStep(
        at=when(scan.created_at),
        path=cut(change.path, TEXT),
        action=change.action,
        by=cut(change.by),
        certainty=change.kind,
        sessions=[*change.session_ids],
        calls=[cut(each) for each in change.calls],
    )


def _explained(here: BoundStore, wanted: Iterable[tuple[str, str]]) -> list[CallExplained]:
    """Explain calls, each given with a session that it may be one of."""
    known, found = dict[str, "Session | None"](), list[CallExplained]()
    for session_id, call_id in wanted:
        if session_id not in known:
            known[session_id] = here.store.find_session(session_id)
        session = known[session_id]
        call = None if session is None else _call(session, call_id)
        if call is not None:
            found.append(call)
    return found


def _call(session: Session, call_id: str) -> CallExplained | None:
    try:
        call = session.tool_call(call_id)
    except NotFound:  # it left the path, or is another session's
        return None
    return CallExplained(
        id=cut(call.id),
        session_id=session.id,
        tool=cut(call.name),
        arguments=cut(documents.compact(call.arguments), 500),
        prompt=first_prompt(session, call.seq),
    )


def diff_points(
    here: BoundStore,
    first: PointRef,
    second: Annotated[str, Meta(description="Another point of the same session; by default how things are now.")]
    | None = None,
    paths: Annotated[list[str], Meta(description="Only these files, or what is below these directories.")]
    | None = None,
    max_chars: Annotated[
        int,
        Meta(description="Return at most so many characters of differences, 100 to 50000.", ge=100, le=50_000),
    ] = MOST,
) -> Differences:
    """Compare two points of a session: how each file differs, as a unified diff, and which messages only one of them
    has.
    """
    session, a = here.point(first)
    b = None
    if second is not None:
        other, b = here.point(second)
        if other.id != session.id:
            raise Invalid("both points must be of the same session")
    found = session.diff(a, b)
    wanted = [each for each in found.files if _is_wanted(each.path, paths)]
    shown, left = list[FileDifference](), min(max_chars, ALL)
    for each in wanted[:200]:
        added, removed = each.lines
        text = cut(each.text, left) if left > 0 else ""
        left -= len(text)
        shown.append(
            FileDifference(
                path=cut(each.path, TEXT), action=documents.action(each), added=added, removed=removed, diff=text
            )
        )
    return Differences(
        note=NOTE,
        files=shown,
        more_files=len(wanted) - len(shown),
        only_first=[line(each) for each in found.left[:50]],
        only_second=[line(each) for each in found.right[:50]],
    )


def _is_wanted(path: str, wanted: list[str] | None) -> bool:
    if wanted is None:
        return True
    return any(path == (under := os.path.normpath(each)) or path.startswith(f"{under}/") for each in wanted)
