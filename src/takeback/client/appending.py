"""Appending to a session: a message is durable when the call returns.

Whatever can be refused is refused here, before the transaction; large parts go into blobs first. A message may be in
our form or a provider's: then its own JSON is kept verbatim next to a small normalised form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..errors import Invalid
from ..files import contents
from ..model import items as items_
from ..model import message as messages_
from ..model.entry import Draft
from ..model.message import Message
from ..model.operation import Operation
from ..model.work import Compaction
from ..ops import append_statement, calls, customs, entries, moves, work
from ..ops.sessions import SessionRow
from . import arguments, points, writes
from . import drafts as drafts_
from .background import Held
from .handle import Write
from .reading import Reading, as_message, make_messages
from .running import Running

if TYPE_CHECKING:
    from ..model.items import Custom, Written
    from ..model.work import Task
    from ..tables.entries import EntryRow
    from .attachments import Attachable
    from .points import Point
else:  # for ``typing.get_type_hints``, which must not load what few messages have
    Attachable = Any

# What ``user``, ``assistant`` and ``system`` take besides the content, and how that looks if nothing was given.
_FIELDS = ("id", "usage", "model", "duration", "attachments", "parent_id", "metadata", "origin", "created_at", "raw")
_NOTHING = (None, None, None, None, (), None, None, None, None, None)
_LATE = 16  # after a collision, this many appends do not assume to be the only writer


class Speaking(Running, Reading):
    """The part of a session that appends messages."""

    def user(
        self,
        content: Any,
        *,
        id: str | None = None,
        usage: Any = None,
        model: str | None = None,
        duration: float | None = None,
        attachments: Iterable[Attachable] = (),
        parent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        origin: str | None = None,
        created_at: datetime | None = None,
        raw: bytes | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        """Append a user message; ``append`` describes durability and retries.

        Content is text or a list of parts. ``origin`` says who stands behind it: ``person``, ``harness`` or
        ``notification``; only a person's message opens a turn. ``created_at`` is when it happened, if not now.
        """
        return self._run(
            self._say(
                "user",
                content,
                (id, usage, model, duration, attachments, parent_id, metadata, origin, created_at, raw),
                idempotency_key,
            )
        )

    def assistant(
        self,
        content: Any,
        *,
        id: str | None = None,
        usage: Any = None,
        model: str | None = None,
        duration: float | None = None,
        attachments: Iterable[Attachable] = (),
        parent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        origin: str | None = None,
        created_at: datetime | None = None,
        raw: bytes | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        """Append an assistant message; takes what ``user`` takes."""
        return self._run(
            self._say(
                "assistant",
                content,
                (id, usage, model, duration, attachments, parent_id, metadata, origin, created_at, raw),
                idempotency_key,
            )
        )

    def system(
        self,
        content: Any,
        *,
        id: str | None = None,
        usage: Any = None,
        model: str | None = None,
        duration: float | None = None,
        attachments: Iterable[Attachable] = (),
        parent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        origin: str | None = None,
        created_at: datetime | None = None,
        raw: bytes | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        """Append a system message; takes what ``user`` takes."""
        return self._run(
            self._say(
                "system",
                content,
                (id, usage, model, duration, attachments, parent_id, metadata, origin, created_at, raw),
                idempotency_key,
            )
        )

    def append(
        self,
        *items: Any,
        existing: str = "error",
        expected_revision: int | None = None,
        idempotency_key: str | None = None,
    ) -> list[Any]:
        """Append messages at the head, all or none; durable when this returns.

        Takes our own messages, dicts, ``Native`` and ``Custom`` items, and SDK objects or whole responses from
        Anthropic, OpenAI (both APIs), Gemini or Bedrock's Converse. A retry with the same ``idempotency_key`` and
        content returns the first result and stores nothing. With ``existing="skip"``, items whose id is on any branch
        of the session with equal content are passed over and returned as stored. Raises ``Conflict`` if the session is
        not at ``expected_revision``.
        """
        return self._run(self._append(items, existing, expected_revision, idempotency_key))

    def write(
        self,
        *items: Any,
        state: Mapping[str, Any] | None = None,
        state_delete: Iterable[str] = (),
        docs: Mapping[tuple[Any, str], Any] | None = None,
        tasks: Iterable[Task | str] | None = None,
        at: Point | None = None,
        move: bool = True,
        existing: str = "error",
        expected_revision: int | None = None,
        idempotency_key: str | None = None,
    ) -> Written:
        """Store items, changes of the session's state, tasks and documents in one step: all of it, or nothing.

        Takes the items that ``append`` takes. ``docs`` maps (namespace, key) to a value; documents do not go back with
        a rewind. ``at`` is where to write: the tip is a plain append, another point opens a branch there and moves the
        head to it. With ``move=False`` the head stays; the tip of a branch that was left is continued. Files are never
        touched. ``existing`` works as in ``append``.
        """
        return self._run(
            self._write(items, state, state_delete, docs, tasks, at, move, existing, expected_revision, idempotency_key)
        )

    def replace_tail(
        self, from_seq: int, messages: Iterable[Any], expected_revision: int, *, idempotency_key: str | None = None
    ) -> list[Message]:
        """Replace everything from ``from_seq`` on with messages, in one step; the old ones stay on their branch.

        Raises ``Conflict`` if the session is not at ``expected_revision``. ``undo`` brings the old tail back.
        """
        arguments.whole(from_seq, what="from_seq", low=1)
        arguments.whole(expected_revision, what="expected_revision")
        key = arguments.optional_name(idempotency_key, what="idempotency_key")
        drafts = drafts_.drafts(self._store, arguments.many(messages, what="messages"))
        now_ms = self._store._clock.now_ms()
        self._spill(drafts)
        done, operation, stored = self._do(
            moves.replace_tail,
            self._store.scope,
            self.id,
            from_seq=from_seq,
            drafts=drafts,
            expected_revision=expected_revision,
            now_ms=now_ms,
            key=key,
        )
        if operation is not None:
            self._store._made(operation)
        return self._shown(done, stored, now_ms)

    def pop(self, *, idempotency_key: str | None = None) -> Message | None:
        """Take the last message off the path and return it, or None if there is none; ``undo`` brings it back.

        Changes to tasks, plan or state made after that message go with it.
        """
        call = self._store._call(idempotency_key, ["pop"])
        self._seen, done, rows, uids = self._do(moves.pop_once, self._store.scope, self.id, call)
        if done is None:
            return None
        self._store._made(done)
        return next(iter(make_messages(True, self._store._attachment)(uids, rows)), None)

    def clear(self, *, idempotency_key: str | None = None) -> Operation:
        """Go back to an empty session; everything stays on its branch, and ``undo`` brings it back."""
        return self._operate(self._store._call(idempotency_key, ["clear"]), moves.clear)

    def compact(self, upto: Point, summary: str, *, idempotency_key: str | None = None) -> Compaction:
        """Let a summary stand in for everything up to a point in contexts; the originals stay.

        ``uncompact`` takes it back, and so does a rewind to before it.
        """
        target = points.target_of(upto)
        text = arguments.text(summary, what="summary")
        if not text.strip():
            raise Invalid("the summary is empty; contexts would lose everything up to that point")
        found = self._change("compaction", work.compact(target, text), [points.request_of(upto), text], idempotency_key)
        return Compaction(found.seq, found.body["upto"], found.body["summary"])

    def uncompact(self, *, idempotency_key: str | None = None) -> Compaction | None:
        """Take back the last compaction: contexts show the originals, or the compaction before it, again."""
        self._change("compaction", work.uncompact, ["uncompact"], idempotency_key)
        return self.compaction()

    def compaction(self) -> Compaction | None:
        """Return the compaction in force, or None."""
        return self._ask(work.compaction)

    def _change(self, kind: str, decide: work.Decide, ask: Any, key: str | None = None) -> work.WorkEntry:
        """Append one entry to the state of work."""
        key, now_ms = arguments.optional_name(key, what="idempotency_key"), self._store._clock.now_ms()
        self._seen, found = self._do(
            work.change, self._store.scope, self.id, kind, decide, ask=ask, now_ms=now_ms, key=key
        )
        return found

    # ------------------------------------------------------------------ how it is done

    def _say(self, role: str, content: Any, fields: tuple[Any, ...], key: str | None) -> Write[Message]:
        if not isinstance(content, str):
            content = drafts_.parts(content)
        said = drafts_.Said(role=role, content=content)
        if fields != _NOTHING:
            given = zip(_FIELDS, fields, _NOTHING, strict=True)
            said.update([(name, value) for name, value, default in given if value is not default])
        return MessageWrite(self, (said,), None, key)

    def _append(
        self, items: Sequence[Any], existing: str, expected_revision: int | None, key: str | None
    ) -> Write[list[Any]]:
        if expected_revision is not None:
            arguments.whole(expected_revision, what="expected_revision")
        if existing == "error":
            return MessagesWrite(self, items, expected_revision, key)
        return writes.ItemsWrite(self, items, existing=existing, expected_revision=expected_revision, key=key)

    def _write(
        self,
        items: Sequence[Any],
        state: Mapping[str, Any] | None,
        state_delete: Iterable[str],
        docs: Mapping[tuple[Any, str], Any] | None,
        tasks: Iterable[Task | str] | None,
        at: Point | None,
        move: bool,
        existing: str,
        expected_revision: int | None,
        key: str | None,
    ) -> Write[Written]:
        return writes.SessionWrite(
            self,
            items,
            state=state,
            state_delete=state_delete,
            docs=docs,
            tasks=tasks,
            at=at,
            move=move,
            existing=existing,
            expected_revision=expected_revision,
            key=key,
        )

    def _spill(self, drafts: list[Draft]) -> None:
        store = self._store
        for index, draft in enumerate(drafts):
            if contents.is_large(draft):
                drafts[index] = contents.spill(store._runner, draft)

    def _shown(
        self,
        done: entries.Appended,
        drafts: Sequence[Draft],
        now_ms: int,
        seen: SessionRow | None = None,
        held: Held | None = None,
    ) -> list[Any]:
        """Take over the result of an append and return its messages.

        ``seen`` is the session's row from before it, ``held`` the lease under which it was written.
        """
        if done.session.updated >= self._seen.updated:  # else another thread on this handle has read a newer row
            self._seen = done.session
        if held is not None:
            held.sure = max(held.sure, done.session.updated)
        if self._waiting[1] or [draft for draft in drafts if draft.more]:
            alone = self._waiting[0] is seen is not None and done.session.revision == seen.revision + 1
            before = self._waiting[1] if alone else {}
            self._waiting = done.session, {} if done.repeated else calls.still_waiting(before, drafts)
        if done.late:
            self._late = _LATE
        if done.repeated:
            return [self._as_item(done.uid, row) for row in done.repeated]
        return _appended(done, drafts, now_ms, self._store._attachment)

    def _as_item(self, uid: str, row: EntryRow) -> Message | Custom:
        """Return a stored entry as the message or the custom entry that it is."""
        if row.kind in messages_.MESSAGE_KINDS:
            return as_message(uid, row, self._store._attachment)
        return customs.as_value(uid, row)


class MessagesWrite(append_statement.Append):
    """An append that is ready to run: the messages as drafts, and how to show what was stored.

    Attachments, large parts and the scan of a workspace come before the transaction (``prepare``).
    """

    __slots__ = ("_handle", "_held", "_items", "_scans", "unprepared")

    def __init__(
        self, handle: Speaking, items: Sequence[Any], expected_revision: int | None = None, key: str | None = None
    ) -> None:
        key = None if key is None else arguments.name(key, what="idempotency_key")
        seen, held, waiting = handle._seen, handle._held, handle._waiting
        attaches, store = [item for item in items if drafts_.attaches(item)], handle._store
        drafts = [] if attaches else drafts_.drafts(store, items)
        super().__init__(
            store.scope,
            seen,
            drafts,
            store._clock.now_ms(),
            expected_revision,
            key,
            None if held is None else held.fence,
            waiting[1] if waiting[0] is seen else append_statement.NO_CALLS,
            None if held is None else held.lose,
        )
        if handle._late:  # others have been appending to this session: compute nothing from the row as last seen
            handle._late -= 1
            self.known = None
        self._handle, self._held, self._items = handle, held, items if attaches else ()
        self._scans = held is not None and handle._scans()
        self.unprepared = self._scans or bool(attaches) or any([contents.is_large(draft) for draft in drafts])  # noqa: C419 - a generator costs more than it saves

    def prepare(self) -> None:
        """Do what comes before the transaction."""
        handle, self.unprepared = self._handle, False
        drafts = drafts_.drafts(handle._store, self._items) if self._items else [*self.drafts]
        handle._spill(drafts)
        self.drafts = drafts
        if self._scans:
            handle._scan_before(drafts)
            # The scan may have added a snapshot: the append must build on the row after it.
            self.seen = handle._seen
            self.known = None if self.known is None else self.seen
            self.waiting = handle._waiting[1] if handle._waiting[0] is self.seen else append_statement.NO_CALLS
            self.fence = None if self._held is None else self._held.fence

    def finish(self, done: tuple[entries.Appended, Sequence[Draft]]) -> Any:
        """Return the messages as stored."""
        return self._handle._shown(*done, self.now_ms, self.seen, self._held)


class MessageWrite(MessagesWrite):
    """An append of one message."""

    __slots__ = ()

    def finish(self, done: tuple[entries.Appended, Sequence[Draft]]) -> Any:
        """Return the message as stored."""
        return super().finish(done)[0]


def _appended(
    done: entries.Appended, drafts: Sequence[Draft], now_ms: int, reader: Callable[[dict[str, Any]], Any]
) -> list[Any]:
    """Return the messages and custom entries that were just stored, without reading them back."""
    turn, seq, found = done.session.turns, done.last, list[Any]()
    for draft in reversed(drafts):
        at_ms = now_ms if draft.at_ms is None else draft.at_ms
        if draft.kind in messages_.MESSAGE_KINDS:
            late_ms = now_ms - at_ms
            found.append(Message(done.uid, seq, turn, at_ms, draft.body, draft.raw, None, reader, late_ms))
        elif draft.kind.startswith(items_.CUSTOM):
            times = at_ms, now_ms
            found.append(items_.as_custom(done.uid, (seq, turn), draft.kind, draft.mid, draft.body, times))
        turn -= draft.adds[1]
        seq -= 1
    found.reverse()
    return found
