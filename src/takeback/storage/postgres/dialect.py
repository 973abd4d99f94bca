"""PostgreSQL's words for the shared SQL: placeholders, the schema in front of tables, locks, types.

The text that operations run is one for all engines; here it is rewritten once and remembered. SQLite has one writer and
needs no words for what keeps several apart: a statement says it by a marker (``LOCK``, ``CHANGE_ORDER``). Without one
it locks nothing, whatever it reads. The insert of a change is replaced as a whole: the feed has two more columns.

The invariant: what a statement means is never guessed from its text. The patterns below only know words: they put the
schema in front of tables and leave out hints for SQLite's planner. Text compares byte by byte whatever the database's
own collation is, because its columns say so (``tables.schema``).
"""

from __future__ import annotations

import re
from functools import cached_property

from ...tables import schema, search
from ...tables.entries import STAYS, STAYS_POSTGRES
from ...tables.history import FEED
from ..base import CHANGE_ORDER, LOCK, Dialect

TABLES = (*(table.name for table in schema.TABLES), *search.NAMES)

# What a transaction that is still under way could come before is left for later; an older epoch is over and done with.
_FEED = f"""SELECT epoch, xid, pos, {FEED.columns} FROM feed
WHERE scope = ? AND (epoch, xid, pos) > (?, ?, ?)
AND (epoch <= {{over}} OR epoch < {{schema}}.current_epoch()
OR xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint)
ORDER BY epoch, xid, pos LIMIT ?"""

# Everything that is committed, in an order that may still change, since others may come in between.
_FEED_AHEAD = f"""SELECT epoch, xid, pos, {FEED.columns} FROM feed
WHERE scope = ? AND (epoch, xid, pos) > (?, ?, ?) ORDER BY epoch, xid, pos LIMIT ?"""

# Whoever was given a number of the feed holds this lock until its transaction is over, and shown after that.
UNDER_WAY = """SELECT l.virtualtransaction FROM pg_locks l WHERE l.locktype = 'relation'
AND l.relation = to_regclass('{schema}.feed_number')::oid AND l.pid <> pg_backend_pid()
AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())"""

# The order of a change follows from the one before it of the same session or agent, and the session's row remembers it
# beside the position, so that the change can be found by its key.
_CHANGE = FEED.insert.removesuffix(")").replace(") VALUES (", ", epoch, xid) SELECT ")
_CHANGE += ", n.* FROM {schema}.change_order({scope}, {session}, {branch}) n"
# Of many sessions at once, the same without a call of a function for each.
_CHANGES = f"""{FEED.into.replace(") VALUES ", ", epoch, xid)")}
SELECT v.*, c.epoch, CASE WHEN s.epoch = c.epoch THEN greatest(s.xid, c.xid) ELSE c.xid END
FROM (VALUES {{rows}}) v ({FEED.columns}) JOIN session s ON s.scope = v.scope AND s.sid = v.session
CROSS JOIN (SELECT {{schema}}.current_epoch() AS epoch, pg_current_xact_id()::text::bigint AS xid) c"""
_ORDER = ", (epoch, xid) = (SELECT n.* FROM {schema}.own_order(session.epoch, session.xid) n)"
_LAST_CHANGE = ("f.pos = s.updated", "(f.epoch, f.xid, f.pos) = (s.epoch, s.xid, s.updated)")
_FOR_UPDATE = " FOR NO KEY UPDATE"
_TABLE = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE) ({'|'.join(TABLES)})\b")
_INDEXED = re.compile(r" (NOT INDEXED|INDEXED BY \w+)\b")


def quoted(name: str) -> str:
    """Write a name of the database's so that it is never read as anything else."""
    return '"' + name.replace('"', '""') + '"'


class Words:
    """The statements of one schema, rewritten once."""

    def __init__(self, schema: str) -> None:
        self.schema = quoted(schema)
        self.epochs_over = 0  # those up to this one are, whatever the table says
        self._reading = dict[str, str]()
        self._writing = dict[str, str]()
        about = {name: f"${FEED.stored.index(name) + 1}" for name in ("scope", "session", "branch")}
        self._change = _CHANGE.format(schema=self.schema, **about)
        self._order = _ORDER.format(schema=self.schema)

    @cached_property
    def dialect(self) -> Dialect:
        """What is different here beyond words."""
        return Dialect(
            "postgresql",
            gapless=False,
            feed_parts=3,
            feed=_FEED.format(schema=self.schema, over=self.epochs_over),
            feed_ahead=_FEED_AHEAD,
            under_way=UNDER_WAY.format(schema=self.schema.replace("'", "''")),
        )

    def reading(self, sql: str) -> str:
        """Return a statement as a read runs it: nothing is locked."""
        found = self._reading.get(sql)
        if found is None:
            found = self._reading[sql] = self._translated(sql.replace(LOCK, ""))
        return found

    def writing(self, sql: str) -> str:
        """Return a statement as a write runs it."""
        found = self._writing.get(sql)
        if found is None:
            found = self._writing[sql] = self._translated(sql.replace(LOCK, _FOR_UPDATE))
        return found

    def _translated(self, sql: str) -> str:
        if sql == FEED.insert:
            sql = self._change
        elif sql.startswith(FEED.insert):  # and more rows
            sql = _CHANGES.format(schema=self.schema, rows=sql.removeprefix(FEED.into))
        else:
            sql = sql.replace(CHANGE_ORDER, self._order)
        sql = (
            _INDEXED.sub("", sql)
            .replace(STAYS, STAYS_POSTGRES)
            .replace("instr(", "strpos(")
            .replace(" +s.", " s.")
            .replace(*_LAST_CHANGE)
        )
        sql = _TABLE.sub(rf"\1 {self.schema}.\2", sql)
        head, *parts = sql.split("?")
        return head + "".join(f"${number}{part}" for number, part in enumerate(parts, 1))
