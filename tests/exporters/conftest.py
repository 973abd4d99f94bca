"""What the tests of exports share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import takeback
from takeback import Store


@pytest.fixture
def store() -> Iterator[Store]:
    """A store in memory."""
    with takeback.open(":memory:") as opened:
        yield opened
