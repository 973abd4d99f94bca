"""Salvage of sessions: that every number has a row, where each stands, and what lies beside it.

A damaged row is left as it is until entries and branches are right. Then it is tried with every head that may have
been - the entries know, and the feed remembers where a head went - and with what other records know of it, until it
matches its check. If nothing fits, the place it names tells which part of it is damaged: hash and numbers there are
those of the entry, or they are not. Of the other part is kept what proves itself - an id has its form, a key names id
and agent, the agent has a record - and the rest is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

from ... import codec
from ...ids import is_id, new_id
from ...model.status import STATUSES
from ...ops import branches, chain, log, open_calls, sessions, work
from ...ops.open_calls import OpenCall
from ...ops.sessions import EMPTY, KINDS
from ...ops.verify import derived
from ...ops.verify.base import PURGED, UNREADABLE, intact, is_object
from ...ops.verify.sessions import ABOVE, ANY_AGENT, COUNT, has_session
from ...tables.branches import BRANCH, BranchRow
from ...tables.entries import ENTRY
from ...tables.history import FEED, OPERATION, FeedRow
from ...tables.sessions import DETAIL, SESSION, TAG, DetailRow, SessionRow
from . import agents
from .base import PARTLY, ReadRow, Salvage, proved

SCOPE = "SELECT scope FROM branch WHERE session = ? ORDER BY bid LIMIT 1"
CREATED = "SELECT min(created_ms) FROM branch WHERE session = ?"
OWNERS = "SELECT bid, session FROM branch"
CHILD_DETAILS = """SELECT doc FROM detail d JOIN session s ON s.scope = d.scope AND s.sid = d.sid WHERE s.parent = ?"""
# Who the agent of a session was: a pin knows, and a fork has the agent of the session that it was made from.
AGENT_OF = (
    """SELECT a.id FROM pin p JOIN agent_checkpoint c ON c.acid = p.checkpoint JOIN agent a ON a.aid = c.agent
WHERE p.session = ? LIMIT 1""",
    """SELECT s.agent FROM branch b JOIN branch p ON p.bid = b.parent JOIN session s ON s.sid = p.session
WHERE b.session = ? AND s.sid <> b.session ORDER BY b.bid LIMIT 1""",
    """SELECT s.agent FROM branch p JOIN branch b ON b.parent = p.bid JOIN session s ON s.sid = b.session
WHERE p.session = ? AND s.sid <> p.session ORDER BY b.bid LIMIT 1""",
)
TAKEN = "SELECT 1 FROM session WHERE scope = ? AND id = ? AND sid <> ?"
TAKEN_KEY = "SELECT 1 FROM session WHERE scope = ? AND key = ? AND hidden = 0 AND sid <> ?"
LAST_KIND = "SELECT kind FROM feed WHERE scope = ? AND session = ? ORDER BY pos DESC LIMIT 1"
APPENDS = "SELECT count(*) FROM feed WHERE scope = ? AND session = ? AND kind = 'entries'"
TIMES = """SELECT max(at_ms), max(CASE WHEN kind IN ('message', 'tool') THEN at_ms END) FROM entry
WHERE scope = ? AND key > ? AND key <= ?"""
UNKNOWN = "unknown"
_FEW = 5  # tags, of which every order is tried


def fix_sessions(fix: Salvage) -> None:
    """Make every number have a row, in the scope of its branches, by which branches and entries are found."""
    # One record alone that names a number behind the last row is more likely to be wrong than the row to be missing.
    named = {row.session for row in fix.sound(BRANCH)} & {row.session for row in fix.sound(FEED)}
    owners = {session for _, session in fix.tx.all(OWNERS)}
    for sid, found in fix.numbered(SESSION, named, owners):
        if found is None:
            _put_back(fix, sid)
        elif not found.sound:
            _put_unsound(fix, found.row._replace(scope=_scope(fix, found.row)), found.chk)


def _put_unsound(fix: Salvage, row: SessionRow, chk: int) -> None:
    """Write a row with a check that need not match it."""
    fix.delete(SESSION, row)
    fix.tx.run(SESSION.insert, (*SESSION.seal(row)[:-1], chk))


def _scope(fix: Salvage, row: SessionRow) -> str:
    found = fix.tx.one(SCOPE, (row.sid,))
    return str(found[0]) if found else row.scope


def _put_back(fix: Salvage, sid: int) -> None:
    texts: dict[str, Any] = {**dict.fromkeys(("scope", "key", "agent", "workspace", "tags"), ""), "status": "active"}
    nothing: dict[str, Any] = {**dict.fromkeys(SessionRow._fields, 0), "name": None, "label": None, "title": None}
    known = {"sid": sid, "id": _id_from_children(fix, sid), "kind": "main", "updated_ms": fix.now_ms}
    new = _rebuilt(fix, SessionRow(**{**nothing, **texts, **EMPTY, **known}))
    _put_unsound(fix, new, SESSION.check(new) ^ 1)
    fix.lose("session", f"session {new.id}", "its record was missing: name, title, agent and times are lost", PARTLY)


def _id_from_children(fix: Salvage, sid: int) -> str:
    for (doc,) in fix.tx.all(CHILD_DETAILS, (sid,)):
        parent = codec.decode(doc).get("parent_id") if is_object(doc) else None
        if isinstance(parent, str) and is_id(parent):
            return parent
    return ""


# ---------------------------------------------------------------------- what others know of a damaged row


def readable(fix: Salvage, row: SessionRow) -> SessionRow:
    """Return a damaged row with values of the right type in what is packed."""
    wrong = {name: value for name, value in EMPTY.items() if type(getattr(row, name)) is not type(value)}
    wrong["calls"] = row.calls if isinstance(row.calls, list) else None
    wrong["message_ms"] = row.message_ms if isinstance(row.message_ms, int) else None
    tags = row.tags if isinstance(row.tags, str) else sessions.pack_tags(_tags(fix, row.sid))
    return row._replace(tags=tags, **wrong)


def _known(fix: Salvage, row: SessionRow) -> Iterator[dict[str, Any]]:
    """Yield values that other records know for fields of a session."""
    yield {"states": _states(fix).get(row.sid, 0)}
    tags = _tags(fix, row.sid)
    yield from ({"tags": sessions.pack_tags(order)} for order in permutations(tags if len(tags) <= _FEW else ()))
    for operation, _, _ in fix.all(OPERATION, "WHERE session = ? ORDER BY oid DESC", (row.sid,)):
        for view in (operation.after, operation.before):
            said = codec.decode(view) if is_object(view) else {}
            yield from ({thing: value} for thing, value in said.items() if thing in SessionRow._fields)


def _states(fix: Salvage) -> dict[int, int]:
    """Return how many changes of its state each session has made, from the versions in its entries."""
    owners: dict[int, int] = dict(fix.tx.all(OWNERS))
    newest = dict[int, int]()
    for row, _, _ in fix.all(ENTRY, "WHERE kind = 'state' AND body IS NOT NULL"):
        try:
            made, sid = derived.version_of(row.kind, row.body or b"") - 1, owners[row.branch]
        except UNREADABLE:
            continue
        newest[sid] = max(newest.get(sid, 0), made)
    return newest


def _tags(fix: Salvage, sid: int) -> tuple[str, ...]:
    """Return the tags by which a session is found, in no order."""
    return tuple(dict.fromkeys(row.tag for row, sound, _ in fix.all(TAG, "WHERE sid = ?", (sid,)) if sound))


def _is_plausible(row: SessionRow) -> bool:
    """Whether every column that is not free text can be what it says."""
    plausible = row.kind in KINDS and row.status in STATUSES and is_id(row.id)
    return plausible and {row.archived, row.pinned} <= {0, 1} and row.hidden in (0, 1, PURGED)


# ---------------------------------------------------------------------- what proves itself


def _rebuilt(fix: Salvage, row: SessionRow) -> SessionRow:
    """Return a row of which only what proves itself is kept, and its head."""
    sid, scope, agent = row.sid, _scope(fix, row), row.agent
    if not fix.tx.one(ANY_AGENT, (scope, agent)):
        agent = next((str(found[0]) for sql in AGENT_OF if (found := fix.tx.one(sql, (sid,)))), UNKNOWN)
    ids = (each for each in (row.id, row.key.rpartition(":")[2]) if is_id(each))
    session_id = next((each for each in ids if not fix.tx.one(TAKEN, (scope, each, sid))), "") or new_id(fix.now_ms)
    (created,), tags = fix.tx.one(CREATED, (sid,)) or (None,), _tags(fix, sid)
    new = row._replace(
        scope=scope,
        id=session_id,
        agent=agent,
        kind=row.kind if row.kind in KINDS else "main",
        parent=row.parent if has_session(fix.tx, scope, row.parent) and row.parent < sid else 0,
        created_ms=fix.now_ms if created is None else created,
        tags=row.tags if {*sessions.unpack_tags(row.tags)} == {*tags} else sessions.pack_tags(tags),
        hidden=int(row.hidden == 1),
        status="active",
        name=None,
        label=None,
        title=None,
        archived=0,
        pinned=0,
    )
    if fix.tx.one(LAST_KIND, (scope, sid)) == ("purge",):
        return new._replace(hidden=PURGED, key=f"purged:{new_id(fix.now_ms)}", workspace="", tags="")
    return _with_key(fix, new)


def _with_key(fix: Salvage, row: SessionRow) -> SessionRow:
    """Return a row with its workspace and key: a fixed key names agent and directory, and proves them."""
    stem = f"agent:{sessions.escape(row.agent)}"
    is_directory = row.key == f"{stem}:directory:{sessions.escape(row.workspace)}"
    kept = row.key == f"{stem}:main" or row.key.startswith(f"{stem}:cron:") or is_directory
    if not kept or fix.tx.one(TAKEN_KEY, (row.scope, row.key, row.sid)):
        return row._replace(workspace="", key=sessions.key_of(sessions.SessionFields(row.agent, row.kind), row.id))
    return row if is_directory else row._replace(workspace="")


# ---------------------------------------------------------------------- where it stands


def fix_heads(fix: Salvage) -> None:
    """Make every session stand at an entry of a branch of its own, and every branch end with its last entry.

    Counts, totals and open calls need not be right: the sink computes them.
    """
    newest = _states(fix)
    for found in fix.rows(SESSION):
        new = _sound_head(fix, found.row) if found.sound else _found_head(fix, found)
        new = new._replace(states=max(new.states, newest.get(new.sid, 0)))
        fix.replace(SESSION, found.row, new)
        if found.sound and new.branches < found.row.branches:
            fix.lose("branch", f"session {new.id}", "a branch without entries is lost")
    for branch in fix.sound(BRANCH):
        end = _end_of(fix, branch)
        tip = log.point_on(fix.tx, branch.scope, branch, end).hash
        fix.replace(BRANCH, branch, branch._replace(tip_seq=end, tip_hash=tip))


def _end_of(fix: Salvage, branch: BranchRow) -> int:
    """Return the last entry of a branch, or where it starts."""
    _, last = fix.ends(branch.bid) or (0, 0)
    return max(branch.fork_seq, last)


def _standing(fix: Salvage, session: SessionRow, branch: BranchRow, seq: int, attached: int) -> SessionRow:
    """Return a session at a place, with what follows from it."""
    point = log.point_on(fix.tx, session.scope, branch, seq)
    (count,) = fix.tx.one(COUNT, (session.scope, session.sid)) or (0,)
    # The fork of a purged session's first branch may have changed behind its back.
    place: dict[str, Any] = {"branch": branch.bid, "uid": branch.uid, "fork": branch.fork_seq, "seq": seq}
    return session._replace(**place, attached=attached, hash=point.hash, **point.numbers._asdict(), branches=count)


def _agrees(fix: Salvage, session: SessionRow, branch: BranchRow) -> bool:
    """Whether the place that a row names is one, and its hash and numbers are those of the entry there."""
    end = _end_of(fix, branch)
    if not (session.seq == end if session.attached else 0 <= session.seq <= end):
        return False
    return _standing(fix, session, branch, session.seq, session.attached) == session


def _own(fix: Salvage, session: SessionRow, bid: int) -> BranchRow | None:
    branch = intact(fix.tx, BRANCH, session.scope, bid)
    return branch if branch is not None and branch.session == session.sid else None


# ---------------------------------------------------------------------- rows that match their check


def _sound_head(fix: Salvage, session: SessionRow) -> SessionRow:
    """Correct a head that says where it is, but not truly."""
    branch = _named(fix, session) or _own(fix, session, session.branch)
    if branch is None:
        fix.lose("session", f"session {session.id}", "where it stood is lost; it stands at the end of a branch", PARTLY)
        return _found_head(fix, ReadRow(session, True, -1))
    end = _end_of(fix, branch)
    attached = _is_attached(fix, session, branch, end)
    seq = end if attached else max(0, min(session.seq, end))
    new = _standing(fix, session, branch, seq, int(attached))
    hidden = session.hidden if session.hidden in (0, 1, PURGED) else 0
    return new._replace(archived=int(session.archived == 1), pinned=int(session.pinned == 1), hidden=hidden)


def _named(fix: Salvage, session: SessionRow) -> BranchRow | None:
    """Return the branch whose id a head has, if everything else that the head says is true there."""
    branch = BRANCH.one(fix.tx, "WHERE scope = ? AND uid = ?", (session.scope, session.uid))
    if branch is None or branch.session != session.sid:
        return None
    return branch if _agrees(fix, session._replace(branch=branch.bid), branch) else None


def _is_attached(fix: Salvage, session: SessionRow, branch: BranchRow, end: int) -> bool:
    """Whether a head is at the tip of its branch.

    A head that leaves the tip writes it down: none that is detached is behind it, none that is attached before it.
    """
    if session.attached:
        return session.seq >= branch.tip_seq or not _agrees(fix, session._replace(attached=0), branch)
    return branch.tip_seq < session.seq == end


# ---------------------------------------------------------------------- damaged rows


def _found_head(fix: Salvage, found: ReadRow[SessionRow]) -> SessionRow:
    """Find out where a session stood: the feed remembers; the check proves what only the row knew."""
    session = readable(fix, found.row)
    asked = (session.scope, session.sid)
    changes = fix.all(FEED, "WHERE scope = ? AND session = ? ORDER BY pos DESC LIMIT 1", asked)
    last = changes[0].row if changes else None
    own, told = _own(fix, session, session.branch), None if last is None else _own(fix, session, last.branch)
    branch = own or told or _newest(fix, session)
    whole = proved(SESSION, ReadRow(session, found.sound, found.chk), _candidates(fix, session, branch, last))
    if whole is not None:
        return whole
    if own is not None and _agrees(fix, session, own) and not found.sound:
        fix.lose("session", f"session {session.id}", "its record was damaged: name, title and status are lost", PARTLY)
        return _rebuilt(fix, session)
    fix.lose("session", f"session {session.id}", "its times and its revision are lost", PARTLY)
    session = session if _is_plausible(session) else _rebuilt(fix, session)
    branch = told or branch
    end = _end_of(fix, branch)
    seq = min(last.last_seq, end) if last and told else end
    if session.hidden == PURGED:
        seq = 0
    new = _standing(fix, session, branch, seq, int(seq == end and session.hidden != PURGED))
    return new._replace(**_times(fix, new, last))


def _newest(fix: Salvage, session: SessionRow) -> BranchRow:
    """Return the newest branch of a session; one that has none is given one."""
    asked = (session.scope, session.sid)
    found = BRANCH.one(fix.tx, "WHERE scope = ? AND session = ? ORDER BY bid DESC LIMIT 1", asked)
    return found or branches.create(
        fix.tx, *asked, name="main", origin=None, seq=0, tip_hash=chain.GENESIS, now_ms=fix.now_ms
    )


def _candidates(fix: Salvage, session: SessionRow, branch: BranchRow, last: FeedRow | None) -> Iterator[dict[str, Any]]:
    """Yield what a damaged row may have said: every head that may have been, with one other value put right."""
    end, others = _end_of(fix, branch), list(_known(fix, session))
    for seq in {end, session.seq, last.last_seq if last else end}.intersection(range(end + 1)):
        for attached in (1, 0):
            new = _standing(fix, session, branch, seq, attached)
            new, times = new._replace(**_counts(fix, new)), _times(fix, new, last)
            kept = (session.calls, None, (), _open_at(fix, new))
            for change in ({}, *({name: value} for name, value in times.items()), times, *others):
                yield from ({**new._asdict(), **change, "calls": calls} for calls in kept)


def _counts(fix: Salvage, session: SessionRow) -> dict[str, Any]:
    """Return the tasks and build attempts of a head; nothing where they are lost."""
    if session.hidden == PURGED:
        return {"tasks": 0, "completed": 0, "builds": 0}
    try:
        return dict(work.counts_at_head(fix.tx, session))
    except UNREADABLE:
        return {}


def _open_at(fix: Salvage, session: SessionRow) -> tuple[OpenCall, ...] | None:
    """Return the open tool calls of a head; None if they cannot be read or are more than a row keeps."""
    try:
        there = open_calls.at(fix.tx, session._replace(calls=None))
    except UNREADABLE:
        return None
    return there if len(there) <= open_calls.MOST else None


def _times(fix: Salvage, session: SessionRow, last: FeedRow | None) -> dict[str, Any]:
    """Compute what a head says beside its place, from the feed, the operations log and the entries."""
    (appends,) = fix.tx.one(APPENDS, (session.scope, session.sid)) or (0,)
    done = [row for row, _, _ in fix.all(OPERATION, "WHERE scope = ? AND session = ?", (session.scope, session.sid))]
    moves = sum("head" in codec.decode(row.after) for row in done if is_object(row.after))
    ends = (session.scope, log.key_of(session.branch, 0), log.key_of(session.branch, log.MAX_SEQ))
    any_ms, message_ms = fix.tx.one(TIMES, ends) or (None, None)
    updated_ms = max([session.created_ms, any_ms or 0, *(row.at_ms for row in done)])
    updated = last.pos if last else 0
    return {"revision": appends + moves, "updated": updated, "updated_ms": updated_ms, "message_ms": message_ms}


# ---------------------------------------------------------------------- what lies beside it


def fix_beside(fix: Salvage) -> None:
    """Make every session have its details, a parent that is there, and an agent with a record."""
    for row in fix.sound(SESSION):
        _mend_details(fix, row)
        asked = (row.scope, row.sid, row.scope, row.sid)
        circle = row.parent >= row.sid and fix.tx.one(ABOVE, asked)
        if row.parent and (circle or not has_session(fix.tx, row.scope, row.parent)):
            fix.replace(SESSION, row, row._replace(parent=0))
            fix.lose("session", f"session {row.id}", "which session it belongs to is lost", PARTLY)
        if not fix.tx.one(ANY_AGENT, (row.scope, row.agent)):
            agents.name_one(fix, row.scope, row.agent)
    fix.settle(DETAIL, lambda tx, row: not has_session(tx, row.scope, row.sid), "detail", "there is no such session")


def _mend_details(fix: Salvage, row: SessionRow) -> None:
    found = fix.all(DETAIL, "WHERE scope = ? AND sid = ?", (row.scope, row.sid))
    if found and found[0].sound and is_object(found[0].row.doc):
        return
    parent = fix.find(SESSION, row.parent)
    doc = codec.encode({"parent_id": parent.row.id} if parent else {})
    DETAIL.upsert(fix.tx, DetailRow(row.scope, row.sid, doc))
    fix.lose("detail", f"session {row.id}", "its prompt, model, task and metadata are lost", PARTLY)
