"""Putting records: functions of a transaction that write one record each, by numbers and checks of this store.

A batch of records is a fold over an immutable place in the stream (``At``), so a transaction that runs again starts
from the same place; what it has to tell is gathered in a ``Tally`` that is made anew with every run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

from ..errors import Conflict, Corrupt, Invalid
from ..files import snapshots, timeline
from ..ids import MAX_SEQ, is_id
from ..model.status import STATUSES
from ..ops import blobs, branches, chain, feed, idempotency, operations, sessions
from ..ops.log import key_of
from ..ops.verify.files import TreeChecks
from ..ops.verify.history import ATTACHMENT
from ..ops.verify.sessions import shortcut
from ..storage.base import Tx
from ..tables.agents import AGENT, AGENT_CHECKPOINT
from ..tables.branches import BRANCH, BranchRow
from ..tables.content import BLOB, CHUNK, BlobRow
from ..tables.entries import ENTRY, LINK, LOST
from ..tables.files import ScanRow
from ..tables.history import CHECKPOINT, ONCE, OPERATION, OperationRow
from ..tables.live import DELTA, INBOX, STREAM
from ..tables.sessions import PURGED, SESSION, STAGED_KEY, SessionRow
from ..tables.table import Table
from . import agents, as_of, documents, timelines
from . import staged as stash
from .as_of import AGAIN
from .stream import (
    AgentPoint,
    AgentRecord,
    Blob,
    BranchRecord,
    CheckpointRecord,
    Chunk,
    DocumentRecord,
    EntriesRecord,
    Key,
    Live,
    OperationRecord,
    Record,
    ScanRecord,
    SessionRecord,
    Version,
    WorkspaceRecord,
)

R = TypeVar("R", bound="tuple[Any, ...]")

UPLOADS = "WHERE scope = ? AND hash IS NULL AND size = ? AND chunks = ? AND place = ?"
STORED = "SELECT count(*), coalesce(max(n), -1) FROM chunk WHERE scope = ? AND blob_id = ?"
# What a key can stand for: a record that is looked for by its id. A version of a state or a document has none.
MADE: dict[str, Table[Any]] = {
    **{table.name: table for table in (SESSION, OPERATION, CHECKPOINT, AGENT, AGENT_CHECKPOINT)},
    "end": SESSION,  # with those below it
}
VERSIONS, SENT = ("state", "document"), "message"
_LONGEST = 4096  # characters of a name

# What a half-copied session does not say yet.
_UNSAID: dict[str, Any] = sessions.EMPTY | dict.fromkeys(("name", "label", "title", "calls"))
_UNSAID |= {"workspace": "", "tags": "", "hidden": PURGED}
_UNSAID |= dict.fromkeys(("parent", "archived", "pinned", "attached", "branches", "updated", "rank", "past"), 0)


class At(NamedTuple):
    """The place in the stream: the agent whose versions follow, the content whose chunks follow, the session."""

    agent: AgentRecord | None = None
    blob: BlobRow | None = None  # as it is to be, with the number that it has here; None: it is there already
    stored: int = 0  # chunks of it
    following: int = 0  # the chunk that follows
    sid: int = 0
    wid: int = 0  # the workspace whose scans follow; 0: they are not to be put


class Tally:
    """What a run of a transaction has done, and what it left out."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.left_out = list[str]()
        self.keys_left_out = Counter[str]()


class Putting:
    """Writes records. ``states`` says how many states a session that people see will have counted."""

    def __init__(self, *, fresh: bool, now_ms: Callable[[], int], states: Callable[[SessionRow], int]) -> None:
        self._fresh = fresh
        self._now_ms = now_ms
        self._states = states
        self._trees = TreeChecks()

    def put(self, tx: Tx, at: At, record: Record, tally: Tally) -> At:
        """Write a record; return the place behind it."""
        return _PUTS[type(record)](self, tx, at, record, tally)

    def require_new(self, there: object, what: str) -> bool:
        """Return whether a record is to be written; one that came twice into an empty store is refused."""
        if there and self._fresh:
            raise Invalid(f"{what} is there twice")
        return not there

    # ------------------------------------------------------------------ agents

    def _put_agent(self, tx: Tx, at: At, agent: AgentRecord, tally: Tally) -> At:
        if self._fresh and at.sid:
            raise Invalid("an agent stands behind a session; agents come first")
        there = agents.find_twin(tx, agent)
        if self.require_new(there is not None, f"agent {agent.row.id!r}"):
            agents.begin(tx, agent)
        return At(agent=agent)

    def _put_version(self, tx: Tx, at: At, version: Version, tally: Tally) -> At:
        agent = at.agent
        twin = None if agent is None else agents.find_twin(tx, agent)
        if agent is None or twin is None or version.row.version > twin.version + 1:
            raise Invalid(f"version {version.row.version} of an agent does not follow the one before it")
        if self.require_new(version.row.version <= twin.version, f"version {version.row.version} of {agent.row.id!r}"):
            agents.put_version(tx, twin, version.row)
            tally.counts.update(agents=agents.finish(tx, agent))
        return at

    # ------------------------------------------------------------------ content

    def _put_blob(self, tx: Tx, at: At, blob: Blob, tally: Tally) -> At:
        row = blob.row
        if at.blob is not None and self._fresh and at.following < at.blob.chunks:
            raise Invalid(f"of content {(at.blob.hash or '')[:12]} a chunk is missing")
        if row.hash is None or not self.require_new(blobs.exists(tx, row.scope, row.hash), f"content {row.hash[:12]}"):
            return at._replace(blob=None)
        if row.chunks <= 1:
            if not row.chunks:
                self._put_small(tx, row, None, tally)
            return at._replace(blob=row if row.chunks else None, stored=0, following=0)
        named = f"{STAGED_KEY}{row.hash}"  # so that it is found again
        begun = BLOB.one(tx, UPLOADS, (row.scope, row.size, row.chunks, named))
        if begun is None:
            begun = row._replace(blob_id=tx.next("blob"), hash=None, created_ms=self._now_ms(), place=named)
            BLOB.put(tx, begun)
        count, last = tx.one(STORED, (row.scope, begun.blob_id)) or (0, -1)
        return at._replace(blob=begun._replace(hash=row.hash), stored=count if count == last + 1 else 0, following=0)

    def _put_chunk(self, tx: Tx, at: At, chunk: Chunk, tally: Tally) -> At:
        if at.blob is None:
            return at
        if chunk.row.n != at.following or chunk.row.n >= at.blob.chunks:
            raise Invalid(
                f"chunk {chunk.row.n} of content {(at.blob.hash or '')[:12]} does not follow the one before it"
            )
        if at.blob.chunks == 1:
            self._put_small(tx, at.blob, chunk.row, tally)
            return at._replace(blob=None)
        key = (chunk.row.scope, at.blob.blob_id, chunk.row.n)
        if at.following >= at.stored and CHUNK.get(tx, *key) is None:  # another copy may put it as well
            CHUNK.put(tx, chunk.row._replace(blob_id=at.blob.blob_id))
        return at._replace(following=at.following + 1)

    def _put_small(self, tx: Tx, row: BlobRow, chunk: Any, tally: Tally) -> None:
        data = b"" if chunk is None else blobs.unpack(chunk)
        if (sha256(data).hexdigest(), len(data)) != (row.hash, row.size):
            raise no_content(row)
        # What was stored lately is spared by a sweep, so nothing takes it before an entry links it.
        made = BLOB.put(tx, row._replace(blob_id=tx.next("blob"), created_ms=self._now_ms(), place=""))
        if chunk is not None:
            CHUNK.put(tx, chunk._replace(blob_id=made.blob_id))
        tally.counts.update(blobs=1, bytes=row.size)

    # ------------------------------------------------------------------ sessions and their branches

    def _put_session(self, tx: Tx, at: At, session: SessionRecord, tally: Tally) -> At:
        row = session.row
        there = sessions.find_any(tx, row.scope, row.id)
        if there is not None and not self._fresh:
            if there.staged:
                sessions.put_detail(tx, there, stash.encode(session))
            return At(sid=there.sid)
        self.require_new(there is not None, f"session {row.id}")
        if self._fresh:
            _require_plausible(tx, session)
        staged = row._replace(**{**_UNSAID, "states": row.states}, key=f"{STAGED_KEY}{row.id}")
        made = sessions.insert(tx, staged._replace(sid=tx.next("session")))
        sessions.put_detail(tx, made, stash.encode(session))
        first = self._insert_branch(tx, made, session.branches[0], purged=session.purged)
        asked: dict[str, Any] = {"branch": first.bid, "first": 0, "last": 0, "now_ms": self._now_ms()}
        position, rank = feed.record(tx, made, "session", **asked)
        head = {"branch": first.bid, "uid": first.uid, "fork": first.fork_seq}
        sessions.write(tx, made, **head, branches=1, **stash.landed(made, position, rank, asked["now_ms"]))
        return At(sid=made.sid)

    def _put_branch(self, tx: Tx, at: At, branch: BranchRecord, tally: Tally) -> At:
        row = branch.row
        session = sessions.by_number(tx, row.scope, at.sid)
        there = branches.find_by_uid(tx, row.scope, row.uid)
        is_first = there is not None and there.session == at.sid and there.bid == session.branch
        if not is_first and self.require_new(there is not None, f"branch {row.uid}"):
            purged = session.staged and stash.decode(tx, session).row.hidden == PURGED
            self._insert_branch(tx, session, branch, purged=purged)
            sessions.write(tx, session, branches=session.branches + 1)
        return at

    def _insert_branch(self, tx: Tx, session: SessionRow, branch: BranchRecord, *, purged: bool) -> BranchRow:
        theirs = branch.row
        parent, fork = start_of(tx, session, branch, ())
        if self._fresh and branches.find_by_name(tx, session.scope, session.sid, theirs.name) is not None:
            raise Invalid(f"session {session.id} has two branches called {theirs.name!r}")
        depth, jump, jump_seq = shortcut(tx, parent, theirs.fork_seq)
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

    def _put_page(self, tx: Tx, at: At, page: EntriesRecord, tally: Tally) -> At:
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
        self._require_contents(tx, page)
        first = key_of(branch.bid, 0)
        _insert(tx, page, first)
        if not attached:
            branches.set_tip(tx, branch, page.high, page.rows[-1].chain.hash)
        if session.hidden < PURGED:
            self._show_page(tx, session, branch, page, attached)
        tally.counts.update(entries=len(page.rows), bytes=page.size)
        return at

    def _require_contents(self, tx: Tx, page: EntriesRecord) -> None:
        """Refuse entries whose content is not here; from now on they link it, so nobody erases it."""
        gone = {row.key & MAX_SEQ for row in page.lost if row.what == ATTACHMENT}
        roots = {row.seq for row in page.rows if row.kind == snapshots.KIND}
        for link in page.links:
            seq, scope = link.key & MAX_SEQ, page.rows[0].scope
            if seq in gone:
                continue
            missing = not blobs.exists(tx, scope, link.hash)
            if missing or (seq in roots and self._trees.root_fault(tx, scope, link.hash) and not self._fresh):
                said = f"content {link.hash[:12]} is linked but missing, or leads to what is"
                raise Corrupt(f"{said}; it may have been erased meanwhile: call again", what=f"blob {link.hash}")

    def _show_page(self, tx: Tx, session: SessionRow, branch: BranchRow, page: EntriesRecord, attached: bool) -> None:
        """Make a session that people see show the new entries, as after an append."""
        asked: dict[str, Any] = {"branch": branch.bid, "first": page.low + 1, "last": page.high}
        now_ms = self._now_ms()
        place = stash.landed(session, *feed.record(tx, session, "entries", **asked, now_ms=now_ms), now_ms)
        states = self._states(session)
        if session.states < states:
            session = sessions.write(tx, session, states=states)
        if not attached:
            sessions.write(tx, session, **place)
            return
        last = page.rows[-1].chain
        head = {"seq": page.high, "hash": last.hash, **last.numbers._asdict(), "calls": None}
        operations.counted(tx, sessions.write(tx, session, **place, **head))

    # ------------------------------------------------------------------ beside the log

    def _put_point(self, tx: Tx, at: At, point: CheckpointRecord, tally: Tally) -> At:
        tally.counts.update(checkpoints=bool(self.insert_point(tx, at.sid, point)))
        return at

    def insert_point(self, tx: Tx, sid: int, point: CheckpointRecord) -> int:
        """Write a checkpoint unless it is there; return the branch that it names, 0 if it was there."""
        row = point.row
        branch, there = branches.find_by_uid(tx, row.scope, point.branch), by_id(tx, CHECKPOINT, row.scope, row.id)
        if branch is None or (there is not None and there.session != sid):
            raise conflict(f"checkpoint {row.id} is on something else in the destination", row.id)
        if not self.require_new(there is not None, f"checkpoint {row.id}"):
            return 0
        CHECKPOINT.put(tx, row._replace(cid=tx.next("checkpoint"), session=sid, branch=branch.bid))
        return branch.bid

    def _put_operation(self, tx: Tx, at: At, operation: OperationRecord, tally: Tally) -> At:
        row = operation.row
        sid, aid = 0, 0
        if operation.session is not None:
            session = sessions.find_any(tx, row.scope, operation.session)
            if session is None:
                raise Invalid(f"operation {row.id} is on a session that did not come before it")
            sid = session.sid
        elif operation.agent is not None:
            aid = agents.number(tx, row.scope, operation.agent)
        if self.insert_operation(tx, operation, sid, aid):
            tally.counts.update(operations=1)
        return at._replace(agent=None, blob=None, wid=0)

    def insert_operation(self, tx: Tx, operation: OperationRecord, sid: int, aid: int) -> str:
        """Write an operation behind those that are there; return the kind of its change, '' if it was there."""
        row = operation.row
        there = by_id(tx, OPERATION, row.scope, row.id)
        if there is not None and (there.session, there.agent) != (sid, aid):
            raise conflict(f"operation {row.id} is on something else in the destination", row.id)
        if not self.require_new(there is not None, f"operation {row.id}"):
            return ""
        target = None if operation.undoes is None else by_id(tx, OPERATION, row.scope, operation.undoes)
        if (row.undoes is not None or operation.undoes is not None) and target is None:
            raise Corrupt(f"operation {row.id} takes back one that is missing", what=f"operation {row.id}")
        place = None if operation.workspace is None else timeline.by_uid(tx, row.scope, operation.workspace)
        wid = place.wid if place else 0
        if not (sid or aid or wid):
            raise Invalid(f"operation {row.id} is on nothing that came before it")
        made = row._replace(oid=tx.next("operation"), undoes=target.oid if target else None, undone_by=None)
        OPERATION.put(tx, made._replace(session=sid, agent=aid, workspace=wid))
        if target is not None and not (sid or aid):
            _take_back(tx, made, target)
        return row.kind

    def _put_key(self, tx: Tx, at: At, key: Key, tally: Tally) -> At:
        """Remember an idempotency key unless it is known or stands for what is not here."""
        row, sid = key.row, 0
        if key.session is not None:
            owner = sessions.find_any(tx, row.scope, key.session)
            sid = owner.sid if owner else 0
        made = row._replace(session=sid)
        if row.kind == idempotency.ENTRIES:
            branch = None if key.branch is None else branches.find_by_uid(tx, row.scope, key.branch)
            here = branch is not None and ENTRY.get(tx, row.scope, key_of(branch.bid, row.last_seq)) is not None
            made = made._replace(branch=branch.bid if branch else 0)
        elif row.kind == SENT:
            here = INBOX.one(tx, "WHERE scope = ? AND session = ? AND id = ?", (row.scope, sid, row.id)) is not None
        else:
            table = MADE.get(row.kind)
            here = row.kind in VERSIONS if table is None else by_id(tx, table, row.scope, row.id) is not None
        if not here or (key.session is not None and not sid):
            self._leave_key(key, tally)
        elif ONCE.get(tx, made.scope, made.session, made.ikey, made.branch, made.seq) is None:
            idempotency.keep(tx, made)
        return at

    def _leave_key(self, key: Key, tally: Tally) -> None:
        if self._fresh:
            raise Invalid(f"key {key.row.ikey!r} stands for something that did not come before it")
        tally.keys_left_out[f"session {key.session}" if key.session else f"the store, scope {key.row.scope!r}"] += 1

    def _put_live(self, tx: Tx, at: At, record: Live, tally: Tally) -> At:
        row = record.row
        branch = None if record.branch is None else branches.find_by_uid(tx, row.scope, record.branch)
        if record.table is STREAM:
            row = row._replace(branch=branch.bid if branch else 0)
        elif record.table is INBOX and row.key:
            row = row._replace(key=key_of(branch.bid, row.key & MAX_SEQ) if branch else 0)
        alone = record.table is DELTA or row.session is None
        record.table.put(tx, row if alone else row._replace(session=at.sid))
        return at

    def _put_workspace(self, tx: Tx, at: At, workspace: WorkspaceRecord, tally: Tally) -> At:
        there = timeline.by_uid(tx, workspace.row.scope, workspace.row.uid)
        self.require_new(there is not None, f"workspace {workspace.row.uid}")
        return At(sid=at.sid, wid=timelines.put_workspace(tx, workspace, tally.left_out))

    def _put_scan(self, tx: Tx, at: At, scan: ScanRecord, tally: Tally) -> At:
        if at.wid and timelines.put_scan(tx, at.wid, scan, partial(self._require_root, tx)):
            return at
        if self._fresh:
            raise Invalid(f"scan {scan.row.n} is not one of the workspace before it")
        workspace = timeline.by_uid(tx, scan.row.scope, scan.workspace) if at.wid else None
        tally.left_out += [timelines.parted(workspace)] if workspace else []
        return at._replace(wid=0)

    def _require_root(self, tx: Tx, row: ScanRow) -> None:
        if row.root is not None and (fault := self._trees.root_fault(tx, row.scope, row.root, lost=bool(row.lacks))):
            raise Corrupt(f"{fault.what}; it may have been erased meanwhile: call again", what=f"blob {row.root}")

    def _put_agent_point(self, tx: Tx, at: At, point: AgentPoint, tally: Tally) -> At:
        if what := agents.put_point(tx, point):
            tally.left_out.append(what)
        return at


_PUTS: dict[type, Callable[..., At]] = {
    AgentRecord: Putting._put_agent,
    Version: Putting._put_version,
    Blob: Putting._put_blob,
    Chunk: Putting._put_chunk,
    SessionRecord: Putting._put_session,
    BranchRecord: Putting._put_branch,
    EntriesRecord: Putting._put_page,
    CheckpointRecord: Putting._put_point,
    Key: Putting._put_key,
    Live: Putting._put_live,
    WorkspaceRecord: Putting._put_workspace,
    ScanRecord: Putting._put_scan,
    DocumentRecord: documents.put,
    OperationRecord: Putting._put_operation,
    AgentPoint: Putting._put_agent_point,
}


# ---------------------------------------------------------------------- rows


def by_id(tx: Tx, table: Table[R], scope: str, name: str) -> R | None:
    """Return the row of a table with that id, or None.

    Nothing is locked: of sessions and agents it only counts whether they are there, and those are never deleted.
    """
    return table.one(tx, "WHERE scope = ? AND id = ?", (scope, name))


def _take_back(tx: Tx, row: OperationRow, target: OperationRow) -> None:
    """Mark what an operation on files alone took back: no session or agent says which of those are undone."""
    OPERATION.update(tx, target, target._replace(undone_by=row.oid))
    first = OPERATION.get(tx, row.scope, target.undoes) if row.kind == "redo" and target.undoes else None
    if first is not None:
        OPERATION.update(tx, first, first._replace(undone_by=None))


def _insert(tx: Tx, page: EntriesRecord, first: int) -> None:
    ENTRY.put_many(tx, [row._replace(key=first + row.seq) for row in page.rows])
    LINK.put_many(tx, [row._replace(key=first + (row.key & MAX_SEQ)) for row in page.links])
    LOST.put_many(tx, [row._replace(key=first + (row.key & MAX_SEQ)) for row in page.lost])


# ---------------------------------------------------------------------- what is in the way


def start_of(
    tx: Tx, session: SessionRow, branch: BranchRecord, coming: Container[str]
) -> tuple[BranchRow | None, bytes]:
    """Return the branch that another one starts on, and the hash there, unless that branch is yet to come."""
    if branch.parent is None or branch.parent in coming:
        if branch.parent is None and branch.row.fork_seq:
            raise _no_start(session, branch)
        return None, chain.GENESIS
    parent = branches.find_by_uid(tx, session.scope, branch.parent)
    fork = None if parent is None else as_of.hash_at(tx, parent, branch.row.fork_seq)
    if not fork or (branch.fork_hash and fork != branch.fork_hash):
        raise _no_start(session, branch)
    return parent, fork


def _require_plausible(tx: Tx, session: SessionRecord) -> None:
    """Refuse a session that no store can have made; what it says of its entries is judged by them."""
    row = session.row
    if not is_id(row.id) or row.staged or row.key.startswith(STAGED_KEY):
        raise Invalid(f"{row.id!r} is not the id of a session, or the session is half copied")
    named = [each for each in (row.agent, row.name, row.label, row.key, row.workspace) if each is not None]
    if not row.agent or any(len(each) > _LONGEST or not each.isprintable() for each in named):
        raise Invalid(f"a name of session {row.id} is empty, too long, or holds what cannot be printed")
    if not row.key.startswith(("agent:", "purged:")):
        raise Invalid(f"session {row.id} has a key that no session has")
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


def _no_start(session: SessionRow, branch: BranchRecord) -> Conflict:
    return conflict(
        f"session {session.id} goes on from entry {branch.row.fork_seq} of branch {branch.parent}, which is not in the"
        f" destination: it was purged there, or could not be copied. {AGAIN}",
        session.id,
    )


def _moved(page: EntriesRecord) -> Conflict:
    return conflict(
        f"branch {page.branch} does not end at entry {page.low} in the destination: somebody else writes there;"
        " call again when that is over",
        page.branch,
    )


def no_content(row: BlobRow) -> Corrupt:
    return Corrupt(f"content {(row.hash or '')[:12]} does not match its hash or size", what=f"blob {row.hash}")


def conflict(message: str, found: str) -> Conflict:
    return Conflict(message, found=found)
