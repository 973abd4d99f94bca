"""Stores that agents use today, each driven the way its own framework drives it, one module per peer.

None is tuned and none is slowed down: all of them sync each commit, because that is the default of the SQLite
that Python links. A module imports its own library only, so that a process which measures one peer does not pay
for the others; preparing is the peer's too where it can be, and otherwise writes the rows that the peer would.
A module can be imported without its library, of which a class says as ``needs`` what it is called.
"""

from __future__ import annotations

from importlib.util import find_spec


def is_installed(package: str) -> bool:
    """Whether a library can be imported."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # not even what it is part of
        return False
