"""A store of any size that always has the same shape.

``build`` makes a store with a number of sessions, one every half minute by its own clock, in nine scopes, of which one
has most of the sessions. Common things grow with the store: agents, tags, workspaces, sub-agents with labels, archived
and finished sessions, forks, rewinds, checkpoints, attachments, a trash, and one session that is a twentieth of it all.
Rare things do not: a handful of sessions with another agent, tag, metadata, workspace, kind, status, label or parent.
They are spread over the older part, so that a call that scans for them from the newest session on reads nearly
everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from takeback import Session, Store
from takeback.testing.clock import ManualClock
from takeback.testing.elsewhere import session_elsewhere

MAIN, BETA, TINY = "", "beta", "tiny"
SPREAD_MS = 30_000  # from one session to the next
FEW = 5  # sessions of each rare sort
CREWS = ("crew-0", "crew-1", "crew-2", "crew-3")  # agents with few sessions
TEXT = "The build fails since the lock file names a package that the mirror no longer has. " * 4
KEPT = 2  # messages behind the point that a rewind goes to

_RARE = [*CREWS, "tag", "workspace", "cron", "error", "pinned", "label", "family", "rewound", "archived", "tiny"]
_RARE += ["metadata"]
_LONG = 60  # entries at least
_BATCH = 500

Open: TypeAlias = Callable[[ManualClock], Store]
Tell: TypeAlias = Callable[[str], None]


@dataclass
class World:
    """What a store was built with, so that calls can find it."""

    sessions: int
    messages: int
    clock: ManualClock = field(default_factory=ManualClock)
    plain: list[str] = field(default_factory=list)  # ids of sessions that nothing special happened to
    rare: dict[str, list[str]] = field(default_factory=dict)  # ids by what is rare about them
    long: str = ""
    parent: str = ""

    def spots(self, count: int) -> list[str]:
        """Return sessions at the same relative places in stores of all sizes."""
        return [self.plain[len(self.plain) * (2 * number + 1) // (2 * count)] for number in range(count)]


def build(open_: Open, sessions: int, messages: int = 10, tell: Tell | None = None) -> World:
    """Fill a new store with at least 300 sessions of at least 4 messages each."""
    world = World(sessions, messages)
    rare = {_spot(sessions, turn, number): kind for turn in range(FEW) for number, kind in enumerate(_RARE)}
    with open_(world.clock) as store:
        maker = _Maker(world, store)
        for number in range(sessions):
            world.clock.advance(SPREAD_MS)
            if number == sessions // 20:
                maker.make_long()
            if kind := rare.get(number):
                maker.make_rare(number, kind)
            else:
                maker.make(number)
            if tell and number % 10_000 == 9999:
                tell(f"{number + 1:,} of {sessions:,} sessions are made")
    return world


def _spot(sessions: int, turn: int, number: int) -> int:
    """Return the number of a rare session; none is among the newest tenth."""
    return sessions * (8 + 17 * turn) // 100 + number


class _Maker:
    """Makes the sessions one by one."""

    def __init__(self, world: World, store: Store) -> None:
        self._world = world
        self._scopes: dict[str, Store] = {}
        self._store = store
        self._above = ""  # the newest session that has room for a sub-agent

    def _in(self, scope: str) -> Store:
        if scope not in self._scopes:
            self._scopes[scope] = self._store.scoped(scope or None)
        return self._scopes[scope]

    def make(self, number: int) -> None:
        """Make an ordinary session; what happens to it follows from the last digits of its number."""
        share, digit, turn = number % 100, number % 10, number // 10 % 4
        scope = MAIN if share < 86 else f"other-{share - 93}" if 93 <= share < 99 else BETA
        store, fields = self._in(scope), _fields(number, digit)
        fields["archived"] = digit in (4, 8) and scope != BETA
        if digit == 7 and scope == MAIN and self._above:
            fields |= {"kind": "subagent", "label": f"worker-{turn}", "parent": self._above}
            self._above = ""
        session = session_elsewhere(store, f"name-{number}" if number % 2 else None, **fields)
        key = f"key-{number}" if digit == 5 and turn == 2 else None
        session.append(*conversation(number, self._world.messages), idempotency_key=key)
        if scope == BETA and number % 2:
            session.pin()
        if digit in (1, 2) and scope == MAIN:
            self._world.plain.append(session.id)
        if digit == 6 and scope == MAIN:
            self._above = session.id
        _afterwards(store, session, digit, turn)

    def make_rare(self, number: int, kind: str) -> None:
        """Make a session that is rare in one way."""
        store = self._in({"archived": BETA, "tiny": TINY}.get(kind, MAIN))
        crew = self._world.rare.get(CREWS[0], [""])
        fields: dict[str, dict[str, Any]] = {
            "tag": {"tags": ["rare"]},
            "metadata": {"metadata": {"ticket": 7, "team": "core"}},
            "workspace": {"workspace": "/takeback/rare"},
            "cron": {"kind": "cron"},
            "label": {"kind": "subagent", "label": "rare", "parent": crew[-1]},
            "family": {"kind": "subagent", "parent": self._world.parent} if self._world.parent else {},
            "archived": {"archived": True},
        }
        agent = kind if kind in CREWS else "helper"
        session = session_elsewhere(
            store, f"{kind} {number}", agent=agent, **{"workspace": None, **fields.get(kind, {})}
        )
        session.append(*conversation(number, self._world.messages))
        if kind == "family" and not self._world.parent:
            self._world.parent = session.id
        if kind == "error":
            session.fail("the mirror is gone")
        elif kind == "pinned":
            session.pin()
        elif kind == "rewound":
            rewind_and_go_on(session)
        self._world.rare.setdefault(kind, []).append(session.id)

    def make_long(self) -> None:
        """Make a session that is a twentieth of the store and has three open tool calls."""
        world = self._world
        session = self._in(MAIN).create_session("long", agent="main")
        length = max(_LONG, world.sessions * world.messages // 20)
        said = conversation("long", length)
        for start in range(0, length, _BATCH):
            session.append(*said[start : start + _BATCH])
        session.append(*(_asking(f"open-{number}", "shall I?") for number in range(3)))
        world.long = session.id


def _fields(number: int, digit: int) -> dict[str, Any]:
    """Return the fields of an ordinary session."""
    fields: dict[str, Any] = {"agent": "main" if digit < 6 else "helper" if digit < 9 else "coder"}
    fields["tags"] = ["common", f"topic-{number % 50}"] if number % 2 else [f"topic-{number % 50}"]
    if digit in (1, 4, 7):
        fields["metadata"] = {"team": "core", "number": number}
    fields["workspace"] = None
    if digit in (6, 9):
        fields["workspace"] = f"/takeback/{number % 20}"
    return fields


def _afterwards(store: Store, session: Session, digit: int, turn: int) -> None:
    """Do things to some sessions that leave rows in other tables."""
    if digit == 0:
        session.complete()
    elif digit == 3:
        steps: Sequence[Callable[[], object]] = (
            lambda: session.rename("Mirror"),
            lambda: session.checkpoint("safe"),
            lambda: store.delete_session(session),
            lambda: rewind_and_go_on(session),
        )
        steps[turn]()
    elif digit == 5 and turn == 0:
        session.user("See the log.", attachments=[f"{session.id} {TEXT}".encode()])
    elif digit == 5 and turn == 1:
        session.fork(name="aside")


def conversation(number: object, length: int) -> list[dict[str, Any]]:
    """Return messages of a session: every tenth calls a tool, and the next is its result."""
    return [_said(f"{number}-{place}", place % 10) for place in range(length)]


def _said(name: str, place: int) -> dict[str, Any]:
    text = f"{name} {TEXT}"[:300]
    if place == 1:
        return _asking(name, text)
    if place == 2:
        call = f"call-{name.rpartition('-')[0]}-{int(name.rpartition('-')[2]) - 1}"
        return {"role": "tool", "content": [{"type": "tool_result", "tool_use_id": call, "content": text}]}
    if place % 2 == 0:
        return {"role": "user", "content": text}
    return {"role": "assistant", "content": text, "id": f"msg-{name}"}


def _asking(name: str, text: str) -> dict[str, Any]:
    """Return a message that calls a tool."""
    call = {"type": "tool_use", "id": f"call-{name}", "name": "shell", "input": {"command": "make"}}
    return {"role": "assistant", "content": [{"type": "text", "text": text}, call], "id": f"msg-{name}"}


def rewind_and_go_on(session: Session) -> None:
    """Leave a branch behind and say something else."""
    session.rewind(session.head.seq - KEPT)
    session.append(*({"role": "user", "content": f"again {number} {TEXT}"[:300]} for number in range(3)))
