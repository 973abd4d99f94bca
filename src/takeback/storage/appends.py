"""What an engine's own way to append takes and gives (``base.Quick``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .base import Row


class NewEntry(NamedTuple):
    """An entry that is to be appended, as an engine's own append takes it."""

    kind: str
    body: bytes
    raw: bytes | None
    salt: bytes
    content_hash: bytes
    adds: tuple[int, ...]
    calls: tuple[tuple[str, str], ...]


class Append(NamedTuple):
    """Entries without ids of their own and without blobs, to be added at the head of a session."""

    scope: str
    session_id: str
    now_ms: int
    expected_revision: int | None
    idempotency_key: str | None
    titled: bool  # a session without a title would get one
    entries: Sequence[NewEntry]


class KnownAppend(NamedTuple):
    """One entry computed from a session's row as it was seen, whole but for its position in the feed.

    ``before``, ``between``, ``packed_rank`` and ``change`` are the packed columns around that position, for the checks
    of the session's row and of the change.
    """

    scope: str
    sid: int
    updated: int
    head_check: int
    idempotency_key: str | None
    key_check: int
    row: Row
    numbers: tuple[int, ...]
    revision: int
    message_ms: int | None
    rank: int
    before: bytes
    between: bytes
    packed_rank: bytes
    change: bytes
    marks: tuple[tuple[str, str, int], ...] = ()  # of tool calls: what, id and check


class KnownAppended(NamedTuple):
    """What was stored, its position in the feed and the session's rank then."""

    stored: KnownAppend
    position: int
    rank: int
