"""P13: whether opening and closing a store costs more the more sessions it holds.

Nobody else has the store open, and its last user ended in one of three ways: it closed the store, it ended as a script
does that never closes anything, or it was killed behind a commit. Each time it had appended one message. The limit is
the same store with few sessions. Stores of all sizes take turns, in a process that has loaded everything.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import perf_counter

import takeback

from .common import Settings, median, say, show_both, show_ratio, show_time, steady
from .report import Check, Section, Table

FLAT = 1.3
_USE = "import os, sys, takeback; store = takeback.open(sys.argv[1]); store.get_session('talk').user('hello')"
ENDS = {
    "closed it": f"{_USE}; store.close()",
    "ended without closing it": _USE,
    "was killed": f"{_USE}; os.kill(os.getpid(), 9)",
}


def run(settings: Settings) -> Section:
    """Build a store of each size, then use, end, open and close them in turns."""
    sizes = settings.sizes((10, 10_000, 100_000), (10, 1000, 10_000), (10, 100))
    stores = {size: _build(settings.directory("p13", size), size) for size in sizes}
    found = {end: {size: list[float]() for size in sizes} for end in ENDS}
    with steady():
        for _ in range(settings.pick(40, 15)):
            for end in settings.rng.sample([*ENDS], len(ENDS)):
                for size in settings.rng.sample(sizes, len(sizes)):
                    found[end][size].append(_seconds(stores[size], end))
    return _section(found, sizes)


def _build(directory: Path, size: int) -> Path:
    path, started = directory / "store.db", perf_counter()
    with takeback.open(path, durability="relaxed") as store:
        for number in range(size - 1):
            store.create_session(f"session {number}")
        store.create_session("talk").user("hello")
    say(f"p13: {size:,} sessions made in {show_time(perf_counter() - started)}")
    return path


def _seconds(path: Path, end: str) -> float:
    """Let another process use the store and end; return how long it then takes to open and close it."""
    subprocess.run([sys.executable, "-c", ENDS[end], path], capture_output=True, check=end != "was killed")
    started = perf_counter()
    takeback.open(path).close()
    return perf_counter() - started


def _section(found: dict[str, dict[int, list[float]]], sizes: tuple[int, ...]) -> Section:
    least, most = sizes[0], sizes[-1]
    text = (
        "**Does opening a store cost more the more sessions it holds?** Each cell is the median time to open and close"
        f" a store that nobody else has open, and its ratio to one of {least} sessions. Must reach: at most {FLAT}"
        f" times that at {most:,} sessions, however the last user of the store ended."
    )
    table, checks = Table(text, ("its last user", *(f"{size:,} sessions" for size in sizes))), list[Check]()
    must = f"at most {FLAT}"
    for end, times in found.items():
        ratios = {size: median(taken) / median(times[least]) for size, taken in times.items()}
        worst = max(ratios.values())
        cells = [show_both(median(times[size]), ratios[size]) for size in sizes]
        table.add(end, *cells, must=must, reached=worst <= FLAT)
        checks.append(Check(f"open a store whose last user {end}", f"{show_ratio(worst)} times", must, worst <= FLAT))
        say(f"p13: {end}: {show_ratio(worst)} times at the worst size")
    return Section("Opening a store", [table], checks)
