"""The tables that every index has beside its terms: where documents come from, and what may be seen of each branch.

``search_doc`` has a row for each document. ``search_place`` says which entries of a branch can be found, and as part of
which session: up to ``upto`` they are on the session's path, up to ``whole`` on any of its branches. A session in the
trash has no such rows, so nothing of it is found; its documents stay. The row of a title has the negative number of the
session in place of a branch. ``owner`` is the session to which the branch belongs, whose fields its documents have;
``other`` is 1 if the session that reads them has another agent or workspace.

``search_branch`` says how far each branch is indexed, ``search_session`` what was indexed of each session,
``search_span`` between which times the documents of a block lie, and ``search_state`` how far the feed was read.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..storage.base import Tx, scalar
from ..tables.search import TABLES as TABLES  # SQLite's file is made from this, and PostgreSQL's tables are too
from ..tables.table import several, slots
from .index import MANY, Within, padded

BLOCK = 4096  # documents whose times are bounded together


def readers(tx: Tx, within: Within, branches: Iterable[int]) -> dict[int, list[tuple[int, int]]]:
    """Return which of the sessions that are asked for read each branch, in their order, and how far.

    Sessions are filtered by a statement of their own: joined, a server may begin with all sessions of a workspace.
    """
    found = dict[int, list[tuple[int, int]]]()
    reach = "whole" if within.everywhere else "upto"
    session, values = ("", []) if within.session is None else (" AND sid = ?", [within.session])
    for some in several(sorted(branches), MANY):
        asked = padded(some)
        sql = f"SELECT bid, sid, {reach} FROM search_place WHERE scope = ? AND bid IN ({slots(len(asked))}){session}"
        for bid, *reader in tx.all(sql, (within.scope, *asked, *values)):
            found.setdefault(bid, []).append((reader[0], reader[1]))
    if within.agent is not None or within.workspace is not None:
        wanted = _wanted(tx, within, {sid for each in found.values() for sid, _ in each})
        found = {bid: [each for each in readers if each[0] in wanted] for bid, readers in found.items()}
    return {bid: sorted(each) for bid, each in found.items()}


def nth(tx: Tx, scope: str, number: int) -> int:
    """Return how many documents a scope had up to a number: only on a server has each scope numbers of its own."""
    if not tx.dialect.gapless:
        return number
    sql = "SELECT nth FROM search_doc WHERE scope = ? AND number <= ? ORDER BY number DESC LIMIT 1"
    return int(scalar(tx, sql, (scope, number)) or 0)


def _wanted(tx: Tx, within: Within, sids: Iterable[int]) -> set[int]:
    """Return which sessions have the agent and the workspace that are asked for."""
    found = set[int]()
    for some in several(sorted(sids), MANY):
        asked = padded(some)
        sql = f"SELECT sid, agent, workspace FROM search_session WHERE scope = ? AND sid IN ({slots(len(asked))})"
        for sid, agent, workspace in tx.all(sql, (within.scope, *asked)):
            if within.agent in (None, agent) and within.workspace in (None, workspace):
                found.add(sid)
    return found


def seen(within: Within) -> tuple[str, list[int | str]]:
    """Return the condition that a row ``d`` of ``search_doc`` may be shown, with its values.

    Only for an engine without row security: a comparison with what is computed leads to no index there.
    """
    condition, values = "d.scope = ?", list[int | str]([within.scope])
    if within.unseen:
        return condition, values
    reach = "p.whole" if within.everywhere else "p.upto"
    place = f"p.scope = d.scope AND p.bid = d.key >> 32 AND {reach} >= (d.key & 4294967295)"
    join = ""
    if within.session is not None:
        place += " AND p.sid = ?"
        values.append(within.session)
    for column in ("agent", "workspace"):
        if (value := getattr(within, column)) is not None:
            join = " CROSS JOIN search_session s ON s.scope = p.scope AND s.sid = p.sid"
            place += f" AND s.{column} = ?"
            values.append(value)
    condition += f" AND EXISTS (SELECT 1 FROM search_place p{join} WHERE {place})"
    for column, sign in (("since_s", ">="), ("until_s", "<=")):
        if (moment := getattr(within, column)) is not None:
            condition += f" AND d.at_s {sign} ?"
            values.append(moment)
    return condition, values
