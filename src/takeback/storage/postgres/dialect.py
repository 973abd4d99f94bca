"""PostgreSQL's words for the shared SQL: placeholders, the schema in front of tables, locks, types.

The text that operations run is one for all engines; here it is rewritten once and remembered. Two rules are added that
SQLite needs no words for, since it has one writer: in a write, reading the row of a session or an agent locks
it; and text compares byte by byte, whatever the database's own collation is.
"""

from __future__ import annotations

import re
from functools import cached_property

from ..base import Dialect

TABLES = (
    *("agent", "agent_version", "session", "detail", "branch", "entry", "call", "link", "lost", "checkpoint"),
    *("idempotency", "operation", "blob", "chunk", "feed", "meta", "migration", "lease", "stream", "delta", "inbox"),
    *("seen", "journal", "agent_checkpoint", "pin"),
)
NUMBERED = ("agent", "session", "branch", "checkpoint", "operation", "blob", "feed", "agent_checkpoint")

# What a transaction that is still under way could come before is left for later; an older epoch is over and done with.
FEED = """SELECT epoch, xid, pos, scope, kind, session, branch, first_seq, last_seq, chk FROM feed
WHERE scope = ? AND (epoch, xid, pos) > (?, ?, ?)
AND (epoch <= {over} OR epoch < {schema}.current_epoch() OR xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint)
ORDER BY epoch, xid, pos LIMIT ?"""

# Whoever was given a number of the feed holds this lock until its transaction is over, and shown after that.
UNDER_WAY = """SELECT l.virtualtransaction FROM pg_locks l WHERE l.locktype = 'relation'
AND l.relation = to_regclass('{schema}.feed_number')::oid AND l.pid <> pg_backend_pid()
AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())"""

_TABLE = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE) ({'|'.join(TABLES)})\b")
_LOCKED = re.compile(r"SELECT (?!1 |max|count|EXISTS)[^()]* FROM (session|agent) WHERE ")
_CHANGE = re.compile(
    r"(INSERT INTO feed \([^)]*)\)\s+VALUES \(([^)]*)\)"
)  # its order follows from the change before it
_LOCKS = {"session": " FOR NO KEY UPDATE", "agent": " FOR NO KEY UPDATE"}
_TYPES = (
    (re.compile(r"\bINTEGER\b"), "BIGINT"),
    (re.compile(r"\bTEXT\b"), 'TEXT COLLATE "C"'),
    (re.compile(r"\bBLOB\b"), "BYTEA"),
    (re.compile(r"\) STRICT(, WITHOUT ROWID)?;"), ");"),
)


def quoted(name: str) -> str:
    """Write a name of the database's so that it is never read as anything else."""
    return '"' + name.replace('"', '""') + '"'


def ddl(sql: str) -> str:
    """Write a shared schema file with PostgreSQL's types."""
    for pattern, word in _TYPES:
        sql = pattern.sub(word, sql)
    return sql


class Words:
    """The statements of one schema, rewritten once."""

    def __init__(self, schema: str) -> None:
        self.schema = quoted(schema)
        self.epochs_over = 0  # those up to this one are, whatever the table says
        self._reading = dict[str, str]()
        self._writing = dict[str, str]()

    @cached_property
    def dialect(self) -> Dialect:
        """What is different here beyond words."""
        return Dialect(
            "postgresql",
            gapless=False,
            feed_parts=3,
            feed=FEED.format(schema=self.schema, over=self.epochs_over),
            under_way=UNDER_WAY.format(schema=self.schema.replace("'", "''")),
        )

    def reading(self, sql: str) -> str:
        """Give a statement as a read runs it."""
        found = self._reading.get(sql)
        if found is None:
            found = self._reading[sql] = self._translated(sql)
        return found

    def writing(self, sql: str) -> str:
        """Give a statement as a write runs it: what it reads of sessions and agents stays as it is until the end."""
        found = self._writing.get(sql)
        if found is None:
            match = _LOCKED.match(sql)
            lock = _LOCKS[match[1]] if match else ""
            found = self._writing[sql] = self._translated(sql) + lock
        return found

    def _translated(self, sql: str) -> str:
        sql = _CHANGE.sub(rf"\1, xid) VALUES (\2, {self.schema}.not_before({self.schema}.last_change($4, $5)))", sql)
        sql = sql.replace(" NOT INDEXED", "").replace("instr(", "strpos(").replace(" +s.", " s.")
        sql = _TABLE.sub(rf"\1 {self.schema}.\2", sql)
        head, *parts = sql.split("?")
        return head + "".join(f"${number}{part}" for number, part in enumerate(parts, 1))
