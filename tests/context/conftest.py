"""A store in memory for each test of contexts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import takeback
from takeback import Session, Store


@pytest.fixture
def store() -> Iterator[Store]:
    with takeback.open(":memory:") as opened:
        yield opened


@pytest.fixture
def session(store: Store) -> Session:
    store.create_agent("coder", system_prompt="You fix code.")
    return store.create_session("work", agent="coder")
