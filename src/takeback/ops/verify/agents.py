"""What is demanded of agents, their versions, their checkpoints and the pins of those.

A checkpoint's checksum is over the agent then and over all pins in force; an agent's checkpoints are gone through in
order, so each pin is looked at once. Its statistics must be those of its sessions where they were.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import Error
from ...storage.base import Row, Tx
from ...tables.agents import AGENT, AGENT_CHECKPOINT, PIN, VERSION, AgentRow, PinRow, VersionRow
from .. import agent_checkpoints, agent_totals, branches, checkpoints, entries, stored_json
from ..agent_checkpoints import UNKNOWN
from ..agent_totals import Totals
from .base import DAMAGED, PURGED, REBUILD, UNREADABLE, Check, Fault, Found, Key, Rule, has, intact, is_object

VERSIONS_OF = "SELECT count(*), min(version), max(version) FROM agent_version WHERE scope = ? AND agent = ?"
FIRST_STATE = "SELECT state FROM agent_version WHERE scope = ? AND agent = ? AND version = 1"
NEXT_AGENT = """SELECT scope, agent FROM agent_checkpoint WHERE (scope, agent) > (?, ?)
ORDER BY scope, agent LIMIT 1"""
OF_AGENT = f"{AGENT_CHECKPOINT.select} WHERE scope = ? AND agent = ? ORDER BY acid"
PINS_OF = f"{PIN.select} WHERE scope = ? AND checkpoint = ?"
OWNER = "SELECT agent FROM agent_checkpoint WHERE scope = ? AND acid = ?"
AGENT_ID = "SELECT id FROM agent WHERE scope = ? AND aid = ?"
SESSION = "SELECT agent, hidden FROM session WHERE scope = ? AND sid = ?"


def agent_faults(tx: Tx, agent: AgentRow) -> Iterator[Fault]:
    """Compare an agent with its versions."""
    if not is_object(agent.fields):
        yield Fault("agent", "its fields cannot be read")
    elif wrong := stored_json.fault(agent.fields, stored_json.AgentFields):
        yield Fault("agent", f"its fields are not those of an agent: {wrong}")
    if agent.hidden not in (0, 1, PURGED):
        yield Fault("agent", "its mark (hidden) has no meaning")
    if agent.hidden == PURGED:
        return
    count, lowest, highest = tx.one(VERSIONS_OF, (agent.scope, agent.aid)) or (0, None, None)
    if highest is not None and (lowest, highest - lowest + 1) != (1, count):
        yield Fault("missing", f"of its versions up to {highest} some are missing")
    elif highest != agent.version:
        yield Fault("agent", f"it is at version {agent.version}, but its newest one is {highest}", REBUILD)
    if tx.one(FIRST_STATE, (agent.scope, agent.aid)) == (None,):
        yield Fault("agent", "its first version holds no state")


def version_fault(tx: Tx, row: VersionRow) -> str | Fault:
    """Return what is wrong with a version of an agent."""
    if not (row.state is None or is_object(row.state)):
        return "its state cannot be read"
    return "" if has(tx, AGENT, row.scope, row.agent) else Fault("missing", "there is no such agent")


# ---------------------------------------------------------------------- checkpoints of agents


def agents_page(tx: Tx, found: Found, after: Key | None) -> Key | None:
    """Check the checkpoints of the next agent."""
    reached = tx.one(NEXT_AGENT, after or ("", -1))
    if reached is None:
        return None
    agent = intact(tx, AGENT, *reached)
    for stored, here in in_order(tx, *reached):
        found.checked += 1
        if fault := checkpoint_fault(tx, agent, stored, here):
            found.add("checkpoint", AGENT_CHECKPOINT.called(AGENT_CHECKPOINT.unchecked(stored)), fault)
    return reached


class InForce:
    """The pins in force at a checkpoint, and what the sessions add up to there, kept up to date from pin to pin."""

    def __init__(self) -> None:
        self.pins: dict[int, PinRow] = {}
        self._parts: dict[int, Totals] = {}
        self._sum: Totals | None = agent_totals.NOTHING

    def put(self, tx: Tx, pin: PinRow) -> None:
        """Put a pin in force from here on."""
        self.pins[pin.session] = pin
        try:
            part = agent_totals.at_pin(tx, pin)
        except UNREADABLE:  # it names an entry that cannot be: reported with the pins
            part = None
        self._sum = agent_totals.without(self._sum, self._parts.pop(pin.session, agent_totals.NOTHING))
        if part is not None:
            self._parts[pin.session] = part
            self._sum = agent_totals.added((self._sum, part))

    @property
    def totals(self) -> Totals | None:
        """What the sessions add up to; None where one of their entries cannot be read."""
        return self._sum if len(self.pins) == len(self._parts) else None


def in_order(tx: Tx, scope: str, aid: int) -> Iterator[tuple[Row, InForce]]:
    """Yield an agent's checkpoints as stored, each with the pins in force; damaged pins are left out."""
    here = InForce()
    for stored in tx.all(OF_AGENT, (scope, aid)):
        for pin in filter(PIN.is_sound, tx.all(PINS_OF, (scope, AGENT_CHECKPOINT.unchecked(stored).acid))):
            here.put(tx, PIN.unchecked(pin))
        yield stored, here


def checkpoint_fault(tx: Tx, agent: AgentRow | None, stored: Row, here: InForce) -> str:
    """Return what does not fit about a checkpoint of an agent, '' if everything does."""
    if not AGENT_CHECKPOINT.is_sound(stored):
        return DAMAGED
    row = AGENT_CHECKPOINT.unchecked(stored)
    if agent is None or agent.hidden == PURGED:
        return "its agent is missing"
    if not is_object(row.fields) or row.type not in checkpoints.TYPES:
        return "what it says cannot be read"
    try:
        fault = agent_checkpoints.fault(tx, agent, row, here.pins)
        return fault or agent_checkpoints.totals_fault(row, here.totals)
    except Error as error:
        return f"the agent's state then cannot be read: {error}"


def pin_fault(tx: Tx, pin: PinRow) -> str:
    """Return what is wrong with a pin whose row is sound."""
    owner, session = tx.one(OWNER, (pin.scope, pin.checkpoint)), tx.one(SESSION, (pin.scope, pin.session))
    if owner is None:
        return "its checkpoint is missing"
    if session is None or session[1] == PURGED:
        return "its session is missing"
    if tx.one(AGENT_ID, (pin.scope, *owner)) not in (None, session[:1]):
        return "its session is another agent's"
    if pin.hidden == UNKNOWN:
        return ""
    return place_fault(tx, pin) if {pin.attached, pin.hidden} <= {0, 1} else "one of its marks has no meaning"


def place_fault(tx: Tx, pin: PinRow) -> str:
    """Return what is wrong with the entry that a pin names."""
    try:
        branch = branches.get(tx, pin.scope, pin.branch)
        point = entries.point_on(tx, pin.scope, branch, pin.seq)
    except Error as error:
        return f"it names an entry that is not there: {error}"
    there = branch.session == pin.session and point.hash == pin.hash
    return "" if there else "it names another entry than it should"


def pin_name(pin: PinRow) -> str:
    """Name a pin."""
    return f"place of session number {pin.session} at checkpoint number {pin.checkpoint}"


RULES: tuple[Check, ...] = (
    Rule(AGENT, agent_faults, "agent", gaps=Fault("missing", "the record is missing")),
    Rule(VERSION, version_fault, "agent"),
    agents_page,
    Rule(PIN, pin_fault, "checkpoint", where=pin_name),
)
