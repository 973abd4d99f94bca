"""P7, of agents: a checkpoint of an agent with all its sessions when only one of them changed since the last.

The unit is an append to that one session in the same round. The first checkpoint of an agent notes every session; it is
made while the store is filled and shown, not judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import takeback

from . import messages
from .common import Settings, median, say, show_both, show_ratio, show_time, steady
from .report import NONE, Check, Table

AGENT = "a"
_APPEND, _CHECKPOINT, _RESTORE, _FIRST = "one append", "checkpoint of the agent", "restore it", "its first checkpoint"
_APPENDS = 5  # a round, all to one session


class Agent:
    """A store with one agent and its sessions."""

    def __init__(self, directory: Path, count: int, said: Sequence[messages.Message]) -> None:
        self.times: dict[str, list[float]] = {}
        path = directory / "store.db"
        with takeback.open(path, durability="relaxed") as store:
            store.create_agent(AGENT)
            for number in range(count):
                store.create_session(f"s{number}", agent=AGENT).append(*said)
        self._store: Any = takeback.open(path)
        self._count = count
        self._time(_FIRST, self._store.checkpoint_agent, AGENT, "first")

    def _time(self, what: str, call: Any, *given: Any) -> Any:
        started = perf_counter()
        found = call(*given)
        self.times.setdefault(what, []).append(perf_counter() - started)
        return found

    def round(self, number: int, said: Sequence[messages.Message], place: float) -> None:
        """Change one session, mark, change it again, go back."""
        session = self._store.get_session(f"s{int(place * self._count)}")
        for message in said[:_APPENDS]:
            self._time(_APPEND, session.append, message)
        point = self._time(_CHECKPOINT, self._store.checkpoint_agent, AGENT, f"c{number}")
        session.append(said[-1])
        self._time(_RESTORE, self._store.restore_checkpoint, point)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def measure(settings: Settings, most: float, flat: float) -> tuple[list[Table], list[Check]]:
    """Let agents with few and many sessions take turns; nothing where the library cannot do it yet."""
    if not hasattr(takeback.Store, "checkpoint_agent"):
        say("p7: this library has no checkpoints of agents: left out")
        return [], []
    sizes, started, source = (10, settings.pick(10_000, 1000)), perf_counter(), messages.stream(settings.seed + 2)
    found = {
        size: Agent(settings.directory("p7", "agent", size), size, messages.take(2, settings.seed)) for size in sizes
    }
    say(f"p7: agents with {' and '.join(map(str, sizes))} sessions after {show_time(perf_counter() - started)}")
    with steady():
        for number in range(settings.pick(24, 6)):
            said, place = [next(source) for _ in range(_APPENDS + 1)], settings.rng.random()
            for size in settings.rng.sample(sizes, len(sizes)):
                found[size].round(number, said, place)
    for agent in found.values():
        agent.close()
    return _tables(found, most, flat)


def _tables(found: dict[int, Agent], most: float, flat: float) -> tuple[list[Table], list[Check]]:
    text = (
        "**And a checkpoint of an agent with all its sessions?** One session changed since the last checkpoint, and the"
        " unit in brackets is an append to it. Restoring keeps what is there now by a checkpoint of its own first. The"
        " first checkpoint notes every session, once; it is not judged, nor is restoring. Growth is the time with"
        f" {max(found):,} sessions over that with {min(found):,}."
    )
    table, checks = Table(text, ("work", *(f"{size:,} sessions" for size in found), "growth")), list[Check]()
    units = {size: median(agent.times[_APPEND]) for size, agent in found.items()}
    for what in (_APPEND, _CHECKPOINT, _RESTORE, _FIRST):
        times = {size: median(agent.times[what]) for size, agent in found.items()}
        ratios = [times[size] / units[size] for size in found]
        growth = times[max(found)] / times[min(found)]
        cells = [show_both(times[size], times[size] / units[size]) for size in found]
        say(f"p7: {what}: {', '.join(cells)}")
        if what != _CHECKPOINT:
            table.add(f"Takeback: {what}", *cells, show_ratio(growth) if what != _APPEND else NONE)
            continue
        missed = [word for word, bad in (("appends", max(ratios) > most), ("not flat", growth > flat)) if bad]
        must = f"at most {most:g} appends, growth at most {flat:g}"
        table.add(f"Takeback: {what}", *cells, show_ratio(growth), must=must, reached=not missed, why=", ".join(missed))
        measured = f"{show_ratio(max(ratios))} appends at the worst size, growth {show_ratio(growth)}"
        checks.append(Check("points: checkpoint of an agent", measured, must, not missed))
    return [table], checks
