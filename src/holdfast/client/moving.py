"""Moving in time: branches, rewind, undo. Nothing that was said is ever lost by it."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import Invalid
from ..ids import is_id
from ..model.branch import Branch
from ..model.message import Message
from ..model.operation import Operation
from ..ops import branches as trees
from ..ops import operations as changes
from ..ops import sessions
from ..storage.base import Tx
from . import check
from .handle import Handle


class Moving(Handle):
    """The part of a session that moves its head."""

    def fork(self, at: int | Message | None = None, *, name: str | None = None) -> Branch:
        """Open a branch at a point, the head by default, and stay where you are; nothing is copied."""
        seq, uid = (None, None) if at is None else _point(at)
        name = check.optional_name(name, what="branch name")
        if name is not None and is_id(name):
            raise Invalid(f"{name!r} has the form of an id; choose a name that cannot be mistaken for one")
        now_ms = self._store._clock.now_ms()

        def op(tx: Tx) -> tuple[sessions.SessionRow, Branch]:
            row, made = changes.fork(tx, self._store.scope, self.id, at=seq, uid=uid, name=name, now_ms=now_ms)
            parent = None if made.parent is None else trees.get(tx, made.parent).name
            return row, trees.as_value(made, parent=parent, head_seq=made.tip_seq, is_head=False)

        row, branch = self._store._write(op)
        self._seen = row
        return branch

    def branches(self) -> list[Branch]:
        """Give all branches, oldest first."""

        def look(tx: Tx) -> list[Branch]:
            row = self._row(tx)
            found = trees.of_session(tx, row.scope, row.sid, row.branches)
            names = {branch.bid: branch.name for branch in found}
            return [_branch_value(row, branch, names) for branch in found]

        return self._store._read(look)

    def switch(self, branch: str | Branch) -> Operation:
        """Move to the tip of a branch; ``undo`` moves back."""
        name = check.name(branch.id if isinstance(branch, Branch) else branch, what="branch")
        return self._operate(lambda tx, now: changes.switch(tx, self._store.scope, self.id, branch=name, now_ms=now))

    def rewind(self, target: int | Message) -> Operation:
        """Move back to a point of the path; it stays, what follows leaves. The next append opens a branch."""
        seq, uid = _point(target)
        return self._operate(
            lambda tx, now: changes.rewind(tx, self._store.scope, self.id, to=seq, uid=uid, now_ms=now)
        )

    def undo(self, operation: Operation | str | None = None) -> Operation:
        """Take back the last operation of this session, or the named one if nothing newer stands."""
        wanted = operation.id if isinstance(operation, Operation) else operation
        wanted = check.optional_name(wanted, what="operation")
        return self._operate(
            lambda tx, now: changes.undo(tx, self._store.scope, self.id, operation_id=wanted, now_ms=now)
        )

    def redo(self) -> Operation:
        """Bring back what the last undo took back."""
        return self._operate(lambda tx, now: changes.redo(tx, self._store.scope, self.id, now_ms=now))

    def operations(self, *, limit: int = 100) -> list[Operation]:
        """Give this session's operations, newest first."""
        check.whole(limit, what="limit")
        return self._store._read(lambda tx: changes.of_session(tx, self._store.scope, self.id, limit=limit))

    def _operate(self, op: Callable[[Tx, int], tuple[sessions.SessionRow, Operation]]) -> Operation:
        now_ms = self._store._clock.now_ms()
        row, operation = self._store._write(lambda tx: op(tx, now_ms))
        self._seen = row
        return operation


def _point(point: int | Message) -> tuple[int, str | None]:
    """Give seq and, for a message, the branch that must own it."""
    if isinstance(point, Message):
        return point.seq, point.branch
    return check.whole(point, what="a point"), None


def _branch_value(session: sessions.SessionRow, branch: trees.BranchRow, names: dict[int, str]) -> Branch:
    here = session.branch == branch.bid
    tip = session.seq if here and session.attached else branch.tip_seq
    parent = None if branch.parent is None else names.get(branch.parent)
    return trees.as_value(branch, parent=parent, head_seq=tip, is_head=here)
