"""Requests for ``client.responses.create``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..lenient import given, kind
from ..normal import Call, Item, Media, Opaque, Part, Result, Text, as_text, texts, verbatim
from .form import FORM

_OF_SDK = frozenset({"parsed_arguments", "parsed", "created_by"})
_NULLS = frozenset({"encrypted_content"})


def write(items: Sequence[Item], model: str | None) -> list[dict[str, Any]]:
    """Write items for ``responses.create``."""
    return [written for item in items for written in _items(item)]


def _items(item: Item) -> Iterator[dict[str, Any]]:
    if item.form == FORM and item.raw is not None:
        yield sendable(item.raw)
        return
    yield from (_result(part) for part in item.parts if isinstance(part, Result))
    said = tuple(part for part in item.parts if is_said(part))
    if said:
        role = item.role if item.role in ("assistant", "developer") else "user"
        yield {"role": role, "content": texts(said) if role == "assistant" else _content(said)}
    for part in item.parts:
        if isinstance(part, Call):
            yield _call(part)
        elif isinstance(part, Opaque) and not is_said(part):
            yield sendable(part.raw)


def is_said(part: Part) -> bool:
    """Return whether a part is said in a message, and no item of its own."""
    return isinstance(part, Text | Media) or (isinstance(part, Opaque) and kind(part.raw).startswith("input_"))


def sendable(raw: dict[str, Any]) -> dict[str, Any]:
    """Return an item as a request may hold it: without what only clients add, and without nulls."""
    if None not in raw.values() and _OF_SDK.isdisjoint(raw):  # as nearly all are
        return raw
    kept = {key: value for key, value in raw.items() if key not in _OF_SDK and (value is not None or key in _NULLS)}
    return raw if len(kept) == len(raw) else kept


def _call(part: Call) -> Any:
    raw = verbatim(part, FORM)
    if raw is not None:
        return sendable(raw)
    arguments = as_text(part.arguments)
    return {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": arguments}


def _result(part: Result) -> Any:
    raw = verbatim(part, FORM)
    if raw is not None:
        return raw
    asked = None if part.to is None else verbatim(part.to, FORM)
    return OUTPUTS[kind(asked) if isinstance(asked, dict) else "function_call"](part)


def _said(part: Result) -> str:
    return texts(part.parts) or ("" if part.success else "failed")


def _function(part: Result) -> dict[str, Any]:
    has_media = any(isinstance(each, Media) for each in part.parts)
    output = [_part(each) for each in part.parts] if has_media else _said(part)
    return {"type": "function_call_output", "call_id": part.call_id, "output": output}


def _custom(part: Result) -> dict[str, Any]:
    return {"type": "custom_tool_call_output", "call_id": part.call_id, "output": _said(part)}


def _local_shell(part: Result) -> dict[str, Any]:
    return {"type": "local_shell_call_output", "id": part.call_id, "output": _said(part)}


def _shell(part: Result) -> dict[str, Any]:
    outcome = {"type": "exit", "exit_code": 0 if part.success else 1}
    output = {"stdout": _said(part) if part.success else "", "stderr": "" if part.success else _said(part)}
    return {"type": "shell_call_output", "call_id": part.call_id, "output": [{**output, "outcome": outcome}]}


def _patch(part: Result) -> dict[str, Any]:
    status = "completed" if part.success else "failed"
    return {"type": "apply_patch_call_output", "call_id": part.call_id, "status": status, "output": _said(part)}


OUTPUTS: dict[str, Callable[[Result], dict[str, Any]]] = {
    "function_call": _function,
    "custom_tool_call": _custom,
    "local_shell_call": _local_shell,
    "shell_call": _shell,
    "apply_patch_call": _patch,
}


def _content(parts: tuple[Part, ...]) -> Any:
    if all(isinstance(part, Text) and verbatim(part, FORM) is None for part in parts):
        return texts(parts)
    return [_part(part) for part in parts]


def _part(part: Part) -> Any:
    raw = verbatim(part, FORM)
    if raw is not None:
        return raw
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    if not isinstance(part, Media):
        raise TypeError(f"{type(part).__name__} should have been left out")
    url = part.url or f"data:{part.mime};base64,{part.data}"
    if part.kind == "image":
        return {"type": "input_image", "detail": "auto", "image_url": url}
    if part.url is not None:
        return {"type": "input_file", "file_url": url}
    return {"type": "input_file", "filename": part.name or "document.pdf", "file_data": url}


def request(model: str | None, system: str | None, messages: list[Any]) -> dict[str, Any]:
    """Return the arguments of ``client.responses.create``."""
    return given(model=model, instructions=system, input=messages)
