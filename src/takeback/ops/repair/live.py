"""Repair of what is under way: what can be told is kept, the rest is left out.

In the copy nobody runs a session whose lease was damaged. Pieces of a stream are kept up to the first that is lost.
Messages that wait in an inbox are numbered anew where one is lost.
"""

from __future__ import annotations

from ... import codec
from ...model import words
from ...storage.base import Row
from ..verify import live, places
from ..verify.base import is_sound
from ..verify.live import INBOX, LEASES, PIECES, STREAMS
from ..verify.places import DETAILS, LAST_SENT
from .base import Repair, checked

DROP_PIECES = "DELETE FROM delta WHERE scope = ? AND stream = ? AND n >= ?"


def fix_live(fix: Repair) -> None:
    """Put leases, streams and inboxes right."""
    for row in fix.rows(LEASES):
        if live.lease_fault(fix.tx, row):
            fix.delete(LEASES, row[:2])
            fix.lose("lease", f"lease of session number {row[1]}", "its record was damaged: nobody runs the session")
    for row in fix.rows(STREAMS):
        if live.stream_fault(fix.tx, row) not in ("", live.MISSING):
            fix.delete(STREAMS, row[:3])
            fix.lose("stream", f"stream {row[2]}", "its record was damaged, and what had arrived is lost with it")
    for row in fix.rows(PIECES):
        if live.piece_fault(fix.tx, row):
            fix.tx.run(DROP_PIECES, row[:3])
            fix.lose("stream", f"stream {row[1]}", f"what arrived from piece {row[2]} on is lost")
    for row in fix.rows(STREAMS):
        (count,) = fix.tx.one(live.PIECES_OF, (row[0], row[2])) or (0,)
        if count != row[9]:
            fix.replace(STREAMS, row[:3], checked((*row[:9], count)))
            fix.lose("stream", f"stream {row[2]}", "pieces of it are missing")
    _fix_inboxes(fix)


def _fix_inboxes(fix: Repair) -> None:
    kept, last = dict[tuple[str, int], list[Row]](), dict[tuple[str, int], int]()
    for row in list(fix.rows(INBOX)):
        before = last.get(row[:2], 0)
        if is_sound(row) and row[2] > before + 1:  # a damaged number says nothing about those before it
            first = f"sent message {before + 1} of session number {row[1]}"
            fix.lose("inbox", first, f"it and all before sent message {row[2]} are missing")
        last[row[:2]] = row[2] if is_sound(row) or row[2] == before + 1 else before
        if is_sound(row) and live.sent_fault(fix.tx, row) in ("", live.GAP):
            kept.setdefault(row[:2], []).append(row)
        else:
            fix.delete(INBOX, row[:3])
            fix.lose("inbox", f"sent message {row[2]} of session number {row[1]}", "its record was damaged")
    for rows in kept.values():
        if [row[2] for row in rows] != list(range(1, len(rows) + 1)):
            for row in rows:
                fix.delete(INBOX, row[:3])
            for n, row in enumerate(rows, 1):
                fix.insert(INBOX, checked((*row[:2], n, *row[3:-1])))
            fix.rebuilt += 1
    for row in fix.rows(DETAILS):
        if not is_sound(row) or not places.is_object(row[1]):
            continue
        if places.other_open(fix.tx, row):
            (count,) = fix.tx.one(places.OPEN, (row[0],)) or (0,)
            row = checked((row[0], codec.encode({**codec.decode(row[1]), "open": count})))
            fix.replace(DETAILS, row[:1], row)
            fix.lose("stream", f"answers of session number {row[0]}", "what is being written there was counted anew")
        if places.fewer_sent(fix.tx, row):
            _count_again(fix, row)


def _count_again(fix: Repair, row: Row) -> None:
    """Let a session know how many messages are left of those that were sent to it."""
    (left,) = fix.tx.one(LAST_SENT, (row[0],)) or (0,)
    about = codec.decode(row[1])
    missing = words.count(about["sent"] - left, "sent message")
    fix.lose("inbox", f"inbox of session number {row[0]}", f"{missing} of it could not be kept")
    fix.replace(DETAILS, row[:1], checked((row[0], codec.encode({**about, "sent": left}))))
