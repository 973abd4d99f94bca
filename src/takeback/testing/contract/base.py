"""What the parts of the contract share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from takeback import Session, Store, presence
from takeback.client import waiting
from takeback.ops import leases, sessions, streams
from takeback.storage.base import Tx
from takeback.tables.live import STREAM

PATIENCE = 120.0  # seconds for what must happen, however busy the machine is
_NOBODY = 99_999_999  # a number that no process has


def said(session: Session) -> list[str]:
    """Return the texts of a session's path."""
    return [message.text for message in session.messages()]


def eventually(look: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Poll until a condition is true; return its last value."""
    deadline = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def blocking(handle: Any) -> Any:
    """Return the blocking handle behind an awaited one, or any other handle as it is."""
    return getattr(handle, "_sync", handle)


def doom(session: Session) -> None:
    """Let the calls of a session from now on, until ``die``, be started by a process that does not exist."""
    blocking(session)._store._made_holder = _dead()


def _dead() -> bytes:
    return presence.encode(msgspec.structs.replace(presence.here(0), pid=_NOBODY))


def die(session: Session, *, beat_ms: int | None = None) -> None:
    """Make the holder of a session look killed with kill -9: no lease is released, no stream sealed.

    ``beat_ms`` is when it last gave a sign of life.
    """
    inner = blocking(session)
    store, held = inner._store, inner._held
    dead, store._made_holder = _dead(), None
    if held is not None:
        held.over, inner._held = True, None
        store._keeper.drop(held)
    for stream in list(store._keeper._streams):
        if stream._session.id == inner.id:
            store._keeper.forget(stream)

    def op(tx: Tx) -> None:
        row = sessions.get(tx, store.scope, inner.id)
        lease = sessions.find_lease(tx, row)
        if held is not None and lease is not None:
            leases.put(tx, lease._replace(holder=dead, beat_ms=lease.beat_ms if beat_ms is None else beat_ms))
        for each in streams.of_session(tx, row):
            STREAM.update(tx, each, each._replace(holder=dead))

    store._write(op)


class Contract:
    """What all parts share: how to open the store, and fixtures."""

    def open(self, tmp_path: Path, **options: Any) -> Store:
        """Open the store under test."""
        raise AssertionError("override open() to say how to open the store under test")

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        """Yield an open store, verified and closed after the test."""
        with self.open(tmp_path) as store:
            yield store
            report = store.verify()
            assert not report, str(report)

    @pytest.fixture
    def told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Disable the fallback poll, so that only a notification (or an engine that always polls) can end a wait."""
        monkeypatch.setattr(waiting, "_LOOK_SECONDS", 2 * PATIENCE)

    @pytest.fixture
    def session(self, store: Store) -> Session:
        """Return an empty session."""
        return store.create_session("work")
