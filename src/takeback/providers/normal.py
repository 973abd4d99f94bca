"""The normal form between what was stored and what a provider takes.

A context is a list of items; an item has a role (``user``, ``assistant`` or ``tool``) and parts. Parts and
items that came in a provider's form carry that form's own JSON in ``raw``. The invariant: as long as ``raw`` is
there, it says the same as the fields beside it, so a writer of that form sends it as it is; whoever changes a
field drops it. Parts and items never hold themselves, so the garbage collector need not walk over them (``gc=False``).
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterator, Sequence
from operator import is_
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode


class Part(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One part of an item, with the JSON it came as."""

    form: str | None = None
    raw: Any = None


class Text(Part, frozen=True, gc=False):
    """Something said."""

    text: str


class Media(Part, frozen=True, gc=False):
    """An image, document, sound or film: base64 ``data``, or a ``url``."""

    kind: str
    mime: str
    data: str | None = None
    url: str | None = None
    name: str | None = None


class Opaque(Part, frozen=True, gc=False):
    """What only its own provider understands: thinking, tools that ran on its servers; nameless, nobody misses it."""

    what: str


class Call(Part, frozen=True, gc=False):
    """A tool call that the client has to run. ``number`` is its place among the calls of a context."""

    id: str
    name: str
    arguments: Any
    number: int = -1


class Result(Part, frozen=True, gc=False):
    """What a tool gave back: parts, and the ``value`` they were made from if it was no text; ``to`` once paired."""

    call_id: str
    parts: tuple[Part, ...]
    success: bool = True
    name: str | None = None
    value: Any = None
    to: Call | None = None


class Item(msgspec.Struct, frozen=True, gc=False):
    """One message of a context; ``model`` is the one that said it, ``half`` that it was cut off while it spoke."""

    role: str
    parts: tuple[Part, ...]
    seq: int = 0
    form: str | None = None
    raw: Any = None
    model: str | None = None
    half: bool = False


def is_same(new: Sequence[Any], old: Sequence[Any]) -> bool:
    """Return whether two sequences hold the very same objects."""
    return len(new) == len(old) and all(map(is_, new, old))


def with_parts(item: Item, parts: tuple[Part, ...]) -> Item:
    """Return an item with other parts; its own JSON goes unless the parts are the same."""
    return item if is_same(parts, item.parts) else msgspec.structs.replace(item, parts=parts, raw=None)


def verbatim(part: Part, form: str) -> Any:
    """Return the part's own JSON if it came in this form, else None."""
    return part.raw if part.form == form else None


class Notes:
    """What was repaired: what was done, each with the messages it happened to, in the order of first happening."""

    def __init__(self) -> None:
        self._found: dict[str, list[int]] = {}

    def add(self, sentence: str, *seqs: int) -> None:
        """Note a repair of messages of the log; made-up ones have no seq."""
        known = self._found.setdefault(sentence, [])
        known.extend(seq for seq in seqs if seq and seq not in known[-2:])

    def __bool__(self) -> bool:
        return bool(self._found)

    def found(self) -> Iterator[tuple[str, list[int]]]:
        """Go through what was done, with the seqs of what it was done to."""
        return iter(self._found.items())


def listed(seqs: Sequence[int], most: int) -> str:
    """List the first of some messages, and say how many more there are."""
    more = f" and {len(seqs) - most} more" if len(seqs) > most else ""
    return ", ".join(map(str, seqs[:most])) + more


# ---------------------------------------------------------------------- values


def clean(value: Any) -> Any:
    """Make a value fit for JSON and for every provider; what is fit already comes back as the very same object.

    Half a surrogate pair becomes U+FFFD, a number that JSON has not becomes null, bytes become base64.
    """
    if isinstance(value, str):
        return value if value.isascii() else _clean_text(value)
    if isinstance(value, dict):
        items = {clean(key): clean(item) for key, item in value.items()}
        same = items.keys() == value.keys() and is_same([*items.values()], [*value.values()])
        return value if same else items
    if isinstance(value, list | tuple):
        cleaned = [clean(item) for item in value]
        return value if is_same(cleaned, value) else cleaned
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _clean_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        # Two halves that lie side by side are a character that somebody wrote as two escapes.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def as_json(value: Any) -> str:
    """Write a value as JSON text; equal values in equal order give equal text."""
    return _encode(value).decode()


def texts(parts: tuple[Part, ...]) -> str:
    """Join the texts among parts, one per line."""
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def as_text(arguments: Any) -> str:
    """Write arguments as the JSON text that OpenAI wants; text that was no JSON stays as the model wrote it."""
    return arguments if isinstance(arguments, str) else as_json({} if arguments is None else arguments)


# What lies at Google's own storage is there for Gemini alone.
_WEB = re.compile(r"https?://(?!generativelanguage\.googleapis\.com/)[^\s/]")


def is_there(part: Media) -> bool:
    """Return whether a provider could get at media: it is at hand, or on the web."""
    if part.data is not None:
        return is_base64(part.data)
    return part.url is not None and _WEB.match(part.url) is not None


def is_base64(data: Any) -> bool:
    """Return whether something is bytes written as base64."""
    try:
        return bool(base64.b64decode(data, validate=True))
    except (ValueError, TypeError):
        return False


def is_image(part: Media) -> bool:
    """Return whether media is an image that Anthropic and OpenAI both take; on the web its type need not be known."""
    known = part.mime in ("image/jpeg", "image/png", "image/gif", "image/webp")
    return is_there(part) and (known or (part.mime == "image/*" and part.data is None))


def honest(part: Media) -> Media:
    """Return an image the type that its first bytes show, since every provider looks at them; others as they are."""
    if part.kind != "image" or part.data is None:
        return part
    try:
        head = base64.b64decode(part.data[:24])
    except ValueError:
        return part
    shown = next((mime for magic, mime in _MAGIC if magic.match(head)), part.mime)
    return part if shown == part.mime else msgspec.structs.replace(part, mime=shown, raw=None)


_MAGIC = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
)
