"""Appending to a session: a message is durable when the call returns.

Whatever can be refused is refused here, before the transaction; large parts go into blobs first. A message may be in
our form or a provider's: then its own JSON is kept verbatim next to a small normalised form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from .. import providers as forms
from ..errors import Invalid
from ..files import contents
from ..model import message as messages_
from ..model.entry import Draft
from ..model.message import Message
from ..model.operation import Operation
from ..model.usage import Usage
from ..model.work import Compaction
from ..ops import append_statement, calls, entries, moves, work
from ..ops.sessions import SessionRow
from . import arguments, attachments, points
from .attachments import Attachable
from .background import Held
from .handle import Write, writing
from .reading import Reading, make_messages
from .running import Running

if TYPE_CHECKING:
    from .points import Point

_KNOWN = frozenset(messages_.Body.__struct_fields__)
_LIMIT_TITLE = 50
_LATE = 16  # after a collision, this many appends do not assume to be the only writer


class Said(TypedDict, total=False):
    """What ``user``, ``assistant`` and ``system`` take besides the content."""

    id: str | None
    usage: Any
    model: str | None
    duration: float | None
    attachments: Iterable[Attachable]
    parent_id: str | None
    metadata: Mapping[str, Any] | None
    raw: bytes | None
    idempotency_key: str | None


class Speaking(Running, Reading):
    """The part of a session that appends messages."""

    @writing
    def user(self, content: Any, **fields: Unpack[Said]) -> Write[Message]:
        """Append a user message; ``append`` describes durability and retries."""
        return self._say("user", content, fields)

    @writing
    def assistant(self, content: Any, **fields: Unpack[Said]) -> Write[Message]:
        """Append an assistant message."""
        return self._say("assistant", content, fields)

    @writing
    def system(self, content: Any, **fields: Unpack[Said]) -> Write[Message]:
        """Append a system message."""
        return self._say("system", content, fields)

    @writing
    def append(
        self, *items: Any, expected_revision: int | None = None, idempotency_key: str | None = None
    ) -> Write[list[Message]]:
        """Append messages at the head, all or none; durable when this returns.

        Takes our own messages, dicts, and SDK objects or whole responses from Anthropic, OpenAI (both APIs), Gemini or
        Bedrock's Converse. A retry with the same ``idempotency_key`` and content returns the first result and stores
        nothing. Raises ``Conflict`` if the session is not at ``expected_revision``.
        """
        if expected_revision is not None:
            arguments.whole(expected_revision, what="expected_revision")
        return MessagesWrite(self, items, expected_revision, idempotency_key)

    def replace_tail(
        self, from_seq: int, messages: Iterable[Any], expected_revision: int, *, idempotency_key: str | None = None
    ) -> list[Message]:
        """Replace everything from ``from_seq`` on with messages, in one step; the old ones stay on their branch.

        Raises ``Conflict`` if the session is not at ``expected_revision``. ``undo`` brings the old tail back.
        """
        arguments.whole(from_seq, what="from_seq", low=1)
        arguments.whole(expected_revision, what="expected_revision")
        key = arguments.optional_name(idempotency_key, what="idempotency_key")
        drafts = self._drafts(arguments.many(messages, what="messages"))
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

    def _say(self, role: str, content: Any, fields: Said) -> Write[Message]:
        if not isinstance(content, str):
            content = _parts(content)
        if not fields:
            return MessageWrite(self, (_Said(role=role, content=content),))
        unknown = fields.keys() - Said.__annotations__.keys()
        if unknown:
            raise TypeError(f"a message has no field {sorted(unknown)[0]!r}; put your own data into metadata")
        said: dict[str, Any] = {"role": role, "content": content, **fields}
        key = said.pop("idempotency_key", None)
        return MessageWrite(self, (_Said(said),), None, key)

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
    ) -> list[Message]:
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
            branch = done.repeated[0].branch
            return make_messages(True, self._store._attachment)({branch: done.uid}, list(done.repeated))
        return _appended(done, drafts, now_ms, self._store._attachment)

    def _drafts(self, items: Iterable[Any]) -> list[Draft]:
        found = list[Draft]()
        for item in items:
            kind = type(item)
            if (
                (kind is dict or kind is _Said)
                and len(item) == 2
                and "role" in item
                and type(item.get("content")) is str
                and item["role"] != "developer"
            ):
                found.append(messages_.text_draft(item))
            elif kind is dict:
                found += self._recognised(item)
            elif kind is _Said:
                found.append(self._said_draft(item))
            elif isinstance(item, list | tuple | str | bytes):
                raise Invalid(f"append takes messages as arguments, not one {type(item).__name__}: append(*messages)")
            elif isinstance(item, Message):
                found.append(self._copied(item))
            else:
                found += self._recognised(item)
        return found

    def _recognised(self, item: Any) -> list[Draft]:
        """Turn a message in any form into drafts; its ``metadata`` is ours, since no provider has that field."""
        bare, metadata = item, None
        if isinstance(item, dict) and "role" in item and isinstance(item.get("metadata"), Mapping):
            metadata = arguments.mapping(item["metadata"], what="metadata")
            bare = {key: value for key, value in item.items() if key != "metadata"}
        return [messages_.given_draft(given, metadata) for given in forms.recognise(bare)] or [self._draft(item)]

    def _said_draft(self, said: dict[str, Any]) -> Draft:
        """Turn a message of ours into a draft; parts in a provider's form stay as they are, next to our fields."""
        given = [] if isinstance(said["content"], str) else forms.recognise({k: said[k] for k in ("role", "content")})
        if not given or said.get("raw") is not None:  # a caller's own raw bytes need not contain the content
            return self._draft(said)
        body = {key: value for key, value in said.items() if value is not None and key != "content"}
        body["role"] = given[0].role
        usage = self._tidy(body) if len(body) > 1 else None
        body["form"] = given[0].form
        return messages_.draft(body, raw=messages_.encode_raw(given[0].value), usage=usage, given=given[0])

    def _draft(self, item: Any) -> Draft:
        """Turn a message as callers write it into a draft; unknown fields go into ``extra``."""
        if not isinstance(item, Mapping):
            item = forms.plain(item)
            if not isinstance(item, Mapping):
                raise Invalid(
                    f"a message must be a dict with role and content, or an SDK object, not {type(item).__name__}"
                )
        body = {key: value for key, value in item.items() if value is not None or key == "content" or key not in _KNOWN}
        raw = body.pop("raw", None)
        body.setdefault("content", "")
        usage = self._tidy(body) if len(body) > 2 else None
        return messages_.draft(body, raw=raw, usage=usage)

    def _copied(self, message: Message) -> Draft:
        """Copy a message of any session into a draft; it gets a new id, and its attachments come along."""
        left = ("id", "parent_id", "tool_name", "answers", "attachments")
        body = {key: value for key, value in msgspec.to_builtins(message.body).items() if key not in left}
        if message.body.attachments:
            body["attachments"] = [attachments.store(self._store, each) for each in message.attachments]
        if message.body.form is None:
            body["content"] = message.body.content
            return messages_.draft(body, raw=message.raw, usage=message.usage)
        calls, results = message.tool_calls, message.tool_results
        is_turn = message.role == "user"
        given = forms.Given(message.body.form, message.role, {}, calls=calls, results=results, is_turn=is_turn)
        return messages_.draft(body, raw=message.raw, usage=message.usage, given=given)

    def _tidy(self, body: dict[str, Any]) -> Usage | None:
        """Convert the rarer fields into their stored form and return the usage."""
        usage = None
        if "usage" in body:
            usage = Usage.of(body["usage"])
            body["usage"] = msgspec.to_builtins(usage)
        for name in ("metadata", "extra"):
            if name in body:
                if not isinstance(body[name], Mapping):
                    raise Invalid(f"{name} must be a dict, not {type(body[name]).__name__}")
                body[name] = dict(body[name])
        if "attachments" in body:
            wanted = arguments.many(body.pop("attachments"), what="attachments")
            stored = [attachments.store(self._store, given) for given in wanted]
            body.update({"attachments": stored} if stored else {})
        messages_.tool_parts(body)
        for derived in ("form", "answers"):
            body.pop(derived, None)
        if not body.keys() <= _KNOWN:
            unknown = {key: body.pop(key) for key in [*body] if key not in _KNOWN}
            body["extra"] = {**body.get("extra", {}), **unknown}
        return usage


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
        attaches = [item for item in items if _attaches(item)]
        drafts = [] if attaches else handle._drafts(items)
        store = handle._store
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
        drafts = handle._drafts(self._items) if self._items else [*self.drafts]
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


class _Said(dict[str, Any]):
    """A message as ``user``, ``assistant`` and ``system`` take it: content, and our own fields."""


def _parts(content: Any) -> list[Any]:
    """Check content that is not text: a list of parts, or one part."""
    if isinstance(content, Mapping):
        return [forms.plain(content)]
    if isinstance(content, list | tuple):
        return [forms.plain(part) for part in content]
    raise Invalid(
        f"content must be text or a list of parts, not {type(content).__name__}; append takes a whole SDK message"
    )


def _attaches(item: Any) -> bool:
    if isinstance(item, Message):
        return bool(item.body.attachments)
    return (type(item) is dict or isinstance(item, Mapping)) and bool(item.get("attachments"))


def _appended(
    done: entries.Appended, drafts: Sequence[Draft], now_ms: int, reader: Callable[[dict[str, Any]], Any]
) -> list[Message]:
    """Return the messages that were just stored, without reading them back."""
    turn, seq, found = done.session.turns, done.last, []
    for draft in reversed(drafts):
        found.append(Message(done.uid, seq, turn, now_ms, draft.body, draft.raw, None, reader))
        turn -= draft.adds[1]
        seq -= 1
    found.reverse()
    return found
