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
from collections.abc import Callable, Container, Iterator
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

from .. import codec
from ..errors import Conflict, Corrupt, Error, Invalid
from ..ids import MAX_SEQ, is_id
from ..model.status import STATUSES
from ..ops import (
    agent_checkpoints,
    agent_totals,
    blobs,
    branches,
    chain,
    feed,
    once,
    operations,
    purge,
    sessions,
    sweep,
    work,
)
from ..ops.log import key_of, point_on
from ..ops.verify import content, log, places, tables, whole
from ..ops.verify.base import UNREADABLE, Read
from ..storage.base import Backend, Op, Tx
from ..tables.agents import AGENT, AGENT_CHECKPOINT, PIN, AgentCheckpointRow, PinRow
from ..tables.branches import BRANCH, BranchRow
from ..tables.content import BLOB, CHUNK, BlobRow
from ..tables.entries import ENTRY, LINK, LOST
from ..tables.history import CHECKPOINT, ONCE, OPERATION
from ..tables.live import DELTA, INBOX, STREAM
from ..tables.sessions import PURGED, SESSION, STAGED_KEY, SessionRow
from ..tables.table import Table
from . import agents, moments, stash
from .moments import AGAIN, COPY
from .stash import Final
from .stream import (
    Agent,
    AgentPoint,
    Blob,
    Branch,
    Chunk,
    Key,
    Live,
    Operation,
    Page,
    Pin,
    Point,
    Record,
    Session,
    Version,
)

T = TypeVar("T")
R = TypeVar("R", bound="tuple[Any, ...]")

ROWS = 500
BYTES = 8 << 20
KINDS = "SELECT kind FROM operation WHERE scope = ? AND session = ? AND agent = 0 ORDER BY oid"
POINTS = "SELECT branch, seq FROM checkpoint WHERE scope = ? AND session = ? ORDER BY cid"
UPLOADS = "WHERE scope = ? AND hash IS NULL AND size = ? AND chunks = ? AND created_ms = ? AND chunks > 0"
STORED = "SELECT count(*), coalesce(max(n), -1) FROM chunk WHERE scope = ? AND blob_id = ?"
LAST_SENT = "SELECT coalesce(max(n), 0) FROM inbox WHERE scope = ? AND session = ?"
NEWEST_POINT = "WHERE scope = ? AND agent = ? ORDER BY acid DESC LIMIT 1"
# What a key can stand for: a record that is looked for by its id. A version of an agent's state has no record of its
# own that an id would name.
MADE: dict[str, Table[Any]] = {"session": SESSION, "operation": OPERATION, "checkpoint": CHECKPOINT, "agent": AGENT}
STATE, SENT = "state", "message"

# What a half-copied session does not say yet.
_UNSAID: dict[str, Any] = sessions.EMPTY | dict.fromkeys(("name", "label", "title", "calls"))
_UNSAID |= {"workspace": "", "tags": "", "hidden": PURGED}
_UNSAID |= dict.fromkeys(("parent", "archived", "pinned", "attached", "branches", "updated", "rank"), 0)
_LOST_CHANGE = "operation"  # the change that tells of an operation whose kind is lost
_WRONG = (Error, ValueError, OverflowError, RecursionError)


class Wrong(Exception):
    """A record cannot be put where it stands; ``where`` is what the caller named it by."""

    def __init__(self, where: object, error: Exception) -> None:
        super().__init__(str(error))
        self.where = where


class Taken(Exception):
    """A visible session of the destination has the key, name or label that a session is to have."""

    def __init__(self, holder: SessionRow, what: str) -> None:
        super().__init__(what)
        self.holder = holder
        self.what = what


class At(NamedTuple):
    """The place in the stream: the agent whose versions follow, the content whose chunks follow, the session."""

    agent: Agent | None = None
    blob: BlobRow | None = None  # as it is to be, with the number that it has here; None: it is there already
    stored: int = 0  # chunks of it
    following: int = 0  # the chunk that follows
    sid: int = 0


class Update(NamedTuple):
    """A session that people see and that has gone on: what is put with its row, in one transaction."""

    session: Session
    tips: dict[str, int]
    points: list[Point]
    operations: list[Operation]


class Place(NamedTuple):
    """A session in the order of the stream: whether it is to be shown, and where it is listed here if it is not."""

    order: int
    scope: str
    id: str
    todo: bool
    purged: bool
    at: tuple[int, int]


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
        leave_agents: bool = False,
        tell: Callable[[], None] | None = None,
    ) -> None:
        self._to = backend
        self._look: Read = backend.read
        self._read: Read = read or backend.read
        self._now_ms = now_ms
        self._fresh = fresh
        self._leave_agents = leave_agents
        self._tell = tell or (lambda: None)
        self._batch: list[tuple[Record, object]] = []
        self._size, self._scope, self._at = 0, "", At()
        self._chunks = 0  # of the content that is being put
        self._incoming = set[tuple[str, str]]()  # contents in the batch
        self._places: dict[tuple[str, str], Place] = {}
        self._updates: dict[tuple[str, str], Update] = {}
        self._undone = list[Agent]()
        self._last_point: dict[tuple[str, str], str] = {}
        self._shown = False
        self.done, self.already = Counter[str](), Counter[str]()
        self.conflicts: list[Conflict] = []
        self.left_out: list[str] = []
        self._keys_left_out = Counter[str]()

    # ------------------------------------------------------------------ what is there already

    def agent(self, agent: Agent) -> int | None:
        """Return the version of an agent that is there, 0 for none; None if nothing of it is to be put."""
        self.flush()
        try:
            at: int | None = self._look(lambda tx: agents.reached(tx, agent, self._read))
        except Conflict as error:
            self._refuse_agent(error)
            return None
        if at is None:
            self.already.update(agents=1)
        return at

    def _refuse_agent(self, error: Conflict) -> None:
        if self._leave_agents:
            self.left_out.append(str(error).removesuffix(f". {AGAIN}"))
        else:
            self.conflicts.append(error)

    def has(self, scope: str, content_hash: str) -> bool:
        """Whether a content is there, or about to be."""
        if (scope, content_hash) in self._incoming:
            return True
        found = self._look(lambda tx: blobs.find(tx, scope, content_hash))
        if found is not None and not self._shown:
            self.already.update(blobs=1, bytes=found.size)
        return found is not None

    def session(self, session: Session, require: Callable[[], None]) -> dict[str, int] | None:
        """Return where the branches that are there end; None if nothing of the session is to be put."""
        self.flush()
        try:
            theirs = self._look(lambda tx: moments.find(tx, session.row.scope, session.row.id))
            if theirs is None or theirs.staged:
                require()
            return self._decide(session, theirs, require)
        except Conflict as error:
            self.conflicts.append(error)
            return None

    def _decide(self, ours: Session, theirs: Session | None, require: Callable[[], None]) -> dict[str, int] | None:
        if theirs is None:
            self._look(lambda tx: self._require_room(tx, ours))
            self._note(ours, todo=True)
            return {}
        tips = {branch.row.uid: branch.tip for branch in theirs.branches}
        if theirs.staged:
            if not ours.purged and moments.compare(ours, theirs, self._read, self._look).theirs:
                raise _conflict(
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
        self._updates[ours.row.scope, ours.row.id] = Update(ours, tips, [], [])
        self._note(ours, todo=True)
        return tips

    def _is_behind(self, ours: Session, theirs: Session) -> bool:
        """Whether a session that is whole in the destination lacks something."""
        row = ours.row
        if theirs.purged and row.hidden < PURGED:
            self.left_out.append(f"session {row.id}, which was purged in the destination")
        if ours.purged and not theirs.purged:
            self.left_out.append(f"the purge of session {row.id}, which stays in the destination")
        if theirs.purged or ours.purged:
            return False
        sides = moments.compare(ours, theirs, self._read, self._look)
        if sides.ours or sides.theirs:
            return sides.ours
        if moments.is_settled(ours, theirs):
            self._note(ours, todo=False, at=(theirs.row.rank, theirs.row.updated))
            return False
        return moments.is_newer(ours, theirs, self._read, self._look)

    def _note(self, ours: Session, *, todo: bool, at: tuple[int, int] = (0, 0)) -> None:
        row = ours.row
        self._places[row.scope, row.id] = Place(ours.order, row.scope, row.id, todo, ours.purged, at)

    def _count_there(self, theirs: Session, *, sessions: int) -> None:
        counts = {"operations": theirs.operations.total, "checkpoints": theirs.checkpoints.total}
        self.already.update(sessions=sessions, entries=theirs.entries, **counts)
        self._tell()

    def _require_room(self, tx: Tx, ours: Session) -> None:
        """Refuse with ``Conflict`` a new session that could never be shown in this destination."""
        for branch in ours.branches:
            if branches.find_by_uid(tx, ours.row.scope, branch.row.uid) is not None:
                raise _conflict(
                    f"branch {branch.row.uid} of session {ours.row.id} belongs to another one in the destination."
                    f" {AGAIN}",
                    ours.row.id,
                )
            _start_of(tx, ours.row, branch, {each.row.uid for each in ours.branches})
        parent = _parent_number(tx, ours.row, ours.parent)
        try:
            _require_free(tx, ours.row, parent)
        except Taken as taken:
            named = taken.holder.scope, taken.holder.id
            origin = self._read(lambda tx: sessions.find_any(tx, *named))
            if origin is None or origin.hidden == PURGED:  # else it may have given the name up since
                raise _refused(ours.row, taken) from taken

    # ------------------------------------------------------------------ putting

    def put(self, record: Record, where: object = None) -> None:
        """Put a record; it is written with others, at the latest by ``close``."""
        update = self._update_of(record)
        if update is not None:
            (update.points if isinstance(record, Point) else update.operations).append(record)  # type: ignore[arg-type]
            return
        if isinstance(record, AgentPoint):
            self.show()
        scope = scope_of(record)
        if scope != self._scope or self._size > BYTES or len(self._batch) >= ROWS:
            self.flush()
        self._scope = scope
        self._batch.append((record, where))
        self._size += _size_of(record)
        if isinstance(record, Blob):
            self._incoming.add((scope, record.row.hash or ""))
            self._chunks = record.row.chunks
        if isinstance(record, Chunk) and self._chunks > 1:
            self.flush()  # a large content is a transaction per chunk
        if isinstance(record, Session) and (scope, record.row.id) not in self._places:
            self._note(record, todo=True)
        if isinstance(record, Session) and record.purged:
            self._note(record, todo=True)
        if isinstance(record, Page) and len(record.rows) > 1:
            self._size += BYTES // ROWS * len(record.rows)
        if isinstance(record, Agent):
            self._undone.append(record)

    def _update_of(self, record: Record) -> Update | None:
        if isinstance(record, Point):
            return next((each for each in self._updates.values() if _is_at(each, record)), None)
        if isinstance(record, Operation):
            return self._updates.get((record.row.scope, record.session or ""))
        return None

    def flush(self) -> None:
        """Write what is waiting."""
        batch, self._batch, self._size = self._batch, [], 0
        if not batch:
            return

        def op(tx: Tx) -> tuple[At, Counter[str]]:
            at, counts = self._at, Counter[str]()
            for record, where in batch:
                try:
                    at = _PUTS[type(record)](self, tx, at, record, counts)
                except _WRONG as error:
                    if where is None:
                        raise
                    raise Wrong(where, error) from error
            return at, counts

        self._at, counts = self._write(self._scope, op)
        self._incoming.clear()
        self.done.update(counts)
        if self._at.blob is not None and self._at.following == self._at.blob.chunks:
            self._finish_blob(self._at.blob)
        self._tell()

    def _write(self, scope: str, op: Op[T], *, alone: bool = False) -> T:
        return self._to.scoped(scope).write(op, alone=alone)

    def _require_new(self, there: object, what: str) -> bool:
        """Return whether a record is to be written; one that came twice into an empty store is refused."""
        if there and self._fresh:
            raise Invalid(f"{what} is there twice")
        return not there

    # ------------------------------------------------------------------ agents

    def _put_agent(self, tx: Tx, at: At, agent: Agent, counts: Counter[str]) -> At:
        if self._fresh and at.sid:
            raise Invalid("an agent stands behind a session; agents come first")
        there = agents.find_twin(tx, agent)
        if self._require_new(there is not None, f"agent {agent.row.id!r}"):
            agents.begin(tx, agent)
        return At(agent=agent)

    def _put_version(self, tx: Tx, at: At, version: Version, counts: Counter[str]) -> At:
        agent = at.agent
        twin = None if agent is None else agents.find_twin(tx, agent)
        if agent is None or twin is None or version.row.version > twin.version + 1:
            raise Invalid(f"version {version.row.version} of an agent does not follow the one before it")
        if self._require_new(version.row.version <= twin.version, f"version {version.row.version} of {agent.row.id!r}"):
            agents.put_version(tx, twin, version.row)
            counts.update(agents=agents.finish(tx, agent))
        return at

    # ------------------------------------------------------------------ content

    def _put_blob(self, tx: Tx, at: At, blob: Blob, counts: Counter[str]) -> At:
        row = blob.row
        if at.blob is not None and self._fresh and at.following < at.blob.chunks:
            raise Invalid(f"of content {(at.blob.hash or '')[:12]} a chunk is missing")
        if row.hash is None or not self._require_new(blobs.exists(tx, row.scope, row.hash), f"content {row.hash[:12]}"):
            return at._replace(blob=None)
        if row.chunks <= 1:
            if not row.chunks:
                self._put_small(tx, row, None, counts)
            return at._replace(blob=row if row.chunks else None, stored=0, following=0)
        begun = BLOB.one(tx, UPLOADS, (row.scope, row.size, row.chunks, row.created_ms))
        if begun is None:
            begun = BLOB.put(tx, row._replace(blob_id=tx.next("blob"), hash=None, place=""))
        count, last = tx.one(STORED, (row.scope, begun.blob_id)) or (0, -1)
        return at._replace(blob=begun._replace(hash=row.hash), stored=count if count == last + 1 else 0, following=0)

    def _put_chunk(self, tx: Tx, at: At, chunk: Chunk, counts: Counter[str]) -> At:
        if at.blob is None:
            return at
        if chunk.row.n != at.following or chunk.row.n >= at.blob.chunks:
            raise Invalid(
                f"chunk {chunk.row.n} of content {(at.blob.hash or '')[:12]} does not follow the one before it"
            )
        if at.blob.chunks == 1:
            self._put_small(tx, at.blob, chunk.row, counts)
            return at._replace(blob=None)
        if at.following >= at.stored:
            CHUNK.put(tx, chunk.row._replace(blob_id=at.blob.blob_id))
        return at._replace(following=at.following + 1)

    def _put_small(self, tx: Tx, row: BlobRow, chunk: Any, counts: Counter[str]) -> None:
        data = b"" if chunk is None else blobs.unpack(chunk)
        if (sha256(data).hexdigest(), len(data)) != (row.hash, row.size):
            raise _no_content(row)
        made = BLOB.put(tx, row._replace(blob_id=tx.next("blob"), place=""))
        if chunk is not None:
            CHUNK.put(tx, chunk._replace(blob_id=made.blob_id))
        counts.update(blobs=1, bytes=row.size)

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
            raise _no_content(row)

    # ------------------------------------------------------------------ sessions and their branches

    def _put_session(self, tx: Tx, at: At, session: Session, counts: Counter[str]) -> At:
        row = session.row
        there = sessions.find_any(tx, row.scope, row.id)
        if there is not None and not self._fresh:
            if there.staged:
                sessions.put_detail(tx, there, stash.encode(session))
            return At(sid=there.sid)
        self._require_new(there is not None, f"session {row.id}")
        if self._fresh:
            _require_plausible(tx, session)
        staged = row._replace(**{**_UNSAID, "states": row.states}, key=f"{STAGED_KEY}{row.id}")
        made = sessions.insert(tx, staged._replace(sid=tx.next("session")))
        sessions.put_detail(tx, made, stash.encode(session))
        first = self._insert_branch(tx, made, session.branches[0], purged=session.purged)
        asked: dict[str, Any] = {"branch": first.bid, "first": 0, "last": 0, "now_ms": self._now_ms()}
        position, rank = feed.record(tx, made, "session", **asked)
        head = {"branch": first.bid, "uid": first.uid, "fork": first.fork_seq}
        sessions.write(tx, made, **head, branches=1, updated=position, rank=rank)
        return At(sid=made.sid)

    def _put_branch(self, tx: Tx, at: At, branch: Branch, counts: Counter[str]) -> At:
        row = branch.row
        session = sessions.by_number(tx, row.scope, at.sid)
        there = branches.find_by_uid(tx, row.scope, row.uid)
        is_first = there is not None and there.session == at.sid and there.bid == session.branch
        if not is_first and self._require_new(there is not None, f"branch {row.uid}"):
            purged = session.staged and stash.decode(tx, session).row.hidden == PURGED
            self._insert_branch(tx, session, branch, purged=purged)
            sessions.write(tx, session, branches=session.branches + 1)
        return at

    def _insert_branch(self, tx: Tx, session: SessionRow, branch: Branch, *, purged: bool) -> BranchRow:
        theirs = branch.row
        parent, fork = _start_of(tx, session, branch, ())
        if self._fresh and branches.find_by_name(tx, session.scope, session.sid, theirs.name) is not None:
            raise Invalid(f"session {session.id} has two branches called {theirs.name!r}")
        depth, jump, jump_seq = places.shortcut(tx, parent, theirs.fork_seq)
        made = theirs._replace(
            bid=tx.next("branch"),
            session=session.sid,
            name=theirs.uid if purged else theirs.name,
            parent=parent.bid if parent else None,
            depth=depth,
            jump=jump,
            jump_seq=jump_seq,
            tip_seq=theirs.fork_seq,
            tip_hash=fork,
        )
        return BRANCH.put(tx, made)

    def _put_page(self, tx: Tx, at: At, page: Page, counts: Counter[str]) -> At:
        """Write entries behind the end of their branch; those that are there already are passed over."""
        scope = page.rows[0].scope
        branch = branches.find_by_uid(tx, scope, page.branch)
        if branch is None or branch.session != at.sid:
            raise Invalid(f"the entries of branch {page.branch} do not stand behind it")
        session = sessions.by_number(tx, scope, branch.session)
        attached = bool(session.attached) and session.branch == branch.bid
        end, end_hash = (session.seq, session.hash) if attached else (branch.tip_seq, branch.tip_hash)
        if self._fresh:
            page = page._replace(previous=end_hash)
        if (end, end_hash) != (page.low, page.previous):
            raise _moved(page)
        self._require_blobs(tx, page)
        first = key_of(branch.bid, 0)
        _insert(tx, page, first)
        if not attached:
            branches.set_tip(tx, branch, page.high, page.rows[-1].chain.hash)
        if session.hidden < PURGED:
            self._show_page(tx, session, branch, page, attached)
        counts.update(entries=len(page.rows), bytes=page.size)
        return at

    def _require_blobs(self, tx: Tx, page: Page) -> None:
        gone = {row.key for row in page.lost if row.what == tables.ATTACHMENT}
        for each in sorted({row.hash for row in page.links if row.key not in gone}):
            if not blobs.exists(tx, page.rows[0].scope, each):
                raise Corrupt(f"content {each[:12]} is linked but missing", what=f"blob {each}")

    def _show_page(self, tx: Tx, session: SessionRow, branch: BranchRow, page: Page, attached: bool) -> None:
        """Let a session that people see show the new entries, as after an append."""
        asked: dict[str, Any] = {"branch": branch.bid, "first": page.low + 1, "last": page.high}
        position, rank = feed.record(tx, session, "entries", **asked, now_ms=self._now_ms())
        update = self._updates[session.scope, session.id]
        if session.states < update.session.row.states:
            session = sessions.write(tx, session, states=update.session.row.states)
        if not attached:
            operations.touch(tx, session, position, rank, session.updated_ms, moved=False)
            return
        last = page.rows[-1].chain
        place = {"seq": page.high, "hash": last.hash, **last.numbers._asdict(), "calls": None}
        operations.counted(tx, sessions.write(tx, session, updated=position, rank=rank, **place))

    # ------------------------------------------------------------------ beside the log

    def _put_point(self, tx: Tx, at: At, point: Point, counts: Counter[str]) -> At:
        counts.update(checkpoints=bool(self._insert_point(tx, at.sid, point)))
        return at

    def _insert_point(self, tx: Tx, sid: int, point: Point) -> int:
        """Write a checkpoint unless it is there; return the branch that it names, 0 if it was there."""
        row = point.row
        branch, there = branches.find_by_uid(tx, row.scope, point.branch), by_id(tx, CHECKPOINT, row.scope, row.id)
        if branch is None or (there is not None and there.session != sid):
            raise _conflict(f"checkpoint {row.id} is on something else in the destination", row.id)
        if not self._require_new(there is not None, f"checkpoint {row.id}"):
            return 0
        CHECKPOINT.put(tx, row._replace(cid=tx.next("checkpoint"), session=sid, branch=branch.bid))
        return branch.bid

    def _put_operation(self, tx: Tx, at: At, operation: Operation, counts: Counter[str]) -> At:
        row = operation.row
        sid, aid = 0, 0
        if operation.session is not None:
            session = sessions.find_any(tx, row.scope, operation.session)
            if session is None:
                raise Invalid(f"operation {row.id} is on a session that did not come before it")
            sid = session.sid
        elif operation.agent is not None:
            aid = agents.number(tx, row.scope, operation.agent)
        if self._insert_operation(tx, operation, sid, aid):
            counts.update(operations=1)
        return at._replace(agent=None, blob=None)

    def _insert_operation(self, tx: Tx, operation: Operation, sid: int, aid: int) -> str:
        """Write an operation behind those that are there; return the kind of its change, '' if it was there."""
        row = operation.row
        there = by_id(tx, OPERATION, row.scope, row.id)
        if there is not None and (there.session, there.agent) != (sid, aid):
            raise _conflict(f"operation {row.id} is on something else in the destination", row.id)
        if not self._require_new(there is not None, f"operation {row.id}"):
            return ""
        target = None if operation.undoes is None else by_id(tx, OPERATION, row.scope, operation.undoes)
        if (row.undoes is not None or operation.undoes is not None) and target is None:
            raise Corrupt(f"operation {row.id} takes back one that is missing", what=f"operation {row.id}")
        oid = tx.next("operation")
        made = row._replace(oid=oid, session=sid, agent=aid, undoes=target.oid if target else None)
        # One that a repair knew nothing of is undone by itself, so that nobody undoes it.
        OPERATION.put(tx, made._replace(undone_by=oid if row.kind == tables.LOST_KIND else None))
        return _change_of(row.kind)

    def _put_key(self, tx: Tx, at: At, key: Key, counts: Counter[str]) -> At:
        """Remember an idempotency key unless it is known or stands for what is not here."""
        row, sid = key.row, 0
        if key.session is not None:
            owner = sessions.find_any(tx, row.scope, key.session)
            sid = owner.sid if owner else 0
        made = row._replace(session=sid)
        if row.kind == once.ENTRIES:
            branch = None if key.branch is None else branches.find_by_uid(tx, row.scope, key.branch)
            here = branch is not None and ENTRY.get(tx, row.scope, key_of(branch.bid, row.last_seq)) is not None
            made = made._replace(branch=branch.bid if branch else 0)
        elif row.kind == SENT:
            here = INBOX.one(tx, "WHERE scope = ? AND session = ? AND id = ?", (row.scope, sid, row.id)) is not None
        else:
            table = MADE.get(row.kind)
            here = row.kind == STATE if table is None else by_id(tx, table, row.scope, row.id) is not None
        if not here or (key.session is not None and not sid):
            self._leave_key(key)
        elif ONCE.get(tx, made.scope, made.session, made.ikey, made.branch, made.seq) is None:
            once.keep(tx, made)
        return at

    def _leave_key(self, key: Key) -> None:
        if self._fresh:
            raise Invalid(f"key {key.row.ikey!r} stands for something that did not come before it")
        self._keys_left_out[f"session {key.session}" if key.session else f"the store, scope {key.row.scope!r}"] += 1

    def _put_live(self, tx: Tx, at: At, record: Live, counts: Counter[str]) -> At:
        row = record.row
        branch = None if record.branch is None else branches.find_by_uid(tx, row.scope, record.branch)
        if record.table is STREAM:
            row = row._replace(branch=branch.bid if branch else 0)
        elif record.table is INBOX and row.key:
            row = row._replace(key=key_of(branch.bid, row.key & MAX_SEQ) if branch else 0)
        record.table.put(tx, row if record.table is DELTA else row._replace(session=at.sid))
        return at

    def _put_agent_point(self, tx: Tx, at: At, point: AgentPoint, counts: Counter[str]) -> At:
        """Write a checkpoint of an agent behind the one that came before it; its checks are those of this store."""
        row, name = point.row, (point.row.scope, point.agent)
        aid = agents.number(tx, *name)
        before = AGENT_CHECKPOINT.one(tx, NEWEST_POINT, (row.scope, aid))
        last, self._last_point[name] = self._last_point.get(name, ""), row.id
        if by_id(tx, AGENT_CHECKPOINT, row.scope, row.id) is not None:
            return at
        said = f"checkpoint {row.name!r} of agent {point.agent.split('.', 2)[2]!r}"
        if (before.id if before else "") != last:
            self.left_out.append(f"{said}: the destination has others of that agent")
            return at
        absent = [each.session for each in point.pins if sessions.find(tx, row.scope, each.session) is None]
        if absent:
            self.left_out.append(f"{said}: session {absent[0]} is not in the destination")
            return at
        acid = tx.next("agent_checkpoint")
        pins = [_pinned(tx, each, acid) for each in point.pins]
        made = _agent_point(tx, row._replace(acid=acid, agent=aid, position=0, rank=0), before, pins)
        AGENT_CHECKPOINT.put(tx, made)
        PIN.put_many(tx, pins)
        feed.record_agent(tx, row.scope, aid, agent_checkpoints.FEED_KIND)
        return at

    # ------------------------------------------------------------------ showing

    def close(self) -> None:
        """Write what is waiting, and show every session that is not shown yet, in the order in which they changed."""
        self.show()
        self.flush()
        for whose, count in self._keys_left_out.items():
            said = "1 idempotency key" if count == 1 else f"{count} idempotency keys"
            self.left_out.append(f"{said} of {whose}: what they stand for is not there")

    def show(self) -> None:
        """Show the sessions that are whole by now; those that were shown before them stay before them."""
        if self._shown:
            return
        self.flush()
        self._shown = True
        for agent in self._undone:
            if not self._write(agent.row.scope, lambda tx: agents.mark_undone(tx, agent)):  # noqa: B023
                raise Invalid(f"of agent {agent.row.id!r} a version is missing")
        listed = sorted(self._places.values(), key=lambda each: (each.scope, each.order))
        self._finish_all([each for each in listed if not each.purged])
        purged = [each for each in listed if each.purged]
        for place in sorted(purged, key=self._number, reverse=True):  # forks first: they have higher numbers
            self._attempt(lambda: self._erase(place))  # noqa: B023

    def _number(self, place: Place) -> int:
        found = self._look(lambda tx: sessions.find_any(tx, place.scope, place.id))
        return found.sid if found else 0

    def _attempt(self, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except Conflict as error:
            self.conflicts.append(error)
            return None

    def _finish_all(self, listed: list[Place]) -> None:
        last: dict[str, tuple[int, int]] = {}
        finished: dict[tuple[str, str], tuple[int, int]] = {}
        for place in listed:
            who = (place.scope, place.id)
            if place.todo and who not in finished:
                self._attempt(lambda: self._finish_one(place, finished, ()))  # noqa: B023
            at = finished.get(who, place.at)
            if (who in finished or not place.todo) and at < last.get(place.scope, (0, 0)):
                at = self._write(place.scope, lambda tx: self._rise(tx, place))  # noqa: B023
            last[place.scope] = max(at, last.get(place.scope, (0, 0)))

    def _rise(self, tx: Tx, place: Place) -> tuple[int, int]:
        """Let a session be the one that changed last."""
        session = sessions.find_any(tx, place.scope, place.id)
        if session is None:
            return (0, 0)
        kind = COPY if moments.is_copy(tx, session) else "session"
        asked: dict[str, Any] = {"branch": session.branch, "first": 0, "last": 0, "now_ms": self._now_ms()}
        position, rank = feed.record(tx, session, kind, **asked)
        operations.touch(tx, session, position, rank, session.updated_ms, moved=False)
        return rank, position

    def _finish_one(
        self, place: Place, finished: dict[tuple[str, str], tuple[int, int]], under: tuple[Place, ...]
    ) -> None:
        """Prove and show a session; one that has given up the name that this one needs is shown first."""
        update = self._updates.get((place.scope, place.id))
        self._prove(place, update)
        while True:
            try:
                counts, at = self._write(place.scope, lambda tx: self._finish(tx, place, update), alone=True)
                break
            except Taken as taken:
                holder = self._places.get((taken.holder.scope, taken.holder.id))
                known = None if holder is None else (holder.scope, holder.id)
                if holder is None or not holder.todo or holder in under or known in finished:
                    raise _refused(self._final(place, update).row, taken) from taken
                self._finish_one(holder, finished, (*under, place))
        finished[place.scope, place.id] = at
        self.done.update(counts)
        self._tell()

    def _final(self, place: Place, update: Update | None) -> Final:
        if update is not None:
            return stash.of(update.session)
        final: Final = self._look(lambda tx: stash.decode(tx, sessions.find_any(tx, place.scope, place.id)))
        return final

    def _prove(self, place: Place, update: Update | None) -> None:
        """Compute each hash again from what is stored; it must lead to the hash that the stream named."""
        for uid, low, tip, wanted in self._final(place, update).tips:
            at, last = max(low, update.tips.get(uid, low) if update else low), None
            while at < tip:
                at, last = self._look(lambda tx: _proved(tx, place.scope, uid, at, tip))  # noqa: B023
            if last is not None and last != wanted:
                raise _differs(uid, tip)
            self._tell()

    def _finish(self, tx: Tx, place: Place, update: Update | None) -> tuple[Counter[str], tuple[int, int]]:
        """Write everything that only a whole session has, and its row; a name that is taken raises ``Taken``."""
        session = sessions.find_any(tx, place.scope, place.id)
        if session is None or (session.hidden == PURGED and not session.staged):
            raise _conflict(f"session {place.id} is gone from the destination; call again", place.id)
        final = stash.decode(tx, session) if update is None else stash.of(update.session)
        if update is not None:
            theirs = moments.of(tx, session)
            if moments.compare(update.session, theirs, self._read, lambda op: op(tx)).theirs:
                raise _conflict(
                    f"session {place.id} was changed in the destination while it was copied. {AGAIN}", place.id
                )
        parent = _parent_number(tx, final.row, final.parent)
        _require_free(tx, final.row, parent)
        changes, counts = _Changes(tx, session, self._now_ms()), Counter(sessions=1)
        for uid, hidden in final.hidden:
            if (branch := branches.find_by_uid(tx, session.scope, uid)) is not None:
                branches.set_hidden(tx, branch, hidden)
        _settle_tip(tx, session)
        if update is None:
            changes.tell_all()
        else:
            self._put_update(tx, session, update, changes, counts)
        mark_undone(tx, (session.scope, session.sid, 0), dict(final.undone))
        changes.tell(COPY)
        done = _write_row(tx, final, parent, changes.session)
        return counts, (done.rank, done.updated)

    def _put_update(self, tx: Tx, session: SessionRow, update: Update, changes: _Changes, counts: Counter[str]) -> None:
        for operation in update.operations:
            if kind := self._insert_operation(tx, operation, session.sid, 0):
                changes.tell(kind)
                counts.update(operations=1)
        for point in update.points:
            if branch := self._insert_point(tx, session.sid, point):
                changes.tell("checkpoint", branch, point.row.seq, point.row.seq)
                counts.update(checkpoints=1)

    # ------------------------------------------------------------------ purged in the store that is copied

    def _erase(self, place: Place) -> None:
        """Let a session that is begun be as purged as it is in the store it comes from."""
        self._prove(place, None) if place.todo else None
        done = self._write(place.scope, lambda tx: self._blank(tx, place), alone=True)
        self.done.update(sessions=done)

    def _blank(self, tx: Tx, place: Place) -> int:
        """Erase what was put before the purge; what forks read stays."""
        session = sessions.find_any(tx, place.scope, place.id)
        if session is None or not session.staged:
            return 0
        final, hashes, roots = stash.decode(tx, session), set[str](), set[str]()
        kept = {uid: tip for uid, _, tip, _ in final.tips}
        for branch in reversed(branches.of_session(tx, session.scope, session.sid, session.branches)):
            read_by = [fork.fork_seq for fork in branches.forks(tx, branch.scope, branch.bid)]
            need = max(branch.fork_seq, kept.get(branch.uid, 0 if final.tips else branch.tip_seq), *read_by)
            behind = (branch.scope, key_of(branch.bid, need), key_of(branch.bid, MAX_SEQ))
            hashes |= {each for (each,) in tx.all(purge.LINKS, behind)}
            roots |= {each for (each,) in tx.all(purge.ROOTS, behind)}
            if branch.tip_seq > need or branch.name != branch.uid:
                purge._drop(tx, branch, need)
        _Changes(tx, session, self._now_ms()).tell_operations()  # numbers that are left out are counted by them
        purge._blank(tx, session, self._now_ms())
        # What a purge leaves a session: its parent, its revision and its times.
        mine, purged = final.row, sessions.by_number(tx, session.scope, session.sid)
        times = {"updated_ms": mine.updated_ms, "message_ms": mine.message_ms, "states": mine.states}
        parent = _parent_number(tx, mine, final.parent)
        sessions.write(tx, purged, parent=parent, revision=mine.revision, **times)
        sweep.drop(tx, session.scope, hashes, roots)
        return 1


class _Changes:
    """The changes of a session that the feed is told of in this transaction."""

    def __init__(self, tx: Tx, session: SessionRow, now_ms: int) -> None:
        self._tx = tx
        self._now_ms = now_ms
        self.session = session

    def tell(self, kind: str, branch: int = 0, first: int = 0, last: int = 0) -> None:
        """Tell of a change of the session, of its head's branch if no other is named."""
        asked: dict[str, Any] = {"branch": branch or self.session.branch, "first": first, "last": last}
        position, rank = feed.record(self._tx, self.session, kind, **asked, now_ms=self._now_ms)
        self.session = self.session._replace(updated=position, rank=rank)

    def tell_all(self) -> None:
        """Tell of a session that nobody saw before, and of all that belongs to it."""
        asked = (self.session.scope, self.session.sid)
        self.tell("session")
        for branch in branches.of_session(self._tx, *asked, self.session.branches):
            if branch.tip_seq > branch.fork_seq:
                self.tell("entries", branch.bid, branch.fork_seq + 1, branch.tip_seq)
        self.tell_operations()
        for number, seq in self._tx.all(POINTS, asked):
            self.tell("checkpoint", number, seq, seq)

    def tell_operations(self) -> None:
        """Tell of each operation on the session."""
        for (kind,) in self._tx.all(KINDS, (self.session.scope, self.session.sid)):
            self.tell(_change_of(kind))


_PUTS: dict[type, Callable[..., At]] = {
    Agent: Sink._put_agent,
    Version: Sink._put_version,
    Blob: Sink._put_blob,
    Chunk: Sink._put_chunk,
    Session: Sink._put_session,
    Branch: Sink._put_branch,
    Page: Sink._put_page,
    Point: Sink._put_point,
    Key: Sink._put_key,
    Live: Sink._put_live,
    Operation: Sink._put_operation,
    AgentPoint: Sink._put_agent_point,
}


# ---------------------------------------------------------------------- functions of a transaction


def by_id(tx: Tx, table: Table[R], scope: str, name: str) -> R | None:
    """Return the row of a table with that id, or None."""
    return table.one(tx, "WHERE scope = ? AND id = ?", (scope, name))


def mark_undone(tx: Tx, subject: tuple[str, int, int], wanted: dict[str, str]) -> None:
    """Let exactly these operations of a session or an agent be undone."""
    where = f"WHERE scope = ? AND session = ? AND agent = ? AND undone_by IS NOT NULL AND kind <> '{tables.LOST_KIND}'"
    known = {row.id: row for row in OPERATION.all(tx, where, subject)}
    for name in known.keys() | wanted.keys():
        row = known.get(name) or by_id(tx, OPERATION, subject[0], name)
        by = by_id(tx, OPERATION, subject[0], wanted[name]) if name in wanted else None
        if row is not None and row.kind != tables.LOST_KIND:
            OPERATION.update(tx, row, row._replace(undone_by=by.oid if by else None))


def _change_of(kind: str) -> str:
    return _LOST_CHANGE if kind == tables.LOST_KIND else kind


def _insert(tx: Tx, page: Page, first: int) -> None:
    ENTRY.put_many(tx, [row._replace(key=first + row.seq) for row in page.rows])
    LINK.put_many(tx, [row._replace(key=first + (row.key & MAX_SEQ)) for row in page.links])
    LOST.put_many(tx, [row._replace(key=first + (row.key & MAX_SEQ)) for row in page.lost])


def _proved(tx: Tx, scope: str, uid: str, low: int, tip: int) -> tuple[int, bytes]:
    """Compute the hashes of the next entries of a branch; return the seq and the hash of the last one."""
    branch = branches.find_by_uid(tx, scope, uid)
    if branch is None:
        raise _differs(uid, low + 1)
    line = log.line_of(tx, branch)._replace(tip=tip)
    rows, before = log.read_rows(tx, line, low, ROWS), log.before_of(tx, line, low)
    for row in rows:
        if row.seq != low + 1 or log.judge(tx, line, row, before)[0] is not None:
            raise _differs(uid, low + 1)
        before, low = log.after_of(line, row), row.seq
    if not rows:
        raise _differs(uid, low + 1)
    return low, rows[-1].chain.hash


def _settle_tip(tx: Tx, session: SessionRow) -> None:
    """Let the branch of an attached head know its end: the head may leave it now."""
    branch = branches.get(tx, session.scope, session.branch)
    if session.attached and session.hidden < PURGED:
        branches.set_tip(tx, branch, session.seq, session.hash)


def _write_row(tx: Tx, final: Final, parent: int, told: SessionRow) -> SessionRow:
    """Write a session's row: what it says of itself, and what this store computes for it."""
    session, row = sessions.by_number(tx, told.scope, told.sid), final.row
    branch = branches.find_by_uid(tx, told.scope, row.uid)
    if branch is None or branch.session != session.sid:
        raise Invalid(f"the head of session {row.id} is on branch {row.uid!r}, which it does not have")
    if row.attached and row.seq != branch.tip_seq:
        raise Invalid(f"the head of session {row.id} is not at the end of its branch")
    point = point_on(tx, told.scope, branch, row.seq)
    place: dict[str, Any] = {"branch": branch.bid, "uid": branch.uid, "fork": branch.fork_seq, "hash": point.hash}
    own: dict[str, Any] = {
        "parent": parent,
        "sid": session.sid,
        "branches": session.branches,
        "calls": None,
        "updated": told.updated,
        "rank": told.rank,
    }
    new = row._replace(scope=told.scope, **place, **own, **point.numbers._asdict())
    try:
        counts: dict[str, Any] = work.counts_at_head(tx, new)
        new = new._replace(**counts)
    except UNREADABLE:
        pass  # a state entry was lost: the row says what is known
    sessions.put_detail(tx, session, _counted_doc(tx, session, final.doc))
    return sessions.store(tx, session, new)


def _counted_doc(tx: Tx, session: SessionRow, doc: bytes) -> bytes:
    """Return details with how many messages were sent and answers are being written here."""
    said, own = codec.decode(doc), (session.scope, session.sid)
    (sent,), (opened,) = tx.one(LAST_SENT, own) or (0,), tx.one(places.OPEN, own) or (0,)
    counted = {"sent": sent, "open": opened}
    if all(said.get(name, 0) == value for name, value in counted.items()):
        return doc
    kept = {name: value for name, value in said.items() if name not in counted}
    return codec.encode({**kept, **{name: value for name, value in counted.items() if value}})


def _pinned(tx: Tx, pin: Pin, acid: int) -> PinRow:
    """Return a pin with the numbers that it has here; one that names another entry than it says raises ``Corrupt``."""
    session, branch = sessions.get(tx, pin.row.scope, pin.session), branches.find_by_uid(tx, pin.row.scope, pin.branch)
    made = pin.row._replace(session=session.sid, branch=branch.bid if branch else 0, checkpoint=acid)
    if fault := "" if made.hidden == agent_checkpoints.UNKNOWN else whole.place_fault(tx, made):
        raise Corrupt(f"a checkpoint of an agent is damaged: {fault}. Repair the source first", what=pin.session)
    return made


def _agent_point(
    tx: Tx, row: AgentCheckpointRow, before: AgentCheckpointRow | None, pins: list[PinRow]
) -> AgentCheckpointRow:
    """Return a checkpoint of an agent with the checksum that follows from the pins in force."""
    force = {} if before is None else agent_checkpoints.all_in_force(tx, before)
    force |= {pin.session: pin for pin in pins}
    agent = agent_checkpoints.parts(row).agent
    totals = agent_totals.at_pins(tx, force.values())
    checksum = agent_checkpoints.checksum(agent, agent_checkpoints.total_of(force.values()), len(pins), totals)
    return row._replace(sessions=agent_checkpoints.visible(force), checksum=checksum)


# ---------------------------------------------------------------------- what is in the way


def _start_of(tx: Tx, session: SessionRow, branch: Branch, coming: Container[str]) -> tuple[BranchRow | None, bytes]:
    """Return the branch that another one starts on, and the hash there, unless that branch is yet to come."""
    if branch.parent is None or branch.parent in coming:
        if branch.parent is None and branch.row.fork_seq:
            raise _no_start(session, branch)
        return None, chain.GENESIS
    parent = branches.find_by_uid(tx, session.scope, branch.parent)
    fork = None if parent is None else moments.hash_at(tx, parent, branch.row.fork_seq)
    if not fork or (branch.fork_hash and fork != branch.fork_hash):
        raise _no_start(session, branch)
    return parent, fork


def _parent_number(tx: Tx, row: SessionRow, parent: str | None) -> int:
    """Return the number of a session's parent in the destination; 0 for none."""
    if parent is None:
        return 0
    found = sessions.find_any(tx, row.scope, parent)
    if found is None:
        raise _conflict(
            f"session {row.id} belongs to session {parent}, which is not in the destination. {AGAIN}", row.id
        )
    return found.sid


def _require_free(tx: Tx, row: SessionRow, parent: int) -> None:
    """Raise ``Taken`` if another visible session has the key, name or label that a visible one is to have."""
    if row.hidden:
        return
    for holder, what in _holders(tx, row, parent):
        if holder is not None and holder.id != row.id:
            raise Taken(holder, what)


def _holders(tx: Tx, row: SessionRow, parent: int) -> Iterator[tuple[SessionRow | None, str]]:
    yield sessions.find_by_key(tx, row.scope, row.key), f"key {row.key!r}"
    if row.name is not None:
        asked = {"agent": row.agent, "workspace": row.workspace, "name": row.name}
        yield sessions.find_by_name(tx, row.scope, **asked), f"name {row.name!r}"
    if row.label is not None:
        yield sessions.find_by_label(tx, row.scope, parent, row.label), f"label {row.label!r}"


def _require_plausible(tx: Tx, session: Session) -> None:
    """Refuse a session that no store can have made; what it says of its entries is judged by them."""
    row = session.row
    if not is_id(row.id) or row.staged or row.key.startswith(STAGED_KEY):
        raise Invalid(f"{row.id!r} is not the id of a session, or the session is half copied")
    if row.kind not in sessions.KINDS or row.status not in STATUSES or row.hidden not in (0, 1, PURGED):
        raise Invalid(f"session {row.id} is of the kind {row.kind!r} and {row.status!r}; no session is")
    depth, above = 0, session.parent
    while above is not None:
        found = sessions.find_any(tx, row.scope, above)
        if found is None:
            raise Invalid(f"session {above!r} is named before it is there, or never is")
        above, depth = stash.decode(tx, found).parent, depth + 1
        if depth > sessions.DEEPEST:
            raise Invalid(f"session {row.id} lies more than {sessions.DEEPEST} levels below another")


# ---------------------------------------------------------------------- small things


def scope_of(record: Record) -> str:
    """Return the scope that a record belongs to."""
    return record.rows[0].scope if isinstance(record, Page) else str(record.row.scope)


def _size_of(record: Record) -> int:
    if isinstance(record, Page):
        return record.size
    return len(record.row.data) if isinstance(record, Chunk) else 0


def _is_at(update: Update, point: Point) -> bool:
    row = update.session.row
    return (row.scope, row.sid) == (point.row.scope, point.row.session)


def _conflict(message: str, found: str) -> Conflict:
    return Conflict(message, found=found)


def _refused(row: SessionRow, taken: Taken) -> Conflict:
    return _conflict(
        f"session {row.id} has the {taken.what}, which session {taken.holder.id} has in the destination."
        f" Delete one of the two, or restore it under another name. {AGAIN}",
        row.id,
    )


def _no_start(session: SessionRow, branch: Branch) -> Conflict:
    return _conflict(
        f"session {session.id} goes on from entry {branch.row.fork_seq} of branch {branch.parent}, which is not in the"
        f" destination: it was purged there, or could not be copied. {AGAIN}",
        session.id,
    )


def _moved(page: Page) -> Conflict:
    return _conflict(
        f"branch {page.branch} does not end at entry {page.low} in the destination: somebody else writes there;"
        " call again when that is over",
        page.branch,
    )


def _no_content(row: BlobRow) -> Corrupt:
    return Corrupt(f"content {(row.hash or '')[:12]} does not match its hash or size", what=f"blob {row.hash}")


def _differs(uid: str, seq: int) -> Corrupt:
    name = f"entry {uid}-{seq}"
    return Corrupt(f"{name} is not in the destination what it is in the source", what=name)
