"""A stored message seen at a glance: what counts of it, if it is plainly right as it is.

Each provider judges the decoded JSON of its form, conservatively: what is unusual in any way - another field, media,
tools of the servers - is not judged at all, and left to reading and repair. What is judged must say what reading would
say, to the token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeGuard

import msgspec

from ..model.message import Message
from .normal import Call, Item, Result

MESSAGE = 4  # tokens: role and limits of a message

decode = msgspec.json.Decoder().decode  # quicker than the function of the module
Count: TypeAlias = Callable[[str], int]


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A result: the id of its call or None, the name of the tool if it says that; itself if it is to be written."""

    id: str | None
    name: str | None = None
    result: Result | None = None


class GlancedMessage(msgspec.Struct, gc=False):
    """One message: what counts of it. Where it stands is told once it is known."""

    role: str
    tokens: int
    message: Any = None
    """As it is sent, if that is known."""
    speaks: bool = False
    """Whether it holds text beside calls and results."""
    calls: Sequence[Call] = ()
    answers: Sequence[Answer] = ()
    longest: int = 0
    """The characters of the longest text among its results."""
    tied: bool = False
    """Whether it holds what only the model that made it can read."""
    bare: bool = False
    """Whether its first call has no signature, in a form that has some."""
    id: str | None = None
    """The id that the message itself has."""
    leads: str = ""
    """What has to follow: ``any`` answer, or one with an ``id``."""
    item: Item | None = None
    """What it was made of, or else..."""
    source: Message | None = None
    """... what an item can be read from."""
    seq: int = 0
    is_request: bool = False
    """Whether somebody asks for something; what was made up to be valid has no place in the log."""
    place: int = 0
    """How many messages are sent before it."""
    plain: bool = False
    """Whether an item can be written without a repair."""
    joined: bool = False
    """Whether it is sent in one message with the step before it."""


Judge: TypeAlias = Callable[[dict[str, Any], str, Count], GlancedMessage | None]


def is_said(text: Any, refuses_blank: bool) -> TypeGuard[str]:
    """Return whether something is a text that may be sent."""
    return type(text) is str and text != "" and not (refuses_blank and text.isspace())


def texts_of(content: Any, kind: str, refuses_blank: bool = False) -> list[str] | None:
    """Return the texts of content that is a text, or a list of blocks of one type with nothing but a text."""
    if type(content) is str:
        return [content] if is_said(content, refuses_blank) else None
    if type(content) is not list or not content:
        return None
    for block in content:
        if type(block) is not dict or len(block) != 2 or block.get("type") != kind:
            return None
        if not is_said(block.get("text"), refuses_blank):
            return None
    return [block["text"] for block in content]


def given_by_tool(content: Any, kind: str, refuses_blank: bool, count: Count) -> tuple[int, int] | None:
    """Return the tokens of what a tool gave, and the characters of its longest text; it may have given nothing."""
    if type(content) is str:
        return None if refuses_blank and content.isspace() else (count(content) if content else 0, len(content))
    found = texts_of(content, kind, refuses_blank)
    return None if found is None else (sum(map(count, found)), max(map(len, found)))


def arguments_of(arguments: Any) -> Any:
    """Decode the arguments of OpenAI's calls; what is no object is unusual."""
    try:
        found = decode(arguments)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError):
        return None
    return found if type(found) is dict else None
