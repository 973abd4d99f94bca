"""The feed as readers see it: which session and branch, agent or document changed, by id.

The cost of a page follows its length.
"""

from __future__ import annotations

from ..errors import Corrupt
from ..model.document import parts_of
from ..model.feed import Change
from ..storage.base import Tx
from ..tables.agents import AGENT
from ..tables.branches import BRANCH
from ..tables.documents import DOCUMENT
from ..tables.history import FeedRow
from ..tables.sessions import SESSION
from ..tables.table import R, Table
from . import feed


def after(tx: Tx, scope: str, *, cursor: str | None, limit: int) -> tuple[list[Change], str | None]:
    """Return the next changes of a scope, at most ``limit``, and the cursor after them."""
    mark = feed.mark(tx)
    rows = feed.rows_after(tx, scope, feed.parse_cursor(cursor, tx.dialect.feed_parts, mark), limit)
    own = [(feed.cursor(position, mark), row) for position, row in rows if row.scope == scope]
    of_sessions = [row for _, row in own if row.session > 0]
    sessions = _numbered(tx, SESSION, scope, {row.session for row in of_sessions})
    branches = _numbered(tx, BRANCH, scope, {row.branch for row in of_sessions})
    agents = _numbered(tx, AGENT, scope, {row.branch for _, row in own if row.session == 0})
    documents = _numbered(tx, DOCUMENT, scope, {row.branch for _, row in own if row.session == feed.OF_DOCUMENT})

    def shown(at: str, row: FeedRow) -> Change:
        if row.session == feed.OF_DOCUMENT:
            named = documents[row.branch]
            return Change(at, row.kind, "", "", 0, 0, "", parts_of(named.namespace), named.key, row.first_seq)
        if row.session == 0:
            return Change(at, row.kind, "", "", row.first_seq, row.last_seq, agents[row.branch].id)
        session, branch = sessions[row.session], branches[row.branch]
        return Change(at, row.kind, session.id, branch.uid, row.first_seq, row.last_seq, session.agent)

    # Of all rows read, not only this scope's: a reader must get past pages that hold nothing but other scopes.
    last = feed.cursor(rows[-1][0], mark) if rows else cursor
    return [shown(at, row) for at, row in own], last


def _numbered(tx: Tx, table: Table[R], scope: str, numbers: set[int]) -> dict[int, R]:
    """Return rows by their local numbers; a missing one raises ``Corrupt``."""
    found = table.numbered(tx, scope, numbers)
    for number in numbers - found.keys():
        raise Corrupt(f"the record of {table.name} number {number} is missing", what=f"{table.name} {number}")
    return found
