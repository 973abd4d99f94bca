"""Opening a store only to read it, as cheaply as possible: for commands that must start at once.

A file is opened with the reading half of the engine. Servers and in-memory stores take the full path: there, connecting
costs more than importing does. Either way the store answers the same calls.
"""

from __future__ import annotations

from ..clock import SystemClock
from . import address
from .reading import Reading
from .store_reading import Reader, StoreReading


def open_empty() -> StoreReading[Reading]:
    """Return a store with nothing in it, for reading where there is none."""
    from ..storage.memory import MemoryBackend

    return Reader(MemoryBackend(), clock=SystemClock(), scope="", url=":memory:")


def open_for_reading(url: str) -> StoreReading[Reading]:
    """Open an existing store for reading, or raise ``NotFound``; close it like any other."""
    place = address.given(url)
    if address.is_server(place) or address.is_memory(place):
        from .open import open_store

        return open_store(place, read_only=True)
    from ..storage.sqlite_reader import SqliteReader

    return Reader(SqliteReader(address.path_of(place)), clock=SystemClock(), scope="", url=address.shown(place))
