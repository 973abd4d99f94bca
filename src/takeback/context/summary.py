"""A session in a few hundred words, for the prompt of whoever continues it.

All foreign text is on a line of its own after a marker of ours, so it cannot pass for a heading or another speaker.
The summary never exceeds its tokens: the longest section loses lines until it fits.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model.about import Brief
from ..model.message import Message
from .lines import one_line
from .read import spoken
from .tokens import Count

MESSAGES = 6
_SAID, _FILES, _PLAN, _TASKS = 200, 30, 20, 100
_LONG = 200
_ROLE = 20


class _Section:
    """A heading and lines, some of which may be left out."""

    def __init__(self, heading: str, lines: Sequence[str], most: int | None = None, *, newest: bool = False) -> None:
        self.heading = heading
        self.lines = list(lines)
        self.shown = len(self.lines) if most is None else min(most, len(self.lines))
        self.newest = newest  # the last lines matter most, so the first ones are left out

    def text(self) -> str:
        left = len(self.lines) - self.shown
        if not self.shown:
            return f"## {self.heading}\n... {left} not shown"
        if self.newest:
            return "\n".join([f"## {self.heading}", *self.lines[left:]])
        more = [f"... and {left} more"] if left else []
        return "\n".join([f"## {self.heading}", *self.lines[: self.shown], *more])


def summarise(work: Brief, messages: Sequence[Message], *, max_tokens: int, count: Count) -> str:
    """Write the summary of a session, at most ``max_tokens`` long as ``count`` measures it."""
    head = [f"# {one_line(work.title or 'Untitled session', _LONG)}"]
    if work.workspace:
        head.append(f"Workspace: {one_line(work.workspace, _LONG)}")
    sections = [section for section in _sections(work, messages) if section.lines]
    while count(text := _joined(head, sections)) > max_tokens:
        longest = max(sections, key=lambda section: len(section.text()), default=None)
        if longest is None:
            return _cut(text, max_tokens, count)
        if longest.shown:
            longest.shown -= 1
        else:
            sections.remove(longest)
    return text


def _joined(head: Sequence[str], sections: Sequence[_Section]) -> str:
    return "\n\n".join(["\n".join(head), *(section.text() for section in sections)]) + "\n"


def _sections(work: Brief, messages: Sequence[Message]) -> list[_Section]:
    done = sum(task.status == "completed" for task in work.tasks)
    tasks = [f"{n}. [{each.status}] {one_line(each.description, _LONG)}" for n, each in enumerate(work.tasks, 1)]
    files = [f"- {one_line(each.action, _ROLE)} {one_line(each.path, _LONG)}" for each in work.files]
    plan = [f"> {one_line(line, _LONG)}".rstrip() for line in (work.plan or "").strip().splitlines()]
    return [
        _Section(f"Tasks ({done} of {len(tasks)} completed)", tasks, _TASKS),
        _Section(f"Files ({len(files)})", files, _FILES),
        _Section("Plan", plan, _PLAN),
        _Section("Last messages", [f"- {_said(message)}" for message in messages][-MESSAGES:], newest=True),
    ]


def _said(message: Message) -> str:
    """Return who said what; for an answer without text, which tools it called."""
    called = ", ".join(call.name for call in message.tool_calls)
    said = (
        spoken(message) or (called and f"(called {called})") or ("(results of tools)" if message.tool_results else "")
    )
    return f"{one_line(message.role, _ROLE)}: {one_line(said, _SAID)}"


def _cut(text: str, most: int, count: Count) -> str:
    """Return the longest prefix of a text that fits."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(text[:middle]) <= most else (low, middle - 1)
    return text[:low]
