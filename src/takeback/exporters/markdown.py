"""A session as a Markdown document: the walkthrough, with likely secrets hidden and tools as short as is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..client.points import Point
from ..client.session import Session
from ..context import walkthrough
from ..shell.secrets import mask


def pieces(
    session: Session, *, at: Point | None = None, tools: str = "short", clean: Callable[[str], str] = mask
) -> Iterator[str]:
    """Give the document piece by piece, up to a point if one is given; ``tools`` is full, short or none.

    Every text goes through ``clean`` first.
    """
    style = walkthrough.Style(tools, clean)
    for number, each in enumerate(walkthrough.sections(*session._told(at), style)):
        yield f"\n{each}\n" if number else f"{each}\n"
