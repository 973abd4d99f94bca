"""The content blocks of Anthropic's Messages API: where each may appear and what it must contain."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import NoneType
from typing import Any

from ._shape import (
    Fields,
    Notes,
    Object,
    an_object,
    filled,
    from_base64,
    image_matches,
    is_a,
    objects,
    one_of,
    spelled,
)

RESULTS = (
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
)
THOUGHTS = ("thinking", "redacted_thinking")

_CACHE = {"cache_control": (Mapping, NoneType)}
_CALL = {**_CACHE, "caller": (Mapping, NoneType)}
# Unknown fields are refused: "messages.0.content.0.text.name: Extra inputs are not permitted".
_FIELDS: dict[str, Fields] = {
    "text": Fields({"text": str}, {**_CACHE, "citations": (list, NoneType)}),
    "image": Fields({"source": Mapping}, {**_CACHE, "transformations": (Mapping, NoneType)}),
    "document": Fields(
        {"source": Mapping},
        {**_CACHE, "title": (str, NoneType), "context": (str, NoneType), "citations": (Mapping, NoneType)},
    ),
    "search_result": Fields({"content": list, "source": str, "title": str}, {**_CACHE, "citations": Mapping}),
    "thinking": Fields({"thinking": str, "signature": str}),
    "redacted_thinking": Fields({"data": str}),
    "tool_use": Fields({"id": str, "name": str, "input": Mapping}, {**_CALL, "toolset_name": (str, NoneType)}),
    "tool_result": Fields(
        {"tool_use_id": str},
        {**_CACHE, "content": (str, list), "is_error": bool, "toolset_name": (str, NoneType)},
    ),
    "server_tool_use": Fields({"id": str, "name": str, "input": Mapping}, _CALL),
    "container_upload": Fields({"file_id": str}, _CACHE),
    "tool_reference": Fields({"tool_name": str}, _CACHE),
    "browser_state": Fields({"tabs": list}, {**_CACHE, "state_changes": (list, NoneType)}),
    **{name: Fields({"tool_use_id": str, "content": Mapping}, _CALL) for name in RESULTS},
    "web_search_tool_result": Fields({"tool_use_id": str, "content": (list, Mapping)}, _CALL),
    "web_search_result": Fields({"url": str, "title": str, "encrypted_content": str}, {"page_age": (str, NoneType)}),
}
# "`tool_use` blocks can only be in `assistant` messages", "`tool_result` blocks can only be in `user` messages"
ROLES: dict[str, frozenset[str]] = {
    "user": frozenset({"text", "image", "document", "search_result", "tool_result", "container_upload"}),
    "assistant": frozenset({"text", *THOUGHTS, "tool_use", "server_tool_use", *RESULTS}),
    "system": frozenset({"text"}),
}
_IN_RESULTS = frozenset({"text", "image", "document", "search_result", "tool_reference", "browser_state"})
_SERVER_TOOLS = frozenset(
    {
        "web_search",
        "web_fetch",
        "code_execution",
        "bash_code_execution",
        "text_editor_code_execution",
        "tool_search_tool_regex",
        "tool_search_tool_bm25",
    }
)
_URL = Fields({"type": str, "url": str})
_FILE = Fields({"type": str, "file_id": str})
_BASE64 = Fields({"type": str, "media_type": str, "data": str})
_SOURCES: dict[str, dict[str, Fields]] = {
    "image": {"base64": _BASE64, "url": _URL, "file": _FILE},
    "document": {
        "base64": _BASE64,
        "text": _BASE64,
        "url": _URL,
        "file": _FILE,
        "content": Fields({"type": str, "content": (str, list)}),
    },
}
_MEDIA: dict[tuple[str, str], frozenset[str]] = {
    ("image", "base64"): frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"}),
    ("document", "base64"): frozenset({"application/pdf"}),
    ("document", "text"): frozenset({"text/plain"}),
}
# "image exceeds 5 MB maximum: 5607404 bytes > 5242880 bytes", counted in base64
_LARGEST_IMAGE = 5 * 1024 * 1024


def check(notes: Notes, where: str, value: Any, allowed: Collection[str], *, inner: bool = False) -> None:
    """Check a block that may have the allowed types; ``inner`` means that it is nested in another block."""
    block = an_object(notes, where, value)
    if block is None:
        return
    kind = block.get("type")
    # "Input tag 'x' found using 'type' does not match any of the expected tags"
    if not one_of(notes, f"{where}.type", kind, allowed):
        return
    fields = _FIELDS[str(kind)]
    an_object(notes, where, block, Fields({"type": str, **fields.required}, fields.optional))
    if block.get("cache_control") is not None and is_a(block["cache_control"], Mapping):
        one_of(notes, f"{where}.cache_control.type", block["cache_control"].get("type"), {"ephemeral"})
    if kind == "text":
        _text(notes, where, block.get("text"), inner=inner)
    elif kind in ("image", "document"):
        _source(notes, f"{where}.source", str(kind), block.get("source"))
    elif kind == "search_result":
        _inner(notes, where, block, {"text"})
    elif kind == "web_search_tool_result":
        _inner(notes, where, block, {"web_search_result"})
    elif kind == "tool_use":
        # "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
        spelled(notes, f"{where}.id", block.get("id"), "[a-zA-Z0-9_-]+")
        spelled(notes, f"{where}.name", block.get("name"), "[a-zA-Z0-9_-]+", 128)
    elif kind == "server_tool_use":
        # "server_tool_use.id: String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'"
        spelled(notes, f"{where}.id", block.get("id"), "srvtoolu_[a-zA-Z0-9_]+")
        one_of(notes, f"{where}.name", block.get("name"), _SERVER_TOOLS)
    elif kind == "tool_result":
        _tool_result(notes, where, block)
    else:
        # "Invalid `signature` in `thinking` block", "redacted_thinking.data" and file ids must be there
        for name in ("signature", "data", "file_id", "tool_name"):
            filled(notes, f"{where}.{name}", block.get(name))


def _text(notes: Notes, where: str, text: Any, *, inner: bool) -> None:
    if text == "":
        # "messages: text content blocks must be non-empty"
        notes.add(where, "text content blocks must be non-empty")
    elif isinstance(text, str) and not inner and not text.strip():
        # "messages: text content blocks must contain non-whitespace text"; not known of blocks in other blocks.
        notes.add(where, "text content blocks must contain non-whitespace text")


def _inner(notes: Notes, where: str, holder: Object, allowed: Collection[str]) -> None:
    content = holder.get("content")
    for index, block in enumerate(content if isinstance(content, list) else []):
        check(notes, f"{where}.content[{index}]", block, allowed, inner=True)


def _tool_result(notes: Notes, where: str, block: Object) -> None:
    _inner(notes, where, block, _IN_RESULTS)
    if block.get("is_error") is True and any(each.get("type") != "text" for _, each in objects(block.get("content"))):
        # "all content must be type `text` if `is_error` is true"
        notes.add(where, "is an error, so that all its content must be text")


def _source(notes: Notes, where: str, kind: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        return
    form = value.get("type")
    if not one_of(notes, f"{where}.type", form, _SOURCES[kind]):
        return
    an_object(notes, where, value, _SOURCES[kind][str(form)])
    filled(notes, f"{where}.url", value.get("url"))
    filled(notes, f"{where}.file_id", value.get("file_id"))
    # "Only HTTPS URLs are supported."
    if form == "url" and not str(value.get("url")).startswith("https://"):
        notes.add(f"{where}.url", "is not an https URL")
    if form == "content":
        _inner(notes, where, value, {"text", "image"})
    if (kind, form) in _MEDIA:
        one_of(notes, f"{where}.media_type", value.get("media_type"), _MEDIA[kind, str(form)])
    if form == "base64" and isinstance(value.get("data"), str):
        _encoded(notes, f"{where}.data", kind, value)


def _encoded(notes: Notes, where: str, kind: str, source: Object) -> None:
    data = from_base64(source["data"])
    if data is None:
        # "messages.0.content.0.image.source.base64.data: invalid base64 data"
        notes.add(where, "is not base64")
    elif kind == "image":
        image_matches(notes, where, source.get("media_type"), data)
        if len(source["data"]) > _LARGEST_IMAGE:
            notes.add(where, f"is an image of {len(source['data'])} bytes in base64, more than {_LARGEST_IMAGE}")
