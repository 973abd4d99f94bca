"""What the crash tests share: child processes, a history that can be checked, faults and disks.

Stores are opened in forked children only, never in the test process: a fork costs milliseconds where a
fresh interpreter costs a second, and nothing of an open store may cross a fork.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import select
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

import takeback
from takeback.client.store import Store
from takeback.clock import SystemClock
from takeback.storage.sqlite import SqliteBackend
from takeback.testing.faults import FaultyVFS

# ---------------------------------------------------------------------- processes


class ChildFailed(AssertionError):
    """A child raised: the message is its traceback."""


class ChildDied(AssertionError):
    """A child ended without an answer: killed by a signal, or too slow."""


_running: dict[int, Child] = {}


class Child:
    """A forked process that runs one function and answers with its JSON value."""

    def __init__(self, work: Callable[..., Any], *args: Any) -> None:
        self._answer, theirs = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._answer)
            _run(work, args, theirs)
        os.close(theirs)
        self._status: int | None = None
        _running[self.pid] = self

    def send(self, number: int) -> None:
        """Send a signal to this child alone."""
        if self._status is None:
            os.kill(self.pid, number)

    def alive(self) -> bool:
        """Whether it still runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._ended(status)
        return self._status is None

    def stops(self) -> bool:
        """Wait until it is stopped; False if it ended instead."""
        if self._status is None:
            status = os.waitpid(self.pid, os.WUNTRACED)[1]
            if os.WIFSTOPPED(status):
                return True
            self._ended(status)
        return False

    def kill(self) -> None:
        """End it with SIGKILL, whatever it is doing, and reap it."""
        self.send(signal.SIGKILL)
        self._reap()

    def result(self, timeout: float = 120) -> Any:
        """Wait for the answer; what the child raised is raised here as ``ChildFailed``."""
        __tracebackhide__ = True
        data, deadline = bytearray(), time.monotonic() + timeout
        while True:
            ready, _, _ = select.select([self._answer], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                self.kill()
                raise ChildDied(f"the child was still busy after {timeout} s")
            piece = os.read(self._answer, 1 << 20)
            if not piece:
                break
            data += piece
        status = self._reap()
        if not data:
            raise ChildDied(f"the child died by {_cause(status)}")
        answer = json.loads(data)
        if "raised" in answer:
            raise ChildFailed("in the child:\n" + answer["raised"])
        return answer["value"]

    def _reap(self) -> int:
        if self._status is None:
            self._ended(os.waitpid(self.pid, 0)[1])
        assert self._status is not None
        return self._status

    def _ended(self, status: int) -> None:
        self._status = status
        _running.pop(self.pid, None)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._answer)


def _run(work: Callable[..., Any], args: tuple[Any, ...], answer: int) -> NoReturn:
    """Be the child: never return into the test run."""
    status = 1
    try:
        try:
            value = {"value": work(*args)}
        except BaseException:
            value = {"raised": traceback.format_exc()}
        data = memoryview(json.dumps(value).encode())
        while data:
            data = data[os.write(answer, data) :]
        status = 0
    finally:
        os._exit(status)


def _cause(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit code {os.waitstatus_to_exitcode(status)}"


def in_child(work: Callable[..., Any], *args: Any, timeout: float = 120) -> Any:
    """Run a function in a process of its own and give its value."""
    __tracebackhide__ = True
    return Child(work, *args).result(timeout)


def kill_all() -> None:
    """End every child that is still running."""
    for child in list(_running.values()):
        child.kill()


class Barrier:
    """Holds children until all of them may go at once: make it before them, ``open`` it behind them."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def wait(self) -> None:
        """Called in a child: block until the barrier opens."""
        os.close(self._write)
        os.read(self._read, 1)

    def open(self) -> None:
        """Let everyone go."""
        os.close(self._write)
        os.close(self._read)


@contextlib.contextmanager
def told(**facts: object) -> Iterator[None]:
    """Write seed, round and so on under whatever fails inside."""
    try:
        yield
    except Exception as error:
        error.add_note("with " + ", ".join(f"{name} {value}" for name, value in facts.items()))
        raise


# ---------------------------------------------------------------------- a history that can be checked


def compose(writer: str, call: int, sizes: list[int]) -> list[str]:
    """Make the messages of one append call; each says which call it belongs to and what it must look like."""
    return [_text(writer, call, number, len(sizes), size) for number, size in enumerate(sizes)]


def _text(writer: str, call: int, number: int, of: int, size: int) -> str:
    head = f"{writer}:{call}:{number}:{of}:{size}:"
    return head + random.Random(head).randbytes(size // 2).hex()


def some_sizes(rng: random.Random) -> list[int]:
    """Choose one message or a batch, mostly short, sometimes one that is spilled into a blob."""
    if rng.random() < 0.03:
        return [150_000]
    return [rng.randrange(0, 1200) for _ in range(1 if rng.random() < 0.6 else rng.randrange(2, 9))]


def say(session: takeback.Session, texts: list[str]) -> None:
    """Append one message, or several in one call."""
    if len(texts) == 1:
        session.user(texts[0])
    else:
        session.append(*({"role": "user", "content": text} for text in texts))


class SideFile:
    """What children were told is done: a JSON list each, on a line of its own.

    A child may be killed in the middle of a write, at the end of a page: each list begins with an end of line, so such
    a torn one stands alone, and a list that was not closed was never noted.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def writer(self) -> Callable[..., None]:
        """Open the file in a child; the function it gives notes one thing."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)

        def note(*what: Any) -> None:
            data = b"\n" + json.dumps(what).encode() + b"\n"
            assert os.write(descriptor, data) == len(data)

        return note

    def size(self) -> int:
        """Bytes so far: they grow with everything that is noted."""
        return self._path.stat().st_size

    def notes(self) -> list[list[Any]]:
        """Return what was noted, in order."""
        return [json.loads(line) for line in self._path.read_text().splitlines() if line.endswith("]")]


class Acks(SideFile):
    """The side file of writers: which writer made which call."""

    def read(self) -> dict[str, int]:
        """Return the last acknowledged call of each writer; calls count from 1 without gaps."""
        last: dict[str, int] = {}
        for writer, number in self.notes():
            assert number == last.get(writer, 0) + 1, f"the side file itself is out of order at {writer} {number}"
            last[writer] = number
        return last


def check_history(
    messages: Iterator[takeback.Message],
    acked: dict[str, int],
    *,
    after: int = 0,
    calls: dict[str, int] | None = None,
    acked_only: bool = True,
) -> dict[str, int]:
    """Check a session against what was acknowledged; give the last stored call of each writer.

    Seq has no gaps; every message is whole; a call's messages stand together, complete and once; each
    writer's calls are in order; everything acknowledged is there, and of the rest at most the one call
    that was under way (``acked_only=False``: this is not checked). ``after`` and ``calls`` go on where an
    earlier check ended.
    """
    last, seq, expected = dict(calls or {}), after, None
    for message in messages:
        seq += 1
        assert message.seq == seq, f"seq {message.seq} follows {seq - 1}"
        writer, call, number, of = _whole(message.text)[:4]
        assert expected in (None, (writer, call, number)), f"{expected} should follow, not {(writer, call, number)}"
        if expected is None:
            assert number == 0, f"call {call} of {writer} begins in its middle"
            assert call == last.get(writer, 0) + 1, f"call {call} of {writer} follows call {last.get(writer, 0)}"
        expected = (writer, call, number + 1) if number + 1 < of else None
        last[writer] = call
    assert expected is None, f"a part of a batch is missing: {expected}"
    for writer in acked.keys() | last.keys() if acked_only else ():
        stored, known = last.get(writer, 0), acked.get(writer, 0)
        assert stored >= known, f"{writer} had {known} calls acknowledged, {stored} are stored"
        assert stored <= known + 1, f"{writer} had {known} calls acknowledged, but {stored} are stored"
    return last


def _whole(text: str) -> tuple[str, int, int, int, int]:
    """Take a message's text apart and compare it with what it must be."""
    writer, call, number, of, size, _ = text.split(":", 5)
    place = writer, int(call), int(number), int(of), int(size)
    assert text == _text(*place), f"message {number} of call {call} of {writer} is not what was written"
    return place


def files_beside(path: Path) -> list[str]:
    """Return what the directory of a store holds, as suffixes of its name."""
    return sorted(name.removeprefix(path.name) for name in os.listdir(path.parent))


AFTER_A_CLEAN_CLOSE = ["", "-ballast", "-lock", "-open"]


# ---------------------------------------------------------------------- faults


def open_through(vfs: FaultyVFS, path: Path | str) -> Store:
    """Open a store on a disk that fails on command."""
    backend = SqliteBackend(os.fspath(path), vfs=vfs.name, sync=vfs.sync)
    return Store(backend, clock=SystemClock(), url=os.fspath(path))


def picture(store: Store) -> Any:
    """Describe everything a store holds that its operations decide: no ids, no times, no spare blobs."""
    return json.loads(json.dumps([_session_picture(session) for session in store.list_sessions()]))


def _session_picture(session: takeback.Session) -> Any:
    names = {branch.id: branch.name for branch in session.branches()}
    return {
        "name": session.name,
        "head": [names[session.head.branch], session.head.seq, session.head.attached],
        "messages": [[message.seq, message.text] for message in session.iter_messages()],
        "branches": [[b.name, b.parent, b.fork_seq, b.head_seq, b.is_head] for b in session.branches()],
        "operations": [[operation.kind, operation.undone] for operation in session.operations()],
        "totals": [session.stats().messages, session.stats().turns],
        "work": [[task.status for task in session.tasks()], session.state.items(), session.state.version()],
        "checkpoints": [[point.name, point.head.seq] for point in session.checkpoints()],
        "attached": [[each.size for each in message.attachments] for message in session.iter_messages()],
    }


def copy_store(source: Path, target: Path) -> Path:
    """Copy a closed store with the files beside it into an empty directory; give its path there."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source.parent, target)
    return target / source.name


# ---------------------------------------------------------------------- disks


def _quietly(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


@functools.cache
def _why_no_mounts(kind: str) -> str | None:
    """Return what keeps this machine from mounting a disk of that kind, None if nothing does."""
    needed = ("mount", "umount", "mkfs.ext4") if kind == "loop" else ("mount", "umount")
    if os.geteuid() != 0:
        return "needs root to mount file systems"
    missing = [name for name in needed if shutil.which(name) is None]
    return f"{', '.join(missing)} not found" if missing else None


@contextlib.contextmanager
def mounted(kind: str, source: str, target: Path, options: str, *, must: bool = False) -> Iterator[Path]:
    """Mount something for a while; where that is not possible the test is skipped, unless it must. Always unmounts."""
    if why := _why_no_mounts(kind):
        pytest.skip(why)
    target.mkdir(parents=True, exist_ok=True)
    try:
        _quietly("mount", *(("-t", "tmpfs") if kind == "tmpfs" else ()), "-o", options, source, os.fspath(target))
    except OSError as error:
        if must:
            raise
        pytest.skip(f"cannot mount here: {error}")
    try:
        yield target
    finally:
        _unmount(target)


def _unmount(target: Path) -> None:
    for _ in range(50):
        with contextlib.suppress(OSError):
            _quietly("umount", os.fspath(target))
            return
        time.sleep(0.02)
    _quietly("umount", "-l", os.fspath(target))


def tmpfs(target: Path, size: str) -> contextlib.AbstractContextManager[Path]:
    """Mount a file system in memory of a fixed size."""
    return mounted("tmpfs", "tmpfs", target, f"size={size},mode=0700")


def resize(target: Path, size: str) -> None:
    """Return a mounted tmpfs another size."""
    _quietly("mount", "-o", f"remount,size={size}", os.fspath(target))


def loop_disk(image: Path, target: Path, *, must: bool = False) -> contextlib.AbstractContextManager[Path]:
    """Mount an image of an ext4 file system, replaying its journal as after a power cut."""
    return mounted("loop", os.fspath(image), target, "loop", must=must)


def make_ext4(image: Path, megabytes: int) -> None:
    """Make an image that holds an empty ext4 file system."""
    if why := _why_no_mounts("loop"):
        pytest.skip(why)
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    _quietly("mkfs.ext4", "-q", "-F", os.fspath(image))
