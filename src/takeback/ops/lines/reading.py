"""The records of a store, in an order in which each names only what came before it.

Agents first, by id, then content, by hash, then sessions in the order in which they were made, so that one that was
forked comes behind its origin and a sub-agent behind the session above. The order is the same in any store that was
filled from these records, so they come out of it as they went in. Each page is a read of its own: the store that is
read is a copy that nobody else writes to.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ids import MAX_SEQ
from ...tables.agents import AGENT, AgentRow
from ...tables.content import BLOB
from ...tables.history import CheckpointRow
from ...tables.sessions import SESSION, SessionRow
from .. import blobs
from ..transfer import agents as copied_agents
from ..transfer import moments, pages
from ..transfer import records as beside
from ..transfer.moments import Moment, Part
from ..transfer.records import Subject
from ..verify.base import Read
from . import records
from .records import Record

AGENTS = "WHERE scope = ? AND (id, aid) > (?, ?) ORDER BY id, aid LIMIT ?"
BLOBS = "WHERE scope = ? AND hash > ? AND hash IS NOT NULL ORDER BY hash LIMIT ?"
SESSIONS = "NOT INDEXED WHERE scope = ? AND sid > ? ORDER BY sid LIMIT ?"
ORDER = "SELECT sid FROM session WHERE scope = ? ORDER BY rank, updated"

_PAGE = 200
_ALL = 1 << 62


def all_records(read: Read, scope: str) -> Iterator[Record]:
    """Yield all records of a scope but the first and the last line."""
    yield from _agents(read, scope)
    yield from _blobs(read, scope)
    order = {sid: place for place, (sid,) in enumerate(read(lambda tx: tx.all(ORDER, (scope,))))}
    after = 0
    while rows := read(lambda tx: SESSION.all(tx, SESSIONS, (scope, after, _PAGE))):  # noqa: B023
        for row in rows:
            yield from _session(read, row, order[row.sid])
        after = rows[-1].sid
    for key in beside.store_keys(read, scope):
        if key.row.kind == records.MADE_BY_STORE:
            yield _key(key, None)


# ---------------------------------------------------------------------- agents and content


def _agents(read: Read, scope: str) -> Iterator[Record]:
    after = ("", 0)
    while rows := read(lambda tx: AGENT.all(tx, AGENTS, (scope, *after, _PAGE))):  # noqa: B023
        for agent in rows:
            yield records.Agent(
                id=agent.id,
                created_ms=agent.created_ms,
                modified_ms=agent.modified_ms,
                version=agent.version,
                hidden=agent.hidden,
                fields=records.shown(agent.fields),
            )
            yield from _versions(read, agent)
            yield from _operations(read, Subject(scope, 0, agent.aid), agent=agent.id)
        after = rows[-1].id, rows[-1].aid


def _versions(read: Read, agent: AgentRow) -> Iterator[Record]:
    after = 0
    while after < agent.version:
        rows = read(lambda tx: copied_agents.versions(tx, agent, after, agent.version))  # noqa: B023
        for row in rows:
            state = records.shown(row.state)
            yield records.AgentVersion(agent=agent.id, version=row.version, at_ms=row.at_ms, state=state)
        after = rows[-1].version


def _blobs(read: Read, scope: str) -> Iterator[Record]:
    after = ""
    while rows := read(lambda tx: BLOB.all(tx, BLOBS, (scope, after, _PAGE))):  # noqa: B023
        for blob in rows:
            yield records.Blob(hash=blob.hash or "", size=blob.size, chunks=blob.chunks)
            for number in range(blob.chunks):
                data = read(lambda tx: blobs.read_chunk(tx, scope, blob.blob_id, number))  # noqa: B023
                yield records.Chunk(blob=blob.hash or "", n=number, data=records.shown_as_text(data))
        after = rows[-1].hash or ""


# ---------------------------------------------------------------------- a session


def _session(read: Read, row: SessionRow, order: int) -> Iterator[Record]:
    moment = read(lambda tx: moments.of(tx, row))
    yield _described(moment, order)
    for part in moment.parts:
        yield from _branch(read, moment, part)
    for point, uid in read(lambda tx: beside.new_checkpoints(tx, row.scope, row.sid, "")):
        yield _checkpoint(point, uid, row.id)
    yield from _operations(read, Subject(row.scope, row.sid, 0), session=row.id)
    for key in beside.keys(read, moment, -1):
        if key.uid is not None or key.row.kind in records.MADE_BY_SESSION:
            yield _key(key, row.id)


def _described(moment: Moment, order: int) -> Record:
    row = moment.session
    return records.Session(
        id=row.id,
        key=f"purged:{row.id}" if moment.purged else row.key,  # what a purge writes there is random
        agent=row.agent,
        kind=row.kind,
        status=row.status,
        title=row.title,
        name=row.name,
        label=row.label,
        parent=moment.parent,
        workspace=row.workspace,
        tags=row.tags,
        archived=row.archived,
        pinned=row.pinned,
        hidden=row.hidden,
        created_ms=row.created_ms,
        updated_ms=row.updated_ms,
        message_ms=row.message_ms,
        head=records.Head(row.uid, row.seq, bool(row.attached)),
        revision=row.revision,
        tasks=row.tasks,
        completed=row.completed,
        builds=row.builds,
        states=row.states,
        order=order,
        detail=records.shown(moment.doc),
    )


def _branch(read: Read, moment: Moment, part: Part) -> Iterator[Record]:
    branch, at = part.branch, part.branch.fork_seq
    first = None if at >= part.tip else read(lambda tx: pages.read(tx, part, at, moment.session.states))
    lost = {} if first is None else _lost(first)
    yield records.Branch(
        id=branch.uid,
        session=moment.session.id,
        name=branch.name,
        parent=part.parent,
        fork_seq=branch.fork_seq,
        created_ms=branch.created_ms,
        hidden=branch.hidden,
        lost=lost.get(0),
    )
    while at < part.tip:
        page = first or read(lambda tx: pages.read(tx, part, at, moment.session.states))  # noqa: B023
        first = None
        yield from _entries(page)
        at = page.high


def _lost(page: pages.Page) -> dict[int, tuple[str, int]]:
    return {row.key & MAX_SEQ: (row.what, row.at_ms) for row in page.lost}


def _entries(page: pages.Page) -> Iterator[Record]:
    lost, links = _lost(page), dict[int, list[str]]()
    for link in page.links:
        links.setdefault(link.key, []).append(link.hash)
    for row in page.rows:
        found = row.chain
        yield records.Entry(
            branch=page.uid,
            seq=row.seq,
            kind=row.kind,
            at_ms=row.at_ms,
            late_ms=found.late_ms,
            id=row.mid,
            body=records.shown(row.body),
            raw=records.shown(row.raw),
            spill=row.spill,
            totals=records.Totals(*found.numbers),
            calls=found.calls,
            links=tuple(sorted(links.get(row.key, ()))),
            lost=lost.get(row.seq),
            salt=None if found.salt is None else found.salt.hex(),
            body_hash=None if found.body_hash is None else found.body_hash.hex(),
            hash=found.hash.hex(),
        )


def _checkpoint(row: CheckpointRow, uid: str, session_id: str) -> Record:
    return records.Checkpoint(
        id=row.id,
        session=session_id,
        name=row.name,
        description=row.description,
        kind=row.type,
        at_ms=row.at_ms,
        branch=uid,
        seq=row.seq,
        hash=row.hash.hex(),
    )


def _key(key: beside.Key, session_id: str | None) -> Record:
    row = key.row
    return records.Key(
        key=row.ikey,
        session=session_id,
        branch=key.uid,
        first=row.seq,
        last=row.last_seq,
        digest=row.digest,
        made=None if key.uid is not None else records.Made(row.kind, row.id),
        at_ms=row.at_ms,
    )


def _operations(
    read: Read, subject: Subject, *, session: str | None = None, agent: str | None = None
) -> Iterator[Record]:
    undone = read(lambda tx: beside.undone(tx, subject))
    for page in beside.operation_pages(read, subject, 0, _ALL):
        for row, undoes in page:
            yield records.Operation(
                id=row.id,
                kind=row.kind,
                session=session,
                agent=agent,
                at_ms=row.at_ms,
                before=records.shown(row.before),
                after=records.shown(row.after),
                undoes=undoes,
                undone_by=undone.get(row.id),
            )
