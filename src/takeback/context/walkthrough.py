"""A session as a Markdown document for people: what it was for, what was done, and what was said when.

Foreign text is escaped inside our lines and fenced where it stands alone, so it formats nothing and no HTML in it
reaches a page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from ..model import words
from ..model.about import About as About
from ..model.checkpoint import Checkpoint
from ..model.entry import Entry
from ..model.message import Message
from ..model.tools import ToolCall, ToolResult
from ..model.work import FileTouched, Task
from ..providers.lenient import word
from ..providers.normal import as_json, clean
from .lines import escaped, fenced
from .read import is_new, spoken

_LINE, _WORD = 400, 80
_OUTPUT = 4000  # characters of a tool's arguments or result
_OUTCOMES = {"ok": "Result", "failed": "Failure", "denied": "Denial"}
_BOXES = {"completed": "x"}


class Style(NamedTuple):
    """How to write a document: ``tools`` in full, cut short or not at all, and a function applied to every text."""

    tools: str = "short"
    text: Callable[[str], str] = str


_PLAIN = Style()


def render(about: About, messages: Iterable[Message | Entry]) -> str:
    """Write the document."""
    return "\n\n".join(sections(about, messages)) + "\n"


def sections(about: About, messages: Iterable[Message | Entry], style: Style = _PLAIN) -> Iterator[str]:
    """Yield the document piece by piece; an empty line belongs between pieces."""
    yield _head(about, style)
    yield from (each for each in _work(about, style) if each)
    yield from _conversation(messages, style)


def when(moment: datetime) -> str:
    """Format a date and time."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _head(about: About, style: Style) -> str:
    model = escaped(about.model or "unknown", _WORD)
    facts = {
        "Session": about.id,
        "Created": when(about.created),
        "Status": escaped(about.status, _WORD),
        "Model": f"{model} ({escaped(about.provider, _WORD)})" if about.provider else model,
        "Workspace": escaped(about.workspace, _LINE) if about.workspace else "none",
        "Statistics": str(about.stats),
    }
    lines = [f"- {name}: {value}" for name, value in facts.items()]
    return "\n".join([f"# {escaped(style.text(about.title or 'Untitled session'), _LINE)}", "", *lines])


def _work(about: About, style: Style) -> Iterator[str]:
    clean = style.text
    yield _text("Plan", about.plan, style)
    yield _listed("Tasks", [_task(number, task, style) for number, task in enumerate(about.tasks, 1)])
    yield _listed(f"Files ({_diffstat(about.files)})", [_file(each) for each in about.files])
    yield _listed("Checkpoints", [_checkpoint(each, style) for each in about.checkpoints])
    yield _listed("Notes", [f"- {when(note.created_at)}: {escaped(clean(note.text), _LINE)}" for note in about.notes])
    yield _text("Walkthrough, as the agent wrote it", about.written, style)


def _text(heading: str, text: str | None, style: Style) -> str:
    return f"## {heading}\n\n{fenced(style.text(text))}" if text and text.strip() else ""


def _listed(heading: str, lines: Sequence[str]) -> str:
    return "\n".join([f"## {heading}", "", *lines]) if lines else ""


def _task(number: int, task: Task, style: Style) -> str:
    box = _BOXES.get(task.status, " ")
    return f"{number}. [{box}] {escaped(style.text(task.description), _LINE)} ({task.status.replace('_', ' ')})"


def _diffstat(files: Sequence[FileTouched]) -> str:
    counts = Counter(each.action for each in files)
    return ", ".join(f"{number} {escaped(action, _WORD)}" for action, number in counts.items())


def _file(touched: FileTouched) -> str:
    return f"- {escaped(touched.action, _WORD)}: {escaped(touched.path, _LINE)}"


def _checkpoint(point: Checkpoint, style: Style) -> str:
    said = f": {escaped(style.text(point.description), _LINE)}" if point.description else ""
    place = f"turn {point.stats.turns}, entry {point.head.seq}"
    return f"- {when(point.created_at)}, {place}, {point.type}: {escaped(point.name, _WORD)}{said}"


# ---------------------------------------------------------------------- what was said


def _conversation(messages: Iterable[Message | Entry], style: Style) -> Iterator[str]:
    yield "## Conversation"
    said = False
    for each in messages:
        shown = _message(each, style) if isinstance(each, Message) else _start(each, style)
        said = said or bool(shown)
        yield from (shown,) if shown else ()
    if not said:
        yield "Nothing was said yet."


def _start(entry: Entry, style: Style) -> str:
    call = started(entry)
    if call is None or style.tools == "none":
        return ""
    return f"### {entry.seq}. tool, {when(entry.created_at)}\n\n{_call(call, style)}"


def started(entry: Entry) -> ToolCall | None:
    """Return the call of a tool start that no message announced; None for every other entry."""
    body = entry.content
    if not is_new(body):
        return None
    return ToolCall(word(body.get("call_id")), word(body.get("name")), body["arguments"], seq=entry.seq)


def _message(message: Message, style: Style) -> str:
    who = escaped(message.role, _WORD) + (f" ({escaped(message.model, _WORD)})" if message.model else "")
    state = "" if message.status == "complete" else f", {escaped(message.status, _WORD)}"
    parts = [f"### {message.seq}. {who}{state}, {when(message.created_at)}"]
    results = message.tool_results
    said = spoken(message)
    if style.tools == "none" and not said.strip() and not message.body.attachments:
        return ""
    if said.strip():
        parts.append(fenced(style.text(said)))
    if style.tools != "none":
        parts += [_call(call, style) for call in message.tool_calls]
        parts += [_result(result, message, style) for result in results]
    parts += [_attached(name) for name in _names(message)]
    return "\n\n".join(parts)


def _call(call: ToolCall, style: Style) -> str:
    return f"Calls {escaped(call.name, _WORD)}:\n\n{fenced(_shown(call.arguments, style))}"


def _result(result: ToolResult, message: Message, style: Style) -> str:
    name = escaped(result.name or message.tool_name or "a tool", _WORD)
    return f"{_OUTCOMES[result.outcome]} of {name}:\n\n{fenced(_shown(result.content, style))}"


def _shown(value: object, style: Style) -> str:
    return cut(style.text(as_text(value)), style.tools)


def as_text(value: object) -> str:
    """Return arguments or a result as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else as_json(clean(value))


def cut(text: str, tools: str) -> str:
    """Cut a tool's text to a length, unless it is wanted in full."""
    left = len(text) - _OUTPUT
    return text if left <= 0 or tools == "full" else f"{text[:_OUTPUT]}\n... and {words.count(left, 'more character')}"


def _names(message: Message) -> list[str]:
    return [str(each.get("name") or each.get("id") or "file") for each in message.body.attachments or ()]


def _attached(name: str) -> str:
    return f"Attached: {escaped(name, _LINE)}"
