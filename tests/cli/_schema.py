"""As much of JSON Schema as the documents of the command line need; what it does not know fails."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import takeback.shell

FOLDER = Path(takeback.shell.__file__).parent / "schemas"
_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}
_KNOWN = {"$schema", "$id", "type", "required", "additionalProperties", "properties", "items", "enum", "format"}


def check_document(text: str) -> Any:
    """Read a document and compare it with the schema that it names."""
    document = json.loads(text)
    name, _, version = document["schema"].removeprefix("takeback.").partition("/")
    assert version == "1"
    check(document, json.loads((FOLDER / f"{name}.json").read_text("utf-8")), name)
    return document


def check(value: Any, schema: dict[str, Any], where: str) -> None:
    """Compare a value with a schema."""
    assert schema.keys() <= _KNOWN, f"{where}: {schema.keys() - _KNOWN} is not checked here"
    if "enum" in schema:
        assert value in schema["enum"], f"{where}: {value!r}"
    if "type" in schema:
        named = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        fits = "boolean" in named if isinstance(value, bool) else any(isinstance(value, _TYPES[each]) for each in named)
        assert fits, f"{where}: {value!r} is no {named}"
    if schema.get("format") == "date-time" and value is not None:
        assert value.endswith("Z"), f"{where}: {value!r} is not in UTC"
        datetime.fromisoformat(value)
    if isinstance(value, dict):
        _check_object(value, schema, where)
    if isinstance(value, list) and "items" in schema:
        for at, each in enumerate(value):
            check(each, schema["items"], f"{where}[{at}]")


def _check_object(value: dict[str, Any], schema: dict[str, Any], where: str) -> None:
    properties = schema.get("properties", {})
    missing = set(schema.get("required", ())) - value.keys()
    assert not missing, f"{where}: {missing} missing"
    if schema.get("additionalProperties") is False:
        assert value.keys() <= properties.keys(), f"{where}: {value.keys() - properties.keys()} is not in the schema"
    for name, each in value.items():
        if name in properties:
            check(each, properties[name], f"{where}.{name}")
