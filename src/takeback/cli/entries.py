"""Entries that are no messages, as people read them: a task, a plan, a note, the start of a tool call, a file.

Each kind says what it is before its text; a kind without words of its own is shown as it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..model.entry import Entry
from ..model.items import CUSTOM
from ..shell import documents

Body = Mapping[str, Any]


def said(entry: Entry) -> Iterator[str]:
    """Yield what an entry says; a text may have several lines."""
    kind = "custom" if entry.kind.startswith(CUSTOM) else entry.kind
    body = entry.content if isinstance(entry.content, Mapping) else {}
    found = [*_SAID[kind](body)] if kind in _SAID and body else []
    yield from found or [documents.compact(entry.content)]


def _tasks(body: Body) -> Iterator[str]:
    for key, task in sorted(body.get("set", {}).items(), key=lambda each: int(each[0])):
        yield f"task {int(key) + 1} [{task['status']}] {task['description']}"


def _text(what: str, field: str = "text") -> Callable[[Body], Iterator[str]]:
    """Return what reads an entry that says one text, or that the text before it was removed."""

    def read(body: Body) -> Iterator[str]:
        text = body.get(field)
        yield f"{what} removed" if text is None else f"{what}: {text}"

    return read


def _note(body: Body) -> Iterator[str]:
    about = f" on {body['task']}" if body.get("task") else ""
    yield f"note{about}: {body.get('text')}"


def _call(body: Body) -> Iterator[str]:
    told = [documents.compact(body["arguments"])] if "arguments" in body else []
    yield " ".join(["call", body.get("name") or "", *told, *(body.get("paths") or ())])


def _files(body: Body) -> Iterator[str]:
    for path, touched in body.get("set", {}).items():
        action = touched.get("action") if isinstance(touched, Mapping) else None
        yield " ".join(filter(None, ("file", action, path)))


def _status(body: Body) -> Iterator[str]:
    yield f"status {body.get('status')}"
    yield from (f"{name}: {body[name]}" for name in ("error", "result") if body.get(name))


def _approval(body: Body) -> Iterator[str]:
    if "approved" not in body:
        yield f"asked: {body.get('question') or 'may it run?'}"
        return
    by = f" by {body['by']}" if body.get("by") else ""
    note = f": {body['note']}" if body.get("note") else ""
    yield f"{'approved' if body['approved'] else 'denied'}{by}{note}"


def _custom(body: Body) -> Iterator[str]:
    yield from filter(None, [body.get("text")])


_SAID: dict[str, Callable[[Body], Iterator[str]]] = {
    "tasks": _tasks,
    "plan": _text("plan"),
    "walkthrough": _text("walkthrough"),
    "compaction": _text("summary", "summary"),
    "note": _note,
    "call": _call,
    "file": _files,
    "announced": _files,
    "status": _status,
    "approval": _approval,
    "custom": _custom,
}
