"""What ``write`` and ``append`` take besides messages: another program's item verbatim, and entries of foreign kinds.

``Native`` becomes a message. ``Custom`` does not: it has a place in the order and goes back with a rewind, but
conversations, contexts and counts leave it out. Its kind is stored behind ``custom:``, so that it can never be taken
for one of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from .. import codec
from ..clock import to_datetime
from ..errors import Invalid
from ..ids import entry_id
from . import Portable, message, pointer
from .entry import Draft, More, Numbers
from .given import Given
from .message import Message
from .usage import Usage

if TYPE_CHECKING:
    Some: TypeAlias = Sequence[Any]
    Hashes: TypeAlias = Sequence[str]
    Data: TypeAlias = Mapping[str, Any]
else:  # what msgspec decodes
    Some, Hashes, Data = tuple[Any, ...], tuple[str, ...], dict[str, Any]

CUSTOM = "custom:"
_LONGEST_KIND = 200
_PART = {"calls": "tool_calls", "results": "tool_results"}


class _Whatever(Portable, msgspec.Struct, frozen=True):
    value: Any


class Native(_Whatever, frozen=True, kw_only=True):
    """A message in a shape of somebody else's, kept verbatim: JSON data, or bytes.

    With ``form``, a provider's name, the object at ``pointer`` (the whole value by default) is that provider's message:
    contexts send it, and its text, calls and results are read from it. Without a form, ``text``, ``calls`` and
    ``results`` say what contexts and readers need to know; text that occurs in the value is not stored twice.
    """

    role: str
    form: str | None = None
    pointer: str | None = None
    text: str | None = None
    calls: Some = ()
    results: Some = ()
    id: str | None = None
    usage: Any = None
    model: str | None = None
    metadata: Data | None = None
    origin: str | None = None
    created_at: datetime | None = None


class _Kinded(Portable, msgspec.Struct, frozen=True):
    kind: str
    data: Any


class Custom(_Kinded, frozen=True, kw_only=True):
    """An entry of a kind that is not ours, such as a framework's checkpoint; not a message.

    ``contents`` are hashes from ``put_content`` that it needs. ``seq``, ``turn``, ``branch`` and ``stored_at`` are
    known once it is stored; until then ``seq`` is 0.
    """

    id: str | None = None
    text: str | None = None
    contents: Hashes = ()
    opens_turn: bool = False
    created_at: datetime | None = None
    seq: int = 0
    turn: int = 0
    branch: str = ""
    stored_at: datetime | None = None
    redacted: bool = False

    def __repr__(self) -> str:
        place = f" {self.seq}" if self.seq else ""
        return f"<Custom{place} {self.kind}{f' {self.id!r}' if self.id else ''}{' redacted' if self.redacted else ''}>"


class Written(Portable, msgspec.Struct, frozen=True):
    """What one ``write`` stored: its items in order, the session's revision after it, and the name of the branch."""

    entries: tuple[Message | Custom, ...]
    revision: int
    branch: str

    def __repr__(self) -> str:
        return f"<Written {len(self.entries)} entries on {self.branch}, revision {self.revision}>"


# ---------------------------------------------------------------------- storing


def custom_draft(item: Custom, at_ms: int | None) -> Draft:
    """Check and encode a custom entry."""
    kind = codec.storable_text(item.kind, what="the kind of a custom entry")
    if not 0 < len(kind) <= _LONGEST_KIND or not kind.isprintable():
        raise Invalid(f"the kind of a custom entry has 1 to {_LONGEST_KIND} printable characters, not {kind!r:.60}")
    body: dict[str, Any] = {"data": item.data}
    if item.text is not None:
        if not isinstance(item.text, str):
            raise Invalid(f"the text of a custom entry must be a string, not {type(item.text).__name__}")
        body["text"] = item.text
    hashes = _hashes(item.contents)
    if hashes:
        body["contents"] = list(hashes)
    if not isinstance(item.opens_turn, bool):
        raise Invalid(f"opens_turn must be True or False, not {item.opens_turn!r:.40}")
    if item.opens_turn:
        body["opens_turn"] = True
    return Draft(
        CUSTOM + kind,
        codec.encode(body),
        mid=None if item.id is None else message.require_id(item.id),
        adds=custom_adds(body),
        more=More(blobs=hashes) if hashes else None,
        at_ms=at_ms,
    )


def custom_adds(body: Mapping[str, Any]) -> Numbers:
    """Return what a custom entry adds to the running totals."""
    return Numbers(turns=1) if body.get("opens_turn") is True else Numbers()


def custom_contents(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the hashes of the contents that a custom entry needs."""
    return tuple(body.get("contents") or ())


def as_custom(
    branch: str,
    place: tuple[int, int],
    kind: str,
    mid: str | None,
    body: bytes | None,
    times: tuple[int, int],
) -> Custom:
    """Return a stored custom entry; ``place`` is its seq and turn, ``times`` when it happened and was stored."""
    said: Any = {} if body is None else codec.decode(body)
    seq, turn = place
    return Custom(
        kind.removeprefix(CUSTOM),
        said.get("data"),
        id=mid or entry_id(branch, seq),
        text=said.get("text"),
        contents=custom_contents(said),
        opens_turn=bool(said.get("opens_turn")),
        created_at=to_datetime(times[0]),
        seq=seq,
        turn=turn,
        branch=branch,
        stored_at=to_datetime(times[1]),
        redacted=body is None,
    )


def _hashes(contents: Iterable[str]) -> tuple[str, ...]:
    if isinstance(contents, str) or not isinstance(contents, Iterable):
        raise Invalid("contents must be a list of hashes that put_content returned")
    found = tuple(dict.fromkeys(contents))
    for each in found:
        if not isinstance(each, str) or len(each) != 64 or set(each) - set("0123456789abcdef"):
            raise Invalid(f"{each!r:.80} is not a hash that put_content returned")
    return found


def native_draft(item: Native, given: Given | None, at_ms: int | None) -> Draft:
    """Check and encode a native message; ``given`` is how its form reads the object inside, if it has one."""
    value = item.value
    raw = value if isinstance(value, bytes) else _verbatim(value)
    body: dict[str, Any] = {"role": item.role, "content": item.text or ""}
    for name in ("id", "model", "origin", "form"):
        if (said := getattr(item, name)) is not None:
            body[name] = said
    if item.metadata is not None:
        body["metadata"] = dict(item.metadata)
    usage = None if item.usage is None else Usage.of(item.usage)
    if given is None:
        for name, field in _PART.items():
            if parts := getattr(item, name):
                body[field] = list(parts)
        message.tool_parts(body)
    else:
        body.pop("content")
        body["role"] = given.role
        if item.pointer:
            body["pointer"] = item.pointer
        usage = usage or given.usage
        if given.model is not None:
            body.setdefault("model", given.model)
    if usage is not None:
        body["usage"] = msgspec.to_builtins(usage)
    return message.draft(body, raw=raw, usage=usage, given=given)._replace(at_ms=at_ms)


def _verbatim(value: Any) -> bytes:
    """Write JSON data as it is; what JSON cannot hold would come back as something else."""
    raw = message.encode_raw(value)  # which refuses what is nested too deep
    _require_json(value)
    return raw


def _require_json(value: Any) -> None:
    if isinstance(value, float) and not isfinite(value):
        raise Invalid("JSON has no infinity and no NaN; pass the bytes as they came, or leave these numbers out")
    if isinstance(value, dict):
        for name, each in value.items():
            if not isinstance(name, str):
                raise Invalid(f"the names in a native value are strings, not {type(name).__name__}")
            _require_json(each)
    elif isinstance(value, list | tuple):
        for each in value:
            _require_json(each)
    elif value is not None and not isinstance(value, str | int | float):
        kind = type(value).__name__
        raise Invalid(f"a native value is JSON data or bytes; {kind} has no form in JSON: pass what was received")


def inside(item: Native) -> Any:
    """Return the object that the form of a native message describes; what is not there raises ``Invalid``."""
    value = message.decode_raw(item.value) if isinstance(item.value, bytes) else item.value
    if item.calls or item.results or item.text is not None:
        raise Invalid("with form= the provider's object says text, calls and results; leave them out")
    found = pointer.resolve(value, item.pointer or "")
    if not isinstance(found, dict):
        where = f"at {item.pointer!r}" if item.pointer else "in the value"
        raise Invalid(f"there is no object {where} that could be a message in the form {item.form!r}")
    return found
