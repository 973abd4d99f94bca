"""The records of a store, in an order in which each names only what came before it.

Agents first, by id, then content, by hash, then sessions in the order in which they were made, so that one that was
forked comes behind its origin and a sub-agent behind the session above. The order is the same in any store that was
filled from these records, so they come out of it as they went in. Each page is a read of its own: the store that is
read is a copy that nobody else writes to.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...storage.base import Row
from .. import agents, blobs, entries, sessions
from ..agents import AgentRow
from ..sessions import SessionRow
from ..transfer import agents as copied_agents
from ..transfer import moments, pages
from ..transfer import records as beside
from ..transfer.moments import Moment, Part
from ..transfer.records import Subject
from ..verify.base import Read
from . import records
from .records import Record

AGENTS = f"SELECT {agents.COLUMNS} FROM agent WHERE scope = ? AND (id, aid) > (?, ?) ORDER BY id, aid LIMIT ?"
BLOBS = """SELECT hash, size, chunks, blob_id FROM blob WHERE scope = ? AND hash > ? AND hash IS NOT NULL
ORDER BY hash LIMIT ?"""
SESSIONS = f"SELECT {sessions.COLUMNS} FROM session WHERE scope = ? AND sid > ? ORDER BY sid LIMIT ?"
ORDER = "SELECT sid FROM session WHERE scope = ? ORDER BY rank, sid"

_PAGE = 200
_ALL = 1 << 62


def all_records(read: Read, scope: str) -> Iterator[Record]:
    """Give all records of a scope but the first and the last line."""
    yield from _agents(read, scope)
    yield from _blobs(read, scope)
    order = {sid: place for place, (sid,) in enumerate(read(lambda tx: tx.all(ORDER, (scope,))))}
    after = 0
    while rows := read(lambda tx: tx.all(SESSIONS, (scope, after, _PAGE))):  # noqa: B023
        for row in rows:
            yield from _session(read, sessions.checked(row), order[row[0]])
        after = rows[-1][0]
    for key in beside.store_keys(read, scope):
        if key.made is not None and key.made.kind == "session":
            made = records.Made(key.made.kind, key.made.id)
            yield records.Key(key=key.ikey, digest=key.digest, made=made)


# ---------------------------------------------------------------------- agents and content


def _agents(read: Read, scope: str) -> Iterator[Record]:
    after = ("", 0)
    while rows := read(lambda tx: tx.all(AGENTS, (scope, *after, _PAGE))):  # noqa: B023
        for row in rows:
            agent = agents.checked(row)
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
        after = (rows[-1][2], rows[-1][0])


def _versions(read: Read, agent: AgentRow) -> Iterator[Record]:
    after = 0
    while after < agent.version:
        rows = read(lambda tx: copied_agents.versions(tx, agent, after, agent.version))  # noqa: B023
        for _, _, version, at_ms, state, _ in rows:
            yield records.AgentVersion(agent=agent.id, version=version, at_ms=at_ms, state=records.shown(state))
        after = rows[-1][2]


def _blobs(read: Read, scope: str) -> Iterator[Record]:
    after = ""
    while rows := read(lambda tx: tx.all(BLOBS, (scope, after, _PAGE))):  # noqa: B023
        for name, size, chunks, blob_id in rows:
            yield records.Blob(hash=name, size=size, chunks=chunks)
            for number in range(chunks):
                data = read(lambda tx: blobs.read_chunk(tx, scope, blob_id, number))  # noqa: B023
                yield records.Chunk(blob=name, n=number, data=records.shown_as_text(data))
        after = rows[-1][0]


# ---------------------------------------------------------------------- a session


def _session(read: Read, row: SessionRow, order: int) -> Iterator[Record]:
    moment = read(lambda tx: moments.of(tx, row))
    yield _described(moment, order)
    for part in moment.parts:
        yield from _branch(read, moment, part)
    for found in read(lambda tx: beside.new_checkpoints(tx, row.sid, row.scope, 0)):
        yield _checkpoint(found, row.id)
    yield from _operations(read, Subject(row.scope, row.sid, 0), session=row.id)
    for key in beside.keys(read, moment, -1):
        made = None if key.made is None else records.Made(key.made.kind, key.made.id)
        if key.uid is not None or made is not None:
            place = {"first": key.first, "last": key.last} if key.uid is not None else {}
            yield records.Key(key=key.ikey, session=row.id, branch=key.uid, digest=key.digest, made=made, **place)


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
    lost = dict[int, tuple[str, int]]() if first is None else {seq: (what, ms) for seq, what, ms in first.lost}
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


def _entries(page: pages.Page) -> Iterator[Record]:
    lost = {seq: (what, at_ms) for seq, what, at_ms in page.lost}
    calls, links = dict[int, list[tuple[str, str]]](), dict[int, list[str]]()
    for seq, what, call_id in page.calls:
        calls.setdefault(seq, []).append((what, call_id))
    for seq, content_hash in page.links:
        links.setdefault(seq, []).append(content_hash)
    for row in page.rows:
        seq = row[0] & entries.MAX_SEQ
        yield records.Entry(
            branch=page.uid,
            seq=seq,
            kind=row[1],
            at_ms=row[2],
            id=row[4],
            body=records.shown(row[5]),
            raw=records.shown(row[6]),
            spill=row[7],
            totals=records.Totals(row[10], row[3], *row[11:21]),
            calls=tuple(sorted(calls.get(seq, ()))),
            links=tuple(sorted(links.get(seq, ()))),
            lost=lost.get(seq),
            salt=None if row[21] is None else row[21].hex(),
            body_hash=None if row[22] is None else row[22].hex(),
            hash=row[23].hex(),
        )


def _checkpoint(row: Row, session_id: str) -> Record:
    return records.Checkpoint(
        id=row[2],
        session=session_id,
        name=row[4],
        description=row[5],
        kind=row[6],
        at_ms=row[7],
        branch=row[12],
        seq=row[9],
        hash=row[10].hex(),
    )


def _operations(
    read: Read, subject: Subject, *, session: str | None = None, agent: str | None = None
) -> Iterator[Record]:
    undone = read(lambda tx: beside.undone(tx, subject))
    for page in beside.operation_pages(read, subject, 0, _ALL):
        for row in page:
            yield records.Operation(
                id=row[2],
                kind=row[3],
                session=session,
                agent=agent,
                at_ms=row[6],
                before=records.shown(row[7]),
                after=records.shown(row[8]),
                undoes=row[12],
                undone_by=undone.get(row[2]),
            )
