"""Documents: values that programs keep in a store beside sessions, by namespace and key."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from ..clock import to_datetime
from . import Portable

Namespace: TypeAlias = str | tuple[str, ...]

BETWEEN = "\x1f"  # the parts of a namespace as it is stored


class Document(Portable, msgspec.Struct, frozen=True, kw_only=True):
    """A document as it was read; ``value`` is bytes or plain data.

    ``version`` grows by one with every put of its key, even after a delete. ``namespace`` is a string, or a tuple if it
    has several parts.
    """

    namespace: Namespace
    key: str
    value: Any
    version: int
    created_ms: int
    updated_ms: int
    expires_ms: int | None = None

    @property
    def created_at(self) -> datetime:
        """When it was put first; a document that was deleted or had expired begins again."""
        return to_datetime(self.created_ms)

    @property
    def updated_at(self) -> datetime:
        """When this version was put."""
        return to_datetime(self.updated_ms)

    @property
    def expires_at(self) -> datetime | None:
        """When it will read as absent; None if it stays."""
        return None if self.expires_ms is None else to_datetime(self.expires_ms)

    def __repr__(self) -> str:
        return f"<Document {self.key!r} version {self.version} in {self.namespace!r}>"


def parts_of(text: str) -> Namespace:
    """Return a namespace as callers see it."""
    parts = tuple(text.split(BETWEEN))
    return parts if len(parts) > 1 else text
