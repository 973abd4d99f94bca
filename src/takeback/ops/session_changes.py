"""Changes of sessions, one or thousands at once: into the trash and out of it, and heads moved.

A change is prepared as a row for each session, and all rows are written together. Whatever is read or written here is
read or written for many sessions per statement, so an operation on an agent with ten thousand sessions takes hundreds
of statements, not tens of thousands.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ..errors import Conflict, Corrupt, NotFound
from ..storage.base import LOCK, Tx
from ..tables.branches import BRANCH
from ..tables.sessions import SESSION
from ..tables.table import several, tuples
from . import branches, feed, log, sessions, work
from .branches import BranchRow
from .operations import head_view, touched
from .sessions import SessionRow

Head: TypeAlias = "Sequence[Any]"  # the branch's id, seq, attached

_MANY = 500  # sessions that one statement looks up
_NAMED = "INDEXED BY session_name WHERE scope = ? AND name IS NOT NULL AND hidden = 0 AND (name, agent, workspace) IN"
_KEYED = "INDEXED BY session_key WHERE scope = ? AND hidden = 0 AND key IN"
_LABELLED = "INDEXED BY session_label WHERE scope = ? AND label IS NOT NULL AND hidden = 0 AND (label, parent) IN"


# ---------------------------------------------------------------------- writing


def place(
    tx: Tx, rows: Iterable[SessionRow], hidden: Mapping[str, int], heads: Mapping[str, Head], kind: str, now_ms: int
) -> None:
    """Move sessions of one scope into the trash or out of it, and their heads, as the mappings say by session id.

    Those that go are written first, which frees their names for those that come.
    """
    known = sorted(rows, key=lambda row: row.id)
    for going in (True, False):
        some = [row for row in known if bool(hidden.get(row.id)) is going]
        shown = visible(tx, [(row, hidden.get(row.id, row.hidden), row.name) for row in some])
        new = moved(tx, [(row, heads.get(row.id) or head_view(row)) for row in shown])
        _put_many(tx, [(old, each) for old, each in zip(some, new, strict=True) if each != old], kind, now_ms)


def _put_many(tx: Tx, pairs: Sequence[tuple[SessionRow, SessionRow]], kind: str, now_ms: int) -> None:
    if not pairs:
        return
    newest = sessions.top_rank(tx, pairs[0][0].scope)  # before a position is taken: none that is later gets a lower one
    positions = feed.record_many(tx, [new for _, new in pairs], kind)
    rank = sessions.next_rank(now_ms, newest, positions[0])
    written = [
        (old, touched(new, position, rank, now_ms, moved=head_view(new) != head_view(old)))
        for (old, new), position in zip(pairs, positions, strict=True)
    ]
    sessions.store_many(tx, written)


# ---------------------------------------------------------------------- into the trash and out of it


def visible(tx: Tx, wanted: Sequence[tuple[SessionRow, int, str | None]]) -> list[SessionRow]:
    """Return sessions moved to the trash or out of it, each given with ``hidden`` and the name that it should have.

    One that comes back to a taken name gets `` (2)``; to a taken key or label, it raises ``Conflict``.
    """
    coming = [row._replace(name=name) for row, hidden, name in wanted if row.hidden and not hidden]
    names, keys, labels = _taken(tx, coming)
    found = list[SessionRow]()
    for row, hidden, name in wanted:
        if row.hidden and not hidden:
            if row.key in keys:
                raise Conflict(f"another session has the key {row.key!r} now; delete that one first")
            if (row.label, row.parent) in labels:
                raise Conflict(f"another sub-agent has the label {row.label!r} now; delete that one first")
            name = _free_name(tx, row, name, names)
            keys.add(row.key)
            names |= {(name, row.agent, row.workspace)} if name is not None else set()
            labels |= {(row.label, row.parent)} if row.label is not None else set()
        found.append(row._replace(hidden=hidden, name=name))
    return found


def _taken(tx: Tx, coming: Sequence[SessionRow]) -> tuple[set[Any], set[Any], set[Any]]:
    """Return which names, keys and labels of sessions visible sessions have, each with what makes it unique."""
    scope = coming[0].scope if coming else ""
    named = [(row.name, row.agent, row.workspace) for row in coming if row.name is not None]
    labelled = [(row.label, row.parent) for row in coming if row.label is not None]
    names = {(row.name, row.agent, row.workspace) for row in _matching(tx, scope, _NAMED, named)}
    keys = {row.key for row in _matching(tx, scope, _KEYED, [(row.key,) for row in coming])}
    labels = {(row.label, row.parent) for row in _matching(tx, scope, _LABELLED, labelled)}
    return names, keys, labels


def _matching(tx: Tx, scope: str, where: str, values: Sequence[tuple[Any, ...]]) -> list[SessionRow]:
    found = list[SessionRow]()
    for some in several(values, _MANY):
        args = [each for value in some for each in value]
        found += SESSION.all(tx, f"{where} ({tuples(some)}){LOCK}", (scope, *args))
    return found


def _free_name(tx: Tx, session: SessionRow, name: str | None, taken: set[Any]) -> str | None:
    """Return the name, with `` (2)`` and so on appended if another session has it by now."""
    place = session.agent, session.workspace
    if name is None or (name, *place) not in taken:
        return name
    for number in itertools.count(2):
        other = f"{name} ({number})"
        if (other, *place) not in taken and not sessions.find_by_name(
            tx, session.scope, agent=session.agent, workspace=session.workspace, name=other
        ):
            break
    return other


# ---------------------------------------------------------------------- heads


def moved(tx: Tx, wanted: Sequence[tuple[SessionRow, Head]]) -> list[SessionRow]:
    """Return sessions with their heads elsewhere, after recording the tips of the branches that they leave."""
    going = [(row, head) for row, head in wanted if [*head] != head_view(row)]
    if not going:
        return [row for row, _ in wanted]
    scope = going[0][0].scope
    left = _left(tx, scope, [row for row, _ in going])
    known = {branch.uid: branch for branch in left.values()}
    known |= branches.by_uids(tx, scope, {head[0] for _, head in going} - known.keys())
    targets = dict[int, tuple[BranchRow, int, int]]()
    for row, (uid, seq, attached) in going:
        branch = known.get(uid)
        if branch is None or branch.session != row.sid:
            raise NotFound(f"this session has no branch {uid!r}; branches() lists them")
        targets[row.sid] = branch, branch.tip_seq if attached else seq, attached
    points = log.points_on(tx, scope, [(branch, seq) for branch, seq, _ in targets.values()])
    return [
        _at(tx, row, *targets[row.sid], points[targets[row.sid][0].bid, targets[row.sid][1]])
        if row.sid in targets
        else row
        for row, _ in wanted
    ]


def _left(tx: Tx, scope: str, rows: Sequence[SessionRow]) -> dict[int, BranchRow]:
    """Return the branches that heads leave, by number, with the tips that the heads attached to them had."""
    left = BRANCH.numbered(tx, scope, {row.branch for row in rows})
    if lost := {row.branch for row in rows} - left.keys():
        raise Corrupt(f"the record of branch {min(lost)} is missing", what=f"branch {min(lost)}")
    tips = {row.branch: left[row.branch]._replace(tip_seq=row.seq, tip_hash=row.hash) for row in rows if row.attached}
    BRANCH.update_many(tx, [(left[bid], tip) for bid, tip in tips.items()])
    return left | tips


def _at(tx: Tx, session: SessionRow, branch: BranchRow, seq: int, attached: int, target: log.Point) -> SessionRow:
    place: dict[str, Any] = {"branch": branch.bid, "uid": branch.uid, "fork": branch.fork_seq, "seq": seq}
    numbers: dict[str, Any] = target.numbers._asdict()
    there = session._replace(**place, attached=attached, hash=target.hash, **numbers, calls=None)
    if there.work_seq == session.work_seq == 0:
        return there
    counts: dict[str, Any] = work.counts_at_head(tx, there)
    return there._replace(**counts)
