"""A directory of this machine as a store knows it: who changed what in it, and back to any moment.

The timeline belongs to the directory. Whatever session, guard or hook scanned it, each step is listed here, and the
files can go back to any of them, whoever changed them. Conversations stay where they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from ..clock import to_datetime
from ..errors import Invalid
from ..files import changes, timeline, workspaces
from ..files.disk import paths, scan
from ..files.journal import JournalRow
from ..files.roots import Root
from ..model.checkpoint import Checkpoint
from ..model.operation import Operation
from ..model.page import Page
from ..model.scan import Scan
from ..model.session import Stats
from ..ops import feed, workspace_moves
from ..ops.workspace_moves import WorkspaceGoal, WorkspaceWish
from ..storage.runner import Moment
from . import arguments, points
from .author_names import AuthorNames
from .rewind import Rewind, Then, digest_of
from .rewind_choice import RewindChoice, choice_of

if TYPE_CHECKING:
    from .points import Point
    from .session import Session
    from .store import Store

_PAGE = 50


class Workspace:
    """A directory as a store knows it; ``store.workspace(path)`` returns one."""

    def __init__(self, store: Store, path: str | PathLike[str]) -> None:
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
        since_ms = None if since is None else arguments.moment(since, what="since")
        before = (1 << 62) if cursor is None else feed.parse_cursor(cursor, 1)[0]
        inside = None if path is None else self._inside(path)
        read = partial(timeline.page, scope=self._store.scope, place=timeline.at(self.path), path=inside)
        found, more = self._store._read(read, since_ms=since_ms, before=before, limit=limit)
        return Page(found, None if more is None else feed.cursor((more,)))

    def preview_rewind(
        self,
        moment: datetime | Scan | Checkpoint | tuple[Session | str, Point],
        *,
        paths: Iterable[str | PathLike[str]] | None = None,
        overwrite: Iterable[str | PathLike[str]] | Literal["all"] = (),
    ) -> Rewind:
        """Return what going back to a moment would do to the files here, whoever changed them since.

        The last good scan at or before the moment counts; ``target_at`` says when that was. Conversations stay.
        ``store.undo`` takes it back.
        """
        choice = choice_of(self._inside, overwrite, paths)
        return WorkspaceRewind(self, moment, _goal_of(moment), choice)

    def _again(self, kind: str, operation: str) -> Operation:
        """Undo or redo a move of these files."""
        goal = WorkspaceGoal(kind, operation=operation)
        return WorkspaceRewind(self, operation, goal, RewindChoice(), shown=False).apply()

    def _inside(self, path: Any) -> bytes:
        given = os.fsdecode(os.fspath(path))
        whole = os.path.normpath(os.path.join(self.path, given))
        folder = os.path.join(os.path.realpath(os.path.dirname(whole)), os.path.basename(whole))
        inside = os.path.relpath(folder, self.path)
        if inside == "." or inside.split("/")[0] == "..":
            raise Invalid(f"{given!r} is not inside the workspace {self.path!r}")
        return os.fsencode(paths.relative(inside))


class WorkspaceRewind(Rewind):
    """What going back to a moment does to the files of a workspace."""

    def __init__(
        self, workspace: Workspace, target: Any, goal: WorkspaceGoal, choice: RewindChoice, *, shown: bool = True
    ) -> None:
        why = workspaces.why_not(workspace.path, workspace._store._runner)
        if why:
            raise Invalid(f"the workspace {workspace.path!r} is not captured: {why}")
        self.workspace, self.target, self._goal = workspace.path, target, goal
        self._at = timeline.at(workspace.path)
        store = workspace._store
        super().__init__(store, store._place(workspace.path, scan.Limits(), ()), choice, shown=shown)

    def _scan(self, *, everything: bool = False) -> Root | None:
        assert self._place is not None
        now_ms = self._store._clock.now_ms()
        recorder = timeline.Recorder(self._store.scope, now_ms)
        return self._place.record(None, recorder, everything=everything)[1]

    def _unfinished(self, moment: Moment) -> JournalRow | None:
        assert self._place is not None
        return changes.pending(moment, self._place, None)

    def _look(self, moment: Moment) -> Then | None:
        self._facts = facts = moment.read(workspace_moves.look, self._store.scope, self._at, self._goal)
        assert facts.scan.root is not None
        return Then(facts.scan.root, facts.workspace, facts.scan.n, None, None)

    def _describe(self, moment: Moment) -> None:
        self.target_at = to_datetime(self._facts.scan.at_ms)
        self.stats = Stats.from_numbers(Stats.none(), started_ms=self._facts.scan.at_ms)
        self._describe_files(AuthorNames(moment if self._shown else None, self._store.scope, None))
        self.is_empty = not self.files
        self.digest = digest_of(self._facts.workspace.tip, self._facts.scan.n, steps=self._plan.steps)

    def _apply(self, take_over: bool, key: str | None) -> Operation:
        assert self._place is not None
        self._secure(self._place)
        wish = WorkspaceWish(self._at, self._goal, self._facts.scan.n, self._plan.steps)
        finish = partial(workspace_moves.finish, scope=self._store.scope, wish=wish)
        done = self._changing(self._place, None, finish)
        self._store._made(done)
        return done

    def _headline(self) -> str:
        word = {"rewind": "Rewind", "undo": "Undo", "redo": "Redo"}[self._goal.kind]
        return f"{word} files to how they were at {self.target_at:%Y-%m-%d %H:%M:%S} UTC"

    def _first(self) -> Iterator[str]:
        yield from super()._first()

    def __repr__(self) -> str:
        return f"<Rewind of {self.workspace} to {self.target_at:%Y-%m-%d %H:%M:%S}, {len(self.files)} paths>"


def _goal_of(moment: Any) -> WorkspaceGoal:
    """Check a moment that a caller names."""
    if isinstance(moment, datetime):
        return WorkspaceGoal(at_ms=arguments.moment(moment, what="moment"))
    if isinstance(moment, Scan):
        return WorkspaceGoal(n=int(moment.id.rpartition(":")[2]))
    if isinstance(moment, Checkpoint) and moment.session_id:
        return WorkspaceGoal(point=(moment.session_id, points.target_of(moment)))
    if isinstance(moment, tuple) and len(moment) == 2:
        session, point = moment
        session_id = getattr(session, "id", session)
        return WorkspaceGoal(point=(arguments.name(session_id, what="session"), points.target_of(point)))
    raise Invalid("a moment is a datetime with a time zone, a scan, a checkpoint of a session, or (session, point)")
