"""Live sessions: what a lease, followers, streams and inboxes cost, on a file and on a server.

The limit of everything here is a plain append of the same store in the same run: a session that nobody holds and nobody
follows. Followers and the receiver are processes of their own, so what they cost the writer is what they take from
the machine and from the store, not from its interpreter.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from multiprocessing.synchronize import Event
from time import perf_counter, sleep, time
from typing import Any

import takeback
from takeback.testing import postgres

from .common import Settings, median, percentile, say, show_both, show_ratio, show_time, steady
from .report import Check, Section, Table

FOLLOWERS, MOST, WAKE_MS = 20, 1.5, 100.0
_TEXT = "x" * 500
_SPAWN = multiprocessing.get_context("spawn")


def run(settings: Settings) -> Section:
    """Measure on both engines."""
    tables, checks = list[Table](), list[Check]()
    with ExitStack() as stack:
        server = stack.enter_context(postgres.start())
        urls = {
            "a file": str(settings.directory("live", "file") / "store.db"),
            "a server": f"{server.dsn()}?schema=live",
        }
        for place, url in urls.items():
            _place(settings, place, url, tables, checks)
    return Section("Live sessions", tables, checks)


def _place(settings: Settings, place: str, url: str, tables: list[Table], checks: list[Check]) -> None:
    with takeback.open(url) as store:
        say(f"live: {place}")
        times = _ways(settings, store)
        slowed = _followed(settings, store, url)
        wakes = _wakes(settings, store, url)
    table = Table(
        f"**On {place}: what does it cost to hold, to stream, to send?** Medians, and their ratio to a plain append of"
        " 500 B to a session that nobody holds or follows.",
        ("what", "time (ratio)"),
    )
    limit = times["plain append"]
    for name, seconds in times.items():
        table.add(name, show_both(seconds, seconds / limit))
    tables.append(table)
    followed = Table(
        f"**On {place}: do {FOLLOWERS} followers slow a writer, and how soon does a waiting receiver wake?** A process"
        f" with {FOLLOWERS} threads follows every change while another appends, in blocks with and without them; a"
        " process waits in `receive` while another sends.",
        ("what", "measured"),
    )
    ratio, seen = slowed
    followed.add(
        f"append with {FOLLOWERS} followers",
        show_ratio(ratio),
        must=f"at most {MOST:g} of one without",
        reached=ratio <= MOST,
    )
    followed.add(
        "changes that all followers saw", f"{seen[0]:,} of {seen[1]:,}", must="all", reached=seen[0] == seen[1]
    )
    late = percentile(wakes, 0.95) * 1000
    followed.add(
        "from send to receive, median and 95 %",
        f"{show_time(median(wakes))}, {show_time(percentile(wakes, 0.95))}",
        must=f"under {WAKE_MS:g} ms",
        reached=late < WAKE_MS,
    )
    tables.append(followed)
    checks.append(
        Check(
            f"live, {place}: append with {FOLLOWERS} followers", show_ratio(ratio), f"at most {MOST:g}", ratio <= MOST
        )
    )
    checks.append(
        Check(f"live, {place}: a receiver wakes, 95 %", f"{late:.0f} ms", f"under {WAKE_MS:g} ms", late < WAKE_MS)
    )


# ---------------------------------------------------------------------- what single calls cost


def _ways(settings: Settings, store: takeback.Store) -> dict[str, float]:
    """Time each way in blocks of random order."""
    plain, held, inbox = store.create_session(), store.session("held"), store.create_session()
    numbers = count()
    plain.user("begin")
    held.user("begin")
    open_stream = held.stream()

    def enter() -> None:
        with store.session("entered"):
            pass

    def stream() -> None:
        with held.stream() as answer:
            answer.write(_TEXT)

    def flush() -> None:
        open_stream.write(_TEXT)
        open_stream.flush()

    ways: dict[str, Callable[[], Any]] = {
        "plain append": lambda: plain.assistant(_TEXT),
        "append by the holder of a lease": lambda: held.assistant(_TEXT),
        "enter and leave a session": enter,
        "stream: begin, one delta, finish": stream,
        "stream: one delta of 500 B, brought to disk": flush,
        "send": lambda: inbox.send(f"{next(numbers)}"),
        "send and receive": lambda: (inbox.send(f"{next(numbers)}"), inbox.receive()),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    with steady():
        for _ in range(settings.pick(30, 3)):
            for name in settings.rng.sample(list(ways), len(ways)):
                for _ in range(10):
                    started = perf_counter()
                    ways[name]()
                    times[name].append(perf_counter() - started)
    open_stream.cancel()
    held.release()
    return {name: median(each) for name, each in times.items()}


# ---------------------------------------------------------------------- followers


def follow(url: str, cursor: str, ready: Event, stop: Event, seen: Any) -> None:
    """Follow every change in many threads until told to stop; note how many each saw."""
    with takeback.open(url) as store:
        counts = [0] * FOLLOWERS

        def one(number: int) -> None:
            for change in store.follow(cursor):
                counts[number] += change.kind == "entries"

        for number in range(FOLLOWERS):
            threading.Thread(target=one, args=(number,), daemon=True).start()
        ready.set()
        stop.wait(120)
        sleep(1.5)
        seen[:] = counts


def _followed(settings: Settings, store: takeback.Store, url: str) -> tuple[float, tuple[int, int]]:
    """Append in blocks, with and without followers; give the ratio, and how many changes all of them saw."""
    session, ratios, all_saw, written = store.create_session(), list[float](), 0, 0
    session.user("begin")
    for _ in range(settings.pick(5, 1)):
        without = _appends(session, settings)
        cursor = [change.cursor for change in store.events()][-1]
        ready, stop, seen = _SPAWN.Event(), _SPAWN.Event(), _SPAWN.Array("l", FOLLOWERS)
        child = _SPAWN.Process(target=follow, args=(url, cursor, ready, stop, seen))
        child.start()
        ready.wait(60)
        sleep(0.5)
        times = _appends(session, settings)
        stop.set()
        child.join(60)
        all_saw, written = all_saw + min(seen), written + len(times)
        ratios.append(median(times) / median(without))
    return median(ratios), (all_saw, written)


def _appends(session: takeback.Session, settings: Settings) -> list[float]:
    times = list[float]()
    for _ in range(settings.pick(300, 20)):
        started = perf_counter()
        session.assistant(_TEXT)
        times.append(perf_counter() - started)
        sleep(0.002)  # an agent does something else in between
    return times


# ---------------------------------------------------------------------- waking


def receive(url: str, session_id: str, ready: Event, amount: int, late: Any) -> None:
    """Receive messages that hold the time they were sent; note how late each was."""
    with takeback.open(url) as store:
        session = store.get_session(session_id)
        ready.set()
        for number in range(amount):
            (message,) = session.receive(limit=1, wait=60)
            late[number] = time() - float(message.text)


def _wakes(settings: Settings, store: takeback.Store, url: str) -> list[float]:
    amount = settings.pick(100, 10)
    session, ready, late = store.create_session(), _SPAWN.Event(), _SPAWN.Array("d", amount)
    child = _SPAWN.Process(target=receive, args=(url, session.id, ready, amount, late))
    child.start()
    ready.wait(60)
    for _ in range(amount):
        sleep(0.05 + settings.rng.random() * 0.1)
        session.send(repr(time()))
    child.join(60)
    return list(late)
