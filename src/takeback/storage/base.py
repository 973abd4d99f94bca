"""The storage contract: transactions over shared SQL, nothing about meaning.

A backend runs operations - plain functions of a ``Tx`` - and promises:

- ``write`` returns only when everything the operation did is durable, and raises only when none of
  it is. The operation may run more than once, so it has no effect outside its transaction.
- ``read`` shows one consistent moment and changes nothing; it ends before ``read`` returns, so an
  operation gives back values, never cursors.
- Exceptions of the driver arrive as ``takeback.errors``; exceptions of the operation arrive as they are.
- Any thread may call; after ``close`` or in a forked child every call raises ``Closed``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import msgspec

if TYPE_CHECKING:
    from .appends import KnownAppend

Value: TypeAlias = "int | float | str | bytes | None"
Row: TypeAlias = "tuple[Any, ...]"
T = TypeVar("T")

# Markers are comments to SQLite, which has one writer; an engine that runs several at once puts its own words there.
LOCK = " /* lock */"  # ends a SELECT: in a write, nobody else changes its rows until the end
CHANGE_ORDER = " /* change order */"  # behind a position that a row is given: its place in the order of the feed


class Dialect(msgspec.Struct, frozen=True):
    """What an engine does otherwise than the others, where the same SQL text cannot hide it."""

    name: str
    gapless: bool  # local numbers and positions of the feed are given out in a row, in the order of commits
    feed_parts: int = 1  # of a position
    feed: str = ""  # reads the feed where numbers leave gaps: scope, position and limit give position and row
    under_way: str = ""  # gives the other transactions that were given a number of the feed and are not over


class Quick(Protocol):
    """An append as one statement: when it returns a position, the transaction is over and durable."""

    def append_known(self, wanted: KnownAppend) -> int | None:
        """Append if the session is as it was seen; return the position of the change, or None: nothing was done."""


class Tx(Protocol):
    """One transaction. SQL is shared text with ``?`` for every value: nothing is ever pasted in.

    In a write, rows that a statement with ``LOCK`` reads are kept from other writers until the end. Whatever is decided
    from a row of a session or an agent, or written to it, follows such a read.
    """

    @property
    def dialect(self) -> Dialect:
        """What this engine does otherwise than the others."""

    def run(self, sql: str, args: Sequence[Value] = ()) -> None:
        """Execute a statement that gives no rows."""

    def one(self, sql: str, args: Sequence[Value] = ()) -> Row | None:
        """Give the first row, or None."""

    def all(self, sql: str, args: Sequence[Value] = ()) -> list[Row]:
        """Give all rows."""

    def lock(self, what: str) -> None:
        """Keep other writers that lock the same words away until the end of this transaction."""

    def keyed(self) -> None:
        """Say that an idempotency key is stored with the rest: run again, this transaction changes nothing more."""

    def next(self, table: str) -> int:
        """Give the next local number of a table of ``NEXT``; it is higher than any that was committed before."""

    @property
    def quick(self) -> Quick | None:
        """The engine's own way to append as one statement, if it has one and nothing was run here yet."""

    def reached(self, position: int) -> None:
        """Note the newest change that this transaction writes; the backend may keep it once it is durable."""

    def newest(self) -> int | None:
        """Return the position of the newest change written in this transaction, if there is one."""


Op: TypeAlias = Callable[[Tx], T]


def scalar(tx: Tx, sql: str, args: Sequence[Value] = ()) -> Any:
    """Return the one value that a statement is for, None if there is no row."""
    (found,) = tx.one(sql, args) or (None,)
    return found


def scalars(tx: Tx, sql: str, args: Sequence[Value] = ()) -> list[Any]:
    """Return the values of a statement that has one column."""
    return [value for (value,) in tx.all(sql, args)]


class Capabilities(msgspec.Struct, frozen=True):
    """What a backend says of itself. The contract suite asserts each claim, both ways."""

    name: str
    persistent: bool
    many_processes: bool
    durability: str
    journal: str
    read_only: bool = False
    isolation: str = "queries"  # or "row security": the server itself keeps scopes apart
    groups: bool = True  # writes asked for at once are stored together, in one transaction
    file: str = ""  # where it lies, if it is a file; those beside it begin with this name and a dash
    all_scopes: bool = True  # a look at all scopes at once shows them all; else only the one of the handle


class Waiting(Protocol):
    """Waits for changes."""

    def wait(self, seconds: float) -> None:
        """Return when something may have changed, at the latest after ``seconds``."""

    def close(self) -> None:
        """Let go of what is needed for waiting."""


class Polling:
    """Waiting where nobody tells: a nap."""

    def __init__(self, pause: float = 0.05) -> None:
        self._pause = pause

    def wait(self, seconds: float) -> None:
        """Sleep a little, so that the caller looks again."""
        time.sleep(min(seconds, self._pause))

    def close(self) -> None:
        """Nothing is held."""


class Readable(Protocol):
    """The part of an engine that looking needs."""

    @property
    def capabilities(self) -> Capabilities:
        """What this backend can do, as opened."""

    @property
    def suspect(self) -> bool:
        """Whether the store was changed from outside, or not closed properly, before it was opened."""

    def read(self, op: Op[T]) -> T:
        """Run an operation that only looks."""

    def close(self) -> None:
        """Release everything; calling it again does nothing."""


class Backend(Readable, Protocol):
    """An engine. The module docstring is its contract."""

    def scoped(self, scope: str | None) -> Backend:
        """Give a view on the same connections for one scope; None is all of them, as far as this user may see them."""

    def write(self, op: Op[T], *, frees_space: bool = False, alone: bool = False) -> T:
        """Run an operation and return when it is durable; ``frees_space`` may use the reserve of a full disk.

        An operation that reads or changes more than one session or agent runs ``alone``: no other write of its scope
        but plain appends runs meanwhile.
        """

    def listen(self) -> Waiting:
        """Give something to wait on for changes that others make."""

    def size_bytes(self) -> int:
        """Bytes the store takes now, all its files together."""

    def check(self) -> list[str]:
        """Let the engine check its own structure; give what it complains about."""

    def copy_to(self, path: str) -> list[str]:
        """Copy every row that can be read into a new file, as of one moment; give words for what cannot."""


# Local numbers, where transactions run one after another; an engine that runs several at once counts by itself.
NEXT = {
    table: f"SELECT coalesce(max({column}), 0) + 1 FROM {table}"
    for table, column in (
        ("agent", "aid"),
        ("session", "sid"),
        ("branch", "bid"),
        ("checkpoint", "cid"),
        ("operation", "oid"),
        ("blob", "blob_id"),
        ("feed", "pos"),
        ("agent_checkpoint", "acid"),
    )
}
