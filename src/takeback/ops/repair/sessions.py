"""Repair of sessions: the part of the row that appends leave alone, its details, and that it is there at all.

A row with one bad column is proved by its check with a value that another record knows: counts from the state at the
head, fields from the operations log. Else what proves itself is kept (an id has its form, a key names id and agent, the
agent has a record) and the rest is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ... import codec
from ...ids import is_id, new_id
from ...model.status import STATUSES
from ...storage.base import Row, row_check
from .. import chain, operations, sessions, work
from ..sessions import KINDS, SessionRow
from ..verify import derived, places
from ..verify.base import is_sound
from ..verify.changes import FEED
from ..verify.places import ANY_AGENT, BRANCHES, DETAILS, HAS_SESSION, PURGED, SESSIONS, is_object
from . import agents
from .base import PARTLY, Repair, checked, extend, proved

SCOPE = "SELECT scope FROM branch WHERE session = ? ORDER BY bid LIMIT 1"
CREATED = "SELECT min(created_ms) FROM branch WHERE session = ?"
CHILD_DETAILS = "SELECT doc FROM detail JOIN session ON session.sid = detail.sid WHERE parent = ?"
ORIGIN = """SELECT s.agent FROM branch b JOIN branch p ON p.bid = b.parent JOIN session s ON s.sid = p.session
WHERE b.session = ? AND s.sid != b.session ORDER BY b.bid LIMIT 1"""
FORKED = """SELECT s.agent FROM branch p JOIN branch b ON b.parent = p.bid JOIN session s ON s.sid = b.session
WHERE p.session = ? AND s.sid != p.session ORDER BY b.bid LIMIT 1"""
TAKEN = "SELECT 1 FROM session WHERE scope = ? AND id = ? AND sid != ?"
TAKEN_KEY = "SELECT 1 FROM session WHERE scope = ? AND key = ? AND hidden = 0 AND sid != ?"
OF_SESSION = f"SELECT {operations.COLUMNS} FROM operation WHERE session = ? ORDER BY oid DESC"
LAST_KIND = "SELECT kind FROM feed WHERE session = ? ORDER BY pos DESC LIMIT 1"
UNKNOWN = "unknown"

_COLD = len(sessions.COLD.split(","))  # with its check
_NAMES = SessionRow._fields


def fix_sessions(fix: Repair) -> None:
    """Let every number have a row whose first part is sound."""
    # One record alone that names a number behind the last row is more likely to be wrong than the row to be missing.
    named = {row[3] for row in fix.rows(BRANCHES) if is_sound(row)} & {
        row[3] for row in fix.rows(FEED) if is_sound(row)
    }
    for sid, row in fix.numbered(SESSIONS, extend(fix.highest(SESSIONS), named)):
        if row is None:
            _put_back(fix, sid)
        elif row_check(row[: _COLD - 1]) != row[_COLD - 1]:
            _mend(fix, row)
    for sid, row in fix.numbered(SESSIONS):
        if row is not None:
            _mend_details(fix, row)
            _mend_parent(fix, sid, row)
    for row in fix.rows(DETAILS):
        if not fix.tx.one(places.SESSION, row[:1]):
            fix.delete(DETAILS, row[:1])
            fix.lose("detail", f"details of session number {row[0]}", "there is no such session")


# ---------------------------------------------------------------------- the row


def _put_back(fix: Repair, sid: int) -> None:
    scope = (fix.tx.one(SCOPE, (sid,)) or ("",))[0]
    session_id = _id_from_children(fix, sid) or new_id(fix.now_ms)
    blank: Row = (sid, scope, session_id, *[None] * (_COLD - 3))
    cold = _rebuilt(fix, blank)
    head = (0, "", 0, 0, 1, chain.GENESIS, *sessions.NO_NUMBERS, 0, 0, 0, fix.now_ms, None, 0)
    # The check of the head is left wrong: its own pass finds the place.
    fix.insert(SESSIONS, (*cold, row_check(cold), *head, row_check((sid, *head)) ^ 1))
    fix.lose("session", f"session {cold[2]}", "its record was missing: name, title, agent and times are lost", PARTLY)


def _id_from_children(fix: Repair, sid: int) -> str | None:
    for (doc,) in fix.tx.all(CHILD_DETAILS, (sid,)):
        parent = codec.decode(doc).get("parent_id") if is_object(doc) else None
        if isinstance(parent, str) and is_id(parent):
            return parent
    return None


def _mend(fix: Repair, row: Row) -> None:
    cold = proved(row[:_COLD], _candidates(fix, row))
    if cold is not None:
        fix.rebuilt += 1
    else:
        values = _rebuilt(fix, row)
        cold = checked(values)
        fix.lose("session", f"session {values[2]}", "its record was damaged: name, title and tags are lost", PARTLY)
    fix.replace(SESSIONS, row[:1], (*cold, *row[_COLD:]))


def _candidates(fix: Repair, row: Row) -> Iterator[dict[int, Any]]:
    """Give values that other records know for columns of a session."""
    try:
        seen = SessionRow._make(row)._replace(scope=_scope(fix, row))
        counts = work.counts_at_head(fix.tx, seen)
        yield {_NAMES.index(name): value for name, value in counts.items()}
        yield {_NAMES.index("states"): _states(fix, row[0])}
    except derived.UNREADABLE:
        pass
    yield {1: _scope(fix, row)}
    for operation in fix.tx.all(OF_SESSION, (row[0],)):
        for view in (operation[8], operation[7]):
            said = codec.decode(view) if is_object(view) else {}
            yield from ({_NAMES.index(thing): value} for thing, value in said.items() if thing in _NAMES[:_COLD])
    yield from ({index: value} for index in range(3, _COLD - 1) for value in (None, "", 0, 1))
    yield from ({_NAMES.index("status"): status} for status in STATUSES)


def _states(fix: Repair, sid: int) -> int:
    """Give how many changes of its state a session has made, from the versions in its entries."""
    sql = """SELECT e.key, e.kind, e.body FROM entry e JOIN branch b ON b.bid = e.key >> 32
    WHERE b.session = ? AND e.kind = 'state' AND e.body IS NOT NULL"""
    newest = 1
    for row in fix.tx.all(sql, (sid,)):
        try:
            newest = max(newest, derived.version_of(row, row[2]))
        except derived.UNREADABLE:
            continue
    return newest - 1


def _scope(fix: Repair, row: Row) -> str:
    found = fix.tx.one(SCOPE, (row[0],))
    return str(found[0] if found else row[1] or "")


def _rebuilt(fix: Repair, row: Row) -> Row:
    """Make the first part of a row from what proves itself."""
    sid, scope = row[0], _scope(fix, row)
    key, agent = _text(row[3]), _text(row[4])
    session_id = _free_id(fix, sid, scope, [_text(row[2]), key.rpartition(":")[2]])
    if not fix.tx.one(ANY_AGENT, (scope, agent)):
        # A fork has the agent of the session that it was made from.
        origin = fix.tx.one(ORIGIN, (sid,)) or fix.tx.one(FORKED, (sid,))
        agent = origin[0] if origin else UNKNOWN
    kind = row[5] if row[5] in KINDS else "main"
    workspace, key = _key(fix, (sid, scope, session_id), agent, kind, key, _text(row[8]))
    parent = row[9] if fix.tx.one(HAS_SESSION, (row[9], scope)) and row[9] < sid else 0
    created = (fix.tx.one(CREATED, (sid,)) or (None,))[0]
    hidden = row[13] if row[13] in (0, 1) else 0
    if fix.tx.one(LAST_KIND, (sid,)) == ("purge",):
        hidden, key, workspace = PURGED, f"purged:{new_id(fix.now_ms)}", ""
    flags = ("active", 0, 0, hidden, None, "", fix.now_ms if created is None else created)
    return (sid, scope, session_id, key, agent, kind, None, None, workspace, parent, *flags, 0, 0, 0, _states(fix, sid))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _free_id(fix: Repair, sid: int, scope: str, wanted: list[str]) -> str:
    for each in wanted:
        if is_id(each) and not fix.tx.one(TAKEN, (scope, each, sid)):
            return each
    return new_id(fix.now_ms)


def _key(fix: Repair, on: tuple[int, str, str], agent: str, kind: str, key: str, workspace: str) -> tuple[str, str]:
    """Give workspace and key: those of a main, cron or directory session name agent and directory, and prove them."""
    sid, scope, session_id = on
    stem = f"agent:{sessions.escape(agent)}"
    is_directory = key == f"{stem}:directory:{sessions.escape(workspace)}"
    kept = key == f"{stem}:main" or key.startswith(f"{stem}:cron:") or is_directory
    if not kept or fix.tx.one(TAKEN_KEY, (scope, key, sid)):
        return "", sessions.key_of(sessions.Fields(agent, kind), session_id)
    return (workspace if is_directory else ""), key


# ---------------------------------------------------------------------- details, parents, agents


def _mend_details(fix: Repair, row: Row) -> None:
    found = DETAILS.rows(fix.tx, (row[0] - 1,), 1)
    detail = found[0] if found and found[0][0] == row[0] else None
    if detail is not None and is_sound(detail) and is_object(detail[1]):
        return
    parent = fix.tx.one(places.SESSION, (row[9],)) if row[9] else None
    doc = codec.encode({"parent_id": parent[2]} if parent else {})
    fix.replace(DETAILS, row[:1], places.detail_row(row[0], doc))
    fix.lose("detail", f"session {row[2]}", "its prompt, model, task and metadata are lost", PARTLY)


def _mend_parent(fix: Repair, sid: int, row: Row) -> None:
    parent = row[9]
    if not parent:
        return
    circle = parent >= sid and fix.tx.one(places.ABOVE, (sid, sid))
    if circle or not fix.tx.one(HAS_SESSION, (parent, row[1])):
        fix.replace(SESSIONS, (sid,), (*checked((*row[:9], 0, *row[10 : _COLD - 1])), *row[_COLD:]))
        fix.lose("session", f"session {row[2]}", "which session it belongs to is lost", PARTLY)


def fix_agents_named(fix: Repair) -> None:
    """Let every agent that a session names have a record."""
    for row in fix.rows(SESSIONS):
        if not fix.tx.one(ANY_AGENT, (row[1], row[4])):
            agents.name_one(fix, row[1], row[4])
