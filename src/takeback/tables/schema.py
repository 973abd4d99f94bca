"""The schema as SQL for SQLite and PostgreSQL, generated from the descriptors.

A new store is created directly from this; migrations bring an older one to the same schema. On SQLite a numbered table
is keyed by its number alone, which is its rowid: the cheapest key there is, and unique in the file. On PostgreSQL the
scope leads every key and every reference, so that tables can be partitioned by it.
"""

from __future__ import annotations

from . import agents, branches, content, documents, entries, files, history, live, sessions, store
from .table import Table

# In an order in which every table is created after those it references.
TABLES: tuple[Table[tuple[object, ...]], ...] = (  # type: ignore[assignment]
    agents.AGENT,
    agents.VERSION,
    sessions.SESSION,
    sessions.TAG,
    sessions.METADATA,
    sessions.DETAIL,
    branches.BRANCH,
    entries.ENTRY,
    entries.LINK,
    entries.LOST,
    history.CHECKPOINT,
    history.ONCE,
    history.OPERATION,
    content.BLOB,
    content.CHUNK,
    history.FEED,
    sessions.LEASE,
    live.STREAM,
    live.DELTA,
    live.INBOX,
    files.WORKSPACE,
    files.SCAN,
    files.TOUCHED,
    files.SEEN,
    files.JOURNAL,
    agents.AGENT_CHECKPOINT,
    agents.PIN,
    documents.DOCUMENT,
    store.META,
    store.MIGRATION,
)
BY_NAME = {table.name: table for table in TABLES}
_POSTGRES = {"INTEGER": "BIGINT", "TEXT": 'TEXT COLLATE "C"', "BLOB": "BYTEA"}


def sqlite() -> str:
    """Write the whole schema for SQLite."""
    return "\n\n".join(sqlite_table(table) for table in TABLES) + "\n"


def postgres() -> str:
    """Write the whole schema for PostgreSQL."""
    return "\n\n".join(_postgres_table(table) for table in TABLES) + "\n"


def sqlite_table(table: Table[tuple[object, ...]]) -> str:
    """Write one table with its indexes for SQLite."""
    lines = []
    for name, (kind, optional) in table.types().items():
        if name == table.number:
            text = f"{kind} PRIMARY KEY"
        else:
            text = kind if optional else f"{kind} NOT NULL"
            if (other := table.refs.get(name)) is not None:
                text += f" REFERENCES {other}{_referred(other)}"
        lines.append((f"{name:<13} {text}", table.notes.get(name, "")))
    if not table.number:
        lines.append((f"PRIMARY KEY ({', '.join(table.key)})", ""))
    ending = "STRICT, WITHOUT ROWID" if without_rowid(table) else "STRICT"
    return f"CREATE TABLE {table.name} (\n{_joined(lines)}\n) {ending};{indexes(table, 'sqlite')}"


def without_rowid(table: Table[tuple[object, ...]]) -> bool:
    """Whether a table on SQLite is WITHOUT ROWID; chunks of up to a megabyte would bloat such an index."""
    return not table.number and table.name != "chunk"


def _referred(other: str) -> str:
    return f" ({BY_NAME[other].number})"


def _postgres_table(table: Table[tuple[object, ...]]) -> str:
    types, lines = table.types(), []
    for name in _places(table):
        kind, optional = types[name]
        lines.append((f"{name:<13} {_POSTGRES[kind]}{'' if optional else ' NOT NULL'}", ""))
    lines.append((f"PRIMARY KEY ({', '.join(table.key)})", ""))
    for name, other in table.refs.items():
        lines.append((f"FOREIGN KEY (scope, {name}) REFERENCES {other} (scope, {BY_NAME[other].number})", ""))
    return f"CREATE TABLE {table.name} (\n{_joined(lines)}\n);{indexes(table, 'postgresql')}"


def _places(table: Table[tuple[object, ...]]) -> list[str]:
    """Return the columns in PostgreSQL's order: numbers first, since it aligns them, and what changes most last.

    The WAL record of an update holds everything between the first and the last byte that changed.
    """
    resting = [(kind != "INTEGER", name) for name, (kind, _) in table.types().items() if name not in table.moving]
    return [name for _, name in sorted(resting, key=lambda each: each[0])] + list(table.moving)


def _joined(lines: list[tuple[str, str]]) -> str:
    last = len(lines) - 1
    shown = []
    for number, (text, note) in enumerate(lines):
        text = f"  {text}{'' if number == last else ','}"
        shown.append(f"{text:<40}-- {note}" if note else text)
    return "\n".join(shown)


def indexes(table: Table[tuple[object, ...]], engine: str) -> str:
    """Return the statements that make the indexes of a table on an engine."""
    text = ""
    for index in table.indexes:
        if index.engine not in ("", engine):
            continue
        unique, where = " UNIQUE" if index.unique else "", f" WHERE {index.where}" if index.where else ""
        text += f"\nCREATE{unique} INDEX {index.name} ON {table.name} ({index.columns}){where};"
    return text
