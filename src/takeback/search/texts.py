"""What an entry says, for the index: its text, and the fields that filters ask for.

A message says its text, the inputs of its tool calls, the outputs of their results and the names of its attachments.
Of other entries it is whatever a person or a model wrote: plans, tasks, notes, summaries, questions and answers, paths
of files, the text of a custom entry. Data that is not text, such as the base64 of an image, is left out, and so are
thinking and the state of a session. So are the inputs and outputs of tools that search a store: they repeat what was
looked for and found, and the next search would find them first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .. import codec
from ..errors import Error
from ..model.items import CUSTOM
from ..model.message import MESSAGE_KINDS, Message
from ..tables.entries import EntryRow

# What a hit can be, by the number that the index keeps.
_WORK = ("plan", "task", "note", "walkthrough", "summary", "file")
KINDS = ("message", "call", "result", *_WORK, "approval", "custom", "status", "title")
NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
TITLE = NUMBERS["title"]
_DEEPEST = 200
_DATA = frozenset({"data", "file_data", "signature", "encrypted_content", "image_url", "bytes", "b64_json"})
_SEARCHES = ("search_history", "conversation_search")  # of takeback.tools; clients put a prefix before them
_NAMES = frozenset({"id", "type", "tool_use_id", "call_id", "media_type", "mime_type", "mimeType"})


class EntryText(NamedTuple):
    """What an entry says: what it mostly is, everything it is, who speaks, which tools, and its texts.

    ``parts`` are the texts of a message as a hit shows them, each with its kind.
    """

    kind: str
    kinds: tuple[str, ...]
    role: str
    tools: tuple[str, ...]
    texts: tuple[str, ...]
    parts: tuple[tuple[str, str], ...] = ()

    def shown(self, kinds: Collection[str]) -> list[str]:
        """Return the texts that a hit may show, those of these kinds first."""
        parts = self.parts or [(self.kind, text) for text in self.texts]
        return [text for _, text in sorted(parts, key=lambda part: part[0] not in kinds)]


ToolOf = Callable[[str], "str | None"]  # which tool a call was made to


def said(row: EntryRow, tool_of: ToolOf) -> EntryText | None:
    """Return what a loaded entry says; None if that is nothing, or if it was redacted."""
    if row.body is None:
        return None
    if row.kind in MESSAGE_KINDS:
        return _message(row, tool_of)
    read = _READ.get("custom" if row.kind.startswith(CUSTOM) else row.kind)
    if read is None:
        return None
    body = codec.decode(row.body)
    return read(body) if isinstance(body, dict) else None


def calls_in(row: EntryRow) -> dict[str, str]:
    """Return the tool of each call that an entry announces or starts."""
    if row.body is None:
        return {}
    if row.kind in MESSAGE_KINDS:
        return {call.id: call.name for call in as_message(row).tool_calls}
    if row.kind == "call":
        body = codec.decode(row.body)
        return {body["call_id"]: body["name"]} if "arguments" in body else {}
    return {}


def as_message(row: EntryRow) -> Message:
    """Return an entry as a message whose attachments are only named."""
    return Message("", row.seq, row.turns, row.at_ms, row.body, row.raw)


def _message(row: EntryRow, tool_of: ToolOf) -> EntryText:
    message = as_message(row)
    body = message.body
    role, text = message.role, message.text
    if body.form is None and body.tool_calls is None and body.tool_results is None and body.attachments is None:
        return EntryText(
            "message", ("message",), role, (body.tool_name,) if body.tool_name else (), (text,) if text else ()
        )
    parts = [("message", text)] if text else []
    kinds, tools = ["message"] if text and role != "tool" else [], list[str]()
    for call in message.tool_calls:
        kinds.append("call")
        tools.append(call.name)
        parts.append(("call", _asked(call.name, call.arguments)))
    for result in message.tool_results:
        kinds.append("result")
        tools.append(tool := result.name or body.tool_name or tool_of(result.call_id) or "")
        if tool.endswith(_SEARCHES):
            parts = [(kind, _without(each, plain(result.content))) for kind, each in parts]
        else:
            parts += [("result", each) for each in plain(result.content) if each not in text]
    texts = [each for _, each in parts]
    if names := [each["name"] for each in body.attachments or () if isinstance(each.get("name"), str)]:
        texts += names
        parts.append(("message", attached(names)))
    kinds = kinds or ["message"]
    used = tuple(filter(None, dict.fromkeys(tools)))
    return EntryText(kinds[0], tuple(dict.fromkeys(kinds)), role, used, tuple(texts), tuple(parts))


def attached(names: Iterable[str]) -> str:
    """Return the line that names what is attached to a message."""
    return f"attached: {', '.join(names)}"


def _asked(tool: str, given: Any) -> str:
    """Return what a call says: the tool and its input."""
    return tool if tool.endswith(_SEARCHES) else " ".join([tool, *plain(given)])


def _without(text: str, parts: Iterator[str]) -> str:
    """Take the text of a result out of that of its message, which may hold it."""
    for part in parts:
        text = text.replace(part, " ") if part else text
    return text


def plain(value: Any) -> Iterator[str]:
    """Yield the texts and numbers in a tool's input or output, without the names of their fields."""
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, Mapping) and depth < _DEEPEST:
            parts = [part for name, part in each.items() if name not in _DATA and name not in _NAMES]
            waiting += [(part, depth + 1) for part in reversed(parts)]
        elif isinstance(each, list | tuple) and depth < _DEEPEST:
            waiting += [(part, depth + 1) for part in reversed(each)]
        elif isinstance(each, int | float) and not isinstance(each, bool):
            yield str(each)


# ---------------------------------------------------------------------- everything but messages


def _text(kind: str, name: str = "text") -> Callable[[dict[str, Any]], EntryText | None]:
    """Return what reads an entry that says one text."""
    return lambda body: _of(kind, body.get(name))


def _of(kind: str, *texts: Any, tools: tuple[str, ...] = (), role: str = "") -> EntryText | None:
    known = tuple(text for text in texts if isinstance(text, str) and text)
    return EntryText(kind, (kind,), role, tools, known) if known else None


def _call(body: dict[str, Any]) -> EntryText | None:
    """Read the start of a call: its input is here only if no message announced it."""
    name = body.get("name") or ""
    said = [_asked(name, body["arguments"])] if "arguments" in body else []
    return _of("call", " ".join([*said, *(body.get("paths") or ())]), tools=(name,), role="assistant")


def _tasks(body: dict[str, Any]) -> EntryText | None:
    return _of("task", *(task.get("description") for task in body.get("set", {}).values()))


def _custom(body: dict[str, Any]) -> EntryText | None:
    return _of("custom", body.get("text"))


def _approval(body: dict[str, Any]) -> EntryText | None:
    return _of("approval", body.get("question"), body.get("note"))


_READ: dict[str, Callable[[dict[str, Any]], EntryText | None]] = {
    "call": _call,
    "tasks": _tasks,
    "plan": _text("plan"),
    "walkthrough": _text("walkthrough"),
    "note": _text("note"),
    "compaction": _text("summary", "summary"),
    "file": lambda body: _of("file", *body.get("set", {})),
    "announced": lambda body: _of("file", *body.get("set", {})),
    "status": lambda body: _of("status", body.get("error"), body.get("result")),
    "approval": _approval,
    "custom": _custom,
}


def readable(row: EntryRow, tool_of: ToolOf) -> EntryText | None:
    """Return what an entry says, as ``said`` does; None too if it cannot be read, which ``verify`` reports."""
    try:
        return said(row, tool_of)
    except (Error, KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None
