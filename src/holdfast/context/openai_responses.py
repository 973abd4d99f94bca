"""OpenAI's Responses API: a flat list of items; each call is an item, and so is its output.

Reasoning must be followed by what it led to, as the API itself gave it. Calls of the tools that OpenAI defines
(shell, patches...) are answered by items of their own types, some of which nobody but the tool can make.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..model.forms.given import kind
from .normal import Call, Item, Media, Notes, Opaque, Part, Result, Text, as_text, is_image, is_there, texts, verbatim
from .rules import Rules

FORM = "openai-responses"


def takes(part: Part, role: str) -> bool:
    """Say whether media can be written: images and PDF, from the user and from tools."""
    if not isinstance(part, Media) or role == "assistant":
        return False
    return is_image(part) if part.kind == "image" else part.mime == "application/pdf" and is_there(part)


def closes(call: Call) -> bool:
    """Say whether a result can be made up: no screenshot can, nor a list of tools."""
    raw = verbatim(call, FORM)
    return raw is None or kind(raw) in _OUTPUTS


def tidy(items: Sequence[Item], notes: Notes) -> list[Item]:
    """Leave out reasoning that leads to nothing; looked at from the end, since reasoning may follow reasoning."""
    found = list[Item]()
    for item in reversed(items):
        if _is_reasoning(item) and not (found and found[-1].role == "assistant" and found[-1].raw is not None):
            notes.add("left out reasoning that nothing follows", item.seq)
        else:
            found.append(item)
    return found[::-1]


def _is_reasoning(item: Item) -> bool:
    return any(isinstance(part, Opaque) and kind(part.raw) == "reasoning" for part in item.parts)


RULES = Rules(
    form=FORM,
    takes=takes,
    id=re.compile(r"[^\x00-\x1f]+"),
    most=64,
    name=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
    closes=closes,
    tidy=tidy,
)


def write(items: Sequence[Item], model: str | None) -> list[dict[str, Any]]:
    """Write items for ``responses.create``."""
    return [written for item in items for written in _items(item)]


def _items(item: Item) -> Iterator[dict[str, Any]]:
    if item.form == FORM and item.raw is not None:
        yield item.raw
        return
    yield from (_result(part) for part in item.parts if isinstance(part, Result))
    said = tuple(part for part in item.parts if isinstance(part, Text | Media))
    if said:
        role = "assistant" if item.role == "assistant" else "user"
        yield {"role": role, "content": texts(said) if role == "assistant" else _content(said)}
    yield from (
        _call(part) if isinstance(part, Call) else part.raw for part in item.parts if isinstance(part, Call | Opaque)
    )


def _call(part: Call) -> Any:
    raw = verbatim(part, FORM)
    if raw is not None:
        return raw
    arguments = as_text(part.arguments)
    return {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": arguments}


def _result(part: Result) -> Any:
    raw = verbatim(part, FORM)
    if raw is not None:
        return raw
    asked = None if part.to is None else verbatim(part.to, FORM)
    return _OUTPUTS[kind(asked) if isinstance(asked, dict) else "function_call"](part)


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


_OUTPUTS: dict[str, Callable[[Result], dict[str, Any]]] = {
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


def request(system: str | None, messages: list[Any]) -> dict[str, Any]:
    """Give the arguments of ``client.responses.create``."""
    return {"input": messages} if system is None else {"instructions": system, "input": messages}
