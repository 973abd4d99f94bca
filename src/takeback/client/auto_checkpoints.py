"""Automatic checkpoints: a thread that checkpoints each agent in turn, whenever something changed.

It holds only a weak reference to the store, so dropping or closing the store ends it. A failure does not: it is kept
where callers find it, warned about once, and the next round tries again.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from typing import TYPE_CHECKING

from ..clock import to_datetime
from ..errors import Closed
from ..ops import agent_checkpoints
from ..ops.agent_checkpoints import New
from ..storage.runner import ALONE

if TYPE_CHECKING:
    from .store_checkpoints import StoreCheckpoints

_PATIENCE = 5.0


class AutoCheckpoints:
    """Automatic checkpoints of some agents of a store."""

    def __init__(self, store: StoreCheckpoints, ids: tuple[str, ...], interval: float, keep: int) -> None:
        self.error: BaseException | None = None
        self._store = weakref.ref(store)
        self._ids, self._interval, self._keep = ids, interval, keep
        self._stop, self._warned = threading.Event(), False
        self._thread = threading.Thread(target=_run, args=(self,), name="takeback-checkpoints", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, waiting a little for a checkpoint that is being taken."""
        self._stop.set()
        # A thread cannot join itself: a hook on the warning of a failure may close the store.
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_PATIENCE)

    def round(self) -> bool:
        """Take a checkpoint of each agent that changed; False if the store is gone."""
        store = self._store()
        if store is None:
            return False
        for agent_id in self._ids:
            if not self._stop.is_set():
                _take(store, agent_id, self._keep)
        return True

    def _step(self) -> bool:
        """Wait, then do what is due; False when the thread should end."""
        if self._stop.wait(self._interval):
            return False
        try:
            found = self.round()
        except Closed:
            return False
        except Exception as error:
            self._report(error)
            return True
        self.error = None
        return found

    def _report(self, error: Exception) -> None:
        self.error = error
        if not self._warned:
            self._warned = True
            warnings.warn(f"an automatic checkpoint failed: {error}", RuntimeWarning, stacklevel=2)


def _run(auto: AutoCheckpoints) -> None:
    while auto._step():
        pass


def _take(store: StoreCheckpoints, agent_id: str, keep: int) -> None:
    """Take a checkpoint of an agent if it changed, and drop the oldest automatic ones."""
    now_ms = store._clock.now_ms()
    new = New(f"Auto checkpoint {to_datetime(now_ms):%Y-%m-%d %H:%M:%S} UTC", None, "automatic")
    store._write_as(ALONE, agent_checkpoints.take_automatic, store.scope, agent_id, new, keep, now_ms=now_ms)
