"""Values of the session state of many sessions at once, for a page of a listing.

The last work entry of a session names its last state entry, and that one the entry which holds the whole map: three
reads for a page of sessions, however many it has. Only a session whose state lies on a branch of another one costs a
few more, to find out which. What cannot be read that way is read alone, and says why; it never costs the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from .. import codec
from ..errors import Corrupt
from ..storage.base import Tx
from ..tables.entries import ENTRY
from ..tables.sessions import SESSION
from . import branches, entries, work
from .sessions import SessionRow

Found: TypeAlias = "dict[str, Any] | Corrupt"
Body: TypeAlias = "tuple[str, dict[str, Any]]"  # the kind of an entry, and what it says
KIND = "state"


def of_page(tx: Tx, found: Sequence[SessionRow], names: Sequence[str]) -> list[Found]:
    """Return these values of each session's state at its head; names that it does not have are left out."""
    rows = [SESSION.unfolded(row) for row in found]
    last = _entries(tx, [(row, row.work_seq) for row in rows if row.work_seq])
    own = {sid: body for sid, (kind, body) in last.items() if kind == KIND}
    behind = {sid: body["last"].get(KIND, 0) for sid, (kind, body) in last.items() if kind != KIND}
    older = _entries(tx, [(row, behind[row.sid]) for row in rows if behind.get(row.sid)])
    own |= {sid: body for sid, (_, body) in older.items()}
    based = _entries(tx, [(row, own[row.sid]["base"]) for row in rows if own.get(row.sid, {}).get("base")])
    return [
        {} if not row.work_seq or behind.get(row.sid) == 0 else _values(tx, row, own.get(row.sid), based, names)
        for row in rows
    ]


def _values(
    tx: Tx, row: SessionRow, body: dict[str, Any] | None, based: Mapping[int, Body], names: Sequence[str]
) -> Found:
    try:
        if body is None or (body["base"] and row.sid not in based):
            state = work.state(tx, row)[1]
        else:
            before = based[row.sid][1]["set"] if body["base"] else {}
            state = {**{name: before[name] for name in before if name not in body["del"]}, **body["set"]}
    except Corrupt as error:
        return error
    return {name: state[name] for name in names if name in state}


def _entries(tx: Tx, wanted: Sequence[tuple[SessionRow, int]]) -> dict[int, Body]:
    """Return an entry of each session, by its number; those that cannot be read at once are left out."""
    keys = {row.sid: entries.key_of(_owner(tx, row, seq), seq) for row, seq in wanted}
    if not keys:
        return {}
    try:
        stored = ENTRY.numbered(tx, wanted[0][0].scope, keys.values())
    except Corrupt:
        return {}
    found = dict[int, Body]()
    for sid, key in keys.items():
        entry = stored.get(key)
        body = _decoded(None if entry is None else entry.body)
        if entry is not None and isinstance(body, dict) and isinstance(body.get("last"), dict):
            found[sid] = entry.kind, body
    return found


def _decoded(body: bytes | None) -> Any:
    try:
        return None if body is None else codec.decode(body)
    except Corrupt:
        return None


def _owner(tx: Tx, row: SessionRow, seq: int) -> int:
    """Return the branch that owns an entry of a session's path."""
    if seq > row.fork:
        return row.branch
    try:
        return branches.owner(tx, branches.get(tx, row.scope, row.branch), seq).bid
    except Corrupt:
        return 0  # no branch has this number: reading it alone raises
