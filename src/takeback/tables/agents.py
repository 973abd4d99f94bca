"""Agents, the versions of their state, their checkpoints, and where each session was at those."""

import hashlib
from typing import NamedTuple

import msgspec

from .table import Index, Table

_pack = msgspec.msgpack.Encoder().encode


class AgentRow(NamedTuple):
    """A row of ``agent``."""

    scope: str
    aid: int
    id: str
    hidden: int
    version: int
    created_ms: int
    modified_ms: int
    fields: bytes


class VersionRow(NamedTuple):
    """A row of ``agent_version``."""

    scope: str
    agent: int
    version: int
    at_ms: int
    state: bytes | None


class AgentCheckpointRow(NamedTuple):
    """A row of ``agent_checkpoint``."""

    scope: str
    acid: int
    id: str
    agent: int
    name: str
    description: str | None
    type: str
    at_ms: int
    version: int
    fields: bytes
    position: int
    rank: int
    sessions: int
    checksum: bytes  # hash of the agent, sum of the pins in force, number of own pins, totals of the sessions


class PinRow(NamedTuple):
    """A row of ``pin``: where a session was at a checkpoint of its agent."""

    scope: str
    session: int
    checkpoint: int
    branch: int
    seq: int
    attached: int
    hash: bytes
    hidden: int

    @property
    def number(self) -> int:
        """What it adds to its checkpoint's sum.

        The checkpoint's number is left out: a pin that moves to the next checkpoint still adds the same.
        """
        place = (self.session, self.branch, self.seq, self.attached, self.hash, self.hidden)
        return int.from_bytes(hashlib.sha256(_pack(place)).digest(), "big")


AGENT = Table(
    "agent",
    AgentRow,
    key="scope, aid",
    number="aid",
    called=lambda row: f"agent {row.id}",
    indexes=[
        Index("agent_id", "scope, id", unique=True, where="hidden = 0"),
        Index("agent_any", "scope, id, hidden, aid"),
    ],
    notes={
        "aid": "local to this store; never leaves it",
        "hidden": "1 while in the trash, 2 once purged",
        "version": "from 1; grows with every change of its fields or its state",
        "fields": "name, type, system prompt, capabilities, config, metadata as JSON",
    },
)
VERSION = Table(
    "agent_version",
    VersionRow,
    key="scope, agent, version",
    called=lambda row: f"version {row.version} of agent number {row.agent}",
    refs={"agent": "agent"},
    notes={"state": "the whole state as JSON; NULL: as in the version before"},
)
AGENT_CHECKPOINT = Table(
    "agent_checkpoint",
    AgentCheckpointRow,
    key="scope, acid",
    number="acid",
    called=lambda row: f"checkpoint {row.id}",
    refs={"agent": "agent"},
    indexes=[
        Index("agent_checkpoint_id", "scope, id", unique=True),
        Index("agent_checkpoint_agent", "scope, agent, acid"),
    ],
    notes={
        "type": "'manual', 'automatic', 'pre-operation' or 'recovery'",
        "version": "of the agent: its fields and its state",
        "fields": "the agent's fields then",
        "position": "sessions that changed behind it are pinned by the next checkpoint",
        "rank": "no session that changed behind it has a lower rank",
        "sessions": "how many it covers",
        "checksum": 'over its pins and the agent (SPEC.md, "Checkpoints of agents")',
    },
)
PIN = Table(
    "pin",
    PinRow,
    key="scope, session, checkpoint",
    called=lambda row: f"pin number {row.checkpoint}",
    refs={"session": "session", "checkpoint": "agent_checkpoint", "branch": "branch"},
    indexes=[Index("pin_checkpoint", "scope, checkpoint, session")],
    notes={"hash": "of the entry there", "hidden": "1: it was in the trash"},
)
