"""A session as a document for people, in Markdown: what it was for, what was done, and what was said when.

What came from elsewhere is escaped where it stands on a line of ours, and fenced where it is a text of its own:
it formats nothing, and no HTML of it reaches a page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from ..model import words
from ..model.checkpoint import Checkpoint
from ..model.message import Message
from ..model.session import Stats
from ..model.tools import ToolCall, ToolResult
from ..model.work import FileTouched, Note, Task
from .lines import escaped, fenced
from .normal import as_json, clean
from .read import spoken

_LINE, _WORD = 400, 80
_OUTPUT = 4000  # characters of what a tool gave
_BOXES = {"completed": "x"}


class About(NamedTuple):
    """What a document says of a session beside its messages."""

    id: str
    title: str | None
    status: str
    created: datetime
    model: str | None
    provider: str | None
    workspace: str | None
    stats: Stats
    tasks: Sequence[Task]
    files: Sequence[FileTouched]
    notes: Sequence[Note]
    plan: str | None
    written: str | None
    checkpoints: Sequence[Checkpoint]


def render(about: About, messages: Iterable[Message]) -> str:
    """Write the document."""
    sections = [_head(about), *_work(about), _conversation(messages)]
    return "\n\n".join(section for section in sections if section) + "\n"


def when(moment: datetime) -> str:
    """Write a date and a time."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _head(about: About) -> str:
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
    return "\n".join([f"# {escaped(about.title or 'Untitled session', _LINE)}", "", *lines])


def _work(about: About) -> Iterator[str]:
    yield _text("Plan", about.plan)
    yield _listed("Tasks", [_task(number, task) for number, task in enumerate(about.tasks, 1)])
    yield _listed(f"Files ({_diffstat(about.files)})", [_file(each) for each in about.files])
    yield _listed("Checkpoints", [_checkpoint(each) for each in about.checkpoints])
    yield _listed("Notes", [f"- {when(note.created_at)}: {escaped(note.text, _LINE)}" for note in about.notes])
    yield _text("Walkthrough, as the agent wrote it", about.written)


def _text(heading: str, text: str | None) -> str:
    return f"## {heading}\n\n{fenced(text)}" if text and text.strip() else ""


def _listed(heading: str, lines: Sequence[str]) -> str:
    return "\n".join([f"## {heading}", "", *lines]) if lines else ""


def _task(number: int, task: Task) -> str:
    box = _BOXES.get(task.status, " ")
    return f"{number}. [{box}] {escaped(task.description, _LINE)} ({task.status.replace('_', ' ')})"


def _diffstat(files: Sequence[FileTouched]) -> str:
    counts = Counter(each.action for each in files)
    return ", ".join(f"{number} {escaped(action, _WORD)}" for action, number in counts.items())


def _file(touched: FileTouched) -> str:
    return f"- {escaped(touched.action, _WORD)}: {escaped(touched.path, _LINE)}"


def _checkpoint(point: Checkpoint) -> str:
    said = f": {escaped(point.description, _LINE)}" if point.description else ""
    place = f"turn {point.stats.turns}, entry {point.head.seq}"
    return f"- {when(point.created_at)}, {place}, {point.type}: {escaped(point.name, _WORD)}{said}"


# ---------------------------------------------------------------------- what was said


def _conversation(messages: Iterable[Message]) -> str:
    said = [_message(message) for message in messages]
    return "\n\n".join(["## Conversation", *said]) if said else "## Conversation\n\nNothing was said yet."


def _message(message: Message) -> str:
    who = escaped(message.role, _WORD) + (f" ({escaped(message.model, _WORD)})" if message.model else "")
    state = "" if message.status == "complete" else f", {escaped(message.status, _WORD)}"
    parts = [f"### {message.seq}. {who}{state}, {when(message.created_at)}"]
    results = message.tool_results
    if (said := spoken(message)).strip():
        parts.append(fenced(said))
    parts += [_call(call) for call in message.tool_calls]
    parts += [_result(result, message) for result in results]
    parts += [_attached(name) for name in _names(message)]
    return "\n\n".join(parts)


def _call(call: ToolCall) -> str:
    return f"Calls {escaped(call.name, _WORD)}:\n\n{fenced(_shown(call.arguments))}"


def _result(result: ToolResult, message: Message) -> str:
    name = escaped(result.name or message.tool_name or "a tool", _WORD)
    return f"{'Result' if result.success else 'Failure'} of {name}:\n\n{fenced(_shown(result.content))}"


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else as_json(clean(value))
    left = len(text) - _OUTPUT
    return text if left <= 0 else f"{text[:_OUTPUT]}\n... and {words.count(left, 'more character')}"


def _names(message: Message) -> list[str]:
    return [str(each.get("name") or each.get("id") or "file") for each in message.body.attachments or ()]


def _attached(name: str) -> str:
    return f"Attached: {escaped(name, _LINE)}"
