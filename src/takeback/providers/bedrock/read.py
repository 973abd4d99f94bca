"""Messages of Converse as parts, and what other programs did to them put right."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any

from ..blocks import Read, media
from ..known import only_known
from ..lenient import dicts, fields, joined, with_role, word
from ..normal import Call, Opaque, Part, Result, Text, as_json, is_same
from ..provider import Note
from .form import FORM, block_text, is_clients
from .known import FIELDS

BLOCKS: dict[str, Read] = {}  # none has a type
IMAGES = {f"image/{name}": name for name in ("png", "jpeg", "gif", "webp")}
_OFFICE = "application/vnd.openxmlformats-officedocument."
DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    f"{_OFFICE}wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    f"{_OFFICE}spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
VIDEOS = {
    "video/x-matroska": "mkv",
    "video/quicktime": "mov",
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/x-flv": "flv",
    "video/mpeg": "mpeg",
    "video/x-ms-wmv": "wmv",
    "video/3gpp": "three_gp",
}
SOUNDS = {
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/ogg": "ogg",
    "audio/opus": "opus",
    "audio/flac": "flac",
    "audio/aac": "aac",
    "audio/mp4": "m4a",
    "audio/webm": "webm",
}
_MIMES = {
    kind: {name: mime for mime, name in reversed(table.items())}
    for kind, table in {"image": IMAGES, "document": DOCUMENTS, "video": VIDEOS, "audio": SOUNDS}.items()
}


def read(value: dict[str, Any]) -> list[Part]:
    """Read a message; ids are given to calls that have none, by their place."""
    content, count = value.get("content"), 0
    said = isinstance(content, str) and content
    found: list[Part] = [Text(said)] if said else [*map(_part, dicts(content))]
    for at, part in enumerate(found):
        if isinstance(part, Call):
            found[at] = part if part.id else Call(f"call-{count}", part.name, part.arguments)
            count += 1
    return found


def _part(block: dict[str, Any]) -> Part:
    """Read a block by the key that names it."""
    name = next((key for key in block if key in _READERS), "")
    found = _READERS[name](block) if name else None
    return Opaque(_named(name or next(iter(block), "")), form=FORM, raw=block) if found is None else found


def _named(key: str) -> str:
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in key)
    return _WORDS.get(key, words or "unknown part")


# A mark for the cache says nothing that anybody else would miss.
_WORDS = {"reasoningContent": "thinking", "cachePoint": ""}


def _text(block: dict[str, Any]) -> Part:
    return Text(block_text(block), form=FORM, raw=block)


def _guarded(block: dict[str, Any]) -> Part | None:
    image = fields(block.get("guardContent")).get("image")
    return _text(block) if image is None else _media("image", image, block)


def _use(block: dict[str, Any]) -> Part | None:
    use = fields(block["toolUse"])
    if not is_clients(block["toolUse"]):
        return None
    return Call(word(use.get("toolUseId")), word(use.get("name")), use.get("input"), form=FORM, raw=block)


def _result(block: dict[str, Any]) -> Part | None:
    """Read a result; one that is nothing but JSON is that value."""
    answer = fields(block["toolResult"])
    if not is_clients(block["toolResult"]):
        return None
    given, success = list(dicts(answer.get("content"))), answer.get("status") != "error"
    value = given[0]["json"] if len(given) == 1 and "json" in given[0] else None
    parts = tuple(_json(each) if "json" in each else _part(each) for each in given)
    return Result(word(answer.get("toolUseId")), parts, success, None, value, form=FORM, raw=block)


def _json(block: dict[str, Any]) -> Part:
    return Text(as_json(block["json"]), form=FORM, raw=block)


def _searched(block: dict[str, Any]) -> Part:
    found = fields(block["searchResult"])
    said = (word(each.get("text")) for each in dicts(found.get("content")))
    return Text(joined(word(found.get("title")), word(found.get("source")), *said), form=FORM, raw=block)


def _sourced(kind: str) -> Callable[[dict[str, Any]], Part | None]:
    return lambda block: _media(kind, block[kind], block)


def _media(kind: str, given: Any, block: dict[str, Any]) -> Part | None:
    """Read media that is at hand or lies in S3; a document of text is text, which every provider takes."""
    source, name = fields(fields(given).get("source")), word(fields(given).get("name")) or None
    mime = _MIMES[kind].get(word(fields(given).get("format")), f"{kind}/*")
    uri, data = word(fields(source.get("s3Location")).get("uri")), word(source.get("bytes"))
    texts = [word(source.get("text")), *(word(each.get("text")) for each in dicts(source.get("content")))]
    if said := joined(*texts) or (data and mime.startswith("text/") and _decoded(data)):
        return Text(f"{name}:\n{said}" if name else said, form=FORM, raw=block)
    kept: dict[str, Any] = {"name": name, "form": FORM, "raw": block}
    return media(mime, data=data, **kept) if data else media(mime, url=uri, **kept) if uri else None


def _decoded(data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode(errors="replace")
    except (binascii.Error, ValueError):
        return ""


_READERS: dict[str, Callable[[dict[str, Any]], Part | None]] = {
    "text": _text,
    "toolUse": _use,
    "toolResult": _result,
    "image": _sourced("image"),
    "document": _sourced("document"),
    "video": _sourced("video"),
    "audio": _sourced("audio"),
    "guardContent": _guarded,
    "citationsContent": _text,
    "searchResult": _searched,
    "reasoningContent": lambda block: None,
    "cachePoint": lambda block: None,
}


# ---------------------------------------------------------------------- put right


def sound(role: str, value: dict[str, Any], note: Note) -> dict[str, Any]:
    """Return a message as the API allows it: blocks with one key each, and the fields that are known inside."""
    value = only_known(with_role(role, value, note), FIELDS, FORM, note)
    content = value.get("content")
    if not isinstance(content, list):
        return value
    right = [each for block in content for each in _apart(block)]
    return value if is_same(right, content) else {**value, "content": right}


def _apart(block: Any) -> list[Any]:
    """Return a block of each of the keys; one that has lost all that it held is none."""
    if not isinstance(block, dict) or (len(block) == 1 and "toolResult" not in block and {} not in block.values()):
        return [block]
    if len(block) != 1:
        return [each for key in block for each in _apart({key: block[key]})]
    if {} in block.values() and "json" not in block:
        return []
    answer = block.get("toolResult")
    content = answer.get("content") if isinstance(answer, dict) else None
    if not isinstance(content, list):
        return [block]
    right = [each for inner in content for each in _apart(inner)]
    return [block if is_same(right, content) else {"toolResult": {**fields(answer), "content": right}}]
