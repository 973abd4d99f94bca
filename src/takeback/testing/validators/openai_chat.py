"""The Chat Completions API of OpenAI: what ``client.chat.completions.create`` accepts.

Sources: the API reference (platform.openai.com/docs/api-reference/chat/create), the guides to function calling,
images, files and audio, and the API's own errors, quoted at the rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import NoneType
from typing import Any

from ._shape import (
    Fields,
    Notes,
    Object,
    a_list,
    an_object,
    file_data,
    filled,
    from_base64,
    identity,
    image_url,
    json_object,
    json_only,
    objects,
    one_of,
    spelled,
)

_NAME = r"[a-zA-Z0-9_-]+"
_LONGEST_NAME = 64
# "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40"; newer
# models were seen to take 64, so that 40 is what every model takes.
_LONGEST_ID = 40
# "string too long. Expected a string with maximum length 10485760"
_LONGEST_TEXT = 10_485_760
_CONTENT = (str, list)
_NAMED = {"name": str}
_ROLES: dict[str, Fields] = {
    "developer": Fields({"content": _CONTENT}, _NAMED),
    "system": Fields({"content": _CONTENT}, _NAMED),
    "user": Fields({"content": _CONTENT}, _NAMED),
    "assistant": Fields(
        {},
        {
            **_NAMED,
            "content": (str, list, NoneType),
            "refusal": (str, NoneType),
            "audio": (Mapping, NoneType),
            "tool_calls": list,
            "function_call": (Mapping, NoneType),
            # Not in the reference, but in every answer, and accepted when answers are sent back.
            "annotations": (list, NoneType),
        },
    ),
    "tool": Fields({"content": _CONTENT, "tool_call_id": str}),
    "function": Fields({"content": (str, NoneType), "name": str}),
}
# "Image URLs are only allowed for messages with role 'user'"
_PARTS: dict[str, frozenset[str]] = {
    "developer": frozenset({"text"}),
    "system": frozenset({"text"}),
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
    "tool": frozenset({"text"}),
}
_PART_TYPES: dict[str, type] = {
    "text": str,
    "refusal": str,
    "image_url": Mapping,
    "input_audio": Mapping,
    "file": Mapping,
}
# What other servers of this format put beside the content and require back (DeepSeek, OpenRouter); OpenAI's own models
# say "Additional properties are not allowed ('reasoning_content' was unexpected)".
_REASONING = {"reasoning_content": (str, NoneType), "reasoning": (str, NoneType), "reasoning_details": (list, NoneType)}
_OPENAIS = re.compile(r"(openai/)?(gpt-\d|o\d|chatgpt)")
_CALL_TYPES = {"function": "arguments", "custom": "input"}


def check(request: Mapping[str, Any]) -> list[str]:
    """Return what the API would have against a request."""
    notes = Notes()
    json_only(notes, "", request)
    if "model" in request and not (isinstance(request["model"], str) and request["model"]):
        notes.add("model", "is not the name of a model")
    for index, tool in objects(request.get("tools")):
        declared = tool.get(str(tool.get("type")))
        if isinstance(declared, Mapping):
            spelled(notes, f"tools[{index}].name", declared.get("name"), _NAME, _LONGEST_NAME)
    # "Invalid 'messages': empty array. Expected an array with minimum length 1"
    messages = a_list(notes, "messages", request.get("messages"))
    for index, message in enumerate(messages):
        _message(notes, f"messages[{index}]", message, reasons=not _OPENAIS.match(str(request.get("model"))))
    _pairs(notes, [message if isinstance(message, Mapping) else {} for message in messages])
    return notes.found


def _message(notes: Notes, where: str, value: Any, *, reasons: bool) -> None:
    message = an_object(notes, where, value)
    if message is None or not one_of(notes, f"{where}.role", message.get("role"), _ROLES):
        return
    role = message["role"]
    # "Invalid value for 'content': expected a string, got null."
    fields = _ROLES[role]
    beside = _REASONING if reasons and role == "assistant" else {}
    an_object(notes, where, message, Fields({"role": str, **fields.required}, {**fields.optional, **beside}))
    # "Expected a string that matches the pattern '^[^\\s<|\\\\/>]+$'" for the names of participants
    spelled(notes, f"{where}.name", message.get("name"), r"[^\s<|\\/>]+", _LONGEST_NAME)
    _content(notes, where, role, message.get("content"))
    filled(notes, f"{where}.tool_call_id", message.get("tool_call_id"))
    if role == "assistant":
        _assistant(notes, where, message)


def _content(notes: Notes, where: str, role: str, content: Any) -> None:
    if isinstance(content, str) and len(content) > _LONGEST_TEXT:
        notes.add(f"{where}.content", f"has more than {_LONGEST_TEXT} characters")
    if not isinstance(content, list):
        return
    # "Invalid 'messages[4].content': empty array. Expected an array with minimum length 1"
    for index, part in enumerate(a_list(notes, f"{where}.content", content)):
        _part(notes, f"{where}.content[{index}]", part, _PARTS.get(role, frozenset()))


def _part(notes: Notes, where: str, value: Any, allowed: frozenset[str]) -> None:
    part = an_object(notes, where, value)
    # "Invalid value: 'x'. Supported values are: 'text' and ..."
    if part is None or not one_of(notes, f"{where}.type", part.get("type"), allowed):
        return
    kind = str(part["type"])
    an_object(notes, where, part, Fields({"type": str, kind: _PART_TYPES[kind]}, {"prompt_cache_breakpoint": Mapping}))
    held = part.get(kind)
    if not isinstance(held, Mapping):
        return
    if kind == "image_url":
        an_object(notes, f"{where}.image_url", held, Fields({"url": str}, {"detail": str}))
        image_url(notes, f"{where}.image_url.url", held.get("url"))
        one_of(notes, f"{where}.image_url.detail", held.get("detail", "auto"), {"auto", "low", "high", "original"})
    elif kind == "input_audio":
        an_object(notes, f"{where}.input_audio", held, Fields({"data": str, "format": str}))
        one_of(notes, f"{where}.input_audio.format", held.get("format"), {"wav", "mp3"})
        if from_base64(held.get("data")) is None:
            notes.add(f"{where}.input_audio.data", "is not base64")
    else:
        _file(notes, f"{where}.file", held)


def _file(notes: Notes, where: str, held: Object) -> None:
    an_object(notes, where, held, Fields({}, {"file_id": str, "file_data": str, "filename": str}))
    if ("file_id" in held) == ("file_data" in held):
        notes.add(where, "needs either 'file_id' or 'file_data'")
    filled(notes, f"{where}.file_id", held.get("file_id"))
    file_data(notes, f"{where}.file_data", held.get("file_data"))


def _assistant(notes: Notes, where: str, message: Object) -> None:
    others = ("tool_calls", "function_call", "refusal", "audio")
    # Content is "required unless tool_calls or function_call is specified".
    if message.get("content") is None and all(message.get(name) is None for name in others):
        notes.add(where, "has neither content nor tool calls")
    if isinstance(message.get("function_call"), Mapping):
        call = message["function_call"]
        an_object(notes, f"{where}.function_call", call, Fields({"name": str, "arguments": str}))
        json_object(notes, f"{where}.function_call.arguments", call.get("arguments"))
    if not isinstance(message.get("tool_calls"), list):
        return
    # "Invalid 'messages[1].tool_calls': empty array. Expected an array with minimum length 1"
    ids: set[str] = set()
    for index, value in enumerate(a_list(notes, f"{where}.tool_calls", message["tool_calls"])):
        place = f"{where}.tool_calls[{index}]"
        call = _call(notes, place, value)
        if call is not None and identity(call, "id") in ids:
            notes.add(place, f"the id {call['id']!r} is used twice")
        ids.update([identity(call, "id")] if call is not None else [])


def _call(notes: Notes, where: str, value: Any) -> Object | None:
    call = an_object(notes, where, value)
    if call is None or not one_of(notes, f"{where}.type", call.get("type"), _CALL_TYPES):
        return call
    kind = str(call["type"])
    an_object(notes, where, call, Fields({"id": str, "type": str, kind: Mapping}))
    filled(notes, f"{where}.id", call.get("id"))
    spelled(notes, f"{where}.id", call.get("id"), r".*", _LONGEST_ID)
    held = call.get(kind)
    if isinstance(held, Mapping):
        an_object(notes, f"{where}.{kind}", held, Fields({"name": str, _CALL_TYPES[kind]: str}))
        # "Invalid 'messages[9].tool_calls[0].function.name': string does not match pattern"
        spelled(notes, f"{where}.{kind}.name", held.get("name"), _NAME, _LONGEST_NAME)
        # Not judged by OpenAI itself, but every server that speaks its format parses it: 400 for the whole chat.
        json_object(notes, f"{where}.{kind}.arguments", held.get("arguments"))
    return call


def _pairs(notes: Notes, messages: list[Object]) -> None:
    open_calls: dict[str, str] = {}
    known: set[str] = set()
    for index, message in enumerate([*messages, {}]):
        where = f"messages[{index}]"
        if message.get("role") == "tool":
            answered = identity(message, "tool_call_id")
            if open_calls.pop(answered, None) is None:
                # "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'"
                problem = "is a second answer to" if answered in known else "answers no tool call just before:"
                notes.add(where, f"{problem} {answered!r}")
            continue
        for call, place in open_calls.items():
            # "An assistant message with 'tool_calls' must be followed by tool messages responding to each
            # 'tool_call_id'. The following tool_call_ids did not have response messages: ..."
            notes.add(place, f"tool call {call!r} has no tool message right after it")
        calls = [identity(call, "id") for _, call in objects(message.get("tool_calls"))]
        open_calls = dict.fromkeys(calls, where)
        known = set(calls)
