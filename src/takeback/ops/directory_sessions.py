"""The one session of a directory: found by its path, or after a move by the directory's own identity."""

from __future__ import annotations

from .. import codec
from ..ids import new_id
from ..storage.base import Tx
from ..tables.sessions import SESSION, SessionRow
from . import agents, feed, operations, sessions
from .sessions import Whole

OF_AGENT = "INDEXED BY session_key WHERE scope = ? AND key >= ? AND key < ? AND hidden = 0"


def key_of(agent: str, path: str) -> str:
    """Return the key of a directory's session."""
    return f"{_prefix(agent)}{sessions.escape(path)}"


def _prefix(agent: str) -> str:
    return f"agent:{sessions.escape(agent)}:directory:"


def find(tx: Tx, scope: str, agent: str, path: str) -> Whole | None:
    """Return the session of a directory by its path, or None."""
    row = sessions.find_by_key(tx, scope, key_of(agent, path))
    return None if row is None else sessions.with_rest(tx, row)


def same_directory(tx: Tx, scope: str, agent: str, identity: str) -> list[SessionRow]:
    """Return the sessions whose directory had this identity, at whatever path."""
    prefix = _prefix(agent)
    rows = SESSION.all(tx, OF_AGENT, (scope, prefix, prefix[:-1] + ";"))
    return [row for row in rows if sessions.decoded(sessions.detail(tx, row)).get("directory") == identity]


def create(
    tx: Tx, scope: str, agent: str, path: str, identity: str | None, *, moved_from: str | None, now_ms: int
) -> Whole:
    """Create the session of a directory, or move along the one it had before the directory was moved.

    A directory recreated at the same path keeps the session of that path, and its new identity is recorded.
    """
    tx.lock(f"session {scope} {key_of(agent, path)}")
    found = find(tx, scope, agent, path)
    if found is not None:
        return found[0], _note_identity(tx, *found[:2], identity), found[2]
    row = None if moved_from is None else sessions.find_by_key(tx, scope, key_of(agent, moved_from))
    if row is not None:
        return sessions.with_rest(tx, _move(tx, row, key_of(agent, path), path, now_ms))
    agents.ensure(tx, scope, agent, now_ms=now_ms)
    doc = codec.encode({"run_id": new_id(now_ms), **({"directory": identity} if identity else {})})
    fields = sessions.SessionFields(agent, workspace=path, key=key_of(agent, path), detail=doc)
    return sessions.create(tx, scope, fields, now_ms=now_ms), doc, None


def is_known(doc: bytes, identity: str | None) -> bool:
    """Whether a session knows the directory that is at its path now."""
    return identity is None or sessions.decoded(doc).get("directory") == identity


def _note_identity(tx: Tx, session: SessionRow, doc: bytes, identity: str | None) -> bytes:
    if is_known(doc, identity):
        return doc
    new = codec.encode({**sessions.decoded(doc), "directory": identity})
    sessions.put_detail(tx, session, new)
    return new


def _move(tx: Tx, session: SessionRow, key: str, path: str, now_ms: int) -> SessionRow:
    """Follow a directory to its new path. Nobody asked for this, so it is not an operation that undo could revert."""
    moved = sessions.write(tx, session, key=key, workspace=path)
    position, rank = feed.record(tx, moved, "move", branch=moved.branch, first=moved.seq, last=moved.seq, now_ms=now_ms)
    return operations.touch(tx, moved, position, rank, now_ms, moved=False)
