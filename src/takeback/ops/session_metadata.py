"""The rows that find sessions by their metadata: they follow the session's row and its details.

They are written in the transaction that changes the metadata, and moved in the one that changes the session's rank or
puts it into the trash, so a listing that filters by them walks them in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..storage.base import Tx
from ..tables import metadata
from ..tables.sessions import METADATA, PURGED, MetadataRow, SessionRow
from ..tables.table import several, slots

OF = "INDEXED BY session_meta_of WHERE scope = ? AND sid = ?"
ERASE = f"DELETE FROM session_meta {OF}"
_MANY = 500  # sessions of one read


def put(tx: Tx, session: SessionRow, doc: bytes) -> None:
    """Write the rows of a session that has just been created with these details."""
    METADATA.put_many(tx, metadata.rows_of(session, doc))


def move(tx: Tx, session: SessionRow) -> None:
    """Move the rows that find a session to where it is now; erase those of one that was purged.

    Damaged ones stay as they are: they must not keep anybody from appending, and ``verify`` reports them.
    """
    if session.hidden == PURGED:
        tx.run(ERASE, (session.scope, session.sid))
        return
    for row in _of(tx, session):
        METADATA.update(tx, row, row._replace(hidden=session.hidden, rank=session.rank))


def move_many(tx: Tx, found: Sequence[SessionRow]) -> None:
    """Move the rows of sessions of one scope, as ``move`` does for one; none of them is purged."""
    for some in several(found, _MANY):
        known = {session.sid: session for session in some}
        where = f"INDEXED BY session_meta_of WHERE scope = ? AND sid IN ({slots(len(some))})"
        stored = tx.all(f"{METADATA.select} {where}", (some[0].scope, *known))
        old = [METADATA.unchecked(row) for row in stored if METADATA.is_sound(row)]
        METADATA.delete_many(tx, old)
        METADATA.put_many(tx, [row._replace(hidden=known[row.sid].hidden, rank=known[row.sid].rank) for row in old])


def _of(tx: Tx, session: SessionRow) -> list[MetadataRow]:
    stored = tx.all(f"{METADATA.select} {OF}", (session.scope, session.sid))
    return [METADATA.unchecked(row) for row in stored if METADATA.is_sound(row)]


def index(tx: Tx, session: SessionRow, doc: bytes) -> None:
    """Make the rows by which a session's metadata finds it those of its details, which have just been written."""
    old, new = set(_of(tx, session)), dict.fromkeys(metadata.rows_of(session, doc))
    for row in old - new.keys():
        METADATA.delete(tx, *row)
    for row in new.keys() - old:
        METADATA.upsert(tx, row)  # a damaged one may be in its place
