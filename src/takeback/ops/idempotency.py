"""Idempotency: a call with a key that was made before gives what the first call made.

The key is remembered in the transaction of the call. Entries are named by their branch and their first and last seq;
whether a retry is the same is then seen in the log. Anything else is named by its kind and id, with a digest of the
request; the same key with another request raises ``Conflict``. Numbers of this store are never remembered, so a key
means the same in a copy.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .. import codec
from ..errors import Conflict
from ..storage.base import Tx
from ..tables.history import ONCE, OnceRow

if TYPE_CHECKING:
    from ..tables.sessions import SessionRow

ENTRIES = "entries"
T = TypeVar("T")


class ApiCall(NamedTuple):
    """One call of the API: its idempotency key, what it asks for, and when it was made.

    ``request`` is compared when the key comes again: any plain value that tells two requests apart.
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
    """Run ``do``, which returns a value and its id, unless this key did it before: then return ``again(id)``.

    An empty id says that nothing was made which a retry could give again. ``sid`` is 0 for a call on the store.
    """
    key = call.key
    if key is None:
        return do()[0]
    tx.lock(f"once {scope} {sid} {key}")  # of two calls at once, the second one finds what the first one made
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
        raise Conflict(f"idempotency key {key!r} was used for another request; use a new key", found=key)
    return row.id


def digest(request: Any) -> int:
    """Return what two requests are compared by: CRC-32 of the request as JSON with sorted keys."""
    return zlib.crc32(codec.canonical(request))


def keep_entries(tx: Tx, session: SessionRow, key: str, branch: int, first: int, last: int, now_ms: int) -> None:
    """Remember the entries that a call with this key stored."""
    keep(tx, OnceRow(session.scope, session.sid, key, branch, first, last, ENTRIES, "", 0, now_ms))


def entries_row(session: SessionRow, key: str, seq: int, now_ms: int) -> OnceRow:
    """Return the record of one entry that was stored at the head of a session."""
    return OnceRow(session.scope, session.sid, key, session.branch, seq, seq, ENTRIES, "", 0, now_ms)


def entries_of(tx: Tx, scope: str, sid: int, key: str) -> list[OnceRow]:
    """Return the runs of entries that calls with this key stored, one for each branch on which they did."""
    return ONCE.all(tx, "WHERE scope = ? AND session = ? AND ikey = ? AND branch > 0", (scope, sid, key))


def keep(tx: Tx, row: OnceRow) -> None:
    """Remember a key."""
    tx.keyed()
    ONCE.put(tx, row)


def forget(tx: Tx, scope: str, sid: int, kind: str, made_id: str) -> None:
    """Let the keys go that stand for something which is being deleted: a retry makes it anew."""
    where = "scope = ? AND session = ? AND kind = ? AND id = ?"
    tx.run(f"DELETE FROM idempotency WHERE {where}", (scope, sid, kind, made_id))
