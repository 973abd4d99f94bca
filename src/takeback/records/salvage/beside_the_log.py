"""What lies beside the log: contents, checkpoints, operations, idempotency keys, and what was under way.

What cannot be proved is left out. Content is what its hash says or it is nothing; an entry whose attachment or file is
gone says so from then on. In the copy nobody runs a session whose lease was damaged; pieces of a stream are kept up to
the first that is lost, and messages that wait in an inbox are numbered anew where one is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from ... import codec
from ...errors import Corrupt
from ...model import words
from ...ops import chain
from ...ops.log import key_of
from ...ops.verify import content, derived, history, live
from ...ops.verify.base import is_object
from ...ops.verify.changes import operation_deficits, operation_gaps
from ...ops.verify.content import CHUNKS_OF
from ...ops.verify.files import TreeChecks
from ...ops.verify.history import ATTACHMENT, CONTENT, ENTRY, checkpoint_fault, operation_fault
from ...ops.verify.log import HAS_BLOB, WalkedBranch, content_of, line_of
from ...ops.verify.sessions import LAST_SENT, fewer_sent, other_open
from ...tables.agents import PinRow
from ...tables.branches import BRANCH
from ...tables.content import BLOB, BlobRow
from ...tables.entries import ENTRY as ENTRIES
from ...tables.entries import LINK, LOST, EntryRow, LostRow
from ...tables.files import JOURNAL
from ...tables.history import CHECKPOINT, ONCE, OPERATION, CheckpointRow, OperationRow
from ...tables.live import DELTA, INBOX, STREAM, SentRow
from ...tables.sessions import DETAIL, LEASE
from .base import PARTLY, ReadRow, Salvage
from .entries import walk

OWNERS = "SELECT DISTINCT scope, blob_id FROM chunk"
SCOPES = "SELECT DISTINCT scope FROM chunk WHERE blob_id = ?"
DROP_OF = "DELETE FROM chunk WHERE scope = ? AND blob_id = ? AND n >= ?"
BRANCHES_OF = "SELECT bid FROM branch WHERE session = ? ORDER BY bid"
SIDS = "SELECT ifnull(max(sid), 0) FROM session"


# ---------------------------------------------------------------------- contents


def fix_blobs(fix: Salvage) -> None:
    """Check all contents against their hashes; a record that is damaged or missing follows from the chunks."""
    for row, sound, _ in fix.rows(BLOB):
        if sound and (row.hash is None or not content.blob_fault(fix.read, row)):
            continue  # whole, or an upload that was under way
        (scope,) = fix.tx.one(SCOPES, (row.blob_id,)) or (row.scope,)
        fix.delete(BLOB, row)
        _rebuild(fix, scope, row.blob_id, row)
    for scope, blob_id in fix.tx.all(OWNERS):
        found = fix.find(BLOB, blob_id)
        if found is None or found.row.scope != scope:
            _rebuild(fix, scope, blob_id, None)


def _rebuild(fix: Salvage, scope: str, blob_id: int, old: BlobRow | None) -> None:
    """Make the record of a content from its chunks: as many as the old one counts if they have its hash, else all."""
    count, last = fix.tx.one(CHUNKS_OF, (scope, blob_id)) or (0, None)
    known = _content(fix, scope, blob_id, old.chunks) if old is not None and 0 <= old.chunks <= count else None
    if known is None or (old is not None and known[0] != old.hash):
        known = _content(fix, scope, blob_id, count) if last == (count - 1 if count else None) else None
    if known is None or fix.find(BLOB, blob_id) or fix.tx.one(HAS_BLOB, (scope, known[0])):
        fix.tx.run(DROP_OF, (scope, blob_id, -(1 << 63)))
        name = f"blob number {blob_id}" if old is None else f"blob {old.hash}"
        fix.lose("blob", name, "a part of its content was damaged or is missing, or it is there twice")
        return
    fix.tx.run(DROP_OF, (scope, blob_id, known[2]))
    BLOB.put(fix.tx, BlobRow(scope, blob_id, *known, old.created_ms if old else fix.now_ms, ""))
    if old is None:
        fix.lose("blob", f"blob {known[0]}", "when it was stored is lost", PARTLY)


def _content(fix: Salvage, scope: str, blob_id: int, count: int) -> tuple[str, int, int] | None:
    """Return hash, size and number of the first chunks of a blob, if they are whole."""
    try:
        return (*content.digest_of(fix.read, scope, blob_id, count), count)
    except Corrupt:
        return None


def fix_contents(fix: Salvage) -> None:
    """Make entries note the tool calls that they touch, and report which of their attachments and files are lost."""
    for link, sound, _ in fix.rows(LINK):
        if not sound:
            fix.delete(LINK, link)
    trees = TreeChecks()
    for branch in fix.sound(BRANCH):
        line = line_of(fix.tx, branch)
        for entry in walk(fix, line, branch.fork_seq):
            if line.lost.get(entry.seq) not in (CONTENT, ENTRY):
                _look_into(fix, line, entry, trees)


def _look_into(fix: Salvage, line: WalkedBranch, row: EntryRow, trees: TreeChecks) -> None:
    (body, raw), _ = content_of(fix.tx, line.branch.scope, row)
    if body is None:
        return
    needed = derived.needs(row, body, raw)
    calls = tuple(dict.fromkeys(needed.marks))
    if row.chain.calls != calls:
        fix.replace(ENTRIES, row, row.with_chain(row.chain._replace(calls=calls)))
    gone = [each for each in sorted(derived.links(row, needed)) if not fix.tx.one(HAS_BLOB, (row.scope, each))]
    fault = trees.fault(fix.tx, row)
    if gone or fault:
        lost = LostRow(row.scope, row.key, ATTACHMENT, fix.now_ms)
        fix.replace(LOST, lost, lost)
    for each in gone:
        where = f"blob {each} of entry {history.place(row.key)}"
        fix.lose("blob", where, "the content of an attachment or of a snapshot is lost")
    if fault:
        fix.lose("snapshot", f"entry {history.place(row.key)}", fault.what, PARTLY)


# ---------------------------------------------------------------------- checkpoints, operations, keys


def fix_checkpoints(fix: Salvage) -> None:
    """Keep a checkpoint if its check or its hash proves the entry that it names."""
    what = "its record was damaged, or the entry it names is gone"
    fix.settle(CHECKPOINT, checkpoint_fault, "checkpoint", what, changes=places)


def places(fix: Salvage, found: ReadRow[CheckpointRow] | ReadRow[PinRow]) -> Iterator[dict[str, Any]]:
    """Yield what a row that names an entry may have said: one of the session's entries at that seq.

    A row that was sealed with another place still has the hash of its entry, so only the branch may be another one.
    """
    for (bid,) in fix.tx.all(BRANCHES_OF, (found.row.session,)):
        yield {"branch": bid}
        entry = None if found.sound else fix.find(ENTRIES, key_of(bid, found.row.seq))
        if entry is not None and entry.sound:
            yield from ({"hash": entry.row.chain.hash}, {"branch": bid, "hash": entry.row.chain.hash})
    if not found.sound:
        yield {"seq": 0, "hash": chain.GENESIS}


def fix_operations(fix: Salvage) -> None:
    """Leave out operations that are lost, and let go of those in the ones that named them."""
    (top,) = fix.tx.one(SIDS) or (0,)
    if missing := operation_gaps(fix.tx) or sum(operation_deficits(fix.tx, 0, top).values()):
        fix.lose("operation", "operations", f"{missing} of them are missing, so they cannot be undone")
    what = "what it did is lost, so it cannot be undone"
    partly = "which operation took it back, which it took back, or whose files it changed, is lost"
    fix.settle(OPERATION, lambda tx, row: False, "operation", what, changes=_views)
    while not fix.settle(OPERATION, operation_fault, "operation", what, changes=_let_go, partly=partly):
        pass  # one that was left out may be named by another one


def _views(fix: Salvage, found: ReadRow[OperationRow]) -> Iterator[dict[str, Any]]:
    yield from ({"after": found.row.before}, {"before": found.row.after})


def _let_go(fix: Salvage, found: ReadRow[OperationRow]) -> Iterator[dict[str, Any]]:
    undone: tuple[dict[str, Any], ...] = ({"undone_by": None}, {"undoes": None}, {"undoes": None, "undone_by": None})
    yield from (*undone, {"workspace": 0}, *({"workspace": 0, **each} for each in undone))


def fix_keys(fix: Salvage) -> None:
    """Leave out idempotency keys that are damaged or name what is not there."""
    what = "its record was damaged, or what it stands for is lost: a retry with this key is stored again"
    fix.settle(ONCE, history.key_fault, "idempotency", what)


# ---------------------------------------------------------------------- what was under way


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
    fix.settle(JOURNAL, live.journal_fault, "journal", what, where=live.journal_name)


def _fix_inbox(fix: Salvage, found: list[ReadRow[SentRow]]) -> None:
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
