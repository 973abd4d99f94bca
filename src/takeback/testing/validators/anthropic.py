"""The Messages API of Anthropic: what ``client.messages.create`` accepts.

Sources: the API reference (platform.claude.com/docs/en/api/messages), the guides to tool use, thinking, vision,
PDFs, server tools and mid-conversation system messages, and the API's own errors, quoted at the rules.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from . import _anthropic_blocks as blocks
from ._shape import Fields, Notes, Object, a_list, an_object, identity, is_a, json_only, objects, one_of, spelled

_MESSAGE = Fields({"role": str, "content": (str, list)})
_MOST_MESSAGES = 100_000
_MOST_MARKS = 4
_MOST_BYTES = 32 * 1024 * 1024
_SMALLEST_BUDGET = 1024
# "This model does not support assistant message prefill": not from 4.6 on, nor any model of a later generation.
_NO_PREFILL = re.compile(r"claude-[a-z]+-(4[-.]([6-9]|[1-9]\d)(?!\d)|([5-9]|[1-9]\d)(?!\d))")
# Other models say "role: Input should be 'user' or 'assistant'".
_SYSTEM_INSIDE = re.compile(r"claude-(opus-4[-.]([89]|[1-9]\d)(?!\d)|opus-([5-9]|[1-9]\d)(?!\d)|fable-)")
_TOOL_NAME = r"[a-zA-Z0-9_-]+"


def check(request: Mapping[str, Any]) -> list[str]:
    """Return what the API would have against a request."""
    notes = Notes()
    json_only(notes, "", request)
    _settings(notes, request)
    _system(notes, request.get("system"))
    _tools(notes, request.get("tools"))
    messages = a_list(notes, "messages", request.get("messages"))
    if len(messages) > _MOST_MESSAGES:
        notes.add("messages", f"has more than {_MOST_MESSAGES} messages")
        return notes.found
    for index, message in enumerate(messages):
        _message(notes, f"messages[{index}]", message, last=index == len(messages) - 1)
    known = [message if isinstance(message, Mapping) else {} for message in messages]
    _roles(notes, known, str(request.get("model")))
    _tool_pairs(notes, known)
    _server_tool_pairs(notes, known)
    _thinking(notes, known, request.get("thinking"))
    _end(notes, known, request)
    _whole(notes, request)
    return notes.found


def _settings(notes: Notes, request: Object) -> None:
    limit, thinking = request.get("max_tokens", 0), request.get("thinking")
    # 0 fills the prompt cache and generates nothing.
    if not is_a(limit, int) or limit < 0:
        notes.add("max_tokens", "is not a whole number of 0 or more")
    if "model" in request and not (isinstance(request["model"], str) and request["model"]):
        notes.add("model", "is not the name of a model")
    if not isinstance(thinking, Mapping) or thinking.get("type") != "enabled":
        return
    budget = thinking.get("budget_tokens")
    # "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
    if not isinstance(budget, int) or budget < _SMALLEST_BUDGET:
        notes.add("thinking.budget_tokens", f"is not a whole number of {_SMALLEST_BUDGET} or more")
    elif "max_tokens" in request and is_a(limit, int) and budget >= limit:
        notes.add("thinking.budget_tokens", "is not less than max_tokens")


def _system(notes: Notes, system: Any) -> None:
    if isinstance(system, list):
        for index, block in enumerate(system):
            blocks.check(notes, f"system[{index}]", block, {"text"})
    elif system is not None and not isinstance(system, str):
        notes.add("system", "is neither a string nor a list of text blocks")


def _tools(notes: Notes, tools: Any) -> None:
    if tools is not None and not isinstance(tools, list):
        notes.add("tools", "is not a list")
    names: set[str] = set()
    for index, tool in objects(tools):
        where, name = f"tools[{index}]", tool.get("name")
        # "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
        spelled(notes, f"{where}.name", name, _TOOL_NAME, 128)
        # "tools: Tool names must be unique."
        if isinstance(name, str) and name in names:
            notes.add(where, f"is a second tool named {name!r}")
        names.add(str(name))
        if tool.get("type") in (None, "custom"):
            schema = an_object(notes, f"{where}.input_schema", tool.get("input_schema"))
            # "tools.0.custom.input_schema.type: Field required"
            if schema is not None and schema.get("type") != "object":
                notes.add(f"{where}.input_schema", "is not of type 'object'")


def _message(notes: Notes, where: str, value: Any, *, last: bool) -> None:
    message = an_object(notes, where, value, _MESSAGE)
    if message is None or not one_of(notes, f"{where}.role", message.get("role"), blocks.ROLES):
        return
    role, content = message["role"], message.get("content")
    # "all messages must have non-empty content except for the optional final assistant message"
    if not content and not (last and role == "assistant"):
        notes.add(where, "has no content")
    elif isinstance(content, str) and content and not content.strip():
        notes.add(where, "has content that is only whitespace")
    for index, block in enumerate(content if isinstance(content, list) else []):
        blocks.check(notes, f"{where}.content[{index}]", block, blocks.ROLES[role])


def _roles(notes: Notes, messages: list[Object], model: str) -> None:
    roles = [message.get("role") for message in messages]
    # "messages: first message must use the "user" role", and for a system message "messages.0: use the top-level
    # 'system' parameter for the initial system prompt".
    if roles and roles[0] != "user":
        notes.add("messages[0]", "is not of the user")
    for index, (before, role) in enumerate(itertools.pairwise(roles), start=1):
        where = f"messages[{index}]"
        if role == "system":
            if not _SYSTEM_INSIDE.search(model):
                notes.add(where, f"is a system message, which only some models take here (model: {model})")
            # A system message stands right after a user message, or after an assistant that used a server tool.
            if before != "user" and not _used_server_tool(messages[index - 1]):
                notes.add(where, "is a system message that does not follow a user message")
        elif before == "system":
            # ... and is the last one, or is followed by the assistant.
            if role != "assistant":
                notes.add(where, "follows a system message, but is not of the assistant")
        elif role == before:
            # "messages: roles must alternate". The newest API joins such turns; Bedrock and older ones refuse them.
            notes.add(where, f"roles must alternate, but this is a second {role} message in a row")


def _blocks(message: Object, *types: str) -> Iterator[tuple[int, Object]]:
    for index, block in objects(message.get("content")):
        if block.get("type") in types:
            yield index, block


def _used_server_tool(message: Object) -> bool:
    types = [block.get("type") for _, block in objects(message.get("content"))]
    return message.get("role") == "assistant" and bool(types) and types[-1] in ("server_tool_use", *blocks.RESULTS)


def _tool_pairs(notes: Notes, messages: list[Object]) -> None:
    seen: set[str] = set()
    open_calls: list[str] = []
    for number, message in enumerate([*messages, {}]):
        _results(notes, f"messages[{number}]", message, open_calls)
        answered = {identity(block, "tool_use_id") for _, block in _blocks(message, "tool_result")}
        for call in [call for call in open_calls if call not in answered]:
            # "`tool_use` ids were found without `tool_result` blocks immediately after"
            notes.add(f"messages[{number - 1}]", f"tool_use {call!r} has no tool_result in the next message")
        open_calls = []
        for index, block in _blocks(message, "tool_use", "server_tool_use"):
            call = identity(block, "id")
            if call in seen:
                # "`tool_use` ids must be unique"
                notes.add(f"messages[{number}].content[{index}]", f"the id {call!r} is used twice")
            seen.add(call)
            if block.get("type") == "tool_use":
                open_calls.append(call)


def _results(notes: Notes, where: str, message: Object, calls: list[str]) -> None:
    answered: set[str] = set()
    for index, block in _blocks(message, "tool_result"):
        place, call = f"{where}.content[{index}]", identity(block, "tool_use_id")
        if call not in calls:
            # "unexpected `tool_use_id` found in `tool_result` blocks"
            notes.add(place, f"tool_result for {call!r} answers no tool_use of the message before")
        if call in answered:
            # "each tool_use must have a single result. Found multiple `tool_result` blocks with id"
            notes.add(place, f"is a second tool_result for {call!r}")
        answered.add(call)
        if any(before.get("type") != "tool_result" for _, before in list(objects(message.get("content")))[:index]):
            # Tool results come first in the content, or they count as missing (guide to tool use).
            notes.add(place, "is a tool_result that stands after other content")


def _server_tool_pairs(notes: Notes, messages: list[Object]) -> None:
    open_calls: dict[str, tuple[int, str]] = {}
    asked = 0
    for number, message in enumerate(messages):
        if message.get("role") == "user" and not any(_blocks(message, "tool_result")):
            asked = number
        for index, block in _blocks(message, "server_tool_use", *blocks.RESULTS):
            where = f"messages[{number}].content[{index}]"
            if block.get("type") == "server_tool_use":
                open_calls[identity(block, "id")] = (number, where)
            elif open_calls.pop(identity(block, "tool_use_id"), None) is None:
                # "Each `web_search_tool_result` block must have a corresponding `server_tool_use` block before it"
                notes.add(where, "has no server_tool_use before it")
    for call, (number, where) in open_calls.items():
        # "`web_search` tool use with id `srvtoolu_...` was found without a corresponding `web_search_tool_result`";
        # the turn under way may have been paused, or may wait for tools of the client.
        if number < asked:
            notes.add(where, f"server_tool_use {call!r} has no result")


def _thinking(notes: Notes, messages: list[Object], thinking: Any) -> None:
    for number, message in enumerate(messages):
        types = [block.get("type") for _, block in objects(message.get("content"))]
        if message.get("role") != "assistant" or not types:
            continue
        where = f"messages[{number}]"
        if types[-1] in blocks.THOUGHTS:
            notes.add(where, "the final block in an assistant message cannot be thinking")
        for index, kind in enumerate(types):
            # "If an assistant message contains any thinking blocks, the first block must be `thinking` or
            # `redacted_thinking`. Found `text`." (claude-code 20705). Behind that, thinking lies between other blocks
            # as the model wrote it (inspect_ai 4922), and it may begin where a server tool has answered.
            fits = types[0] in blocks.THOUGHTS or types[index - 1] in (*blocks.THOUGHTS, *blocks.RESULTS)
            if kind in blocks.THOUGHTS and not fits:
                notes.add(f"{where}.content[{index}]", f"thinking stands after {types[index - 1]}")
    answered = [n for n, message in enumerate(messages[:-1]) if any(_blocks(message, "tool_use"))]
    if isinstance(thinking, Mapping) and thinking.get("type") == "enabled" and answered[-1:] == [len(messages) - 2]:
        first = next(objects(messages[-2].get("content")))[1].get("type")
        # "Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled ..."
        if first not in blocks.THOUGHTS:
            notes.add(
                f"messages[{len(messages) - 2}].content[0]", "thinking is enabled, but the turn starts without it"
            )


def _end(notes: Notes, messages: list[Object], request: Object) -> None:
    if not messages or messages[-1].get("role") != "assistant":
        return
    where, content = f"messages[{len(messages) - 1}]", messages[-1].get("content")
    model, thinking = request.get("model"), request.get("thinking")
    final = [block for _, block in objects(content)][-1:]
    text = content if isinstance(content, str) else final[0].get("text") if final else ""
    # "messages: final assistant content cannot end with trailing whitespace"
    if isinstance(text, str) and text != text.rstrip():
        notes.add(where, "final assistant content cannot end with trailing whitespace")
    # A turn that was paused in a server tool is sent back as it is, to every model.
    if isinstance(model, str) and _NO_PREFILL.search(model) and not _used_server_tool(messages[-1]):
        notes.add(where, f"is of the assistant, but {model} wants a conversation that ends with the user")
    disabled = isinstance(thinking, Mapping) and thinking.get("type") == "disabled"
    if disabled and any(_blocks(messages[-1], *blocks.THOUGHTS)):
        # "When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`."
        notes.add(where, "contains thinking in the final position, but thinking is disabled")


def _whole(notes: Notes, request: Object) -> None:
    marks = sum(_marks(request.get(key)) for key in ("system", "messages", "tools"))
    # "A maximum of 4 blocks with cache_control may be provided. Found 5."
    if marks > _MOST_MARKS:
        notes.add("request", f"has {marks} blocks with cache_control, more than {_MOST_MARKS}")
    # 413 request_too_large, for the Messages API
    text = json.dumps(request, ensure_ascii=False, skipkeys=True, default=str)
    if len(text.encode("utf-8", "surrogatepass")) > _MOST_BYTES:
        notes.add("request", f"is larger than {_MOST_BYTES} bytes")


def _marks(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_marks, value))
    if not isinstance(value, Mapping):
        return 0
    own = 1 if value.get("cache_control") is not None else 0
    return own + _marks(value.get("content")) + _marks(value.get("source"))
