"""PostgreSQL keeps the contract, blocking and awaited, for a run-time role under row security and for an owner."""

from pathlib import Path
from typing import Any

import pytest

import _postgres
import holdfast
from holdfast.testing import awaited
from holdfast.testing.contract import StoreContract


@pytest.mark.feature("C6", "E6")
class TestPostgres(StoreContract):
    def open(self, tmp_path: Path, **options: Any) -> holdfast.Store:
        return holdfast.open(_postgres.app_url(tmp_path), **options)


@pytest.mark.feature("C6", "E6")
class TestAwaitedPostgres(StoreContract):
    def open(self, tmp_path: Path, **options: Any) -> holdfast.Store:
        return awaited.open(_postgres.url(tmp_path), **options)
