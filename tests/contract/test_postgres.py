"""PostgreSQL keeps the contract for a run-time role under row security, and where it matters awaited for an owner."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import _locks
import _postgres
import takeback
from takeback.testing import awaited
from takeback.testing.contract import StoreContract
from takeback.testing.contract.live import Leases
from takeback.testing.contract.messages import Messages
from takeback.testing.contract.races import Races
from takeback.testing.contract.stores import Stores
from takeback.testing.contract.streams import Streams
from takeback.testing.contract.together import Inboxes

LENT = _postgres.Lent()


@pytest.fixture(autouse=True)
def empty_afterwards() -> Iterator[None]:
    """Leave the schemas of a test to the next one."""
    yield
    LENT.take_back()


@pytest.fixture(autouse=True)
def _every_change_follows_a_lock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    wrong = _locks.watch(monkeypatch)
    yield
    assert not wrong


@pytest.mark.feature("C6", "E6")
class TestPostgres(StoreContract):
    def open(self, tmp_path: Path, **options: Any) -> takeback.Store:
        return takeback.open(LENT.url(tmp_path), **options)


@pytest.mark.feature("C6", "E6")
class TestAwaitedPostgres(Messages, Races, Stores, Leases, Streams, Inboxes):
    """What depends on the engine and on awaiting; the rest of the contract is proven for each of them."""

    def open(self, tmp_path: Path, **options: Any) -> takeback.Store:
        return awaited.open(LENT.url(tmp_path, user=_postgres.OWNER), **options)
