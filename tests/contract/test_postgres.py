"""PostgreSQL keeps the contract, blocking and awaited, for a run-time role under row security and for an owner."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import _locks
import _postgres
import takeback
from takeback.testing import awaited
from takeback.testing.contract import StoreContract


@pytest.fixture(autouse=True)
def _every_change_follows_a_lock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    wrong = _locks.watch(monkeypatch)
    yield
    assert not wrong


@pytest.mark.feature("C6", "E6")
class TestPostgres(StoreContract):
    def open(self, tmp_path: Path, **options: Any) -> takeback.Store:
        return takeback.open(_postgres.app_url(tmp_path), **options)


@pytest.mark.feature("C6", "E6")
class TestAwaitedPostgres(StoreContract):
    def open(self, tmp_path: Path, **options: Any) -> takeback.Store:
        return awaited.open(_postgres.url(tmp_path), **options)
