"""Entries: the immutable things that happen in a session.

A ``Draft`` is an entry without a place yet: it is encoded outside the transaction, to keep
the transaction short. An ``Entry`` is a stored one, addressed by branch and seq.
``Numbers`` are the running totals of a path; their order is part of the hash format.
"""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import NamedTuple

import msgspec

from ..clock import to_datetime
from ..codec import decode
from ..ids import entry_id
from . import Portable

GENESIS = bytes(32)  # the hash before the first entry
CALL, STATUS, APPROVAL = "call", "status", "approval"
STATE_KINDS = frozenset(
    {"tasks", "plan", "walkthrough", "note", "file", "build", "state", "compaction", "snapshot", "agents", "announced"}
)


class Numbers(NamedTuple):
    """Running totals at a point of a path. The order is fixed by SPEC.md: the hash covers it."""

    messages: int = 0
    turns: int = 0
    tool_calls: int = 0
    tool_failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_nano: int = 0
    active_ms: int = 0
    work_seq: int = 0
    call_seq: int = 0
    open_seq: int = 0


numbers_in = attrgetter(*Numbers._fields)  # takes anything with fields of these names


class More(NamedTuple):
    """What only some entries have: a parent that must exist, tool calls they affect, blobs they need.

    ``tools`` holds id and tool of each call that is announced. It is not stored: the content says it.
    """

    parent: str | None = None
    calls: tuple[tuple[str, str], ...] = ()
    blobs: tuple[str, ...] = ()
    tools: tuple[tuple[str, str], ...] = ()


class Draft(NamedTuple):
    """An entry to append: encoded content, and what it adds to the running totals."""

    kind: str
    body: bytes
    raw: bytes | None = None
    mid: str | None = None
    adds: Numbers = Numbers()
    spill: str | None = None
    more: More | None = None
    at_ms: int | None = None  # when it happened, if not now


class Entry(Portable, msgspec.Struct, frozen=True):
    """One stored entry: its place, its content, and the provider's bytes as received."""

    branch: str
    seq: int
    kind: str
    at_ms: int
    turn: int
    body: bytes | None
    raw: bytes | None = None
    mid: str | None = None
    late_ms: int = 0

    @property
    def id(self) -> str:
        """The caller's id if there is one, else branch and seq."""
        return self.mid or entry_id(self.branch, self.seq)

    @property
    def created_at(self) -> datetime:
        """When it happened: the time that the caller gave, else when it was stored."""
        return to_datetime(self.at_ms)

    @property
    def stored_at(self) -> datetime:
        """When it was stored, by the writer's clock."""
        return to_datetime(self.at_ms + self.late_ms)

    @property
    def redacted(self) -> bool:
        """Whether the content was erased; the entry keeps its place in the chain."""
        return self.body is None

    @property
    def content(self) -> object:
        """The decoded content; None once it is redacted."""
        return None if self.body is None else decode(self.body)

    def __repr__(self) -> str:
        size = "redacted" if self.body is None else f"{len(self.body)} B"
        return f"<Entry {self.seq} {self.kind} {size}>"
