"""A session as a Markdown document: the walkthrough, with likely secrets hidden and tool output shortened."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..client.points import Point
from ..client.session import Session
from ..context import walkthrough
from ..shell.secrets import mask


def pieces(
    session: Session, *, at: Point | None = None, tools: str = "short", clean: Callable[[str], str] = mask
) -> Iterator[str]:
    """Yield the document piece by piece, up to a point if given; ``tools`` is full, short or none.

    Every text passes through ``clean`` first.
    """
    style = walkthrough.Style(tools, clean)
    for number, each in enumerate(walkthrough.sections(*session._told(at), style)):
        yield f"\n{each}\n" if number else f"{each}\n"
