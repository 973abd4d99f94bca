"""What every group uses: settings, medians, how numbers are written, and what machine this is."""

from __future__ import annotations

import gc
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw

ROOT = Path(__file__).resolve().parents[1]
SCRATCH = ROOT / "build" / "bench"  # ignored by git, on the disk of the repository: a tmpfs would sync nothing


@dataclass(frozen=True)
class Settings:
    """How to run: where to put files, how much to do, which randomness."""

    scratch: Path
    quick: bool = False
    seed: int = 1
    rng: random.Random = field(default_factory=random.Random)

    def pick(self, full: int, quick: int) -> int:
        """Choose an amount of work."""
        return quick if self.quick else full

    def directory(self, *names: object) -> Path:
        """Make a new directory for one arm."""
        path = self.scratch.joinpath(*(str(name).replace(" ", "-") for name in names))
        path.mkdir(parents=True)
        return path


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
    """Give the middle value."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """Give the value that ``share`` of all values do not pass."""
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
    """Give the load average of the last minute."""
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
