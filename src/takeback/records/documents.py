"""Documents on their way into a store: whole by themselves, so each is put or left as it is there.

No versions but the last are kept, so a copy remembers the change that it came with, its base. A store has gone on from
another if the other's last change is its base; and a copy that nothing was done to gives way to a later version.
Anything else was changed in both: it is a conflict, and stays as it is in each. What a file brings never takes the
place of what is there.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ..errors import Conflict, Corrupt
from ..ops import blobs, documents, feed
from ..storage.base import Tx
from ..tables.documents import DELETED, DOCUMENT, DocumentRow
from .as_of import AGAIN
from .stream import DocumentRecord

A = TypeVar("A", bound="tuple[Any, ...]")

_BASE = ("base_version", "base_ms", "base_hidden")
_LOCAL: dict[str, Any] = {"did": 0, **dict.fromkeys(_BASE, 0)}


def find(tx: Tx, row: DocumentRow) -> DocumentRow | None:
    """Return the document of the same name, live or not, or None."""
    return DOCUMENT.one(tx, documents.BY_KEY, (row.scope, row.namespace, row.key))


def is_wanted(mine: DocumentRow, theirs: DocumentRow | None, *, leave: bool = False) -> bool:
    """Whether a document is to be put; raises ``Conflict`` if the destination says something else.

    With ``leave`` nothing that is there gives way.
    """
    if theirs is None:
        return True
    if mine._replace(**_LOCAL) == theirs._replace(**_LOCAL):
        return False
    if mine.last_put == theirs.last_put and (mine.hidden or theirs.hidden):
        return mine.hidden == DELETED and not theirs.hidden and not leave
    if mine.last_change == theirs.base or (_is_copy(mine) and theirs.version > mine.version):
        return False  # it went on there
    if not leave and (theirs.last_change == mine.base or (_is_copy(theirs) and mine.version > theirs.version)):
        return True
    name = DOCUMENT.called(mine)
    raise Conflict(f"{name} is another one in the destination; it stays as it is in each. {AGAIN}", found=mine.key)


def _is_copy(row: DocumentRow) -> bool:
    """Whether nothing was done to a document since it was copied."""
    return row.base == row.last_change


def put(putting: Any, tx: Tx, at: A, record: DocumentRecord, tally: Any) -> A:
    """Write a document in its last version, unless it is there."""
    row = record.row
    there = documents.locked(tx, row.scope, row.namespace, row.key)
    putting.require_new(there is not None, DOCUMENT.called(row))
    if is_wanted(row, there):
        if row.hash is not None and not blobs.exists(tx, row.scope, row.hash):
            said = f"the value of {DOCUMENT.called(row)} is missing; it may have been erased meanwhile: call again"
            raise Corrupt(said, what=DOCUMENT.called(row))
        base: dict[str, Any] = dict(zip(_BASE, row.base if record.kept else row.last_change, strict=True))
        made = row._replace(did=there.did if there else tx.next("document"), **base)
        if there is None:
            DOCUMENT.put(tx, made)
        else:
            DOCUMENT.update(tx, there, made)
        feed.record_document(tx, made.scope, made.did, made.version)
        if made.hidden:
            feed.record_document(tx, made.scope, made.did, 0)
        tally.counts.update(documents=1)
    return at
