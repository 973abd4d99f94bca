"""Messages of Anthropic's as parts, and what other programs did to them put right."""

from __future__ import annotations

from typing import Any

from ..blocks import Read, blocks, kept, media, result, text
from ..lenient import fields, kind, with_role, word
from ..normal import Call, Part, Text, is_same
from ..provider import Note
from .form import FORM, is_block

_MARK = frozenset({"type", "cache_control"})
_FIELDS: dict[str, frozenset[str]] = {
    "text": _MARK | {"text", "citations"},
    "image": _MARK | {"source", "transformations"},
    "document": _MARK | {"source", "title", "context", "citations"},
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
    "tool_use": _MARK | {"id", "name", "input", "caller", "toolset_name"},
    "tool_result": _MARK | {"tool_use_id", "content", "is_error", "toolset_name"},
}


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
    """Return a message as the API allows it: with the blocks and fields that are known, unless the API said it."""
    value = with_role(role, value, note)
    if "stop_reason" in value and kind(value) == "message":
        return value
    return _with_blocks(value, note)


def _with_blocks(holder: dict[str, Any], note: Note) -> dict[str, Any]:
    """Return a message or a result with the blocks that are known, each with the fields that are known."""
    content = holder.get("content")
    if not isinstance(content, list) or all(map(_is_plain, content)):
        return holder
    kept = [_block(block, note) for block in content if _is_known(block, note)]
    return holder if is_same(kept, content) else {**holder, "content": kept}


def _is_plain(block: Any) -> bool:
    """Return whether a block is right at a glance, as nearly all are."""
    if type(block) is not dict:
        return False
    name = block.get("type")
    known = _FIELDS.get(name) if type(name) is str else None
    return known is not None and block.keys() <= known and (name != "tool_result" or type(block.get("content")) is str)


def _is_known(block: Any, note: Note) -> bool:
    known = not isinstance(block, dict) or kind(block) == "text" or is_block(block)
    if not known:
        note(f"left out {kind(block) or 'a block without a type'}, which anthropic does not know")
    return known


def _block(block: Any, note: Note) -> Any:
    if not isinstance(block, dict):
        return block
    known = _FIELDS.get(kind(block))
    if known is not None and block.keys() - known:
        note("left out fields that anthropic does not know")
        block = {key: value for key, value in block.items() if key in known}
    return _with_blocks(block, note) if kind(block) == "tool_result" else block
