"""What a session does: tasks, plan, notes, files, builds and state of its own; streamed answers; tools.

Every change is an entry: it has a history and an idempotency key, and goes back with a rewind. ``Stream`` and
``ToolRun`` are the context managers of a streamed answer and of a tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fsdecode, fspath
from typing import TYPE_CHECKING, Any

import msgspec

from .. import codec, presence
from .. import providers as forms
from ..errors import Invalid
from ..ids import new_id
from ..model import message as messages_
from ..model.entry import Draft
from ..model.message import Message
from ..model.tools import ToolCall, denial
from ..model.usage import Usage
from ..model.work import Note, Task, require_status
from ..ops import calls, streams, tool_runs, work
from . import arguments, state, tools
from . import arguments as checks  # where a tool's own arguments have that name
from . import drafts as drafts_
from .appending import Speaking
from .streams import FLUSH_BYTES, FLUSH_SECONDS, Stream

if TYPE_CHECKING:
    from .state import SessionState
    from .tools import ToolRun


class Working(Speaking):
    """The part of a session that does the work: tasks, plan and notes, streamed answers, tools."""

    @property
    def state(self) -> SessionState:
        """The session's own state: keys and values that go back with a rewind."""
        return state.SessionState(self)

    # ------------------------------------------------------------------ tasks

    def tasks(self) -> list[Task]:
        """Return the tasks, in order."""
        return self._ask(work.task_list)

    def set_tasks(self, tasks: Iterable[Task | str], *, idempotency_key: str | None = None) -> list[Task]:
        """Replace the list of tasks; strings become pending tasks."""
        new = checked_tasks(tasks)
        decide = work.set_tasks(new)
        self._change("tasks", decide, [msgspec.to_builtins(task) for task in new], idempotency_key)
        return self.tasks()

    def add_task(self, task: Task | str, status: str = "pending", *, idempotency_key: str | None = None) -> Task:
        """Add a task to the end of the list."""
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
        """Change one task by its index, from 0; raises ``Invalid`` for a wrong index or status."""
        if status is not None:
            require_status(status)
        if type(index) is not int or index < 0:
            raise Invalid(f"there is no task {index!r}; indexes start at 0")
        decide = work.update_task(
            index, status, None if description is None else arguments.text(description, what="task")
        )
        found = self._change("tasks", decide, [index, status, description], idempotency_key)
        return Task(**found.body["set"][str(index)])

    # ------------------------------------------------------------------ texts

    def get_plan(self) -> str | None:
        """Return the agent's plan."""
        return self._ask(work.text_at, "plan")

    def set_plan(self, text: str | None, *, idempotency_key: str | None = None) -> None:
        """Set the agent's plan; None clears it."""
        self._set_text("plan", text, idempotency_key)

    def get_walkthrough(self) -> str | None:
        """Return the stored walkthrough text."""
        return self._ask(work.text_at, "walkthrough")

    def set_walkthrough(self, text: str | None, *, idempotency_key: str | None = None) -> None:
        """Set the walkthrough text; None clears it."""
        self._set_text("walkthrough", text, idempotency_key)

    def _set_text(self, kind: str, text: str | None, key: str | None) -> None:
        said = None if text is None else arguments.text(text, what=kind)
        self._change(kind, work.set_text(said), said, key)

    def note(self, text: str, *, task: int | str | Task | None = None, idempotency_key: str | None = None) -> Note:
        """Add to the reasoning log, on a task if one is given by index, id or ``Task``."""
        about = task.id if isinstance(task, Task) else task
        said = arguments.text(text, what="note")
        found = self._change("note", work.add_note(said, about), [said, about], idempotency_key)
        return Note(found.seq, found.body["text"], found.body["task"], found.at_ms)

    def notes(self) -> list[Note]:
        """Return the reasoning log, oldest first."""
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
        """Record that a path was created, written or deleted, and by which tool call; its last action counts."""
        if not isinstance(path, str | bytes | PathLike):
            raise Invalid(f"a path must be a string or path object, not {type(path).__name__}")
        place = fsdecode(fspath(path))
        if not place or "\0" in place:
            raise Invalid(f"{path!r} is not a path")
        done = arguments.name(action, what="action")
        call_id = arguments.optional_name(call.id if isinstance(call, ToolCall) else call, what="tool call id")
        self._change("file", work.record_file(place, done, call_id), [place, done, call_id], idempotency_key)

    def add_build_attempt(self, *, idempotency_key: str | None = None) -> int:
        """Count one more build attempt and return the count."""
        return int(self._change("build", work.add_build, None, idempotency_key).body["count"])

    # ------------------------------------------------------------------ answers as they arrive

    def stream(
        self,
        role: str = "assistant",
        *,
        model: str | None = None,
        id: str | None = None,
        flush_seconds: float = FLUSH_SECONDS,
        flush_bytes: int = FLUSH_BYTES,
    ) -> Stream:
        """Begin an answer that arrives in pieces: ``with session.stream() as stream: stream.write(delta)``.

        Each piece is on disk within ``flush_seconds``, or as soon as ``flush_bytes`` characters wait. Leaving the block
        seals the answer as finished, interrupted by an error, or cancelled. It goes to the branch where it began.
        """
        about = {"role": arguments.name(role, what="role"), "model": arguments.optional_name(model, what="model")}
        about["id"] = arguments.optional_name(id, what="message id")
        arguments.seconds(flush_seconds, what="flush_seconds")
        arguments.whole(flush_bytes, what="flush_bytes", low=1)
        return self._begin_stream(about, flush_seconds, flush_bytes)

    def _begin_stream(
        self, about: dict[str, Any], flush_seconds: float, flush_bytes: int, keep: int | None = None
    ) -> Stream:
        store, now_ms, id = self._store, self._store._clock.now_ms(), about.get("id")
        token = 0 if self._held is None else self._held.lease.token
        kept = codec.encode({name: value for name, value in about.items() if value is not None})
        holder = presence.encode(presence.here(now_ms))
        wanted = streams.StreamRow(store.scope, 0, new_id(now_ms), 0, 0, token, holder, kept, now_ms)

        self._seen, row = self._do(streams.begin, self.id, wanted, id, now_ms=now_ms)
        made = Stream(self, row, flush_seconds, flush_bytes, keep)
        store._keeper.watch(made)
        return made

    def _final(self, message: Any, usage: Usage | None, written: Sequence[streams.Piece]) -> list[Draft]:
        """Turn the final message of a stream into drafts."""
        from ..providers import streamed

        message = streamed.final(message, written)
        if usage is None:
            return drafts_.drafts(self._store, [message])
        given = forms.recognise(message)
        if not given:
            return drafts_.drafts(self._store, [{**forms.plain(message), "usage": usage}])
        return [messages_.given_draft(each) for each in (*given[:-1], given[-1]._replace(usage=usage))]

    # ------------------------------------------------------------------ tools

    def tool(
        self,
        call: ToolCall | str,
        arguments: Any = None,
        *,
        id: str | None = None,
        paths: Iterable[str | PathLike[str]] | None = None,
        keep: int | None = None,
    ) -> ToolRun:
        """Run a tool: ``with session.tool(call) as run: run.result(...)``.

        Pass a call from ``pending_calls``, or a name and arguments. Entering raises ``Conflict`` if the call was
        answered meanwhile. The id of an open call that a message announced starts that call and never adds a second
        record. A tool that is interrupted, or returns what cannot be stored, leaves its call open. With ``paths``, the
        ones the tool touches, only those are scanned instead of the whole workspace. ``keep`` limits how many
        characters of its output are kept, half from the start and half from the end; by default all are.
        """
        if keep is not None:
            checks.whole(keep, what="keep", low=2)
        touched = None if paths is None else [self._path_in(path) for path in checks.many(paths, what="paths")]
        if isinstance(call, ToolCall):
            known = checks.name(call.id, what="tool call id")
            return tools.ToolRun(self, known, call.name, call.arguments, call.seq, paths=touched, keep=keep)
        name = checks.name(call, what="tool name")
        call_id = checks.optional_name(id, what="tool call id")
        if call_id is None:
            call_id = f"call_{new_id(self._store._clock.now_ms())}"
            return tools.ToolRun(self, call_id, name, arguments, fresh=True, paths=touched, keep=keep)
        return tools.ToolRun(self, call_id, name, arguments, paths=touched, keep=keep)

    def tool_result(
        self,
        call_id: str | ToolCall,
        content: Any,
        *,
        success: bool = True,
        duration: float | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        """Store the result of a call on the path; raises ``NotFound`` or, if it was answered already, ``Conflict``."""
        wanted = call_id.id if isinstance(call_id, ToolCall) else call_id
        if self._scans():
            self._scan_before_result()
        return self._store_result(
            checks.name(wanted, what="tool call id"), content, success=success, duration=duration, key=idempotency_key
        )

    def retry(self, call: ToolCall, *, most: int = 3) -> ToolRun:
        """Run a call again whose outcome is unknown: ``with session.retry(call) as run: run.result(...)``.

        ``call.idempotency_key`` is the same at every try. Raises ``Conflict`` on entering once the call was tried
        ``most`` times, so that one that keeps killing its process is not tried for ever. Record with ``resolve_call``
        how it ended.
        """
        if not isinstance(call, ToolCall):
            raise Invalid(f"retry takes a call from pending_calls, not {type(call).__name__}")
        checks.whole(most, what="most", low=1)
        return tools.ToolRun(
            self, checks.name(call.id, what="tool call id"), call.name, call.arguments, call.seq, tries=most
        )

    def resolve_call(
        self,
        call: ToolCall | str,
        content: Any = None,
        *,
        success: bool = True,
        denied: bool = False,
        idempotency_key: str | None = None,
    ) -> Message:
        """Record how an open call ended that will not run again: with its result, or with why it failed.

        A call that was ``denied`` neither worked nor failed; the model is told so, or reads ``content``.
        """
        if not denied:
            return self.tool_result(call, content, success=success, idempotency_key=idempotency_key)
        wanted = checks.name(call.id if isinstance(call, ToolCall) else call, what="tool call id")
        told = denial() if content is None else content
        return self._store_result(wanted, told, success=False, denied=True, key=idempotency_key)

    def _start_call(
        self, call_id: str, name: str, arguments: Any, seq: int, fresh: bool, tries: int, paths: list[bytes] | None
    ) -> tuple[ToolCall, tuple[str, int]]:
        """Store that a tool starts; return the call, and the place of that record if it was made now."""
        touched = None if paths is None else [fsdecode(path) for path in paths]
        started = tool_runs.ToolStart(call_id, name, arguments, seq, fresh, tries, self._store._holder, touched)
        self._seen, call, place = self._do(
            tool_runs.start, self._store.scope, self.id, started, now_ms=self._store._clock.now_ms()
        )
        return call, place

    def _store_result(
        self,
        call_id: str,
        content: Any,
        *,
        success: bool,
        denied: bool = False,
        duration: float | None = None,
        key: str | None = None,
        began: tuple[str, int] = ("", 0),
        output: Stream | None = None,
    ) -> Message:
        body: dict[str, Any] = {"role": "tool", "content": "" if content is None else content}
        body["tool_results"] = [{"call_id": call_id, "success": bool(success), **({"denied": True} if denied else {})}]
        if duration is not None:
            body["duration"] = round(duration, 3) if isinstance(duration, float) else duration
        drafts, now_ms = [messages_.draft(body)], self._store._clock.now_ms()
        if len(drafts[0].body) > calls.SMALL:  # a large body is not decoded again just to add the name
            name = self._ask(calls.name_of, call_id)
            drafts = [messages_.draft({**body, **({"tool_name": name} if name else {})})]
        key = checks.optional_name(key, what="idempotency_key")
        self._spill(drafts)

        result = tool_runs.ToolOutcome(call_id, drafts, key, began, None if output is None else output._row)
        done = self._do(tool_runs.finish, self._store.scope, self.id, result, now_ms=now_ms)
        shown: Message = self._shown(*done, now_ms)[0]
        if output is not None:
            output._dropped()
        return shown


def checked_tasks(tasks: object) -> list[Task]:
    """Check a list of tasks; strings become pending tasks."""
    return [_task(task) for task in arguments.many(tasks, what="tasks")]


def _task(task: Task | str | Mapping[str, Any]) -> Task:
    if isinstance(task, str):
        return Task(task)
    if isinstance(task, Mapping):
        try:
            task = Task(**task)
        except TypeError as error:
            raise Invalid(f"a task takes a description, a status and an id: {error}") from error
    if not isinstance(task, Task):
        raise Invalid(f"a task must be a Task, a dict or a string, not {type(task).__name__}")
    arguments.text(task.description, what="description")
    require_status(task.status)
    return Task(task.description, task.status, arguments.name(task.id, what="task id") if task.id else "")
