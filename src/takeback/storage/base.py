"""The storage contract: transactions over shared SQL, nothing about meaning.

A backend runs operations - plain functions of a ``Tx`` - and promises:

- ``write`` returns only when everything the operation did is durable, and raises only when none of
  it is. The operation may run more than once, so it must have no effect outside its transaction.
- ``read`` shows one consistent moment and changes nothing; the transaction ends before ``read``
  returns, so an operation returns values, never cursors.
- Exceptions of the driver arrive as ``takeback.errors``; exceptions of the operation arrive unchanged.
- Any thread may call; after ``close`` or in a forked child every call raises ``Closed``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from ..errors import Corrupt
from ..model import Portable

if TYPE_CHECKING:
    from .appends import KnownAppend

Value: TypeAlias = "int | float | str | bytes | None"
Row: TypeAlias = "tuple[Any, ...]"
T = TypeVar("T")

LOCK_TIMEOUT = 30.0  # seconds that a call waits for other processes, unless the store was opened with another limit

# Markers are comments to SQLite, which has one writer; an engine that runs several at once puts its own words there.
LOCK = " /* lock */"  # ends a SELECT: in a write, nobody else changes its rows until the end
CHANGE_ORDER = " /* change order */"  # behind a position that a row is given: its place in the order of the feed


class Dialect(msgspec.Struct, frozen=True):
    """How an engine differs from the others, where shared SQL text cannot hide it."""

    name: str
    gapless: bool  # local numbers and feed positions are assigned without gaps, in commit order
    feed_parts: int = 1  # how many numbers make up a feed position
    feed: str = ""  # reads a feed with gaps: takes scope, position and limit, returns positions and rows
    feed_ahead: str = ""  # reads it with what may still move: takes scope and position, returns what ``feed`` does
    under_way: str = ""  # lists the other transactions that have a feed number and have not ended


class Quick(Protocol):
    """An append as one statement: once it returns a position, the transaction is committed and durable."""

    def append_known(self, wanted: KnownAppend) -> int | None:
        """Append if the session is unchanged since it was read; return the feed position, None if nothing was done."""

    def find_known(self, wanted: KnownAppend) -> int | None:
        """Return the position of an append whose reply was lost, if it was stored; the session may have moved on."""

    def take_turn(self, scope: str, session_id: str) -> Row | None:
        """Return the row of a session and keep others from changing it until ``append_known`` or ``end_turn``.

        None if there is no such session, or if this takes a transaction like any other.
        """

    def end_turn(self) -> None:
        """Let others change the session again."""


class Tx(Protocol):
    """One transaction. SQL is shared text with ``?`` for every value: values are never put into the text.

    In a write, rows that a statement with ``LOCK`` reads are kept from other writers until the end. Whatever is decided
    from a row of a session or an agent, or written to it, follows such a read.
    """

    @property
    def dialect(self) -> Dialect:
        """How this engine differs from the others."""

    def run(self, sql: str, args: Sequence[Value] = ()) -> None:
        """Execute a statement that returns no rows."""

    def one(self, sql: str, args: Sequence[Value] = ()) -> Row | None:
        """Return the first row, or None."""

    def all(self, sql: str, args: Sequence[Value] = ()) -> list[Row]:
        """Return all rows."""

    def lock(self, what: str) -> None:
        """Block other writers that lock the same name, until this transaction ends."""

    def take_time(self, seconds: float) -> None:
        """Let this transaction go on for so long from now, where the engine ends one that takes longer than a call."""

    def keyed(self) -> None:
        """Declare that this transaction stores an idempotency key, so that running it again changes nothing."""

    def next(self, table: str) -> int:
        """Return the next local number of a table in ``NEXT``, higher than any committed before."""

    def next_many(self, table: str, count: int) -> Sequence[int]:
        """Return the next local numbers of a table, as ``next`` does for one, in ascending order."""

    @property
    def quick(self) -> Quick | None:
        """The engine's own way to append in one statement, if it has one and nothing was run here yet."""

    def reached(self, position: int) -> None:
        """Record the newest change that this transaction writes; the backend may remember it once it is durable."""

    def newest(self) -> int | None:
        """Return the position of the newest change of all, if it is known without reading."""

    def keep(self, scope: str, session_id: str, row: Any, rank: int) -> None:
        """Keep the row of a session that was just written, and the highest rank of its scope, for later writes."""

    def kept(self, scope: str, session_id: str) -> Any:
        """Return the row of a session if it is known without reading, else None."""

    def kept_rank(self, scope: str) -> int | None:
        """Return the highest rank of a scope if it is known without reading."""


Op: TypeAlias = Callable[[Tx], T]


def scalar(tx: Tx, sql: str, args: Sequence[Value] = ()) -> Any:
    """Return the value of a statement with one column and at most one row; None if there is no row."""
    (found,) = tx.one(sql, args) or (None,)
    return found


def scalars(tx: Tx, sql: str, args: Sequence[Value] = ()) -> list[Any]:
    """Return the values of a statement with one column."""
    return [value for (value,) in tx.all(sql, args)]


class Capabilities(Portable, msgspec.Struct, frozen=True):
    """What a backend claims about itself. The contract suite checks each claim, both ways."""

    name: str
    persistent: bool
    many_processes: bool
    durability: str
    journal: str
    read_only: bool = False
    isolation: str = "queries"  # or "row security": the server itself keeps scopes apart
    groups: bool = True  # concurrent writes are stored together, in one transaction
    file: str = ""  # the path, if the store is a file; its side files start with this name and a dash
    all_scopes: bool = True  # a read over all scopes sees them all; else only the handle's own


class Waiting(Protocol):
    """Waits for changes."""

    def wait(self, seconds: float) -> None:
        """Return when something may have changed, at the latest after ``seconds``."""

    def close(self) -> None:
        """Release what waiting needs."""


class Polling:
    """Waiting without notifications: sleep, then look."""

    def __init__(self, pause: float = 0.05) -> None:
        self._pause = pause

    def wait(self, seconds: float) -> None:
        """Sleep briefly, so that the caller looks again."""
        time.sleep(min(seconds, self._pause))

    def close(self) -> None:
        """Do nothing: nothing is held."""


class Derived(Corrupt):
    """What is derived from the store is damaged or gone; it is derived anew, and the store itself is sound."""


class Shape(NamedTuple):
    """What tables beside a store look like: the SQL that makes them, its version, and functions that it may call."""

    sql: str
    version: int
    functions: Mapping[str, Callable[..., Any]]

    @property
    def first(self) -> str:
        """The table that the SQL makes first."""
        return self.sql.split(maxsplit=3)[2]


class SideTables(Protocol):
    """Where tables lie that are derived from a store: never part of its writes, and no loss if they are lost.

    Each operation takes a transaction of the store, which only reads, and one of these tables. On a server both are the
    same. Whatever is wrong with the tables themselves raises ``Derived``.
    """

    persistent: bool
    opened: int  # how often the tables were opened: they may be other ones each time

    def read(self, op: Callable[[Tx, Tx], T]) -> T:
        """Run an operation that reads the store and what lies beside it."""

    def write(self, op: Callable[[Tx, Tx], T]) -> T:
        """Run an operation that reads the store and writes beside it."""

    def obstacle(self) -> str | None:
        """Return what lies in the place of the tables and is left alone; None if nothing does."""

    def exists(self) -> bool:
        """Whether there is anything yet that could hold content."""

    def shrink_log(self) -> bool:
        """Leave nothing in a log that was erased from the tables; return False if that is not possible now."""

    def clear(self) -> None:
        """Begin anew, with empty tables."""

    def close(self) -> None:
        """Release what it holds; calling it again does nothing."""


class Readable(Protocol):
    """The part of an engine that reading needs."""

    @property
    def capabilities(self) -> Capabilities:
        """What this backend can do, as opened."""

    @property
    def suspect(self) -> bool:
        """Whether the store's file may have been changed by somebody else before it was opened."""

    def read(self, op: Op[T]) -> T:
        """Run an operation that only reads."""

    def beside(self, shape: Shape) -> SideTables:
        """Return where derived tables lie; ``shape`` is what they look like where the store does not have its own."""

    def close(self) -> None:
        """Release everything; calling it again does nothing."""


class Backend(Readable, Protocol):
    """An engine. The module docstring is its contract."""

    def scoped(self, scope: str | None) -> Backend:
        """Return a view of one scope on the same connections; None means all scopes that this user may see."""

    def write(self, op: Op[T], *, frees_space: bool = False, alone: bool = False) -> T:
        """Run an operation and return when it is durable; ``frees_space`` may use the reserve on a full disk.

        An operation that reads or changes more than one session or agent runs ``alone``: no other write in its scope
        runs meanwhile, except plain appends.
        """

    def listen(self) -> Waiting:
        """Return something to wait on for changes by others."""

    def size_bytes(self) -> int:
        """Return the bytes that the store takes now, in all its files."""

    def check(self) -> list[str]:
        """Let the engine check its own structure, and return its complaints."""

    def copy_to(self, path: str) -> list[str]:
        """Copy every readable row to a new file, as of one moment; return descriptions of what cannot be read."""


# Local numbers for engines that run one write at a time; an engine with concurrent writes uses its own counters.
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
        ("workspace", "wid"),
        ("document", "did"),
    )
}
