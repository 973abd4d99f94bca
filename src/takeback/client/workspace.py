"""A directory of this machine as a store knows it: who changed what in it, and back to any moment.

The timeline belongs to the directory. Whatever session, guard or hook scanned it, each step is listed here, and the
files can go back to any of them, whoever changed them. Conversations stay where they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from ..errors import Conflict, Invalid, NotFound
from ..files import timeline, timeline_purge
from ..model import Bound
from ..model.checkpoint import Checkpoint
from ..model.operation import Operation
from ..model.page import Page
from ..model.scan import Scan, ScanChange
from ..ops import feed, undo
from ..ops.workspace_moves import WorkspaceGoal
from ..storage.runner import Moment
from . import arguments, points
from .author_names import AuthorNames
from .rewind_choice import RewindChoice, choice_of
from .running import inside
from .workspace_rewind import WorkspaceRewind

if TYPE_CHECKING:
    from ..files.timeline import ScanPaths
    from ..tables.files import WorkspaceRow
    from .points import Point
    from .rewind import Rewind
    from .session import Session
    from .store import Store

_PAGE = 50


class Workspace(Bound):
    """A directory as a store knows it; ``store.workspace(path)`` returns one. ``path`` is its real path."""

    def __init__(self, store: Store, path: str | PathLike[str]) -> None:
        if not path:
            raise Invalid("a workspace is a directory; pass its path, or '.' for the current one")
        self._store, self.path = store, arguments.workspace(path)

    def __repr__(self) -> str:
        return f"<Workspace {self.path}>"

    def timeline(
        self,
        *,
        path: str | PathLike[str] | None = None,
        since: datetime | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[Scan]:
        """List what changed here and who changed it, newest first; ``path`` restricts it to one file or directory."""
        limit = _PAGE if limit is None else arguments.whole(limit, what="limit", low=1, high=1000)
        since_ms = 0 if since is None else arguments.time_ms(since)
        before = (1 << 62) if cursor is None else feed.parse_cursor(cursor, 1)[0]
        wanted = None if path is None else inside(self.path, path)

        def read(moment: Moment) -> tuple[list[Scan], int | None]:
            directory, steps, more = moment.read(
                timeline.page,
                self._store.scope,
                timeline.at(self.path),
                path=wanted,
                since_ms=since_ms,
                before=before,
                limit=limit,
            )
            if directory is None:
                return [], None
            names = AuthorNames(moment, self._store.scope, None)
            return [_scan(directory, step, names) for step in steps], more

        found, next_ = self._store._runner.at_once(read)
        return Page(found, None if next_ is None else feed.cursor((next_,)))

    def preview_rewind(
        self,
        moment: datetime | Scan | Checkpoint | tuple[Session | str, Point],
        *,
        paths: Iterable[str | PathLike[str]] | None = None,
        overwrite: Iterable[str | PathLike[str]] | Literal["all"] = (),
    ) -> Rewind:
        """Return what going back to a moment would do to the files here, whoever changed them since.

        The last good scan at or before the moment counts; ``target_at`` says when that was. ``paths`` restricts it to
        these paths and what is below them. ``overwrite`` names paths to restore even if what is there now was not
        captured. Conversations stay. ``store.undo`` takes it back.
        """

        def within(path: Any) -> bytes:
            return inside(self.path, path)

        choice = choice_of(within, overwrite, paths)
        return WorkspaceRewind(self, moment, _goal_of(moment), choice)

    def preview_undo(self, operation: Operation | str | None = None) -> Rewind:
        """Return what undoing the last change of these files, or a given one, would do; ``apply`` does it.

        If that change was a session's, its conversation goes with it.
        """
        return self._preview_again("undo", operation)

    def preview_redo(self) -> Rewind:
        """Return what redoing the last undo of a change of these files would do; ``apply`` does it."""
        return self._preview_again("redo", None)

    def _preview_again(self, kind: str, operation: Operation | str | None) -> Rewind:
        wanted = arguments.optional_name(
            operation.id if isinstance(operation, Operation) else operation, what="operation"
        )
        store = self._store
        directory = store._read(timeline.find, store.scope, timeline.at(self.path))
        if wanted is not None:
            found: undo.Chosen | None = store._read(undo.chosen_undo, store.scope, wanted, ())
        else:
            found = None if directory is None else store._read(undo.of_workspace, store.scope, directory.wid, kind)
        if found is None:
            raise Conflict(f"there is nothing to {kind} in {self.path!r}")
        if found.session is not None:
            session = store.get_session(found.session)
            return session.preview_undo(found.id) if kind == "undo" else session.preview_redo()
        if found.workspace is None or directory is None or found.workspace.wid != directory.wid:
            raise NotFound(f"operation {found.id!r} did not change the files of {self.path!r}")
        return self._planned_again(kind, found.id, shown=True)

    def _planned_again(self, kind: str, operation: str, *, shown: bool) -> Rewind:
        """Plan the undo or redo of a move of these files."""
        goal = WorkspaceGoal(kind, operation=operation)
        return WorkspaceRewind(self, operation, goal, RewindChoice(), shown=shown)


def _scan(directory: WorkspaceRow, step: ScanPaths, names: AuthorNames) -> Scan:
    row = step.scan
    changes = tuple(
        ScanChange(
            os.fsdecode(path),
            action,
            names.said(author, 0),
            author.kind,
            names.all_ids(author),
            tuple(call for _, ids in author.who for call in ids),
        )
        for path, action, author in step.changed
    )
    return Scan(
        f"{directory.uid}:{row.n}",
        directory.path,
        row.at_ms,
        names.id_of(row.session) if row.session else None,
        tuple(dict.fromkeys(call for each in changes for call in each.calls)),
        changes,
        None if row.root is not None or row.why == timeline_purge.PURGED else row.why or "it failed",
        row.operation or None,
        step.more,
        row.root is None and row.why == timeline_purge.PURGED,
    )


def _goal_of(moment: Any) -> WorkspaceGoal:
    """Check a moment that a caller names."""
    if isinstance(moment, datetime):
        return WorkspaceGoal(at_ms=arguments.time_ms(moment))
    if isinstance(moment, Scan):
        uid, _, number = moment.id.rpartition(":")
        return WorkspaceGoal(scan=(uid, int(number), moment.workspace))
    if isinstance(moment, Checkpoint) and moment.session_id:
        return WorkspaceGoal(point=(moment.session_id, points.target_of(moment)))
    if isinstance(moment, tuple | list) and len(moment) == 2:
        session, point = moment
        session_id = getattr(session, "id", session)
        return WorkspaceGoal(point=(arguments.name(session_id, what="session"), points.target_of(point)))
    raise Invalid("a moment is a datetime with a time zone, a scan, a checkpoint of a session, or (session, point)")
