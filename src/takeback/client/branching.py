"""Moving in time: checkpoints, branches, rewind, undo. No move ever loses what was said."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, overload

from msgspec.structs import replace

from .. import codec
from ..errors import Invalid
from ..files import changes, journal, workspaces
from ..ids import is_id
from ..model.branch import Branch
from ..model.checkpoint import Checkpoint
from ..model.operation import Operation
from ..ops import checkpoints, moves, operations, rewinds, undo
from ..ops import points as points_ops
from . import arguments, points, rewind_choice, session_rewind
from .files import Files, write_files

if TYPE_CHECKING:
    from .points import Point
    from .rewind import Rewind
    from .rewind_choice import RewindChoice
    from .session import Session


class Moving(Files):
    """The part of a session that moves its head."""

    # ------------------------------------------------------------------ checkpoints

    def checkpoint(
        self,
        name: str | None = None,
        *,
        description: str | None = None,
        type: str = "manual",
        files: bool = True,
        idempotency_key: str | None = None,
    ) -> Checkpoint:
        """Name this point: conversation, work, state, sub-agents and files; the cost follows what changed.

        A name may be reused: it then means the newest one, and all of them are listed. Without ``files`` the workspace
        is not scanned, and the point has the files of the last scan.
        """
        arguments.flag(files, what="files")
        if type not in checkpoints.TYPES:
            raise Invalid(f"type must be one of {', '.join(checkpoints.TYPES)}, not {type!r}")
        fields: dict[str, Any] = {
            "name": _plain_name(name, what="checkpoint name"),
            "description": None if description is None else codec.storable_text(description, what="description"),
            "type": type,
        }
        call = self._store._call(idempotency_key, ["checkpoint", fields])
        if files:
            self._scan_by_hand()
        self._seen, made = self._do(checkpoints.create_once, *self._key, call, **fields)
        missing = self._why_not_captured() if files else None
        return made if missing is None else replace(made, not_captured=(missing, *made.not_captured))

    # ------------------------------------------------------------------ rewind and undo

    def preview_rewind(
        self,
        target: Point,
        *,
        files: bool = True,
        conversation: bool = True,
        overwrite: Iterable[str | PathLike[str]] | Literal["all"] = (),
        paths: Iterable[str | PathLike[str]] | None = None,
        sessions: Iterable[Session | str] | Literal["all"] = (),
    ) -> Rewind:
        """Return what going back to a point would do, path by path, without doing it; ``apply`` does exactly that.

        Paths that somebody else changed are left alone unless ``overwrite`` names them, or is ``"all"``. ``paths``
        restricts it to these paths and what is below them. ``sessions`` names others whose changes to files since then
        are taken back too, or is ``"all"``; their conversations stay. Without ``conversation`` only files go back,
        without ``files`` only the conversation does.
        """
        choice = rewind_choice.choice_of(self._path_in, overwrite, paths, sessions)
        return self._planned(target, files, conversation, choice, shown=True)

    def rewind(
        self,
        target: Point,
        *,
        files: bool = True,
        conversation: bool = True,
        overwrite: Iterable[str | PathLike[str]] | Literal["all"] = (),
        paths: Iterable[str | PathLike[str]] | None = None,
        sessions: Iterable[Session | str] | Literal["all"] = (),
        take_over: bool = False,
        idempotency_key: str | None = None,
    ) -> Operation:
        """Move back to a point: what follows it leaves the path but stays on its branch. ``undo`` takes it back.

        Tasks, plan, notes, session state, sub-agents and files go back too. The next append opens a branch there. This
        is ``preview_rewind`` and ``apply`` in one call.
        """
        points.target_of(target)  # an invalid point is reported before anything else
        given = rewind_choice.choice_of(self._path_in, overwrite, paths, sessions)
        call = self._store._call(idempotency_key, _asked(target, files, conversation, given))
        earlier = self._done_before(call)
        if earlier is not None:
            return earlier
        arguments.flag(take_over, what="take_over")
        return self._planned(target, files, conversation, given, shown=False)._apply(take_over, call.key)

    def _planned(
        self,
        target: Point,
        files: bool,
        conversation: bool,
        choice: RewindChoice,
        *,
        shown: bool,
    ) -> Rewind:
        arguments.flag(files, what="files")
        arguments.flag(conversation, what="conversation")
        if not files and not conversation:
            raise Invalid("files and conversation are both False, so nothing would go back; set at least one of them")
        goal = rewinds.Goal("rewind", points.target_of(target), _asked(target, files, conversation, choice))
        return session_rewind.SessionRewind(
            self, target, goal, files=files, conversation=conversation, choice=choice, shown=shown
        )

    def preview_undo(self, operation: Operation | str | None = None) -> Rewind:
        """Return what ``undo`` would do to the conversation and files."""
        return self._preview_again("undo", _id_of(operation))

    def preview_redo(self) -> Rewind:
        """Return what ``redo`` would do to the conversation and files."""
        return self._preview_again("redo", None)

    def _preview_again(self, kind: str, wanted: str | None, *, shown: bool = True) -> Rewind:
        found = self._store._read(undo.to_take_up, *self._key, kind, wanted)
        goal = rewinds.goal_of(found, kind, wanted)
        files = goal.alone or operations.moved_files(found)
        return session_rewind.SessionRewind(self, found.id, goal, files=files, conversation=not goal.alone, shown=shown)

    def _moves_files(self, kind: str, wanted: str | None) -> bool:
        """Whether an undo or redo concerns an operation that changed files."""
        if not self._seen.workspace:
            return False
        found = self._store._read(undo.find_to_take_up, *self._key, kind, wanted)
        return found is not None and operations.moved_files(found)

    def undo(
        self,
        operation: Operation | str | None = None,
        *,
        take_over: bool = False,
        idempotency_key: str | None = None,
    ) -> Operation:
        """Undo the last operation of this session, or a given one.

        Raises ``Conflict`` if a later operation changed the same thing, and ``Busy`` if files would change while
        somebody else runs the session, unless ``take_over`` is given.
        """
        return self._take_up("undo", _id_of(operation), take_over, idempotency_key)

    def _take_up(self, kind: str, wanted: str | None, take_over: bool, key: str | None) -> Operation:
        arguments.flag(take_over, what="take_over")
        call = self._store._call(key, rewinds.asked_again(kind, wanted))
        earlier = self._done_before(call)
        if earlier is not None:
            return earlier
        if self._moves_files(kind, wanted):
            return self._preview_again(kind, wanted, shown=False)._apply(take_over, call.key)
        return self._operate(call, undo.take_up, kind, wanted)

    def redo(self, *, take_over: bool = False, idempotency_key: str | None = None) -> Operation:
        """Redo what the last undo of this session took back; ``take_over`` is as in ``undo``."""
        return self._take_up("redo", None, take_over, idempotency_key)

    def operations(self, *, limit: int = 100) -> list[Operation]:
        """List this session's operations, newest first."""
        return self._store._read(operations.values_of_session, *self._key, limit=arguments.whole(limit, what="limit"))

    # ------------------------------------------------------------------ branches

    @overload
    def fork(
        self,
        at: Point | None = None,
        *,
        name: str | None = None,
        as_session: Literal[False] = False,
        idempotency_key: str | None = None,
    ) -> Branch: ...
    @overload
    def fork(
        self,
        at: Point | None = None,
        *,
        name: str | None = None,
        as_session: Literal[True],
        into: str | PathLike[str] | None = None,
        idempotency_key: str | None = None,
    ) -> Session: ...
    @overload
    def fork(
        self,
        at: Point | None = None,
        *,
        name: str | None = None,
        as_session: bool,
        into: str | PathLike[str] | None = None,
        idempotency_key: str | None = None,
    ) -> Branch | Session: ...
    def fork(
        self,
        at: Point | None = None,
        *,
        name: str | None = None,
        as_session: bool = False,
        into: str | PathLike[str] | None = None,
        idempotency_key: str | None = None,
    ) -> Branch | Session:
        """Open a branch at a point, the head by default, without moving there; nothing is copied.

        With ``as_session`` the branch is a session of its own. ``into`` names a new or empty directory that receives
        the files as they were at that point and becomes the workspace of the new session; files that belong to a
        repository are left out and logged. ``undo`` takes the fork back but leaves that directory. If the process is
        killed meanwhile, the same call again starts over.
        """
        arguments.flag(as_session, what="as_session")
        if into is not None and not as_session:
            raise Invalid("into needs a session of its own: fork(as_session=True, into=...)")
        place = None if into is None else arguments.workspace(into)
        here = self._seen.workspace
        if place is not None and here and os.path.commonpath((place, here)) == here:
            raise Invalid(f"{place!r} is inside the workspace of this session; choose a directory outside it")
        name = _plain_name(name, what="session name" if as_session else "branch name")
        target = points.optional_target(at)
        request = ["fork", None if at is None else points.request_of(at), name, as_session, *([place] if place else [])]
        call = self._store._call(idempotency_key, request)
        if not as_session:
            done = self._operate(call, moves.fork, target, name=name)
            return self._ask(moves.forked_branch, done.id)
        operate = partial(self._operate, call, journal.fork_session, target, name=name, workspace=place)
        if place is None:
            done = operate(row=None)
        elif (earlier := self._done_before(call)) is None:
            done = write_files(self, at, place, lambda row: operate(row=row))
        else:
            changes.clear(
                self._store._runner, workspaces.Trees(self._store._runner), place
            )  # it may have been killed at the end
            done = earlier
        return self._store._session(*self._store._read(moves.forked_session, self._store.scope, done.id))

    def switch(
        self,
        branch: str | Branch,
        *,
        files: bool = False,
        take_over: bool = False,
        idempotency_key: str | None = None,
    ) -> Operation:
        """Move to the tip of a branch; ``undo`` moves back. With ``files`` the workspace is restored as well.

        That raises ``Busy`` while somebody else runs the session, unless ``take_over`` is given.
        """
        arguments.flag(take_over, what="take_over")
        name = arguments.name(branch.id if isinstance(branch, Branch) else branch, what="branch")
        arguments.flag(files, what="files")
        call = self._store._call(idempotency_key, ["switch", name, *(["files"] if files else [])])
        earlier = self._done_before(call)
        if earlier is not None:
            return earlier
        if files:
            return self._planned_switch(name, shown=False)._apply(take_over, call.key)
        return self._operate(call, moves.switch, branch=name)

    def preview_switch(self, branch: str | Branch) -> Rewind:
        """Return what ``switch`` with ``files`` would do to the conversation and files; ``apply`` does it."""
        name = arguments.name(branch.id if isinstance(branch, Branch) else branch, what="branch")
        return self._planned_switch(name, shown=True)

    def _planned_switch(self, name: str, *, shown: bool) -> Rewind:
        goal = rewinds.Goal("switch", points_ops.Target(tip_of=name, attached=True), ["switch", name, "files"])
        return session_rewind.SessionRewind(self, name, goal, shown=shown)


def _asked(target: Point, files: bool, conversation: bool, choice: RewindChoice) -> list[Any]:
    """Describe a rewind for comparing two requests with one idempotency key."""
    plain = files and conversation and choice == rewind_choice.RewindChoice()
    more = [] if plain else [files, conversation, sorted(map(os.fsdecode, choice.overwrite))]
    if choice.paths is not None or choice.sessions:
        more += [choice.paths and sorted(map(os.fsdecode, choice.paths)), sorted(choice.sessions)]
    return ["rewind", points.request_of(target), *more]


def _id_of(operation: Operation | str | None) -> str | None:
    wanted = operation.id if isinstance(operation, Operation) else operation
    return arguments.optional_name(wanted, what="operation")


def _plain_name(name: str | None, *, what: str) -> str | None:
    name = arguments.optional_name(name, what=what)
    if name is not None and is_id(name):
        raise Invalid(f"{name!r} looks like an id; choose a name that cannot be mistaken for one")
    return name
