"""A store with a history, in every engine, and its tools; every answer is held against its schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from _agent import Agent, shell

import _postgres
import takeback
from takeback.tools import EFFECTS, bind

LENT = _postgres.Lent()


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[takeback.Store]:
    """An empty store of each engine."""
    url = LENT.url(tmp_path) if request.param == "postgresql" else str(tmp_path / "store.db")
    with takeback.open(url) as found:
        yield found
        assert not found.verify().problems
    if request.param == "postgresql":
        LENT.take_back()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory that sessions work in."""
    found = tmp_path / "work"
    found.mkdir()
    return found


@pytest.fixture
def agent(store: takeback.Store, place: Path) -> Agent:
    """An agent that may use every tool."""
    return Agent(bind(store, EFFECTS, workspace=place))


@pytest.fixture
def reader(store: takeback.Store, place: Path) -> Agent:
    """An agent that may only read."""
    return Agent(bind(store, workspace=place))


@pytest.fixture
def worked(store: takeback.Store, place: Path) -> takeback.Session:
    """A session of two turns in which a shell made a file and then changed it."""
    with store.session("fix-pool", agent="coder", workspace=place) as session:
        session.user("Make the connection pool")
        shell(session, "mkdir src; printf 'one\\n' > src/pool.py", "call_1")
        session.assistant("It is in src/pool.py")
        session.user("Break it now")
        shell(session, "printf 'two\\n' > src/pool.py", "call_2")
        session.assistant("It is broken")
    return store.get_session(session.id)
