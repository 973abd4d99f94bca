"""R31 on a server: a transaction that never ends holds others up for ``lock_timeout``, and is named."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import _postgres
import takeback
from takeback.storage.postgres import schema

pytestmark = [pytest.mark.promise("R31"), pytest.mark.trial("T5"), pytest.mark.feature("C5")]

_SECONDS = 0.2


@contextmanager
def _stuck(user: str, *statements: str) -> Iterator[int]:
    """Hold locks in a transaction that goes on for ever, as a client that was stopped does; give its server process."""
    dsn = _postgres.server().dsn(_postgres.DATABASE, user)
    with psycopg.connect(dsn, application_name="stuck") as connection:
        for each in statements:
            connection.execute(each)  # type: ignore[arg-type]
        yield connection.info.backend_pid


def _is_named(error: takeback.Busy, pid: int) -> bool:
    return f"server process {pid}" in str(error.holder) and f"pg_terminate_backend({pid})" in str(error)


@pytest.mark.parametrize("user", [_postgres.APP, "postgres"])
def test_a_locked_session_raises_busy_with_whoever_has_it(tmp_path: Path, user: str) -> None:
    """Also where that is another role, of which this one may not know what it is doing."""
    url = _postgres.app_url(tmp_path)
    with takeback.open(url, lock_timeout=_SECONDS) as store:
        known, renamed = store.create_session("known"), store.create_session("renamed")
        known.user("one")
        lock = f"SELECT * FROM {_postgres.schema_of(tmp_path)}.session FOR UPDATE"
        with _stuck(user, "SET takeback.scope = 's'", lock) as pid:
            for call in (lambda: known.user("two"), lambda: renamed.rename("other")):
                with pytest.raises(takeback.Busy) as caught:
                    call()
                assert _is_named(caught.value, pid), caught.value
                assert ("idle in transaction" in str(caught.value)) == (user == _postgres.APP)
            assert [message.text for message in known.messages()] == ["one"], "reading goes on"
            assert _is_named(asyncio.run(_awaited(url)), pid)
        known.user("two")
        assert [message.text for message in known.messages()] == ["one", "two"]


async def _awaited(url: str) -> takeback.Busy:
    async with takeback.aopen(url, lock_timeout=_SECONDS) as store:
        session = await store.get_session("known")
        with pytest.raises(takeback.Busy) as caught:
            await session.user("never")
        return caught.value


def test_a_stuck_migration_keeps_openers_for_the_timeout_only(tmp_path: Path) -> None:
    url, key = _postgres.url(tmp_path), schema.lock_key(f"migrate:{_postgres.schema_of(tmp_path)}")
    with _stuck(_postgres.OWNER, f"SELECT pg_advisory_xact_lock({key})") as pid:
        with pytest.raises(takeback.Busy) as caught:
            takeback.open(url, lock_timeout=_SECONDS)
        assert _is_named(caught.value, pid), caught.value
    takeback.open(url, lock_timeout=_SECONDS).close()
