"""SQLite in a file and in memory keep the contract, blocking and awaited."""

from pathlib import Path
from typing import Any

import holdfast
from holdfast.testing import awaited
from holdfast.testing.contract import StoreContract


class TestFile(StoreContract):
    def open(self, tmp_path: Path, **options: Any) -> holdfast.Store:
        return holdfast.open(tmp_path / "store.db", **options)


class TestMemory(StoreContract):
    def open(self, tmp_path: Path, **options: Any) -> holdfast.Store:
        return holdfast.open(":memory:", **options)


class TestAwaitedFile(StoreContract):
    def open(self, tmp_path: Path, **options: Any) -> holdfast.Store:
        return awaited.open(tmp_path / "store.db", **options)


class TestAwaitedMemory(StoreContract):
    def open(self, tmp_path: Path, **options: Any) -> holdfast.Store:
        return awaited.open(":memory:", **options)
