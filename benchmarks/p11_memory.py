"""P11: how much memory a session of a million messages needs, and an attachment of a gigabyte.

Each task runs in a process of its own and reports the peak of its resident memory. The kernel hands the peak of the
starting process down to the started one in ``ru_maxrss``, so where Linux tells the peak of the address space itself
(``VmHWM``), that is read instead. ``python -m benchmarks.p11_memory TASK PATH AMOUNT SEED`` is what a child runs; each
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
from typing import Any, NamedTuple, TypeAlias

from .common import ROOT, Settings, say, show_time
from .peers import is_installed
from .report import Check, Section, Table

MOST = 100e6
_BATCH = 1000
_PEER_COUNT = 100_000
_PIECE = 1 << 20


Measured: TypeAlias = dict[str, float]


class Task(NamedTuple):
    """What a child is asked to do: in which file, with how many messages or bytes of which seed."""

    path: Path
    amount: int
    seed: int

    @property
    def attachment(self) -> Path:
        """The file that is attached."""
        return self.path.with_name("attachment.bin")


def run(settings: Settings) -> Section:
    """Build the sessions, then let a new process do each task."""
    base = _child("idle", _task(settings, "empty", 0))
    messages, checks = _messages(settings, base)
    attachment, more = _attachment(settings, base)
    return Section("Memory of a long session", [messages, attachment], checks + more)


def _task(settings: Settings, name: str, amount: int) -> Task:
    return Task(settings.directory("p11", name) / "store.db", amount, settings.seed)


class Peaks:
    """A table of processes and what each of them took."""

    def __init__(self, text: str, base: Measured) -> None:
        self.table = Table(text, ("process", "amount", "seconds", "peak memory", "growth over idle"))
        self.checks: list[Check] = []
        self._base = base["peak"]

    def row(self, name: str, amount: str, found: Measured, **judged: Any) -> None:
        """Write what a process took."""
        growth = max(0, found["peak"] - self._base)
        self.table.add(name, amount, f"{found['seconds']:.2f}", _mb(found["peak"]), _mb(growth), **judged)

    def judge(self, name: str, amount: str, found: Measured) -> None:
        """The same, against the promise."""
        reached, must = found["peak"] < MOST, f"under {_mb(MOST)}"
        self.row(name, amount, found, must=must, reached=reached)
        self.checks.append(Check(f"memory, {amount}: {name}", _mb(found["peak"]), must, reached))


def _messages(settings: Settings, base: Measured) -> tuple[Table, list[Check]]:
    count, peer_count = settings.pick(1_000_000, 100_000), settings.pick(_PEER_COUNT, _PEER_COUNT // 10)
    ours, bare, peer = (
        _task(settings, "takeback", count),
        _task(settings, "limit", count),
        _task(settings, "peer", peer_count),
    )
    built = _child("build", ours)
    _child("build_limit", bare)
    text = (
        f"**Does a long session need a lot of memory?** A session of {count:,} messages was built by appending"
        f" {_BATCH:,} at a time in {show_time(built['seconds'])}. Each row is a new process that opens the store, does"
        " one thing and reports its peak; growth is over the idle process. OpenAI Agents has no way to iterate, so it"
        f" was asked for everything, at {peer_count:,} messages."
    )
    peaks, amount = Peaks(text, base), f"{count:,} messages"
    peaks.row("idle: an empty Takeback store", "-", base)
    peaks.row("limit: bare SQLite, every row decoded", amount, _child("iterate_limit", bare))
    peaks.row("Takeback, building", amount, built)
    peaks.judge("Takeback, the last 50", amount, _child("tail", ours))
    peaks.judge("Takeback, role and content of each", amount, _child("iterate", ours))
    if is_installed("agents") or not settings.smoke:
        _child("build_peer", peer)
        peaks.row("OpenAI Agents SQLiteSession, everything", f"{peer_count:,} messages", _child("read_peer", peer))
    return peaks.table, peaks.checks


def _attachment(settings: Settings, base: Measured) -> tuple[Table, list[Check]]:
    size = settings.pick(1_000_000_000, 100_000_000)
    task, amount = _task(settings, "attachment", size), _mb(size)
    _child("make_file", task)
    text = (
        f"**And a large attachment?** A file of {amount} that nothing can compress is attached to a message; another"
        " process reads it back, a piece at a time, and compares it with the file by SHA-256. The limit copies the file"
        " in pieces of the same size, hashes and syncs it."
    )
    peaks = Peaks(text, base)
    peaks.row("limit: copied in pieces", amount, _child("copy_limit", task))
    peaks.judge("Takeback, attachment in", amount, _child("attach", task))
    peaks.judge("Takeback, attachment out", amount, _child("detach", task))
    return peaks.table, peaks.checks


def _child(name: str, task: Task) -> Measured:
    command = [sys.executable, "-m", "benchmarks.p11_memory", name, *map(str, task)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    found: Measured = json.loads(done.stdout.splitlines()[-1])
    say(f"p11: {name} {task.amount:,}: {found['seconds']:.2f} s, peak {_mb(found['peak'])}")
    return found


def _mb(count: float) -> str:
    return f"{count / 1e6:.0f} MB"


# ---------------------------------------------------------------------- what children do; each gives its seconds


def idle(task: Task) -> float:
    """Open an empty store."""
    import takeback

    started = perf_counter()
    takeback.open(task.path).close()
    return perf_counter() - started


def build(task: Task) -> float:
    """Append in batches."""
    import takeback

    from . import messages

    started, source = perf_counter(), messages.stream(task.seed)
    with takeback.open(task.path) as store:
        session = store.create_session("long")
        for _ in range(0, task.amount, _BATCH):
            session.append(*islice(source, _BATCH))
    return perf_counter() - started


def tail(task: Task) -> float:
    """Look at the last messages."""
    return _look(task, lambda session: session.messages(limit=50), 50)


def iterate(task: Task) -> float:
    """Look at every message."""
    return _look(task, lambda session: session.iter_messages(), task.amount)


def _look(task: Task, read: Callable[[Any], Iterable[Any]], expected: int) -> float:
    import takeback

    started = perf_counter()
    with takeback.open(task.path) as store:
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
        rows = ((key, orjson.dumps(next(source))) for key in range(1, task.amount + 1))
        connection.executemany("INSERT INTO message (key, body) VALUES (?, ?)", rows)
    connection.close()
    return perf_counter() - started


def iterate_limit(task: Task) -> float:
    """Decode bare rows one at a time."""
    import orjson

    from .stores import connect

    started = perf_counter()
    rows = connect(task.path).execute("SELECT body FROM message ORDER BY key")
    _expect(sum(bool(orjson.loads(body)["role"]) for (body,) in rows), task.amount)
    return perf_counter() - started


def build_peer(task: Task) -> float:
    """Fill the peer's session."""
    from . import messages
    from .peers.openai_agents import OpenAIAgents

    started, arm = perf_counter(), OpenAIAgents(task.path.parent)
    arm.open()
    arm.use("long")
    arm.fill(messages.take(task.amount, task.seed))
    arm.close()
    return perf_counter() - started


def read_peer(task: Task) -> float:
    """Read the peer's session the only way there is."""
    from .peers.openai_agents import OpenAIAgents

    arm = OpenAIAgents(task.path.parent)
    arm.open()
    arm.use("long")
    seconds, seen = arm.read(None)
    arm.close()
    _expect(seen, task.amount)
    return seconds


def make_file(task: Task) -> float:
    """Write the file that is attached."""
    import random

    started, rng = perf_counter(), random.Random(task.seed)
    with open(task.attachment, "wb") as file:
        for start in range(0, task.amount, _PIECE):
            file.write(rng.randbytes(min(_PIECE, task.amount - start)))
    return perf_counter() - started


def copy_limit(task: Task) -> float:
    """Copy the file as an attachment must be copied at least."""
    import hashlib
    import os

    started, digest = perf_counter(), hashlib.sha256()
    with open(task.attachment, "rb") as source, open(task.path.with_name("copy.bin"), "wb") as target:
        while piece := source.read(_PIECE):
            digest.update(piece)
            target.write(piece)
        target.flush()
        os.fsync(target.fileno())
    return perf_counter() - started


def attach(task: Task) -> float:
    """Store the file with a message."""
    import takeback

    started = perf_counter()
    with takeback.open(task.path) as store:
        store.create_session("large").user("Look at this", attachments=[task.attachment])
    return perf_counter() - started


def detach(task: Task) -> float:
    """Read the attachment, then see that it is the file."""
    import hashlib

    import takeback

    started, digest = perf_counter(), hashlib.sha256()
    with takeback.open(task.path) as store:
        session: Any = store.find_session("large")
        with session.messages()[0].attachments[0].open() as stored:
            while piece := stored.read(_PIECE):
                digest.update(piece)
    seconds = perf_counter() - started
    with open(task.attachment, "rb") as file:
        if hashlib.file_digest(file, "sha256").digest() != digest.digest():
            raise RuntimeError("what came back is not what was attached")
    return seconds


def _expect(seen: int, expected: int) -> None:
    if seen != expected:
        raise RuntimeError(f"{seen} messages came back, not {expected}")


_READING = (idle, build, tail, iterate, build_limit, iterate_limit, build_peer, read_peer)
_ATTACHING = (make_file, copy_limit, attach, detach)
TASKS: dict[str, Callable[[Task], float]] = {task.__name__: task for task in (*_READING, *_ATTACHING)}


def peak() -> int:
    """Return the peak of this process's resident memory in bytes."""
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
