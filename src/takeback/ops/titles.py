"""Titles: what a session is called until somebody names it, taken from its first user message."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.entry import Draft
from ..model.message import MESSAGE_KINDS, Message
from ..model.session import short_title

_LONGEST = 50


def of_body(body: bytes | None, raw: bytes | None = None) -> str | None:
    """Make a title from a stored message."""
    return short_title(Message("", 0, 0, 0, body, raw).text[:1000], _LONGEST, ellipsis=True)


def of_drafts(drafts: Sequence[Draft]) -> str | None:
    """Make a title from the first user message among drafts; None if there is none."""
    for draft in drafts:
        if draft.adds.turns and draft.kind in MESSAGE_KINDS:
            return of_body(draft.body, draft.raw)
    return None
