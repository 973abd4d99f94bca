"""P11: how much memory a session of a million messages needs.

Each task runs in a process of its own and reports the peak of its resident memory. The kernel hands the peak of the
starting process down to the started one in ``ru_maxrss``, so where Linux tells the peak of the address space itself
(``VmHWM``), that is read instead. ``python -m benchmarks.p11_memory TASK PATH COUNT SEED`` is what a child runs; each
task imports what it needs itself, so that no process pays for another's libraries.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from .common import ROOT, Settings, say, show_time
from .report import Check, Section, Table

MOST = 100e6
_BATCH = 1000
_PEER_COUNT = 100_000


class Task(NamedTuple):
    """What a child is asked to do: in which file, with how many messages of which seed."""

    path: Path
    messages: int
    seed: int


def run(settings: Settings) -> Section:
    """Build the sessions, then let a new process do each task."""
    count = settings.pick(1_000_000, 100_000)
    ours, bare, peer, empty = (
        Task(settings.directory("p11", name) / "store.db", messages, settings.seed)
        for name, messages in (("holdfast", count), ("limit", count), ("peer", _PEER_COUNT), ("empty", 0))
    )
    built = _child("build", ours)
    _child("build_limit", bare)
    _child("build_peer", peer)
    base = _child("idle", empty)
    text = (
        f"**Does a long session need a lot of memory?** A session of {count:,} messages was built by appending"
        f" {_BATCH:,} at a time in {show_time(built['seconds'])}. Each row is a new process that opens the store, does"
        " one thing and reports its peak; growth is over the idle process. OpenAI Agents has no way to iterate, so it"
        f" was asked for everything, at {_PEER_COUNT:,} messages."
    )
    table = Table(text, ("process", "messages", "seconds", "peak memory", "growth over idle"))

    def row(name: str, task: Task, found: dict[str, Any], **judged: Any) -> None:
        peak, growth = found["peak"], max(0, found["peak"] - base["peak"])
        table.add(name, f"{task.messages:,}", f"{found['seconds']:.2f}", _mb(peak), _mb(growth), **judged)

    row("idle: an empty Holdfast store", empty, base)
    row("limit: bare SQLite, every row decoded", bare, _child("iterate_limit", bare))
    row("Holdfast, building", ours, built)
    checks = []
    for name, task in (("Holdfast, the last 50", "tail"), ("Holdfast, role and content of each", "iterate")):
        found = _child(task, ours)
        reached, must = found["peak"] < MOST, f"under {_mb(MOST)}"
        row(name, ours, found, must=must, reached=reached)
        checks.append(Check(f"memory, {count:,} messages: {name}", _mb(found["peak"]), must, reached))
    row("OpenAI Agents SQLiteSession, everything", peer, _child("read_peer", peer))
    return Section("Memory of a long session", [table], checks)


def _child(name: str, task: Task) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.p11_memory", name, *map(str, task)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    say(f"p11: {name} {task.messages:,}: {found['seconds']:.2f} s, peak {_mb(found['peak'])}")
    return found


def _mb(count: float) -> str:
    return f"{count / 1e6:.0f} MB"


# ---------------------------------------------------------------------- what children do; each gives its seconds


def idle(task: Task) -> float:
    """Open an empty store."""
    import holdfast

    started = perf_counter()
    holdfast.open(task.path).close()
    return perf_counter() - started


def build(task: Task) -> float:
    """Append in batches."""
    import holdfast

    from . import messages

    started, source = perf_counter(), messages.stream(task.seed)
    with holdfast.open(task.path) as store:
        session = store.create_session("long")
        for _ in range(0, task.messages, _BATCH):
            session.append(*islice(source, _BATCH))
    return perf_counter() - started


def tail(task: Task) -> float:
    """Look at the last messages."""
    return _look(task, lambda session: session.messages(limit=50), 50)


def iterate(task: Task) -> float:
    """Look at every message."""
    return _look(task, lambda session: session.iter_messages(), task.messages)


def _look(task: Task, read: Callable[[Any], Iterable[Any]], expected: int) -> float:
    import holdfast

    started = perf_counter()
    with holdfast.open(task.path) as store:
        seen = sum(bool(message.role and message.content) for message in read(store.find_session("long")))
    _expect(seen, expected)
    return perf_counter() - started


def build_limit(task: Task) -> float:
    """Insert bare rows."""
    import orjson

    from . import messages
    from .stores import connect

    started, source, connection = perf_counter(), messages.stream(task.seed), connect(task.path)
    with connection:
        rows = ((key, orjson.dumps(next(source))) for key in range(1, task.messages + 1))
        connection.executemany("INSERT INTO message (key, body) VALUES (?, ?)", rows)
    connection.close()
    return perf_counter() - started


def iterate_limit(task: Task) -> float:
    """Decode bare rows one at a time."""
    import orjson

    from .stores import connect

    started = perf_counter()
    rows = connect(task.path).execute("SELECT body FROM message ORDER BY key")
    _expect(sum(bool(orjson.loads(body)["role"]) for (body,) in rows), task.messages)
    return perf_counter() - started


def build_peer(task: Task) -> float:
    """Fill the peer's session."""
    from . import messages
    from .peers import OpenAIAgents

    started, arm = perf_counter(), OpenAIAgents(task.path.parent)
    arm.open()
    arm.use("long")
    arm.fill(messages.take(task.messages, task.seed))
    arm.close()
    return perf_counter() - started


def read_peer(task: Task) -> float:
    """Read the peer's session the only way there is."""
    from .peers import OpenAIAgents

    arm = OpenAIAgents(task.path.parent)
    arm.open()
    arm.use("long")
    seconds, seen = arm.read(None)
    arm.close()
    _expect(seen, task.messages)
    return seconds


def _expect(seen: int, expected: int) -> None:
    if seen != expected:
        raise RuntimeError(f"{seen} messages came back, not {expected}")


TASKS: dict[str, Callable[[Task], float]] = {
    task.__name__: task for task in (idle, build, tail, iterate, build_limit, iterate_limit, build_peer, read_peer)
}


def peak() -> int:
    """Give the peak of this process's resident memory in bytes."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def main() -> None:
    """Do one task and report."""
    name, path, count, seed = sys.argv[1:]
    seconds = TASKS[name](Task(Path(path), int(count), int(seed)))
    print(json.dumps({"seconds": seconds, "peak": peak()}))


if __name__ == "__main__":
    main()
