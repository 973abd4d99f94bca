"""SQLite in a file and in memory keep the contract; in a file also awaited."""

from pathlib import Path
from typing import Any

import takeback
from takeback.testing import awaited
from takeback.testing.contract import StoreContract


class TestFile(StoreContract):
    def open(self, tmp_path: Path, **options: Any) -> takeback.Store:
        return takeback.open(tmp_path / "store.db", **options)


class TestMemory(StoreContract):
    def open(self, tmp_path: Path, **options: Any) -> takeback.Store:
        return takeback.open(":memory:", **options)


class TestAwaitedFile(StoreContract):
    def open(self, tmp_path: Path, **options: Any) -> takeback.Store:
        return awaited.open(tmp_path / "store.db", **options)
