"""The strict source: the records of a store that must be sound, each session as of one moment.

Every page is a read of its own, so writers of the store are never held up. What is about to be yielded is checked as
``verify`` checks it: damage that a row's own check does not show - a row that vanished, numbers that contradict each
other - would else come over as if it were so. ``salvage`` streams what it could prove through this source, too, and
then nothing is checked twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from ..errors import Corrupt
from ..files import timeline
from ..ops import agents, branches, sessions
from ..ops.log import key_of
from ..ops.verify import log
from ..ops.verify.agents import agent_faults, pin_fault
from ..ops.verify.base import Read, Said
from ..ops.verify.documents import document_fault
from ..ops.verify.files import TreeChecks
from ..ops.verify.history import CONTENT, ENTRY, checkpoint_fault, operation_fault
from ..ops.verify.timelines import workspace_fault
from ..storage.base import Tx, Value, scalar
from ..tables.agents import AGENT, AGENT_CHECKPOINT, PIN, AgentRow, PinRow
from ..tables.branches import BRANCH
from ..tables.documents import DOCUMENT, DocumentRow
from ..tables.entries import EntryRow, LinkRow
from ..tables.files import JOURNAL, SCAN, WORKSPACE, WorkspaceRow
from ..tables.history import CHECKPOINT, ONCE, OPERATION, OperationRow
from ..tables.live import DELTA, INBOX, STREAM
from ..tables.sessions import IS_STAGED, LEASE, PURGED, SessionRow
from ..tables.table import Table, slots
from . import as_of, strict_checks, timelines
from .agents import agent_of, is_staged
from .as_of import UNDONE, tally
from .choice import Choice
from .content_source import ContentSource, Known
from .stream import (
    AgentPoint,
    AgentRecord,
    BranchRecord,
    CheckpointRecord,
    Counted,
    DocumentRecord,
    EntriesRecord,
    Key,
    Live,
    OperationRecord,
    Pin,
    Record,
    SessionRecord,
    Version,
)
from .strict_checks import ROWS as ROWS

T = TypeVar("T")
R = TypeVar("R", bound="tuple[Any, ...]")

SPILLED = 128 << 10  # what an entry whose content lies in a blob counts for: reading it takes as long

# Each of these is asked of the whole store, or of one scope behind ``IN_SCOPE``.
IN_SCOPE = " AND {table}scope = ?"
ORPHAN = """SELECT b.uid FROM branch b LEFT JOIN session s ON s.scope = b.scope AND s.sid = b.session
WHERE s.sid IS NULL{scope} LIMIT 1"""
PLACES = "SELECT scope, sid, hidden, rank, updated FROM session WHERE sid > 0{scope}"
SIZES = f"""SELECT coalesce(length(body), 0) + coalesce(length(raw), 0) +
CASE WHEN spill IS NULL THEN 0 ELSE {SPILLED} END
FROM entry WHERE scope = ? AND key > ? AND key <= ? ORDER BY key LIMIT ?"""
KEY_SCOPES = "SELECT DISTINCT scope FROM idempotency WHERE session = 0{scope} ORDER BY scope"
OF_SESSION = "scope = ? AND session = ?"
SCANS = "scope = ? AND wid = ? AND n > ? AND n <= ?"
SCANNED_FOR = "SELECT wid, n FROM scan INDEXED BY scan_session WHERE scope = ? AND session = ? AND session > 0"
TOTALS = (
    f"SELECT count(*) FROM session WHERE NOT ({IS_STAGED}){{scope}}",
    "SELECT count(*) FROM entry WHERE key > 0{scope}",
    "SELECT CAST(coalesce(sum(size), 0) AS BIGINT) FROM blob WHERE hash IS NOT NULL{scope}",
)


class _Subject(NamedTuple):
    """A session or an agent whose operations are to be yielded, up to the newest one of its moment."""

    name: str
    newest: int


class Source(ContentSource):
    """The records of a store: all of it, the scopes that are named, or what was chosen of one scope.

    ``live`` is for what is under way in the store, too; ``sound=False`` leaves the checks out.
    """

    def __init__(
        self,
        read: Read,
        *,
        scope: str | None = None,
        choice: Choice | None = None,
        live: bool = False,
        sound: bool = True,
    ) -> None:
        super().__init__(read, choice.scope if choice else scope)
        self._choice = choice
        self._live = live
        self._sound = sound
        self._trees = TreeChecks()
        self._sessions: dict[tuple[str, int], _Subject] = {}
        self._agents: dict[tuple[str, int], _Subject] = {}
        self._orders: dict[tuple[str, int], int] = {}  # of the sessions that were yielded and are not purged
        self._uid: tuple[tuple[str, int], str | None] = (("", 0), None)  # the branch that was last asked for

    def totals(self) -> dict[str, int]:
        """Return how many sessions, entries and bytes of content there are."""
        if self._choice is not None:
            return {"sessions": len(self._choice.sids)}
        found = self._read(lambda tx: [int(scalar(tx, *self._asked(each)) or 0) for each in TOTALS])
        return dict(zip(("sessions", "entries", "bytes"), found, strict=True))

    def _asked(self, sql: str, table: str = "") -> tuple[str, tuple[str, ...]]:
        """Return a statement and its values, for the whole store or for the one scope that is read."""
        if self._scope is None:
            return sql.format(scope=""), ()
        return sql.format(scope=IN_SCOPE.format(table=table)), (self._scope,)

    def records(self, known: Known) -> Iterator[Record]:
        """Yield everything that is not known yet; damage raises ``Corrupt``."""
        if self._sound:
            self._read(lambda tx: strict_checks.require_rows(tx, *self._asked(ORPHAN, "b.")))
        listed = self._listed()
        yield from self._all_agents(known)
        if self._choice is None:
            yield from self._all_contents(known)
        for order, (scope, sid) in sorted(enumerate(listed), key=lambda each: each[1]):
            yield from self._session(scope, sid, order, known)
        yield from self._timelines(known)
        yield from self._documents(known)
        yield from self._all_operations()
        yield from self._all_keys()

    def endings(self) -> Iterator[Record]:
        """Yield what comes last: sessions that were purged since they were yielded, and the checkpoints of agents."""
        yield from self._purged_since()
        yield from self._agent_points()
        yield from (key for key in self._store_keys() if key.row.kind == AGENT_CHECKPOINT.name)

    def _listed(self) -> list[tuple[str, int]]:
        """Return the sessions in the order in which they last changed; purged ones, which nobody lists, come first."""
        found = list[tuple[str, bool, int, int, int]]()
        for scope, sid, hidden, rank, updated in self._read(lambda tx: tx.all(*self._asked(PLACES))):
            if self._choice is None or sid in self._choice.sids:
                seen = hidden != PURGED
                found.append((scope, seen, rank if seen else 0, updated if seen else 0, sid))
        return [(scope, sid) for scope, _, _, _, sid in sorted(found)]

    def _walk(self, table: Table[R], where: str, args: tuple[Value, ...], *, key: str) -> Iterator[R]:
        """Yield the rows that a condition finds, ordered by their key, a page per read."""
        columns, after = key.split(", "), tuple[Any, ...]()
        while True:
            behind = f"AND ({key}) > ({slots(len(after))})" if after else ""
            sql, asked = f"WHERE {where} {behind} ORDER BY {key} LIMIT ?", (*args, *after, ROWS)
            rows = self._read(lambda tx: table.all(tx, sql, asked))  # noqa: B023
            yield from rows
            if len(rows) < ROWS:
                return
            after = tuple(getattr(rows[-1], name) for name in columns)

    def _branch(self, scope: str, bid: int) -> str | None:
        """Return the id of a branch, None if it is not there; rows that follow one another mostly name the same."""
        if bid and self._uid[0] != (scope, bid):
            found = self._read(lambda tx: BRANCH.get(tx, scope, bid))
            self._uid = (scope, bid), found.uid if found else None
        return self._uid[1] if bid else None

    def _require(self, table: Table[R], row: R, faults: Callable[[Tx, R], Said]) -> None:
        """Refuse a row of which verify says that something does not fit."""
        if self._sound:
            self._read(lambda tx: strict_checks.require(tx, table, row, faults))

    # ------------------------------------------------------------------ agents

    def _all_agents(self, known: Known) -> Iterator[Record]:
        """Yield agents, those in the trash first: they leave their id to others."""
        aids = None if self._choice is None else self._choice.aids
        rows = [row for row in self._pages(AGENT) if aids is None or row.aid in aids]
        found = sorted((row.hidden == 0, row.scope, row.id, row.created_ms, row.aid) for row in rows)
        for _, scope, _, _, aid in found:
            agent, newest = self._read(lambda tx: self._agent(tx, scope, aid))  # noqa: B023
            if is_staged(agent.row):
                continue
            at = known.agent(agent)
            if at is None:
                continue
            self._agents[scope, aid] = _Subject(agent.name, newest.number)
            yield agent
            yield from self._versions(agent.row, at)

    def _agent(self, tx: Tx, scope: str, aid: int) -> tuple[AgentRecord, Counted]:
        row = agents.by_number(tx, scope, aid)
        if self._sound:
            strict_checks.require(tx, AGENT, row, agent_faults)
        undone = tuple(tx.all(UNDONE, (scope, 0, aid)))
        done = tally(tx, as_of.OPERATIONS, as_of.OPERATION_ID, scope, 0, aid)
        return agent_of(tx, row)._replace(undone=undone, operations=done.total), done

    def _versions(self, agent: AgentRow, at: int) -> Iterator[Record]:
        while at < agent.version:
            rows = self._read(lambda tx: strict_checks.versions(tx, agent, at))  # noqa: B023
            yield from map(Version, rows)
            at = rows[-1].version

    # ------------------------------------------------------------------ a session

    def _session(self, scope: str, sid: int, order: int, known: Known) -> Iterator[Record]:
        session = self._read(lambda tx: self._moment(tx, scope, sid, order))
        tips = None if session.staged else known.session(session, lambda: self._require_session(scope, sid))
        if tips is None:
            return
        self._sessions[scope, sid] = _Subject(session.row.id, session.operations.number)
        if not session.purged:
            self._orders[scope, sid] = order
        yield session
        try:
            yield from self._parts(session, tips, known)
        except Corrupt:
            again = self._read(lambda tx: self._moment(tx, scope, sid, order))
            if not again.purged or session.purged:
                raise
            del self._orders[scope, sid]
            yield again  # it was purged meanwhile

    def _require_session(self, scope: str, sid: int) -> None:
        if self._sound:
            self._read(lambda tx: strict_checks.require_session(tx, scope, sid))

    def _moment(self, tx: Tx, scope: str, sid: int, order: int) -> SessionRecord:
        row = sessions.by_number(tx, scope, sid)
        session = as_of.of(tx, row, order)
        return session._replace(doc=sessions.detail(tx, row)) if self._live else session

    def _parts(self, session: SessionRecord, tips: dict[str, int], known: Known) -> Iterator[Record]:
        for branch in session.branches:
            uid, at = branch.row.uid, branch.row.fork_seq
            if uid not in tips:
                yield branch
            at = max(at, tips.get(uid, at))
            while at < branch.tip:
                page = self._read(lambda tx: self._page(tx, branch, at))  # noqa: B023
                yield from self._needed(page, known)
                yield page
                at = page.high
        yield from self._points(session)
        if self._live:
            yield from self._under_way(session.row)

    def _page(self, tx: Tx, branch: BranchRecord, low: int) -> EntriesRecord:
        """Read the next entries of a branch; whatever is damaged or missing raises ``Corrupt``."""
        row = branches.get(tx, branch.row.scope, branch.row.bid)
        first = key_of(row.bid, 0)
        count = strict_checks.shares(tx.all(SIZES, (row.scope, first + low, first + branch.tip, ROWS)))
        line = log.line_of(tx, row)._replace(tip=branch.tip, tip_hash=branch.hash)
        rows = log.read_rows(tx, line, low, count)
        if not rows or [each.key for each in rows] != list(range(first + low + 1, first + low + count + 1)):
            raise strict_checks.damage(row, low + 1, "it is missing, or one behind it is")
        if self._sound:
            self._require_entries(tx, line, low, rows)
        previous = branch.fork_hash if low == row.fork_seq else as_of.hash_at(tx, row, low)
        gone = strict_checks.lost(tx, row, low, low + count)
        links = strict_checks.links(tx, row, rows, {each.key for each in gone if each.what in (CONTENT, ENTRY)})
        return EntriesRecord(row.uid, previous or b"", rows, links, gone)

    def _require_entries(self, tx: Tx, line: log.WalkedBranch, low: int, rows: list[EntryRow]) -> None:
        """Check entries as verify does: their checks, the chain, and what follows from them."""
        before = log.before_of(tx, line, low)
        for row in rows:
            if fault := log.entry_fault(tx, line, row, before) or self._trees.fault(tx, row, lost=row.seq in line.lost):
                raise strict_checks.damage(line.branch, row.seq, fault.what)
            before = log.after_of(line, row, before)

    def _points(self, session: SessionRecord) -> Iterator[Record]:
        asked = (session.row.scope, session.row.sid, session.checkpoints.number)
        for row in self._walk(CHECKPOINT, f"{OF_SESSION} AND cid <= ?", asked, key="cid"):
            self._require(CHECKPOINT, row, checkpoint_fault)
            yield CheckpointRecord(row, self._branch(row.scope, row.branch) or "")

    def _under_way(self, session: SessionRow) -> Iterator[Record]:
        """Yield who runs a session, the answers that are being written, the messages that wait, a change of files."""
        own = (session.scope, session.sid)
        tables: tuple[Table[Any], ...] = (LEASE, STREAM, INBOX, JOURNAL)
        for table in tables:
            for row in self._walk(table, OF_SESSION, own, key=", ".join(table.key)):
                bid = row.branch if table is STREAM else row.key >> 32 if table is INBOX else 0
                yield Live(table, row, self._branch(session.scope, bid))
                if table is STREAM:
                    pieces = self._walk(DELTA, "scope = ? AND stream = ?", (row.scope, row.id), key="n")
                    yield from (Live(DELTA, each) for each in pieces)

    def _purged_since(self) -> Iterator[Record]:
        """Yield again the sessions that were purged after they were read: what was brought of them is to be erased."""
        for (scope, sid), order in self._orders.items():
            if self._read(lambda tx: sessions.by_number(tx, scope, sid)).hidden == PURGED:  # noqa: B023
                yield self._read(lambda tx: self._moment(tx, scope, sid, order))  # noqa: B023

    # ------------------------------------------------------------------ what belongs to no session alone

    def _timelines(self, known: Known) -> Iterator[Record]:
        """Yield the timelines of workspaces; of chosen sessions only the scans that were made for them."""
        if self._live:
            yield from (Live(JOURNAL, row) for row in self._pages(JOURNAL) if row.session is None)
        chosen = None if self._choice is None else self._choice.sids
        wanted = dict[int, list[int]]()
        for sid in sorted(chosen or ()):
            for wid, n in self._read(lambda tx: tx.all(SCANNED_FOR, (self._scope, sid))):  # noqa: B023
                wanted.setdefault(wid, []).append(n)
        for row in self._pages(WORKSPACE):
            if chosen is None or row.wid in wanted:
                self._require(WORKSPACE, row, workspace_fault)
                record = self._read(lambda tx: timelines.workspace_of(tx, row, chosen))  # noqa: B023
                after = known.workspace(record)
                if after is not None:
                    yield record
                    yield from self._scans(row, after, sorted(wanted.get(row.wid, ())), known)

    def _scans(self, row: WorkspaceRow, after: int, numbers: list[int], known: Known) -> Iterator[Record]:
        chosen = None if self._choice is None else self._choice.sids
        found = self._walk(SCAN, SCANS, (row.scope, row.wid, after, row.tip), key="n")
        if chosen is not None:
            each_of = (self._read(lambda tx: timeline.scan_at(tx, row, n)) for n in numbers)  # noqa: B023
            found = (each for each in each_of if each is not None and after < each.n <= row.tip)
        for scan in found:
            if scan.root is not None:
                try:
                    link = LinkRow(scan.scope, scan.root, 0)
                    yield from self._linked(link, known, is_root=True, strict=not scan.lacks)
                except Corrupt:
                    if self._read(lambda tx: timeline.scan_at(tx, row, scan.n)) == scan:  # noqa: B023
                        raise  # it was not purged meanwhile
            yield self._read(lambda tx: self._scan(tx, row, scan.n))  # noqa: B023

    def _scan(self, tx: Tx, row: WorkspaceRow, n: int) -> Record:
        scan = timeline.scan_at(tx, row, n)
        if scan is None:
            raise Corrupt(f"scan {n} of {row.path} is missing", what=f"workspace {row.path}")
        if self._sound:
            strict_checks.require_scan(tx, scan, self._trees)
        return timelines.scan_of(tx, row, scan, None if self._choice is None else self._choice.sids)

    def _documents(self, known: Known) -> Iterator[Record]:
        """Yield documents; with chosen sessions only if they were chosen too, and then none that is gone."""
        if self._choice is not None and not self._choice.documents:
            return
        for row in self._pages(DOCUMENT, 100):
            if not (row.hidden and self._choice is not None):
                yield from self._document(row, known)

    def _document(self, row: DocumentRow, known: Known) -> Iterator[Record]:
        record = DocumentRecord(row, kept=self._live)
        if not known.document(record):
            return
        try:
            self._require(DOCUMENT, row, document_fault)
            if row.hash is not None:
                yield from self._linked(LinkRow(row.scope, row.hash, 0), known, is_root=False, strict=True)
            yield record
        except Corrupt:
            again = self._read(lambda tx: DOCUMENT.get(tx, row.scope, row.did))
            if again is None or again == row:
                raise
            yield from self._document(again, known)  # it was put anew meanwhile, and its old value pruned

    def _all_operations(self) -> Iterator[Record]:
        """Yield the operations on what was yielded, in the order in which they were made."""
        if self._choice is None:
            rows: Iterable[OperationRow] = self._pages(OPERATION)
        else:
            rows = sorted(self._operations_of(), key=lambda row: row.oid)
        for row in rows:
            session = self._sessions.get((row.scope, row.session))
            agent = self._agents.get((row.scope, row.agent))
            subject = session or agent
            if subject is None and (row.session or row.agent):
                continue  # it is on something that is there already, or was made meanwhile
            if subject is None or row.oid <= subject.newest:
                yield self._operation(row, session and session.name, agent and agent.name)

    def _operations_of(self) -> Iterator[OperationRow]:
        asked = [(scope, sid, 0, each.newest) for (scope, sid), each in self._sessions.items()]
        asked += [(scope, 0, aid, each.newest) for (scope, aid), each in self._agents.items()]
        for args in asked:
            yield from self._walk(OPERATION, f"{OF_SESSION} AND agent = ? AND oid <= ?", args, key="oid")

    def _operation(self, row: OperationRow, session: str | None, agent: str | None) -> OperationRecord:
        self._require(OPERATION, row, operation_fault)
        undoes = None if row.undoes is None else self._read(lambda tx: OPERATION.get(tx, row.scope, row.undoes))
        place = None if not row.workspace else self._read(lambda tx: WORKSPACE.get(tx, row.scope, row.workspace))
        return OperationRecord(row, session, agent, undoes.id if undoes else None, place.uid if place else None)

    def _all_keys(self) -> Iterator[Record]:
        """Yield the keys of the sessions that were yielded, and of the store."""
        for (scope, sid), subject in self._sessions.items():
            yield from self._keys(scope, sid, subject.name)
        yield from (key for key in self._store_keys() if key.row.kind != AGENT_CHECKPOINT.name)

    def _store_keys(self) -> Iterator[Key]:
        for (scope,) in self._read(lambda tx: tx.all(*self._asked(KEY_SCOPES))):
            for key in self._keys(scope, 0, None):
                if self._choice is None or (key.row.kind == "session" and key.row.id in self._choice.ids):
                    yield key

    def _keys(self, scope: str, sid: int, name: str | None) -> Iterator[Key]:
        for row in self._walk(ONCE, OF_SESSION, (scope, sid), key="ikey, branch, seq"):
            yield Key(row, name, self._branch(scope, row.branch))

    def _agent_points(self) -> Iterator[Record]:
        if self._choice is not None:
            return
        last = dict[tuple[str, int], str]()
        for row in self._pages(AGENT_CHECKPOINT):
            if self._sound and (row.scope, row.agent) not in last:
                self._read(lambda tx: strict_checks.require_agent_points(tx, row.scope, row.agent))  # noqa: B023
            pins = self._walk(PIN, "scope = ? AND checkpoint = ?", (row.scope, row.acid), key="session")
            agent = self._read(lambda tx: agent_of(tx, agents.by_number(tx, row.scope, row.agent)))  # noqa: B023
            yield AgentPoint(row, agent.name, tuple(map(self._pin, pins)), last.get((row.scope, row.agent), ""))
            last[row.scope, row.agent] = row.id

    def _pin(self, row: PinRow) -> Pin:
        self._require(PIN, row, pin_fault)
        session = self._read(lambda tx: sessions.by_number(tx, row.scope, row.session))
        return Pin(row, session.id, self._branch(row.scope, row.branch) or "")
