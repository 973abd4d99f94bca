"""Google ADK: the service that it picks itself for a ``sqlite://`` URL, which opens a connection per call.

Its DatabaseSessionService on the same file is slower here. It keeps SQLite's rollback journal, so there is no
log to warm up. A framework run reads the session before it appends to it; only the append is measured.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from . import is_installed

if is_installed("google.adk"):
    from google.adk.events import Event
    from google.adk.sessions import Session
    from google.adk.sessions.base_session_service import GetSessionConfig
    from google.adk.sessions.sqlite_session_service import SqliteSessionService
    from google.genai import types

from ..messages import Message
from ..stores import Arm

APP, USER = "app", "user"
_INSERT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)"


class GoogleADK(Arm):
    """SqliteSessionService of google-adk; times are taken inside its event loop."""

    name = "Google ADK SqliteSessionService"
    needs = "google.adk"
    slow = True
    has_log = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._open: dict[str, Session] = {}

    def open(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.service = SqliteSessionService(str(self.path))

    def close(self) -> None:
        self._open.clear()
        self._loop.run_until_complete(self.service.close())
        self._loop.close()

    def use(self, session: str) -> None:
        if session not in self._open:
            self._open[session] = self._loop.run_until_complete(_session(self.service, session))
        self._session = self._open[session]

    def prepare(self, messages: Sequence[Message]) -> list[Any]:
        return [as_event(message) for message in messages]

    def append(self, prepared: Sequence[Any]) -> list[float]:
        async def go() -> list[float]:
            times = []
            for event in prepared:
                started = perf_counter()
                await self.service.append_event(self._session, event)
                times.append(perf_counter() - started)
            return times

        return self._loop.run_until_complete(go())

    def fill(self, prepared: Sequence[Any]) -> None:
        """Insert the rows that ``append_event`` would: one commit each would take minutes."""
        with sqlite3.connect(self.path) as connection:
            connection.executemany(_INSERT, (_row(self._session.id, event) for event in prepared))
        connection.close()

    def read(self, last: int | None) -> tuple[float, int]:
        config = None if last is None else GetSessionConfig(num_recent_events=last)

        async def go() -> tuple[float, int]:
            started = perf_counter()
            found = await self.service.get_session(
                app_name=APP, user_id=USER, session_id=self._session.id, config=config
            )
            return perf_counter() - started, len(found.events) if found else 0

        return self._loop.run_until_complete(go())

    def list_sessions(self) -> list[Session]:
        """Return all sessions, oldest first, without events."""
        return self._loop.run_until_complete(self.service.list_sessions(app_name=APP, user_id=USER)).sessions


async def _session(service: SqliteSessionService, session: str) -> Session:
    """Return the session without its events: an append needs none of them."""
    config = GetSessionConfig(num_recent_events=0)
    found = await service.get_session(app_name=APP, user_id=USER, session_id=session, config=config)
    return found or await service.create_session(app_name=APP, user_id=USER, session_id=session)


def _row(session: str, event: Event) -> tuple[Any, ...]:
    data = event.model_dump_json(exclude_none=True)
    return event.id, APP, USER, session, event.invocation_id, event.timestamp, data


def as_event(message: Message) -> Event:
    """Turn a message into what ADK's runner appends."""
    role = "model" if message["role"] == "assistant" else "user"
    content = types.Content(role=role, parts=[_part(part) for part in message["content"]])
    return Event(author=message["role"], invocation_id="invocation", content=content)


def _part(part: Message) -> types.Part:
    if part["type"] == "text":
        return types.Part(text=part["text"])
    if part["type"] == "tool_use":
        return types.Part(function_call=types.FunctionCall(id=part["id"], name=part["name"], args=part["input"]))
    given = {"result": part["content"]}
    return types.Part(function_response=types.FunctionResponse(id=part["tool_use_id"], name="tool", response=given))
