"""Tests for any implementation of ``SessionStore``: a subclass defines how to open it, append and read."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from takeback.protocols import SessionStore


class SessionStoreContract:
    """The contract of the five methods."""

    def open(self, path: Path) -> AbstractAsyncContextManager[SessionStore[Any]]:
        """Open the store under test; opening the same path twice must reach the same data."""
        raise AssertionError("override open() to say how to open the store under test")

    async def say(self, session: Any, text: str) -> None:
        """Add a user message to a session."""
        raise AssertionError("override say() to say how to add a message")

    async def said(self, session: Any) -> list[str]:
        """Return the texts of a session."""
        raise AssertionError("override said() to say how to read a session")

    @pytest.mark.feature("C3", "C1")
    @pytest.mark.defect("S2-2")
    def test_a_directory_has_one_session_however_many_ask(self, tmp_path: Path) -> None:
        async def go() -> None:
            async with self.open(tmp_path) as store:
                assert isinstance(store, SessionStore)
                found = await asyncio.gather(*(store.get_or_create_session(tmp_path) for _ in range(20)))
                assert len({session.id for session in found}) == 1
                assert len(await store.list_sessions()) == 1

        asyncio.run(go())

    @pytest.mark.feature("C3")
    @pytest.mark.defect("S2-7", "S3-1")
    def test_what_was_saved_is_there_after_reopening(self, tmp_path: Path) -> None:
        async def go() -> None:
            async with self.open(tmp_path) as store:
                session = await store.get_or_create_session(tmp_path)
                await self.say(session, "remember")
                await store.save_session(session)
            async with self.open(tmp_path) as store:
                found = await store.find_session(session.id)
                assert found is not None
                assert await self.said(found) == ["remember"]
                assert await store.find_session("nosuch") is None

        asyncio.run(go())

    @pytest.mark.feature("C3", "C4")
    @pytest.mark.defect("S2-1", "S2-8")
    def test_two_writers_do_not_lose_each_others_messages(self, tmp_path: Path) -> None:
        async def go() -> None:
            async with self.open(tmp_path) as store:
                first = await store.get_or_create_session(tmp_path)
                second = await store.find_session(first.id)
                assert second is not None
                for session, text in ((first, "a"), (second, "b")):
                    await self.say(session, text)
                    await store.save_session(session)
                (listed,) = await store.list_sessions()
                assert listed.message_count == 2
                assert await self.said(listed) == ["a", "b"]

        asyncio.run(go())

    @pytest.mark.feature("C3", "E7")
    @pytest.mark.defect("S2-7", "S4-3")
    def test_a_deleted_session_is_gone_and_saving_does_not_bring_it_back(self, tmp_path: Path) -> None:
        async def go() -> None:
            (tmp_path / "other").mkdir()
            async with self.open(tmp_path) as store:
                session = await store.get_or_create_session(tmp_path / "other")
                await self.say(session, "a")
                await store.delete_session(session.id)
                await store.delete_session("never existed")
                again = await store.get_or_create_session(tmp_path / "other")
                assert await self.said(again) == []

        asyncio.run(go())
