"""Moving in time: checkpoints, branches, rewind, undo. Nothing that was said is ever lost by it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from msgspec.structs import replace

from .. import codec
from ..errors import Invalid
from ..ids import is_id
from ..model.branch import Branch
from ..model.checkpoint import Checkpoint
from ..model.operation import Operation
from ..ops import branches as trees
from ..ops import checkpoints, moves, operations, sessions, subagent_points
from ..ops.idempotency import once
from ..storage.base import Tx
from . import arguments
from .files import Looking, write_files
from .handle import Point, place_of, request_of
from .reading import branch_value
from .rewind import Goal, Rewind, paths_given

if TYPE_CHECKING:
    from .session import Session


class Moving(Looking):
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
        """Name this point: conversation, work, state, sub-agents and files. It costs what changed, at any length.

        A name may be used again: it then means the newest of them, and all are listed. Without ``files`` the workspace
        is not looked at: the point has the files that were seen last.
        """
        arguments.flag(files, what="files")
        if type not in checkpoints.TYPES:
            raise Invalid(f"a checkpoint is {', '.join(checkpoints.TYPES)}, not {type!r}")
        fields: dict[str, Any] = {
            "name": _plain_name(name, what="checkpoint name"),
            "description": None if description is None else codec.storable_text(description, what="description"),
            "type": type,
        }
        key, now_ms = arguments.optional_name(idempotency_key, what="idempotency_key"), self._store._clock.now_ms()

        def op(tx: Tx) -> tuple[sessions.SessionRow, Checkpoint]:
            def do() -> tuple[tuple[sessions.SessionRow, checkpoints.CheckpointRow], str]:
                subagent_points.note(tx, self._row(tx), now_ms=now_ms)
                made = checkpoints.create(tx, self._store.scope, self.id, **fields, now_ms=now_ms)
                return made, made[1].id

            def again(made: str) -> tuple[sessions.SessionRow, checkpoints.CheckpointRow]:
                session = self._row(tx)
                return session, checkpoints.made_by_call(tx, session, made)

            sid, request = 0 if key is None else self._row(tx).sid, ["checkpoint", fields]
            session, row = once(
                tx, self._store.scope, sid, key, request, kind="checkpoint", now_ms=now_ms, do=do, again=again
            )
            return session, checkpoints.as_value(tx, session, row)

        if files:
            self._look_by_hand()
        self._seen, made = self._do(op)
        missing = self._why_not_captured() if files else None
        return made if missing is None else replace(made, not_captured=(missing, *made.not_captured))

    # ------------------------------------------------------------------ rewind and undo

    def preview_rewind(
        self,
        target: Point,
        *,
        files: bool = True,
        conversation: bool = True,
        overwrite: Iterable[str | PathLike[str]] = (),
    ) -> Rewind:
        """Say what going back to a point would do, path by path, without doing it; ``apply`` does exactly that.

        What somebody else edited is kept unless ``overwrite`` names it. Without ``conversation`` only files go back,
        without ``files`` only the conversation does.
        """
        return self._planned(target, files, conversation, paths_given(self, overwrite), shown=True)

    def rewind(
        self,
        target: Point,
        *,
        files: bool = True,
        conversation: bool = True,
        overwrite: Iterable[str | PathLike[str]] = (),
        take_over: bool = False,
        idempotency_key: str | None = None,
    ) -> Operation:
        """Move back to a point: it stays, what follows leaves and is kept on its branch. ``undo`` takes it back.

        Tasks, plan, notes, session state, sub-agents and files go back too. The next append opens a branch there.
        It is ``preview_rewind`` and ``apply`` in one.
        """
        key = arguments.optional_name(idempotency_key, what="idempotency_key")
        place_of(target)  # what is no point at all is said before anything else
        given = paths_given(self, overwrite)
        asked = _asked(target, files, conversation, given)
        earlier = self._done_before(asked, key)
        if earlier is not None:
            return earlier
        arguments.flag(take_over, what="take_over")
        return self._planned(target, files, conversation, given, shown=False)._apply(take_over, key)

    def _planned(
        self,
        target: Point,
        files: bool,
        conversation: bool,
        overwrite: tuple[bytes, ...],
        *,
        shown: bool,
    ) -> Rewind:
        arguments.flag(files, what="files")
        arguments.flag(conversation, what="conversation")
        if not files and not conversation:
            raise Invalid("nothing would go back: leave files or conversation out, not both")
        find = place_of(target)
        goal = Goal("rewind", find, _asked(target, files, conversation, overwrite))
        return Rewind(self, target, goal, files=files, conversation=conversation, overwrite=overwrite, shown=shown)

    def preview_undo(self, operation: Operation | str | None = None) -> Rewind:
        """Say what ``undo`` would do to the conversation and to files."""
        return self._preview_again("undo", _id_of(operation))

    def preview_redo(self) -> Rewind:
        """Say what ``redo`` would do to the conversation and to files."""
        return self._preview_again("redo", None)

    def _preview_again(self, kind: str, wanted: str | None, *, shown: bool = True) -> Rewind:
        scope = self._store.scope
        found = self._store._read(lambda tx: operations.to_take_up(tx, scope, self.id, kind, wanted))
        before = codec.decode(found.before)
        head, alone = before.get("head"), before.get("files", {}).get("root")
        if head is None and alone is not None:
            goal = Goal(kind, _at_head, _again(kind, wanted), wanted, files=(alone, before["files"]["seq"]))
            return Rewind(self, found.id, goal, conversation=False, shown=shown)
        if head is None:
            raise Invalid(f"that operation ({found.kind}) moves neither the conversation nor files; {kind} it")

        def find(tx: Tx, session: sessions.SessionRow) -> moves.Place:
            branch = trees.find(tx, scope, session.sid, head[0])
            tip = session.seq if branch.bid == session.branch and session.attached else branch.tip_seq
            return moves.Place(tip if head[2] else head[1], head[0], anywhere=True)

        goal = Goal(kind, find, _again(kind, wanted), wanted, since=codec.decode(found.after)["head"][:2])
        return Rewind(self, found.id, goal, files=operations.moved_files(found), shown=shown)

    def _moves_files(self, kind: str, wanted: str | None) -> bool:
        """Say whether an undo or redo is about an operation that changed files."""
        if not self._seen.workspace:
            return False
        scope = self._store.scope
        found = self._store._read(lambda tx: operations.find_to_take_up(tx, scope, self.id, kind, wanted))
        return found is not None and operations.moved_files(found)

    def undo(self, operation: Operation | str | None = None, *, idempotency_key: str | None = None) -> Operation:
        """Take back the last operation of this session, or a named one unless a later one changed the same thing."""
        wanted, key = _id_of(operation), arguments.optional_name(idempotency_key, what="idempotency_key")
        earlier = self._done_before(["undo", wanted], key)
        if earlier is not None:
            return earlier
        if self._moves_files("undo", wanted):
            return self._preview_again("undo", wanted, shown=False)._apply(False, key)

        def op(tx: Tx, now: int) -> tuple[sessions.SessionRow, Operation]:
            done = operations.undo_session(tx, self._store.scope, self.id, operation_id=wanted, now_ms=now)
            return done.session or self._row(tx), done.operation

        return self._operate(["undo", wanted], op, idempotency_key)

    def redo(self, *, idempotency_key: str | None = None) -> Operation:
        """Bring back what the last undo of this session took back."""
        key = arguments.optional_name(idempotency_key, what="idempotency_key")
        earlier = self._done_before(["redo"], key)
        if earlier is not None:
            return earlier
        if self._moves_files("redo", None):
            return self._preview_again("redo", None, shown=False)._apply(False, key)

        def op(tx: Tx, now: int) -> tuple[sessions.SessionRow, Operation]:
            done = operations.redo(tx, self._store.scope, session_id=self.id, now_ms=now)
            return done.session or self._row(tx), done.operation

        return self._operate(["redo"], op, idempotency_key)

    def operations(self, *, limit: int = 100) -> list[Operation]:
        """Give this session's operations, newest first."""
        arguments.whole(limit, what="limit")

        def look(tx: Tx) -> list[Operation]:
            rows = operations.of_session(tx, self._store.scope, self.id, limit=limit)
            return operations.all_named(tx, rows)

        return self._store._read(look)

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
        """Open a branch at a point, the head by default, and stay where you are; nothing is copied.

        With ``as_session`` the branch is a session of its own. ``into`` names a new or empty directory: it gets the
        files as they were at that point, and is the workspace of the new session; what belongs to a repository is left
        out, and logged. ``undo`` takes the fork back, and leaves that directory.
        """
        if into is not None and not as_session:
            raise Invalid("only a session has a workspace of its own: fork(as_session=True, into=...)")
        place = None if into is None else arguments.workspace(into)
        if place is not None and self._seen.workspace and Path(place).is_relative_to(self._seen.workspace):
            raise Invalid(f"{place!r} lies in the workspace of this session; name a directory outside of it")
        name = _plain_name(name, what="session name" if as_session else "branch name")
        find = None if at is None else place_of(at)
        request = ["fork", None if at is None else request_of(at), name, as_session, *([place] if place else [])]
        key = arguments.optional_name(idempotency_key, what="idempotency_key")
        if place is not None and self._done_before(request, key) is None:
            write_files(self, at, place)

        def op(tx: Tx, now: int) -> tuple[sessions.SessionRow, Operation]:
            at = None if find is None else find(tx, self._row(tx))
            if as_session:
                return moves.fork_session(tx, self._store.scope, self.id, at, name=name, workspace=place, now_ms=now)
            return moves.fork(tx, self._store.scope, self.id, at, name=name, now_ms=now)

        done = self._operate(request, op, key)
        if as_session:
            return self._store._session(
                *self._store._read(lambda tx: moves.forked_session(tx, self._store.scope, done.id))
            )
        return self._store._read(lambda tx: self._branch_value(tx, moves.forked_branch(tx, self._store.scope, done.id)))

    def _branch_value(self, tx: Tx, branch: trees.BranchRow) -> Branch:
        parent = None if branch.parent is None else trees.get(tx, branch.scope, branch.parent).name
        session = self._row(tx)
        names = {} if branch.parent is None or parent is None else {branch.parent: parent}
        return branch_value(session, branch, names)

    def switch(self, branch: str | Branch, *, files: bool = False, idempotency_key: str | None = None) -> Operation:
        """Move to the tip of a branch; ``undo`` moves back. With ``files`` the workspace becomes as it was there."""
        name = arguments.name(branch.id if isinstance(branch, Branch) else branch, what="branch")
        arguments.flag(files, what="files")
        key = arguments.optional_name(idempotency_key, what="idempotency_key")
        asked = ["switch", name, *(["files"] if files else [])]
        earlier = self._done_before(asked, key)
        if earlier is not None:
            return earlier
        if files:
            return self._planned_switch(name, shown=False)._apply(False, key)
        return self._operate(
            asked,
            lambda tx, now: moves.switch(tx, self._store.scope, self.id, branch=name, now_ms=now),
            key,
        )

    def preview_switch(self, branch: str | Branch) -> Rewind:
        """Say what ``switch`` with ``files`` would do to the conversation and to files; ``apply`` does it."""
        name = arguments.name(branch.id if isinstance(branch, Branch) else branch, what="branch")
        return self._planned_switch(name, shown=True)

    def _planned_switch(self, name: str, *, shown: bool) -> Rewind:
        def find(tx: Tx, session: sessions.SessionRow) -> moves.Place:
            uid, seq, _ = moves.tip_of(tx, session, name)
            return moves.Place(seq, uid, anywhere=True, attached=True)

        return Rewind(self, name, Goal("switch", find, ["switch", name, "files"]), shown=shown)


def _again(kind: str, wanted: str | None) -> list[Any]:
    return ["undo", wanted] if kind == "undo" else [kind]


def _asked(target: Point, files: bool, conversation: bool, overwrite: tuple[bytes, ...]) -> list[Any]:
    """Describe a rewind for comparing two requests with one idempotency key."""
    plain = files and conversation and not overwrite
    more = [] if plain else [files, conversation, sorted(map(os.fsdecode, overwrite))]
    return ["rewind", request_of(target), *more]


def _at_head(tx: Tx, session: sessions.SessionRow) -> moves.Place:
    return moves.Place(session.seq, session.uid, anywhere=True)


def _id_of(operation: Operation | str | None) -> str | None:
    wanted = operation.id if isinstance(operation, Operation) else operation
    return arguments.optional_name(wanted, what="operation")


def _plain_name(name: str | None, *, what: str) -> str | None:
    name = arguments.optional_name(name, what=what)
    if name is not None and is_id(name):
        raise Invalid(f"{name!r} has the form of an id; choose a name that cannot be mistaken for one")
    return name
