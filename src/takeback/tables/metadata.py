"""What the metadata of sessions says, as rows by which listings filter: one per name with a plain value.

A row is found by its pair: name and value as a JSON array, or the hash of that if it is long, since an index entry has
a limited size. Equal values give equal pairs, by the rules of JSON: 1 and 1.0 are the same number, true is no number,
"1" is text, and null is a value. Lists and objects have no row; neither has a number that JSON does not know.
"""

from __future__ import annotations

import math
from hashlib import sha256
from typing import Any

from .. import codec
from .sessions import PURGED, MetadataRow, SessionRow

_LONGEST = 256  # bytes of a pair that is stored as it is


def pair_of(name: str, value: object) -> str | None:
    """Return what a name and its value are found by; None for a value that cannot be searched for."""
    if isinstance(value, float) and not isinstance(value, bool):
        if not math.isfinite(value):
            return None
        value = int(value) if value.is_integer() else value
    if value is not None and not isinstance(value, str | int | float):
        return None
    text = codec.canonical([name, value])
    return text.decode() if len(text) <= _LONGEST else f"sha256:{sha256(text).hexdigest()}"


def rows_of(session: SessionRow, doc: bytes) -> list[MetadataRow]:
    """Return the rows by which a session with these details is found; none once it is purged."""
    if session.hidden == PURGED or b'"metadata"' not in doc:
        return []
    details: Any = codec.decode(doc)
    said = details.get("metadata") if isinstance(details, dict) else None
    pairs = [pair_of(name, value) for name, value in said.items()] if isinstance(said, dict) else []
    place = session.hidden, session.rank, session.sid
    return [MetadataRow(session.scope, pair, *place) for pair in dict.fromkeys(pairs) if pair is not None]
