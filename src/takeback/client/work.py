"""What a session works on: tasks, plan, walkthrough, notes, files, build attempts, its own state.

Every change is an entry: it has a history, an idempotency key, and goes back with a rewind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike, fsdecode, fspath
from typing import Any

import msgspec

from ..errors import Invalid
from ..model.tools import ToolCall
from ..model.work import Note, Task, require_status
from ..ops import work
from . import arguments
from .state import SessionState
from .tools import Calling


class Working(Calling):
    """The part of a session that keeps the state of work."""

    @property
    def state(self) -> SessionState:
        """The session's own state: keys and values that go back with a rewind."""
        return SessionState(self)

    # ------------------------------------------------------------------ tasks

    def tasks(self) -> list[Task]:
        """Give the tasks, in order."""
        return self._ask(work.task_list)

    def set_tasks(self, tasks: Iterable[Task | str], *, idempotency_key: str | None = None) -> list[Task]:
        """Replace the list of tasks; strings become pending tasks."""
        new = [_task(task) for task in arguments.many(tasks, what="tasks")]
        decide = work.set_tasks(new)
        self._change("tasks", decide, [msgspec.to_builtins(task) for task in new], idempotency_key)
        return self.tasks()

    def add_task(self, task: Task | str, status: str = "pending", *, idempotency_key: str | None = None) -> Task:
        """Add a task at the end of the list."""
        new = _task(task if isinstance(task, Task) else Task(arguments.text(task, what="task"), status))
        found = self._change("tasks", work.add_task(new), msgspec.to_builtins(new), idempotency_key)
        return Task(**list(found.body["set"].values())[-1])

    def update_task(
        self,
        index: int,
        status: str | None = None,
        *,
        description: str | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Change one task by its index, from 0; a wrong index or status is ``Invalid``."""
        if status is not None:
            require_status(status)
        if type(index) is not int or index < 0:
            raise Invalid(f"there is no task {index!r}; indexes count from 0")
        decide = work.update_task(
            index, status, None if description is None else arguments.text(description, what="task")
        )
        found = self._change("tasks", decide, [index, status, description], idempotency_key)
        return Task(**found.body["set"][str(index)])

    # ------------------------------------------------------------------ texts

    def get_plan(self) -> str | None:
        """Give the agent's plan."""
        return self._ask(work.text_at, "plan")

    def set_plan(self, text: str | None, *, idempotency_key: str | None = None) -> None:
        """Set the agent's plan; None clears it."""
        self._set_text("plan", text, idempotency_key)

    def get_walkthrough(self) -> str | None:
        """Give the stored walkthrough text."""
        return self._ask(work.text_at, "walkthrough")

    def set_walkthrough(self, text: str | None, *, idempotency_key: str | None = None) -> None:
        """Set the walkthrough text; None clears it."""
        self._set_text("walkthrough", text, idempotency_key)

    def _set_text(self, kind: str, text: str | None, key: str | None) -> None:
        said = None if text is None else arguments.text(text, what=kind)
        self._change(kind, work.set_text(said), said, key)

    def note(self, text: str, *, task: int | str | Task | None = None, idempotency_key: str | None = None) -> Note:
        """Add to the reasoning log, on a task if one is named by index, id or itself."""
        about = task.id if isinstance(task, Task) else task
        said = arguments.text(text, what="note")
        found = self._change("note", work.add_note(said, about), [said, about], idempotency_key)
        return Note(found.seq, found.body["text"], found.body["task"], found.at_ms)

    def notes(self) -> list[Note]:
        """Give the reasoning log, oldest first."""
        return self._ask(work.note_list)

    # ------------------------------------------------------------------ files and builds

    def record_file(
        self,
        path: str | PathLike[str],
        action: str,
        *,
        call: str | ToolCall | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Note that a path was created, written or deleted, and by which tool call; its last action counts."""
        if not isinstance(path, str | bytes | PathLike):
            raise Invalid(f"a file is named by a path, not by {type(path).__name__}")
        place = fsdecode(fspath(path))
        if not place or "\0" in place:
            raise Invalid(f"{path!r} is no path")
        done = arguments.name(action, what="action")
        call_id = arguments.optional_name(call.id if isinstance(call, ToolCall) else call, what="tool call id")
        self._change("file", work.record_file(place, done, call_id), [place, done, call_id], idempotency_key)

    def add_build_attempt(self, *, idempotency_key: str | None = None) -> int:
        """Count one more build attempt and give the count."""
        return int(self._change("build", work.add_build, None, idempotency_key).body["count"])


def _task(task: Task | str | Mapping[str, Any]) -> Task:
    if isinstance(task, str):
        return Task(task)
    if isinstance(task, Mapping):
        try:
            task = Task(**task)
        except TypeError as error:
            raise Invalid(f"a task has a description, a status and an id: {error}") from error
    if not isinstance(task, Task):
        raise Invalid(f"a task is a Task or a string, not {type(task).__name__}")
    arguments.text(task.description, what="description")
    require_status(task.status)
    return Task(task.description, task.status, arguments.name(task.id, what="task id") if task.id else "")
