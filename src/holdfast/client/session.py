"""A session: speak, read, work, move in time.

A handle holds what it last saw (``refresh`` renews it); every method runs one operation. Handles are
cheap, may be shared by threads, and two of them on one session never lose each other's work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ..clock import to_datetime
from ..errors import Invalid
from ..model import html, words
from ..model.operation import Operation
from ..model.session import Head
from ..ops import moves, sessions
from . import check
from .contexts import Contexts
from .moving import Moving
from .others import Others
from .working import Working


class Session(Others, Working, Moving, Contexts):
    """One conversation of an agent."""

    # ------------------------------------------------------------------ fields

    @property
    def key(self) -> str:
        """How other agents name it: unique, of the form ``agent:<id>:...``."""
        return self._seen.key

    @property
    def name(self) -> str | None:
        """The name that its maker gave."""
        return self._seen.name

    @property
    def label(self) -> str | None:
        """The label that its parent gave."""
        return self._seen.label

    @property
    def title(self) -> str | None:
        """What people read in listings: made from the prompt or the first user message, or given by ``rename``."""
        return self._seen.title

    @property
    def agent_id(self) -> str:
        """Whose session it is."""
        return self._seen.agent

    @property
    def kind(self) -> str:
        """``main``, ``subagent`` or ``cron``."""
        return self._seen.kind

    @property
    def workspace(self) -> str | None:
        """The directory that it works in."""
        return self._seen.workspace or None

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags, in the order of adding."""
        return sessions.unpack_tags(self._seen.tags)

    @property
    def archived(self) -> bool:
        """Whether listings leave it out unless asked."""
        return bool(self._seen.archived)

    @property
    def pinned(self) -> bool:
        """Whether people want to find it again."""
        return bool(self._seen.pinned)

    @property
    def deleted(self) -> bool:
        """Whether it is in the trash."""
        return bool(self._seen.hidden)

    @property
    def prompt(self) -> str | None:
        """What it was asked for."""
        return self._detail("prompt")  # type: ignore[no-any-return]

    @property
    def model(self) -> str | None:
        """The model it began with."""
        return self._detail("model")  # type: ignore[no-any-return]

    @property
    def provider(self) -> str | None:
        """The provider it began with."""
        return self._detail("provider")  # type: ignore[no-any-return]

    @property
    def task(self) -> str | None:
        """What its parent wants of it."""
        return self._detail("task")  # type: ignore[no-any-return]

    @property
    def run_id(self) -> str | None:
        """The id of its run, for tracing."""
        return self._detail("run_id")  # type: ignore[no-any-return]

    @property
    def parent_id(self) -> str | None:
        """The session that started it."""
        return self._detail("parent_id")  # type: ignore[no-any-return]

    @property
    def forked_from(self) -> str | None:
        """The session that this one was forked from."""
        return self._detail("forked_from")  # type: ignore[no-any-return]

    @property
    def metadata(self) -> dict[str, Any]:
        """What the caller attached."""
        return dict(self._detail("metadata") or {})

    @property
    def created_at(self) -> datetime:
        """When it began."""
        return to_datetime(self._seen.created_ms)

    @property
    def updated_at(self) -> datetime:
        """When it last changed, by the writer's clock; listings go by feed position instead."""
        return to_datetime(self._seen.updated_ms)

    @property
    def last_message_at(self) -> datetime | None:
        """When a message was last added."""
        return None if self._seen.message_ms is None else to_datetime(self._seen.message_ms)

    @property
    def head(self) -> Head:
        """Where it is."""
        place = self._seen
        return Head(place.uid, place.seq, bool(place.attached))

    @property
    def revision(self) -> int:
        """Grows by one with each append call and each move of the head."""
        return self._seen.revision

    @property
    def message_count(self) -> int:
        """Messages on the path of the head."""
        return self._seen.messages

    @property
    def turn_count(self) -> int:
        """Turns on the path of the head."""
        return self._seen.turns

    @property
    def task_count(self) -> int:
        """Tasks at the head."""
        return self._seen.tasks

    @property
    def completed_count(self) -> int:
        """Completed tasks at the head."""
        return self._seen.completed

    @property
    def build_attempts(self) -> int:
        """Build attempts at the head."""
        return self._seen.builds

    def _detail(self, name: str) -> Any:
        return None if self._doc is None else sessions.decoded(self._doc).get(name)

    # ------------------------------------------------------------------ changing fields

    def rename(self, title: str | None, *, idempotency_key: str | None = None) -> Operation:
        """Give it another title; None lets the next user message make one."""
        title = check.optional_name(title, what="title")
        return self._set("rename", {"title": title}, idempotency_key)

    def tag(self, *tags: str, idempotency_key: str | None = None) -> Operation:
        """Add tags; those it has already stay where they are."""
        return self._retag(_some(tags), [], idempotency_key)

    def untag(self, *tags: str, idempotency_key: str | None = None) -> Operation:
        """Remove tags; one that it has not is no error."""
        return self._retag([], _some(tags), idempotency_key)

    def archive(self, *, idempotency_key: str | None = None) -> Operation:
        """Leave it out of listings unless they ask for archived sessions."""
        return self._set("archive", {"archived": 1}, idempotency_key)

    def unarchive(self, *, idempotency_key: str | None = None) -> Operation:
        """Put it back into listings."""
        return self._set("unarchive", {"archived": 0}, idempotency_key)

    def pin(self, *, idempotency_key: str | None = None) -> Operation:
        """Mark it for finding again."""
        return self._set("pin", {"pinned": 1}, idempotency_key)

    def unpin(self, *, idempotency_key: str | None = None) -> Operation:
        """Take the mark away."""
        return self._set("unpin", {"pinned": 0}, idempotency_key)

    def set_metadata(self, metadata: Mapping[str, Any], *, idempotency_key: str | None = None) -> Operation:
        """Replace the caller's own data."""
        done = self._set("metadata", {"metadata": check.mapping(metadata, what="metadata")}, idempotency_key)
        self.refresh()
        return done

    def _set(self, kind: str, after: dict[str, Any], key: str | None) -> Operation:
        return self._operate(
            [kind, after],
            lambda tx, now: moves.change(tx, self._store.scope, self.id, kind, after, now_ms=now),
            key,
        )

    def _retag(self, add: list[str], drop: list[str], key: str | None) -> Operation:
        return self._operate(
            ["tags", add, drop],
            lambda tx, now: moves.retag(tx, self._store.scope, self.id, add=add, drop=drop, now_ms=now),
            key,
        )

    # ------------------------------------------------------------------ the handle

    def refresh(self) -> Session:
        """Read the session's fields again."""
        self._saw(*self._store._read(lambda tx: sessions.whole(tx, self._store.scope, self.id)))
        return self

    def to_dict(self) -> dict[str, Any]:
        """Give its fields as plain values, times as RFC 3339."""
        found = {name: getattr(self, name) for name in _FIELDS}
        found["tags"], found["head"] = list(self.tags), self.head._asdict()
        return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in found.items()}

    def __repr__(self) -> str:
        label = self.title or self.name or "untitled"
        tokens = words.short_number(self._seen.input_tokens + self._seen.output_tokens)
        turns, status = words.count(self.turn_count, "turn"), "in the trash" if self.deleted else self.status
        return f"<Session {self.id[:12]} {label!r} {self.kind}, {turns}, {tokens} tokens, {status}>"

    def _repr_html_(self) -> str:
        return html.fields(repr(self), self.to_dict())


def _some(tags: tuple[str, ...]) -> list[str]:
    if not tags:
        raise Invalid("name at least one tag")
    return [check.tag(tag) for tag in tags]


_FIELDS = tuple(
    re.findall(
        r"\w+",
        """id key name title prompt model provider agent_id kind status label task workspace parent_id run_id tags
        archived pinned metadata created_at updated_at last_message_at finished_at head revision message_count
        turn_count task_count completed_count build_attempts""",
    )
)
