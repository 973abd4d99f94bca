"""Checks of what points at entries: tool calls and links that no entry leads to, entries that no branch leads to."""

from __future__ import annotations

from ...errors import Corrupt
from ...storage.base import Row, Tx
from .. import branches, entries
from . import derived
from .base import LOWEST, PAGE, REBUILD, Found, Key, Table, advance, is_sound
from .derived import Needs
from .log import LOST_AT, Fault, content_of, is_whole, read_row
from .tables import ATTACHMENT, HAS_ENTRY, place

CALLS = Table("call", "scope, key, what, call_id, chk", "scope, key, what, call_id", ("", LOWEST, "", ""))
LINKS = Table("link", "scope, hash, key, chk", "scope, hash, key", ("", "", LOWEST))
NEXT_KEY = "SELECT key FROM entry WHERE key > ? ORDER BY key LIMIT 1"
HAS_BLOB = "SELECT 1 FROM blob WHERE scope = ? AND hash = ?"


def orphans_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Look for entries of branches that are not there, going from branch to branch."""
    (key,) = after
    for _ in range(PAGE):
        row = tx.one(NEXT_KEY, (key,))
        if row is None:
            return None
        if row[0] <= key:
            raise Corrupt("the entries are out of order", what="file")
        key = row[0] | entries.MAX_SEQ
        if not tx.one(branches.GET, (row[0] >> 32,)):
            found.add("missing", f"entry {place(row[0])}", "it belongs to a branch whose record is lost")
    return (key,)


def calls_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the records of tool calls themselves; the entries say which there must be."""
    rows = CALLS.rows(tx, after)
    for row in rows:
        found.checked += 1
        where = f"tool call {row[3]!r} of entry {place(row[1])}"
        if not is_sound(row):
            found.add("call", where, "the record does not match its check", REBUILD)
        elif not tx.one(HAS_ENTRY, (row[1], row[0])):
            found.add("call", where, "there is no such entry", REBUILD)
    return advance(rows, after, 4)


def links_page(tx: Tx, found: Found, after: Key) -> Key | None:
    """Check the links to blobs: the entry must need it and the blob must be there."""
    rows = LINKS.rows(tx, after)
    damaged = Fault("link", "the record does not match its check", REBUILD)
    for row in rows:
        found.checked += 1
        if fault := link_fault(tx, row) if is_sound(row) else damaged:
            found.add(fault.kind, f"blob {row[1]} of entry {place(row[2])}", fault.what, fault.fix)
    return advance(rows, after, 3)


def link_fault(tx: Tx, link: Row) -> Fault | None:
    """Say what does not fit about a link whose row is sound."""
    scope, content_hash, key = link[:3]
    row = read_row(tx, key)
    if row[9] != scope:
        return Fault("link", "there is no such entry", REBUILD)
    try:
        needed = needed_by(tx, row)
    except derived.UNREADABLE:
        return None  # the entry is damaged: reported there
    if needed is not None and content_hash not in needed:
        return Fault("link", "the entry does not need it", REBUILD)
    spilled = row[7] is not None and content_hash in row[7]
    if spilled or tx.one(HAS_BLOB, (scope, content_hash)) or tx.one(LOST_AT, (key,)) == (ATTACHMENT,):
        return None
    if needed is None:
        return Fault("link", "neither the content of the entry nor the blob is there", REBUILD)
    return Fault("blob", "an attachment is missing")


def needed_by(tx: Tx, row: Row) -> set[str] | None:
    """Give the blobs that an entry needs; None if its content is gone and nobody can know."""
    if not is_whole(row) or (row[5] is None and row[7] is None):
        return None
    (body, raw), _ = content_of(tx, row[9], row)
    return derived.links(row, Needs()) | derived.links(row, derived.needs(row, body, raw))
