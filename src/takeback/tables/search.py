"""The tables of the search index, as plain data: they repeat what the store holds, so nothing seals or copies them.

Beside the terms every engine has the same small tables (``TABLES``); SQLite's lie in a file of their own, with its
full-text table. PostgreSQL's lie beside the store's tables and are made with them, together with the tables of its
terms (``POSTINGS``): there the scope leads every key, and row security keeps scopes apart as it does everywhere.

The invariant: whatever is here can be deleted and made anew from the feed.
"""

from __future__ import annotations

from collections.abc import Mapping

# Names, columns with their types, and keys.
Tables = Mapping[str, tuple[tuple[str, ...], str]]

TABLES: Tables = {
    "search_doc": (("scope TEXT", "number INTEGER", "key INTEGER", "at_s INTEGER", "kind INTEGER"), "scope, number"),
    "search_place": (
        (
            *("scope TEXT", "bid INTEGER", "sid INTEGER", "upto INTEGER", "whole INTEGER", "owner INTEGER"),
            "other INTEGER",
        ),
        "scope, bid, sid",
    ),
    "search_session": (
        (
            *("scope TEXT", "sid INTEGER", "agent TEXT", "workspace TEXT", "moved INTEGER", "path TEXT"),
            *("title INTEGER", "said TEXT"),
        ),
        "scope, sid",
    ),
    "search_branch": (("scope TEXT", "bid INTEGER", "upto INTEGER"), "scope, bid"),
    "search_span": (("scope TEXT", "block INTEGER", "low_s INTEGER", "high_s INTEGER"), "scope, block"),
    "search_state": (("scope TEXT", "name TEXT", "value TEXT"), "scope, name"),
}
# A segment holds the documents from ``seg`` to ``last``: ``size`` of them, of which ``gone`` were removed since.
POSTINGS: Tables = {
    "search_segment": (
        ("scope TEXT", "seg INTEGER", "last INTEGER", "size INTEGER", "gone INTEGER", "level INTEGER"),
        "scope, seg",
    ),
    "search_posting": (
        ("scope TEXT", "term TEXT", "seg INTEGER", "docs BLOB", "counts BLOB", "places BLOB"),
        "scope, term, seg",
    ),
    "search_gram": (("scope TEXT", "gram TEXT", "seg INTEGER", "words TEXT"), "scope, gram, seg"),
}
# The terms of a segment must be found by their beginning too, without a look at other segments. Numbers of sessions are
# those of the whole store: an index that leads with the scope would tempt the planner, while it has no statistics, to
# walk all of it in place of the key.
_INDEXES = {
    "search_place_sid": "search_place (sid, scope)",
    "search_place_other": "search_place (sid, scope) WHERE other = 1",
    "search_posting_seg": "search_posting (scope, seg, term)",
    "search_gram_seg": "search_gram (scope, seg)",
}
_POSTGRES = {"INTEGER": "BIGINT", "TEXT": 'TEXT COLLATE "C"', "BLOB": "BYTEA"}

NAMES = (*TABLES, *POSTINGS)  # of the tables on PostgreSQL


def names(table: str) -> tuple[str, ...]:
    """Return the names of a table's columns."""
    return tuple(column.partition(" ")[0] for column in {**TABLES, **POSTINGS}[table][0])


def into(table: str, *more: str) -> str:
    """Return the beginning of a statement that adds rows; ``more`` are columns that only one engine has."""
    return f"INSERT INTO {table} ({', '.join([*names(table), *more])}) "


def insert(table: str, count: int = 1, *more: str) -> str:
    """Return the statement that adds so many rows."""
    return into(table, *more) + "VALUES " + ", ".join([f"({', '.join('?' * len([*names(table), *more]))})"] * count)


def postgres() -> str:
    """Write the tables of the index for PostgreSQL."""
    made = [_postgres_table(name, *shape) for name, shape in {**TABLES, **POSTINGS}.items()]
    made += [f"CREATE INDEX {name} ON {columns};" for name, columns in _INDEXES.items()]
    return "\n\n".join(made) + "\n"


def _postgres_table(name: str, columns: tuple[str, ...], key: str) -> str:
    lines = [f"{column} {_POSTGRES[kind]} NOT NULL" for column, kind in (each.split(" ") for each in columns)]
    return "\n".join((f"CREATE TABLE {name} (", *(f"  {line}," for line in lines), f"  PRIMARY KEY ({key})\n);"))
