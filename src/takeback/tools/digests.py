"""Two steps for what takes something away: the first call says what would go, the second one does it.

The answer of the first call has a digest of everything it is about. The second call must repeat it, and is refused if
anything has changed since, so that nobody does this without having seen what it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from .. import codec
from ..client.store import Store
from ..errors import Conflict

_MOST = 10_000


def digest_of(*about: Any) -> str:
    """Return the digest of what a call is about."""
    return sha256(codec.encode([*about])).hexdigest()[:16]


def require(given: str, found: str, what: str) -> None:
    """Raise ``Conflict`` if a digest is not that of how things are now."""
    if given != found:
        raise Conflict(
            f"this digest does not belong to {what} as it is now: it has changed since, or the digest is of something"
            " else. Nothing was done. Call without a digest to see what would happen now",
            expected=given,
            found=found,
        )


def sessions_of(store: Store, agent: str) -> Iterator[tuple[str, int]]:
    """Yield the sessions of an agent with their revisions, the last changed first."""
    for number, each in enumerate(store.iter_sessions(agent=agent, archived=None)):
        if number == _MOST:
            return
        yield each.id, each.revision
