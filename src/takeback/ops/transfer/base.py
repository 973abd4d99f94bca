"""What all parts of a transfer share: how much is moved at once, how a half-copied thing is marked, and who is asked.

A session under way has the place of a purged one, ``hidden`` 2, and a key that says so: nobody finds it, and verify
demands of it only what is there already. An agent under way is marked by its fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import Conflict
from ...storage.base import Row, Tx, row_check
from .. import agents, branches, entries, sessions
from ..agents import AgentRow
from ..branches import BranchRow
from ..sessions import SessionRow
from ..verify.base import Read as Read

ROWS = 500
BYTES = 8 << 20
SPILLED = 128 << 10  # what an entry whose content lies in a blob counts for: reading it takes as long
HIDDEN = 2
COPY = "copy"  # the kind of the last change of a session that was copied and not touched since
STAGED_KEY = "copying:"
STAGED_FIELDS = b'{"copying":true}'
AGAIN = "Whatever is not in conflict was copied, and calling again goes on"

TWINS = f"SELECT {agents.COLUMNS} FROM agent WHERE scope = ? AND id = ? AND created_ms = ? ORDER BY aid"
BEFORE = "SELECT count(*) FROM agent WHERE scope = ? AND id = ? AND created_ms = ? AND aid < ?"
HASH_AT = "SELECT hash FROM entry WHERE key = ? AND scope = ?"


class Needs(Exception):
    """Content that must be in the destination before the entries that name it."""

    def __init__(self, scope: str, hashes: Sequence[str]) -> None:
        super().__init__(scope, hashes)
        self.scope = scope
        self.hashes = hashes


class Taken(Exception):
    """A visible session of the destination has the key, name or label that a session is to have."""

    def __init__(self, holder: SessionRow, what: str) -> None:
        super().__init__(what)
        self.holder = holder
        self.what = what


def is_staged(session: SessionRow) -> bool:
    """Say whether a session is half copied."""
    return session.hidden == HIDDEN and session.key.startswith(STAGED_KEY)


def is_staged_agent(agent: AgentRow) -> bool:
    """Say whether an agent is half copied."""
    return agent.hidden == HIDDEN and agent.fields == STAGED_FIELDS


def sealed(row: Sequence[Any]) -> Row:
    """Put the check behind a row."""
    return (*row, row_check(row))


def find_branch(tx: Tx, scope: str, uid: str) -> BranchRow | None:
    """Give a branch by its id, whosever it is."""
    row = tx.one(branches.BY_UID, (scope, uid))
    return None if row is None else branches.checked(row)


def find_session(tx: Tx, scope: str, session_id: str) -> SessionRow | None:
    """Give a session by its id, also a purged or a half-copied one."""
    row = tx.one(sessions.GET, (scope, session_id))
    return None if row is None else sessions.checked(row)


def ordinal(tx: Tx, agent: AgentRow) -> int:
    """Give the how-manieth an agent is of those with its id that were made in the same millisecond."""
    row = tx.one(BEFORE, (agent.scope, agent.id, agent.created_ms, agent.aid))
    return int(row[0]) if row else 0


def find_twin(tx: Tx, scope: str, agent_id: str, created_ms: int, ordinal: int) -> AgentRow | None:
    """Give the agent that is the same one in another store: several in the trash may have one id."""
    rows = tx.all(TWINS, (scope, agent_id, created_ms))
    return agents.checked(rows[ordinal]) if ordinal < len(rows) else None


def hash_at(tx: Tx, branch: BranchRow, seq: int) -> bytes | None:
    """Give the hash of an entry that a branch owns, None if it is not there."""
    row = tx.one(HASH_AT, (entries.key_of(branch.bid, seq), branch.scope))
    return None if row is None else bytes(row[0])


def conflict(message: str, found: str) -> Conflict:
    """Make the error for something that cannot be copied as it is."""
    return Conflict(message, found=found)


def shares(sizes: Sequence[Row], *, most: int = BYTES) -> int:
    """Give how many of some rows, by their sizes, make one page: at least one."""
    total = 0
    for count, row in enumerate(sizes):
        total += int(row[-1])
        if total > most and count:
            return count
    return len(sizes)
