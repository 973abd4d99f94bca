"""The providers: one folder each, with everything that is known of its form.

Messages are recognised when they are given, kept verbatim, and read when somebody looks at them. A message is stored
as its provider's own JSON beside the name of its form; nothing is translated on the way in, so nothing is lost, and a
replay is byte for byte what the provider said. Recognising and reading never raise on odd data: what is in no known
form is left to the caller as it is, and a field of an unexpected type reads as absent.

A folder holds ``form`` (recognise and read a message), ``read`` (into the normal form), ``known`` (its
fields), ``rules`` (what the repair heeds), ``write`` (requests) and ``glance`` (what is plainly right as stored). Of a
folder only ``form`` is loaded to append; the rest with the first context. A provider is registered by its line here.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import Invalid
from ..model.given import Form, Given
from ..model.objects import plain
from ..model.usage import Usage
from .counting import KNOWN, common
from .lenient import kinds

if TYPE_CHECKING:
    from .provider import Provider

__all__ = [
    "NAMES",
    "Given",
    "find_form",
    "find_provider",
    "given_as",
    "load",
    "plain",
    "recognise",
    "usage",
]

# Each name is that of its folder, with hyphens. They are asked in this order: other providers put Anthropic's blocks
# and marks into chat messages beside ``tool_calls``, and a message of Anthropic's has the type of one of Responses.
NAMES = (
    "gemini",
    "openai-chat",
    "anthropic",
    "openai-responses",
    "bedrock",
)


_EVERYBODYS = frozenset({"role", "content", "id", "model", "usage"})
_TEXT = frozenset({"text"})


class _Form(Form, Protocol):
    """What the module ``form`` of a provider offers."""

    def recognise(self, value: dict[str, Any], kinds: frozenset[str]) -> list[Given]: ...
    def usage(self, data: dict[str, Any]) -> Usage | None: ...


def recognise(item: object) -> list[Given]:
    """Recognise a provider's message, item or whole response, as data or as an SDK object.

    Empty when it is in our own form or in none that is known; raises ``Invalid`` only for objects that are no data.
    """
    value = plain(item)
    if not isinstance(value, dict):
        return []
    found = kinds(value.get("content"))
    if _is_simple(value, found):
        return []
    for form in _forms():
        if given := form.recognise(value, found):
            return given
    return []


def given_as(form: str, role: str, value: dict[str, Any]) -> Given:
    """Read an object that its caller says is in a form; what the form does not recognise is read as far as it goes."""
    known = recognise(value)
    if len(known) == 1 and known[0].form == form:
        return known[0]
    reads = find_form(form)
    calls, results = reads.calls(value), reads.results(value)
    usage = reads.usage(said) if isinstance(said := value.get("usage"), dict) else None
    is_turn = role == "user" and not results
    return Given(form, role, value, usage=usage, calls=calls, results=results, is_turn=is_turn)


def _is_simple(value: dict[str, Any], kinds: frozenset[str]) -> bool:
    """Take the short way for the commonest message there is: plain text, in fields that are nobody's own."""
    if value.get("role") not in ("user", "assistant") or not value.keys() <= _EVERYBODYS:
        return False
    content = value.get("content")
    if kinds == _TEXT:  # a list, then
        return not [part for part in content or () if type(part) is not dict or len(part) != 2 or "text" not in part]
    return isinstance(content, str)


def usage(value: object) -> Usage:
    """Read the usage of any provider or SDK, or our own fields; raises ``Invalid`` for what cannot be understood."""
    data = plain(value)
    if not isinstance(data, dict):
        raise Invalid(f"usage is a Usage, a dict or an SDK's usage object, not {type(data).__name__}")
    for form in _forms():
        if (found := form.usage(data)) is not None:
            return found
    if data and KNOWN.isdisjoint(data):
        raise Invalid(f"usage has no field with a known name, only {', '.join(map(repr, data))[:200]}")
    return common(data)


def find_provider(name: object) -> Provider:
    """Return a provider by its name; raises ``Invalid`` for a name that is not registered."""
    if not isinstance(name, str) or name not in NAMES:
        raise Invalid(f"there is no provider {name!r}; the providers are {', '.join(sorted(NAMES))}")
    return _provider(name)


@cache
def _provider(name: str) -> Provider:
    from .provider import gathered

    return gathered(name)


@lru_cache(maxsize=64)  # names come from stored data
def find_form(name: str) -> _Form:
    """Find a form; one that a newer Takeback knows is read as the plainest."""
    found: _Form = load(name if name in NAMES else "openai-chat", "form")
    return found


@cache
def _forms() -> tuple[_Form, ...]:
    return tuple(map(find_form, NAMES))


def load(name: str, module: str) -> Any:
    """Load a module of a provider's folder."""
    return import_module(f".{name.replace('-', '_')}.{module}", __name__)
