"""No process of a test outlives it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import _harness


@pytest.fixture(autouse=True)
def no_process_left() -> Iterator[None]:
    """Kill and reap whatever a test that failed left running; only children that the harness started."""
    yield
    _harness.kill_all()
