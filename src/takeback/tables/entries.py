"""Entries of the log, the blobs they need, and what damage destroyed of them.

What reading a conversation does not need (running totals, hashes, the salt) is packed into ``rest`` and unpacked on
demand (``EntryRow.chain``). One check covers all of it.

Messages are read in one loop over the rows of a branch (``messages_in``): nothing else here is called as often.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self
from zlib import crc32

import msgspec

from ..ids import MAX_SEQ
from ..model.entry import Numbers, numbers_in
from ..model.message import Message, erased
from ..storage.base import Row
from .table import Index, Table


class Chain(NamedTuple):
    """The contents of ``rest``: the chain, and the running totals of the path after this entry."""

    late_ms: int  # how long after it happened it was stored
    messages: int
    turns: int
    tool_calls: int
    tool_failures: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_nano: int
    active_ms: int
    work_seq: int
    call_seq: int
    open_seq: int
    calls: tuple[tuple[str, str], ...]
    salt: bytes | None
    body_hash: bytes | None
    hash: bytes

    @property
    def numbers(self) -> Numbers:
        """The running totals."""
        return Numbers._make(numbers_in(self))


_read = msgspec.msgpack.Decoder(Chain).decode
_write = msgspec.msgpack.Encoder().encode


class EntryRow(NamedTuple):
    """A row of ``entry``."""

    scope: str
    key: int
    kind: str
    at_ms: int
    turns: int
    mid: str | None
    body: bytes | None
    raw: bytes | None
    spill: str | None
    rest: bytes

    @property
    def seq(self) -> int:
        """Its position on its path."""
        return self.key & MAX_SEQ

    @property
    def branch(self) -> int:
        """The number of the branch that owns it."""
        return self.key >> 32

    @property
    def chain(self) -> Chain:
        """What is packed in ``rest``; malformed data raises ``msgspec.ValidationError`` or ``DecodeError``."""
        return _read(self.rest)

    @property
    def spilled(self) -> tuple[str, str]:
        """The hashes of the blobs that hold body and raw, each empty if the row holds it."""
        body, _, raw = (self.spill or "").partition(",")
        return body, raw

    def with_chain(self, chain: Chain) -> Self:
        """Return the row with another chain."""
        return self._replace(rest=_write(chain))


def packed_chain(
    late_ms: int, numbers: Numbers, calls: tuple[tuple[str, str], ...], salt: bytes, entry_hash: bytes
) -> bytes:
    """Pack the chain of a new entry."""
    return _write((late_ms, *numbers, calls, salt, None, entry_hash))


class LinkRow(NamedTuple):
    """A row of ``link``: an entry needs a blob."""

    scope: str
    hash: str
    key: int


class LostRow(NamedTuple):
    """A row of ``lost``: damage destroyed an entry, or a part of it."""

    scope: str
    key: int
    what: str
    at_ms: int


# Rows of messages that may stay in every context: those with a JSON string "system" or "pinned", and those whose body
# was spilled, since nobody knows what that says without reading it. Engines differ in how they search bytes.
_STAYING = (b'"system"', b'"pinned"')
_SPILLED = "(body IS NULL AND spill IS NOT NULL)"
STAYS = " OR ".join([*(f"instr(body, x'{each.hex()}') > 0" for each in _STAYING), _SPILLED])
STAYS_POSTGRES = " OR ".join([*(f"position('\\x{each.hex()}'::bytea IN body) > 0" for each in _STAYING), _SPILLED])

# Custom entries (``model.items.CUSTOM``). A statement must repeat this word by word, or SQLite does not use the index.
IS_CUSTOM = "kind >= 'custom:' AND kind < 'custom;'"

ENTRY = Table(
    "entry",
    EntryRow,
    key="scope, key",
    number="key",
    called=lambda row: f"entry number {row.key:x}",
    indexes=[
        Index("entry_mid", "scope, mid, key", where="mid IS NOT NULL"),
        Index("entry_approval", "scope, key", where="kind = 'approval'"),
        Index("entry_custom", "scope, kind, key", where=IS_CUSTOM),
        Index("entry_stays", "scope, key", where=STAYS, engine="sqlite"),
        Index("entry_stays", "scope, key", where=STAYS_POSTGRES, engine="postgresql"),
    ],
    notes={
        "key": "branch << 32 | seq: rows of a branch lie together, in order",
        "at_ms": "when it happened",
        "turns": "the turn that it belongs to",
        "mid": "the caller's id, if one was given",
        "body": "NULL: spilled or redacted",
        "raw": "the provider's bytes, verbatim",
        "spill": "hashes of the blobs that hold body and raw, 'body,raw'",
        "rest": f"MessagePack array: {', '.join(Chain._fields)}",
    },
)
LINK = Table(
    "link",
    LinkRow,
    key="scope, hash, key",
    called=lambda row: f"link to content {row.hash}",
    indexes=[Index("link_key", "scope, key")],
    notes={"key": "of the entry"},
)
LOST = Table(
    "lost",
    LostRow,
    key="scope, key",
    number="key",
    called=lambda row: f"what was lost at entry number {row.key:x}",
)


# The rows of a branch within a range of keys. Where keys are unique in the store (``Dialect.gapless``), ``messages_in``
# compares the scope: in the statement, that would take a fifth of the time.
RANGE = f"{ENTRY.select} WHERE scope = ? AND key > ? AND key <= ? ORDER BY key"
RANGE_BY_KEY = f"{ENTRY.select} WHERE key > ? AND key <= ? ORDER BY key"


def messages_in(
    rows: Sequence[Row],
    scope: str,
    uid: str,
    low: int,
    kinds: frozenset[str],
    reader: Callable[[dict[str, Any]], Any] | None,
) -> list[Message] | None:
    """Return the messages among the rows that follow the key ``low`` of the branch ``uid``.

    None if a row fails its check, is missing, is of another scope, or has parts in blobs.
    """
    found = list[Message]()
    for own, key, kind, at_ms, turns, mid, body, raw, spill, rest, chk in rows:
        low += 1
        values = (own, key, kind, at_ms, turns, mid, body, raw, spill, rest)
        if crc32(_write(values)) != chk or key != low or own != scope or spill is not None:
            return None
        if kind in kinds:
            left = erased(mid) if body is None else None
            found.append(Message(uid, key & MAX_SEQ, turns, at_ms, body, raw, left, reader, rest))
    return found
