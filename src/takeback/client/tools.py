"""Running a tool: its start is durable before it runs, its result or error after."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..errors import Conflict, Error, Invalid
from ..model import Bound, words
from ..model.message import Message
from ..model.tools import ToolCall
from .background import Held
from .streams import FLUSH_SECONDS, Stream

if TYPE_CHECKING:
    from .work import Working

_OUTPUT_BYTES = 1 << 20  # output comes in bursts: it is flushed by time, so that the tool rarely waits


class ToolRun(Bound):
    """One run of a tool, as a context manager; an exception inside is stored as the call's error and re-raised."""

    message: Message | None

    def __init__(
        self,
        session: Working,
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
        """The call that runs, available once the run is entered."""
        if self._call is None:
            raise Invalid("this tool run has not begun; enter it first: with session.tool(...) as run")
        return self._call

    def __enter__(self) -> ToolRun:
        if self._session._scans():
            # Before the start is stored: what changed until now is not this call's doing.
            self._session._scan_before_start(self._paths)
        self._call, self._place = self._session._start_call(*self._asked, self._paths)
        self._held = self._session._held
        self._session._running |= {self._call.id}
        if self._held is not None:
            self._held.running.add(self._call.id)
        self._began = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.message is not None or error is self._refused is not None:
            return  # its result could not be stored, but the tool did its work: the call stays open
        if error is not None and not isinstance(error, Exception):
            self._cut_output(error)
            self._cut_off(error)
            return  # interrupted: nobody knows whether the tool took effect, so the call stays open
        if error is None:
            self.result(None)
            return
        try:
            self.error(error)
        except Error as failure:  # the caller must see the tool's own error, not this one
            error.add_note(f"this error could not be stored either: {failure}")

    def write(self, text: str) -> None:
        """Store a piece of the tool's output while it runs; it is on disk within 0.2 seconds, and readers see it grow.

        The whole output becomes the result unless ``result`` is given another. If the run is cut off, the output
        becomes a message of its own with the status ``interrupted``.
        """
        if self.message is not None:
            raise Conflict("this call already has its result", found=self.message.seq)
        if self._output is None:
            about = {"role": "tool", "tool_name": self.call.name}
            self._output = self._session._begin_stream(about, FLUSH_SECONDS, _OUTPUT_BYTES, self._keep)
        self._output.write(text)

    def result(self, content: Any = None) -> Message:
        """Store the tool's result, by default what was written; durable when this returns."""
        return self._finish(self._written() if content is None else content, success=True)

    def error(self, error: BaseException | str) -> Message:
        """Store that the tool failed, after what was written, without raising."""
        said, written = error if isinstance(error, str) else words.of_error(error), self._written()
        between = "" if not written or written.endswith("\n") else "\n"
        return self._finish(f"{written or ''}{between}{said}", success=False)

    def _written(self) -> str | None:
        return None if self._output is None else self._output._text()

    def _cut_output(self, error: BaseException) -> None:
        """Seal the output of a tool that was interrupted."""
        if self._output is None:
            return
        try:
            self._output._cut()
        except Error as failure:
            error.add_note(f"the tool's output so far could not be sealed: {failure}")

    def _cut_off(self, error: BaseException) -> None:
        """Record what the tool changed until it was interrupted: later changes are not its own."""
        session = self._session
        try:
            if session._scans() and self._call is not None:
                session._scan_after_cut([self._call.id])
        except Error as failure:
            error.add_note(f"the files that the tool changed could not be recorded: {failure}")

    def _finish(self, content: Any, *, success: bool) -> Message:
        if self.message is not None:
            raise Conflict("this call already has its result", found=self.message.seq)
        duration = max(0.0, time.monotonic() - self._began)
        if self._session._scans():
            self._session._scan_before_result(self._paths)
        try:
            self.message = self._session._store_result(
                *(self.call.id, content), success=success, duration=duration, began=self._place, output=self._output
            )
        except Invalid as error:
            self._refused = error
            raise
        self._session._running -= {self.call.id}
        if self._held is not None:
            self._held.running.discard(self.call.id)
        return self.message

    def __repr__(self) -> str:
        state = "waiting" if self._call is None else "running" if self.message is None else "done"
        return f"<ToolRun {self._asked[1]} {state}>"
