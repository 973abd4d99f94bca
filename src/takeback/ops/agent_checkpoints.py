"""Checkpoints of an agent: its fields, its state, and where each of its sessions was at one instant.

A checkpoint pins only the sessions that changed since the previous one. For any other session the newest pin at or
before the checkpoint is in force, so a checkpoint costs what changed, however many sessions there are. The checksum
covers the agent and all pins in force, as a sum that each checkpoint carries forward. Deleting an earlier checkpoint
moves its pins to the next one and leaves the checksum unchanged. The totals of the sessions are carried forward the
same way (``agent_totals``).

``position`` is the feed position after which the next checkpoint searches for changes: nothing at or before it can
still arrive. ``rank`` is the index it searches by: a session that changes later never gets a lower one, as its ``rank``
or, if it is listed in the past, as its ``past``.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from .. import codec
from ..errors import Corrupt, NotFound
from ..ids import new_id
from ..model.checkpoint import Checkpoint
from ..model.entry import Numbers
from ..model.session import Head, Stats
from ..storage.base import Tx, scalars
from ..tables.agents import AGENT_CHECKPOINT, PIN
from ..tables.agents import AgentCheckpointRow as AgentCheckpointRow
from ..tables.agents import PinRow as PinRow
from ..tables.history import CHECKPOINT, CheckpointRow
from ..tables.sessions import SESSION
from . import agent_totals, agents, feed, idempotency, sessions
from .agent_totals import Changed, Totals
from .agents import AgentRow
from .idempotency import ApiCall
from .sessions import SessionRow

# One index probe per agent: LIMIT keeps the subquery from being flattened, and the order is that of the index.
WITH_SESSIONS = """SELECT a.id FROM agent a WHERE a.scope = ? AND a.hidden = 0 AND (
SELECT s.sid FROM session s INDEXED BY session_agent WHERE s.scope = a.scope AND s.agent = a.id AND s.hidden = 0
ORDER BY s.archived, s.rank LIMIT 1) IS NOT NULL ORDER BY a.id"""
ALL_IN_FORCE = f"""SELECT {PIN.selected("p")} FROM agent_checkpoint c CROSS JOIN pin p
WHERE c.scope = ? AND c.agent = ? AND c.acid <= ? AND p.scope = c.scope AND p.checkpoint = c.acid ORDER BY c.acid"""
PINNED = "SELECT session FROM pin WHERE scope = ? AND checkpoint = ?"
DROP_PINS = "DELETE FROM pin WHERE scope = ? AND checkpoint = ?"
DROP_SHARED = f"{DROP_PINS} AND session IN ({PINNED})"
AGENTS_OF = """SELECT DISTINCT c.agent FROM pin p CROSS JOIN agent_checkpoint c
WHERE p.scope = ? AND p.session = ? AND c.scope = p.scope AND c.acid = p.checkpoint"""
DROP_OF_SESSION = "DELETE FROM pin WHERE scope = ? AND session = ?"

# The sessions of an agent that changed, each with the pin in force. One statement without locks reads all rows at one
# instant, even while others append. The pins are chosen first, so that fetching each is one probe; the session index
# is read as one range for each combination of hidden and archived, and one more for what is listed in the past.
_WITH_PIN = f"""SELECT {SESSION.selected("s")}, (
SELECT q.checkpoint FROM pin q CROSS JOIN agent_checkpoint c WHERE q.scope = s.scope AND q.session = s.sid
AND q.checkpoint <= ? AND c.scope = q.scope AND c.acid = q.checkpoint AND c.agent = ?
ORDER BY q.checkpoint DESC LIMIT 1) AS pin"""
CHANGED = f"""WITH shelf (hidden, archived) AS (VALUES (0, 0), (0, 1), (1, 0), (1, 1)),
changed AS MATERIALIZED ({_WITH_PIN} FROM shelf CROSS JOIN session s INDEXED BY session_agent
WHERE s.scope = ? AND s.agent = ? AND s.hidden = shelf.hidden AND s.archived = shelf.archived
AND s.rank >= ? AND s.updated > ?
UNION ALL {_WITH_PIN} FROM session s INDEXED BY session_past
WHERE s.scope = ? AND s.agent = ? AND s.past >= ? AND s.past > 0 AND s.updated > ? AND s.rank < ? AND s.hidden < 2)
SELECT {SESSION.selected("n")}, {PIN.selected("p")} FROM changed n
LEFT JOIN pin p ON p.scope = n.scope AND p.session = n.sid AND p.checkpoint = n.pin ORDER BY n.sid"""

_LOOKS, _PAUSE = 100, 0.002
_LATE = 2 << 36  # two minutes of ranks: a writer may use a rank that it read before we took our position
_SUM = 1 << 256
SIZES = (72, 72 + agent_totals.SIZE)  # of ``checksum``: without and with what the sessions add up to
KEY_KIND = "agent_checkpoint"  # the kind of its idempotency keys
FEED_KIND = "agent_checkpoint"
UNKNOWN = 2  # ``hidden`` of a pin whose position a repair could not recover: restoring leaves that session alone


class Parts(NamedTuple):
    """The contents of a checkpoint's ``checksum`` column."""

    agent: bytes  # the hash of the agent
    total: int  # the sum over the pins in force
    own: int  # how many pins are its own
    totals: Totals | None  # what the sessions add up to, if that is known


class New(NamedTuple):
    """Name, description and type of a checkpoint to be taken."""

    name: str | None
    description: str | None
    type: str


# ---------------------------------------------------------------------- finding


def find(tx: Tx, scope: str, checkpoint_id: str) -> AgentCheckpointRow | None:
    """Return a checkpoint of an agent by its id, or None."""
    return AGENT_CHECKPOINT.one(tx, "WHERE scope = ? AND id = ?", (scope, checkpoint_id))


def of_agent(tx: Tx, agent: AgentRow) -> list[AgentCheckpointRow]:
    """Return an agent's checkpoints in the order they were made."""
    return _from(tx, agent.scope, agent.aid, 0)


def _from(tx: Tx, scope: str, aid: int, first: int) -> list[AgentCheckpointRow]:
    """Return an agent's checkpoints from a number on."""
    return AGENT_CHECKPOINT.all(tx, "WHERE scope = ? AND agent = ? AND acid >= ? ORDER BY acid", (scope, aid, first))


def last(tx: Tx, agent: AgentRow) -> AgentCheckpointRow | None:
    """Return an agent's newest checkpoint, or None."""
    where = "WHERE scope = ? AND agent = ? ORDER BY acid DESC LIMIT 1"
    return AGENT_CHECKPOINT.one(tx, where, (agent.scope, agent.aid))


def with_sessions(tx: Tx, scope: str) -> list[str]:
    """Return the ids of the visible agents that have a visible session."""
    return scalars(tx, WITH_SESSIONS, (scope,))


def all_in_force(tx: Tx, row: AgentCheckpointRow) -> dict[int, PinRow]:
    """Return where every session was at a checkpoint, by session number."""
    pins = map(PIN.checked, tx.all(ALL_IN_FORCE, (row.scope, row.agent, row.acid)))
    return {pin.session: pin for pin in pins}


def as_value(tx: Tx, agent: AgentRow, row: AgentCheckpointRow) -> Checkpoint:
    """Return a checkpoint as the value that callers see."""
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
        size_bytes=size + parts(row).own * (len(row.scope) + 32 + 7 * 8),
        checksum=shown(row).hex(),
        stats=Stats.from_numbers(Numbers(*_totals(tx, row)), started_ms=agent.created_ms),
    )


def _totals(tx: Tx, row: AgentCheckpointRow) -> Totals:
    """Return the totals of the sessions, from the row or, where it has none, from the pins in force."""
    found = parts(row).totals
    if found is None:
        found = agent_totals.at_pins(tx, all_in_force(tx, row).values())
    if found is None:
        raise Corrupt(f"the statistics at checkpoint {row.name!r} cannot be read", what=f"checkpoint {row.id}")
    return found


# ---------------------------------------------------------------------- making


def create(tx: Tx, agent: AgentRow, new: New, *, now_ms: int) -> AgentCheckpointRow:
    """Take a checkpoint of an agent and all its sessions at one instant; runs alone."""
    before = last(tx, agent)
    # Read the rank before taking a position: whoever takes a later position then sees at least this rank.
    rank = max(0, sessions.top_rank(tx, agent.scope) - _LATE)
    position = feed.record_agent(tx, agent.scope, agent.aid, FEED_KIND)
    if not _is_settled(tx):
        # A change with a lower position may still commit, so the next checkpoint must search from the old place.
        position, rank = (0, 0) if before is None else (before.position, before.rank)
    acid, checkpoint_id = tx.next("agent_checkpoint"), new_id(now_ms)
    pins, totals = _look(tx, agent, before)
    total, count = (0, 0) if before is None else (parts(before).total, before.sessions)
    for pin, old, _ in pins:
        total += pin.number - (0 if old is None else old.number)
        count += (pin.hidden == 0) - (old is not None and old.hidden == 0)
    row = AgentCheckpointRow(
        scope=agent.scope,
        acid=acid,
        id=checkpoint_id,
        agent=agent.aid,
        name=new.name or checkpoint_id,
        description=new.description,
        type=new.type,
        at_ms=now_ms,
        version=agent.version,
        fields=agent.fields,
        position=position,
        rank=rank,
        sessions=count,
        checksum=checksum(_hash_now(tx, agent, before), total, len(pins), totals),
    )
    AGENT_CHECKPOINT.put(tx, row)
    PIN.put_many(tx, [pin._replace(checkpoint=acid) for pin, _, _ in pins])
    return row


def create_once(tx: Tx, scope: str, agent_id: str, call: ApiCall, new: New) -> Checkpoint:
    """Take a checkpoint of an agent, once per idempotency key."""
    row = agents.get(tx, scope, agent_id)

    def do() -> tuple[AgentCheckpointRow, str]:
        made = create(tx, row, new, now_ms=call.now_ms)
        return made, made.id

    def again(made: str) -> AgentCheckpointRow:
        found = find(tx, scope, made)
        if found is None:
            raise NotFound("the checkpoint made by the first call with this key has since been deleted; use a new key")
        return found

    return as_value(tx, row, idempotency.once(tx, scope, 0, call, kind=KEY_KIND, do=do, again=again))


def keep_before(tx: Tx, scope: str, agent_id: str, new: New, *, now_ms: int) -> None:
    """Take a checkpoint of an agent before an operation, unless the agent is gone or its last checkpoint suffices."""
    row = agents.find(tx, scope, agent_id)
    if row is not None:
        create_before(tx, row, new, now_ms=now_ms)


def take_automatic(tx: Tx, scope: str, agent_id: str, new: New, most: int, *, now_ms: int) -> None:
    """Take a checkpoint of an agent if it changed, and delete the oldest automatic ones."""
    agent = agents.get(tx, scope, agent_id)
    create_if_changed(tx, agent, new, now_ms=now_ms)
    keep(tx, agent, most)


def create_if_changed(tx: Tx, agent: AgentRow, new: New, *, now_ms: int) -> AgentCheckpointRow | None:
    """Take a checkpoint, or return None if nothing changed since the last one."""
    before = last(tx, agent)
    if before is not None and before.version == agent.version and not _new_pins(changed(tx, agent, before, before)):
        return None
    return create(tx, agent, new, now_ms=now_ms)


def create_before(tx: Tx, agent: AgentRow, new: New, *, now_ms: int) -> None:
    """Take a checkpoint before an operation unless nothing changed since the last one.

    An automatic checkpoint does not suffice, since it may be pruned.
    """
    before = last(tx, agent)
    if before is not None and before.type == "automatic":
        create(tx, agent, new, now_ms=now_ms)
    else:
        create_if_changed(tx, agent, new, now_ms=now_ms)


def _look(tx: Tx, agent: AgentRow, before: AgentCheckpointRow | None) -> tuple[list[Changed], Totals | None]:
    """Return what changed since a checkpoint, and the totals of all sessions now.

    If the totals cannot be carried forward, the rows of all sessions are read again, at one instant.
    """
    found = _new_pins(changed(tx, agent, before, before))
    totals = agent_totals.carried_on(tx, agent_totals.NOTHING if before is None else parts(before).totals, found)
    if totals is None:
        rows = changed(tx, agent, before, None)
        found = _new_pins(rows)
        totals = agent_totals.added(agent_totals.of_visible(row.hidden, row.numbers) for row, _ in rows)
    return found, totals


def changed(
    tx: Tx, agent: AgentRow, before: AgentCheckpointRow | None, since: AgentCheckpointRow | None
) -> list[tuple[SessionRow, PinRow | None]]:
    """Return the sessions that changed since a checkpoint, or all, each with its pin in force at ``before``."""
    acid = 0 if before is None else before.acid
    rank, position = (0, -1) if since is None else (since.rank, since.position)
    asked = (acid, agent.aid, agent.scope, agent.id, rank, position)
    rows = tx.all(CHANGED, (*asked, *asked, rank))
    width, found = SESSION.width, list[tuple[SessionRow, PinRow | None]]()
    for row in rows:
        pin = row[width:]
        found.append((SESSION.checked(row[:width]), None if pin[0] is None else PIN.checked(pin)))
    return found


def changed_since(tx: Tx, agent: AgentRow, row: AgentCheckpointRow) -> list[SessionRow]:
    """Return the sessions of an agent that changed since a checkpoint, all as they are at one instant."""
    return [session for session, _ in changed(tx, agent, None, row)]


def _new_pins(changed: Iterable[tuple[SessionRow, PinRow | None]]) -> list[Changed]:
    """Return pins for sessions that moved since they were pinned, each with the old pin and the numbers now."""
    found = list[Changed]()
    for session, old in changed:
        pin = pin_of(session)
        if old is None and session.hidden:
            continue  # never pinned and in the trash: restoring an unpinned session puts it there anyway
        if old is None or old._replace(checkpoint=0) != pin:
            found.append((pin, old, session.numbers))
    return found


def pin_of(session: SessionRow) -> PinRow:
    """Return where a session is now; the caller fills in the checkpoint."""
    place = (session.branch, session.seq, session.attached, session.hash, session.hidden)
    return PinRow(session.scope, session.sid, 0, *place)


def _is_settled(tx: Tx) -> bool:
    """Wait for changes with lower feed positions to commit; return False if they take too long."""
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


def checksum(agent: bytes, total: int, own: int, totals: Totals | None) -> bytes:
    """Encode the checksum column: agent hash, sum of pins, number of own pins, and the totals if they are known."""
    return agent + (total % _SUM).to_bytes(32, "big") + own.to_bytes(8, "big") + agent_totals.encode(totals)


def parts(row: AgentCheckpointRow) -> Parts:
    """Decode the checksum column of a checkpoint."""
    data = row.checksum
    total, own = int.from_bytes(data[32:64], "big"), int.from_bytes(data[64:72], "big")
    return Parts(data[:32], total, own, agent_totals.decode(data[72:]))


def shown(row: AgentCheckpointRow) -> bytes:
    """Return the checksum as callers see it.

    It leaves out the number of own pins and the totals: deleting an earlier checkpoint changes the first, and the
    second may be unknown, yet the checkpoint names the same thing.
    """
    return hashlib.sha256(row.checksum[:64] + msgspec.msgpack.encode((row.sessions,))).digest()


def agent_hash(tx: Tx, agent: AgentRow, fields: bytes, version: int) -> bytes:
    """Hash an agent as of a version: its id, version, fields and state, with sorted keys."""
    about = [agent.id, version, codec.decode(fields), agents.state_at(tx, agent, version)]
    return hashlib.sha256(codec.canonical(about)).digest()


def _hash_now(tx: Tx, agent: AgentRow, before: AgentCheckpointRow | None) -> bytes:
    """Hash an agent as it is now; every change is a version, so an equal version means an equal hash."""
    if before is not None and before.version == agent.version:
        return parts(before).agent
    return agent_hash(tx, agent, agent.fields, agent.version)


def total_of(pins: Iterable[PinRow]) -> int:
    """Return the sum of the pins in force."""
    return sum(pin.number for pin in pins) % _SUM


def fault(tx: Tx, agent: AgentRow, row: AgentCheckpointRow, pins: dict[int, PinRow]) -> str:
    """Describe how a checkpoint disagrees with the pins in force at it; empty if it does not."""
    found = parts(row)
    if len(row.checksum) not in SIZES or found.agent != agent_hash(tx, agent, row.fields, row.version):
        return "the agent's fields or state differ from what it recorded"
    own = sum(pin.checkpoint == row.acid for pin in pins.values())
    if (found.total, found.own) != (total_of(pins.values()), own):
        return "the positions of its sessions differ from what it recorded"
    return "" if row.sessions == visible(pins) else "the number of its sessions differs from what it recorded"


def totals_fault(row: AgentCheckpointRow, totals: Totals | None) -> str:
    """Describe how the statistics of a checkpoint disagree with its sessions, where both are known; empty if not."""
    recorded = parts(row).totals
    differ = recorded is not None and totals is not None and recorded != totals
    return "its statistics differ from those of its sessions" if differ else ""


def visible(pins: dict[int, PinRow]) -> int:
    """Count the sessions that existed and were not in the trash."""
    return sum(pin.hidden == 0 for pin in pins.values())


# ---------------------------------------------------------------------- deleting


def delete(tx: Tx, row: AgentCheckpointRow) -> None:
    """Erase a checkpoint, moving its pins to the next one where that has none of its own.

    If the next one is automatic and has fewer pins, it takes over this one's row instead: pruning must never move the
    many pins of an agent's first checkpoint.
    """
    where = "WHERE scope = ? AND agent = ? AND acid > ? ORDER BY acid LIMIT 1"
    following = AGENT_CHECKPOINT.one(tx, where, (row.scope, row.agent, row.acid))
    if following is None:
        tx.run(DROP_PINS, (row.scope, row.acid))
        AGENT_CHECKPOINT.delete(tx, row.scope, row.acid)
    elif parts(following).own < parts(row).own and following.type == "automatic":
        own = _move_pins(tx, following, row, over=True)
        AGENT_CHECKPOINT.delete(tx, following.scope, following.acid)
        AGENT_CHECKPOINT.update(tx, row, _with_own(following._replace(acid=row.acid), own))
    else:
        own = _move_pins(tx, row, following, over=False)
        AGENT_CHECKPOINT.delete(tx, row.scope, row.acid)
        AGENT_CHECKPOINT.update(tx, following, _with_own(following, own))


def _with_own(row: AgentCheckpointRow, own: int) -> AgentCheckpointRow:
    return row._replace(checksum=checksum(*parts(row)._replace(own=own)))


def delete_of_session(tx: Tx, row: CheckpointRow) -> None:
    """Erase a checkpoint of a session, and the idempotency keys of the calls that made it: a retry makes a new one."""
    idempotency.forget(tx, row.scope, row.session, "checkpoint", row.id)
    CHECKPOINT.delete(tx, row.scope, row.cid)


def _move_pins(tx: Tx, source: AgentCheckpointRow, target: AgentCheckpointRow, *, over: bool) -> int:
    """Move the pins of a checkpoint to another, replacing those it has if ``over``; return how many it then has.

    Both must have as many pins as they recorded: moving what a damaged index still finds would lose the rest for good.
    """
    scope = source.scope
    pins = PIN.all(tx, "WHERE scope = ? AND checkpoint = ? ORDER BY session", (scope, source.acid))
    kept = set(scalars(tx, PINNED, (scope, target.acid)))
    if (len(pins), len(kept)) != (parts(source).own, parts(target).own):
        raise Corrupt(f"pins of checkpoint {source.name!r} are missing; run verify", what=f"checkpoint {source.id}")
    if over:
        tx.run(DROP_SHARED, (scope, target.acid, scope, source.acid))
    tx.run(DROP_PINS, (scope, source.acid))
    moved = [pin._replace(checkpoint=target.acid) for pin in pins if over or pin.session not in kept]
    PIN.put_many(tx, moved)
    return len(kept | {pin.session for pin in pins})


def keep(tx: Tx, agent: AgentRow, most: int) -> list[str]:
    """Erase all automatic checkpoints but the newest ``most``; return the ids of those erased."""
    gone = [row.id for row in of_agent(tx, agent) if row.type == "automatic"][:-most]
    for checkpoint_id in gone:  # read each again: deleting the one before it may have moved it to another row
        row = find(tx, agent.scope, checkpoint_id)
        if row is not None:
            delete(tx, row)
    return gone


def forget_session(tx: Tx, scope: str, sid: int) -> None:
    """Remove a session that is about to be purged from all checkpoints; the other sessions are unaffected.

    Its entries must still exist: they say what it contributed to the totals.
    """
    own = {pin.checkpoint: pin for pin in PIN.all(tx, "WHERE scope = ? AND session = ?", (scope, sid))}
    if not own:
        return
    added = {acid: agent_totals.at_pin(tx, pin) for acid, pin in own.items()}
    for (aid,) in tx.all(AGENTS_OF, (scope, sid)):
        current: PinRow | None = None
        for row in _from(tx, scope, aid, min(own)):
            current = own.get(row.acid, current)
            if current is not None:
                _leave_out(tx, row, current, added[current.checkpoint])
    tx.run(DROP_OF_SESSION, (scope, sid))


def _leave_out(tx: Tx, row: AgentCheckpointRow, pin: PinRow, added: Totals | None) -> None:
    before = parts(row)
    own, totals = before.own - (pin.checkpoint == row.acid), agent_totals.without(before.totals, added)
    new = checksum(before.agent, before.total - pin.number, own, totals)
    left = row.sessions - (pin.hidden == 0)
    AGENT_CHECKPOINT.update(tx, row, row._replace(checksum=new, sessions=left))
