"""Running a tool: its start is durable before it runs, its result or error after."""

from __future__ import annotations

import time
from collections.abc import Iterable
from os import PathLike
from types import TracebackType
from typing import Any

from ..errors import Conflict, Error, Invalid
from ..ids import new_id
from ..model import message as messages_
from ..model import words
from ..model.message import Message
from ..model.tools import ToolCall
from ..ops import calls, tool_runs
from . import arguments as check
from .background import Held
from .streams import FLUSH_SECONDS, Stream, Streaming

_OUTPUT_BYTES = 1 << 20  # output comes in floods: it waits for the clock rather than hold up the tool


class ToolRun:
    """One run of a tool, from entering to leaving; an exception inside becomes the call's error and goes on."""

    message: Message | None

    def __init__(
        self,
        session: Calling,
        call_id: str,
        name: str,
        arguments: Any,
        seq: int = 0,
        *,
        fresh: bool = False,
        tries: int = 0,
        paths: list[bytes] | None = None,
        keep: int | None = None,
    ) -> None:
        self._session = session
        self._paths, self._keep = paths, keep
        self._asked = call_id, name, arguments, seq, fresh, tries
        self._began, self._place = 0.0, ("", 0)
        self._call: ToolCall | None = None
        self._refused: Invalid | None = None
        self._held: Held | None = None
        self._output: Stream | None = None
        self.message = None

    @property
    def call(self) -> ToolCall:
        """The call that runs, known once it was entered."""
        if self._call is None:
            raise Invalid("a tool run begins when it is entered: with session.tool(...) as run")
        return self._call

    def __enter__(self) -> ToolRun:
        if self._session._looks():
            self._session._look_before_start(self._paths)
        self._call, self._place = self._session._start_call(*self._asked)
        self._held = self._session._held
        if self._held is not None:
            self._held.running.add(self._call.id)
        self._began = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.message is not None or error is self._refused is not None:
            return  # what the tool gave could not be stored: it did its work, so the call stays open
        if error is not None and not isinstance(error, Exception):
            self._cut_output(error)
            return  # interrupted: nobody knows what the tool did, so the call stays open
        if error is None:
            self.result(None)
            return
        try:
            self.error(error)
        except Error as failure:  # the tool's own error is what its caller must see
            error.add_note(f"its failure could not be stored either: {failure}")

    def write(self, text: str) -> None:
        """Store a piece of what the tool gives while it runs: on disk within 0.2 seconds, and readers see it grow.

        All of it becomes the result, unless ``result`` is given another. If the run is cut off it is a message of its
        own, with the status ``interrupted``.
        """
        if self.message is not None:
            raise Conflict("this call has its result already", found=self.message.seq)
        if self._output is None:
            about = {"role": "tool", "tool_name": self.call.name}
            self._output = self._session._begin_stream(about, FLUSH_SECONDS, _OUTPUT_BYTES, self._keep)
        self._output.write(text)

    def result(self, content: Any = None) -> Message:
        """Store what the tool gave, or else what was written; durable when this returns."""
        return self._finish(self._written() if content is None else content, success=True)

    def error(self, error: BaseException | str) -> Message:
        """Store that the tool failed, behind what was written, without raising."""
        said, written = error if isinstance(error, str) else words.of_error(error), self._written()
        between = "" if not written or written.endswith("\n") else "\n"
        return self._finish(f"{written or ''}{between}{said}", success=False)

    def _written(self) -> str | None:
        return None if self._output is None else self._output._text()

    def _cut_output(self, error: BaseException) -> None:
        """Seal what was written by a tool that was interrupted."""
        if self._output is None:
            return
        try:
            self._output._cut()
        except Error as failure:
            error.add_note(f"what the tool had written could not be sealed: {failure}")

    def _finish(self, content: Any, *, success: bool) -> Message:
        if self.message is not None:
            raise Conflict("this call has its result already", found=self.message.seq)
        duration = max(0.0, time.monotonic() - self._began)
        if self._session._looks():
            self._session._look_before_result(self._paths)
        try:
            self.message = self._session._store_result(
                *(self.call.id, content), success=success, duration=duration, began=self._place, output=self._output
            )
        except Invalid as error:
            self._refused = error
            raise
        if self._held is not None:
            self._held.running.discard(self.call.id)
        return self.message

    def __repr__(self) -> str:
        state = "waiting" if self._call is None else "running" if self.message is None else "done"
        return f"<ToolRun {self._asked[1]} {state}>"


class Calling(Streaming):
    """The part of a session that runs tools."""

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

        Give a call from ``pending_calls`` (one that was answered meanwhile is ``Conflict`` on entering), or a name and
        arguments. With the id of an open call that a message announced, it is the start of that call, never a second
        record. A tool that is interrupted, or gives what cannot be stored, leaves its call open. With ``paths``, those
        that the tool touches, only they are looked at and not the whole workspace. ``keep`` says how many characters
        of what it writes are kept, half of them the first and half the last; without it all are.
        """
        if keep is not None:
            check.whole(keep, what="keep", low=2)
        touched = None if paths is None else [self._path_in(path) for path in check.many(paths, what="paths")]
        if isinstance(call, ToolCall):
            known = check.name(call.id, what="tool call id")
            return ToolRun(self, known, call.name, call.arguments, call.seq, paths=touched, keep=keep)
        name = check.name(call, what="tool name")
        call_id = check.optional_name(id, what="tool call id")
        if call_id is None:
            call_id = f"call_{new_id(self._store._clock.now_ms())}"
            return ToolRun(self, call_id, name, arguments, fresh=True, paths=touched, keep=keep)
        return ToolRun(self, call_id, name, arguments, paths=touched, keep=keep)

    def tool_result(
        self,
        call_id: str | ToolCall,
        content: Any,
        *,
        success: bool = True,
        duration: float | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        """Store the result of a call that is on the path; absent is ``NotFound``, answered already ``Conflict``."""
        wanted = call_id.id if isinstance(call_id, ToolCall) else call_id
        if self._looks():
            self._look_before_result()
        return self._store_result(
            check.name(wanted, what="tool call id"), content, success=success, duration=duration, key=idempotency_key
        )

    def retry(self, call: ToolCall, *, most: int = 3) -> ToolRun:
        """Run a call again whose outcome is unknown: ``with session.retry(call) as run: run.result(...)``.

        ``call.idempotency_key`` is the same at every try. A call that was tried ``most`` times already is ``Conflict``:
        one that keeps killing its process is not tried for ever. Say with ``resolve_call`` how it ended.
        """
        if not isinstance(call, ToolCall):
            raise Invalid(f"a call that pending_calls gave is tried again, not {type(call).__name__}")
        check.whole(most, what="most", low=1)
        return ToolRun(self, check.name(call.id, what="tool call id"), call.name, call.arguments, call.seq, tries=most)

    def resolve_call(
        self, call: ToolCall | str, content: Any = None, *, success: bool = True, idempotency_key: str | None = None
    ) -> Message:
        """Say how an open call ended that will not run (again): with what it gave, or with why it failed."""
        return self.tool_result(call, content, success=success, idempotency_key=idempotency_key)

    def _start_call(
        self, call_id: str, name: str, arguments: Any, seq: int, fresh: bool, tries: int
    ) -> tuple[ToolCall, tuple[str, int]]:
        """Store that a tool starts; give the call, and the place of that record if it was made now."""
        started = tool_runs.Start(call_id, name, arguments, seq, fresh, tries)
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
        duration: float | None = None,
        key: str | None = None,
        began: tuple[str, int] = ("", 0),
        output: Stream | None = None,
    ) -> Message:
        body: dict[str, Any] = {"role": "tool", "content": "" if content is None else content}
        body["tool_results"] = [{"call_id": call_id, "success": bool(success)}]
        if duration is not None:
            body["duration"] = round(duration, 3) if isinstance(duration, float) else duration
        drafts, now_ms = [messages_.draft(body)], self._store._clock.now_ms()
        if len(drafts[0].body) > calls.SMALL:  # what is large is not taken apart again to write the name into it
            name = self._ask(calls.name_of, call_id)
            drafts = [messages_.draft({**body, **({"tool_name": name} if name else {})})]
        key = check.optional_name(key, what="idempotency_key")
        self._spill(drafts)

        result = tool_runs.Result(call_id, drafts, key, began, None if output is None else output._row)
        done = self._shown(*self._do(tool_runs.finish, self._store.scope, self.id, result, now_ms=now_ms), now_ms)[0]
        if output is not None:
            output._dropped()
        return done
