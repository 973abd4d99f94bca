"""OpenAI Agents: every call of its SQLiteSession runs in a worker thread of the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"

from . import is_installed

if is_installed("agents"):
    from agents import SQLiteSession

from ..stores import Arm


class OpenAIAgents(Arm):
    """SQLiteSession of openai-agents; times are taken inside its event loop."""

    name = "OpenAI Agents SQLiteSession"
    needs = "agents"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._open: dict[str, SQLiteSession] = {}

    def open(self) -> None:
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        for session in self._open.values():
            session.close()
        self._open.clear()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def use(self, session: str) -> None:
        if session not in self._open:
            self._open[session] = SQLiteSession(session, self.path)
        self._session = self._open[session]

    def append(self, prepared: Sequence[Any]) -> list[float]:
        async def go() -> list[float]:
            times = []
            for message in prepared:
                started = perf_counter()
                await self._session.add_items([message])
                times.append(perf_counter() - started)
            return times

        return self._loop.run_until_complete(go())

    def fill(self, prepared: Sequence[Any]) -> None:
        self._loop.run_until_complete(self._session.add_items(list(prepared)))

    def read(self, last: int | None) -> tuple[float, int]:
        async def go() -> tuple[float, int]:
            started = perf_counter()
            found = await self._session.get_items(limit=last)
            return perf_counter() - started, len(found)

        return self._loop.run_until_complete(go())
