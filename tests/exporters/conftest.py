"""What the tests of exports share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import holdfast
from holdfast import Store


@pytest.fixture
def store() -> Iterator[Store]:
    """A store in memory."""
    with holdfast.open(":memory:") as opened:
        yield opened
