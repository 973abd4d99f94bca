"""What every part of a session stands on: the store, and the fields that were last seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ops import sessions
from ..storage.base import Tx

if TYPE_CHECKING:
    from .store import Store


class Handle:
    """A session of a store, as last seen."""

    def __init__(self, store: Store, seen: sessions.SessionRow) -> None:
        self._store = store
        self._seen = seen

    @property
    def id(self) -> str:
        """Unique everywhere, sorted by time."""
        return self._seen.id

    def _row(self, tx: Tx) -> sessions.SessionRow:
        return sessions.get(tx, self._store.scope, self.id)
