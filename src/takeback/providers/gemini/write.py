"""Requests for ``client.models.generate_content``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...errors import Invalid
from ..lenient import given, merged
from ..normal import Call, Item, Media, Part, Result, Text, texts, verbatim
from .form import FORM
from .rules import UNSIGNED, sent_id, signs


def write(items: Sequence[Item], model: str | None) -> list[dict[str, Any]]:
    """Write contents for ``models.generate_content``."""
    signed = model is None or signs(model)
    return [_content(item, signed) for item in items]


def _content(item: Item, signed: bool) -> dict[str, Any]:
    role = "model" if item.role == "assistant" else "user"
    if item.form == FORM and item.raw is not None:
        return sendable(item.raw, item.role)
    return {"role": role, "parts": list(_parts(item, signed))}


def sendable(raw: dict[str, Any], role: str) -> dict[str, Any]:
    """Return a stored content as a request may hold it, with one of the two roles."""
    name = "model" if role == "assistant" else "user"
    return raw if len(raw) == 2 and raw.get("role") == name else {"role": name, "parts": raw["parts"]}


def plain(role: str, text: str) -> dict[str, Any]:
    """Write a content of nothing but text."""
    return {"role": "model" if role == "assistant" else "user", "parts": [{"text": text}]}


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
    call_id = part.call_id if part.to is None else sent_id(part.to)
    named = {"name": part.name} if call_id is None else {"id": call_id, "name": part.name}
    value = part.value if part.value is not None else texts(part.parts)
    if part.success and isinstance(value, dict) and "error" not in value:
        return {**named, "response": value}
    return {**named, "response": {"output" if part.success else "error": value}}


def request(model: str | None, system: str | None, messages: list[Any]) -> dict[str, Any]:
    """Return the arguments of ``client.models.generate_content``."""
    config = None if system is None else {"system_instruction": system}
    return given(model=model, contents=messages, config=config)


def merge(given: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with more of the caller's: all but the call's own three are settings in ``config``."""
    outer = {name: value for name, value in more.items() if name in ("model", "contents")}
    inner = {name: value for name, value in more.items() if name not in ("model", "contents", "config")}
    config = merged(_settings(more.get("config")), inner, "config")
    if "system_instruction" not in config and "systemInstruction" in config:
        config["system_instruction"] = config.pop("systemInstruction")
    config = merged(given.get("config") or {}, config, "config")
    return merged({name: value for name, value in given.items() if name != "config"}, outer) | (
        {"config": config} if config else {}
    )


def _settings(config: Any) -> dict[str, Any]:
    """Return settings as a dict, which may hold objects of the SDK, as its own config may."""
    if config is None or isinstance(config, Mapping):
        return dict(config or {})
    names = getattr(config, "model_fields_set", None)
    if names is None:
        raise Invalid(f"config must be a dict or the SDK's GenerateContentConfig, not {type(config).__name__}")
    return {name: getattr(config, name) for name in names}
