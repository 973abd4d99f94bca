"""Attachments as callers see them: what they are, and how to read them while their store is open."""

from __future__ import annotations

from typing import IO

import msgspec

from ..errors import Unsupported
from . import Home, Portable


class Attachment(Portable, msgspec.Struct, frozen=True, eq=False):
    """One attachment of a message, as stored: bytes in the store, or a URL.

    One that was pickled, encoded or made from a dict has left its store: it still says what it is, and its message
    in the store still has it with its content.
    """

    id: str
    type: str
    name: str | None = None
    mime_type: str | None = None
    size: int | None = None
    hash: str | None = None
    url: str | None = None
    _home: Home | None = None

    def open(self) -> IO[bytes]:
        """Open the content for reading, one chunk in memory at a time; raises ``Corrupt`` if a chunk is damaged."""
        if self.hash is None:
            raise Unsupported(f"Takeback does not fetch URLs; fetch {self.url!r} yourself", capability="fetch")
        store = None if self._home is None else self._home.store
        if store is None:
            raise Unsupported(
                "this attachment left the store that has its content; read its message there: session.message(id)",
                capability="read",
            )
        content: IO[bytes] = store._open_content(self.hash)
        return content

    def read(self) -> bytes:
        """Read the whole content."""
        with self.open() as stream:
            return stream.read()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attachment) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        size = self.url if self.size is None else f"{self.size:,} B"
        return f"<Attachment {' '.join(filter(None, (self.type, self.name, size)))}>"
