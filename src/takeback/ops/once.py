"""Idempotency of calls that store no entry: a retry gives what the first call made.

The key is remembered with the number of what the call made and a digest of the request, in the same
transaction; the same key with another request is ``Conflict``. (For entries the log itself is compared.)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, TypeVar

from .. import codec
from ..errors import Conflict
from ..storage.base import Tx
from . import entries

T = TypeVar("T")


def once(
    tx: Tx,
    scope: str,
    sid: int,
    key: str | None,
    request: Any,
    *,
    do: Callable[[], tuple[T, int]],
    again: Callable[[int], T],
) -> T:
    """Run ``do``, which gives a value and its number, unless this key did it before: then ``again(number)``."""
    if key is None:
        return do()[0]
    tx.lock(f"once {scope} {sid} {key}")  # of two calls at once, the second one finds what the first one made
    made = made_before(tx, scope, sid, key, request)
    if made is not None:
        return again(made)
    value, number = do()
    if number == 0:
        return value  # nothing was made that a retry could give again
    entries.keep_key(tx, scope, sid, key, (0, number, number, _digest(request)))
    return value


def _digest(request: Any) -> int:
    return zlib.crc32(codec.canonical(request))


def made_before(tx: Tx, scope: str, sid: int, key: str, request: Any) -> int | None:
    """Give the number of what an earlier call with this key made; another request under it is ``Conflict``."""
    for branch, number, _, before in entries.find_keys(tx, scope, sid, key):
        if branch == 0:
            if before != _digest(request):
                raise Conflict(f"idempotency key {key!r} was used for another request; use a new key", found=key)
            return int(number)
    return None
