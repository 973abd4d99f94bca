"""Salvage of sessions: that every number has a row, what is not the head of it, and what lies beside it.

A damaged row is left as it is until entries and branches are right: only then its check can be compared, with what they
and other records know of it (``heads``). Of a row that nothing proves is kept what proves itself - an id has its form,
a key names id and agent, the agent has a record - and the rest is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

from ... import codec
from ...ids import is_id, new_id
from ...model.status import STATUSES
from ...ops import sessions
from ...ops.sessions import EMPTY, KINDS
from ...ops.verify import derived
from ...ops.verify.base import PURGED, UNREADABLE, is_object
from ...ops.verify.places import ABOVE, ANY_AGENT, has_session
from ...tables.branches import BRANCH
from ...tables.entries import ENTRY
from ...tables.history import FEED, OPERATION
from ...tables.sessions import DETAIL, SESSION, TAG, DetailRow, SessionRow
from . import agents
from .base import PARTLY, Salvage

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
UNKNOWN = "unknown"
_FEW = 5  # tags, of which every order is tried


def fix_sessions(fix: Salvage) -> None:
    """Let every number have a row, in the scope of its branches, by which branches and entries are found."""
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
    new = rebuilt(fix, SessionRow(**{**nothing, **texts, **EMPTY, **known}))
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


def known(fix: Salvage, row: SessionRow) -> Iterator[dict[str, Any]]:
    """Yield values that other records know for fields of a session."""
    yield {"states": states(fix).get(row.sid, 0)}
    tags = _tags(fix, row.sid)
    yield from ({"tags": sessions.pack_tags(order)} for order in permutations(tags if len(tags) <= _FEW else ()))
    for operation, _, _ in fix.all(OPERATION, "WHERE session = ? ORDER BY oid DESC", (row.sid,)):
        for view in (operation.after, operation.before):
            said = codec.decode(view) if is_object(view) else {}
            yield from ({thing: value} for thing, value in said.items() if thing in SessionRow._fields)


def states(fix: Salvage) -> dict[int, int]:
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


def is_plausible(row: SessionRow) -> bool:
    """Whether every column that is not free text can be what it says."""
    known = row.kind in KINDS and row.status in STATUSES and is_id(row.id)
    return known and {row.archived, row.pinned} <= {0, 1} and row.hidden in (0, 1, PURGED)


# ---------------------------------------------------------------------- what proves itself


def rebuilt(fix: Salvage, row: SessionRow) -> SessionRow:
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
        return row._replace(workspace="", key=sessions.key_of(sessions.Fields(row.agent, row.kind), row.id))
    return row if is_directory else row._replace(workspace="")


# ---------------------------------------------------------------------- what lies beside it


def fix_beside(fix: Salvage) -> None:
    """Let every session have its details, a parent that is there, and an agent with a record."""
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
