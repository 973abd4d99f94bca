"""Fixtures for testing your own agents: pytest finds them as soon as Takeback is installed.

    def test_my_agent_remembers(takeback_store):
        my_agent.run(takeback_store.session("chat"), "hello")
        assert takeback_store.get_session("chat").messages()[-1].role == "assistant"

The store is in memory and is verified when the test ends, so a test that damages it fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from takeback import Session, Store
    from takeback.testing.clock import ManualClock


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of the contract classes, so that they work under ``--strict-markers``."""
    for name in ("feature", "promise", "defect"):
        config.addinivalue_line("markers", f"{name}(*ids): what a test of Takeback's contracts proves")


@pytest.fixture
def takeback_clock() -> ManualClock:
    """Return a clock that stands still until the test moves it."""
    from takeback.testing.clock import ManualClock

    return ManualClock()


@pytest.fixture
def takeback_store(takeback_clock: ManualClock) -> Iterator[Store]:
    """Yield an empty in-memory store on ``takeback_clock``, verified and closed after the test."""
    import takeback

    with takeback.open(":memory:", clock=takeback_clock) as store:
        yield store
        report = store.verify()
        assert not report, str(report)


@pytest.fixture
def takeback_file_store(tmp_path: Path) -> Iterator[Store]:
    """Yield an empty store in a file under ``tmp_path``, for tests that reopen it or use several processes."""
    import takeback

    with takeback.open(tmp_path / "takeback.db") as store:
        yield store


@pytest.fixture
def takeback_session(takeback_store: Store) -> Session:
    """Return an empty session of ``takeback_store``."""
    return takeback_store.create_session("test")
