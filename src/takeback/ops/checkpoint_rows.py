"""Rows of checkpoints, found by name or id, and the points they name. ``checkpoints`` creates them."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from ..errors import Corrupt, NotFound
from ..storage.base import Tx, Value
from ..tables.history import CHECKPOINT
from ..tables.history import CheckpointRow as CheckpointRow
from ..tables.table import Table
from . import branches, log, sessions
from .sessions import SessionRow

R = TypeVar("R", bound="tuple[Any, ...]")


def by_id(tx: Tx, scope: str, checkpoint_id: str) -> CheckpointRow | None:
    """Return a checkpoint of any session by its id, or None."""
    return CHECKPOINT.one(tx, "WHERE scope = ? AND id = ?", (scope, checkpoint_id))


def find(tx: Tx, session: SessionRow, wanted: str) -> CheckpointRow | None:
    """Return the newest checkpoint of a session with that name, or the one with that id, or None."""
    where = "WHERE scope = ? AND session = ? AND name = ? ORDER BY cid DESC LIMIT 1"
    found = CHECKPOINT.one(tx, where, (session.scope, session.sid, wanted)) or by_id(tx, session.scope, wanted)
    return None if found is None or found.session != session.sid else found


def get(tx: Tx, session: SessionRow, wanted: str) -> CheckpointRow:
    """Return a session's checkpoint by its name or its id."""
    found = find(tx, session, wanted)
    if found is None:
        raise NotFound(f"this session has no checkpoint {wanted!r}; checkpoints() lists them")
    return found


class Portion(NamedTuple):
    """Which checkpoints to list: how many, after which, and whether from the newest on."""

    limit: int | None = None
    after: int | None = None
    newest: bool = False

    def read(self, tx: Tx, table: Table[R], where: str, args: tuple[Value, ...]) -> tuple[list[R], int | None]:
        """Return the rows that match a condition, in order, and the number after which the next page begins."""
        first, than, order = (1 << 62, "<", " DESC") if self.newest else (0, ">", "")
        most = 1 << 62 if self.limit is None else self.limit + 1
        sql = f"WHERE {where} AND {table.number} {than} ? ORDER BY {table.number}{order} LIMIT ?"
        found = table.all(tx, sql, (*args, first if self.after is None else self.after, most))
        if self.limit is None or len(found) <= self.limit:
            return found, None
        return found[: self.limit], getattr(found[self.limit - 1], table.number)


EVERY = Portion()


def of_session(tx: Tx, session: SessionRow, portion: Portion = EVERY) -> tuple[list[CheckpointRow], int | None]:
    """Return a session's checkpoints, and where the next page begins."""
    return portion.read(tx, CHECKPOINT, "scope = ? AND session = ?", (session.scope, session.sid))


def newest_on_path(tx: Tx, session: SessionRow, low: int) -> CheckpointRow | None:
    """Return the newest checkpoint on the head's path at or after entry ``low``, or None."""
    where = "WHERE scope = ? AND session = ? AND seq >= ? AND seq <= ? ORDER BY cid DESC"
    for row in CHECKPOINT.all(tx, where, (session.scope, session.sid, low, session.seq)):
        if log.is_on_path(tx, session, branches.get(tx, row.scope, row.branch).uid, row.seq):
            return row
    return None


def point(tx: Tx, row: CheckpointRow) -> log.Point:
    """Return the point that a checkpoint names, verified against its hash."""
    found = log.point_on(tx, row.scope, branches.get(tx, row.scope, row.branch), row.seq)
    if found.hash != row.hash:
        raise Corrupt(f"checkpoint {row.name!r} does not match the entry it names", what=f"checkpoint {row.id}")
    return found


def seen_from(tx: Tx, session: SessionRow, row: CheckpointRow) -> SessionRow:
    """Return the session as it stood at a checkpoint."""
    place = point(tx, row)
    return sessions.standing_at(session, branches.get(tx, row.scope, row.branch), place.seq, place.numbers)


def made_by_call(tx: Tx, session: SessionRow, checkpoint_id: str) -> CheckpointRow:
    """Return the checkpoint that an earlier call with the same idempotency key made."""
    found = by_id(tx, session.scope, checkpoint_id)
    if found is None:
        raise NotFound("the checkpoint made by the first call with this key has since been deleted; use a new key")
    return found
