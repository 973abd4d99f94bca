"""What a tool takes and gives, read from the signature of its function.

The parameters behind the first one become a struct, which checks arguments and has a JSON schema (draft 2020-12). Such
a schema is plain: no references, no titles, and an argument that may be left out is of its own type rather than of that
or null, since some providers refuse the rest. Arguments are taken more widely than the schema says: null means that an
argument is left out, and numbers may come as text, as models sometimes write them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, get_type_hints

import msgspec

from ..errors import Invalid

_NOT_SHOWN = frozenset({"title", "default"})  # a title repeats the name; a default is told in the description
_REFERENCE = "#/$defs/"


class Signature(NamedTuple):
    """The struct of a tool's arguments, and the schemas of what it takes and gives."""

    arguments: type[msgspec.Struct]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]


def signature_of(function: Callable[..., Any]) -> Signature:
    """Read the signature of a tool's function; its first parameter is where it works, not an argument."""
    hints = get_type_hints(function, include_extras=True)
    fields = list[Any]()
    for each in [*inspect.signature(function).parameters.values()][1:]:
        given = () if each.default is each.empty else (_default(each.default),)
        fields.append((each.name, hints[each.name], *given))
    made = msgspec.defstruct(function.__name__, fields, kw_only=True, forbid_unknown_fields=True)
    return Signature(made, _schema(made, input_=True), _schema(hints["return"], input_=False))


def _default(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | bool | tuple) else msgspec.field(default=value)


def _schema(type_: Any, *, input_: bool) -> dict[str, Any]:
    """Make the schema of a type, with each reference replaced by what it names."""
    (found,), named = msgspec.json.schema_components((type_,), ref_template=_REFERENCE + "{name}")
    whole: dict[str, Any] = _plain(found, named, input_=input_)
    return whole


def _plain(schema: Any, named: Mapping[str, Any], *, input_: bool) -> Any:
    if isinstance(schema, list):
        return [_plain(each, named, input_=input_) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        rest = {name: value for name, value in schema.items() if name != "$ref"}
        return _plain({**named[schema["$ref"].removeprefix(_REFERENCE)], **rest}, named, input_=input_)
    if input_ and {"type": "null"} in schema.get("anyOf", ()):
        rest = {name: value for name, value in schema.items() if name != "anyOf"}
        (only,) = (each for each in schema["anyOf"] if each != {"type": "null"})
        return _plain({**only, **rest}, named, input_=input_)
    plain = {
        name: {each: _plain(value, named, input_=input_) for each, value in inner.items()}
        if name == "properties"
        else _plain(inner, named, input_=input_)
        for name, inner in schema.items()
        if name not in _NOT_SHOWN
    }
    if "enum" in plain:
        plain.setdefault("type", "string")
    return plain


# ---------------------------------------------------------------------- arguments


def arguments_of(tool: str, signature: Signature, given: object) -> dict[str, Any]:
    """Check the arguments of a call, as a mapping or as JSON; raises ``Invalid`` saying what to change."""
    if isinstance(given, str | bytes):
        given = _parsed(tool, given)
    if not isinstance(given, Mapping):
        raise Invalid(f"the arguments of {tool} must be an object, not {type(given).__name__}. {_takes(signature)}")
    wanted = {name: value for name, value in given.items() if value is not None}
    try:
        made = msgspec.convert(wanted, signature.arguments, strict=False)
    except msgspec.ValidationError as error:
        raise Invalid(f"{tool}: {_reworded(str(error), signature, wanted)}. {_takes(signature)}") from None
    except UnicodeError:  # half of a surrogate pair where a number is wanted
        raise Invalid(f"{tool}: an argument holds text that is no Unicode. {_takes(signature)}") from None
    return {name: getattr(made, name) for name in signature.arguments.__struct_fields__}


def _parsed(tool: str, given: str | bytes) -> object:
    try:
        return msgspec.json.decode(given or b"{}")
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Invalid(f"the arguments of {tool} are not valid JSON: {error}. Send one JSON object") from None


def _reworded(said: str, signature: Signature, given: Mapping[str, Any]) -> str:
    """Word what msgspec says for a model: the argument first, then what is wrong with it."""
    what, _, path = said.partition(" - at `$")
    where = path.rstrip("`").lstrip(".")
    names = signature.arguments.__struct_fields__
    if not where and what.startswith("Object contains unknown field"):
        unknown = what.split("`")[1]
        near = get_close_matches(unknown, names, n=1, cutoff=0.5)
        return f"there is no argument {unknown!r}{f'; did you mean {near[0]!r}?' if near else ''}"
    if not where and what.startswith("Object missing required field"):
        return f"the argument {what.split('`')[1]!r} is missing"
    what = what[:1].lower() + what[1:]
    if what.startswith(("expected `array`", "expected `object`")) and isinstance(given.get(where), str):
        what += "; send it as JSON, not as text that holds JSON"
    return f"{where}: {what}" if where else what


def _takes(signature: Signature) -> str:
    """List the arguments of a tool with their types."""
    schema = signature.input_schema
    required = schema.get("required", ())
    listed = [
        f"{name} ({_type(each)}{', required' if name in required else ''})"
        for name, each in schema["properties"].items()
    ]
    return f"It takes: {', '.join(listed)}" if listed else "It takes no arguments"


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(map(repr, schema["enum"]))
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = f" {low} to {high}" if low is not None and high is not None else ""
    return f"{schema.get('type', 'any value')}{bounds}"
