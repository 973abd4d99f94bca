"""A rewind of a workspace's files alone, to any moment of its timeline; and the undo and redo of such a rewind."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from .. import presence
from ..clock import to_datetime
from ..errors import Busy, Invalid
from ..files import changes, snapshots, timeline, workspaces
from ..files.disk import scan
from ..files.journal import JournalRow
from ..files.roots import Root
from ..ids import new_id
from ..model.entry import Numbers
from ..model.operation import Operation
from ..model.session import Stats
from ..ops import operations, workspace_moves
from ..ops.workspace_moves import WorkspaceGoal, WorkspaceWish
from ..storage.runner import Moment
from .author_names import AuthorNames
from .rewind import Rewind, Then, digest_of
from .rewind_choice import RewindChoice

if TYPE_CHECKING:
    from .workspace import Workspace


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

    def _scan(self) -> Root | None:
        assert self._place is not None
        changes.recover(self._store._runner, self._place, None)
        recorder = snapshots.FilesRecorder(self._store.scope, self._store._clock.now_ms())
        return self._place.record(None, recorder)[1]

    def _unfinished(self, moment: Moment) -> JournalRow | None:
        assert self._place is not None
        return changes.pending(moment, self._place, None)

    def _look(self, moment: Moment) -> Then | None:
        self._facts = facts = moment.read(workspace_moves.look, self._store.scope, self._at, self._goal)
        if facts.since is None:
            return Then(facts.root, facts.workspace, facts.n, None, None)
        then = Then(facts.root, facts.workspace, facts.since, None, frozenset())
        return then._replace(aside=facts.aside, paths=facts.paths)

    def _describe(self, moment: Moment) -> None:
        self.target_at = to_datetime(self._facts.at_ms)
        self.stats = Stats.from_numbers(Numbers(), started_ms=self._facts.at_ms)
        self._describe_files(AuthorNames(moment if self._shown else None, self._store.scope, None))
        self.is_empty = not self.files
        self.digest = digest_of(self._facts.workspace.tip, self._facts.n, steps=self._plan.steps)

    def _apply(self, take_over: bool, key: str | None) -> Operation:
        assert self._place is not None
        if self.is_empty and self._goal.operation is None:
            now_ms = self._store._clock.now_ms()
            return Operation(
                new_id(now_ms), self._goal.kind, None, now_ms, operations.NOTHING, workspace=self.workspace
            )
        self._require_free(take_over)
        self._secure(self._place)
        wish = WorkspaceWish(self._at, self._goal, self._facts.n, self._plan.steps)
        done = self._changing(self._place, None, partial(workspace_moves.finish, scope=self._store.scope, wish=wish))
        self._store._made(done)
        return done

    def _require_free(self, take_over: bool) -> None:
        """Refuse to change files while a tool of somebody else is running here."""
        for row, process in () if take_over else self._facts.running:
            holder = presence.decode(process)
            if not presence.is_here(holder) and not presence.is_gone(holder):
                raise Busy(
                    f"a tool of session {row.name or row.title or row.id!r} is running here, in {holder}; wait for it,"
                    " or go ahead all the same (take_over=True)",
                    holder=str(holder),
                )

    def _headline(self) -> str:
        word = {"rewind": "Rewind", "undo": "Undo", "redo": "Redo"}[self._goal.kind]
        return f"{word} files to how they were at {self.target_at:%Y-%m-%d %H:%M:%S} UTC"

    def __repr__(self) -> str:
        return f"<Rewind of {self.workspace} to {self.target_at:%Y-%m-%d %H:%M:%S}, {len(self.files)} paths>"
