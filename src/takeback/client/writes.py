"""One write on its way to the store: everything of it checked, encoded and spilled before the transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import Invalid
from ..files import contents
from ..model.items import Written
from ..ops import documents
from ..ops import writes as writes_
from . import arguments, drafts, points

if TYPE_CHECKING:
    from ..storage.base import Op
    from .appending import Speaking
    from .points import Point

_EXISTING = ("error", "skip")


class SessionWrite:
    """A write that is ready to run (``handle.Write``)."""

    unprepared = True

    def __init__(
        self,
        handle: Speaking,
        items: Sequence[Any],
        *,
        state: Mapping[str, Any] | None = None,
        state_delete: Iterable[str] = (),
        docs: Mapping[tuple[Any, str], Any] | None = None,
        tasks: Iterable[Any] | None = None,
        at: Point | None = None,
        move: bool = True,
        existing: str = "error",
        expected_revision: int | None = None,
        key: str | None = None,
    ) -> None:
        from .state import checked_keys
        from .work import checked_tasks

        if existing not in _EXISTING:
            raise Invalid(f"existing must be 'error' or 'skip', not {existing!r:.40}")
        arguments.flag(move, what="move")
        if expected_revision is not None:
            arguments.whole(expected_revision, what="expected_revision")
        self._handle, self._items, self._held = handle, items, handle._held
        put = checked_keys({} if state is None else arguments.mapping(state, what="state"))
        gone = checked_keys(dict.fromkeys(arguments.many(state_delete, what="state_delete")))
        if both := put.keys() & gone.keys():
            raise Invalid(f"state key {min(both)!r} is both set and deleted; choose one")
        named = {} if docs is None else arguments.mapping(docs, what="docs")
        self._docs = [(*_named(place), documents.prepare(value)) for place, value in named.items()]
        wanted_tasks = None if tasks is None else checked_tasks(tasks)
        self._wanted = writes_.WantedWrite(
            call=handle._store._call(key, None),
            drafts=(),
            state=put,
            state_delete=tuple(gone),
            tasks=wanted_tasks,
            docs=(),
            at=points.optional_target(at),
            move=move,
            skips=existing == "skip",
            expected_revision=expected_revision,
        )
        self._place = None if at is None else points.request_of(at)

    def prepare(self) -> None:
        """Store attachments and large parts as blobs, and scan the workspace if a turn or a call begins or ends."""
        handle, self.unprepared = self._handle, False
        store, found = handle._store, drafts.drafts(handle._store, self._items, named=self._wanted.skips)
        request = self._request(found)
        handle._spill(found)
        if self._held is not None and handle._scans():
            handle._scan_before(found)
        call = self._wanted.call._replace(request=request)
        docs = [(space, key, contents.spill_value(store._runner, value)) for space, key, value in self._docs]
        self._wanted = self._wanted._replace(call=call, drafts=found, docs=docs)

    def _request(self, found: Sequence[Any]) -> Any:
        """Describe the write, for comparing two with one idempotency key."""
        if self._wanted.call.key is None:
            return None
        wanted = self._wanted
        return [
            [[draft.kind, draft.mid, draft.body, draft.raw, draft.at_ms] for draft in found],
            [dict(wanted.state), list(wanted.state_delete)],
            None if wanted.tasks is None else [msgspec.to_builtins(task) for task in wanted.tasks],
            [[space, key, value.form, value.data] for space, key, value in self._docs],
            [self._place, wanted.move, wanted.skips],
        ]

    @property
    def run(self) -> Op[writes_.WriteDone]:
        """The operation, on condition that the session is still this handle's if it was entered."""
        handle, held, wanted = self._handle, self._held, self._wanted
        if held is not None:
            wanted = wanted._replace(fence=held.fence, lost=held.lose)
        return partial(writes_.write, scope=handle._store.scope, session_id=handle.id, wanted=wanted)

    def finish(self, done: writes_.WriteDone) -> Any:
        """Take over the session as it is now, and return what was written."""
        handle, session = self._handle, done.stored.session
        new = handle._shown(done.stored, done.drafts, self._wanted.call.now_ms, held=self._held)
        if done.operation is not None:
            handle._store._made(done.operation)
        count, fresh = len(new) + len(done.there), iter(new)
        items = tuple(handle._as_item(*done.there[n]) if n in done.there else next(fresh) for n in range(count))
        return Written(items, session.revision, done.branch.name)


class ItemsWrite(SessionWrite):
    """A write of items alone, which returns them as a list."""

    def finish(self, done: writes_.WriteDone) -> Any:
        """Return the items as stored."""
        return list(super().finish(done).entries)


def _named(place: object) -> tuple[str, str]:
    if not isinstance(place, tuple) or len(place) != 2:
        raise Invalid(f"docs maps (namespace, key) to a value; {place!r:.60} is not such a pair")
    return documents.named(*place)
