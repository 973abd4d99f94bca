"""The small contract that anybody can implement: five methods on whole sessions.

An agent that needs no more than this can be written against ``SessionStore`` and run on any storage;
``AsyncStore`` satisfies it. Tests for other implementations are in ``takeback.testing.session_store``.
Every implementation promises: one session per directory however many callers ask, an acknowledged save is durable,
a save that would overwrite somebody else's raises, deleting what is absent is not an error, lists are newest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Protocol, TypeVar, runtime_checkable

S = TypeVar("S")


@runtime_checkable
class SessionStore(Protocol[S]):
    """Get or create, find, save, list and delete whole sessions; ``S`` is the implementation's session."""

    async def get_or_create_session(self, directory: str | PathLike[str]) -> S:
        """Return the session of a directory, creating it if it does not exist."""

    async def find_session(self, id_name_or_key: str) -> S | None:
        """Return a session by its id, or None."""

    async def save_session(self, session: S) -> None:
        """Make everything in a session durable; losing a race raises."""

    async def list_sessions(self) -> Sequence[S]:
        """List the sessions, last changed first; each has its message count, directory and times."""

    async def delete_session(self, session: str | S) -> object:
        """Delete a session; deleting one that is absent is not an error."""
