"""Stored messages as items of the normal form.

A message in a provider's format is read block by block and keeps its own JSON; one in our format is read from its
content, calls, results and attachments. A tool start that no message announced becomes an assistant's call. What cannot
be read (erased, damaged, in an unknown format) is skipped and noted: one bad message never makes reading raise.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeGuard

import msgspec
from msgspec.structs import replace

from ..errors import Corrupt, NotFound
from ..model import pointer
from ..model.entry import Entry
from ..model.message import Body, Message, decode_raw
from ..model.tools import ToolResult
from ..providers import NAMES, find_provider
from ..providers.blocks import blocks, media, result
from ..providers.glance import decode
from ..providers.known import unknown
from ..providers.lenient import word
from ..providers.normal import Call, Item, Notes, Opaque, Part, Result, Text, clean, texts
from .runs import Run, stand_ins

SUMMARY = "This is a summary of the conversation so far; the messages it stands for are not shown.\n\n"
UNREADABLE = (Corrupt, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_HALF = frozenset({"interrupted", "cancelled", "streaming"})
_NOTHING: Mapping[int, Item] = MappingProxyType({})
_ROLES = frozenset({"user", "assistant", "system", "developer", "tool"})


class Conversation(NamedTuple):
    """The content of a path: system messages, and the rest."""

    system: list[str]
    items: list[Item]


def read(
    sources: Iterable[Message | Entry | Run],
    notes: Notes,
    known: Mapping[int, Item] = _NOTHING,
    *,
    summary: str | None = None,
    upto: int = 0,
    developer: bool = False,
    denied: Mapping[tuple[int, str], str] = MappingProxyType({}),
) -> Conversation:
    """Read messages and tool starts in log order, after the summary of what came before them.

    ``known`` are items that were read before, by the seq of their messages. What a ``developer`` says stays in its
    place if there is a role for it, and is collected with the system messages otherwise. Calls that were ``denied``
    are answered with that.
    """
    found, cuts = Conversation([], []), list[int]()
    if summary:
        found.items.append(Item("user", (Text(clean(SUMMARY + summary)),), upto))
        cuts.append(1)
    for source in sources:
        if isinstance(source, Run):
            found.items.extend(stand_ins(source))
            continue
        kept = known.get(source.seq)
        item = kept or (_start(source, notes) if isinstance(source, Entry) else item_of(source, notes))
        if item is not None and (item.role == "system" or (item.role == "developer" and not developer)):
            _tell(found, item, notes)
        elif item is not None:
            found.items.append(item)
            if denied:
                found.items.extend(_refused(item, denied, notes))
        elif isinstance(source, Message):
            cuts.append(len(found.items))
    for cut in cuts:
        _uncut(found.items, cut, notes)
    return found


def _refused(item: Item, denied: Mapping[tuple[int, str], str], notes: Notes) -> Iterator[Item]:
    """Yield results for the calls of an item that a person did not allow."""
    for part in item.parts:
        if isinstance(part, Call) and (said := denied.get((item.seq, part.id))) is not None:
            notes.add("closed a call that was denied", item.seq)
            yield Item("tool", (Result(part.id, (Text(clean(said)),), False, part.name),), item.seq)


def spoken(message: Message) -> str:
    """Return the text of a message without the tool results in it."""
    if not message.tool_results:
        return message.text
    return "\n".join(texts(item.parts) for item in read([message], Notes()).items)


def _uncut(items: list[Item], start: int, notes: Notes) -> None:
    """Remove the ids of answers whose reasoning was cut off before ``start``: some providers refuse those ids."""
    for index, item in enumerate(items[start:], start):
        if item.role != "assistant" or any(isinstance(part, Opaque) for part in item.parts):
            break
        if item.form in NAMES and (kept := find_provider(item.form).rules.untied(item)) is not item:
            notes.add("sent an answer without its id, which belongs to reasoning that is gone", item.seq)
            items[index] = kept


def _tell(found: Conversation, item: Item, notes: Notes) -> None:
    """Collect a system message separately; items that only configure stay in place, for their own provider."""
    if item.parts and all(isinstance(part, Opaque) for part in item.parts):
        found.items.append(Item("user", item.parts, item.seq, item.form, item.raw))
        return
    if any(not isinstance(part, Text) for part in item.parts):
        notes.add("left out what was not text in a system message", item.seq)
    if text := texts(item.parts):
        found.system.append(text)
        if item.role == "developer":
            notes.add("moved a developer message into the system prompt", item.seq)


def is_new(body: object) -> TypeGuard[dict[str, Any]]:
    """Whether a tool start is a call of its own, not one that a message announced."""
    return isinstance(body, dict) and "arguments" in body


def _start(entry: Entry, notes: Notes) -> Item | None:
    """Read the start of a tool."""
    body = entry.content
    if not is_new(body):
        return None
    call = Call(word(body.get("call_id")), word(body.get("name")), _cleaned(body["arguments"], notes, entry.seq))
    return Item("assistant", (call,), entry.seq)


def item_of(message: Message, notes: Notes) -> Item | None:
    """Read one message; None if it cannot be read."""
    try:
        body = message.body
    except Corrupt:
        notes.add("skipped a message that cannot be read", message.seq)
        return None
    if message.data is None or body.status == "redacted":
        notes.add("skipped an erased message", message.seq)
        return None
    item = _ours(message, notes) if body.form is None else _given(message, body.form, notes)
    if item is not None and item.role not in _ROLES:
        notes.add(f"sent role {item.role!r} as user", item.seq)
        item = Item("user", item.parts, item.seq)
    return item if item is None or item.role != "assistant" else _marked(item, body, notes)


def _cleaned(value: Any, notes: Notes, seq: int) -> Any:
    fit = clean(value)
    if fit is not value:
        notes.add("replaced what JSON cannot hold", seq)
    return fit


def _marked(item: Item, body: Body, notes: Notes) -> Item:
    """Record which model answered, and mark a partial answer: before its calls, since nothing may follow those."""
    model = body.model or (word(item.raw.get("model")) if isinstance(item.raw, dict) else "") or None
    if body.status not in _HALF or not item.parts:
        return item if model is None else replace(item, model=model)
    notes.add(f"marked an answer as {body.status}", item.seq)
    # Thinking with nothing after it may itself be cut off, with no way to tell: leave it out.
    said = () if all(isinstance(part, Opaque) for part in item.parts) else item.parts
    place = next((place for place, part in enumerate(said) if isinstance(part, Call)), len(said))
    parts = (*said[:place], Text(f"[{body.status}]"), *said[place:])
    return replace(item, parts=parts, raw=None, model=model, half=True)


# ---------------------------------------------------------------------- in a provider's form


def _given(message: Message, form: str, notes: Notes) -> Item | None:
    try:
        value = decode(message.raw or b"")  # which refuses what would have to be cleaned
    except UNREADABLE:
        value = _cleaned(decode_raw(message.raw or b""), notes, message.seq)
    if message.body.pointer is not None:
        value = pointer.resolve(value, message.body.pointer)
    if not isinstance(value, dict):
        notes.add("skipped a message that cannot be read", message.seq)
        return None
    if form not in NAMES:
        return Item(message.role, tuple(_plainly(message)), message.seq)
    speaks = find_provider(form)
    value = speaks.sound(message.body.role, value, lambda sentence: notes.add(sentence, message.seq))
    parts = tuple(speaks.read(value))
    role = "developer" if value.get("role") == "developer" else message.body.role
    for part in parts:
        if type(part) is Call and part.raw is None:  # it had no id and was given one, so its JSON cannot be sent
            value = None
            notes.add("gave an id to a call without one", message.seq)
    return Item(role, parts, message.seq, form, value)


def _plainly(message: Message) -> Iterator[Part]:
    """Read a message in a format that only a newer Takeback knows, from what every format has."""
    if message.text and message.role != "tool":
        yield Text(clean(message.text))
    yield from (Call(call.id, call.name, clean(call.arguments)) for call in message.tool_calls)
    yield from (_result(each) for each in message.tool_results)


# ---------------------------------------------------------------------- in our own form


def _ours(message: Message, notes: Notes) -> Item | None:
    body, seq, own = message.body, message.seq, message.content
    if body.extra or isinstance(own, list):
        _note_unsent(body.extra, own, notes, seq)
    more = body.role == "tool" or body.tool_calls or body.tool_results or body.attachments
    if type(own) is str and not more:  # the common case
        return Item(body.role, (Text(_cleaned(own, notes, seq)),) if own else (), seq)
    if message.role == "tool" and not body.tool_results:
        notes.add("dropped a tool's message that names no call", seq)
        return None
    parts = list[Part]()
    if not body.tool_results or (message.role != "tool" and all("content" in each for each in body.tool_results)):
        content = _cleaned(own, notes, seq)
        parts += blocks(content if content is None or isinstance(content, str | list) else message.text, None)
    known = {part.id for part in parts if isinstance(part, Call)}
    for call in message.tool_calls:
        if call.id not in known:
            parts.append(Call(call.id, call.name, _cleaned(call.arguments, notes, seq)))
    parts += [_result(each, notes, seq) for each in message.tool_results]
    parts += _attached(message, notes)
    return Item(message.role, tuple(parts), seq)


def _note_unsent(extra: dict[str, Any] | None, content: Any, notes: Notes, seq: int) -> None:
    """Note fields that no provider's message has: they are kept, and not sent."""
    names = [*(extra or ())]
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") == "text":
            names += [name for name in part if name not in ("type", "text")]
    if names:
        notes.add(f"left out fields that no provider knows: {unknown(names)}", seq)


def _result(given: ToolResult, notes: Notes | None = None, seq: int = 0) -> Result:
    content = clean(given.content) if notes is None else _cleaned(given.content, notes, seq)
    return result(given.call_id, content, success=given.success, name=given.name)


def _attached(message: Message, notes: Notes) -> Iterator[Part]:
    for attachment in message.attachments:
        mime, name = attachment.mime_type or "application/octet-stream", attachment.name
        if attachment.url is not None:
            yield media(mime, url=attachment.url, name=name)
            continue
        try:
            data = attachment.read()
        except (Corrupt, NotFound):
            notes.add(f"left out an attachment that cannot be read: {name or attachment.id}", message.seq)
            continue
        yield _file(mime, name, data)


def _file(mime: str, name: str | None, data: bytes) -> Part:
    """Return a text file as text, which every provider accepts, and anything else as media."""
    if mime.startswith("text/") or mime in ("application/json", "application/javascript", "application/x-sh"):
        return Text(f"{name or 'file'}:\n{data.decode(errors='replace')}")
    return media(mime, data=base64.b64encode(data).decode(), name=name)
