"""What every group uses: settings, medians, how numbers are written, and what machine this is."""

from __future__ import annotations

import gc
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import apsw

from .peers import is_installed

Kind = TypeVar("Kind")

ROOT = Path(__file__).resolve().parents[1]
SCRATCH = ROOT / "build" / "bench"  # ignored by git, on the disk of the repository: a tmpfs would sync nothing


@dataclass(frozen=True)
class Settings:
    """How to run: where to put files, how much to do, which randomness; ``smoke`` does as little as can be."""

    scratch: Path
    quick: bool = False
    smoke: bool = False
    seed: int = 1
    rng: random.Random = field(default_factory=random.Random)

    def pick(self, full: int, quick: int) -> int:
        """Choose an amount of work."""
        return max(1, quick // 10) if self.smoke else quick if self.quick else full

    def sizes(self, full: tuple[int, ...], quick: tuple[int, ...], smoke: tuple[int, ...]) -> tuple[int, ...]:
        """Choose the sizes of stores."""
        return smoke if self.smoke else quick if self.quick else full

    def able(self, kinds: Iterable[Kind]) -> list[Kind]:
        """Return all kinds; those that need a library which is not installed are left out of a smoke run only."""
        return [kind for kind in kinds if not (self.smoke and not _can_run(kind))]

    def directory(self, *names: object) -> Path:
        """Make a new directory for one arm."""
        path = self.scratch.joinpath(*(str(name).replace(" ", "-") for name in names))
        path.mkdir(parents=True)
        return path


def _can_run(kind: object) -> bool:
    needs = getattr(kind, "needs", "")
    return not needs or is_installed(needs)


_started = time.monotonic()


def say(text: str) -> None:
    """Tell whoever waits what is going on."""
    print(f"[{time.monotonic() - _started:5.0f} s] {text}", file=sys.stderr, flush=True)


@contextmanager
def steady() -> Iterator[None]:
    """Measure with settled files, and without the garbage collector walking over what was built before."""
    os.sync()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def median(values: Sequence[float]) -> float:
    """Return the middle value."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that ``share`` of all values do not pass."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def show_time(seconds: float) -> str:
    """Write a time for people."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def show_ratio(ratio: float) -> str:
    """Write a ratio with as many digits as mean something."""
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"


def show_both(seconds: float, ratio: float) -> str:
    """Write a time with its ratio to the limit."""
    return f"{show_time(seconds)} ({show_ratio(ratio)})"


def show_bytes(count: float) -> str:
    """Write a size for people."""
    return f"{count / 1e6:,.1f} MB"


def load() -> str:
    """Return the load average of the last minute."""
    return f"{os.getloadavg()[0]:.1f}"


def machine(scratch: Path) -> str:
    """Describe this machine by what moves the numbers, without naming it."""
    parts = (
        f"{os.cpu_count()} cores",
        f"{platform.system()} on {platform.machine()}",
        f"{file_system(scratch)}",
        f"Python {platform.python_version()}",
        f"apsw {apsw.apsw_version()} with SQLite {apsw.sqlite_lib_version()}",
    )
    return ", ".join(parts)


def file_system(path: Path) -> str:
    """Name the kind of file system that holds ``path``, if the system says so."""
    best, kind = -1, "unknown file system"
    try:
        lines = Path("/proc/self/mounts").read_text("utf-8", "replace").splitlines()
    except OSError:
        return kind
    for line in lines:
        _, mount, found, *_ = line.split(" ")
        inside = mount == "/" or f"{path}/".startswith(mount + "/")
        if inside and len(mount) >= best:
            best, kind = len(mount), found
    return kind
