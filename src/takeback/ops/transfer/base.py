"""What all parts of a transfer share: how much is moved at once, how a half-copied thing is marked, and who is asked.

A session under way has the place of a purged one, ``hidden`` 2, and a key that says so: nobody finds it, and verify
demands of it only what is there already. An agent under way is marked by its fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ...errors import Conflict
from ...storage.base import Row, Tx, scalar
from ...tables.agents import AGENT, AgentRow
from ...tables.branches import BranchRow
from ...tables.entries import ENTRY
from ...tables.sessions import SessionRow
from ...tables.table import Key, Table
from ..log import key_of
from ..verify.base import Read as Read

R = TypeVar("R", bound="tuple[Any, ...]")

ROWS = 500
BYTES = 8 << 20
SPILLED = 128 << 10  # what an entry whose content lies in a blob counts for: reading it takes as long
HIDDEN = 2
COPY = "copy"  # the kind of the last change of a session that was copied and not touched since
STAGED_KEY = "copying:"
STAGED_FIELDS = b'{"copying":true}'
AGAIN = "Whatever is not in conflict was copied, and calling again goes on"

BEFORE = "SELECT count(*) FROM agent WHERE scope = ? AND id = ? AND created_ms = ? AND aid < ?"


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
    """Whether a session is half copied."""
    return session.hidden == HIDDEN and session.key.startswith(STAGED_KEY)


def is_staged_agent(agent: AgentRow) -> bool:
    """Whether an agent is half copied."""
    return agent.hidden == HIDDEN and agent.fields == STAGED_FIELDS


# ---------------------------------------------------------------------- rows


def by_id(tx: Tx, table: Table[R], scope: str, name: str) -> R | None:
    """Return the row of a table with that id, or None."""
    return table.one(tx, "WHERE scope = ? AND id = ?", (scope, name))


def joined(table: Table[R], row: Row) -> tuple[R, Any]:
    """Split what a join read: a row of a table, checked, and the one column behind it."""
    *stored, more = row
    return table.checked(tuple(stored)), more


def newest(tx: Tx, table: Table[R]) -> int:
    """Return the highest number of a table, 0 if it is empty."""
    return int(scalar(tx, f"SELECT max({table.number}) FROM {table.name}") or 0)


def pages_of(read: Read, table: Table[R], upto: int, limit: int) -> Iterator[list[R]]:
    """Yield the rows of all scopes whose number is at most ``upto``, a page per read; damage raises ``Corrupt``."""
    after: Key | None = None
    while True:
        rows, after = read(lambda tx: _page_of(tx, table, after, upto, limit))  # noqa: B023
        if after is None:
            return
        yield rows


def _page_of(tx: Tx, table: Table[R], after: Key | None, upto: int, limit: int) -> tuple[list[R], Key | None]:
    stored, reached = table.page(tx, after, limit)
    return [row for row in map(table.checked, stored) if getattr(row, table.number) <= upto], reached


def ordinal(tx: Tx, agent: AgentRow) -> int:
    """Return how many older agents have the same id and were made in the same millisecond."""
    return int(scalar(tx, BEFORE, (agent.scope, agent.id, agent.created_ms, agent.aid)))


def find_twin(tx: Tx, scope: str, agent_id: str, created_ms: int, ordinal: int) -> AgentRow | None:
    """Return the agent that is the same one in another store, or None: several in the trash may have one id."""
    asked = (scope, agent_id, created_ms, ordinal)
    return AGENT.one(tx, "WHERE scope = ? AND id = ? AND created_ms = ? ORDER BY aid LIMIT 1 OFFSET ?", asked)


def hash_at(tx: Tx, branch: BranchRow, seq: int) -> bytes | None:
    """Return the hash of an entry that a branch owns, None if it is not there."""
    found = ENTRY.get(tx, branch.scope, key_of(branch.bid, seq))
    return None if found is None else found.chain.hash


def conflict(message: str, found: str) -> Conflict:
    """Return the error for something that cannot be copied as it is."""
    return Conflict(message, found=found)


def shares(sizes: Iterable[Row]) -> int:
    """Return how many of some rows make one page, by their sizes: at least one."""
    total = count = 0
    for (size,) in sizes:
        total += size
        if total > BYTES and count:
            break
        count += 1
    return count
