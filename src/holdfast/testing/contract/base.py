"""What the parts of the contract share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Session, Store


def said(session: Session) -> list[str]:
    """The texts of a session's path."""
    return [message.text for message in session.messages()]


class Contract:
    """What the parts share: how a store is opened, and fixtures."""

    def open(self, tmp_path: Path, **options: Any) -> Store:
        """Open the store under test."""
        raise AssertionError("a contract test says how to open its store")

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        """An open store; verified and closed after the test."""
        with self.open(tmp_path) as store:
            yield store
            report = store.verify()
            assert not report, str(report)

    @pytest.fixture
    def session(self, store: Store) -> Session:
        """An empty session."""
        return store.create_session("work")
