"""What was under way: what can be told is kept, the rest is left out.

In the copy nobody runs a session whose lease was damaged. Pieces of a stream are kept up to the first that is lost.
Messages that wait in an inbox are numbered anew where one is lost.
"""

from __future__ import annotations

from itertools import groupby

from ... import codec
from ...model import words
from ...ops.verify import live, whole
from ...ops.verify.base import is_object
from ...ops.verify.places import LAST_SENT, fewer_sent, other_open
from ...tables.files import JOURNAL
from ...tables.live import DELTA, INBOX, STREAM, SentRow
from ...tables.sessions import DETAIL, LEASE
from .base import Read, Salvage


def fix_live(fix: Salvage) -> None:
    """Put leases, streams, inboxes and changes of files right."""
    for detail in fix.sound(DETAIL):
        if is_object(detail.doc) and fewer_sent(fix.tx, detail):
            (left,) = fix.tx.one(LAST_SENT, (detail.scope, detail.sid)) or (0,)
            missing = words.count(codec.decode(detail.doc)["sent"] - (left or 0), "sent message")
            fix.lose("inbox", f"inbox of session number {detail.sid}", f"{missing} of it could not be kept")
        if is_object(detail.doc) and other_open(fix.tx, detail):
            fix.lose("stream", f"answers of session number {detail.sid}", "what was being written there is lost")
    fix.settle(LEASE, live.lease_fault, "lease", "its record was damaged: nobody runs the session")
    what = "its record was damaged, and what had arrived is lost with it"
    fix.settle(STREAM, lambda tx, row: live.stream_fault(tx, row) not in ("", live.MISSING), "stream", what)
    # A piece whose predecessor was left out is left out as well.
    fix.settle(DELTA, live.piece_fault, "stream", "it and all that arrived behind it is lost")
    for row in fix.sound(STREAM):
        (count,) = fix.tx.one(live.PIECES_OF, (row.scope, row.id)) or (0,)
        if count != row.pieces:
            fix.replace(STREAM, row, row._replace(pieces=count))
            fix.lose("stream", f"stream {row.id}", "pieces of it are missing")
    for _, found in groupby(list(fix.rows(INBOX)), lambda each: (each.row.scope, each.row.session)):
        _fix_inbox(fix, list(found))
    what = "its record was damaged: it is not taken back by itself"
    fix.settle(JOURNAL, whole.journal_fault, "journal", what, where=whole.journal_name)


def _fix_inbox(fix: Salvage, found: list[Read[SentRow]]) -> None:
    """Number the messages of an inbox that can be kept without a gap."""
    kept, last = list[SentRow](), 0
    for row, sound, _ in found:
        where = f"sent message {row.n} of session number {row.session}"
        if sound and row.n > last + 1:  # a damaged number says nothing about those before it
            gap = f"sent message {last + 1} of session number {row.session}"
            fix.lose("inbox", gap, f"it and all before sent message {row.n} are missing")
        last = row.n if sound or row.n == last + 1 else last
        fix.delete(INBOX, row)
        if sound and live.sent_fault(fix.tx, row) in ("", live.GAP):
            kept.append(row)
        else:
            fix.lose("inbox", where, "its record was damaged")
    INBOX.put_many(fix.tx, [row._replace(n=n) for n, row in enumerate(kept, 1)])
