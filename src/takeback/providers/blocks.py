"""One block of any form as a part of the normal form.

The forms that tag their blocks with ``type`` use different words for different things, so one table reads them all,
made of those of the providers; that also reads messages whose writer mixed forms. Nothing here raises on odd data: a
block that is not understood is ``Opaque`` under its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from . import NAMES, load
from .lenient import kind, word
from .normal import Call, Media, Opaque, Part, Result, Text, as_json

Read = Callable[[dict[str, Any], str | None], Part | None]
_THINKING = frozenset({"thinking", "redacted_thinking", "reasoning"})


@cache
def _readers() -> Mapping[str, Read]:
    """Gather what the providers say of their blocks, by the types of these."""
    return {kind: read for name in NAMES for kind, read in load(name, "read").BLOCKS.items()}


def blocks(content: Any, form: str | None) -> list[Part]:
    """Read a text or a list of blocks; ids are given to calls that have none, by their place."""
    if isinstance(content, str):
        return [Text(content)] if content else []
    found, count, readers = list[Part](), 0, _readers()
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict):
            read = readers.get(kind(block))
            part = None if read is None else read(block, form)
            if type(part) is Call:
                part = part if part.id else Call(f"call-{count}", part.name, part.arguments)
                count += 1
            found.append(part or Opaque(named(kind(block)), **kept(form, block)))
        elif isinstance(block, str) and block:
            found.append(Text(block))
    return found


def named(what: str) -> str:
    """Return a word for people for the type of a block."""
    return "thinking" if what in _THINKING else what.replace("_", " ") or "unknown part"


def kept(form: str | None, block: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a part that keeps its JSON, if it came in a form."""
    return {"form": form, "raw": block if form else None}


def text(block: dict[str, Any], form: str | None) -> Part:
    """Read a block of text, or a refusal."""
    text = block.get("text")
    if type(text) is not str or not text:
        text = word(block.get("refusal"))
    return Text(text, form=form, raw=block if form else None)


def result(
    call_id: str,
    content: Any,
    *,
    success: bool = True,
    name: str | None = None,
    form: str | None = None,
    raw: Any = None,
    open_types: bool = False,
) -> Result:
    """Read a tool's result: text and blocks as parts, any other value as JSON text beside the value.

    With ``open_types`` whatever has a type is a block: a provider's own may be of a type that is new.
    """
    if isinstance(content, str) or content is None:
        parts: tuple[Part, ...] = (Text(content),) if content else ()
        return Result(call_id, parts, success, name, form=form, raw=raw)
    listed = [content] if isinstance(content, dict) else content
    if isinstance(listed, list) and listed and all(_is_block(each, open_types) for each in listed):
        return Result(call_id, tuple(blocks(listed, form)), success, name, form=form, raw=raw)
    return Result(call_id, (Text(as_json(content)),), success, name, content, form=form, raw=raw)


def _is_block(value: Any, open_types: bool) -> bool:
    """Tell a block from data that a tool gave."""
    return isinstance(value, dict) and (kind(value) in _readers() or (open_types and kind(value) != ""))


def media(mime: str, *, data: str | None = None, url: str | None = None, name: str | None = None, **kept: Any) -> Media:
    """Make media of what a block says; a ``data:`` URL is data."""
    if url is not None and url.startswith("data:") and ";base64," in url:
        head, _, data = url.partition(";base64,")
        mime, url = head.removeprefix("data:").partition(";")[0] or mime, None
    group = mime.partition("/")[0]
    return Media(group if group in ("image", "audio", "video") else "document", mime, data, url, name, **kept)
