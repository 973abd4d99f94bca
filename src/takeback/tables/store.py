"""The store's own records: its identity and its schema versions. They belong to no scope."""

from typing import NamedTuple

from .table import Table


class MetaRow(NamedTuple):
    """A row of ``meta``."""

    name: str
    value: bytes


class MigrationRow(NamedTuple):
    """A row of ``migration``."""

    version: int
    name: str
    applied_ms: int


META = Table("meta", MetaRow, key="name", called=lambda row: f"meta {row.name!r}", local=True)
MIGRATION = Table(
    "migration",
    MigrationRow,
    key="version",
    number="version",
    called=lambda row: f"schema number {row.version}",
    local=True,
)
