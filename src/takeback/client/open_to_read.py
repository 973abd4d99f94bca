"""Opening a store only to look at it, as lightly as possible: what a shell does that must start at once.

A file is opened with the engine's reading half. Servers and stores in memory go the full way: connecting costs more
than loading does there. Either way the store can be asked the same things.
"""

from __future__ import annotations

from ..clock import SystemClock
from . import address
from .reading import Reading
from .store_reading import Reader, StoreReading


def open_empty() -> StoreReading[Reading]:
    """Give a store with nothing in it, for looking where there is none."""
    from ..storage.memory import MemoryBackend

    return Reader(MemoryBackend(), clock=SystemClock(), scope="", url=":memory:")


def open_for_reading(url: str) -> StoreReading[Reading]:
    """Open a store that is there; ``NotFound`` if there is none. Close it as any other."""
    place = address.given(url)
    if address.is_server(place) or address.is_memory(place):
        from .open import open_store

        return open_store(place, read_only=True)
    from ..storage.sqlite_reader import SqliteReader

    return Reader(SqliteReader(address.path_of(place)), clock=SystemClock(), scope="", url=address.shown(place))
