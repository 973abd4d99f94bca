"""Gemini: contents of user and model take turns; a content of calls is followed by one with all their responses.

Calls and responses may have no ids and then go by their order; a response has an id exactly if its call has one.
Gemini 3 wants the first call of a content signed: one that Gemini never made gets the sentence that its documentation
gives for conversations from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..model.forms.given import fields, word
from .blocks import either
from .normal import Call, Item, Media, Part, Result, Text, texts, verbatim
from .rules import Rules

FORM = "gemini"
UNSIGNED = "skip_thought_signature_validator"
_OLD = re.compile(r"(.*/)?gemini-[12]\b")
_TYPES = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif", "application/pdf", "audio/", "video/")
_OWN_URLS = ("gs://", "https://generativelanguage.googleapis.com/")


def takes(part: Part, role: str) -> bool:
    """Say whether media can be written: from the user, as data or from Google's own storage."""
    if not isinstance(part, Media) or role != "user" or not part.mime.startswith(_TYPES):
        return False
    return part.data is not None or (part.url is not None and part.url.startswith(_OWN_URLS))


def agrees(result: Result) -> bool:
    """Say whether a stored response fits its call: the same name, and an id exactly if that has one."""
    answer = fields(either(result.raw, "functionResponse"))
    return (
        result.to is not None
        and answer.get("name") == result.to.name
        and (word(answer.get("id")) or None) == _id(result.to)
    )


def _id(call: Call) -> str | None:
    raw = verbatim(call, FORM)
    return (call.id if raw is None else word(fields(either(raw, "functionCall")).get("id"))) or None


RULES = Rules(
    form=FORM,
    takes=takes,
    alternates=True,
    ordered=True,
    objects=True,
    id=None,
    name=re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"),
    agrees=agrees,
)


def write(items: Sequence[Item], model: str | None) -> list[dict[str, Any]]:
    """Write contents for ``models.generate_content``."""
    signs = model is None or _OLD.match(model) is None
    return [_content(item, signs) for item in items]


def _content(item: Item, signs: bool) -> dict[str, Any]:
    role = "model" if item.role == "assistant" else "user"
    if item.form == FORM and item.raw is not None:
        known = item.raw if item.raw.get("role") == role else {"role": role, **_without_role(item.raw)}
        return known if known.keys() <= {"role", "parts"} else {key: known[key] for key in ("role", "parts")}
    return {"role": role, "parts": list(_parts(item, signs))}


def _without_role(raw: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key != "role"}


def _parts(item: Item, signs: bool) -> Iterator[Any]:
    for part in item.parts:
        raw = verbatim(part, FORM)
        if raw is None and isinstance(part, Call):
            yield {**_call(part), "thoughtSignature": UNSIGNED} if signs else _call(part)
        else:
            yield _part(part) if raw is None else raw
        signs = signs and not isinstance(part, Call)  # of calls side by side only the first is signed


def _call(part: Call) -> dict[str, Any]:
    named = {"id": part.id} if part.id else {}
    return {"functionCall": {**named, "name": part.name, "args": part.arguments}}


def _part(part: Part) -> dict[str, Any]:
    match part:
        case Text():
            return {"text": part.text}
        case Result():
            return {"functionResponse": _response(part)}
        case Media(data=None):
            return {"fileData": {"fileUri": part.url, "mimeType": part.mime}}
        case Media():
            return {"inlineData": {"mimeType": part.mime, "data": part.data}}
    raise TypeError(f"{type(part).__name__} should have been left out")


def _response(part: Result) -> dict[str, Any]:
    call_id = part.call_id if part.to is None else _id(part.to)
    named = {"name": part.name} if call_id is None else {"id": call_id, "name": part.name}
    value = part.value if part.value is not None else texts(part.parts)
    if part.success and isinstance(value, dict) and "error" not in value:
        return {**named, "response": value}
    return {**named, "response": {"output" if part.success else "error": value}}


def request(system: str | None, messages: list[Any]) -> dict[str, Any]:
    """Give the arguments of ``client.models.generate_content``."""
    return {"contents": messages, **({} if system is None else {"config": {"system_instruction": system}})}
