"""Processes that do the same thing at the same moment.

They are forked from a server process that has imported what they need, never from the test run itself, whose threads
would not survive it. ``Racers.run`` calls a function of this module in every one of them; each gets its number, and
``start`` lets all of them go at once.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import takeback
from takeback import Conflict, NotFound, Session, Store

COUNT = 8
_LOST = (Conflict, NotFound)  # what a lost race may say
_barrier: Any = None


class Racers:
    """Eight processes; each answers with a value."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["_racers", "psycopg", "takeback.storage.postgres.backend"])
        self._pool = ProcessPoolExecutor(COUNT, context, initializer=_begin, initargs=(context.Barrier(COUNT),))

    def run(self, work: Callable[..., Any], *args: Any) -> list[Any]:
        """Call a function in all of them at once: ``work(number, *args)``."""
        return [each.result(280) for each in [self._pool.submit(work, number, *args) for number in range(COUNT)]]

    def close(self) -> None:
        self._pool.shutdown()


def _begin(barrier: Any) -> None:
    global _barrier
    _barrier = barrier


def start() -> None:
    """Wait until all of them are here."""
    _barrier.wait(60)


def in_threads(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """Call functions at the same moment, each in a thread; give what they gave, or what they raised."""
    ready, found = threading.Barrier(len(works)), list[Any]([None] * len(works))

    def run(number: int, work: Callable[[], Any]) -> None:
        ready.wait(60)
        try:
            found[number] = work()
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=run, args=each) for each in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(280)
    assert not any(thread.is_alive() for thread in threads), "a writer hangs"
    return found


def won(found: Sequence[Any], *, lost: type[Exception] = Conflict) -> list[Any]:
    """Return what the winners gave; losers must have been told so."""
    raised = [each for each in found if isinstance(each, BaseException)]
    wrong = [each for each in raised if not isinstance(each, lost)]
    if wrong:
        raise wrong[0]
    return [each for each in found if not isinstance(each, BaseException)]


# ---------------------------------------------------------------------- what a writer says


def speak(session: Session, name: str, number: int, rng: random.Random) -> None:
    """Add one numbered message, by one of the ways there are."""
    text = f"{name}:{number}"
    match rng.randrange(8):
        case 0 | 1 | 2:
            session.user(text)
        case 3:
            session.user(text, id=text)
        case 4:
            session.user(text, idempotency_key=text)
        case 5:
            session.append({"role": "user", "content": text}, {"role": "assistant", "content": "ok"})
        case 6:
            session.user(text, attachments=[b"shared by all"])
        case _:
            session.append({"role": "user", "content": text}, {"role": "tool", "content": "x", "tool_call_id": "none"})


def beside(session: Session, name: str, rng: random.Random) -> None:
    """Do something to the session that takes no message off its path."""
    match rng.randrange(9):
        case 0:
            session.rename(f"title of {name}")
        case 1:
            session.add_task(f"task of {name}")
        case 2:
            session.checkpoint(f"cp {name}")
        case 3:
            session.state.update({name: rng.random()})
        case 4:
            with session.tool("look", {"n": 1}) as run:
                run.result("seen")
        case 5:
            session.tag(f"tag {rng.randrange(3)}")
        case 6:
            session.fork()
        case 7:
            session.note("noted")
        case _:
            session.add_build_attempt()


def move(session: Session, name: str, rng: random.Random) -> None:
    """Move the head, or take a move back; there may be nothing to move."""
    match rng.randrange(7):
        case 0:
            session.rewind(rng.randrange(1 + session.refresh().head.seq))
        case 1 | 2:
            session.undo()
        case 3:
            session.redo()
        case 4:
            session.pop()
        case 5:
            session.switch(rng.choice(session.branches()).name)
        case _:
            session.preview_rewind(rng.randrange(1 + session.refresh().head.seq)).apply()


def write_on(session: Session, name: str, calls: int, *, moves: bool, seed: object = 0) -> list[str]:
    """Append numbered messages, with other calls between them; return what was said."""
    rng, said = random.Random(f"{seed} {name}"), list[str]()
    for number in range(calls):
        speak(session, name, number, rng)
        said.append(f"{name}:{number}")
        if rng.random() < 0.4:
            with contextlib.suppress(*_LOST if moves else ()):  # a call that ran may be off the path by now
                (move if moves and rng.random() < 0.7 else beside)(session, name, rng)
    return said


# ---------------------------------------------------------------------- what processes do


def write(number: int, url: str, ids: list[str], calls: int, moves: bool, seed: int) -> list[str]:
    """Write to one of some sessions."""
    with takeback.open(url) as store:
        session = store.get_session(ids[number % len(ids)])
        start()
        return write_on(session, f"p{number}", calls, moves=moves, seed=seed)


def make(number: int, url: str, what: str, rounds: int, place: str) -> list[str]:
    """Ask for the same thing in every round; give its id, or why not."""
    found = []
    with takeback.open(url) as store:
        for turn in range(rounds):
            start()
            try:
                found.append(_make(store, what, f"{what} {turn}", place))
            except Conflict:
                found.append("conflict")
    return found


def _make(store: Store, what: str, name: str, place: str) -> str:
    match what:
        case "session":
            return store.session(name, agent=f"agent of {name}", hold=False).id
        case "create_session":
            return store.create_session(name, agent=f"agent of {name}").id
        case "main_session":
            return store.main_session(name).id
        case "cron_session":
            return store.cron_session("nightly", name).id
        case "directory_session":
            folder = os.path.join(place, name)
            os.makedirs(folder, exist_ok=True)
            return store.directory_session(folder).id
        case "create_agent":
            return store.create_agent(name).id
        case "keyed agent":
            return str(store.create_agent(name, idempotency_key=name)._seen.aid)
        case "keyed session":
            return store.create_session(agent=name, idempotency_key=name).id
        case "label":
            return store.create_session(label=name, parent=store.get_session("parent")).id
    raise AssertionError(what)


def count_up(number: int, url: str, of: str, times: int) -> int:
    """Add one to a number in a state, as often as asked; give how often somebody was faster."""
    lost = 0
    with takeback.open(url) as store:
        state: Any = store.get_agent("counter").state if of == "agent" else store.get_session("counter").state
        start()
        for _ in range(times):
            while True:
                version, items = state.read()
                try:
                    state.set("n", items["n"] + 1, expected_version=version)
                    break
                except Conflict:
                    lost += 1
    return lost


def keep_and_erase(number: int, url: str, calls: int, seed: int) -> list[str]:
    """Make, fork, delete, restore and purge sessions that share content with one that is kept; give what that says."""
    rng, said = random.Random(f"{seed} {number}"), list[str]()
    with takeback.open(url) as store:
        kept = store.session(f"kept {number}", agent=f"keeper {number}", hold=False)
        start()
        for call in range(calls):
            content = f"content {rng.randrange(3)} ".encode() * 3000
            while True:
                try:
                    kept.user(f"{number}:{call}", attachments=[content])
                    break
                except Conflict:  # it was purged between storing and linking
                    continue
            said.append(f"{number}:{call}")
            with contextlib.suppress(*_LOST):
                _disturb(store, rng, content)
    return said


def _disturb(store: Store, rng: random.Random, content: bytes) -> None:
    agent = f"doomed {rng.randrange(2)}"
    session = store.session(f"doomed {rng.randrange(4)}", agent=agent, hold=False)
    match rng.randrange(9):
        case 0:
            store.purge_session(session)
        case 1:
            store.purge_session(session, include_forks=True)
        case 2:
            store.delete_session(session)
        case 3:
            store.restore_session(rng.choice([*store.list_sessions(trash=True), session]))
        case 4:
            store.delete_agent(agent)
        case 5:
            store.undo()
        case 6:
            session.fork(as_session=True).user("on the fork", attachments=[content])
        case 7:
            session.user("x" * 100_000)
        case _:
            session.user("doomed", attachments=[content])


def open_new(number: int, url: str) -> str:
    """Open a store that nobody has made yet."""
    start()
    with takeback.open(url) as store:
        return store.create_session(f"of {number}").user("hello").text
