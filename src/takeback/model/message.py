"""Messages: the entries that models and people read.

The body of a message entry is a small normal form; the provider's own bytes lie beside it
in ``raw``, verbatim. Fields that Takeback does not know are kept in ``extra`` and come back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from .. import codec
from ..clock import to_datetime
from ..errors import Corrupt, Invalid
from ..ids import entry_id
from . import Home, Portable, objects
from . import pointer as pointers
from .entry import Draft, More, Numbers
from .tools import ToolCall, ToolResult
from .usage import Usage

if TYPE_CHECKING:
    from .given import Form, Given

MESSAGE = "message"
TOOL_MESSAGE = "tool"
_json = msgspec.json.Encoder().encode
MESSAGE_KINDS = frozenset({MESSAGE, TOOL_MESSAGE})
PERSON = "person"
ORIGINS = (PERSON, "harness", "notification")


class Body(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The stored normal form of a message. With a ``form`` the content lies in ``raw``, verbatim, and only there."""

    role: str
    content: Any = ""
    id: str | None = None
    model: str | None = None
    usage: Usage | None = None
    duration: float | None = None
    status: str = "complete"
    parent_id: str | None = None
    metadata: dict[str, Any] | None = None
    extra: dict[str, Any] | None = None
    form: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_results: list[dict[str, Any]] | None = None
    tool_name: str | None = None
    answers: list[str] | None = None  # the calls that its results answer, where the provider's form does not say
    attachments: list[dict[str, Any]] | None = None
    origin: str | None = None
    pointer: str | None = None  # where in ``raw`` the object in the provider's form is
    content_at: list[str] | None = None  # where in ``raw`` the content is, which is then not stored a second time


class Speech(msgspec.Struct, frozen=True, gc=False):
    """The part of a body that most readers look at; decoding it alone takes half as long."""

    role: str
    content: Any = ""
    form: str | None = None
    pointer: str | None = None
    content_at: list[str] | None = None


@cache
def _decoder() -> msgspec.json.Decoder[Body]:
    """Make the decoder of bodies when the first one is read: listing sessions reads none."""
    return msgspec.json.Decoder(Body)


_decode_said = msgspec.json.Decoder(Speech).decode
_decode_json = msgspec.json.Decoder().decode


if TYPE_CHECKING:
    Known: TypeAlias = Body | Speech
    Reader: TypeAlias = Callable[[dict[str, Any]], Any]
else:  # what msgspec decodes: the part that both have, and a home without a store
    Known, Reader = Speech, Home


class Message(Portable, msgspec.Struct, frozen=True, gc=False, eq=False):
    """One message of a session, as stored. Its content is decoded when it is first looked at."""

    branch: str
    seq: int
    turn: int
    at_ms: int
    data: bytes | None
    raw: bytes | None = None
    _body: Known | None = None
    _reader: Reader | None = None
    _rest: bytes | int = 0  # how long after it happened it was stored, in ms, or the packed record that begins with it

    @property
    def body(self) -> Body:
        """The stored normal form; an erased message says so in its status."""
        if type(self._body) is Body:
            return self._body
        decoded = REDACTED if self.data is None else decode_body(self.data)
        force_setattr(self, "_body", decoded)
        return decoded

    def _look(self) -> Body | Speech:
        """Decode what was said, and nothing else."""
        data = self.data
        if data is None or (36 in data and codec.has_escapes(data)):  # 36 is "$": few bodies have one
            return self.body
        try:
            said = _decode_said(data)
        except (msgspec.DecodeError, RecursionError):
            return self.body  # raises ``Corrupt``, and says what is wrong
        force_setattr(self, "_body", said)
        return said

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        here, there = self._identity(), other._identity()
        # Equal content may be written in two ways: one that came back from a dict has its keys in another order.
        return here == there or (here[:4] == there[:4] and self.to_dict() == other.to_dict())

    def __hash__(self) -> int:
        return hash((self.branch, self.seq))

    def _identity(self) -> tuple[object, ...]:
        return self.branch, self.seq, self.turn, self.at_ms, self.data, self.raw

    def _parts(self) -> dict[str, Any]:
        from . import message_parts

        return message_parts.parts(self)

    @classmethod
    def _from_parts(cls, given: Mapping[str, Any]) -> Message:
        from . import message_parts

        return message_parts.made(given)

    @property
    def id(self) -> str:
        """The id given by the caller, else one made from branch and seq."""
        return self.body.id or entry_id(self.branch, self.seq)

    @property
    def role(self) -> str:
        """``user``, ``assistant``, ``system``, ``tool``, or whatever the provider calls it."""
        return (self._body or self._look()).role

    @property
    def content(self) -> Any:
        """The parts of the message as they were given, or its text."""
        said = self._body or self._look()
        if said.form is not None:
            return _form(said.form).content(self.given())
        return said.content if said.content_at is None else self._own(said)

    @property
    def text(self) -> str:
        """All its text as one string."""
        said = self._body or self._look()
        if said.form is not None:
            return _form(said.form).text(self.given())
        return _text(said.content if said.content_at is None else self._own(said))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that it announces; ``Session.tool_calls`` says what became of them."""
        body = self.body
        if body.form is not None:
            found = _form(body.form).calls(self.given())
            place: dict[str, Any] = {"seq": self.seq, "entry_id": entry_id(self.branch, self.seq)} if found else {}
            return tuple(msgspec.structs.replace(call, **place) for call in found)
        return tuple(
            ToolCall(
                call["id"] or unnamed(number),
                call["name"],
                call.get("arguments"),
                seq=self.seq,
                entry_id=entry_id(self.branch, self.seq),
            )
            for number, call in enumerate(body.tool_calls or ())
        )

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The tool results that it carries."""
        body = self.body
        if body.form is None:
            content = self._own(body) if body.tool_results else None
            found = tuple(ToolResult(**{"content": content, **result}) for result in body.tool_results or ())
        else:
            found = _form(body.form).results(self.given())
        if body.answers is None:
            return found
        return tuple(msgspec.structs.replace(r, call_id=id) for r, id in zip(found, body.answers, strict=False))

    @property
    def tool_name(self) -> str | None:
        """The tool that a tool message comes from."""
        return self.body.tool_name or next((result.name for result in self.tool_results if result.name), None)

    @property
    def attachments(self) -> tuple[Any, ...]:
        """The attachments, each with ``open()`` and ``read()``; those of an ``AsyncSession`` are awaited."""
        return tuple(map(self._reader or Home(), self.body.attachments or ()))

    def _own(self, said: Body | Speech) -> Any:
        """Return the content of a message in our own form, which may be stored inside ``raw`` alone."""
        if said.content_at is None:
            return said.content
        return pointers.joined(decode_raw(self.raw or b""), said.content_at)

    def given(self) -> dict[str, Any]:
        """Return the message as its provider has it, decoded from ``raw``; empty if there is no such object."""
        given = None if self.raw is None else decode_raw(self.raw)
        place = (self._body or self._look()).pointer
        given = given if place is None else pointers.resolve(given, place)
        return given if type(given) is dict else {}

    @property
    def usage(self) -> Usage | None:
        """Tokens and cost, where they were given."""
        return self.body.usage

    @property
    def model(self) -> str | None:
        """The model that spoke."""
        return self.body.model

    @property
    def duration(self) -> float | None:
        """Active seconds that it took."""
        return self.body.duration

    @property
    def status(self) -> str:
        """``complete``, or how it ended."""
        return self.body.status

    @property
    def parent_id(self) -> str | None:
        """The message that this one answers, if that was said."""
        return self.body.parent_id

    @property
    def metadata(self) -> dict[str, Any]:
        """What the caller attached."""
        return self.body.metadata or {}

    @property
    def extra(self) -> dict[str, Any]:
        """Fields of the given message that Takeback has no name for."""
        return self.body.extra or {}

    @property
    def origin(self) -> str | None:
        """Who stands behind a user message: ``person``, ``harness`` or ``notification``; None if nobody said."""
        return self.body.origin

    @property
    def created_at(self) -> datetime:
        """When it happened: the time that the caller gave, else when it was stored."""
        return to_datetime(self.at_ms)

    @property
    def stored_at(self) -> datetime:
        """When it was stored, by the writer's clock."""
        rest = self._rest
        late_ms: int = rest if isinstance(rest, int) else msgspec.msgpack.decode(rest)[0]
        return to_datetime(self.at_ms + late_ms)

    def _repr_html_(self) -> str:
        from . import html

        return html.table(f"{self.seq} {self.role}", (f"{self.created_at:%Y-%m-%d %H:%M:%S} UTC",), [[self.text]])

    def __repr__(self) -> str:
        text = self.text.replace("\n", " ")
        shown = text if len(text) <= 40 else text[:37] + "..."
        return f"<Message {self.seq} {self.role} {shown!r}>"


@cache
def _form(name: str) -> Form:
    """Load what reads a provider's form with the first message that has it."""
    from . import forms

    return forms().find_form(name)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else _as_json(content)
    parts = (part if isinstance(part, str) else _part_text(part) for part in content)
    return "\n".join(part for part in parts if part)


def _as_json(value: Any) -> str:
    """Show what a tool gave as data; bytes and half characters need not be readable."""
    import json

    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)


def _part_text(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else ""


# ---------------------------------------------------------------------- storing


def draft(
    body: dict[str, Any], *, raw: bytes | None = None, usage: Usage | None = None, given: Given | None = None
) -> Draft:
    """Check and encode a message for storing; what cannot be stored raises ``Invalid`` here.

    ``usage`` is what the body holds under that name, for the running totals; ``given`` what a provider's form says.
    """
    if raw is not None and not isinstance(raw, bytes):
        raise Invalid(f"raw must be the provider's bytes, not {type(raw).__name__}")
    role, mid = codec.storable_text(body.get("role"), what="role"), body.get("id")
    if mid is not None:
        require_id(mid)
    if raw is not None and given is None:
        body = _said_once(body, raw)
    data = codec.encode(body)
    if len(body) > 2:
        _require_readable(data)
    kind = TOOL_MESSAGE if role == "tool" else MESSAGE
    is_turn = (role == "user" if given is None else given.is_turn) and _is_asked(body.get("origin"))
    if given is None and (len(body) == 2 or body.keys().isdisjoint(_RARE)):
        return Draft(kind, data, raw, mid, _adds(is_turn, usage, body.get("duration")))
    calls, results = _tools(body, given)
    more = _more(body, calls, results)
    return Draft(kind, data, raw, mid, _adds(is_turn, usage, body.get("duration"), more, results), more=more)


def require_id(mid: object) -> str:
    """Check the id that a caller gave to an entry."""
    if not 0 < len(found := codec.storable_text(mid, what="message id")) <= _LONGEST_ID:
        raise Invalid(f"a message id has 1 to {_LONGEST_ID} characters; leave it out to get one")
    return found


def _is_asked(origin: object) -> bool:
    """Whether a user message opens a turn: what a harness or a notification says in the user's place does not."""
    if origin is not None and origin not in ORIGINS:
        raise Invalid(f"origin must be one of {', '.join(ORIGINS)} or None, not {origin!r:.60}")
    return origin in (None, PERSON)


def _said_once(body: dict[str, Any], raw: bytes) -> dict[str, Any]:
    """Leave out content that is in the caller's raw bytes as well."""
    content = body.get("content")
    places = pointers.locate(decode_raw(raw), content) if content else None
    if places is None:
        return body
    return {**{name: value for name, value in body.items() if name != "content"}, "content_at": places}


def text_draft(body: dict[str, Any]) -> Draft:
    """Encode the commonest message there is: a role and a text, and nothing else."""
    role = codec.storable_text(body["role"], what="role")
    try:
        data = _json(body)
    except UnicodeEncodeError:  # half a character: the codec knows how to keep it
        data = codec.encode(body)
    return Draft(TOOL_MESSAGE if role == "tool" else MESSAGE, data, adds=_USER_TURN if role == "user" else _ONE_MESSAGE)


def given_draft(given: Given, ours: dict[str, Any] | None = None) -> Draft:
    """Keep a provider's message verbatim, with what the log needs to know about it and our own fields of it."""
    raw = encode_raw(given.value)
    if ours:
        body: dict[str, Any] = {"role": given.role, "form": given.form, "model": given.model, **ours}
        if given.usage is not None:
            body["usage"] = msgspec.to_builtins(given.usage)
        body = {name: value for name, value in body.items() if value is not None}
        return draft(body, raw=raw, usage=given.usage, given=given)
    data = _encoded(Body(given.role, model=given.model, usage=given.usage, form=given.form))
    more = _more({"role": given.role}, given.calls, given.results) if given.calls or given.results else None
    kind = TOOL_MESSAGE if given.role == "tool" else MESSAGE
    return Draft(kind, data, raw, None, _adds(given.is_turn, given.usage, None, more, given.results), more=more)


def _encoded(body: Body) -> bytes:
    """Encode a body whose fields are texts and numbers; what UTF-8 cannot hold needs the codec."""
    try:
        return _json(body)
    except UnicodeEncodeError:
        return codec.encode(msgspec.to_builtins(body))


_LONGEST_ID = 1000
_RARE = frozenset({"tool_calls", "tool_results", "parent_id", "attachments"})


def _tools(body: dict[str, Any], given: Given | None) -> tuple[Sequence[ToolCall], Sequence[ToolResult]]:
    """Return the calls and results of a message, of whatever form."""
    if given is not None:
        return given.calls, given.results
    given_calls = enumerate(body.get("tool_calls") or ())
    calls = [ToolCall(call["id"] or unnamed(number), call["name"], call["arguments"]) for number, call in given_calls]
    results = [ToolResult(**{"content": None, **result}) for result in body.get("tool_results") or ()]
    return calls, results


def unnamed(number: int) -> str:
    """Return the id of a call that came without one: its place among the calls of its message."""
    return f"call-{number}"


def is_unnamed(call_id: str) -> bool:
    """Whether a call came without an id and goes by its place."""
    return call_id.startswith("call-") and call_id[5:].isdecimal()


def tool_parts(body: dict[str, Any]) -> None:
    """Check the calls and results of a message in our own form, and keep of each what a provider is told."""
    for field, wanted in (("tool_calls", ("id", "name")), ("tool_results", ("call_id",))):
        if field not in body:
            continue
        given = body[field]
        if not isinstance(given, list | tuple):
            raise Invalid(f"{field} is a list, not {type(given).__name__}")
        body[field] = [_tool_part(part, wanted) for part in given]


def _tool_part(part: Any, wanted: tuple[str, ...]) -> dict[str, Any]:
    value = msgspec.to_builtins(part) if isinstance(part, msgspec.Struct) else part
    if not isinstance(value, dict):
        raise Invalid(f"a tool call or result is a dict, not {type(part).__name__}")
    known = {name: "" if value.get(name) is None else value[name] for name in wanted}  # some give no ids
    for name in wanted:
        if not codec.storable_text(known[name], what=f"a tool's {name}") and name == "name":
            raise Invalid(f"a tool's {name} must not be empty")
    if "id" in wanted:
        return {**known, "arguments": value.get("arguments")}
    kept = {**known, "success": bool(value.get("success", True))}
    kept |= {"denied": True} if value.get("denied") is True else {}
    return {**kept, **{name: value[name] for name in ("content", "name") if value.get(name) is not None}}


def _more(body: dict[str, Any], calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> More | None:
    marks = [("call", call.id) for call in calls] + [("result", result.call_id) for result in results]
    # A tool's result that names no call is tied to one by its place, when it is stored.
    nameless = ("result", "") if body.get("role") == "tool" else None
    safe = tuple([mark for mark in marks if mark == nameless or _is_indexable(mark[1])])
    hashes = tuple([each["hash"] for each in body.get("attachments") or () if each.get("hash")])
    parent, tools = body.get("parent_id"), tuple([(call.id, call.name) for call in calls])
    return More(parent, safe, hashes, tools) if parent is not None or safe or hashes else None


def _is_indexable(name: str) -> bool:
    """Return whether a provider's call id can be kept in a column; hardly any cannot."""
    try:
        return bool(codec.storable_text(name, what="id"))
    except Invalid:
        return False


def encode_raw(value: Any) -> bytes:
    """Write a provider's message as the JSON it came as: keys in order, nothing escaped that need not be.

    Bytes, which some SDKs have where the wire has base64, become base64.
    """
    try:
        data = _json(value)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError, OverflowError):
        return _escaped(value)
    if data.count(b"{") + data.count(b"[") > codec.MAX_DEPTH:
        objects.require_shallow(value)
    return data


def _escaped(value: Any) -> bytes:
    """Write what plain UTF-8 cannot hold."""
    import json

    try:  # half a surrogate pair is legal JSON when escaped
        return json.dumps(value, separators=(",", ":"), allow_nan=False, default=msgspec.to_builtins).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"the message cannot be written as JSON: {error}") from error


def decode_raw(raw: bytes) -> Any:
    """Read a provider's bytes; what is no JSON reads as None and is still there in ``raw``."""
    try:
        return _decode_json(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    import json

    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _require_readable(data: bytes) -> None:
    """Refuse what could be stored but not be read back as a message."""
    try:
        decode_body(data)
    except Corrupt as error:
        raise Invalid(f"a field of the message has the wrong type: {error.__cause__}") from error


def _adds(
    is_turn: bool,
    usage: Usage | None,
    duration: Any,
    more: More | None = None,
    results: Sequence[ToolResult] = (),
) -> Numbers:
    """Return what a message adds to the running totals."""
    if usage is None and duration is None and more is None and not results:
        return _USER_TURN if is_turn else _ONE_MESSAGE
    counts = (0,) * 6 if usage is None else usage.counts()
    is_number = isinstance(duration, int | float) and not isinstance(duration, bool)
    if duration is not None and not (is_number and 0 <= duration < 1e9):
        raise Invalid(f"duration is in seconds, from 0 to 1e9, not {duration!r}")
    # As many calls as the log can find again: their number tells whether a record of one is missing.
    announced = len({name for what, name in more.calls if what == "call"}) if more else 0
    failed = sum([not result.success and not result.denied for result in results]) if results else 0
    return Numbers._make((1, int(is_turn), announced, failed, *counts, round((duration or 0) * 1000), 0, 0, 0))


_USER_TURN = Numbers(messages=1, turns=1)
_ONE_MESSAGE = Numbers(messages=1)


def decode_body(data: bytes) -> Body:
    """Decode a stored message body; damage raises ``Corrupt``."""
    try:
        if codec.has_escapes(data):
            return msgspec.convert(codec.decode(data), Body)
        return _decoder().decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise Corrupt(f"a stored message cannot be decoded: {error}", what="message") from error


REDACTED = Body(role="redacted", status="redacted")


def erased(mid: str | None) -> Body:
    """Return what is left of an erased message: its id, if the caller gave it one."""
    return REDACTED if mid is None else msgspec.structs.replace(REDACTED, id=mid)
