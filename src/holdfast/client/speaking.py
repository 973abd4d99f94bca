"""Adding to a session: messages in, durable when the call returns.

Everything that can be refused is refused here, before the transaction; large parts go into blobs first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

import msgspec

from ..errors import Invalid
from ..model import message as messages_
from ..model.entry import Draft
from ..model.message import Message
from ..model.usage import Usage
from ..ops import entries
from . import blobs, check
from .reading import Reading, make_messages

_KNOWN = frozenset(messages_.Body.__struct_fields__)


class Said(TypedDict, total=False):
    """What may be said beside a message's content."""

    id: str | None
    usage: Usage | Mapping[str, Any] | None
    model: str | None
    duration: float | None
    parent_id: str | None
    metadata: Mapping[str, Any] | None
    raw: bytes | None
    idempotency_key: str | None


class Speaking(Reading):
    """The part of a session that adds messages."""

    def user(self, content: Any, **fields: Unpack[Said]) -> Message:
        """Add a user message; ``append`` describes durability and retries."""
        return self._say("user", content, fields)

    def assistant(self, content: Any, **fields: Unpack[Said]) -> Message:
        """Add an assistant message."""
        return self._say("assistant", content, fields)

    def system(self, content: Any, **fields: Unpack[Said]) -> Message:
        """Add a system message."""
        return self._say("system", content, fields)

    def append(
        self,
        *items: Mapping[str, Any],
        expected_revision: int | None = None,
        idempotency_key: str | None = None,
    ) -> list[Message]:
        """Add messages at the head, all or none; durable when this returns.

        A retry with the same ``idempotency_key`` and content gives the first result and stores
        nothing. Another revision than ``expected_revision`` is ``Conflict``.
        """
        drafts = [_draft(item) for item in items]
        if expected_revision is not None:
            check.whole(expected_revision, what="expected_revision")
        return self._append(drafts, expected_revision, idempotency_key)

    def _say(self, role: str, content: Any, fields: Said) -> Message:
        if not fields:
            return self._append((messages_.draft({"role": role, "content": content}),), None, None)[0]
        unknown = fields.keys() - Said.__annotations__.keys()
        if unknown:
            raise TypeError(f"a message has no field {sorted(unknown)[0]!r}; put your own data into metadata")
        key = fields.pop("idempotency_key", None)
        return self._append((_draft({"role": role, "content": content, **fields}),), None, key)[0]

    def _append(
        self, drafts: Sequence[Draft], expected_revision: int | None, idempotency_key: str | None
    ) -> list[Message]:
        store = self._store
        key = None if idempotency_key is None else check.name(idempotency_key, what="idempotency_key")
        drafts = [
            blobs.spill(store._backend, store._clock, store.scope, draft) if blobs.is_large(draft) else draft
            for draft in drafts
        ]
        now_ms = store._clock.now_ms()
        done = store._write(
            lambda tx: entries.append(
                tx,
                store.scope,
                self.id,
                drafts,
                now_ms=now_ms,
                expected_revision=expected_revision,
                idempotency_key=key,
            )
        )
        self._seen = done.session
        if done.repeated:
            branch = done.repeated[0][0] >> 32
            return make_messages(True)({branch: done.uid}, list(done.repeated))
        return _appended(done, drafts, now_ms)


def _draft(item: Mapping[str, Any]) -> Draft:
    """Turn a message as callers write it into what is stored; unknown fields go into ``extra``."""
    if not isinstance(item, dict | Mapping):
        raise Invalid(f"a message is a dict with role and content, not {type(item).__name__}")
    body = {key: value for key, value in item.items() if value is not None or key == "content" or key not in _KNOWN}
    raw = body.pop("raw", None)
    body.setdefault("content", "")
    usage = _tidy(body) if len(body) > 2 else None
    return messages_.draft(body, raw=raw, usage=usage)


def _tidy(body: dict[str, Any]) -> Usage | None:
    """Bring the rarer fields into their stored form and give the usage."""
    usage = None
    if "usage" in body:
        usage = _usage(body["usage"])
        body["usage"] = msgspec.to_builtins(usage)
    for name in ("metadata", "extra"):
        if name in body:
            if not isinstance(body[name], Mapping):
                raise Invalid(f"{name} must be a dict, not {type(body[name]).__name__}")
            body[name] = dict(body[name])
    if not body.keys() <= _KNOWN:
        unknown = {key: body.pop(key) for key in [*body] if key not in _KNOWN}
        body["extra"] = {**body.get("extra", {}), **unknown}
    return usage


def _usage(usage: Any) -> Usage:
    if isinstance(usage, Usage):
        return usage
    if not isinstance(usage, Mapping):
        raise Invalid(f"usage must be a Usage or a dict of its fields, not {type(usage).__name__}")
    try:
        return Usage(**usage)
    except TypeError as error:
        raise Invalid(f"usage has a field that Usage does not know: {error}") from error


def _appended(done: entries.Appended, drafts: Sequence[Draft], now_ms: int) -> list[Message]:
    """Show what was just stored without reading it back."""
    turn, seq, found = done.session.turns, done.last, []
    for draft in reversed(drafts):
        found.append(Message(done.uid, seq, turn, now_ms, draft.body, draft.raw))
        turn -= draft.adds[1]
        seq -= 1
    found.reverse()
    return found
