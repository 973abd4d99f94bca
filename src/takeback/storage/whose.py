"""Whose file lies where the index of a store would be: a store may be called just that, or somebody's notes.

An index says in its header that it is one, from its first byte on. Where the header cannot be read, the schema record
of its first table says so, which is binary and in no text about it.

The invariant: a file counts as ours only if it proves that itself. Neither its name, its inode nor its size does.
Files are read as SQLite reads them, because opening one in any other way would drop the locks that a store in this
process may hold on it.
"""

from __future__ import annotations

import os
import stat
from enum import Enum
from itertools import count

import apsw

APPLICATION_ID = 0x54414B53  # "TAKS"; a store has "TAKE"
_MAGIC = b"SQLite format 3\0"
_AT = slice(68, 72)  # of the application id in a header
_SCHEMA_BYTES = 1 << 20  # the schema is written first, so it lies in the first pages
_FLAGS = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]


class Whose(Enum):
    """Whose a file is."""

    NOBODYS = "there is none, or it is empty"
    OURS = "a search index"
    UNKNOWN = "no database: a damaged one, or anything else"
    SOMEBODYS = "another database, or no plain file"


def of(path: str, table: str) -> Whose:
    """Return whose a file is; ``table`` is the first one that an index has."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return Whose.NOBODYS
    except OSError:
        return Whose.SOMEBODYS
    if not stat.S_ISREG(found.st_mode):
        return Whose.SOMEBODYS
    return _of_file(path, table) if found.st_size else Whose.NOBODYS


def _of_file(path: str, table: str) -> Whose:
    try:
        data = _beginning(path)
    except apsw.Error:
        return Whose.SOMEBODYS
    if data.startswith(_MAGIC):
        return Whose.OURS if data[_AT] == APPLICATION_ID.to_bytes(4, "big") else Whose.SOMEBODYS
    return Whose.OURS if _record(table) in data else Whose.UNKNOWN


def _beginning(path: str) -> bytes:
    file = apsw.VFSFile("", path, _FLAGS)
    try:
        return file.xRead(_SCHEMA_BYTES, 0)
    finally:
        file.xClose()


def _record(table: str) -> bytes:
    """Return how the schema lists the first table of a database, which begins on the second page."""
    return f"table{table}{table}\2CREATE TABLE {table} ".encode()


def set_aside(path: str, sides: tuple[str, ...]) -> str:
    """Rename a file and those beside it to a name that is free; return it."""
    aside = next(name for number in count(1) if not os.path.lexists(name := f"{path}.damaged-{number}"))
    for side in sides:
        if os.path.lexists(path + side):
            os.rename(path + side, aside + side)
    return aside
