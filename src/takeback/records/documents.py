"""Documents on their way into a store: whole by themselves, so each is put or left as it is there.

No versions but the last are kept, so two stores cannot be compared by their histories. A document that came by a copy
and was not put since gives way to a later version. The same put in both stores is the same document, whatever happened
to it since in one of them. Anything else was changed in both: it is a conflict, and stays as it is in each. What a file
brings never takes the place of what is there.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ..errors import Conflict, Corrupt
from ..ops import blobs, documents, feed
from ..storage.base import Tx
from ..tables.documents import DOCUMENT, DocumentRow
from .as_of import AGAIN
from .stream import DocumentRecord

A = TypeVar("A", bound="tuple[Any, ...]")

_LOCAL: dict[str, Any] = {"did": 0, "copied": 0}


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
    same_put = (mine.version, mine.updated_ms) == (theirs.version, theirs.updated_ms)
    if same_put and (mine.hidden or theirs.hidden):
        return bool(mine.hidden and not leave)  # it was deleted since, or has expired
    if theirs.copied and not leave and mine.version > theirs.version:
        return True
    if mine.copied and theirs.version > mine.version:
        return False  # it went on there
    name = DOCUMENT.called(mine)
    raise Conflict(f"{name} is another one in the destination; it stays as it is in each. {AGAIN}", found=mine.key)


def put(putting: Any, tx: Tx, at: A, record: DocumentRecord, tally: Any) -> A:
    """Write a document in its last version, unless it is there."""
    row = record.row
    there = documents.locked(tx, row.scope, row.namespace, row.key)
    putting.require_new(there is not None, DOCUMENT.called(row))
    if is_wanted(row, there):
        if row.hash is not None and not blobs.exists(tx, row.scope, row.hash):
            said = f"the value of {DOCUMENT.called(row)} is missing; it may have been erased meanwhile: call again"
            raise Corrupt(said, what=DOCUMENT.called(row))
        made = row._replace(did=there.did if there else tx.next("document"), copied=row.copied if record.kept else 1)
        if there is None:
            DOCUMENT.put(tx, made)
        else:
            DOCUMENT.update(tx, there, made)
        feed.record_document(tx, made.scope, made.did, made.version)
        if made.hidden:
            feed.record_document(tx, made.scope, made.did, 0)
        tally.counts.update(documents=1)
    return at
