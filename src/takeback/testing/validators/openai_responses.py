"""The Responses API of OpenAI: what ``client.responses.create`` accepts as ``input`` and ``instructions``.

Sources: the API reference (platform.openai.com/docs/api-reference/responses/create), the guides to conversation
state, reasoning, function calling and file inputs, and the API's own errors, quoted at the rules.
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
    Types,
    a_list,
    an_object,
    file_data,
    filled,
    identity,
    image_url,
    json_object,
    json_only,
    objects,
    one_of,
    spelled,
)

_NAME = r"[a-zA-Z0-9_-]+"
# "Invalid 'input[2].call_id': string too long. Expected a string with maximum length 64", and so for ids
_LONGEST_ID = 64
_LONGEST_NAME = 128
# "string too long. Expected a string with maximum length 10485760"
_LONGEST_TEXT = 10_485_760
# "Invalid 'input[1].id': 'x'. Expected an ID that begins with 'fc'."
_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}
_OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "program": "program_output",
}
_HOSTED = frozenset(
    {"file_search_call", "web_search_call", "image_generation_call", "code_interpreter_call", "mcp_list_tools"}
    | {"mcp_call", "mcp_approval_request"}
)
_OTHERS = frozenset(
    {"message", "reasoning", "item_reference", "mcp_approval_response", "compaction", "compaction_trigger"}
    | {"additional_tools", "configuration_update"}
)
_TYPES = _OTHERS | _HOSTED | _OUTPUTS.keys() | frozenset(_OUTPUTS.values())
_STATUS = frozenset({"in_progress", "completed", "incomplete"})
_ITEM: dict[str, Types] = {"id": (str, NoneType), "status": (str, NoneType)}
_OUTPUT: dict[str, Types] = {**_ITEM, "caller": (Mapping, NoneType), "name": (str, NoneType)}
_CALL: dict[str, Types] = {"id": str, "status": str, "caller": (Mapping, NoneType), "namespace": str, "async": bool}
# Unknown fields are refused: "Unknown parameter: 'input[3].parsed_arguments'."
_FIELDS: dict[str, Fields] = {
    "message": Fields(
        {"role": str, "content": (str, list)}, {"id": str, "status": str, "type": str, "phase": (str, NoneType)}
    ),
    "function_call": Fields({"type": str, "call_id": str, "name": str, "arguments": str}, _CALL),
    "custom_tool_call": Fields({"type": str, "call_id": str, "name": str, "input": str}, _CALL),
    "function_call_output": Fields(
        {"type": str, "call_id": str, "output": (str, list)}, {**_OUTPUT, "namespace": (str, NoneType)}
    ),
    "custom_tool_call_output": Fields({"type": str, "call_id": str, "output": (str, list)}, _OUTPUT),
    # "Missing required parameter: 'input[1].summary'", even if it is empty
    "reasoning": Fields(
        {"type": str, "summary": list},
        {"id": str, "status": str, "content": list, "encrypted_content": (str, NoneType)},
    ),
    "item_reference": Fields({"id": str}, {"type": (str, NoneType)}),
}
_INPUTS = frozenset({"input_text", "input_image", "input_file"})
# "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'."
_PARTS: dict[str, frozenset[str]] = {
    "user": _INPUTS,
    "system": _INPUTS,
    "developer": _INPUTS,
    "assistant": frozenset({"output_text", "refusal"}),
}
_CACHE: dict[str, Types] = {"prompt_cache_breakpoint": Mapping}
_PART_FIELDS: dict[str, Fields] = {
    "input_text": Fields({"text": str}, _CACHE),
    "input_image": Fields({}, {**_CACHE, "image_url": (str, NoneType), "file_id": (str, NoneType), "detail": str}),
    "input_file": Fields(
        {}, {**_CACHE, "file_id": (str, NoneType), "file_data": str, "file_url": str, "filename": str, "detail": str}
    ),
    "output_text": Fields({"text": str}, {"annotations": list, "logprobs": list}),
    "refusal": Fields({"refusal": str}),
    "summary_text": Fields({"text": str}),
    "reasoning_text": Fields({"text": str}),
}
_STATE = ("previous_response_id", "conversation")


def check(request: Mapping[str, Any]) -> list[str]:
    """Return what the API would have against a request."""
    notes = Notes()
    json_only(notes, "", request)
    for name in ("model", "instructions"):
        if request.get(name) is not None and not isinstance(request[name], str):
            notes.add(name, "is not a string")
    for index, tool in objects(request.get("tools")):
        spelled(notes, f"tools[{index}].name", tool.get("name"), _NAME, _LONGEST_NAME)
    given = request.get("input")
    if isinstance(given, str) or (given is None and request.get("prompt") is not None):
        # "One of "input" or "previous_response_id" or 'prompt' or 'conversation_id' must be provided."
        filled(notes, "input", given)
        return notes.found
    items = a_list(notes, "input", given)
    for index, item in enumerate(items):
        _item(notes, f"input[{index}]", item)
    known = [item if isinstance(item, Mapping) else {} for item in items]
    _ids(notes, known)
    _pairs(notes, known, stored=any(request.get(name) is not None for name in _STATE))
    _reasoning_goes_on(notes, known)
    for index, item in enumerate(known[:-1]):
        # "Compacts the current context. Must be the final input item."
        if item.get("type") == "compaction_trigger":
            notes.add(f"input[{index}]", "is a compaction_trigger that is not the last item")
    return notes.found


def _type(item: Object) -> str:
    if item.get("type") is None:
        return "message" if "role" in item else "item_reference" if "id" in item else "none"
    return identity(item, "type")


def _item(notes: Notes, where: str, value: Any) -> None:
    item = an_object(notes, where, value)
    # "Invalid value: 'x'. Supported values are: 'apply_patch_call', ..."
    if item is None or not one_of(notes, f"{where}.type", _type(item), _TYPES):
        return
    kind = _type(item)
    an_object(notes, where, item, _FIELDS.get(kind))
    if item.get("status") is not None and kind in _FIELDS:
        one_of(notes, f"{where}.status", item["status"], _STATUS)
    # "Expected an ID that contains letters, numbers, underscores, or dashes"
    spelled(notes, f"{where}.id", item.get("id"), _PREFIXES.get(kind, "") + _NAME, _LONGEST_ID)
    spelled(notes, f"{where}.call_id", item.get("call_id"), r".+", _LONGEST_ID)
    if kind in ("function_call", "custom_tool_call"):
        # "Invalid 'input[1].name': string does not match pattern '^[a-zA-Z0-9_-]+$'"
        spelled(notes, f"{where}.name", item.get("name"), _NAME, _LONGEST_NAME)
    if kind == "function_call":
        # Not judged by OpenAI itself, but every server that speaks its format parses it: 400 for the whole input.
        json_object(notes, f"{where}.arguments", item.get("arguments"))
    elif kind == "message":
        if one_of(notes, f"{where}.role", item.get("role"), _PARTS):
            _content(notes, f"{where}.content", item.get("content"), _PARTS[item["role"]])
    elif kind in ("function_call_output", "custom_tool_call_output"):
        _content(notes, f"{where}.output", item.get("output"), _INPUTS)
    elif kind == "reasoning":
        for name, part in (("summary", "summary_text"), ("content", "reasoning_text")):
            for index, each in enumerate(item[name] if isinstance(item.get(name), list) else []):
                _part(notes, f"{where}.{name}[{index}]", each, frozenset({part}))


def _content(notes: Notes, where: str, content: Any, allowed: frozenset[str]) -> None:
    if isinstance(content, str) and len(content) > _LONGEST_TEXT:
        notes.add(where, f"has more than {_LONGEST_TEXT} characters")
    if isinstance(content, list):
        for index, part in enumerate(a_list(notes, where, content)):
            _part(notes, f"{where}[{index}]", part, allowed)


def _part(notes: Notes, where: str, value: Any, allowed: frozenset[str]) -> None:
    part = an_object(notes, where, value)
    # "Missing required parameter: 'input[1].summary[0].type'"
    if part is None or not one_of(notes, f"{where}.type", part.get("type"), allowed):
        return
    fields = _PART_FIELDS[part["type"]]
    an_object(notes, where, part, Fields({"type": str, **fields.required}, fields.optional))
    if part["type"] == "input_image":
        image_url(notes, f"{where}.image_url", part.get("image_url"))
        one_of(notes, f"{where}.detail", part.get("detail", "auto"), {"auto", "low", "high", "original"})
        _one_source(notes, where, part, ("image_url", "file_id"))
    elif part["type"] == "input_file":
        # "Expected a base64-encoded data URL ... but got a value without the 'data:' prefix."
        file_data(notes, f"{where}.file_data", part.get("file_data"))
        if not re.match(r"https?://", str(part.get("file_url", "https://"))):
            notes.add(f"{where}.file_url", "is not an http(s) URL")
        _one_source(notes, where, part, ("file_id", "file_data", "file_url"))


def _one_source(notes: Notes, where: str, part: Object, names: tuple[str, ...]) -> None:
    # "Mutually exclusive parameters: 'file_id' and 'file_data'. Ensure you are only providing one"
    if sum(bool(part.get(name)) for name in names) != 1:
        notes.add(where, f"needs exactly one of {', '.join(names)}")


def _ids(notes: Notes, items: list[Object]) -> None:
    seen: set[str] = set()
    for index, item in enumerate(items):
        if isinstance(item.get("id"), str):
            # "Duplicate item found with id msg_1. Remove duplicate items from your input and try again."
            if item["id"] in seen and _type(item) != "local_shell_call_output":
                notes.add(f"input[{index}]", f"the id {item['id']!r} is used twice")
            seen.add(item["id"])


def _pairs(notes: Notes, items: list[Object], *, stored: bool) -> None:
    """Match calls and outputs; an item stored at OpenAI, or only referenced, may be the other half."""
    stored = stored or any(_type(item) == "item_reference" for item in items)
    calls: dict[tuple[str, str], int] = {}
    answered: set[tuple[str, str]] = set()
    for index, item in enumerate(items):
        where, kind, call = f"input[{index}]", _type(item), identity(item, "call_id")
        if item.get("call_id") is None:
            continue
        if kind in _OUTPUTS:
            if (_OUTPUTS[kind], call) in calls:
                notes.add(where, f"the call_id {call!r} is used twice")
            calls[_OUTPUTS[kind], call] = index
        elif kind in _OUTPUTS.values():
            if (kind, call) not in calls and not stored:
                # "No tool call found for function call output with call_id call_x."
                notes.add(where, f"is the output of {call!r}, but no such call comes before it")
            if (kind, call) in answered:
                notes.add(where, f"is a second output of {call!r}")
            answered.add((kind, call))
    for (kind, call), index in calls.items():
        # How calls marked as async end is not documented, and the output of a local shell may name its call in "id".
        waits = items[index].get("async") is True or kind == "local_shell_call_output"
        if (kind, call) not in answered and not waits:
            # "No tool output found for function call call_x."
            notes.add(f"input[{index}]", f"no tool output found for the call {call!r}")


def _reasoning_goes_on(notes: Notes, items: list[Object]) -> None:
    for index, item in enumerate(items):
        if _type(item) != "reasoning":
            continue
        after = next((each for each in items[index + 1 :] if _type(each) != "reasoning"), {})
        kind = _type(after)
        said = kind in _HOSTED or kind in _OUTPUTS or kind in ("item_reference", "compaction")
        if not said and not (kind == "message" and after.get("role") == "assistant"):
            # "Item 'rs_...' of type 'reasoning' was provided without its required following item."
            notes.add(f"input[{index}]", "reasoning is not followed by what it led to")
        elif item.get("id") and not item.get("encrypted_content") and not after.get("id"):
            # The same error: reasoning that OpenAI keeps is tied to the id of what follows (openai-node 1567).
            notes.add(f"input[{index}]", "reasoning that is stored by id is followed by an item without its id")
