"""The Converse operation of Amazon Bedrock: what boto3's ``client.converse`` accepts.

Sources: the API reference (docs.aws.amazon.com/bedrock/latest/APIReference: Message, ContentBlock, DocumentBlock,
ToolUseBlock, ReasoningContentBlock), the user guide (API restrictions, prompt caching), the service model of botocore,
and the service's own errors, quoted at the rules. Bytes are bytes here: boto3 makes base64 of them itself.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ._shape import (
    Fields,
    Notes,
    Object,
    a_list,
    an_object,
    filled,
    identity,
    image_matches,
    json_only,
    objects,
    one_of,
    spelled,
)

_ARGUMENTS = frozenset(
    [
        "modelId",
        "messages",
        "system",
        "inferenceConfig",
        "toolConfig",
        "guardrailConfig",
        "additionalModelRequestFields",
        "promptVariables",
        "additionalModelResponseFieldPaths",
        "requestMetadata",
        "performanceConfig",
        "serviceTier",
        "outputConfig",
    ]
)
_MESSAGE = Fields({"role": str, "content": list})
_ROLES = frozenset({"user", "assistant"})
_ID, _LONGEST_ID = r"[a-zA-Z0-9_.:-]+", 64
_TOOL, _LONGEST_TOOL = r"[a-zA-Z0-9_-]+", 64
_DOCUMENT, _LONGEST_DOCUMENT = r"[a-zA-Z0-9 ()\[\]-]+", 200
_S3 = r"s3://[a-z0-9][.\-a-z0-9]{1,61}[a-z0-9](/.*)?"
_MOST_IMAGES, _MOST_DOCUMENTS, _MOST_MARKS = 20, 5, 4
_MOST_IMAGE_BYTES, _MOST_DOCUMENT_BYTES = 3_932_160, 4_718_592  # 3.75 MB, 4.5 MB
_CLAUDE = re.compile(r"anthropic|claude", re.IGNORECASE)
_FORMATS: dict[str, Collection[str]] = {
    "image": ["png", "jpeg", "gif", "webp"],
    "document": ["pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"],
    "video": ["mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"],
    "audio": [
        "mp3",
        "opus",
        "wav",
        "aac",
        "flac",
        "mp4",
        "ogg",
        "mkv",
        "mka",
        "x-aac",
        "m4a",
        "mpeg",
        "mpga",
        "pcm",
        "webm",
    ],
}
_SOURCED: dict[str, Fields] = {
    "image": Fields({"format": str, "source": Mapping}, {"error": Mapping}),
    "document": Fields({"name": str, "source": Mapping}, {"format": str, "context": str, "citations": Mapping}),
    "video": Fields({"format": str, "source": Mapping}),
    "audio": Fields({"format": str, "source": Mapping}, {"error": Mapping}),
}
_S3_LOCATION = Fields({"uri": str}, {"bucketOwner": str})
_TOOL_USE = Fields({"toolUseId": str, "name": str, "input": object}, {"type": str})
_TOOL_RESULT = Fields({"toolUseId": str, "content": list}, {"status": str, "type": str})
_SEARCH = Fields({"source": str, "title": str, "content": list}, {"citations": Mapping})
_CACHE = Fields({"type": str}, {"ttl": str})
_OF_USER = frozenset({"image", "document", "video", "audio", "guardContent", "searchResult"})
_OF_ASSISTANT = frozenset({"reasoningContent", "citationsContent"})
_INSIDE = frozenset({"json", "text", "image", "document", "video", "searchResult"})


def check(request: Mapping[str, Any]) -> list[str]:
    """Return the problems that the service would report for a request."""
    notes = Notes()
    for name in request.keys() - _ARGUMENTS:
        notes.add(name, "the call has no such argument")
    json_only(notes, "", request, binary=True)
    model = request.get("modelId", "")
    if not isinstance(model, str) or ("modelId" in request and not model):
        notes.add("modelId", "is not the name of a model")
        model = ""
    _system(notes, request.get("system"))
    _tools(notes, request.get("toolConfig"))
    messages = a_list(notes, "messages", request.get("messages"))
    for index, message in enumerate(messages):
        _message(notes, f"messages[{index}]", message)
    known = [message if isinstance(message, Mapping) else {} for message in messages]
    _turns(notes, known)
    _tool_pairs(notes, known)
    _server_pairs(notes, known)
    _documents(notes, known)
    _marks(notes, request)
    _reasoning(notes, known, model)
    _end(notes, known)
    return notes.found


def _system(notes: Notes, system: Any) -> None:
    if system is None:
        return
    if not isinstance(system, list):
        notes.add("system", "is not a list")
        return
    for index, block in enumerate(system):
        where = f"system[{index}]"
        if isinstance(block, Mapping) and "text" in block:
            _text(notes, f"{where}.text", block["text"])
        _only_key(notes, where, block, ("text", "guardContent", "cachePoint"))


def _tools(notes: Notes, config: Any) -> None:
    names = set[str]()
    for index, tool in objects(config.get("tools") if isinstance(config, Mapping) else None):
        spec, where = tool.get("toolSpec"), f"toolConfig.tools[{index}].toolSpec"
        if isinstance(spec, Mapping):
            spelled(notes, f"{where}.name", spec.get("name"), _TOOL, _LONGEST_TOOL)
            # "The tool names must be unique"
            if identity(spec, "name") in names:
                notes.add(where, f"is a second tool named {identity(spec, 'name')!r}")
            names.add(identity(spec, "name"))


def _only_key(notes: Notes, where: str, block: Any, known: Collection[str]) -> str | None:
    """Return the key that names a block: a union has exactly one."""
    if an_object(notes, where, block) is None:
        return None
    if len(block) != 1:
        # "Invalid number of parameters set for tagged union structure"
        notes.add(where, f"has {len(block)} fields instead of one")
    unknown = [key for key in block if key not in known]
    if unknown:
        notes.add(where, f"has the unknown field {unknown[0]!r}")
    return next((key for key in block if key in known), None)


def _message(notes: Notes, where: str, value: Any) -> None:
    message = an_object(notes, where, value, _MESSAGE)
    if message is None or not one_of(notes, f"{where}.role", message.get("role"), _ROLES):
        return
    # "The content field in the Message object at messages.0 is empty. Add a ContentBlock object to the content field"
    blocks = a_list(notes, f"{where}.content", message.get("content"))
    for index, block in enumerate(blocks):
        _block(notes, f"{where}.content[{index}]", block, message["role"])
    kinds = [key for _, block in objects(blocks) for key in block]
    # "You can include up to 20 images."
    if kinds.count("image") > _MOST_IMAGES:
        notes.add(where, f"has more than {_MOST_IMAGES} images")
    # "If you include a ContentBlock with a document field in the array, you must also include one with a text field."
    if "document" in kinds and "text" not in kinds:
        notes.add(where, "has a document, but no text")
    if kinds and set(kinds) <= {"cachePoint"}:
        notes.add(where, "has nothing but cache points")
    elif kinds and kinds[0] == "cachePoint":
        notes.add(f"{where}.content[0]", "is a cache point that marks nothing")


def _block(notes: Notes, where: str, block: Any, role: str) -> None:
    kind = _only_key(notes, where, block, _BLOCKS)
    if kind is None:
        return
    # "You can only include images and documents if the role is user."
    if (role == "assistant" and kind in _OF_USER) or (role == "user" and kind in _OF_ASSISTANT):
        notes.add(where, f"{kind} does not belong in a message of the {role}")
    if isinstance(block[kind], Mapping):
        by_server = block[kind].get("type") is not None
        is_theirs = {"toolUse": "assistant", "toolResult": "assistant" if by_server else "user"}.get(kind, role)
        if role != is_theirs:
            notes.add(where, f"{kind} does not belong in a message of the {role}")
    _BLOCKS[kind](notes, f"{where}.{kind}", block[kind])


def _text(notes: Notes, where: str, value: Any) -> None:
    if not isinstance(value, str):
        notes.add(where, "is not a string")
    # "The text field in the ContentBlock object at messages.0.content.0 is blank. Add text to the text field"
    elif not value.strip():
        notes.add(where, "is blank")


def _sourced(kind: str) -> Callable[[Notes, str, Any], None]:
    return lambda notes, where, value: _media(notes, where, value, kind)


def _media(notes: Notes, where: str, value: Any, kind: str) -> None:
    held = an_object(notes, where, value, _SOURCED[kind])
    if held is None:
        return
    if "format" in held:
        one_of(notes, f"{where}.format", held["format"], _FORMATS[kind])
    if kind == "document":
        _document_name(notes, f"{where}.name", held.get("name"))
    also = ("text", "content") if kind == "document" else ()
    source, key = (
        held.get("source"),
        _only_key(notes, f"{where}.source", held.get("source"), ("bytes", "s3Location", *also)),
    )
    if not isinstance(source, Mapping):
        return
    if key == "bytes":
        _bytes(notes, f"{where}.source.bytes", source["bytes"], kind, held.get("format"))
    elif key == "s3Location":
        place = an_object(notes, f"{where}.source.s3Location", source["s3Location"], _S3_LOCATION)
        spelled(notes, f"{where}.source.s3Location.uri", (place or {}).get("uri"), _S3, 1024)
    elif key == "text":
        _text(notes, f"{where}.source.text", source["text"])


def _bytes(notes: Notes, where: str, data: Any, kind: str, format: Any) -> None:
    if not isinstance(data, bytes):
        # boto3 takes a string too, and makes base64 of it a second time.
        notes.add(where, "is not bytes")
        return
    if not data:
        notes.add(where, "is empty")
    # "Each image's size must be no more than 3.75 MB", "each document's size must be no more than 4.5 MB"
    largest = {"image": _MOST_IMAGE_BYTES, "document": _MOST_DOCUMENT_BYTES}.get(kind)
    if largest is not None and len(data) > largest:
        notes.add(where, f"has {len(data)} bytes, more than {largest}")
    if kind == "image":
        image_matches(notes, where, f"image/{format}", data)


def _document_name(notes: Notes, where: str, name: Any) -> None:
    # "The document file name can only contain alphanumeric characters, whitespace characters, hyphens, parentheses,
    # and square brackets. The name can't contain more than one consecutive whitespace character."
    spelled(notes, where, name, _DOCUMENT, _LONGEST_DOCUMENT)
    if isinstance(name, str) and "  " in name:
        notes.add(where, "has two spaces in a row")


def _tool_use(notes: Notes, where: str, value: Any) -> None:
    use = an_object(notes, where, value, _TOOL_USE)
    if use is None:
        return
    spelled(notes, f"{where}.toolUseId", use.get("toolUseId"), _ID, _LONGEST_ID)
    spelled(notes, f"{where}.name", use.get("name"), _TOOL, _LONGEST_TOOL)
    # "The format of the value at messages.1.content.0.toolUse.input is invalid. Provide a json object for the field"
    if not isinstance(use.get("input"), Mapping):
        notes.add(f"{where}.input", "is not an object")
    if "type" in use:
        one_of(notes, f"{where}.type", use["type"], {"server_tool_use"})


def _tool_result(notes: Notes, where: str, value: Any) -> None:
    answer = an_object(notes, where, value, _TOOL_RESULT)
    if answer is None:
        return
    spelled(notes, f"{where}.toolUseId", answer.get("toolUseId"), _ID, _LONGEST_ID)
    if "status" in answer:
        one_of(notes, f"{where}.status", answer["status"], {"success", "error"})
    # "The content field at messages.2.content.0.toolResult cannot be empty when status value is error."
    for index, block in enumerate(a_list(notes, f"{where}.content", answer.get("content"))):
        place = f"{where}.content[{index}]"
        kind = _only_key(notes, place, block, _INSIDE)
        if kind is not None and kind != "json":
            _BLOCKS[kind](notes, f"{place}.{kind}", block[kind])


def _reasoning_block(notes: Notes, where: str, value: Any) -> None:
    kind = _only_key(notes, where, value, ("reasoningText", "redactedContent"))
    if kind == "redactedContent" and not (isinstance(value[kind], bytes) and value[kind]):
        notes.add(f"{where}.redactedContent", "is not bytes, or empty")
    elif kind == "reasoningText":
        an_object(notes, f"{where}.reasoningText", value[kind], Fields({"text": str}, {"signature": str}))


def _guard(notes: Notes, where: str, value: Any) -> None:
    kind = _only_key(notes, where, value, ("text", "image"))
    if kind == "text":
        held = an_object(notes, f"{where}.text", value["text"], Fields({"text": str}, {"qualifiers": list}))
        filled(notes, f"{where}.text.text", (held or {}).get("text"))
    elif kind == "image":
        _media(notes, f"{where}.image", value["image"], "image")


def _cache_point(notes: Notes, where: str, value: Any) -> None:
    if an_object(notes, where, value, _CACHE) is not None:
        one_of(notes, f"{where}.type", value.get("type"), {"default"})
        if "ttl" in value:
            one_of(notes, f"{where}.ttl", value["ttl"], {"5m", "1h"})


def _citations(notes: Notes, where: str, value: Any) -> None:
    an_object(notes, where, value, Fields({}, {"content": list, "citations": list}))


def _search(notes: Notes, where: str, value: Any) -> None:
    held = an_object(notes, where, value, _SEARCH)
    content = (held or {}).get("content")
    for index, block in enumerate(content if isinstance(content, list) else []):
        if _only_key(notes, f"{where}.content[{index}]", block, ("text",)):
            _text(notes, f"{where}.content[{index}].text", block["text"])


def _reference(notes: Notes, where: str, value: Any) -> None:
    an_object(notes, where, value, Fields({"tool": Mapping}))


_BLOCKS: dict[str, Callable[[Notes, str, Any], None]] = {
    "text": _text,
    **{kind: _sourced(kind) for kind in _SOURCED},
    "toolUse": _tool_use,
    "toolResult": _tool_result,
    "guardContent": _guard,
    "cachePoint": _cache_point,
    "reasoningContent": _reasoning_block,
    "citationsContent": _citations,
    "searchResult": _search,
    "toolAddition": _reference,
    "toolRemoval": _reference,
}


# ---------------------------------------------------------------------- between messages


def _turns(notes: Notes, messages: list[Object]) -> None:
    roles = [message.get("role") for message in messages]
    # "A conversation must start with a user message. Try again with a conversation that starts with a user message."
    if roles and roles[0] != "user":
        notes.add("messages[0]", "is not of the user")
    for index, (before, role) in enumerate(itertools.pairwise(roles), start=1):
        # "A conversation must alternate between user and assistant roles."
        if role == before:
            notes.add(f"messages[{index}]", f"roles must alternate, but this is a second {role} message in a row")


def _named(message: Object, kind: str) -> list[tuple[int, Object]]:
    """Return the calls or results of the client's tools; those that ran on the server name their type."""
    found = [(index, block.get(kind)) for index, block in objects(message.get("content"))]
    return [(index, held) for index, held in found if isinstance(held, Mapping) and held.get("type") is None]


def _tool_pairs(notes: Notes, messages: list[Object]) -> None:
    seen, waiting = set[str](), list[str]()
    for number, message in enumerate([*messages, {}]):
        answered = list[str]()
        for index, answer in _named(message, "toolResult"):
            place, call = f"messages[{number}].content[{index}]", identity(answer, "toolUseId")
            if call not in waiting:
                # "The number of toolResult blocks at messages.2.content exceeds the number of toolUse blocks"
                notes.add(place, f"toolResult for {call!r} answers no toolUse of the message before")
            if call in answered:
                # "The toolResult blocks at messages.2.content contain duplicate Ids"
                notes.add(place, f"is a second toolResult for {call!r}")
            answered.append(call)
            if any("toolResult" not in before for _, before in list(objects(message.get("content")))[:index]):
                # Claude wants the results first in the content, or counts them as missing.
                notes.add(place, "is a toolResult that stands after other content")
        for call in waiting:
            if call not in answered:
                # "Expected toolResult blocks at messages.2.content for the following Ids: ..."
                notes.add(f"messages[{number - 1}]", f"toolUse {call!r} has no toolResult in the next message")
        waiting = []
        for index, use in _named(message, "toolUse"):
            call = identity(use, "toolUseId")
            if call in seen:
                # "The toolUse blocks at messages.1.content contain duplicate Ids"
                notes.add(f"messages[{number}].content[{index}]", f"the id {call!r} is used twice")
            seen.add(call)
            waiting.append(call)


def _server_pairs(notes: Notes, messages: list[Object]) -> None:
    """Check that a server tool's result is in the same message as its call."""
    for number, message in enumerate(messages):
        told: dict[str, list[str]] = {"toolUse": [], "toolResult": []}
        for _, block in objects(message.get("content")):
            for kind, ids in told.items():
                held = block.get(kind)
                if isinstance(held, Mapping) and held.get("type") is not None:
                    ids.append(identity(held, "toolUseId"))
        for call in sorted({*told["toolUse"], *told["toolResult"]}):
            if (told["toolUse"].count(call), told["toolResult"].count(call)) != (1, 1):
                notes.add(f"messages[{number}]", f"{call!r} of the server lacks its other half")


def _documents(notes: Notes, messages: list[Object]) -> None:
    names = list[str]()
    for message in messages:
        for _, block in objects(message.get("content")):
            answer = block.get("toolResult")
            inside = objects(answer.get("content")) if isinstance(answer, Mapping) else ()
            held = [block.get("document"), *(each.get("document") for _, each in inside)]
            names += [identity(each, "name").lower() for each in held if isinstance(each, Mapping)]
    # "You can include up to 5 documents per request."
    if len(names) > _MOST_DOCUMENTS:
        notes.add("messages", f"have {len(names)} documents, more than {_MOST_DOCUMENTS}")
    # "Messages can't contain duplicate document names. Rename the document and retry your request."
    for name in sorted({name for name in names if names.count(name) > 1}):
        notes.add("messages", f"have more than one document named {name!r}")


def _marks(notes: Notes, request: Object) -> None:
    config = request.get("toolConfig")
    lists = [request.get("system"), config.get("tools") if isinstance(config, Mapping) else None]
    messages = [message.get("content") for _, message in objects(request.get("messages"))]
    marks = sum("cachePoint" in block for each in (*lists, *messages) for _, block in objects(each))
    # "Max checkpoints per request: 4" (guide to prompt caching)
    if marks > _MOST_MARKS:
        notes.add("request", f"has {marks} cache points, more than {_MOST_MARKS}")


def _reasoning(notes: Notes, messages: list[Object], model: str) -> None:
    for number, message in enumerate(messages):
        kinds = [next(iter(block), "") for _, block in objects(message.get("content"))]
        where = f"messages[{number}]"
        if "reasoningContent" not in kinds:
            continue
        if kinds[-1] == "reasoningContent":
            # "The final block in an assistant message cannot be `thinking`."
            notes.add(where, "ends with reasoning")
        if kinds[0] != "reasoningContent":
            # "If an assistant message contains any thinking blocks, the first block must be `thinking`"
            notes.add(where, "has reasoning, but does not begin with it")
        for index, block in objects(message.get("content")):
            held = block.get("reasoningContent")
            said = held.get("reasoningText") if isinstance(held, Mapping) else None
            # "thinking.signature: Field required"
            if _CLAUDE.search(model) and isinstance(said, Mapping) and not said.get("signature"):
                notes.add(f"{where}.content[{index}]", f"is reasoning without a signature, which {model} refuses")


def _end(notes: Notes, messages: list[Object]) -> None:
    if not messages or messages[-1].get("role") != "assistant":
        return
    final = [block for _, block in objects(messages[-1].get("content"))][-1:]
    text = final[0].get("text") if final else ""
    # "messages: final assistant content cannot end with trailing whitespace"
    if isinstance(text, str) and text != text.rstrip():
        notes.add(f"messages[{len(messages) - 1}]", "final assistant content cannot end with trailing whitespace")
