"""What operations did, in few words for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..model import words
from . import sessions

Named = Callable[[str], str | None]  # gives the name of a branch by its id
_SHORT = 7  # characters of an id that people read


def summary(before: dict[str, Any], after: dict[str, Any], named: Named) -> str:
    """Say what an operation changed."""
    return "; ".join(_describe(thing, before.get(thing), value, named) for thing, value in after.items())


def _describe(thing: str, before: Any, after: Any, named: Named) -> str:
    match thing:
        case "head":
            return _describe_head(before, after, named)
        case "hidden":
            return "stays as it is" if before == after else "into the trash" if after else "out of the trash"
        case "name":
            return f"name {after!r}" if before == after else f"now named {after!r}"
        case "branch" | "session":
            name = named(after[0]) if thing == "branch" else None
            return f"{thing} {name or after[0][:_SHORT]} {'hidden' if after[1] else 'shown'}"
        case "files":
            return f"{words.count(len(after['paths']), 'path')} in the workspace"
        case "below":
            return words.count(len(after), "sub-agent") + " with it"
        case "sessions":
            return f"{words.count(len(after), 'session')} with it"
        case "heads":
            return f"{words.count(len(after), 'session')} moved"
        case "state":
            return f"state of version {after}"
        case "archived" | "pinned":
            return thing if after else f"not {thing}"
        case "title" | "key" | "workspace" | "status":
            return f"{thing} {before!r} -> {after!r}"
        case "tags":
            return f"tags {', '.join(sessions.unpack_tags(after)) or 'none'}"
        case _:
            return thing


def _describe_head(before: list[Any], after: list[Any], named: Named) -> str:
    text = f"entry {before[1]} -> entry {after[1]}"
    if after[0] != before[0] and before[1]:
        names = named(before[0]), named(after[0])
        return f"{text}, on another branch" if None in names else f"{text}, from branch {names[0]} to {names[1]}"
    if after[1] < before[1]:
        gone = words.count(before[1] - after[1], "entry")
        return f"{text}; {gone} off the path, kept on the branch"
    return text
