"""Opening a store only to read it, as cheaply as possible: for commands that must start at once.

A file is opened with the reading half of the engine. Servers and in-memory stores take the full path: there, connecting
costs more than importing does. Either way the store answers the same calls.
"""

from __future__ import annotations

from ..clock import SystemClock
from ..errors import Error
from . import address
from .reading import Reading
from .store_reading import Reader, StoreReading


def open_empty() -> StoreReading[Reading]:
    """Return a store with nothing in it, for reading where there is none."""
    from ..storage.memory import MemoryBackend

    return Reader(MemoryBackend(), clock=SystemClock(), scope="", url=":memory:")


def open_for_reading(url: str, *, indexes: bool = False) -> StoreReading[Reading]:
    """Open an existing store for reading, or raise ``NotFound``; close it like any other.

    With ``indexes`` the search index can be brought up to date: beside a file that is always so, but a server keeps it
    in the store, which is then opened for writing if this role may.
    """
    place = address.given(url)
    if address.is_server(place) or address.is_memory(place):
        return _open_fully(place, indexes=indexes and address.is_server(place))
    from ..storage.sqlite_reader import SqliteReader

    return Reader(SqliteReader(address.path_of(place)), clock=SystemClock(), scope="", url=address.shown(place))


def _open_fully(place: str, *, indexes: bool) -> StoreReading[Reading]:
    """Open a server or memory; a server for writing only if there is a store: opening would create it or migrate it."""
    from .open import open_store

    reading = open_store(place, read_only=True)
    if not indexes:
        return reading
    try:
        writing = open_store(place)
    except Error:  # this role may only read: its index is temporary
        return reading
    reading.close()
    return writing
