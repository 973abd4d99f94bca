"""Idempotency: a call with a key that was used before returns what the first call made.

The key is stored in the transaction of the call itself. Entries are recorded by branch and first and last seq, and a
retry is compared with the log. Anything else is recorded by kind and id, with a digest of the request; the same key
with a different request raises ``Conflict``. Local numbers are never recorded, so a key means the same in a copy of
the store.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .. import codec
from ..errors import Conflict
from ..storage.base import Tx
from ..tables.history import ONCE, OnceRow

if TYPE_CHECKING:
    from ..tables.branches import BranchRow
    from ..tables.sessions import SessionRow

ENTRIES = "entries"
T = TypeVar("T")


class ApiCall(NamedTuple):
    """One call of the API: its idempotency key, what it asks for, and when it was made.

    ``request`` is compared when the key is used again: any plain value that distinguishes two requests.
    """

    key: str | None
    request: Any
    now_ms: int


def once(
    tx: Tx,
    scope: str,
    sid: int,
    call: ApiCall,
    *,
    kind: str,
    do: Callable[[], tuple[T, str]],
    again: Callable[[str], T],
) -> T:
    """Run ``do``, which returns a value and its id; if this key was used before, return ``again(id)`` instead.

    An empty id means that nothing was made that a retry could return. ``sid`` is 0 for a call on the store.
    """
    key = call.key
    if key is None:
        return do()[0]
    tx.lock(f"once {scope} {sid} {key}")  # of two concurrent calls, the second then finds what the first made
    made = made_before(tx, scope, sid, key, call.request)
    if made is not None:
        return again(made)
    value, made_id = do()
    if made_id:
        keep(tx, OnceRow(scope, sid, key, 0, 0, 0, kind, made_id, digest(call.request), call.now_ms))
    return value


def made_before(tx: Tx, scope: str, sid: int, key: str, request: Any) -> str | None:
    """Return the id of what an earlier call with this key made, or None; another request raises ``Conflict``."""
    row = ONCE.get(tx, scope, sid, key, 0, 0)
    if row is None:
        return None
    if row.digest != digest(request):
        raise Conflict(f"idempotency key {key!r} was already used for a different request; use a new key", found=key)
    return row.id


def digest(request: Any) -> int:
    """Return the digest by which requests are compared: CRC-32 of the request as JSON with sorted keys."""
    return zlib.crc32(codec.canonical(request))


def keep_entries(tx: Tx, session: SessionRow, key: str, branch: int, first: int, last: int, now_ms: int) -> None:
    """Record the entries that a call with this key stored."""
    keep(tx, OnceRow(session.scope, session.sid, key, branch, first, last, ENTRIES, "", 0, now_ms))


def entries_row(session: SessionRow, key: str, seq: int, now_ms: int) -> OnceRow:
    """Return the record of one entry that was stored at the head of a session."""
    return OnceRow(session.scope, session.sid, key, session.branch, seq, seq, ENTRIES, "", 0, now_ms)


def entries_of(tx: Tx, scope: str, sid: int, key: str) -> list[OnceRow]:
    """Return the runs of entries that calls with this key stored, one per branch."""
    return ONCE.all(tx, "WHERE scope = ? AND session = ? AND ikey = ? AND branch > 0", (scope, sid, key))


def blank(tx: Tx, branch: BranchRow, seqs: Sequence[int]) -> None:
    """Erase the digests of the requests that stored these entries of a branch: short texts could be guessed by them."""
    where = "WHERE scope = ? AND session = ? AND branch = ? AND digest <> 0"
    rows = ONCE.all(tx, where, (branch.scope, branch.session, branch.bid))
    hit = [row for row in rows if any(row.seq <= seq <= row.last_seq for seq in seqs)]
    ONCE.update_many(tx, [(row, row._replace(digest=0)) for row in hit])


def keep(tx: Tx, row: OnceRow) -> None:
    """Store a key."""
    tx.keyed()
    ONCE.put(tx, row)


def forget(tx: Tx, scope: str, sid: int, kind: str, made_id: str) -> None:
    """Delete the keys that stand for something being deleted: a retry makes it again."""
    where = "scope = ? AND session = ? AND kind = ? AND id = ?"
    tx.run(f"DELETE FROM idempotency WHERE {where}", (scope, sid, kind, made_id))
