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

from ..tables.search import TABLES as TABLES  # SQLite's file is made from this, and PostgreSQL's tables are too
from .index import Within

BLOCK = 4096  # documents whose times are bounded together


def readers(within: Within) -> tuple[str, list[int | str]]:
    """Return the condition for rows ``p`` of ``search_place``, of the sessions that are asked for, with its values."""
    join, parts, values = "", ["p.scope = ?"], list[int | str]([within.scope])
    if within.session is not None:
        parts.append("p.sid = ?")
        values.append(within.session)
    for column in ("agent", "workspace"):
        if (value := getattr(within, column)) is not None:
            join = "JOIN search_session s ON s.scope = p.scope AND s.sid = p.sid "
            parts.append(f"s.{column} = ?")
            values.append(value)
    return f"{join}WHERE {' AND '.join(parts)}", values


def seen(within: Within) -> tuple[str, list[int | str]]:
    """Return the condition that a row ``d`` of ``search_doc`` may be shown, with its values.

    Only for an engine without row security: a comparison with what is computed leads to no index there.
    """
    if within.unseen:
        return "d.scope = ?", [within.scope]
    where, values = readers(within)
    reach = "p.whole" if within.everywhere else "p.upto"
    place = f"SELECT 1 FROM search_place p {where} AND p.bid = d.key >> 32 AND {reach} >= (d.key & 4294967295)"
    condition, values = f"d.scope = ? AND EXISTS ({place})", [within.scope, *values]
    for column, sign in (("since_s", ">="), ("until_s", "<=")):
        if (moment := getattr(within, column)) is not None:
            condition += f" AND d.at_s {sign} ?"
            values.append(moment)
    return condition, values
