"""Sessions: columns for what filters use, everything else packed, one check; also tags, details and leases.

``rank`` says roughly when a session last changed and is never lower than that of a session changed earlier. It is the
only indexed column that an append ever changes, and most appends leave it alone, so on PostgreSQL nearly every append
is a heap-only update. Within one rank, ``updated`` gives the order. The exception is a session in which the last things
to be stored happened earlier: its rank is that time, and ``past`` is the rank that it would have otherwise, for those
who look for what changed.
"""

from typing import Any, NamedTuple, Self, TypeAlias
from zlib import crc32

import msgspec

from ..errors import Corrupt
from ..model.entry import Numbers
from ..storage.base import Row
from .table import Index, Table

_pack = msgspec.msgpack.Encoder().encode
PURGED = 2  # the value of ``hidden``
STAGED_KEY = "copying:"
IS_STAGED = f"hidden = {PURGED} AND key LIKE '{STAGED_KEY}%'"  # the same condition as ``SessionRow.staged``


class SessionRow(NamedTuple):
    """A row of ``session``."""

    scope: str
    sid: int
    id: str
    key: str
    agent: str
    kind: str
    name: str | None
    label: str | None
    workspace: str
    parent: int
    status: str
    archived: int
    pinned: int
    hidden: int
    title: str | None
    created_ms: int
    updated_ms: int
    updated: int
    rank: int
    past: int
    branches: int
    attached: int
    fork: int
    seq: int
    messages: int
    # packed from here on
    tags: str
    tasks: int
    completed: int
    builds: int
    states: int
    branch: int
    uid: str
    hash: bytes
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
    calls: Any  # open tool calls at the head (ops/calls.py)
    revision: int
    message_ms: int | None

    @property
    def numbers(self) -> Numbers:
        """The running totals at the head."""
        return tuple.__new__(Numbers, (self.messages, *tuple(self)[_TOTALS]))

    def advanced(self, numbers: Numbers, **changed: Any) -> Self:
        """Return the row with other running totals and other fields; every append does, so it avoids ``_replace``."""
        values: list[Any] = [*self]
        values[_AT["messages"]], values[_TOTALS] = numbers[0], numbers[1:]
        for name, value in changed.items():
            values[_AT[name]] = value
        return tuple.__new__(type(self), values)

    def updated_at(self, position: int) -> Self:
        """Return the row with another feed position, without ``_replace`` too."""
        at = _AT["updated"]
        return tuple.__new__(type(self), (*self[:at], position, *self[at + 1 :]))

    @property
    def staged(self) -> bool:
        """Whether it is still being copied: marked as purged, so that nobody sees it, with a key that says so."""
        return self.hidden == PURGED and self.key.startswith(STAGED_KEY)

    @property
    def tag_rows(self) -> "list[TagRow]":
        """The rows by which its tags find it; none once it is purged."""
        if self.hidden == PURGED or not self.tags:
            return []
        tags = dict.fromkeys(self.tags.split("\n")[1:-1])
        return [TagRow(self.scope, tag, self.hidden, self.rank, self.sid) for tag in tags]


_AT = {name: position for position, name in enumerate(SessionRow._fields)}
_TOTALS = slice(_AT["turns"], _AT["open_seq"] + 1)  # all but the first of ``Numbers``, in their order
assert Numbers._fields == ("messages", *SessionRow._fields[_TOTALS])


class TagRow(NamedTuple):
    """A row of ``session_tag``: a session that is not purged has a tag; rank is the session's."""

    scope: str
    tag: str
    hidden: int
    rank: int
    sid: int


class MetadataRow(NamedTuple):
    """A row of ``session_meta``: a session that is not purged has this metadata; rank is the session's."""

    scope: str
    pair: str
    hidden: int
    rank: int
    sid: int


class DetailRow(NamedTuple):
    """A row of ``detail``: what appends neither read nor write."""

    scope: str
    sid: int
    doc: bytes


class LeaseRow(NamedTuple):
    """A row of ``lease``: who runs a session."""

    scope: str
    session: int
    token: int
    holder: bytes | None
    taken_ms: int
    beats: int
    beat_ms: int


_SHOWN = "hidden = 0"
SESSION = Table(
    "session",
    SessionRow,
    key="scope, sid",
    number="sid",
    called=lambda row: f"session {row.id}",
    packed=SessionRow._fields[SessionRow._fields.index("tags") : SessionRow._fields.index("message_ms") + 1],
    moving="rest, updated_ms, updated, seq, messages, chk",  # rest first: it begins with what an append keeps
    position="updated",
    indexes=[
        Index("session_id", "scope, id", unique=True),
        Index("session_key", "scope, key", unique=True, where=_SHOWN),
        Index("session_name", "scope, name, agent, workspace", unique=True, where=f"name IS NOT NULL AND {_SHOWN}"),
        Index("session_label", "scope, label, parent", unique=True, where=f"label IS NOT NULL AND {_SHOWN}"),
        Index("session_labels", "scope, label, hidden, archived, rank", where="label IS NOT NULL"),
        Index("session_branched", "scope, sid", where="branches > 1 OR fork > 0 OR attached = 0"),
        Index("session_top", "scope, rank"),
        Index("session_past", "scope, agent, past", where="past > 0"),
        Index("session_created", "scope, hidden, archived, created_ms, sid"),
        Index("session_rank", "scope, hidden, archived, rank"),
        Index("session_agent", "scope, agent, hidden, archived, rank"),
        Index("session_workspace", "scope, workspace, hidden, archived, rank", where="workspace <> ''"),
        Index("session_parent", "scope, parent, hidden, archived, rank", where="parent > 0"),
        Index("session_status", "scope, status, hidden, archived, rank"),
        Index("session_kind", "scope, kind, hidden, archived, rank"),
        Index("session_pinned", "scope, hidden, archived, rank", where="pinned = 1"),
    ],
    notes={
        "sid": "local to this store; never leaves it",
        "workspace": "'' for none, so that the unique index sees it",
        "parent": "sid; 0 for none",
        "hidden": "1 while in the trash, 2 once purged",
        "updated": "feed position of the last change",
        "rank": "minute of the last change << 36 | first position of its rank: the order of listings",
        "past": "the rank of its last change, if its own is of the earlier time when things happened in it; else 0",
        "branches": "how many rows of branch belong to this session",
        "attached": "1: the head is at the tip of its branch; 0: at a point, the next append opens a branch",
        "fork": "fork_seq of the head's branch",
        "seq": "of the entry at the head",
        "messages": "its running number",
    },
)
TAG = Table(
    "session_tag",
    TagRow,
    key="scope, tag, hidden, rank, sid",
    called=lambda row: f"tag {row.tag!r}",
    notes={"rank": "of the session"},
)
METADATA = Table(
    "session_meta",
    MetadataRow,
    key="scope, pair, hidden, rank, sid",
    called=lambda row: f"metadata {row.pair}",
    indexes=[Index("session_meta_of", "scope, sid")],
    notes={"pair": "[name, value] as JSON, or its hash", "rank": "of the session"},
)
DETAIL = Table(
    "detail",
    DetailRow,
    key="scope, sid",
    called=lambda row: f"the details of session number {row.sid}",
    refs={"sid": "session"},
    notes={"doc": "prompt, model, provider, task, run id, metadata as JSON"},
)
LEASE = Table(
    "lease",
    LeaseRow,
    key="scope, session",
    called=lambda row: f"the lease of session number {row.session}",
    refs={"session": "session"},
    indexes=[Index("lease_held", "scope, session", where="holder IS NOT NULL")],
    notes={
        "token": "grows with every holder: a write with an older one is refused",
        "holder": 'who has it, as JSON (SPEC.md, "What is under way"); NULL: nobody',
        "beats": "signs of life since then",
    },
)


Whole: TypeAlias = tuple[SessionRow, bytes, LeaseRow | None]  # a session with its details and its lease
WHOLE = f"{SESSION.selected('s')}, {DETAIL.selected('d', DETAIL.key)}, {LEASE.selected('l', LEASE.key)}"
# Where the columns of each table end in such a row, which has the keys of a session's details and lease only once.
_OWN = SESSION.width
_LAST = _OWN - 1  # the check
_BESIDE = _OWN + DETAIL.width - len(DETAIL.key)


def own_part(stored: Row) -> Row:
    """Return the part of a row of ``WHOLE`` that is the session's own."""
    return stored[:_OWN]


def folded_whole(stored: Row) -> Whole:
    """Check a row of ``WHOLE``, and leave the packed fields of the session packed; listings call nothing as often."""
    own, doc = stored[:_LAST], stored[_OWN]
    session = SESSION.fold(own) if crc32(_pack(own)) == stored[_LAST] else SESSION.checked(stored[:_OWN])
    if crc32(_pack((stored[0], stored[1], doc))) != stored[_OWN + 1]:
        raise Corrupt(f"the details of session {session.id!r} are damaged", what=f"session {session.id}")
    return session, doc, None if stored[_BESIDE] is None else LEASE.checked((*own[:2], *stored[_BESIDE:]))
