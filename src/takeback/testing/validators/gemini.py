"""The generateContent call of Gemini: what ``client.models.generate_content`` accepts.

Sources: the API reference (ai.google.dev/api/generate-content), the guides to function calling, thought
signatures and files, the notes in google.genai.types, and the API's own errors, quoted at the rules. Fields may be
written in snake_case or camelCase, as in the SDK.
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
    filled,
    from_base64,
    image_matches,
    json_only,
    objects,
    one_of,
    spelled,
)

_ROLES = frozenset({"user", "model"})
_BLOB = Fields({"data": (str, bytes), "mime_type": str}, {"display_name": (str, NoneType)})
_FILE = Fields({"file_uri": str}, {"mime_type": (str, NoneType), "display_name": (str, NoneType)})
_DATA: dict[str, Fields | None] = {
    "text": None,
    "inline_data": _BLOB,
    "file_data": _FILE,
    "function_call": Fields({"name": str}, {"id": (str, NoneType), "args": (Mapping, NoneType)}),
    "function_response": Fields(
        {"name": str, "response": Mapping},
        {
            "id": (str, NoneType),
            "parts": (list, NoneType),
            "will_continue": (bool, NoneType),
            "scheduling": (str, NoneType),
        },
    ),
    "executable_code": Fields({"code": str, "language": str}, {"id": (str, NoneType)}),
    "code_execution_result": Fields({"outcome": str}, {"output": (str, NoneType), "id": (str, NoneType)}),
    "tool_call": None,
    "tool_response": None,
}
_WITH: dict[str, Types] = {
    "thought": (bool, NoneType),
    "thought_signature": (str, bytes, NoneType),
    "video_metadata": (Mapping, NoneType),
    "media_resolution": (Mapping, NoneType),
    "part_metadata": (Mapping, NoneType),
    "media_processing": (str, Mapping, NoneType),
    "speech_metadata": (Mapping, NoneType),
}
_RESPONSE_PART = Fields({}, {"inline_data": Mapping, "file_data": Mapping, "media_processing": (str, Mapping)})
_OF_MODEL = frozenset({"function_call", "executable_code", "code_execution_result", "tool_call", "tool_response"})
# "Unsupported MIME type: image/gif": the types of the guides to images, audio, video and documents
_MEDIA = re.compile(
    r"image/(png|jpeg|webp|heic|heif)|(audio|video|text)/[\w.+-]+|application/(pdf|json|rtf|x-javascript|x-python)"
)
# FunctionDeclaration.name in google.genai.types: "Must start with a letter or an underscore ..."
_NAME = r"[a-zA-Z_][a-zA-Z0-9_.:-]*"
_LONGEST_NAME = 128
# "Requests ending with a model turn are not supported.": taken by these models only
_PREFILL = re.compile(r"(?:^|/)gemini-(?:1\.|2\.|3-|3\.1-|pro)")
# "Function call is missing a thought_signature in functionCall parts": from Gemini 3 on
_SIGNED = re.compile(r"(?:^|/)gemini-(?:[3-9]|[1-9]\d)(?!\d)")


def check(request: Mapping[str, Any]) -> list[str]:
    """Return what the API would have against a request."""
    notes = Notes()
    for name in request.keys() - {"model", "contents", "config"}:
        notes.add(name, "the call has no such argument")
    json_only(notes, "contents", request.get("contents"), binary=True)
    _config(notes, request.get("config"))
    model, contents = request.get("model", ""), request.get("contents")
    json_only(notes, "model", model)
    if not isinstance(model, str) or ("model" in request and not model):
        notes.add("model", "is not the name of a model")
        model = ""
    if isinstance(contents, str):
        filled(notes, "contents", contents)
        return notes.found
    # "GenerateContentRequest.contents: contents is not specified"
    given = a_list(notes, "contents", contents)
    for index, content in enumerate(given):
        _content(notes, f"contents[{index}]", content)
    known = [_snake(content) if isinstance(content, Mapping) else {} for content in given]
    _turns(notes, known)
    if known and known[-1].get("role") == "model" and model and not _PREFILL.search(model):
        notes.add(f"contents[{len(known) - 1}]", f"is of the model, but {model} wants contents that end with the user")
    if _SIGNED.search(model):
        _signed(notes, known)
    return notes.found


def _snake(value: Object) -> Object:
    return {re.sub(r"(?<!^)([A-Z])", r"_\1", str(key)).lower(): inner for key, inner in value.items()}


def _config(notes: Notes, value: Any) -> None:
    if not isinstance(value, Mapping):
        if value is not None:
            notes.add("config", "is not an object")
        return
    where, system = "config.system_instruction", _snake(value).get("system_instruction")
    json_only(notes, where, system)
    if isinstance(system, Mapping):
        system = _snake(system).get("parts") if "parts" in _snake(system) else [system]
    if isinstance(system, str):
        filled(notes, where, system)
    elif system is not None:
        for index, part in enumerate(a_list(notes, where, system)):
            text = part.get("text") if isinstance(part, Mapping) else part
            # "system_instruction: Currently, text only."
            if not isinstance(text, str) or not text:
                notes.add(f"{where}[{index}]", "is not a text, or empty")
    for index, tool in objects(_snake(value).get("tools")):
        for number, declared in objects(_snake(tool).get("function_declarations")):
            place = f"config.tools[{index}].function_declarations[{number}].name"
            spelled(notes, place, declared.get("name"), _NAME, _LONGEST_NAME)


def _content(notes: Notes, where: str, value: Any) -> None:
    content = an_object(notes, where, _snake(value) if isinstance(value, Mapping) else value)
    if content is None:
        return
    an_object(notes, where, content, Fields({"role": str, "parts": list}))
    # "Please use a valid role: user, model."
    one_of(notes, f"{where}.role", content.get("role"), _ROLES)
    # "GenerateContentRequest.contents[1].parts: contents.parts must not be empty."
    for index, part in enumerate(a_list(notes, f"{where}.parts", content.get("parts"))):
        _part(notes, f"{where}.parts[{index}]", part, content.get("role"))


def _part(notes: Notes, where: str, value: Any, role: Any) -> None:
    part = an_object(notes, where, _snake(value) if isinstance(value, Mapping) else value)
    if part is None:
        return
    data: dict[str, Types] = {name: str if name == "text" else Mapping for name in _DATA if part.get(name) is not None}
    an_object(notes, where, {key: inner for key, inner in part.items() if inner is not None}, Fields(data, _WITH))
    if len(data) != 1:
        # "contents[1].parts[0].data: required oneof field 'data' must have one initialized field"
        notes.add(where, f"has {len(data)} data fields instead of one")
    signature = part.get("thought_signature")
    if isinstance(signature, str) and from_base64(signature, url_safe=True) is None:
        notes.add(f"{where}.thought_signature", "is not base64")
    # "Unable to submit request because it must have a text parameter"; a signature may come with an empty text.
    if part.get("text") == "" and not signature:
        notes.add(where, "has an empty text")
    for name in data.keys() - {"text"}:
        _data(notes, f"{where}.{name}", name, part[name], role)


def _data(notes: Notes, where: str, name: str, value: Any, role: Any) -> None:
    if not isinstance(value, Mapping):
        return
    held = _snake(value)
    an_object(notes, where, held, _DATA.get(name))
    # Calls are turns of the model, answers are turns of the user.
    if (
        isinstance(role, str)
        and role in _ROLES
        and (name in _OF_MODEL) != (role == "model")
        and name not in ("inline_data", "file_data")
    ):
        notes.add(where, f"does not belong in a content of the {role}")
    if name == "inline_data":
        _blob(notes, where, held)
    elif name == "file_data":
        filled(notes, f"{where}.file_uri", held.get("file_uri"))
    elif name in ("function_call", "function_response"):
        # "function_response.name: Name cannot be empty"
        spelled(notes, f"{where}.name", held.get("name"), _NAME, _LONGEST_NAME)
        for index, part in enumerate(held["parts"] if isinstance(held.get("parts"), list) else []):
            _media(notes, f"{where}.parts[{index}]", part, role)


def _media(notes: Notes, where: str, value: Any, role: Any) -> None:
    part = an_object(notes, where, _snake(value) if isinstance(value, Mapping) else value, _RESPONSE_PART)
    for name, inner in (part or {}).items():
        _data(notes, f"{where}.{name}", name, inner, role)
    # FunctionResponsePart "can only contain one of the accepted types"
    if part is not None and len(part.keys() & {"inline_data", "file_data"}) != 1:
        notes.add(where, "needs either 'inline_data' or 'file_data'")


def _blob(notes: Notes, where: str, blob: Object) -> None:
    data, media_type = blob.get("data"), blob.get("mime_type")
    if isinstance(media_type, str) and not _MEDIA.fullmatch(media_type):
        notes.add(f"{where}.mime_type", f"{media_type!r} is not supported")
    raw = data if isinstance(data, bytes) else from_base64(data, url_safe=True)
    if not raw:
        notes.add(f"{where}.data", "is empty, or not base64")
    elif str(media_type).startswith("image/"):
        image_matches(notes, f"{where}.data", media_type, raw)


def _named(content: Object, name: str) -> list[Object]:
    parts = [_snake(part).get(name) for _, part in objects(content.get("parts"))]
    return [_snake(part) for part in parts if isinstance(part, Mapping)]


def _turns(notes: Notes, contents: list[Object]) -> None:
    # "Please ensure that multiturn requests alternate between user and model"; newer models allow two in a row.
    if contents and contents[0].get("role") == "model":
        notes.add("contents[0]", "is not of the user")
    for index, content in enumerate(contents):
        where = f"contents[{index}]"
        before = contents[index - 1] if index else {}
        calls, answers = _named(content, "function_call"), _named(content, "function_response")
        if answers and not _named(before, "function_call"):
            notes.add(where, "function responses do not come immediately after a function call turn")
        if calls:
            if before.get("role") != "user":
                # "Please ensure that function call turn comes immediately after a user turn or after a function
                # response turn."
                notes.add(where, "function call turn does not come immediately after a user turn")
            after = contents[index + 1] if index + 1 < len(contents) else {}
            _answered(notes, where, calls, _named(after, "function_response"))


def _answered(notes: Notes, where: str, calls: list[Object], answers: list[Object]) -> None:
    # An empty id is none: the API's messages know no difference.
    ids = [call["id"] for call in calls if isinstance(call.get("id"), str) and call["id"]]
    if len(set(ids)) != len(ids):
        notes.add(where, "two function calls have the same id")
    if len(calls) != len(answers):
        # "Please ensure that the number of function response parts is equal to the number of function call parts"
        notes.add(where, f"has {len(calls)} function calls, but {len(answers)} function responses follow")
        return
    left = list(calls)
    for answer in answers:
        call = next((call for call in left if _fits(call, answer)), None)
        if call is None:
            notes.add(where, f"no call fits the function response {answer.get('name')!r} (id {answer.get('id')!r})")
        else:
            left.remove(call)


def _fits(call: Object, answer: Object) -> bool:
    ids = (call.get("id"), answer.get("id"))
    return call.get("name") == answer.get("name") and (not all(ids) or ids[0] == ids[1])


def _signed(notes: Notes, contents: list[Object]) -> None:
    """Check that in the current turn the first call of each step has the signature that came with it."""
    asked = [
        n for n, each in enumerate(contents) if each.get("role") == "user" and not _named(each, "function_response")
    ]
    for index, content in list(enumerate(contents))[asked[-1] + 1 if asked else 0 :]:
        parts = [_snake(part) for _, part in objects(content.get("parts"))]
        first = next((part for part in parts if part.get("function_call") is not None), None)
        if first is not None and not first.get("thought_signature"):
            notes.add(f"contents[{index}]", "its first function call has no thought_signature")
