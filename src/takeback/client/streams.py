"""Streamed answers: every piece is on disk soon after it arrives, and the whole becomes one message.

Pieces are batched and flushed after a fifth of a second or a few kilobytes, by the writer itself or by the store's
keeper. Other readers see what has arrived as a message with the status ``streaming``. However it ends - finished,
interrupted, cancelled, killed - what had arrived becomes one message, exactly once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from .. import codec
from ..errors import Conflict, Error, Invalid
from ..model import Bound
from ..model import message as messages_
from ..model.entry import Draft
from ..model.message import Message
from ..model.usage import Usage
from ..ops import streams
from . import arguments

if TYPE_CHECKING:
    from ..ops.streams import Piece, StreamRow
    from .work import Working

FLUSH_SECONDS, FLUSH_BYTES = 0.2, 4096


class Stream(Bound):
    """An answer that is being written: ``with session.stream() as stream: stream.write(delta)``."""

    message: Message | None

    def __init__(
        self, session: Working, row: StreamRow, flush_seconds: float, flush_bytes: int, keep: int | None = None
    ) -> None:
        self._session, self._row = session, row
        self._seconds, self._bytes, self._keep = flush_seconds, flush_bytes, keep
        self._lock = threading.RLock()
        self._said = list[streams.Piece]()
        self._stored, self._pieces, self._size = 0, 0, 0
        # Used with ``keep``: the first part, the length of what is kept besides it, how much was left out, and the
        # number of the first piece that the next flush must write again.
        self._head, self._length, self._left_out, self._again = "", 0, 0, 0
        self._since = 0.0
        self._failure: Error | None = None
        self._ended = False
        self.message = None

    @property
    def id(self) -> str:
        """The id of the stream while it is open."""
        return self._row.id

    def write(self, delta: str, kind: str = "text") -> None:
        """Add a piece that arrived: text, ``thinking``, or ``tool_input`` (a piece of JSON)."""
        if kind not in streams.KINDS:
            raise Invalid(f"kind must be {', '.join(streams.KINDS[:-1])} or {streams.KINDS[-1]}, not {kind!r}")
        arguments.text(delta, what="a delta")
        with self._lock:
            self._require_open()
            if self._failure is not None:
                raise self._failure
            if not delta:
                return
            first = not self._size
            self._since = time.monotonic() if first else self._since
            self._said.append(streams.Piece(kind, delta))
            self._size += len(delta)
            self._length += len(delta)
            if self._keep is not None and self._length > 2 * self._keep:
                self._shorten(self._keep // 2)
            if self._size >= self._bytes:
                self._flush_or_wait()
                return
        if first:
            self._session._store._keeper.hurry()

    def _flush_or_wait(self) -> None:
        """Flush what arrived; after a failure that may pass, the background tries again."""
        try:
            self.flush()
        except Error as failure:
            if not _may_pass(failure):
                raise

    def flush(self) -> None:
        """Write what arrived to disk now; it is durable when this returns."""
        with self._lock:
            if self._ended or not self._size:
                return
            new, first, now_ms = (
                self._new_pieces(),
                self._again or self._pieces + 1,
                self._session._store._clock.now_ms(),
            )
            try:
                self._session._do(
                    streams.flush, *self._session._key, self._row, first, new, again=bool(self._again), now_ms=now_ms
                )
            except Error as failure:
                self._since = time.monotonic()  # restarts the clock: the keeper retries if the failure may pass
                if not _may_pass(failure):
                    self._fail(failure)
                raise
            self._stored, self._pieces, self._size = len(self._said), first - 1 + len(new), 0
            self._again = 0

    def _new_pieces(self) -> list[Piece]:
        """Return the pieces that the next flush must write."""
        if not self._again:
            return streams.joined(self._said[self._stored :])
        head, *rest = self._whole()
        return [head, *streams.joined(rest)][self._again - 1 :]

    def _whole(self) -> list[Piece]:
        """Return what arrived, as far as it is kept."""
        if not self._left_out:
            return self._said
        gap = f"\n[... {self._left_out:,} characters left out ...]\n"
        return [streams.Piece("text", self._head), streams.Piece("text", gap), *self._said]

    def _shorten(self, half: int) -> None:
        """Drop the middle: from memory now, and from disk with the next flush."""
        text, first = "".join(piece.text for piece in self._said), not self._left_out
        if first:
            self._head, text = text[:half], text[half:]
        self._left_out += len(text) - half
        self._said, self._stored, self._length = [streams.Piece("text", text[-half:])], 0, half
        self._again = 1 if first else self._again or 2

    def _text(self) -> str:
        """Return what arrived as one text, as far as it is kept."""
        with self._lock:
            half = 0 if self._keep is None else self._keep // 2
            if half and self._length > (half if self._left_out else 2 * half):
                self._shorten(half)
            return "".join(piece.text for piece in self._whole())

    def _dropped(self) -> None:
        self._ended = True
        self._session._store._keeper.forget(self)

    def _due(self) -> float | None:
        """Return when the next flush is due on the monotonic clock, or None."""
        waits = self._size and not self._ended and self._failure is None
        return self._since + self._seconds if waits else None

    def finish(self, message: Any = None, usage: Any = None) -> Message:
        """Seal the stream with the provider's final message, kept verbatim, or with what was written; return it.

        The chunks of a Gemini stream are given as a list and become one message. Of chunks that are only the end of
        the answer, what was written before them is kept too.
        """
        used = None if usage is None else Usage.of(usage)
        if message is None:
            return self._seal("complete", usage=used)
        return self._store_final(self._session._final(message, used, self._whole()))

    def cancel(self) -> Message | None:
        """Seal what arrived as cancelled and return it; stores nothing and returns None if nothing arrived."""
        return self._end("cancelled")

    def _cut(self) -> None:
        """Seal what arrived as interrupted, if the stream is still open."""
        if not self._ended:
            self._end("interrupted")

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended:
            return
        if error is None and self._said:
            self.finish()
            return
        try:
            self._end("interrupted" if error is None or isinstance(error, Exception) else "cancelled")
        except Error as failure:  # the caller must see the first error, not this one
            if error is None:
                raise
            error.add_note(f"the pieces that had arrived could not be sealed: {failure}")

    def _end(self, status: str) -> Message | None:
        with self._lock:
            if self._said:
                return self._seal(status)
            self._require_open()
            self._close(streams.drop_open, *self._session._key, self._row)
            return None

    def _seal(self, status: str, usage: Usage | None = None) -> Message:
        about = codec.decode(self._row.about)
        if usage is not None:
            about["usage"] = msgspec.to_builtins(usage)
        body = streams.body(about, streams.joined(self._whole()), status)
        return self._store_final([messages_.draft(body, usage=usage)])

    def _store_final(self, drafts: list[Draft]) -> Message:
        session = self._session
        now_ms = session._store._clock.now_ms()
        session._spill(drafts)
        if session._scans():
            session._scan_before(drafts)

        with self._lock:
            self._require_open()
            done, settled = self._close(streams.seal_open, *session._key, self._row, drafts, now_ms=now_ms)
            self.message = session._shown(done, settled, now_ms)[-1]
            return self.message

    def _close(self, op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            done = self._session._do(op, *args, **kwargs)
        except Error as failure:
            if not _may_pass(failure):
                self._fail(failure)
            raise
        self._ended = True
        self._session._store._keeper.forget(self)
        return done

    def _fail(self, failure: Error) -> None:
        """Record that nothing more can be stored: somebody else has the session, or it was stopped."""
        self._failure = failure
        self._session._store._keeper.forget(self)

    def _require_open(self) -> None:
        if self._ended:
            raise Conflict("this stream has ended; its message holds what arrived")

    def __repr__(self) -> str:
        size = sum(len(piece.text) for piece in self._whole())
        return f"<Stream {self.id[:12]} {size} characters, {'ended' if self._ended else 'open'}>"


def _may_pass(failure: Error) -> bool:
    """Whether a failure may be gone at the next try."""
    return failure.code in ("busy", "storage_full", "backend")
