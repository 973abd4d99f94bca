"""Messages of Anthropic's as parts, and what other programs did to them put right."""

from __future__ import annotations

from typing import Any

from ..blocks import Read, blocks, kept, media, result, text
from ..known import only_known
from ..lenient import fields, kind, with_role, word
from ..normal import Call, Part, Text
from ..provider import Note
from .form import FORM
from .known import FIELDS


def read(value: dict[str, Any]) -> list[Part]:
    """Read a message of Anthropic's."""
    return blocks(value.get("content"), FORM)


def _tool_use(block: dict[str, Any], form: str | None) -> Part:
    raw = block if form else None
    return Call(word(block.get("id")), word(block.get("name")), block.get("input"), form=form, raw=raw)


def _tool_result(block: dict[str, Any], form: str | None) -> Part:
    failed, to = block.get("is_error") is True, word(block.get("tool_use_id"))
    return result(to, block.get("content"), success=not failed, open_types=form == FORM, **kept(form, block))


def _sourced(block: dict[str, Any], form: str | None) -> Part | None:
    """Read an image or a document."""
    source, name = fields(block.get("source")), word(block.get("title")) or None
    mime = word(source.get("media_type")) or ("image/*" if kind(block) == "image" else "application/pdf")
    if kind(source) == "text":
        return Text(word(source.get("data")), **kept(form, block))
    if kind(source) == "base64" and word(source.get("data")):
        return media(mime, data=source["data"], name=name, **kept(form, block))
    if kind(source) == "url" and word(source.get("url")):
        return media(mime, url=source["url"], name=name, **kept(form, block))
    return None


BLOCKS: dict[str, Read] = {
    "text": text,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "image": _sourced,
    "document": _sourced,
}


# ---------------------------------------------------------------------- put right


def sound(role: str, value: dict[str, Any], note: Note) -> dict[str, Any]:
    """Return a message as the API allows it: with the blocks and fields that are known, whoever said it."""
    kept: dict[str, Any] = only_known(with_role(role, value, note), FIELDS, FORM, note)
    return kept
