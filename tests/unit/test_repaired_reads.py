"""T4: every public read of a repaired store works, or names what is lost; and the store goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _damages import DAMAGES, damaged, rot  # noqa: F401

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


def refused(found: Iterator[tuple[str, Callable[[], Any]]], *, lost: bool) -> list[str]:
    """Give the reads that fail without naming a loss; a content that was lost is never as if it had not been."""
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
