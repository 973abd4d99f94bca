"""Sessions that arrive from a file: they have no workspace here until somebody says which.

A path in a file is somebody else's, and may by chance or by intent be one of this machine. So no column that finds
sessions or files by a directory takes it over: it is kept among the details, as ``came_from``, where nothing but an
export looks at it. An export writes it back: the same session gives the same lines from whichever store.

A session that is here already stays where it is: its workspace, its key and its name are those of this store.
"""

from __future__ import annotations

import itertools
import re
from typing import Any, NamedTuple

from .. import codec
from ..ops import sessions
from ..ops.verify.base import Read
from ..storage.base import Tx
from ..tables.sessions import PURGED, SessionRow
from .stream import SessionRecord

CAME_FROM = "came_from"
DIRECTORY = "directory"
_LOCAL = (CAME_FROM, DIRECTORY)
_OF_DIRECTORY = re.compile(r"agent:[^:]*:directory:")


class Here(NamedTuple):
    """A session as it is in the store that a file is read into: its row and its details."""

    row: SessionRow
    said: dict[str, Any]

    @property
    def came_from(self) -> dict[str, Any] | None:
        """What it was in the file that it came from; None if it was made here."""
        return _origin(self.said)


class Arrivals:
    """Finds a place in a store for the sessions of a file; ``workspace`` is for those that had one."""

    def __init__(self, read: Read, *, workspace: str = "") -> None:
        self._read = read
        self._workspace = workspace
        self._names = set[tuple[str, str, str]]()  # given to sessions of this file
        self._numbers = dict[tuple[str, str, str], int]()  # where to go on: a file may repeat a name very often
        self.new: dict[str, None] = {}  # in order
        self.renamed: dict[str, str] = {}

    def place(self, session: SessionRecord) -> SessionRecord:
        """Return a session as it is to be here."""
        if session.purged:
            return session
        # What was last seen of files is true of no directory here.
        session = session._replace(doc=sessions.lasting(session.doc))
        here, purged = self._read(lambda tx: _find(tx, session.row))
        if here is not None:
            return self._named(session, _kept(session, here), here)
        if not purged:  # else it stays so
            self.new[session.row.id] = None
        return self._named(session, unbound(session, self._workspace), None)

    def _named(self, session: SessionRecord, placed: SessionRecord, here: Here | None) -> SessionRecord:
        """Name a session that people see so that the name is free, and remember the one that it had."""
        row = placed.row
        wanted = _wanted(session.row.name, here)
        if wanted is None or row.hidden:
            return placed._replace(row=row._replace(name=wanted))
        name = self._read(lambda tx: self._free(tx, row, wanted))
        self._names.add((row.agent, row.workspace, name))
        if row.id in self.new and name != wanted:
            self.renamed[row.id] = name
        placed = placed._replace(row=row._replace(name=name))
        if name == session.row.name or (here is not None and here.came_from is None):
            return placed
        return _noting(placed, {"name": session.row.name, "as": name})

    def _free(self, tx: Tx, row: SessionRow, name: str) -> str:
        """Return the name, or with `` (2)`` and so on behind it where another session has it."""
        place = (row.agent, row.workspace)
        for number in itertools.count(self._numbers.get((*place, name), 1)):
            candidate = name if number == 1 else f"{name} ({number})"
            taken = sessions.find_by_name(tx, row.scope, agent=row.agent, workspace=row.workspace, name=candidate)
            if (taken is None or taken.id == row.id) and (*place, candidate) not in self._names:
                break
        self._numbers[*place, name] = number
        return candidate


def _find(tx: Tx, row: SessionRow) -> tuple[Here | None, bool]:
    """Return a session as it is here, None for none; and whether it was here and was purged."""
    found = sessions.find_any(tx, row.scope, row.id)
    if found is None or found.hidden == PURGED:
        return None, found is not None and not found.staged
    return Here(found, sessions.decoded(sessions.detail(tx, found))), False


def _wanted(name: str | None, here: Here | None) -> str | None:
    """Return the name that a session should have: the one it got here instead of the file's, if that is why."""
    origin = None if here is None else here.came_from
    if here is None or origin is None or "as" not in origin:
        return name
    return here.row.name if (origin.get("name"), origin["as"]) == (name, here.row.name) else name


# ---------------------------------------------------------------------- as functions of a session


def unbound(session: SessionRecord, workspace: str = "") -> SessionRecord:
    """Return a session without the directory that it had, in another workspace if it had one."""
    row, said = session.row, sessions.decoded(session.doc)
    came_from = _left_behind(row, said)
    if not came_from and CAME_FROM not in said:
        return session
    key = _plain_key(row) if "key" in came_from else row.key
    placed = row._replace(workspace=workspace if row.workspace else "", key=key)
    return session._replace(row=placed, doc=_with(said, {CAME_FROM: came_from} if came_from else {}))


def _left_behind(row: SessionRow, said: dict[str, Any]) -> dict[str, Any]:
    """Return what a session says of directories: its workspace, a key made of one, and which one that was."""
    found = {"workspace": row.workspace} if row.workspace else {}
    found |= {"key": row.key} if _OF_DIRECTORY.match(row.key) else {}
    return found | ({DIRECTORY: said[DIRECTORY]} if DIRECTORY in said else {})


def _plain_key(row: SessionRow) -> str:
    return sessions.key_of(sessions.SessionFields(row.agent, row.kind), row.id)


def _kept(session: SessionRecord, here: Here) -> SessionRecord:
    """Return a session with the place that it has here already."""
    said, local = sessions.decoded(session.doc), {name: here.said[name] for name in _LOCAL if name in here.said}
    if here.came_from is not None:
        del local[CAME_FROM]
        local |= {CAME_FROM: found} if (found := _left_behind(session.row, said)) else {}
    placed = session.row._replace(workspace=here.row.workspace, key=here.row.key)
    if not local and not any(name in said for name in _LOCAL):
        return session._replace(row=placed)
    return session._replace(row=placed, doc=_with(said, local))


def _with(said: dict[str, Any], local: dict[str, Any]) -> bytes:
    """Write details with other words on directories, where the old ones stood: so they can be put back there."""
    made = dict[str, Any]()
    for name, value in said.items():
        made |= local if name in _LOCAL else {name: value}
    return codec.encode({**made, **local})


def _noting(session: SessionRecord, more: dict[str, Any]) -> SessionRecord:
    """Add to what a session was before."""
    said = sessions.decoded(session.doc)
    return session._replace(doc=_with(said, {CAME_FROM: {**(_origin(said) or {}), **more}}))


def _origin(said: dict[str, Any]) -> dict[str, Any] | None:
    found = said.get(CAME_FROM)
    return found if isinstance(found, dict) else None


def as_it_came(session: SessionRecord) -> SessionRecord:
    """Return a session as the file said it; one that was made here, or was given a workspace, is as it is here."""
    if CAME_FROM.encode() not in session.doc or session.purged:
        return session
    said, row = sessions.decoded(session.doc), session.row
    origin = _origin(said)
    if origin is None:
        return session
    if row.name is not None and row.name == origin.get("as"):
        row = row._replace(name=origin.get("name"))
    if row.workspace:
        return session._replace(row=row, doc=_with(said, {}))
    row = row._replace(workspace=origin.get("workspace", ""), key=origin.get("key", row.key))
    return session._replace(row=row, doc=_with(said, {DIRECTORY: origin[DIRECTORY]} if DIRECTORY in origin else {}))
