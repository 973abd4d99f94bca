"""What the providers' own SDKs say about a request: the types of their calls, with every list checked.

The TypedDicts of an SDK declare lists as ``Iterable``, which pydantic checks only when iterated, and they allow unknown
fields. So the schema that pydantic builds is rewritten before use: every such list is checked at once, and where the
API refuses unknown fields, the schema does too. botocore checks its arguments itself.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_type_hints

from ._shape import Notes


class _Call(NamedTuple):
    module: str
    params: str
    strict_fields: bool
    optional: frozenset[str] = frozenset()


_CALLS = {
    "anthropic": _Call("anthropic.types.message_create_params", "MessageCreateParamsBase", True),
    # Answers are sent back with fields that the types of requests lack (annotations), and are accepted.
    "openai-chat": _Call("openai.types.chat.completion_create_params", "CompletionCreateParamsBase", False),
    # The types ask for what the API fills in itself: "detail" of images, "id", "status" and "annotations" of
    # what an assistant said.
    "openai-responses": _Call(
        "openai.types.responses.response_create_params",
        "ResponseCreateParamsBase",
        True,
        frozenset({"id", "status", "annotations", "detail"}),
    ),
}
_OPTIONS = frozenset({"stream", "extra_headers", "extra_query", "extra_body", "timeout"})
_SHOWN = 3


def check(provider: str, request: Mapping[str, Any]) -> list[str]:
    """Return what the SDK's types have against a request; nothing if the SDK is not installed."""
    notes = Notes()
    try:
        if provider in _OTHERS:
            _OTHERS[provider](notes, request)
        else:
            for key, value in request.items():
                _argument(notes, _CALLS[provider], key, value)
    except ImportError:
        return []
    return notes.found


def _argument(notes: Notes, call: _Call, key: str, value: Any) -> None:
    from pydantic import ValidationError

    if key not in _arguments(call):
        if key not in _OPTIONS:
            notes.add(key, "the SDK's call has no such argument")
        return
    try:
        _validator(call, key).validate_python(value, strict=True)
    except ValidationError as error:
        _note(notes, key, value, error)


@functools.cache
def _arguments(call: _Call) -> dict[str, Any]:
    return get_type_hints(getattr(importlib.import_module(call.module), call.params))


@functools.cache
def _validator(call: _Call, key: str) -> Any:
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

    return SchemaValidator(_eager(TypeAdapter(_arguments(call)[key]).core_schema, call))


def _eager(schema: Any, call: _Call) -> Any:
    if isinstance(schema, list | tuple):
        return type(schema)(_eager(each, call) for each in schema)
    if not isinstance(schema, dict):
        return schema
    made = {key: _eager(value, call) for key, value in schema.items()}
    if made.get("type") == "generator":
        made["type"] = "list"
    if made.get("type") == "typed-dict":
        if call.strict_fields:
            made.setdefault("extra_behavior", "forbid")
        for name in call.optional & made["fields"].keys():
            made["fields"][name]["required"] = False
    return made


def _gemini(notes: Notes, request: Mapping[str, Any]) -> None:
    from google.genai import types

    contents = request.get("contents")
    for index, content in enumerate(contents if isinstance(contents, list) else []):
        _model(notes, f"contents[{index}]", content, types.Content)
    if request.get("config") is not None:
        _model(notes, "config", request["config"], types.GenerateContentConfig)


def _bedrock(notes: Notes, request: Mapping[str, Any]) -> None:
    """Return the problems that botocore finds, which checks arguments against the service's own description."""
    from botocore.validate import ParamValidator

    given = {"modelId": "m", **request}  # the caller may add it later
    for line in ParamValidator().validate(given, _converse()).generate_report().splitlines():
        notes.add("request", f"the SDK's types do not take it ({line})")


@functools.cache
def _converse() -> Any:
    from botocore.session import Session

    return Session().get_service_model("bedrock-runtime").operation_model("Converse").input_shape


def _model(notes: Notes, where: str, value: Any, model: Any) -> None:
    from pydantic import ValidationError

    try:
        with warnings.catch_warnings():
            # An unknown value of an enum is only warned of, but the API refuses it.
            warnings.simplefilter("error", UserWarning)
            model.model_validate(value)
    except ValidationError as error:
        _note(notes, where, value, error)
    except (AttributeError, UserWarning) as error:
        # The enums of the SDK fail on what is not even a string.
        notes.add(where, f"the SDK's types do not take it ({error})")


def _note(notes: Notes, where: str, value: Any, error: Any) -> None:
    """Report only the deepest locations: a union complains once for each type that a value could have been."""
    places: dict[tuple[str | int, ...], str] = {}
    for each in error.errors(include_url=False, include_input=False):
        places.setdefault(_place(value, each["loc"]), each["msg"])
    deepest = max(map(len, places))
    for place, message in [item for item in places.items() if len(item[0]) == deepest][:_SHOWN]:
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
        notes.add(where + path, f"the SDK's types do not take it ({message})")


def _place(value: Any, loc: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Return the steps of a location that lead into the value; the others name the types that were tried."""
    place: list[str | int] = []
    for step in loc:
        inside = step in value if isinstance(value, Mapping) else isinstance(value, list) and isinstance(step, int)
        if inside:
            value = value[step]
            place.append(step)
    return tuple(place)


_OTHERS: dict[str, Callable[[Notes, Mapping[str, Any]], None]] = {"gemini": _gemini, "bedrock": _bedrock}
