"""The sink: puts records into a store, whoever else uses it, and lets nobody see a session before it is whole.

A session that is begun has the place of a purged one: nobody finds it, and ``verify`` demands of it only what is there.
Its last step is one transaction, in which the store computes what it computes for itself - head and totals, feed,
ranks, tags - and the session is shown. Before that every hash of it is computed again from what was stored. What is
there already is passed over, so the same records can be put again, and an interrupted stream goes on. Whatever was
changed on both sides is a ``Conflict``, kept for the end: everything else is put.

Records are written in batches. A batch is a fold over an immutable place in the stream, so a transaction that runs
again starts from the same place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ..errors import Conflict, Corrupt, Error, Invalid
from ..ops import blobs, branches, sessions
from ..ops.verify import content
from ..ops.verify.base import Read
from ..ops.verify.files import TreeChecks
from ..storage.base import Backend, Op, Tx
from ..tables.content import BlobRow
from ..tables.sessions import PURGED, SessionRow
from . import agents, as_of, documents, timelines
from .as_of import AGAIN
from .publish import Place, Showing, Taken, Update, mark_undone, parent_number, refused, require_free
from .stream import (
    AgentPoint,
    AgentRecord,
    Blob,
    BranchRecord,
    CheckpointRecord,
    Chunk,
    DocumentRecord,
    EntriesRecord,
    Live,
    OperationRecord,
    Record,
    SessionRecord,
    Version,
    WorkspaceRecord,
)
from .write import At, Putting, Tally, conflict, no_content, start_of

T = TypeVar("T")
R = TypeVar("R", bound="tuple[Any, ...]")

ROWS = 500
BYTES = 8 << 20
_WRONG = (Error, ValueError, OverflowError, RecursionError)


class Wrong(Exception):
    """A record cannot be put where it stands; ``where`` is what the caller named it by."""

    def __init__(self, where: object, error: Exception) -> None:
        super().__init__(str(error))
        self.where = where


class _Waiting(NamedTuple):
    """A record of a batch: what the caller named it by, and the session that was being put."""

    record: Record
    where: object
    session: tuple[str, str]


# What follows a session and belongs to it by its place.
_OF_SESSION = (SessionRecord, BranchRecord, EntriesRecord, CheckpointRecord, Live)


class Sink:
    """Puts records into a store. ``read`` looks into the store that they come from, to compare with it.

    ``fresh`` is for a store that is empty: a record that is there already is one that came twice, and is refused.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        now_ms: Callable[[], int],
        read: Read | None = None,
        fresh: bool = False,
        leave: bool = False,
        tell: Callable[[], None] | None = None,
    ) -> None:
        self._to = backend
        self._look: Read = backend.read
        self._read: Read = read or backend.read
        self._leave = leave
        self._tell = tell or (lambda: None)
        self._batch: list[_Waiting] = []
        self._size, self._scope, self._at = 0, "", At()
        self._chunks = 0  # of the content that is being put
        self._incoming = set[tuple[str, str]]()  # contents in the batch
        self._trees = TreeChecks()  # what was there when it was asked for; ``Putting`` judges again where it is linked
        self._session = ("", "")  # scope and id of the one that is being put
        self._skipped = set[tuple[str, str]]()  # those that were found to be in conflict while they were put
        self._undone = list[AgentRecord]()
        self._shown = False
        self._putting = Putting(fresh=fresh, now_ms=now_ms, states=self._states)
        self._showing = Showing(backend, self._putting, read=self._read, now_ms=now_ms, tell=lambda: self._tell())
        self.done, self.already, self.conflicts = self._showing.done, Counter[str](), self._showing.conflicts
        self.left_out: list[str] = []
        self._keys_left_out = Counter[str]()

    def _states(self, session: SessionRow) -> int:
        return self._showing.updates[session.scope, session.id].session.row.states

    # ------------------------------------------------------------------ what is there already

    def agent(self, agent: AgentRecord) -> int | None:
        """Return the version of an agent that is there, 0 for none; None if nothing of it is to be put."""
        self.flush()
        try:
            at = agents.reached(agent, self._look, self._read)
        except Conflict as error:
            self._refuse(error)
            return None
        if at is None:
            self.already.update(agents=1)
        return at

    def _refuse(self, error: Conflict) -> None:
        if self._leave:
            self.left_out.append(str(error).removesuffix(f". {AGAIN}"))
        else:
            self.conflicts.append(error)

    def has(self, scope: str, content_hash: str) -> bool:
        """Whether a content is there, or about to be."""
        if (scope, content_hash) in self._incoming:
            return True
        found = self._look(lambda tx: blobs.find(tx, scope, content_hash))
        if found is not None and not self._session[1]:  # later ones are asked for again, by entries that need them
            self.already.update(blobs=1, bytes=found.size)
        return found is not None

    def has_root(self, scope: str, content_hash: str) -> bool:
        """Whether a snapshot is there with all that it leads to."""
        return self._look(lambda tx: self._trees.root_fault(tx, scope, content_hash)) is None

    def session(self, session: SessionRecord, require: Callable[[], None]) -> dict[str, int] | None:
        """Return where the branches that are there end; None if nothing of the session is to be put."""
        try:
            try:
                return self._decide(session, require)
            except Conflict:
                if not self._batch:
                    raise
                self.flush()  # what it names may be among what waits to be written
                return self._decide(session, require)
        except Conflict as error:
            self.conflicts.append(error)
            return None

    def document(self, document: DocumentRecord) -> bool:
        """Whether a document is to be put."""
        there = self._look(lambda tx: documents.find(tx, document.row))
        try:
            wanted = documents.is_wanted(document.row, there, leave=self._leave)
        except Conflict as error:
            self._refuse(error)
            return False
        self.already.update(documents=int(not wanted))
        return wanted

    def workspace(self, workspace: WorkspaceRecord) -> int | None:
        """Return behind which scan the others are to be put; None if nothing of the workspace is to be."""
        self.flush()
        after, parted = timelines.reached(workspace, self._look, self._read)
        self.left_out += [parted] if parted else []
        return after

    def _decide(self, ours: SessionRecord, require: Callable[[], None]) -> dict[str, int] | None:
        theirs: SessionRecord | None = self._look(lambda tx: as_of.find(tx, ours.row.scope, ours.row.id))
        if theirs is None or theirs.staged:
            require()
        if theirs is None:
            self._look(lambda tx: self._require_room(tx, ours))
            self._note(ours, todo=True)
            return {}
        tips = {branch.row.uid: branch.tip for branch in theirs.branches}
        if theirs.staged:
            if not ours.purged and as_of.compare(ours, theirs, self._read, self._look).theirs:
                raise conflict(
                    f"session {ours.row.id} was begun to be copied from another store, which has more of it;"
                    f" finish that copy first. {AGAIN}",
                    ours.row.id,
                )
            self._note(ours, todo=True)
            self._count_there(theirs, sessions=0)
            return tips
        behind = self._is_behind(ours, theirs)
        self._count_there(theirs, sessions=int(not behind))
        if not behind:
            return None
        require()
        self._showing.updates[ours.row.scope, ours.row.id] = Update(ours, tips, [], [])
        self._note(ours, todo=True)
        return tips

    def _is_behind(self, ours: SessionRecord, theirs: SessionRecord) -> bool:
        """Whether a session that is whole in the destination lacks something."""
        row = ours.row
        if theirs.purged and row.hidden < PURGED:
            self.left_out.append(f"session {row.id}, which was purged in the destination")
        if ours.purged and not theirs.purged:
            self.left_out.append(f"the purge of session {row.id}, which stays in the destination")
        if theirs.purged or ours.purged:
            return False
        sides = as_of.compare(ours, theirs, self._read, self._look)
        if sides.ours or sides.theirs:
            return sides.ours
        if as_of.is_settled(ours, theirs):
            self._note(ours, todo=False, at=(theirs.row.rank, theirs.row.updated))
            return False
        return as_of.is_newer(ours, theirs, self._read, self._look)

    def _note(self, ours: SessionRecord, *, todo: bool, at: tuple[int, int] = (0, 0)) -> None:
        row = ours.row
        self._showing.places[row.scope, row.id] = Place(ours.order, row.scope, row.id, todo, ours.purged, at)

    def _count_there(self, theirs: SessionRecord, *, sessions: int) -> None:
        counts = {"operations": theirs.operations.total, "checkpoints": theirs.checkpoints.total}
        self.already.update(sessions=sessions, entries=theirs.entries, **counts)
        self._tell()

    def _require_room(self, tx: Tx, ours: SessionRecord) -> None:
        """Refuse with ``Conflict`` a new session that could never be shown in this destination."""
        for branch in ours.branches:
            if branches.find_by_uid(tx, ours.row.scope, branch.row.uid) is not None:
                raise conflict(
                    f"branch {branch.row.uid} of session {ours.row.id} belongs to another one in the destination."
                    f" {AGAIN}",
                    ours.row.id,
                )
            start_of(tx, ours.row, branch, {each.row.uid for each in ours.branches})
        parent = parent_number(tx, ours.row, ours.parent)
        try:
            require_free(tx, ours.row, parent)
        except Taken as taken:
            named = taken.holder.scope, taken.holder.id
            origin = self._read(lambda tx: sessions.find_any(tx, *named))
            if origin is None or origin.hidden == PURGED:  # else it may have given the name up since
                raise refused(ours.row, taken) from taken

    # ------------------------------------------------------------------ putting

    def put(self, record: Record, where: object = None) -> None:
        """Put a record; it is written with others, at the latest by ``close``."""
        if isinstance(record, AgentPoint):
            self._show()
        if isinstance(record, SessionRecord):
            self._begin(record)
        if self._is_kept_for_update(record):
            return
        if isinstance(record, _OF_SESSION) and self._session in self._skipped:
            return
        scope = scope_of(record)
        if scope != self._scope or self._size > BYTES or len(self._batch) >= ROWS:
            self.flush()
        self._scope = scope
        self._batch.append(_Waiting(record, where, self._session))
        self._size += _size_of(record)
        if isinstance(record, AgentRecord):
            self._undone.append(record)
        elif isinstance(record, Blob):
            self._incoming.add((scope, record.row.hash or ""))
            self._chunks = record.row.chunks
        elif isinstance(record, Chunk) and self._chunks > 1:
            self.flush()  # a large content is a transaction per chunk

    def _begin(self, session: SessionRecord) -> None:
        self._session = who = session.row.scope, session.row.id
        if who not in self._showing.places or session.purged:
            self._note(session, todo=True)

    def _is_kept_for_update(self, record: Record) -> bool:
        """Keep what a session that people see gets together with its row."""
        updates = self._showing.updates
        if isinstance(record, CheckpointRecord) and self._session in updates:
            updates[self._session].points.append(record)
        elif isinstance(record, OperationRecord) and (record.row.scope, record.session or "") in updates:
            updates[record.row.scope, record.session or ""].operations.append(record)
        else:
            return False
        return True

    def flush(self) -> None:
        """Write what is waiting; what is in conflict is kept for the end, with what belongs to it."""
        batch, self._batch, self._size = self._batch, [], 0
        try:
            self._write_all(batch)
        except Conflict:
            for each in batch:
                self._write_alone(each)
        self._incoming.clear()
        if self._at.blob is not None and self._at.following == self._at.blob.chunks:
            self._finish_blob(self._at.blob)
        self._tell()

    def _write_all(self, batch: list[_Waiting]) -> None:
        if batch:
            self._at, tally = self._write(self._scope, partial(self._put_all, batch))
            self.done.update(tally.counts)
            self.left_out += tally.left_out
            self._keys_left_out.update(tally.keys_left_out)

    def _write_alone(self, each: _Waiting) -> None:
        """Write a record of a batch that was refused; if it is in conflict, its whole session is left out."""
        of_session = isinstance(each.record, _OF_SESSION)
        if of_session and each.session in self._skipped:
            return
        try:
            self._write_all([each])
        except Conflict as error:
            self.conflicts.append(error)
            if of_session:
                self._skipped.add(each.session)
                self._showing.places.pop(each.session, None)
                self._showing.updates.pop(each.session, None)

    def _put_all(self, batch: list[_Waiting], tx: Tx) -> tuple[At, Tally]:
        at, tally = self._at, Tally()
        for record, where, _ in batch:
            try:
                at = self._putting.put(tx, at, record, tally)
            except _WRONG as error:
                if where is not None:
                    raise Wrong(where, error) from error
                raise
        return at, tally

    def _write(self, scope: str, op: Op[T], *, alone: bool = False) -> T:
        return self._to.scoped(scope).write(op, alone=alone)

    def _finish_blob(self, row: BlobRow) -> None:
        """Make a large upload the content: once what is stored gives its hash, so it is never other bytes."""
        self._at = self._at._replace(blob=None)
        try:
            same = content.digest_of(self._look, row.scope, row.blob_id, row.chunks) == (row.hash, row.size)
        except Corrupt:
            same = False
        finish: dict[str, Any] = {
            "content_hash": row.hash or "",
            "size": row.size,
            "chunks": row.chunks,
            "now_ms": row.created_ms,
        }
        if same:
            self._write(row.scope, lambda tx: blobs.finish(tx, row.scope, row.blob_id, **finish))
            self.done.update(blobs=1, bytes=row.size)
        else:
            self._write(row.scope, lambda tx: blobs.abandon(tx, row.scope, row.blob_id))
            raise no_content(row)

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Write what is waiting, and show every session that is not shown yet, in the order in which they changed."""
        self._show()
        self.flush()
        for whose, count in self._keys_left_out.items():
            said = "1 idempotency key" if count == 1 else f"{count} idempotency keys"
            self.left_out.append(f"{said} of {whose}: what they stand for is not there")

    def _show(self) -> None:
        if self._shown:
            return
        self.flush()
        self._shown = True
        for agent in self._undone:
            self._write(agent.row.scope, partial(_settle_agent, agent))
        self._showing.run()


def _settle_agent(agent: AgentRecord, tx: Tx) -> None:
    """Mark exactly those operations of an agent as undone that are, once it is whole."""
    twin = agents.find_twin(tx, agent)
    if twin is None or agents.is_staged(twin):
        raise Invalid(f"of agent {agent.row.id!r} a version is missing")
    mark_undone(tx, (twin.scope, 0, twin.aid), dict(agent.undone))


def scope_of(record: Record) -> str:
    """Return the scope that a record belongs to."""
    return record.rows[0].scope if isinstance(record, EntriesRecord) else str(record.row.scope)


def _size_of(record: Record) -> int:
    if isinstance(record, EntriesRecord):
        return max(record.size, BYTES // ROWS * len(record.rows))
    if isinstance(record, Version):
        return len(record.row.state or b"")
    if isinstance(record, DocumentRecord):
        return len(record.row.value or b"")
    return len(record.row.data) if isinstance(record, Chunk) else 0
