"""Adding to a session: messages in, durable when the call returns.

Everything that can be refused is refused here, before the transaction; large parts go into blobs first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..errors import Invalid
from ..model import message as messages_
from ..model.entry import Draft
from ..model.message import Message
from ..model.usage import Usage
from ..ops import entries, sessions
from . import blobs, check
from .reading import Reading

_KNOWN = frozenset(messages_.Body.__struct_fields__)


class Speaking(Reading):
    """The part of a session that adds messages."""

    def user(self, content: Any, **fields: Any) -> Message:
        """Add a user message; ``append`` describes durability and retries."""
        return self._say("user", content, **fields)

    def assistant(self, content: Any, **fields: Any) -> Message:
        """Add an assistant message."""
        return self._say("assistant", content, **fields)

    def system(self, content: Any, **fields: Any) -> Message:
        """Add a system message."""
        return self._say("system", content, **fields)

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

    def _say(
        self,
        role: str,
        content: Any,
        *,
        id: str | None = None,
        usage: Usage | None = None,
        model: str | None = None,
        duration: float | None = None,
        parent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        raw: bytes | None = None,
        idempotency_key: str | None = None,
    ) -> Message:
        fields = {
            "role": role,
            "content": content,
            "id": id,
            "usage": usage,
            "model": model,
            "duration": duration,
            "parent_id": parent_id,
            "metadata": metadata,
            "raw": raw,
        }
        return self._append([_draft(fields)], None, idempotency_key)[0]

    def _append(
        self, drafts: Sequence[Draft], expected_revision: int | None, idempotency_key: str | None
    ) -> list[Message]:
        store = self._store
        key = check.optional_name(idempotency_key, what="idempotency_key")
        if any(len(draft.body) + len(draft.raw or b"") > blobs.SPILL_BYTES for draft in drafts):
            drafts = [blobs.spill(store._backend, store._clock, store.scope, draft) for draft in drafts]
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
        self._info = sessions.as_value(done.session)
        if done.repeated or not drafts:
            return self.messages(after=done.first - 1, before=done.last + 1)
        return _appended(done, drafts, now_ms)


def _draft(item: Mapping[str, Any]) -> Draft:
    """Turn a message as callers write it into what is stored; unknown fields go into ``extra``."""
    if not isinstance(item, Mapping):
        raise Invalid(f"a message is a dict with role and content, not {type(item).__name__}")
    body = {key: value for key, value in item.items() if key in _KNOWN and value is not None}
    extra = {key: value for key, value in item.items() if key not in _KNOWN and key != "raw"}
    usage = body.get("usage")
    if usage is not None:
        body["usage"] = _usage(usage)
    metadata = body.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise Invalid(f"metadata must be a dict, not {type(metadata).__name__}")
    if metadata is not None:
        body["metadata"] = dict(metadata)
    if extra:
        body["extra"] = {**body.get("extra", {}), **extra}
    body.setdefault("content", "")
    return messages_.draft(body, raw=item.get("raw"))


def _usage(usage: Any) -> dict[str, Any]:
    if isinstance(usage, Mapping):
        try:
            usage = Usage(**usage)
        except TypeError as error:
            raise Invalid(f"usage has a field that Usage does not know: {error}") from error
    if not isinstance(usage, Usage):
        raise Invalid(f"usage must be a Usage or a dict of its fields, not {type(usage).__name__}")
    usage.counts()
    return msgspec.to_builtins(usage)  # type: ignore[no-any-return]


def _appended(done: entries.Appended, drafts: Sequence[Draft], now_ms: int) -> list[Message]:
    """Show what was just stored without reading it back."""
    turn = done.session.place.numbers[1] - sum(draft.adds.turns for draft in drafts)
    found = []
    for seq, draft in enumerate(drafts, done.first):
        turn += draft.adds.turns
        body = messages_.decode_body(draft.body)
        found.append(Message(done.uid, seq, turn, now_ms, draft.raw, body))
    return found
