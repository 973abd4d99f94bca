"""Checks of checkpoints of agents with their pins, of workspaces as they were seen, of changes of files under way.

A checkpoint's checksum is over the agent then and over all pins in force; an agent's checkpoints are gone through in
order, so each pin is looked at once. Its statistics must be those of its sessions where they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from ... import presence
from ...errors import Error
from ...storage.base import Row, Tx
from .. import agent_checkpoints, agent_totals, agents, branches, checkpoints, entries, sessions
from ..agent_checkpoints import UNKNOWN, AgentCheckpointRow, Pin
from ..agent_totals import Totals
from .base import LOWEST, Check, Found, Key, Table, advance, is_sound
from .places import HAS_SESSION, is_object

CHECKPOINTS = Table("agent_checkpoint", agent_checkpoints.COLUMNS, "acid")
PINS = Table("pin", agent_checkpoints.PIN, "scope, session, checkpoint", ("", LOWEST, LOWEST))
SEEN = Table("seen", "scope, place, dir, doc, chk", "scope, place, dir", ("", "", b""))
JOURNAL = Table("journal", "scope, place, session, id, at_ms, holder, root, steps, chk", "scope, place", ("", ""))
NEXT_AGENT = "SELECT min(agent) FROM agent_checkpoint WHERE agent > ?"
OF_AGENT = f"SELECT {agent_checkpoints.COLUMNS} FROM agent_checkpoint WHERE agent = ? ORDER BY acid"
OWNER = "SELECT scope, agent FROM agent_checkpoint WHERE acid = ?"
AGENT_ID = "SELECT id FROM agent WHERE aid = ? AND scope = ?"
AGAIN = "Nothing is lost by it: repair makes a copy without it, and the files are read again"
UNDONE = "A change of files was under way; repair makes a copy without it: look at the files of that workspace"
_DAMAGED = "the record does not match its check"


def first_of(tx: Tx, table: Table) -> list[Row]:
    """Give the row with the lowest key there can be, which lies behind no other."""
    row = tx.one(table.one, table.start)
    return [] if row is None else [row]


# ---------------------------------------------------------------------- checkpoints of agents


def agents_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the checkpoints of the next agent."""
    (aid,) = tx.one(NEXT_AGENT, after) or (None,)
    if aid is None:
        return None
    row = tx.one(agents.BY_NUMBER, (aid,))
    agent = agents.checked(row) if row is not None and is_sound(row) else None
    for row, here in in_order(tx, aid):
        found.checked += 1
        if fault := checkpoint_fault(tx, agent, row, here):
            found.add("checkpoint", f"checkpoint {row[2]}", fault)
    return (aid,)


class InForce:
    """The pins in force at a checkpoint, and what the sessions add up to there, kept up to date from pin to pin."""

    def __init__(self) -> None:
        self.pins: dict[int, Pin] = {}
        self._parts: dict[int, Totals] = {}
        self._sum: Totals | None = agent_totals.NOTHING

    def put(self, tx: Tx, pin: Pin) -> None:
        """Let a pin be in force from here on."""
        self.pins[pin.session], part = pin, agent_totals.at_pin(tx, pin)
        self._sum = agent_totals.without(self._sum, self._parts.pop(pin.session, agent_totals.NOTHING))
        if part is not None:
            self._parts[pin.session] = part
            self._sum = agent_totals.added((self._sum, part))

    @property
    def totals(self) -> Totals | None:
        """What the sessions add up to; None where one of their entries cannot be read."""
        return self._sum if len(self.pins) == len(self._parts) else None


def in_order(tx: Tx, aid: int) -> Iterator[tuple[Row, InForce]]:
    """Give an agent's checkpoints, each with the pins in force at it; damaged pins are left out."""
    here = InForce()
    for row in tx.all(OF_AGENT, (aid,)):
        for found in tx.all(agent_checkpoints.PINS, (row[0],)):
            if is_sound(found):
                here.put(tx, agent_checkpoints.checked_pin(found))
        yield row, here


def checkpoint_fault(tx: Tx, agent: agents.AgentRow | None, row: Row, here: InForce) -> str:
    """Say what does not fit about a checkpoint of an agent."""
    if not is_sound(row):
        return _DAMAGED
    if agent is None or agent.scope != row[1] or agent.hidden == 2:
        return "its agent is missing"
    if not is_object(row[9]) or row[6] not in checkpoints.TYPES:
        return "what it says cannot be read"
    try:
        checkpoint = AgentCheckpointRow._make(row[:-1])
        fault = agent_checkpoints.fault(tx, agent, checkpoint, here.pins)
        return fault or agent_checkpoints.totals_fault(checkpoint, here.totals)
    except Error as error:
        return f"the agent's state then cannot be read: {error}"


def pin_fault(tx: Tx, row: Row) -> str:
    """Say what does not fit about a pin."""
    if not is_sound(row):
        return _DAMAGED
    pin = agent_checkpoints.checked_pin(row)
    owner, session = tx.one(OWNER, (pin.checkpoint,)), tx.one(sessions.BY_NUMBER, (pin.session,))
    if owner is None or owner[0] != pin.scope:
        return "its checkpoint is missing"
    if session is None or session[1] != pin.scope or session[13] == 2:
        return "its session is missing"
    if tx.one(AGENT_ID, (owner[1], pin.scope)) not in (None, (session[4],)):
        return "its session is another agent's"
    if pin.hidden == UNKNOWN:
        return ""
    return place_fault(tx, pin) if {pin.attached, pin.hidden} <= {0, 1} else "one of its marks has no meaning"


def place_fault(tx: Tx, pin: Pin) -> str:
    """Say whether the entry that a pin names is not there."""
    try:
        branch = branches.get(tx, pin.branch)
        point = entries.point_on(tx, pin.scope, branch, pin.seq)
    except Error as error:
        return f"it names an entry that is not there: {error}"
    there = branch.session == pin.session and point.hash == pin.hash
    return "" if there else "it names another entry than it should"


def pins_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the next pins."""
    rows = PINS.rows(tx, after)
    for row in rows:
        found.checked += 1
        if fault := pin_fault(tx, row):
            found.add("checkpoint", pin_name(row), fault)
    return advance(rows, after, 3)


def pin_name(row: Row) -> str:
    """Name a pin."""
    return f"place of session number {row[1]} at checkpoint number {row[2]}"


# ---------------------------------------------------------------------- files


def seen_fault(tx: Tx, row: Row) -> str:
    """Say what does not fit about a directory as it was seen."""
    return "" if is_sound(row) else _DAMAGED


def journal_fault(tx: Tx, row: Row) -> str:
    """Say what does not fit about a change of files under way."""
    if not is_sound(row):
        return _DAMAGED
    if not tx.one(HAS_SESSION, (row[2], row[0])):
        return "its session is missing"
    try:
        presence.decode(row[5])
    except (msgspec.MsgspecError, TypeError, UnicodeDecodeError):
        return "who makes it cannot be read"
    return ""


def _page(table: Table, kind: str, fix: str, fault: Callable[[Tx, Row], str], name: Callable[[Row], str]) -> Check:
    """Make the check of a table's next rows."""

    def page(tx: Tx, found: Found, after: Key) -> Key | None:
        rows = table.rows(tx, after)
        for row in [*(first_of(tx, table) if after == table.start else []), *rows]:
            found.checked += 1
            if what := fault(tx, row):
                found.add(kind, name(row), what, fix)
        return advance(rows, after, table.key_width)

    return page


def seen_name(row: Row) -> str:
    """Name a directory as it was seen."""
    return f"directory {row[2]!r:.80} of workspace {row[1]!r:.80}"


def journal_name(row: Row) -> str:
    """Name a change of files."""
    return f"change of files {row[3]} in workspace {row[1]!r:.80}"


PAGES: tuple[tuple[Check, Key], ...] = (
    (agents_page, (LOWEST,)),
    (pins_page, PINS.start),
    (_page(SEEN, "seen", AGAIN, seen_fault, seen_name), SEEN.start),
    (_page(JOURNAL, "journal", UNDONE, journal_fault, journal_name), JOURNAL.start),
)
