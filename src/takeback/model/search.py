"""What a search returns: hits, each with the place where it opens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ..clock import to_datetime
from ..errors import Invalid
from . import Portable, values
from .page import Page

if TYPE_CHECKING:
    Why = Mapping[str, float]
else:  # what msgspec decodes
    Why = dict[str, float]


class Hit(Portable, msgspec.Struct, frozen=True):
    """One entry, or the title of a session, that a search found.

    ``ref`` is what to type to see it there: ``takeback show REF``. In ``snippet`` the matches stand between « and ».
    ``kind`` says what was found: a ``message``, the input (``call``) or the output (``result``) of a tool, a ``plan``,
    ``task``, ``note``, ``title``... ``tool`` names the tool of a call or a result. ``whole`` is False if a word was
    found only as a part of longer words. ``why`` says what the score is made of, if that was asked for.
    """

    ref: str
    session_id: str
    title: str | None
    branch: str
    seq: int
    turn: int
    role: str | None
    kind: str
    snippet: str
    score: float
    at_ms: int
    whole: bool = True
    why: Why | None = None
    tool: str | None = None
    name: str | None = None
    agent_id: str = ""
    workspace: str | None = None

    @property
    def created_at(self) -> datetime:
        """When it was said or done."""
        return to_datetime(self.at_ms)

    def __repr__(self) -> str:
        return f"<Hit {self.ref} {self.role or self.kind} {self.snippet[:60]!r}>"


class Hits(Page[Hit]):
    """A page of hits. ``exact`` says whether all matches were ranked; ``notes`` say what the search did otherwise.

    Of a word that is nearly everywhere only the newest matches are ranked at first: ``exact`` is False then, and the
    next pages go on to older ones.
    """

    __slots__ = ("exact", "notes")

    def __init__(
        self,
        items: Sequence[Hit],
        cursor: str | None,
        damaged: tuple[str, ...] = (),
        *,
        exact: bool = True,
        notes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(items, cursor, damaged)
        self.exact = exact
        self.notes = notes

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], of: type[Any] | None = Hit) -> Hits:
        """Make an equal page from what ``to_dict`` returned."""
        known = dict(given)
        exact, notes = known.pop("exact", True), known.pop("notes", [])
        if not isinstance(exact, bool) or not isinstance(notes, list):
            raise Invalid("Hits: exact must be a bool and notes a list")
        found = Page.from_dict(known, of)
        return cls(found.items, found.cursor, tuple(found.damaged), exact=exact, notes=tuple(notes))

    def _parts(self) -> dict[str, Any]:
        return {**super()._parts(), "exact": self.exact, "notes": values.parts(self.notes)}

    def _all(self) -> tuple[object, ...]:
        return (*super()._all(), self.exact, self.notes)
