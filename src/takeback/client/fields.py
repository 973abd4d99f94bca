"""What a handle holds of a session: its fields as last read.

No property here reads the store. Every handle of a session builds on this: the one that only reads, and the one that
does everything.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate

from .. import presence
from ..clock import to_datetime
from ..model import Bound, words
from ..model.session import Head
from ..model.status import ACTIVE, INTERRUPTED
from ..ops import sessions
from ..ops.sessions import LeaseRow, SessionRow
from ..storage.base import Tx
from ..storage.runner import P, T
from ..tables.sessions import SESSION

if TYPE_CHECKING:
    from ..errors import Corrupt
    from ..presence import Holder
    from .background import Held
    from .store_reading import StoreReading


class Fields(Bound):
    """A session of a store as last read."""

    resumed: bool
    _store: StoreReading[Any]
    _held: Held | None = None
    _wait = 0.0  # seconds that entering it waits for its holder
    _state_values: dict[str, Any] | Corrupt | None = None

    def __init__(
        self, store: StoreReading[Any], seen: SessionRow, doc: bytes | None = None, lease: LeaseRow | None = None
    ) -> None:
        self._store = store
        self.resumed = False
        self._saw(seen, doc, lease)

    @property
    def id(self) -> str:
        """Globally unique; ids sort by time of creation."""
        return self._row.id

    def _ask(self, op: Callable[Concatenate[Tx, SessionRow, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run an operation that reads this session."""
        read: Any = self._store._read
        found: T = read(sessions.given, self._store.scope, self.id, op, *args, **kwargs)
        return found

    def _saw(self, seen: SessionRow, doc: bytes | None, lease: LeaseRow | None) -> None:
        """Take over the session as it was read, and check whether its holder still exists."""
        self._row, self._doc, self._lease = seen, doc, lease
        self._gone = lease is not None and seen.status == ACTIVE and not self._holds() and self._store._is_gone(lease)

    @property
    def _seen(self) -> SessionRow:
        """The session's row as last read. A listing leaves its packed fields packed until one of them is asked for."""
        if type(self._row) is not SessionRow:
            self._row = SESSION.unfolded(self._row)
        return self._row

    @_seen.setter
    def _seen(self, row: SessionRow) -> None:
        self._row = row

    def _holds(self) -> bool:
        return self._held is not None and not self._held.over

    @property
    def key(self) -> str:
        """How other agents address it: unique, of the form ``agent:<id>:...``."""
        return self._row.key

    @property
    def name(self) -> str | None:
        """The name given by its creator."""
        return self._row.name

    @property
    def label(self) -> str | None:
        """The label given by its parent."""
        return self._row.label

    @property
    def title(self) -> str | None:
        """The title in listings: from ``rename``, or derived from the prompt or first user message."""
        return self._row.title

    @property
    def agent_id(self) -> str:
        """The id of the agent that owns it."""
        return self._row.agent

    @property
    def kind(self) -> str:
        """``main``, ``subagent`` or ``cron``."""
        return self._row.kind

    @property
    def workspace(self) -> str | None:
        """The directory that it works in."""
        return self._row.workspace or None

    @property
    def came_from(self) -> str | None:
        """The workspace named in the export that it was loaded from; for display only."""
        found = self._detail("came_from")
        return found.get("workspace") if isinstance(found, dict) else None

    @property
    def tags(self) -> tuple[str, ...]:
        """Its tags, in the order they were added."""
        return sessions.unpack_tags(self._seen.tags)

    @property
    def archived(self) -> bool:
        """Whether listings leave it out by default."""
        return bool(self._row.archived)

    @property
    def pinned(self) -> bool:
        """Whether it is pinned."""
        return bool(self._row.pinned)

    @property
    def deleted(self) -> bool:
        """Whether it is in the trash."""
        return bool(self._row.hidden)

    @property
    def prompt(self) -> str | None:
        """The prompt that it was created with."""
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
        """The task that its parent gave it."""
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
        """The caller's own metadata."""
        return dict(self._detail("metadata") or {})

    @property
    def created_at(self) -> datetime:
        """When it was created."""
        return to_datetime(self._row.created_ms)

    @property
    def updated_at(self) -> datetime:
        """When it last changed, or if that was stored later, when the last thing in it happened."""
        return to_datetime(self._row.updated_ms)

    @property
    def last_message_at(self) -> datetime | None:
        """When the message that was last added was said."""
        return None if self._seen.message_ms is None else to_datetime(self._seen.message_ms)

    @property
    def head(self) -> Head:
        """Where the session is: branch and entry."""
        place = self._seen
        return Head(place.uid, place.seq, bool(place.attached))

    @property
    def revision(self) -> int:
        """Grows by one with every append call and every move of the head."""
        return self._seen.revision

    @property
    def message_count(self) -> int:
        """The number of messages on the path of the head."""
        return self._row.messages

    @property
    def turn_count(self) -> int:
        """The number of turns on the path of the head."""
        return self._seen.turns

    @property
    def task_count(self) -> int:
        """The number of tasks at the head."""
        return self._seen.tasks

    @property
    def completed_count(self) -> int:
        """The number of completed tasks at the head."""
        return self._seen.completed

    @property
    def build_attempts(self) -> int:
        """The number of build attempts at the head."""
        return self._seen.builds

    @property
    def state_values(self) -> dict[str, Any] | None:
        """The values of its state that ``list_sessions(with_state=...)`` asked for; None if none were asked for.

        Names that it did not have are absent. Raises ``Corrupt`` if its state could not be read.
        """
        if isinstance(self._state_values, Exception):
            raise self._state_values
        return None if self._state_values is None else dict(self._state_values)

    def _detail(self, name: str) -> Any:
        return None if self._doc is None else sessions.decoded(self._doc).get(name)

    # ------------------------------------------------------------------ what happened before

    @property
    def status(self) -> str:
        """``active``, ``completed``, ``error``, ``timeout``, ``stopped``, or ``interrupted`` if its holder is gone."""
        return INTERRUPTED if self._gone else self._row.status

    @property
    def holder(self) -> Holder | None:
        """Who runs it, as last read: the process and its machine."""
        if self._held is not None and not self._held.over:
            return presence.decode(self._held.lease.holder or b"")
        lease = self._lease
        held = lease is not None and lease.holder is not None and not self._store._is_gone(lease)
        return presence.decode(lease.holder) if held and lease is not None and lease.holder is not None else None

    @property
    def stopped_at(self) -> int | None:
        """The turn in which its last run was cut off, or None."""
        if self._gone:
            return self._seen.turns
        return self._end.get("turn") if self._end.get("status") == INTERRUPTED else None

    @property
    def crashes(self) -> int:
        """How many times in a row its runs were cut off in that turn."""
        stored = int(self._end.get("times", 0)) if self.stopped_at == self._end.get("turn") else 0
        return stored + 1 if self._gone else stored

    @property
    def error(self) -> str | None:
        """The error that its last run ended with, or None."""
        return self._end.get("error")

    @property
    def result(self) -> Any:
        """The result passed to ``complete``."""
        return self._end.get("result") if self._row.status == "completed" else None

    @property
    def finished_at(self) -> datetime | None:
        """When it ended; None while it is open."""
        at = self._end.get("at_ms") if self._row.status != ACTIVE else None
        return None if at is None else to_datetime(at)

    @property
    def _end(self) -> dict[str, Any]:
        return {} if self._doc is None else sessions.ended(self._doc)

    # ------------------------------------------------------------------ as values

    def to_dict(self) -> dict[str, Any]:
        """Return its fields as plain values, with times in RFC 3339."""
        found = {name: getattr(self, name) for name in _FIELDS}
        found["tags"], found["head"] = list(self.tags), self.head._asdict()
        return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in found.items()}

    def __repr__(self) -> str:
        label = self.title or self.name or "untitled"
        tokens = words.short_number(self._seen.input_tokens + self._seen.output_tokens)
        turns, status = words.count(self.turn_count, "turn"), "in the trash" if self.deleted else self.status
        return f"<Session {self.id[:12]} {label!r} {self.kind}, {turns}, {tokens} tokens, {status}>"

    def _repr_html_(self) -> str:
        from ..model import html

        return html.fields(repr(self), self.to_dict())


_NAMES = """id key name title prompt model provider agent_id kind status label task workspace parent_id run_id tags
archived pinned metadata created_at updated_at last_message_at finished_at head revision message_count turn_count
task_count completed_count build_attempts"""
_FIELDS = tuple(_NAMES.split())
