"""What may be seen of each session, as the index keeps it: which entries of which branches, and its title.

An entry is found as part of each visible session that reads it. ``search_place`` repeats what the head of each session
reads, branch by branch; it is written anew only when the head moved, not when something was appended.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from ..errors import Corrupt
from ..ids import MAX_SEQ
from ..ops import branches, log
from ..storage.base import Tx, scalars
from ..tables import search as tables
from ..tables.branches import BRANCH
from ..tables.sessions import SESSION, SessionRow
from ..tables.table import several, slots

_ENDLESS = MAX_SEQ  # how far a branch is seen to which more may be added


def bring_up_to_date(main: Tx, side: Tx, session: SessionRow, *, appended: bool = False) -> None:
    """Write what may be seen of a session; if it was only appended to, only where that opened a branch."""
    asked = session.scope, session.sid
    known = side.one("SELECT path, workspace, moved FROM search_session WHERE scope = ? AND sid = ?", asked)
    path = _path(session)
    if appended and known is not None and known[:2] == (path, session.workspace):
        return
    moved = 0
    if known is None:
        values = (*asked, session.agent, session.workspace, moved, path, 0, "")
        side.run(tables.insert("search_session"), values)
    else:
        moved = int(known[2] or known[1] != session.workspace)
        sql = "UPDATE search_session SET agent = ?, workspace = ?, moved = ?, path = ? WHERE scope = ? AND sid = ?"
        side.run(sql, (session.agent, session.workspace, moved, path, *asked))
    side.run("DELETE FROM search_place INDEXED BY search_place_sid WHERE scope = ? AND sid = ?", asked)
    found = _places(main, session)
    owners = _owners(main, session, found)
    others = _others(main, side, session, {*owners.values()} - {session.sid})
    rows = list[tuple[str | int, ...]]()
    for bid, ends in found.items():
        owner = owners.get(bid, session.sid)
        other = moved if owner == session.sid else int(owner in others)
        rows.append((session.scope, bid, session.sid, *ends, owner, other))
    for some in several(rows, 100):
        side.run(tables.insert("search_place", len(some)), [value for row in some for value in row])


def _path(session: SessionRow) -> str:
    """Return what tells whether the head of a session moved other than by an append."""
    if session.hidden:
        return "hidden"
    at = "" if session.attached else session.seq
    return f"{session.branch} {session.fork} {at} {session.branches}"


def _owners(main: Tx, session: SessionRow, found: Iterable[int]) -> dict[int, int]:
    """Return the session to which each branch belongs."""
    known = BRANCH.numbered(main, session.scope, [bid for bid in found if bid > 0], damaged=False)
    return {bid: row.session for bid, row in known.items()}


def _others(main: Tx, side: Tx, session: SessionRow, owners: Iterable[int]) -> set[int]:
    """Return which of these sessions have, or once had, another agent or workspace."""
    rows = SESSION.numbered(main, session.scope, owners, damaged=False)
    same = {sid for sid, row in rows.items() if (row.agent, row.workspace) == (session.agent, session.workspace)}
    for some in several(sorted(same), 500):
        sql = f"SELECT sid FROM search_session WHERE scope = ? AND moved = 1 AND sid IN ({slots(len(some))})"
        same -= {*scalars(side, sql, (session.scope, *some))}
    return {*owners} - same


def _places(main: Tx, session: SessionRow) -> dict[int, tuple[int, int]]:
    """Return how far each branch is on the path of a visible session, and how far it is on any of its branches."""
    if session.hidden:
        return {}
    upto, whole = dict[int, int](), dict[int, int]()
    try:
        for each in log.path_segments(main, session, 0, session.seq):
            upto[each.bid] = each.high
        for each in branches.every_segment(main, session):
            whole[each.bid] = each.high
        for row in branches.of_session(main, session.scope, session.sid, session.branches):
            if row.hidden and row.bid not in upto:
                whole.pop(row.bid, None)
            elif not row.hidden:
                whole[row.bid] = _ENDLESS
    except Corrupt:  # verify reports it; what the head's own branch holds can be seen all the same
        upto[session.branch] = session.seq
    if session.attached:
        upto[session.branch] = _ENDLESS
    found = {bid: (upto.get(bid, 0), max(whole.get(bid, 0), upto.get(bid, 0))) for bid in upto.keys() | whole.keys()}
    return {-session.sid: (0, 0), **found}


def title_of(session: SessionRow) -> tuple[str, ...]:
    """Return what a session is called: title, name and label; nothing once it is purged."""
    return tuple(dict.fromkeys(each for each in (session.title, session.name, session.label) if each))


def digest(session: SessionRow) -> str:
    """Return what tells whether it is called otherwise now, without saying how."""
    return format(crc32("\n".join(title_of(session)).encode("utf-8", "surrogatepass")), "x")
