"""SQLite in a file and in memory keep the contract."""

from pathlib import Path
from typing import Any

import holdfast
from holdfast.testing.contract import StoreContract


class TestFile(StoreContract):
    def open(self, tmp_path: Path, **options: Any) -> holdfast.Store:
        return holdfast.open(tmp_path / "store.db", **options)


class TestMemory(StoreContract):
    def open(self, tmp_path: Path, **options: Any) -> holdfast.Store:
        return holdfast.open(":memory:", **options)
