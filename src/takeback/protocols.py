"""The small contract that anybody can implement: five methods over whole sessions.

An agent that needs no more than this can be written against ``SessionStore`` and run on any storage;
``AsyncStore`` satisfies it. Tests for other implementations ship in ``takeback.testing.session_store``.
What every implementation promises: one session per directory however many ask, an acknowledged save is durable,
a save that would overwrite somebody else's raises, deleting what is absent is no error, a list is newest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Protocol, TypeVar, runtime_checkable

S = TypeVar("S")


@runtime_checkable
class SessionStore(Protocol[S]):
    """Get or create, get, save, list and delete of whole sessions; ``S`` is the implementation's session."""

    async def get_or_create_session(self, directory: str | PathLike[str]) -> S:
        """Give the one session of a directory, making it if it is new."""

    async def find_session(self, id_name_or_key: str) -> S | None:
        """Give a session by its id, or None."""

    async def save_session(self, session: S) -> None:
        """Make everything of a session durable; a lost race raises."""

    async def list_sessions(self) -> Sequence[S]:
        """Give the sessions, last changed first; each knows its message count, directory and times."""

    async def delete_session(self, session: str | S) -> object:
        """Delete a session; one that is absent is no error."""
