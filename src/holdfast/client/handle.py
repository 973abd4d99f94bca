"""What every part of a session stands on: the store, and the fields that were last seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.session import SessionInfo
from ..ops import sessions
from ..storage.base import Tx

if TYPE_CHECKING:
    from .store import Store


class Handle:
    """A session of a store, as last seen."""

    def __init__(self, store: Store, info: SessionInfo) -> None:
        self._store = store
        self._info = info

    @property
    def id(self) -> str:
        """Unique everywhere, sorted by time."""
        return self._info.id

    def _row(self, tx: Tx) -> sessions.SessionRow:
        return sessions.get(tx, self._store.scope, self.id)
