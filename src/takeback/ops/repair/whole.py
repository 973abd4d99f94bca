"""Repair of checkpoints of agents and their pins, and of what is known of files.

A pin that cannot be proved says from then on that nobody knows where its session was: restoring leaves that one as it
is. A checkpoint stays if its checksum fits, or if what does not fit was said already; else it is left out, and
its pins go on with the next one, which builds on them. What was seen of files is only left out: they are read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ids import is_id, new_id
from ...storage.base import Row
from .. import agent_checkpoints, agent_totals, agents, chain, checkpoints
from ..agent_checkpoints import UNKNOWN, AgentCheckpointRow, Pin
from ..verify import whole
from ..verify.base import is_sound
from ..verify.places import is_object
from ..verify.whole import CHECKPOINTS, JOURNAL, PINS, SEEN, InForce
from .base import PARTLY, Repair, checked, proved

BRANCHES_OF = "SELECT bid FROM branch WHERE session = ? ORDER BY bid"
ENTRY_HASH = "SELECT hash FROM entry WHERE key = ?"
SESSION = "SELECT scope, agent FROM session WHERE sid = ? AND hidden < 2"
AGENTS_NAMED = "SELECT aid FROM agent WHERE scope = ? AND id = ?"
AGENT_IDS = "SELECT DISTINCT agent FROM agent_checkpoint ORDER BY agent"
PIN_OF = "SELECT 1 FROM pin WHERE scope = ? AND session = ? AND checkpoint = ?"
TAKEN = "SELECT 1 FROM agent_checkpoint WHERE scope = ? AND id = ? AND acid != ?"
NEXT = "SELECT min(acid) FROM agent_checkpoint WHERE agent = ? AND acid > ?"
_VERSIONS = 1000


def fix_whole(fix: Repair) -> None:
    """Put checkpoints of agents right, and drop what is damaged of what is known of files."""
    for row in [*whole.first_of(fix.tx, SEEN), *fix.rows(SEEN)]:
        if whole.seen_fault(fix.tx, row):
            fix.delete(SEEN, row[:3])
            fix.lose("seen", whole.seen_name(row), "its record was damaged: its files are read again", whole.AGAIN)
    for row in [*whole.first_of(fix.tx, JOURNAL), *fix.rows(JOURNAL)]:
        if whole.journal_fault(fix.tx, row):
            fix.delete(JOURNAL, row[:2])
            fix.lose("journal", whole.journal_name(row), "its record was damaged: it is not taken back by itself")
    for row in list(fix.rows(CHECKPOINTS)):
        if not is_sound(row):
            _prove(fix, row)
    mended = _fix_pins(fix)
    for (aid,) in fix.tx.all(AGENT_IDS):
        _fix_agent(fix, aid, aid in mended)


# ---------------------------------------------------------------------- the rows


def _prove(fix: Repair, row: Row) -> None:
    new = proved(row, _candidates(fix, row))
    if new is not None:
        fix.replace(CHECKPOINTS, row[:1], new)
        fix.rebuilt += 1


def _candidates(fix: Repair, row: Row) -> Iterator[dict[int, Any]]:
    """Give what a damaged row may have said."""
    yield from ({6: kind} for kind in checkpoints.TYPES)
    yield from ({5: None}, {4: row[2]}, {2: row[4]})
    pins = fix.tx.all(agent_checkpoints.PINS, row[:1])
    owners = [fix.tx.one(SESSION, (pin[1],)) for pin in pins[:1]]
    for scope, agent_id in (each for each in owners if each):
        yield {1: scope}
        yield from ({3: aid} for (aid,) in fix.tx.all(AGENTS_NAMED, (scope, agent_id)))
    found = fix.tx.one(agents.BY_NUMBER, (row[3],)) if isinstance(row[3], int) else None
    if found is not None and is_sound(found):
        agent = agents.checked(found)
        yield {9: agent.fields}
        yield from ({8: version} for version in range(agent.version, max(0, agent.version - _VERSIONS), -1))
    yield from ({11: number} for number in range(_VERSIONS))
    if isinstance(row[12], bytes) and isinstance(row[3], int):
        yield from ({12: _with_totals(row[12], here)} for each, here in whole.in_order(fix.tx, row[3]) if each == row)


def _fix_agent(fix: Repair, aid: int, mended: bool) -> None:
    """Go through an agent's checkpoints in order; keep those that fit."""
    found = fix.tx.one(agents.BY_NUMBER, (aid,))
    agent = agents.checked(found) if found is not None and is_sound(found) else None
    gone = []
    for row, here in whole.in_order(fix.tx, aid):
        if not whole.checkpoint_fault(fix.tx, agent, row, here):
            continue
        new = _partly(fix, row, here)
        carried = None if new is None else checked((*new[:11], *_sums(new, here)))
        if new is not None and not whole.checkpoint_fault(fix.tx, agent, new, here):
            fix.replace(CHECKPOINTS, row[:1], new)
            if is_sound(row):
                fix.rebuilt += 1  # only its statistics were wrong, and the sessions say them again
            else:
                fix.lose("checkpoint", f"checkpoint {row[2]}", "its name, type or time may be others", PARTLY)
        elif mended and carried is not None and not whole.checkpoint_fault(fix.tx, agent, carried, here):
            fix.replace(CHECKPOINTS, row[:1], carried)
            fix.lose("checkpoint", f"checkpoint {row[2]}", "where one of its sessions was is lost", PARTLY)
        else:
            gone.append(row)
            fix.lose("checkpoint", f"checkpoint {row[2]}", "its record was damaged, or something that it names is lost")
    for row in gone:
        _pass_on(fix, row[0], aid)
        fix.delete(CHECKPOINTS, row[:1])


def _sums(row: Row, here: InForce) -> tuple[int, bytes]:
    own = sum(pin.checkpoint == row[0] for pin in here.pins.values())
    total = agent_checkpoints.total_of(here.pins.values())
    return agent_checkpoints.visible(here.pins), agent_checkpoints.checksum(row[12][:32], total, own, here.totals)


def _with_totals(checksum: bytes, here: InForce) -> bytes:
    return checksum[:72] + agent_totals.encode(here.totals)


def _partly(fix: Repair, row: Row, here: InForce) -> Row | None:
    """Give a row as far as it can be used, with what its sessions add up to.

    The position of a damaged one is not to be trusted, so from then on all changes count.
    """
    if is_sound(row):
        return checked((*row[:12], _with_totals(row[12], here)))
    values = row[7:9] + row[11:12]
    if not all(isinstance(each, int) for each in values) or not isinstance(row[12], bytes) or not is_object(row[9]):
        return None
    known = isinstance(row[2], str) and is_id(row[2]) and not fix.tx.one(TAKEN, (row[1], row[2], row[0]))
    checkpoint_id = row[2] if known else new_id(fix.now_ms)
    name = row[4] if isinstance(row[4], str) and "\0" not in row[4] and row[4] else checkpoint_id
    about = row[5] if isinstance(row[5], str) else None
    kind = row[6] if row[6] in checkpoints.TYPES else "manual"
    return checked(
        (*row[:2], checkpoint_id, row[3], name, about, kind, *row[7:10], 0, row[11], _with_totals(row[12], here))
    )


def _pass_on(fix: Repair, acid: int, aid: int) -> None:
    """Let the pins of a checkpoint that goes be the next one's, where it has none of its own."""
    (following,) = fix.tx.one(NEXT, (aid, acid)) or (None,)
    for row in fix.tx.all(agent_checkpoints.PINS, (acid,)):
        fix.delete(PINS, row[:3])
        if following is not None and not fix.tx.one(PIN_OF, (*row[:2], following)):
            fix.insert(PINS, checked((*row[:2], following, *row[3:-1])))
            _count_one_more(fix, following)


def _count_one_more(fix: Repair, acid: int) -> None:
    """Let a checkpoint that was given a pin know that it has one more."""
    row = fix.tx.one(agent_checkpoints.GET, (acid,))
    if row is not None and is_sound(row) and len(row[12]) in agent_checkpoints.SIZES:
        found = AgentCheckpointRow._make(row[:-1])
        more = agent_checkpoints.checksum(found.checksum[:32], found.total, found.own + 1, found.totals)
        agent_checkpoints.write(fix.tx, found._replace(checksum=more))


# ---------------------------------------------------------------------- pins


def _fix_pins(fix: Repair) -> set[int]:
    """Prove pins or say that nobody knows; give the agents of which something is not known any more."""
    mended = set[int]()
    for row in list(fix.rows(PINS)):
        fault = whole.pin_fault(fix.tx, row)
        if not fault:
            continue
        if is_sound(row) and fault == "its checkpoint is missing":
            _adopt(fix, row)
            continue
        fix.delete(PINS, row[:3])
        new = _proved_pin(fix, row)
        if new is not None:
            fix.insert(PINS, new)
            fix.rebuilt += 1
            continue
        owner = fix.tx.one(whole.OWNER, (row[2],))
        mended |= {owner[1]} if owner else {aid for (aid,) in fix.tx.all(AGENT_IDS)}
        unknown = _unknown(fix, row)
        if unknown is not None:
            fix.insert(PINS, unknown)
        fix.lose("checkpoint", whole.pin_name(row), "it was damaged, or the entry is lost: restoring leaves it out")
    return mended


def _proved_pin(fix: Repair, row: Row) -> Row | None:
    changes = list(_places(fix, row))
    tries = [proved(row, [change]) for change in ({}, *changes)] if not is_sound(row) else []
    tries += [_fitting(fix, checked(row[:-1]))] if not is_sound(row) else []
    tries += [_by_hash(fix, row)] if is_sound(row) else []
    fits = (new for new in tries if new is not None and not fix.tx.one(PIN_OF, new[:3]))
    return next((new for new in fits if not whole.pin_fault(fix.tx, new)), None)


def _places(fix: Repair, row: Row) -> Iterator[dict[int, Any]]:
    """Give what a damaged pin may have said."""
    yield from ({at: value} for at in (5, 7) for value in (0, 1))
    for (bid,) in fix.tx.all(BRANCHES_OF, (row[1],)):
        yield {3: bid}
        found = fix.tx.one(ENTRY_HASH, (bid << 32 | row[4],)) if isinstance(row[4], int) else None
        if found is not None:
            yield {6: found[0]}
            yield {3: bid, 6: found[0]}
    yield {4: 0, 6: chain.GENESIS}


def _by_hash(fix: Repair, row: Row) -> Row | None:
    """Find the entry that a sound pin means by its hash, on another branch of its session."""
    tries = (checked((*row[:3], bid, *row[4:-1])) for (bid,) in fix.tx.all(BRANCHES_OF, (row[1],)))
    return next((each for each in tries if not whole.place_fault(fix.tx, Pin._make(each[:-1]))), None)


def _fitting(fix: Repair, row: Row) -> Row | None:
    """Give a pin whose check alone was damaged: the checksum of its checkpoint proves it."""
    found = fix.tx.one(agent_checkpoints.GET, (row[2],))
    if found is None or not is_sound(found):
        return None
    checkpoint = AgentCheckpointRow._make(found[:-1])
    try:
        pins = dict[int, Pin]()
        for each, here in whole.in_order(fix.tx, checkpoint.agent):
            pins = dict(here.pins) if each[0] <= checkpoint.acid else pins
        pins[row[1]] = Pin._make(row[:-1])
        return row if agent_checkpoints.total_of(pins.values()) == checkpoint.total else None
    except TypeError:
        return None


def _unknown(fix: Repair, row: Row) -> Row | None:
    """Say in the place of a pin that nobody knows where its session was."""
    session, owner = fix.tx.one(SESSION, (row[1],)), fix.tx.one(whole.OWNER, (row[2],))
    own = fix.tx.one(BRANCHES_OF, (row[1],))
    if session is None or owner is None or own is None or not session[0] == row[0] == owner[0]:
        return None
    new = checked((*row[:3], own[0], 0, 0, chain.GENESIS, UNKNOWN))
    return None if whole.pin_fault(fix.tx, new) or fix.tx.one(PIN_OF, new[:3]) else new


def _adopt(fix: Repair, row: Row) -> None:
    """Let a pin whose checkpoint is gone be the next one's of its agent, where it has none of its own."""
    fix.delete(PINS, row[:3])
    session = fix.tx.one(SESSION, (row[1],))
    owners = fix.tx.all(AGENTS_NAMED, session) if session else []
    found = [fix.tx.one(NEXT, (aid, row[2])) or (None,) for (aid,) in owners]
    for (following,) in found:
        if following is not None and not fix.tx.one(PIN_OF, (*row[:2], following)):
            fix.insert(PINS, checked((*row[:2], following, *row[3:-1])))
            _count_one_more(fix, following)
            break
    fix.lose("checkpoint", f"checkpoint number {row[2]}", "its record is missing")
