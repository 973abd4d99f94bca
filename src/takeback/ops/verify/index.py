"""Checks of what points at entries: links that no entry leads to, entries that no branch leads to."""

from __future__ import annotations

from ...ids import MAX_SEQ
from ...storage.base import Tx
from ...tables.branches import BRANCH
from ...tables.entries import ENTRY, LINK, EntryRow, LinkRow
from ...tables.table import matches
from . import derived
from .base import PAGE, REBUILD, UNREADABLE, Check, Fault, Found, Key, Rule
from .log import LOST_AT, content_of, is_sound, read_row
from .tables import ATTACHMENT, place

HAS_BLOB = "SELECT 1 FROM blob WHERE scope = ? AND hash = ?"


def orphans_page(tx: Tx, found: Found, after: Key | None) -> Key | None:
    """Look for entries of branches that are not there, going from branch to branch."""
    has_branch = f"SELECT 1 FROM branch WHERE {matches(BRANCH.order(tx))}"
    for _ in range(PAGE):
        _, reached = ENTRY.page(tx, after, 1)
        if reached is None:
            return None
        *scope, key = reached
        if not tx.one(has_branch, (*scope, key >> 32)):
            found.add("missing", f"entry {place(key)}", "it belongs to a branch whose record is lost")
        after = (*scope, key | MAX_SEQ)
    return after


def link_fault(tx: Tx, link: LinkRow) -> Fault | None:
    """Say what does not fit about a link: the entry must need the blob, and the blob must be there."""
    row = read_row(tx, link.scope, link.key)
    if row.scope != link.scope:
        return Fault("link", "there is no such entry", REBUILD)
    try:
        needed = _needed_by(tx, row)
    except UNREADABLE:
        return None  # the entry is damaged: reported there
    if needed is not None and link.hash not in needed:
        return Fault("link", "the entry does not need it", REBUILD)
    has_blob = link.hash in row.spilled or tx.one(HAS_BLOB, (link.scope, link.hash))
    if has_blob or tx.one(LOST_AT, (link.scope, link.key)) == (ATTACHMENT,):
        return None
    if needed is None:
        return Fault("link", "neither the content of the entry nor the blob is there", REBUILD)
    return Fault("blob", "an attachment is missing")


def _needed_by(tx: Tx, row: EntryRow) -> set[str] | None:
    """Return the blobs that an entry needs; None if its content is gone and nobody can know."""
    if not is_sound(row) or (row.body is None and row.spill is None):
        return None
    (body, raw), _ = content_of(tx, row.scope, row)
    return derived.links(row, derived.needs(row, body, raw))


RULES: tuple[Check, ...] = (
    orphans_page,
    Rule(LINK, link_fault, "link", REBUILD, where=lambda row: f"blob {row.hash} of entry {place(row.key)}"),
)
