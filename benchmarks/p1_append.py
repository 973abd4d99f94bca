"""P1: what one durable append costs, and whether it grows with the session.

A sync costs more while the log file grows than when its length stands, so both states are measured. *Fresh*: every
arm was just reopened and its log is new. *Warm*: every arm's log was folded into the file and begun again at least
once. Takeback brings its log to full length with zeros in its fifth commit; to keep the comparison honest, a second
limit does the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TypeAlias

from . import messages
from .common import Settings, median, percentile, say, show_both, show_ratio, show_time, steady
from .peers.adk import GoogleADK
from .peers.agno import Agno
from .peers.json_files import WholeJson
from .peers.langgraph import LangGraph
from .peers.openai_agents import OpenAIAgents
from .report import Check, Section, Table
from .stores import Arm, ExtendedLimit, Limit, Takeback

FRESH, WARM, PLAIN = 1.3, 1.6, 1.4
_LEAD_IN = 6  # commits after opening that are not measured: the log is made, and Takeback extends its own
_BLOCK = 10
_WARM_MOST = 50
_SLOW_MOST = 10_000
_SLOW_EVERY = 3  # blocks

_KINDS: tuple[type[Arm], ...] = (Limit, ExtendedLimit, Takeback, OpenAIAgents, Agno, GoogleADK, WholeJson, LangGraph)
Source: TypeAlias = Iterator[messages.Message]
Samples: TypeAlias = dict[str, list[float]]
Found: TypeAlias = dict[int, Samples]


def run(settings: Settings) -> Section:
    """Measure every size in both states."""
    sizes = settings.sizes((0, 1000, 10_000, 100_000), (0, 1000, 10_000), (0, 100))
    fresh: Found = {}
    warm: Found = {}
    plain: Found = {}
    for size in sizes:
        arms = _build(settings, size)
        source = messages.stream(settings.seed + 1)
        with steady():
            fresh[size] = _fresh(settings, arms, size, source)
            warm[size] = _warm(settings, arms, size, source)
            plain[size] = _plain(settings, arms, size)
        for arm in arms:
            arm.close()
        _tell(size, "fresh", fresh[size])
        _tell(size, "warm", warm[size])
        _tell(size, "plain text", plain[size])
    return _section(fresh, warm, plain)


def _build(settings: Settings, size: int) -> list[Arm]:
    """Open the arms with a session of ``size`` messages each."""
    filling, arms = messages.take(size, settings.seed), []
    for kind in settings.able(_KINDS):
        if kind.slow and size > _SLOW_MOST:
            continue
        arm = kind(settings.directory("p1", size, kind.__name__))
        arm.open()
        arm.use("session")
        if filling:
            arm.fill(arm.prepare(filling))
        arms.append(arm)
    say(f"p1: {len(arms)} stores with {size:,} messages are ready")
    return arms


def _fresh(settings: Settings, arms: list[Arm], size: int, source: Source) -> Samples:
    found: Samples = {arm.name: [] for arm in arms}
    for number in range(settings.pick(6, 2)):
        lead_in = _take(source, _LEAD_IN)
        for arm in arms:
            arm.close()
            arm.open()
            arm.use("aside")
            arm.append(arm.prepare(lead_in))
            if isinstance(arm, ExtendedLimit):
                arm.extend_log()
        _blocks(settings, arms, size, source, f"fresh {number}", settings.pick(6, 3), found)
    return found


def _warm(settings: Settings, arms: list[Arm], size: int, source: Source) -> Samples:
    """Append beside the measured session until every log was begun again, then measure."""
    for arm in (arm for arm in arms if arm.has_log):
        arm.use("aside")
        for _ in range(_WARM_MOST):
            if arm.log_restarts():
                break
            arm.append(arm.prepare(_take(source, 20 if arm.slow else 200)))
        else:
            raise RuntimeError(f"{arm.name} never began its log again: not warm")
    found: Samples = {arm.name: [] for arm in arms}
    _blocks(settings, arms, size, source, "warm", settings.pick(36, 6), found)
    return found


def _plain(settings: Settings, arms: list[Arm], size: int) -> Samples:
    """Append plain text to the same warm stores; the slow ones have told enough."""
    quick = [arm for arm in arms if not arm.slow]
    found: Samples = {arm.name: [] for arm in quick}
    blocks = settings.pick(36, 6)
    texts = messages.texts(blocks * _BLOCK, settings.seed + 2)
    source: Source = iter([{"role": "user", "content": text} for text in texts])
    _blocks(settings, quick, size, source, "plain", blocks, found)
    return found


def _blocks(
    settings: Settings, arms: list[Arm], size: int, source: Source, label: str, count: int, found: Samples
) -> None:
    """Append in short blocks, the arms in a new order each time; an empty session stays new in every block."""
    for number in range(count):
        block = _take(source, _BLOCK)
        for arm in settings.rng.sample(arms, len(arms)):
            if arm.slow and number % _SLOW_EVERY:
                continue
            arm.use("session" if size else f"{label} {number}")
            found[arm.name] += arm.append(arm.prepare(block[:1] if arm.slow else block))


def _take(source: Source, count: int) -> list[messages.Message]:
    """Return messages whose ids no session has seen."""
    return list(islice(source, count))


def _tell(size: int, state: str, found: Samples) -> None:
    base = median(found[Limit.name])
    for name, times in found.items():
        middle = median(times)
        say(
            f"p1: {state} {size:,}: {name}: {show_time(middle)}, p99 {show_time(percentile(times, 0.99))},"
            f" {show_ratio(middle / base)} times the limit, {len(times)} samples"
        )


def _section(fresh: Found, warm: Found, plain: Found) -> Section:
    tables = [
        _table(
            "**What does one durable append of 500 B cost just after opening, and does it grow with the session?**"
            " Each cell is the median time and, in brackets, its ratio to the limit; every log file was just made."
            " Takeback brings its own to full length in its fifth commit, which makes later syncs cheaper: the second"
            " limit does that too, and the last row compares with it (to the disk, such a log is a warm one).",
            fresh,
        ),
        _table(
            "**And in a store that has been in use?** Here every log was folded into its file and begun again at least"
            " once before measuring; ADK and whole JSON keep none. The slow ones, below OpenAI Agents, were stopped"
            f" at {_SLOW_MOST:,} messages, and their cells are medians of few samples. LangGraph and whole JSON write"
            " the whole history with every append; agno saves a run, here of one message, in two commits.",
            warm,
        ),
        _table(
            "**And plain text?** The mix above has tool calls, results, usage and model names, which Takeback"
            " recognises and indexes. Here every message is 500 B of a user's text, in the same warm stores.",
            plain,
        ),
    ]
    checks = [_judge(tables[0], "fresh", fresh, Limit.name, FRESH)]
    extended = {size: _ratio(fresh, size, Takeback.name, ExtendedLimit.name) for size in fresh}
    missed = _missed(extended, WARM)
    cells = (show_ratio(ratio) for ratio in extended.values())
    tables[0].add("Takeback over the extended limit", *cells, must=_at_most(WARM), reached=not missed, why=missed)
    checks.append(_check("append, fresh, both logs extended", extended, WARM))
    checks.append(_judge(tables[1], "warm", warm, Limit.name, WARM))
    checks.append(_judge(tables[2], "warm, plain text", plain, Limit.name, PLAIN))
    checks += [_ahead(what, found) for what, found in (("warm", warm), ("warm, plain text", plain))]
    return Section("One durable append", tables, checks, _plot(warm))


def _table(text: str, found: Found) -> Table:
    return Table(text, ("store", *(f"{size:,} messages" for size in found)))


def _judge(table: Table, state: str, found: Found, limit: str, most: float) -> Check:
    """Write a row per arm; only Takeback's is judged."""
    for name in next(iter(found.values())):
        ratios = {size: _ratio(found, size, name, limit) for size in found if name in found[size]}
        cells = [show_both(median(found[size][name]), ratios[size]) if size in ratios else "not run" for size in found]
        missed = _missed(ratios, most)
        if name == Takeback.name:
            table.add(name, *cells, must=_at_most(most), reached=not missed, why=missed)
        else:
            table.add(name, *cells)
    ratios = {size: _ratio(found, size, Takeback.name, limit) for size in found}
    return _check(f"append, {state}", ratios, most)


def _ahead(state: str, found: Found) -> Check:
    """Compare with the quickest peer in the same run, if it is installed."""
    ratios = [
        _ratio(found, size, Takeback.name, OpenAIAgents.name) for size in found if OpenAIAgents.name in found[size]
    ]
    worst = max(ratios, default=0.0)
    return Check(f"append, {state}, next to OpenAI Agents", f"{show_ratio(worst)} of its time", "less time", worst < 1)


def _check(what: str, ratios: dict[int, float], most: float) -> Check:
    worst = max(ratios.values())
    return Check(what, f"{show_ratio(worst)} at the worst size", _at_most(most), worst <= most)


def _ratio(found: Found, size: int, name: str, limit: str) -> float:
    return median(found[size][name]) / median(found[size][limit])


def _missed(ratios: dict[int, float], most: float) -> str:
    return ", ".join(f"{size:,}" for size, ratio in ratios.items() if ratio > most)


def _at_most(ratio: float) -> str:
    return f"at most {ratio} at every size"


def _plot(warm: Found) -> dict[str, dict[int, float]]:
    names = [name for name in next(iter(warm.values())) if name != ExtendedLimit.name]
    return {n: {s: _ratio(warm, s, n, Limit.name) for s in warm if n in warm[s]} for n in names}
