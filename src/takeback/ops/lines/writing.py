"""Putting records into an empty store that nobody else has open: a row for each, with numbers and checks of its own.

Nothing in a record is trusted but its form: a name that came before must be there, places must follow one another.
Whether it is all true - the chain of hashes, the totals, what calls and links say - is for ``verify`` to judge once
everything is written; what a store computes for itself is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from ...errors import Invalid
from ...ids import MAX_SEQ, is_id
from ...model.entry import Numbers
from ...model.status import STATUSES
from ...storage.base import Tx
from ...tables.agents import AGENT, VERSION, AgentRow, VersionRow
from ...tables.branches import BRANCH, BranchRow
from ...tables.content import BLOB, BlobRow
from ...tables.entries import ENTRY, LINK, LOST, Chain, EntryRow, LinkRow, LostRow
from ...tables.history import CHECKPOINT, OPERATION, CheckpointRow, OnceRow, OperationRow
from ...tables.sessions import SessionRow
from .. import agents, blobs, branches, chain, feed, once, sessions
from ..log import key_of, point_on
from ..transfer import base
from ..transfer import records as beside
from ..verify import places
from ..verify.base import PURGED
from . import records

OPERATIONS = "SELECT kind FROM operation WHERE scope = ? AND session = ? AND agent = 0 ORDER BY oid"
POINTS = "SELECT branch, seq FROM checkpoint WHERE scope = ? AND session = ? ORDER BY cid"


class Writer:
    """Writes the records of one file, in their order."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.sessions: dict[str, int] = {}  # by id, the number of each
        self.purged: dict[str, int] = {}  # those of them that are there only because others read from them
        self._depths: dict[str, int] = {}
        self._order: list[tuple[int, int]] = []
        self._agent: AgentRow | None = None
        self._version = 1  # of the agent: the one that comes next
        self._blob: BlobRow | None = None
        self._chunk = 0  # of the blob: the one that comes next
        self._session: records.Session | None = None
        self._branch: BranchRow | None = None
        self._undone: list[tuple[str, str]] = []

    def state(self) -> dict[str, Any]:
        """Return what is remembered between records, for ``resume``: a transaction may run again from its beginning."""
        return {name: value.copy() if isinstance(value, dict | list) else value for name, value in vars(self).items()}

    def resume(self, state: dict[str, Any]) -> None:
        """Remember what was so when ``state`` was called, and nothing since."""
        for name, value in state.items():
            setattr(self, name, value.copy() if isinstance(value, dict | list) else value)

    def put(self, tx: Tx, record: Any) -> None:
        """Write a record; one that cannot stand where it stands raises ``Invalid``."""
        put = self._puts().get(type(record))
        if put is None:
            raise Invalid("this record belongs at the beginning or the end of a file")
        _require_storable(record)
        put(tx, record)

    def _puts(self) -> dict[type, Callable[[Tx, Any], None]]:
        return {
            records.Agent: self._put_agent,
            records.AgentVersion: self._put_version,
            records.Blob: self._put_blob,
            records.Chunk: self._put_chunk,
            records.Session: self._put_session,
            records.Branch: self._put_branch,
            records.Entry: self._put_entry,
            records.Checkpoint: self._put_checkpoint,
            records.Operation: self._put_operation,
            records.Key: self._put_key,
        }

    def close(self, tx: Tx) -> None:
        """Finish the last session: what comes behind it belongs to no session."""
        self._close_blob()
        self._close_session(tx)

    def tell(self, tx: Tx, *, now_ms: int) -> None:
        """Write the feed as it is after a copy: sessions in the order in which they last changed."""
        for _, sid in sorted(self._order):
            _tell(tx, sessions.by_number(tx, self.scope, sid), now_ms)

    # ------------------------------------------------------------------ agents and content

    def _put_agent(self, tx: Tx, record: records.Agent) -> None:
        if self._session is not None or self._blob is not None:
            raise Invalid("an agent stands behind a session or a content; agents come first")
        if agents.find(tx, self.scope, record.id) is not None or (self._agent and self._agent.id == record.id):
            raise Invalid(f"agent {record.id!r} is there twice")
        made = AgentRow(
            scope=self.scope,
            aid=tx.next("agent"),
            id=record.id,
            hidden=record.hidden,
            version=record.version,
            created_ms=record.created_ms,
            modified_ms=record.modified_ms,
            fields=_bytes(record.fields),
        )
        AGENT.put(tx, made)
        self._agent, self._version = made, 1

    def _put_version(self, tx: Tx, record: records.AgentVersion) -> None:
        agent = self._agent
        if agent is None or (agent.id, self._version) != (record.agent, record.version):
            raise Invalid(f"version {record.version} of agent {record.agent!r} does not follow the one before it")
        state = records.stored(record.state)
        VERSION.put(tx, VersionRow(self.scope, agent.aid, record.version, record.at_ms, state))
        feed.record_agent(tx, self.scope, agent.aid, "agent")
        self._version += 1

    def _put_blob(self, tx: Tx, record: records.Blob) -> None:
        self._close_blob()
        if self._session is not None:
            raise Invalid("a content stands behind a session; contents come first")
        if blobs.exists(tx, self.scope, record.hash):
            raise Invalid(f"content {record.hash[:12]} is there twice")
        row = BlobRow(self.scope, tx.next("blob"), record.hash, record.size, record.chunks, 0, "")
        self._blob, self._chunk = BLOB.put(tx, row), 0

    def _put_chunk(self, tx: Tx, record: records.Chunk) -> None:
        blob = self._blob
        if blob is None or (blob.hash, self._chunk) != (record.blob, record.n):
            raise Invalid(f"chunk {record.n} of content {record.blob[:12]} does not follow the one before it")
        data = records.stored(record.data)
        if data is None or not 0 < len(data) <= blobs.CHUNK:
            raise Invalid(f"chunk {record.n} of content {record.blob[:12]} is empty or too large")
        blobs.add_chunk(tx, self.scope, blob.blob_id, record.n, blobs.pack_small(data))
        self._chunk += 1

    def _close_blob(self) -> None:
        if self._blob is not None and self._chunk != self._blob.chunks:
            raise Invalid(f"of content {(self._blob.hash or '')[:12]} a chunk is missing")

    # ------------------------------------------------------------------ sessions

    def _put_session(self, tx: Tx, record: records.Session) -> None:
        self._close_blob()
        self._close_session(tx)
        if not is_id(record.id) or record.id in self.sessions:
            raise Invalid(f"{record.id!r} is no id of a session, or is there twice")
        if record.key.startswith(base.STAGED_KEY):
            raise Invalid(f"session {record.id} is half copied")
        if record.kind not in sessions.KINDS or record.status not in STATUSES:
            raise Invalid(f"session {record.id} is of the kind {record.kind!r} and {record.status!r}; no session is")
        parent = 0 if record.parent is None else self._number(record.parent)
        self._depths[record.id] = 0 if record.parent is None else self._depths[record.parent] + 1
        if self._depths[record.id] > sessions.DEEPEST:
            raise Invalid(f"session {record.id} lies more than {sessions.DEEPEST} levels below another")
        self._require_free(tx, record, parent)
        session = sessions.insert(tx, self._row(tx.next("session"), record, parent))
        sessions.put_detail(tx, session, _bytes(record.detail))
        self.sessions[record.id] = session.sid
        if record.hidden == PURGED:
            self.purged[record.id] = session.sid
        self._order.append((record.order, session.sid))
        self._session = record

    def _row(self, sid: int, record: records.Session, parent: int) -> SessionRow:
        said = {name: value for name, value in msgspec.structs.asdict(record).items() if name in SessionRow._fields}
        place = {"scope": self.scope, "sid": sid, "parent": parent, "updated": 0, "rank": 0}
        return SessionRow(**{**sessions.EMPTY, "attached": 0, "branches": 0, "calls": None, **said, **place})

    def _require_free(self, tx: Tx, record: records.Session, parent: int) -> None:
        if record.hidden:
            return
        held = sessions.find_by_key(tx, self.scope, record.key)
        if held is None and record.name is not None:
            named = {"agent": record.agent, "workspace": record.workspace, "name": record.name}
            held = sessions.find_by_name(tx, self.scope, **named)
        if held is None and record.label is not None:
            held = sessions.find_by_label(tx, self.scope, parent, record.label)
        if held is not None:
            raise Invalid(f"session {record.id} has the key, name or label of session {held.id}")

    def _number(self, session_id: str) -> int:
        if session_id not in self.sessions:
            raise Invalid(f"session {session_id!r} is named before it is there, or never is")
        return self.sessions[session_id]

    def _close_session(self, tx: Tx) -> None:
        """Let the row of the session that ends here be what its entries say, and operations be undone."""
        if self._session is None:
            return
        record, sid = self._session, self.sessions[self._session.id]
        self._close_branch(tx)
        session, head = sessions.by_number(tx, self.scope, sid), record.head
        branch = branches.find_by_uid(tx, self.scope, head.branch)
        if branch is None or branch.session != sid:
            raise Invalid(f"the head of session {record.id} is on branch {head.branch!r}, which it does not have")
        if head.attached and head.seq != branch.tip_seq:
            raise Invalid(f"the head of session {record.id} is not at the end of its branch")
        point = point_on(tx, self.scope, branch, head.seq)
        place = {"branch": branch.bid, "uid": branch.uid, "fork": branch.fork_seq, "seq": head.seq}
        sessions.write(
            tx, session, **place, attached=int(head.attached), hash=point.hash, **point.numbers._asdict(), calls=None
        )
        beside.mark_undone(tx, beside.Subject(self.scope, sid, 0), dict(self._undone))
        self._undone, self._session = [], None

    # ------------------------------------------------------------------ branches and entries

    def _put_branch(self, tx: Tx, record: records.Branch) -> None:
        self._close_branch(tx)
        session = self._owner(record.session, "branch")
        if branches.find_by_uid(tx, self.scope, record.id) is not None:
            raise Invalid(f"branch {record.id!r} is there twice")
        parent = None if record.parent is None else branches.find_by_uid(tx, self.scope, record.parent)
        fork = chain.GENESIS if parent is None else base.hash_at(tx, parent, record.fork_seq)
        if (record.parent is not None and parent is None) or fork is None or (parent is None and record.fork_seq):
            raise Invalid(f"branch {record.id} starts at an entry that did not come before it")
        if branches.find_by_name(tx, self.scope, session, record.name) is not None:
            raise Invalid(f"session {record.session} has two branches called {record.name!r}")
        depth, jump, jump_seq = places.shortcut(tx, parent, record.fork_seq)
        made = BranchRow(
            scope=self.scope,
            bid=tx.next("branch"),
            uid=record.id,
            session=session,
            name=record.name,
            parent=None if parent is None else parent.bid,
            fork_seq=record.fork_seq,
            depth=depth,
            jump=jump,
            jump_seq=jump_seq,
            created_ms=record.created_ms,
            tip_seq=record.fork_seq,
            tip_hash=fork,
            hidden=record.hidden,
        )
        self._branch = BRANCH.put(tx, made)
        self._put_lost(tx, key_of(made.bid, 0), record.lost)
        row = sessions.by_number(tx, self.scope, session)
        sessions.write(tx, row, branches=row.branches + 1)

    def _owner(self, session_id: str | None, what: str) -> int:
        if self._session is None or session_id != self._session.id:
            raise Invalid(f"the {what} of session {session_id!r} stands behind another session")
        return self.sessions[self._session.id]

    def _put_entry(self, tx: Tx, record: records.Entry) -> None:
        branch = self._branch
        if branch is None or (branch.uid, branch.tip_seq + 1) != (record.branch, record.seq):
            raise Invalid(f"entry {record.branch}-{record.seq} does not follow the one before it")
        if record.seq > MAX_SEQ:
            raise Invalid(f"entry {record.branch}-{record.seq} has a number that no entry has")
        numbers, entry_hash = Numbers(**msgspec.structs.asdict(record.totals)), _hash(record.hash, 32)
        linked = (_hash(record.salt, 16), _hash(record.body_hash, 32), entry_hash)
        row = EntryRow(
            scope=self.scope,
            key=key_of(branch.bid, record.seq),
            kind=record.kind,
            at_ms=record.at_ms,
            turns=numbers.turns,
            mid=record.id,
            body=records.stored(record.body),
            raw=records.stored(record.raw),
            spill=record.spill,
            rest=b"",
        )
        ENTRY.put(tx, row.with_chain(Chain(record.late_ms, *numbers, record.calls, *linked)))
        LINK.put_many(tx, [LinkRow(self.scope, each, row.key) for each in dict.fromkeys(record.links)])
        self._put_lost(tx, row.key, record.lost)
        self._branch = branch._replace(tip_seq=record.seq, tip_hash=entry_hash)

    def _put_lost(self, tx: Tx, key: int, lost: tuple[str, int] | None) -> None:
        if lost is not None:
            LOST.put(tx, LostRow(self.scope, key, *lost))

    def _close_branch(self, tx: Tx) -> None:
        if self._branch is not None:
            stored = branches.get(tx, self.scope, self._branch.bid)
            branches.set_tip(tx, stored, self._branch.tip_seq, self._branch.tip_hash)
        self._branch = None

    # ------------------------------------------------------------------ beside the log

    def _put_checkpoint(self, tx: Tx, record: records.Checkpoint) -> None:
        self._close_branch(tx)
        session, branch = self._owner(record.session, "checkpoint"), branches.find_by_uid(tx, self.scope, record.branch)
        if branch is None or base.by_id(tx, CHECKPOINT, self.scope, record.id) is not None:
            raise Invalid(f"checkpoint {record.id} is on a branch that did not come before it, or is there twice")
        made = CheckpointRow(
            scope=self.scope,
            cid=tx.next("checkpoint"),
            id=record.id,
            session=session,
            name=record.name,
            description=record.description,
            type=record.kind,
            at_ms=record.at_ms,
            branch=branch.bid,
            seq=record.seq,
            hash=_hash(record.hash, 32),
        )
        CHECKPOINT.put(tx, made)

    def _put_operation(self, tx: Tx, record: records.Operation) -> None:
        self._close_branch(tx)
        subject = self._subject(record)
        if base.by_id(tx, OPERATION, self.scope, record.id) is not None:
            raise Invalid(f"operation {record.id} is there twice")
        undoes = None if record.undoes is None else base.by_id(tx, OPERATION, self.scope, record.undoes)
        if record.undoes is not None and undoes is None:
            raise Invalid(f"operation {record.id} takes back one that did not come before it")
        made = OperationRow(
            scope=self.scope,
            oid=tx.next("operation"),
            id=record.id,
            kind=record.kind,
            session=subject.session,
            agent=subject.agent,
            at_ms=record.at_ms,
            before=_bytes(record.before),
            after=_bytes(record.after),
            undoes=undoes.oid if undoes else None,
            undone_by=None,
        )
        OPERATION.put(tx, made)
        self._note_undone(tx, record, subject)

    def _subject(self, record: records.Operation) -> beside.Subject:
        if record.agent is None or self._agent is None or self._session is not None:
            return beside.Subject(self.scope, self._owner(record.session, "operation"), 0)
        if record.agent != self._agent.id:
            raise Invalid(f"operation {record.id} stands behind another agent than its own")
        return beside.Subject(self.scope, 0, self._agent.aid)

    def _note_undone(self, tx: Tx, record: records.Operation, subject: beside.Subject) -> None:
        """Remember what is undone until the operation that did it is there."""
        if record.undone_by is not None:
            self._undone.append((record.id, record.undone_by))
        if subject.agent:
            known = {name: by for name, by in self._undone if base.by_id(tx, OPERATION, self.scope, by) is not None}
            beside.mark_undone(tx, subject, {**beside.undone(tx, subject), **known})
            self._undone = [each for each in self._undone if each not in known.items()]

    def _put_key(self, tx: Tx, record: records.Key) -> None:
        self._close_branch(tx)
        session = 0 if record.session is None else self._owner(record.session, "key")
        named = (record.first, record.last, once.ENTRIES, "")
        if record.branch is None:
            allowed = records.MADE_BY_SESSION if session else (records.MADE_BY_STORE,)
            if record.made is None or record.made.kind not in allowed:
                raise Invalid(f"key {record.key!r} stands for nothing that there is here")
            named = (0, 0, record.made.kind, record.made.id)
        row = OnceRow(self.scope, session, record.key, 0, *named, record.digest, record.at_ms)
        if beside.put_key(tx, beside.Key(row, record.branch), session) is None:
            raise Invalid(f"key {record.key!r} stands for something that did not come before it")


def _tell(tx: Tx, session: SessionRow, now_ms: int) -> None:
    """Tell the feed of the changes of a session as after a copy, and its row where they stand."""
    told = session
    for kind, branch, first, last in _changes(tx, session):
        asked = {"branch": branch or session.branch, "first": first, "last": last, "now_ms": now_ms}
        position, rank = feed.record(tx, told, kind, **asked)
        told = told._replace(updated=position, rank=rank)
    sessions.write(tx, session, updated=told.updated, rank=told.rank)


def _changes(tx: Tx, session: SessionRow) -> Iterator[tuple[str, int, int, int]]:
    asked = session.scope, session.sid
    yield "session", 0, 0, 0
    if session.hidden == PURGED:
        yield "purge", 0, 0, 0
        return
    for branch in branches.of_session(tx, *asked, session.branches):
        if branch.tip_seq > branch.fork_seq:
            yield "entries", branch.bid, branch.fork_seq + 1, branch.tip_seq
    for (kind,) in tx.all(OPERATIONS, asked):
        yield beside.change_of(kind), 0, 0, 0
    for number, seq in tx.all(POINTS, asked):
        yield "checkpoint", number, seq, seq
    yield base.COPY, 0, 0, 0


def _require_storable(record: Any) -> None:
    """Refuse text for columns that no engine can keep; contents are bytes there, and hold anything."""
    texts = [value for value in map(record.__getattribute__, record.__struct_fields__) if isinstance(value, str)]
    texts += [text for call in getattr(record, "calls", ()) for text in call]
    if any("\0" in text for text in texts):
        raise Invalid("a name or an id holds a NUL")


def _bytes(value: Any) -> bytes:
    found = records.stored(value)
    if found is None:
        raise Invalid("a value is missing")
    return found


def _hash(text: str | None, size: int) -> Any:
    """Read a hash or a salt; nothing stays nothing."""
    if text is None:
        return None
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        raise Invalid(f"{text[:80]!r} is no hexadecimal number") from error
    if len(data) != size:
        raise Invalid(f"{text[:80]!r} does not have {size} bytes")
    return data
