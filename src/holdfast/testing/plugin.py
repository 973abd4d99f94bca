"""Fixtures for people who test their agents: pytest finds them as soon as Holdfast is installed.

    def test_my_agent_remembers(holdfast_store):
        my_agent.run(holdfast_store.session("chat"), "hello")
        assert holdfast_store.get_session("chat").messages()[-1].role == "assistant"

A store lives in memory and is verified when the test ends: a test that damages it fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast import Session, Store
    from holdfast.testing.clock import ManualClock


def pytest_configure(config: pytest.Config) -> None:
    """Let the contract classes of this package be used under ``--strict-markers``."""
    for name in ("feature", "promise", "defect"):
        config.addinivalue_line("markers", f"{name}(*ids): what a test of Holdfast's contracts proves")


@pytest.fixture
def holdfast_clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    from holdfast.testing.clock import ManualClock

    return ManualClock()


@pytest.fixture
def holdfast_store(holdfast_clock: ManualClock) -> Iterator[Store]:
    """An empty store in memory on ``holdfast_clock``, verified and closed after the test."""
    import holdfast

    with holdfast.open(":memory:", clock=holdfast_clock) as store:
        yield store
        report = store.verify()
        assert not report, str(report)


@pytest.fixture
def holdfast_file_store(tmp_path: Path) -> Iterator[Store]:
    """An empty store in a file of the test's own directory, for tests that close and reopen or use processes."""
    import holdfast

    with holdfast.open(tmp_path / "holdfast.db") as store:
        yield store


@pytest.fixture
def holdfast_session(holdfast_store: Store) -> Session:
    """An empty session of ``holdfast_store``."""
    return holdfast_store.create_session("test")
