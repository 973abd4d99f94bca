"""Documents: what its check and the feed prove is kept, each by itself.

A document whose value alone is lost is gone, but its versions go on. So does one that the feed knows in a later version
than its row: whatever the row holds is not the document's last value.
"""

from __future__ import annotations

from ...model import words
from ...ops import documents
from ...ops.feed import OF_DOCUMENT
from ...ops.verify.documents import document_fault
from ...tables.documents import DOCUMENT
from ...tables.history import FEED
from .base import PARTLY, Salvage


def fix_documents(fix: Salvage) -> None:
    """Keep the documents that can be proved, and name the others."""
    told = dict[int, int]()
    for change in fix.sound(FEED):
        if change.session == OF_DOCUMENT:
            told[change.branch] = max(change.first_seq, told.get(change.branch, 0))
    numbers = {row.did for row in fix.sound(DOCUMENT)}
    _name_missing(fix, numbers, {did for (did,) in fix.tx.all("SELECT did FROM document")}, told)
    fix.settle(
        DOCUMENT,
        document_fault,
        "document",
        "its record was damaged, so it is lost",
        changes=lambda fix, found: [documents.GONE],
        partly="its value was damaged or is missing, so it counts as deleted",
    )
    for row in list(fix.sound(DOCUMENT)):
        if row.version < (newest := told.get(row.did, 0)):
            fix.replace(DOCUMENT, row, row._replace(**documents.GONE, version=newest))
            what = f"its record is that of version {row.version}, and version {newest} is lost: it counts as deleted"
            fix.lose("document", DOCUMENT.called(row), what, PARTLY)


def _name_missing(fix: Salvage, sound: set[int], there: set[int], told: dict[int, int]) -> None:
    """Name the documents that have no record; numbers are given out in a row."""
    for did in sorted(told.keys() - there):
        fix.lose("document", f"document number {did}", "its record is missing")
    if unnamed := max(sound, default=0) - len([did for did in there | told.keys() if did <= max(sound, default=0)]):
        fix.lose("document", "documents", f"the records of {words.count(unnamed, 'document')} are missing")
