"""The five methods of ``SessionStore``: kept by the store itself, and by thirty lines that anybody might write."""

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import takeback
from takeback.protocols import SessionStore
from takeback.testing.session_store import SessionStoreContract


class TestTheStore(SessionStoreContract):
    @asynccontextmanager
    async def open(self, path: Path) -> AsyncIterator[SessionStore[takeback.AsyncSession]]:
        async with takeback.aopen(path / "store.db") as store:
            yield store  # type: ignore[misc]

    async def say(self, session: takeback.AsyncSession, text: str) -> None:
        await session.user(text)

    async def said(self, session: takeback.AsyncSession) -> list[str]:
        return [message.text for message in await session.messages()]


@dataclass
class Plain:
    id: str
    directory: str
    lines: list[str] = field(default_factory=list)

    @property
    def message_count(self) -> int:
        return len(self.lines)


class PlainStore:
    """An implementation without Takeback: a dict. Reopening gives the same dict."""

    kept: dict[Path, dict[str, Plain]] = {}  # noqa: RUF012 - stands for a disk
    ids = itertools.count()

    def __init__(self, path: Path) -> None:
        self.sessions = self.kept.setdefault(path, {})

    async def get_or_create_session(self, directory: str | os.PathLike[str]) -> Plain:
        place = os.path.realpath(directory)
        found = next((each for each in self.sessions.values() if each.directory == place), None)
        return found or self.sessions.setdefault(new := str(next(self.ids)), Plain(new, place))

    async def find_session(self, id_name_or_key: str) -> Plain | None:
        return self.sessions.get(id_name_or_key)

    async def save_session(self, session: Plain) -> None:
        self.sessions[session.id] = session

    async def list_sessions(self) -> list[Plain]:
        return list(self.sessions.values())[::-1]

    async def delete_session(self, session: str | Plain) -> None:
        self.sessions.pop(session if isinstance(session, str) else session.id, None)


class TestSomebodyElses(SessionStoreContract):
    @asynccontextmanager
    async def open(self, path: Path) -> AsyncIterator[SessionStore[Plain]]:
        yield PlainStore(path)

    async def say(self, session: Plain, text: str) -> None:
        session.lines.append(text)

    async def said(self, session: Plain) -> list[str]:
        return session.lines
