"""P4: what it costs to read a conversation back, every row's checksum verified.

The limit fetches bare rows and decodes their JSON with orjson; it checks nothing. Takeback hands out messages that
decode when they are first looked at, so two rows tell its whole story: the messages as they come, and with the role
and content of each one read.
"""

from __future__ import annotations

from typing import TypeAlias

from . import messages
from .common import Settings, median, say, show_both, show_ratio, show_time, steady
from .peers.adk import GoogleADK
from .peers.agno import Agno
from .peers.json_files import WholeJson
from .peers.langgraph import LangGraph
from .peers.openai_agents import OpenAIAgents
from .report import Check, Section, Table
from .stores import Arm, Limit, Takeback, TakebackDecoded

MOST, MOST_DECODED = 1.1, 1.8
LAST = 50
_ALL_OF = 10_000
_SLOW_MOST = 10_000
_SLOW_EVERY = 4  # rounds
_KINDS: tuple[type[Arm], ...] = (
    *(Limit, Takeback, TakebackDecoded),
    *(OpenAIAgents, Agno, GoogleADK, WholeJson, LangGraph),
)
_JUDGED = (Takeback.name, TakebackDecoded.name)
Found: TypeAlias = dict[str, dict[int, list[float]]]


def run(settings: Settings) -> Section:
    """Read the tail at every size, and everything at one."""
    sizes = settings.sizes((100, 1000, _ALL_OF, 100_000), (100, 1000, _ALL_OF), (100, _ALL_OF))
    kinds = settings.able(_KINDS)
    tails: Found = {kind.name: {} for kind in kinds}
    whole: Found = {kind.name: {} for kind in kinds}
    for size in sizes:
        arms = _build(settings, kinds, size)
        _measure(settings, arms, size, LAST, tails, rounds=settings.pick(40, 8), each=10)
        if size == _ALL_OF:
            _measure(settings, arms, size, None, whole, rounds=settings.pick(25, 5), each=1)
        for arm in arms:
            arm.close()
    return _section(tails, whole, sizes)


def _build(settings: Settings, kinds: list[type[Arm]], size: int) -> list[Arm]:
    filling, arms = messages.take(size, settings.seed), []
    for kind in kinds:
        if kind.slow and size > _SLOW_MOST:
            continue
        arm = kind(settings.directory("p4", size, kind.__name__))
        arm.open()
        arm.use("session")
        arm.fill(arm.prepare(filling))
        arms.append(arm)
    say(f"p4: {len(arms)} stores with {size:,} messages are ready")
    return arms


def _measure(
    settings: Settings, arms: list[Arm], size: int, last: int | None, found: Found, *, rounds: int, each: int
) -> None:
    """Read in turns, the arms in a new order each time, and see that everything came."""
    for arm in arms:
        _read(
            arm, size, last
        )  # connections and caches are warm for all, and what they keep is older than the measurement
        found[arm.name][size] = []
    with steady():
        for number in range(rounds):
            for arm in settings.rng.sample(arms, len(arms)):
                if arm.slow and number % _SLOW_EVERY:
                    continue
                found[arm.name][size] += [_read(arm, size, last) for _ in range(1 if arm.slow else each)]
    base = median(found[Limit.name][size])
    for arm in arms:
        middle = median(found[arm.name][size])
        what = "all" if last is None else f"last {last}"
        say(f"p4: {what} of {size:,}: {arm.name}: {show_time(middle)}, {show_ratio(middle / base)} times the limit")


def _read(arm: Arm, size: int, last: int | None) -> float:
    seconds, count = arm.read(last)
    if count != (expected := size if last is None else last):
        raise RuntimeError(f"{arm.name} gave {count} messages, not {expected}")
    return seconds


def _section(tails: Found, whole: Found, sizes: tuple[int, ...]) -> Section:
    text = (
        "**What does it cost to show the last 50 messages, and does that grow with the session?** Each cell is the"
        " median time and its ratio to the limit: bare rows, decoded by orjson, unchecked. Takeback verifies every"
        " row's checksum and decodes a message when it is first looked at; its second row looks at all of them."
        f" LangGraph and whole JSON always load the whole history; what is slow was stopped at {_SLOW_MOST:,} messages."
    )
    tail = Table(text, ("store", *(f"50 of {size:,}" for size in sizes)))
    text = (
        f"**And to read all {_ALL_OF:,} messages?** The same arms, everything in one call, same limit. agno keeps the"
        " decoded objects of rows that it has seen: what is measured here is a second reading."
    )
    everything = Table(text, ("store", "median", "times the limit"))
    checks = []
    for name in tails:
        ratios = {size: median(times) / median(tails[Limit.name][size]) for size, times in tails[name].items()}
        cells = [_cell(tails[name].get(size), ratios.get(size)) for size in sizes]
        missed = ", ".join(f"{size:,}" for size, ratio in ratios.items() if ratio > _most(name))
        judged = name in _JUDGED
        tail.add(
            name, *cells, must=_must(name) if judged else "-", reached=(not missed) if judged else None, why=missed
        )
        ratio = median(whole[name][_ALL_OF]) / median(whole[Limit.name][_ALL_OF])
        cells = [show_time(median(whole[name][_ALL_OF])), show_ratio(ratio)]
        everything.add(
            name, *cells, must=_must(name) if judged else "-", reached=(ratio <= _most(name)) if judged else None
        )
        if judged:
            worst = max(ratios.values())
            measured = f"{show_ratio(worst)} at the worst size"
            checks.append(Check(f"read the last {LAST}: {name}", measured, _must(name), worst <= _most(name)))
            checks.append(
                Check(f"read all of {_ALL_OF:,}: {name}", show_ratio(ratio), _must(name), ratio <= _most(name))
            )
    return Section("Reading back", [tail, everything], checks, _plot(tails, whole))


def _must(name: str) -> str:
    return f"at most {_most(name)}"


def _cell(times: list[float] | None, ratio: float | None) -> str:
    return "not run" if times is None or ratio is None else show_both(median(times), ratio)


def _plot(tails: Found, whole: Found) -> dict[str, dict[str, float]]:
    def ratios(found: Found) -> dict[str, float]:
        return {name: median(times[_ALL_OF]) / median(found[Limit.name][_ALL_OF]) for name, times in found.items()}

    return {f"last {LAST} of {_ALL_OF:,}": ratios(tails), f"all {_ALL_OF:,}": ratios(whole)}


def _most(name: str) -> float:
    return MOST_DECODED if name == TakebackDecoded.name else MOST
