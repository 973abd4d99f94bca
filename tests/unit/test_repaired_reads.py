"""T4: every public read of a repaired store works, or names what is lost; and the store goes on."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _damages import DAMAGES, build, damaged, rot  # noqa: F401

import takeback
from takeback import Corrupt, NotFound, Session, Store

pytestmark = [pytest.mark.trial("T4"), pytest.mark.promise("R12")]


def reads(session: Session) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield everything that can be read of a session."""
    for name in (
        *("messages", "turns", "tasks", "get_plan", "get_walkthrough", "notes", "files", "checkpoints", "branches"),
        *("operations", "tool_calls", "pending_calls", "stats", "summary", "render_walkthrough", "children", "tree"),
    ):
        yield name, getattr(session, name)
    yield "entries", lambda: list(session.entries())
    yield "spent", lambda: session.stats(spent=True)
    yield "state", session.state.read
    yield "items", lambda: list(session.state.items())
    yield "context", lambda: session.context("anthropic")
    yield (
        "attachments",
        lambda: [part.read() for message in session.messages() for part in message.attachments if not part.url],
    )
    for point in session.checkpoints():
        yield f"rewind to {point.name}", lambda point=point: session.preview_rewind(point)


def of_store(store: Store) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield everything that can be read of a store."""
    yield "sessions", lambda: list(store.iter_sessions(archived=None))
    yield "trash", lambda: list(store.iter_sessions(trash=True))
    yield "operations", lambda: store.operations(limit=1000)
    yield "agents", lambda: [agent.state.read() for agent in store.list_agents(limit=100)]
    yield "checkpoints", lambda: [store.list_checkpoints(agent.id) for agent in store.list_agents(limit=100)]
    yield "stats", store.stats
    yield "events", lambda: list(store.events())
    for place in {session.workspace for session in store.iter_sessions(archived=None)} - {None}:
        yield "timeline", lambda place=place: store.workspace(place).timeline(limit=100)


def refused(found: Iterator[tuple[str, Callable[[], Any]]], *, lost: bool) -> list[str]:
    """Return the reads that fail without naming a loss; a content that was lost is never as if it had not been."""
    wrong = []
    for name, read in found:
        try:
            read()
        except Corrupt as error:
            if not lost or not error.what:
                wrong.append(f"{name}: {error}")
        except NotFound as error:
            wrong.append(f"{name}: {error}")
    return wrong


@pytest.mark.parametrize("name", DAMAGES)
def test_every_read_of_a_repaired_store_works_or_names_the_loss(tmp_path: Path, name: str) -> None:
    path, _ = damaged(tmp_path, name)
    with takeback.open(path) as store:
        done = store.repair()
    with takeback.open(done.path) as copy:
        assert not refused(of_store(copy), lost=False), str(done)
        for session in copy.iter_sessions(archived=None):
            assert not refused(reads(session), lost=bool(done.lost)), str(done)
            goes_on(copy, session)
        assert not copy.verify(), str(copy.verify())


def goes_on(store: Store, session: Session) -> None:
    """What was lost can be said again, and everything else as if nothing had happened."""
    with store.session(session, take_over=True, capture="off"):
        session.receive()
        session.user("and on")
        session.set_tasks(["one"])
        session.update_task(0, "completed")
        session.set_plan("the plan again")
        session.note("noted")
        session.record_file("a.py", "write")
        session.state.set("again", True)
        session.add_build_attempt() if session.stats() else None
        session.checkpoint("again")
        assert [task.status for task in session.tasks()] == ["completed"]
        assert (session.get_plan(), session.state.get("again")) == ("the plan again", True)


# ---------------------------------------------------------------------- damage of the file itself


PAGE = 4096


def spoil(data: bytearray, rng: random.Random) -> str:
    """Damage the file of a store somewhere behind its first page, where SQLite keeps what the file is."""
    pages = len(data) // PAGE
    chosen = rng.choice(("flip", "flip", "flips", "swap", "zero"))
    if chosen in ("flip", "flips"):
        for _ in range(1 if chosen == "flip" else 6):
            data[rng.randrange(PAGE, len(data))] ^= 1 << rng.randrange(8)
        return chosen
    one, two = (rng.randrange(1, pages) * PAGE for _ in range(2))
    first = bytes(data[one : one + PAGE])
    data[one : one + PAGE] = bytes(PAGE) if chosen == "zero" else data[two : two + PAGE]
    if chosen == "swap":
        data[two : two + PAGE] = first
    return f"{chosen} {one // PAGE + 1} {two // PAGE + 1}"


@pytest.mark.promise("R11")
def test_a_file_with_flipped_bits_or_swapped_pages_becomes_a_store_that_works(
    tmp_path: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    template = build(tmp_path / "a.db").read_bytes()
    for number in range(counts(40, 2000)):
        rng, data = random.Random(f"file {seed} {number}"), bytearray(template)
        how = spoil(data, rng)
        path = tmp_path / str(number) / "a.db"
        path.parent.mkdir()
        path.write_bytes(data)
        about = f"seed {seed}, file {number}, {how}"
        try:
            store = takeback.open(path)
        except Corrupt:
            tally("R12 files that cannot be opened", 1)
            continue
        with store:
            done = store.repair()
        tally("R12 damaged files repaired", 1)
        assert not done.report, f"{about}: {done}"
        with takeback.open(done.path) as copy:
            assert not refused(of_store(copy), lost=False), f"{about}: {done}"
            for session in copy.iter_sessions(archived=None):
                assert not refused(reads(session), lost=bool(done.lost)), f"{about}: {done}"
                goes_on(copy, session)
            assert not copy.verify(), about
