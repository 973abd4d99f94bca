"""The awaitable API keeps the contract under trio."""

from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.testing import awaited
from takeback.testing.contract import StoreContract


@pytest.mark.trial("T62")
class TestTrio(StoreContract):
    def open(self, tmp_path: Path, **options: Any) -> takeback.Store:
        return awaited.open(":memory:", library="trio", **options)
