"""Checkpoints of agents: its fields, its state, and where each of its sessions was at one instant.

A checkpoint pins only the sessions that changed since the one before it; where the others were, an earlier pin says:
the newest one at or before the checkpoint is in force. So it costs what changed, however many sessions there are.
Its checksum is over all pins in force, as a sum that each checkpoint carries on, and over the agent; it stays the same
when an earlier checkpoint is deleted, whose pins move to the next one. What the sessions add up to is carried on in the
same way (``agent_totals``). ``position`` is the place in the feed behind
which the next checkpoint looks for changes: nothing at or before it can still arrive.
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from .. import codec
from ..errors import Corrupt, NotFound
from ..ids import new_id
from ..model.checkpoint import Checkpoint
from ..model.entry import Numbers
from ..model.session import Head, Stats
from ..storage.base import Row, Tx, packed, row_check
from . import agent_totals, agents, feed, sessions
from .agent_totals import Changed, Totals
from .agents import AgentRow
from .checkpoints import CheckpointRow
from .sessions import SessionRow

COLUMNS = "acid, scope, id, agent, name, description, type, at_ms, version, fields, position, sessions, checksum, chk"
INSERT = f"INSERT INTO agent_checkpoint ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
GET = f"SELECT {COLUMNS} FROM agent_checkpoint WHERE acid = ?"
BY_ID = f"SELECT {COLUMNS} FROM agent_checkpoint WHERE scope = ? AND id = ?"
OF_AGENT = f"SELECT {COLUMNS} FROM agent_checkpoint WHERE scope = ? AND agent = ? ORDER BY acid"
LAST = f"SELECT {COLUMNS} FROM agent_checkpoint WHERE scope = ? AND agent = ? ORDER BY acid DESC LIMIT 1"
NEXT = f"SELECT {COLUMNS} FROM agent_checkpoint WHERE scope = ? AND agent = ? AND acid > ? ORDER BY acid LIMIT 1"
SET = """UPDATE agent_checkpoint SET id = ?, name = ?, description = ?, type = ?, at_ms = ?, version = ?, fields = ?,
position = ?, sessions = ?, checksum = ?, chk = ? WHERE acid = ?"""
DELETE = "DELETE FROM agent_checkpoint WHERE acid = ?"

AGENT = f"SELECT {agents.COLUMNS} FROM agent WHERE scope = ? AND aid = ? AND hidden < 2"
IN_TRASH = f"SELECT {agents.COLUMNS} FROM agent WHERE scope = ? AND id = ? AND hidden = 1 ORDER BY aid DESC LIMIT 1"
WITH_SESSIONS = """SELECT a.id FROM agent a WHERE a.scope = ? AND a.hidden = 0 AND a.id IN
(SELECT s.agent FROM session s WHERE s.scope = ? AND s.hidden = 0) ORDER BY a.id"""
DELETE_OF_SESSION = "DELETE FROM checkpoint WHERE cid = ?"
DROP_KEY = """DELETE FROM idempotency
WHERE scope = ? AND session = ? AND branch = 0 AND seq = ? AND digest IN (?, ?)"""

PIN = "scope, session, checkpoint, branch, seq, attached, hash, hidden, chk"
_P = ", ".join(f"p.{name.strip()}" for name in PIN.split(","))
PUT_PIN = f"INSERT INTO pin ({PIN}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
PINS = f"SELECT {PIN} FROM pin WHERE checkpoint = ? ORDER BY session"
DROP_PIN = "DELETE FROM pin WHERE scope = ? AND session = ? AND checkpoint = ?"
DROP_PINS = "DELETE FROM pin WHERE checkpoint = ?"
OF_SESSION = f"SELECT {PIN} FROM pin WHERE scope = ? AND session = ? ORDER BY checkpoint"
IN_FORCE = f"""SELECT {_P} FROM pin p JOIN agent_checkpoint c ON c.acid = p.checkpoint
WHERE p.scope = ? AND p.session = ? AND p.checkpoint <= ? AND c.agent = ? ORDER BY p.checkpoint DESC LIMIT 1"""
ALL_IN_FORCE = f"""SELECT {_P} FROM agent_checkpoint c JOIN pin p ON p.checkpoint = c.acid
WHERE c.scope = ? AND c.agent = ? AND c.acid <= ? ORDER BY c.acid"""

# All rows in one statement and without locks: one instant, also where others append meanwhile.
_S = ", ".join(f"s.{name.strip()}" for name in sessions.COLUMNS.split(","))
CHANGED = f"""SELECT {_S} FROM session s WHERE s.scope = ? AND s.hidden IN (0, 1) AND s.rank > ? AND +s.agent = ?
ORDER BY s.sid"""
# Where several append at once, sessions that were the newest when a checkpoint was made may keep their rank behind it.
CHANGED_AMONG = f"""SELECT {_S} FROM session s WHERE s.sid IN (
SELECT n.sid FROM session n WHERE n.scope = ? AND n.hidden IN (0, 1) AND n.rank > ? UNION ALL
SELECT m.sid FROM (SELECT k.sid, k.updated FROM session k WHERE k.scope = ? AND k.hidden = 0 AND k.rank <= ?
ORDER BY k.rank DESC LIMIT 256) AS m WHERE m.updated > ?) AND s.agent = ? ORDER BY s.sid"""

_LOOKS, _PAUSE = 100, 0.002
_SUM = 1 << 256
SIZES = (72, 72 + agent_totals.SIZE)  # of ``checksum``: without and with what the sessions add up to
FEED_KIND = "agent_checkpoint"
UNKNOWN = 2  # in place of a pin whose place a repair could not tell: restoring leaves that session as it is


class AgentCheckpointRow(NamedTuple):
    """A row of ``agent_checkpoint``, checked."""

    acid: int
    scope: str
    id: str
    agent: int
    name: str
    description: str | None
    type: str
    at_ms: int
    version: int
    fields: bytes
    position: int
    sessions: int
    checksum: bytes  # hash of the agent, sum over the pins in force, how many are its own; what sessions add up to

    @property
    def shown(self) -> bytes:
        """The checksum as callers see it."""
        return hashlib.sha256(self.checksum[:64] + packed((self.sessions,))).digest()

    @property
    def own(self) -> int:
        """How many pins are its own."""
        return int.from_bytes(self.checksum[64:72], "big")

    @property
    def total(self) -> int:
        """The sum over the pins in force."""
        return int.from_bytes(self.checksum[32:64], "big")

    @property
    def totals(self) -> Totals | None:
        """What the sessions add up to; None if that is not known."""
        return agent_totals.decode(self.checksum[72:])


class Pin(NamedTuple):
    """Where a session was at a checkpoint of its agent, checked."""

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
        """What it adds to the sum."""
        return int.from_bytes(hashlib.sha256(packed((self.session, *self[3:]))).digest(), "big")


class New(NamedTuple):
    """What a checkpoint is called."""

    name: str | None
    description: str | None
    type: str


def checked(row: Row) -> AgentCheckpointRow:
    """Check a row that was read; damage is ``Corrupt``."""
    if row_check(row[:-1]) != row[-1]:
        raise Corrupt(f"the record of checkpoint {row[4]!r} is damaged", what=f"checkpoint {row[2]}")
    return AgentCheckpointRow._make(row[:-1])


def checked_pin(row: Row) -> Pin:
    """Check a pin that was read; damage is ``Corrupt``."""
    if row_check(row[:-1]) != row[-1]:
        raise Corrupt("where a session was at a checkpoint is damaged; run verify", what=f"pin number {row[2]}")
    return Pin._make(row[:-1])


# ---------------------------------------------------------------------- finding


def find(tx: Tx, scope: str, checkpoint_id: str) -> AgentCheckpointRow | None:
    """Give a checkpoint of an agent by its id, or None."""
    row = tx.one(BY_ID, (scope, checkpoint_id))
    return None if row is None else checked(row)


def by_number(tx: Tx, acid: int) -> AgentCheckpointRow:
    """Give a checkpoint that a call made by its local number."""
    row = tx.one(GET, (acid,))
    if row is None:
        raise NotFound("the checkpoint that this call made was deleted since")
    return checked(row)


def of_agent(tx: Tx, agent: AgentRow) -> list[AgentCheckpointRow]:
    """Give an agent's checkpoints in the order they were made."""
    return [checked(row) for row in tx.all(OF_AGENT, (agent.scope, agent.aid))]


def last(tx: Tx, agent: AgentRow) -> AgentCheckpointRow | None:
    """Give an agent's newest checkpoint, or None."""
    row = tx.one(LAST, (agent.scope, agent.aid))
    return None if row is None else checked(row)


def with_sessions(tx: Tx, scope: str) -> list[str]:
    """Give the ids of the visible agents that have a visible session."""
    return [row[0] for row in tx.all(WITH_SESSIONS, (scope, scope))]


def in_force(tx: Tx, row: AgentCheckpointRow, sid: int) -> Pin | None:
    """Give where a session was at a checkpoint; None if it was not there yet."""
    found = tx.one(IN_FORCE, (row.scope, sid, row.acid, row.agent))
    return None if found is None else checked_pin(found)


def all_in_force(tx: Tx, row: AgentCheckpointRow) -> dict[int, Pin]:
    """Give where all sessions were at a checkpoint."""
    pins = map(checked_pin, tx.all(ALL_IN_FORCE, (row.scope, row.agent, row.acid)))
    return {pin.session: pin for pin in pins}


def as_value(tx: Tx, agent: AgentRow, row: AgentCheckpointRow) -> Checkpoint:
    """Show a checkpoint to callers."""
    size = sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
    return Checkpoint(
        id=row.id,
        name=row.name,
        description=row.description,
        type=row.type,
        session_id=None,
        agent_id=agent.id,
        at_ms=row.at_ms,
        head=Head("", 0, False),
        state_version=row.version,
        size_bytes=size + row.own * (len(row.scope) + 32 + 7 * 8),
        checksum=row.shown.hex(),
        stats=Stats.from_numbers(Numbers(*_totals(tx, row)), started_ms=agent.created_ms),
    )


def _totals(tx: Tx, row: AgentCheckpointRow) -> Totals:
    """Give what the sessions add up to; where the row does not say it, the pins in force do."""
    found = row.totals
    if found is None:
        found = agent_totals.at_pins(tx, all_in_force(tx, row).values())
    if found is None:
        raise Corrupt(f"the statistics at checkpoint {row.name!r} cannot be read", what=f"checkpoint {row.id}")
    return found


# ---------------------------------------------------------------------- making


def create(tx: Tx, agent: AgentRow, new: New, *, now_ms: int) -> AgentCheckpointRow:
    """Make a checkpoint of an agent and of all its sessions at one instant; runs alone."""
    before = last(tx, agent)
    position = feed.record_agent(tx, agent.scope, agent.aid, FEED_KIND)
    if not _is_settled(tx):
        position = 0 if before is None else before.position
    acid = tx.next("agent_checkpoint")
    pins, totals = _look(tx, agent, before)
    total, count = _carried(before)
    for pin, old, _ in pins:
        total += pin.number - (0 if old is None else old.number)
        count += (pin.hidden == 0) - (old is not None and old.hidden == 0)
    checkpoint_id = new_id(now_ms)
    row = AgentCheckpointRow(
        acid,
        agent.scope,
        checkpoint_id,
        agent.aid,
        new.name or checkpoint_id,
        new.description,
        new.type,
        now_ms,
        agent.version,
        agent.fields,
        position,
        count,
        checksum(_hash_now(tx, agent, before), total, len(pins), totals),
    )
    tx.run(INSERT, (*row, row_check(row)))
    for pin, _, _ in pins:
        put_pin(tx, pin._replace(checkpoint=acid))
    return row


def create_if_changed(tx: Tx, agent: AgentRow, new: New, *, now_ms: int) -> AgentCheckpointRow | None:
    """Make a checkpoint unless nothing changed since the last one; None then."""
    before = last(tx, agent)
    if before is not None and before.version == agent.version and not _look(tx, agent, before)[0]:
        return None
    return create(tx, agent, new, now_ms=now_ms)


def create_before(tx: Tx, agent: AgentRow, new: New, *, now_ms: int) -> None:
    """Make a checkpoint before an operation unless the last one serves; an automatic one may be pruned and does not."""
    before = last(tx, agent)
    if before is not None and before.type == "automatic":
        create(tx, agent, new, now_ms=now_ms)
    else:
        create_if_changed(tx, agent, new, now_ms=now_ms)


def _look(tx: Tx, agent: AgentRow, before: AgentCheckpointRow | None) -> tuple[list[Changed], Totals | None]:
    """Give what changed since a checkpoint and what all sessions add up to now.

    Where that cannot be carried on, all sessions are looked at anew: their rows say it, and all at one instant.
    """
    found = _new_pins(tx, before, changed_since(tx, agent, 0 if before is None else before.position))
    totals = agent_totals.carried_on(tx, agent_totals.NOTHING if before is None else before.totals, found)
    if totals is None:
        rows = changed_since(tx, agent, 0)
        found = _new_pins(tx, before, rows)
        totals = agent_totals.added(agent_totals.of_visible(row.hidden, row.numbers) for row in rows)
    return found, totals


def _new_pins(tx: Tx, before: AgentCheckpointRow | None, rows: list[SessionRow]) -> list[Changed]:
    """Give pins for sessions that are elsewhere than at a checkpoint, with what they replace and the numbers there."""
    found = list[Changed]()
    for session in rows:
        old = None if before is None else in_force(tx, before, session.sid)
        pin = pin_of(session)
        if old is None and session.hidden:
            continue  # one in the trash that never was anything else goes there again without a pin
        if old is None or old._replace(checkpoint=0) != pin:
            found.append((pin, old, session.numbers))
    return found


def pin_of(session: SessionRow) -> Pin:
    """Say where a session is now."""
    place = (session.branch, session.seq, session.attached, session.hash, session.hidden)
    return Pin(session.scope, session.sid, 0, *place)


def put_pin(tx: Tx, pin: Pin) -> None:
    """Write a pin."""
    tx.run(PUT_PIN, (*pin, row_check(pin)))


def changed_since(tx: Tx, agent: AgentRow, position: int) -> list[SessionRow]:
    """Give the sessions of an agent that changed behind a position, all as they are at one instant."""
    if tx.dialect.gapless:  # the checkpoint is a change too, so whichever session changes next ranks behind it
        rows = tx.all(CHANGED, (agent.scope, position, agent.id))
    else:
        rows = tx.all(CHANGED_AMONG, (agent.scope, position, agent.scope, position, position, agent.id))
    return [sessions.checked(row) for row in rows]


def _is_settled(tx: Tx) -> bool:
    """Wait until changes with lower numbers than the one just given out are there; False if they take too long."""
    if not tx.dialect.under_way:
        return True
    ahead = set(tx.all(tx.dialect.under_way))
    for _ in range(_LOOKS):
        if not ahead:
            return True
        time.sleep(_PAUSE)
        ahead &= set(tx.all(tx.dialect.under_way))
    return not ahead


# ---------------------------------------------------------------------- the checksum


def agent_hash(tx: Tx, agent: AgentRow, fields: bytes, version: int) -> bytes:
    """Hash an agent as it was: its id, its version, its fields and its state, with sorted keys."""
    about = [agent.id, version, codec.decode(fields), agents.state_at(tx, agent, version)]
    return hashlib.sha256(codec.canonical(about)).digest()


def _hash_now(tx: Tx, agent: AgentRow, before: AgentCheckpointRow | None) -> bytes:
    """Hash an agent as it is; every change is a version, so the last checkpoint may have done that already."""
    if before is not None and before.version == agent.version:
        return before.checksum[:32]
    return agent_hash(tx, agent, agent.fields, agent.version)


def checksum(agent: bytes, total: int, own: int, totals: Totals | None) -> bytes:
    """Write what a checkpoint is compared by, how many pins are its own, and what the sessions add up to if known."""
    return agent + (total % _SUM).to_bytes(32, "big") + own.to_bytes(8, "big") + agent_totals.encode(totals)


def total_of(pins: Iterable[Pin]) -> int:
    """Add up pins as they are in force."""
    return sum(pin.number for pin in pins) % _SUM


def _carried(before: AgentCheckpointRow | None) -> tuple[int, int]:
    return (0, 0) if before is None else (before.total, before.sessions)


def fault(tx: Tx, agent: AgentRow, row: AgentCheckpointRow, pins: dict[int, Pin]) -> str:
    """Say what does not fit about a checkpoint with the pins in force at it, if anything does not."""
    if len(row.checksum) not in SIZES or row.checksum[:32] != agent_hash(tx, agent, row.fields, row.version):
        return "the agent's fields or state are not those that it recorded"
    own = sum(pin.checkpoint == row.acid for pin in pins.values())
    if (row.total, row.own) != (total_of(pins.values()), own):
        return "where the sessions were is not what it recorded"
    return "" if row.sessions == visible(pins) else "the number of its sessions is not what it recorded"


def totals_fault(row: AgentCheckpointRow, totals: Totals | None) -> str:
    """Say whether a checkpoint gives other statistics than those of its sessions, as far as those are known."""
    differ = row.totals is not None and totals is not None and row.totals != totals
    return "its statistics are not those of its sessions" if differ else ""


def visible(pins: dict[int, Pin]) -> int:
    """Count the sessions that were there and not in the trash."""
    return sum(pin.hidden == 0 for pin in pins.values())


# ---------------------------------------------------------------------- deleting


def delete(tx: Tx, row: AgentCheckpointRow) -> None:
    """Erase a checkpoint; its pins go on with the next one, for the sessions that that one does not pin itself.

    Where the next one is an automatic one with fewer pins, it takes the place of this one instead: so pruning never
    moves the many pins of an agent's first checkpoint.
    """
    found = tx.one(NEXT, (row.scope, row.agent, row.acid))
    if found is None:
        tx.run(DROP_PINS, (row.acid,))
        tx.run(DELETE, (row.acid,))
        return
    following = checked(found)
    if following.own < row.own and following.type == "automatic":
        own = _move_pins(tx, following, row, over=True)
        tx.run(DELETE, (following.acid,))
        _write_own(tx, following._replace(acid=row.acid), own)
    else:
        own = _move_pins(tx, row, following, over=False)
        tx.run(DELETE, (row.acid,))
        _write_own(tx, following, own)


def _write_own(tx: Tx, row: AgentCheckpointRow, own: int) -> None:
    write(tx, row._replace(checksum=checksum(row.checksum[:32], row.total, own, row.totals)))


def delete_of_session(tx: Tx, row: CheckpointRow) -> None:
    """Erase a checkpoint of a session, and the key of the call that made it: its number may be used again."""
    about = {"description": row.description, "type": row.type}
    asked = (["checkpoint", {"name": name, **about}] for name in (row.name, None))
    digests = [zlib.crc32(codec.canonical(request)) for request in asked]
    tx.run(DROP_KEY, (row.scope, row.session, row.cid, *digests))
    tx.run(DELETE_OF_SESSION, (row.cid,))


def _move_pins(tx: Tx, source: AgentCheckpointRow, target: AgentCheckpointRow, *, over: bool) -> int:
    """Give the pins of a checkpoint to another, over those that it has or only beside them; give how many it has then.

    As many as both recorded must be there: an index that lost some would lose them for good.
    """
    pins = [checked_pin(row) for row in tx.all(PINS, (source.acid,))]
    kept = {row[1] for row in tx.all(PINS, (target.acid,))}
    if (len(pins), len(kept)) != (source.own, target.own):
        raise Corrupt("where sessions were at a checkpoint is missing; run verify", what=f"checkpoint {source.id}")
    tx.run(DROP_PINS, (source.acid,))
    for pin in pins:
        if over and pin.session in kept:
            tx.run(DROP_PIN, (pin.scope, pin.session, target.acid))
        if over or pin.session not in kept:
            put_pin(tx, pin._replace(checkpoint=target.acid))
    return len(kept | {pin.session for pin in pins})


def write(tx: Tx, row: AgentCheckpointRow) -> None:
    """Write a checkpoint's row anew."""
    tx.run(SET, (row.id, *row[4:], row_check(row), row.acid))


def keep(tx: Tx, agent: AgentRow, most: int) -> list[str]:
    """Erase all but the newest automatic checkpoints; give the ids of those that are gone. Others are never touched."""
    gone = [row.id for row in of_agent(tx, agent) if row.type == "automatic"][:-most]
    for checkpoint_id in gone:  # looked up again: the one before it may have been moved
        row = find(tx, agent.scope, checkpoint_id)
        if row is not None:
            delete(tx, row)
    return gone


def forget_session(tx: Tx, scope: str, sid: int) -> None:
    """Take a session that is to be purged out of all checkpoints; what they say of the others stays as it is.

    Its entries must still be there: they say what it added to the totals.
    """
    pins = [checked_pin(row) for row in tx.all(OF_SESSION, (scope, sid))]
    added = {pin.checkpoint: agent_totals.at_pin(tx, pin) for pin in pins}
    for aid in {by_number(tx, pin.checkpoint).agent for pin in pins}:
        current: Pin | None = None
        own = {pin.checkpoint: pin for pin in pins}
        for row in map(checked, tx.all(OF_AGENT, (scope, aid))):
            current = own.get(row.acid, current)
            if current is not None:
                _leave_out(tx, row, current, added[current.checkpoint])
    for pin in pins:
        tx.run(DROP_PIN, (scope, sid, pin.checkpoint))


def _leave_out(tx: Tx, row: AgentCheckpointRow, pin: Pin, added: Totals | None) -> None:
    own, totals = row.own - (pin.checkpoint == row.acid), agent_totals.without(row.totals, added)
    new = checksum(row.checksum[:32], row.total - pin.number, own, totals)
    write(tx, row._replace(checksum=new, sessions=row.sessions - (pin.hidden == 0)))
