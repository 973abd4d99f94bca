"""Putting records into an empty store that nobody else has open: a row for each, with numbers and checks of its own.

Nothing in a record is trusted but its form: a name that came before must be there, places must follow one another.
Whether it is all true - the chain of hashes, the totals, what calls and links say - is for ``verify`` to judge once
everything is written; what a store computes for itself is computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ...errors import Invalid
from ...ids import is_id
from ...model.status import STATUSES
from ...storage.base import Tx, row_check
from .. import agents, blobs, branches, chain, checkpoints, entries, feed, operations, sessions
from ..branches import BranchRow
from ..sessions import NO_NUMBERS, SessionRow
from ..transfer import base, meaning, pages
from ..transfer import records as beside
from ..transfer.base import sealed
from ..verify import places
from ..verify.tables import LOST_KIND
from . import records

OPERATIONS = "SELECT kind FROM operation WHERE scope = ? AND session = ? ORDER BY oid"
POINTS = "SELECT branch, seq FROM checkpoint WHERE scope = ? AND session = ? ORDER BY cid"
PURGED = 2
_LOST_CHANGE = "operation"


class Writer:
    """Writes the records of one file, in their order."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.sessions: dict[str, int] = {}  # by id, the number of each
        self.purged: dict[str, int] = {}  # those of them that are there only because others read from them
        self._depths: dict[str, int] = {}
        self._order: list[tuple[int, int]] = []
        self._agent: tuple[str, int, int] | None = None  # id, number and the version that comes next
        self._blob: tuple[records.Blob, int, int] | None = None  # with its number and the chunk that comes next
        self._session: records.Session | None = None
        self._branch: BranchRow | None = None
        self._undone: list[tuple[str, str]] = []

    def state(self) -> dict[str, Any]:
        """Give what is remembered between records, for ``resume``: a transaction may run again from its beginning."""
        return {name: value.copy() if isinstance(value, dict | list) else value for name, value in vars(self).items()}

    def resume(self, state: dict[str, Any]) -> None:
        """Remember what was so when ``state`` was called, and nothing since."""
        for name, value in state.items():
            setattr(self, name, value.copy() if isinstance(value, dict | list) else value)

    def put(self, tx: Tx, record: Any) -> None:
        """Write a record; one that cannot stand where it stands is ``Invalid``."""
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

    def tell(self, tx: Tx) -> None:
        """Write the feed as it is after a copy: sessions in the order in which they last changed."""
        for _, sid in sorted(self._order):
            _Told(tx, sessions.by_number(tx, sid)).write()

    # ------------------------------------------------------------------ agents and content

    def _put_agent(self, tx: Tx, record: records.Agent) -> None:
        if self._session is not None or self._blob is not None:
            raise Invalid("an agent stands behind a session or a content; agents come first")
        if agents.find(tx, self.scope, record.id) is not None or (self._agent and self._agent[0] == record.id):
            raise Invalid(f"agent {record.id!r} is there twice")
        aid, fields = tx.next("agent"), _bytes(record.fields)
        row = (aid, self.scope, record.id, record.hidden, record.version, record.created_ms, record.modified_ms, fields)
        tx.run(agents.INSERT, sealed(row))
        self._agent = record.id, aid, 1

    def _put_version(self, tx: Tx, record: records.AgentVersion) -> None:
        if self._agent is None or self._agent[0] != record.agent or self._agent[2] != record.version:
            raise Invalid(f"version {record.version} of agent {record.agent!r} does not follow the one before it")
        row = (self.scope, self._agent[1], record.version, record.at_ms, records.stored(record.state))
        tx.run(agents.ADD_VERSION, sealed(row))
        feed.record_agent(tx, self.scope, self._agent[1], "agent")
        self._agent = self._agent[0], self._agent[1], record.version + 1

    def _put_blob(self, tx: Tx, record: records.Blob) -> None:
        self._close_blob()
        if self._session is not None:
            raise Invalid("a content stands behind a session; contents come first")
        if blobs.exists(tx, self.scope, record.hash):
            raise Invalid(f"content {record.hash[:12]} is there twice")
        row = (tx.next("blob"), self.scope, record.hash, record.size, record.chunks, 0)
        tx.run(blobs.BEGIN, sealed(row))
        self._blob = record, int(row[0]), 0

    def _put_chunk(self, tx: Tx, record: records.Chunk) -> None:
        if self._blob is None or (self._blob[0].hash, self._blob[2]) != (record.blob, record.n):
            raise Invalid(f"chunk {record.n} of content {record.blob[:12]} does not follow the one before it")
        blob, blob_id, number = self._blob
        data = records.stored(record.data)
        if data is None or not 0 < len(data) <= blobs.CHUNK:
            raise Invalid(f"chunk {record.n} of content {record.blob[:12]} is empty or too large")
        blobs.add_chunk(tx, self.scope, blob_id, number, blobs.pack_small(data))
        self._blob = blob, blob_id, number + 1

    def _close_blob(self) -> None:
        if self._blob is not None and self._blob[2] != self._blob[0].chunks:
            raise Invalid(f"of content {self._blob[0].hash[:12]} a chunk is missing")

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
        sid = tx.next("session")
        cold: tuple[Any, ...] = (
            sid,
            self.scope,
            record.id,
            record.key,
            record.agent,
            record.kind,
            record.name,
            record.label,
        )
        cold += (record.workspace, parent, record.status, record.archived, record.pinned, record.hidden, record.title)
        cold += (record.tags, record.created_ms, record.tasks, record.completed, record.builds, record.states)
        head: tuple[Any, ...] = (0, "", 0, 0, 0, chain.GENESIS, *NO_NUMBERS, 0, record.revision, 0, record.updated_ms)
        head += (record.message_ms, 0)
        self._insert(tx, (*sealed(cold), *head, row_check((sid, *head))), record)
        sessions.put_detail(tx, sid, _bytes(record.detail))
        self.sessions[record.id] = sid
        if record.hidden == PURGED:
            self.purged[record.id] = sid
        self._order.append((record.order, sid))
        self._session = record

    def _insert(self, tx: Tx, row: tuple[Any, ...], record: records.Session) -> None:
        if not record.hidden:
            held = sessions.find_by_key(tx, self.scope, record.key)
            if held is None and record.name is not None:
                named = {"agent": record.agent, "workspace": record.workspace, "name": record.name}
                held = sessions.find_by_name(tx, self.scope, **named)
            if held is None and record.label is not None:
                held = sessions.find_by_label(tx, self.scope, row[9], record.label)
            if held is not None:
                raise Invalid(f"session {record.id} has the key, name or label of session {held.id}")
        tx.run(sessions.INSERT, row)

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
        session = sessions.by_number(tx, sid)
        branch = base.find_branch(tx, self.scope, record.head.branch)
        if branch is None or branch.session != sid:
            raise Invalid(f"the head of session {record.id} is on branch {record.head.branch!r}, which it has not")
        if record.head.attached and record.head.seq != branch.tip_seq:
            raise Invalid(f"the head of session {record.id} is not at the end of its branch")
        point = entries.point_on(tx, self.scope, branch, record.head.seq)
        place = (branch.bid, branch.uid, branch.fork_seq, record.head.seq, int(record.head.attached), point.hash)
        counted = (session.branches, record.revision, 0, record.updated_ms, record.message_ms, 0)
        sessions.write_head(tx, session, (*place, *point.numbers, *counted))
        beside.mark_undone(tx, beside.Subject(self.scope, sid, 0), dict(self._undone))
        self._undone, self._session = [], None

    # ------------------------------------------------------------------ branches and entries

    def _put_branch(self, tx: Tx, record: records.Branch) -> None:
        self._close_branch(tx)
        session = self._owner(record.session, "branch")
        if base.find_branch(tx, self.scope, record.id) is not None:
            raise Invalid(f"branch {record.id!r} is there twice")
        parent = None if record.parent is None else base.find_branch(tx, self.scope, record.parent)
        fork = chain.GENESIS if parent is None else base.hash_at(tx, parent, record.fork_seq)
        if (record.parent is not None and parent is None) or fork is None or (parent is None and record.fork_seq):
            raise Invalid(f"branch {record.id} starts at an entry that did not come before it")
        if tx.one(branches.BY_NAME, (self.scope, session, record.name)):
            raise Invalid(f"session {record.session} has two branches called {record.name!r}")
        depth, jump, jump_seq = places.shortcut(tx, parent, record.fork_seq)
        made = BranchRow(
            bid=tx.next("branch"),
            scope=self.scope,
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
        tx.run(branches.INSERT, sealed(made))
        self._put_lost(tx, entries.key_of(made.bid, 0), record.lost)
        row = sessions.by_number(tx, session)
        sessions.write_head(tx, row, (*row.head[:18], row.branches + 1, *row.head[19:]))
        self._branch = made

    def _owner(self, session_id: str | None, what: str) -> int:
        if self._session is None or session_id != self._session.id:
            raise Invalid(f"the {what} of session {session_id!r} stands behind another session")
        return self.sessions[self._session.id]

    def _put_entry(self, tx: Tx, record: records.Entry) -> None:
        branch = self._branch
        if branch is None or (branch.uid, branch.tip_seq + 1) != (record.branch, record.seq):
            raise Invalid(f"entry {record.branch}-{record.seq} does not follow the one before it")
        if record.seq > entries.MAX_SEQ:
            raise Invalid(f"entry {record.branch}-{record.seq} has a number that no entry has")
        key, totals = entries.key_of(branch.bid, record.seq), record.totals
        numbers = tuple(getattr(totals, name) for name in totals.__struct_fields__)
        content = (records.stored(record.body), records.stored(record.raw), record.spill)
        row = (key, record.kind, record.at_ms, numbers[1], record.id, *content)
        hashed = _hash(record.hash, 32)
        chained = (self.scope, numbers[0], *numbers[2:], _hash(record.salt, 16), _hash(record.body_hash, 32), hashed)
        tx.run(entries.INSERT, (*sealed(row), *chained, row_check((key, numbers[1], *chained))))
        for what, call_id in dict.fromkeys(record.calls):
            tx.run(entries.ADD_CALL, sealed((self.scope, key, what, call_id)))
        for content_hash in dict.fromkeys(record.links):
            tx.run(entries.ADD_LINK, sealed((self.scope, content_hash, key)))
        self._put_lost(tx, key, record.lost)
        self._branch = branch._replace(tip_seq=record.seq, tip_hash=hashed)

    def _put_lost(self, tx: Tx, key: int, lost: tuple[str, int] | None) -> None:
        if lost is not None:
            tx.run(pages.ADD_LOST, sealed((key, self.scope, *lost)))

    def _close_branch(self, tx: Tx) -> None:
        if self._branch is not None:
            branches.set_tip(tx, self._branch, self._branch.tip_seq, self._branch.tip_hash)
        self._branch = None

    # ------------------------------------------------------------------ beside the log

    def _put_checkpoint(self, tx: Tx, record: records.Checkpoint) -> None:
        self._close_branch(tx)
        session, branch = self._owner(record.session, "checkpoint"), base.find_branch(tx, self.scope, record.branch)
        if branch is None or tx.one(checkpoints.BY_ID, (self.scope, record.id)):
            raise Invalid(f"checkpoint {record.id} is on a branch that did not come before it, or is there twice")
        row = (tx.next("checkpoint"), self.scope, record.id, session, record.name, record.description, record.kind)
        tx.run(checkpoints.INSERT, sealed((*row, record.at_ms, branch.bid, record.seq, _hash(record.hash, 32))))

    def _put_operation(self, tx: Tx, record: records.Operation) -> None:
        self._close_branch(tx)
        if record.agent is not None and self._agent is not None and self._session is None:
            session, agent = 0, self._agent[1] if record.agent == self._agent[0] else 0
        else:
            session, agent = self._owner(record.session, "operation"), 0
        if not session and not agent:
            raise Invalid(f"operation {record.id} stands behind another agent than its own")
        if tx.one(operations.BY_ID, (self.scope, record.id)):
            raise Invalid(f"operation {record.id} is there twice")
        undoes = None if record.undoes is None else tx.one(beside.NUMBER, (self.scope, record.undoes))
        if record.undoes is not None and undoes is None:
            raise Invalid(f"operation {record.id} takes back one that did not come before it")
        row = (tx.next("operation"), self.scope, record.id, record.kind, session, agent, record.at_ms)
        data = (_bytes(record.before), _bytes(record.after), undoes[0] if undoes else None, None)
        tx.run(operations.INSERT, sealed((*row, *data)))
        self._note_undone(tx, record, session, agent)

    def _note_undone(self, tx: Tx, record: records.Operation, session: int, agent: int) -> None:
        """Remember what is undone until the operation that did it is there."""
        if session and record.undone_by is not None:
            self._undone.append((record.id, record.undone_by))
        elif agent:
            self._undone += [(record.id, record.undone_by)] if record.undone_by is not None else []
            known = [each for each in self._undone if tx.one(beside.NUMBER, (self.scope, each[1]))]
            subject = beside.Subject(self.scope, 0, agent)
            beside.mark_undone(tx, subject, {**beside.undone(tx, subject), **dict(known)})
            self._undone = [each for each in self._undone if each not in known]

    def _put_key(self, tx: Tx, record: records.Key) -> None:
        self._close_branch(tx)
        session = 0 if record.session is None else self._owner(record.session, "key")
        made = None if record.made is None else meaning.Made(record.made.kind, record.made.id)
        if made is not None and made.kind not in meaning.NUMBERS:
            raise Invalid(f"key {record.key!r} stands for a {made.kind!r}, which is nothing here")
        key = beside.Key(record.key, record.branch, record.first, record.last, record.digest, made)
        if beside.put_key(tx, self.scope, session, key) is None:
            raise Invalid(f"key {record.key!r} stands for something that did not come before it")


class _Told:
    """The changes of one session, as the feed tells of them after a copy."""

    def __init__(self, tx: Tx, session: SessionRow) -> None:
        self._tx, self._session = tx, session

    def write(self) -> None:
        """Write all of them, and where they stand into the session's row."""
        for kind, branch, first, last in self._changes():
            asked = {"branch": branch or self._session.branch, "first": first, "last": last}
            position, rank = feed.record(self._tx, self._session, kind, **asked)
            self._session = self._session._replace(updated=position, rank=rank)
        row = sessions.by_number(self._tx, self._session.sid)
        moved = row._replace(updated=self._session.updated, rank=self._session.rank)
        sessions.write_head(self._tx, row, moved.head)

    def _changes(self) -> Iterator[tuple[str, int, int, int]]:
        session = self._session
        asked = session.scope, session.sid
        yield "session", 0, 0, 0
        if session.hidden == PURGED:
            yield "purge", 0, 0, 0
            return
        for branch in branches.of_session(self._tx, *asked, session.branches):
            if branch.tip_seq > branch.fork_seq:
                yield "entries", branch.bid, branch.fork_seq + 1, branch.tip_seq
        for (kind,) in self._tx.all(OPERATIONS, asked):
            yield (_LOST_CHANGE if kind == LOST_KIND else kind), 0, 0, 0
        for branch_number, seq in self._tx.all(POINTS, asked):
            yield "checkpoint", branch_number, seq, seq
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
