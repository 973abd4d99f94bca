"""Repair of entries: what the chain proves is put right, what it does not becomes a place without content.

An entry is proved when its content and header, with one value computed anew, give a hash that it has itself or that the
records behind it expect. The hash of a lost entry is kept if those expect it, so that the chain goes on; else the
entry behind it cannot be checked, and verify knows that from the ``lost`` record.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import add

from ... import codec
from ...model import forms
from ...model.entry import CALL, STATE_KINDS, Numbers
from ...model.message import MESSAGE_KINDS, Message, decode_raw, draft
from ...storage.base import Row, row_check
from .. import branches, entries
from ..branches import BranchRow
from ..entries import MAX_SEQ, key_of
from ..verify import derived
from ..verify.log import (
    LAST_KEY,
    Before,
    Line,
    after_of,
    before_of,
    content_of,
    hash_of,
    is_chained,
    is_whole,
    judge,
    line_of,
    numbers_of,
    read_row,
    read_rows,
)
from ..verify.places import BRANCHES
from ..verify.tables import BRANCH, CONTENT, ENTRY, LOST_ROWS
from .base import EMPTY, Repair, checked

DELETE = "DELETE FROM entry WHERE key = ?"
CHECKPOINTS_AT = "SELECT hash FROM checkpoint WHERE scope = ? AND branch = ? AND seq = ?"
FORKS_AT = f"SELECT {branches.COLUMNS} FROM branch WHERE parent = ? AND fork_seq = ?"
BEHIND = "SELECT key FROM entry WHERE key > ? AND key <= ?"

_PAGE = 300
_UNKNOWN = bytes(32)


def fix_entries(fix: Repair) -> None:
    """Go through all branches, parents first."""
    for row in fix.rows(BRANCHES):
        _fix_line(fix, _line(fix, branches.checked(row)))
    _fix_lost(fix)


def _line(fix: Repair, branch: BranchRow) -> Line:
    """Give a branch with its end; where the row that knew it is damaged, the last entry there is."""
    line = line_of(fix.tx, branch)
    if line.session is not None:
        return line
    last = fix.tx.one(LAST_KEY, (key_of(branch.bid, 0), key_of(branch.bid, MAX_SEQ)))
    end = last[0] if last and last[0] is not None else None
    if end is None or end & MAX_SEQ <= line.tip:
        return line
    return line._replace(tip=end & MAX_SEQ, tip_hash=bytes(read_row(fix.tx, end)[23] or _UNKNOWN))


def _fix_line(fix: Repair, line: Line) -> None:
    line, seq = _with_what_follows(fix, line), line.branch.fork_seq
    before = before_of(fix.tx, line, seq)
    while rows := read_rows(fix.tx, line, seq, _PAGE):
        for row in rows:
            here = row[0] & MAX_SEQ
            for missing in range(seq + 1, here):
                before = _lose(fix, line, missing, None, before)
            seq = here
            sound = judge(fix.tx, line, row, before)[0] is None
            sound = sound and (before.hash is not None or not _is_contradicted(fix, line, row))
            before = after_of(line, row) if sound else _mend(fix, line, row, before)
    for missing in range(seq + 1, line.tip + 1):
        before = _lose(fix, line, missing, None, before)


def _with_what_follows(fix: Repair, line: Line) -> Line:
    """Keep entries behind the recorded end if they follow from it, drop them if they do not."""
    branch = line.branch
    before = before_of(fix.tx, line, max(line.tip, branch.fork_seq))
    for (key,) in fix.tx.all(BEHIND, (key_of(branch.bid, line.tip), key_of(branch.bid, MAX_SEQ))):
        row = read_row(fix.tx, key)
        follows = (
            key & MAX_SEQ == line.tip + 1 and before.hash is not None and judge(fix.tx, line, row, before)[0] is None
        )
        if not follows:
            fix.tx.run(DELETE, (key,))
            fix.lose(
                "entry", line.where(key & MAX_SEQ), "it lay behind the end of its branch and did not follow from it"
            )
            continue
        line, before = line._replace(tip=key & MAX_SEQ, tip_hash=bytes(row[23])), after_of(line, row)
        fix.rebuilt += 1
    return line


# ---------------------------------------------------------------------- proving


def _mend(fix: Repair, line: Line, row: Row, before: Before) -> Before:
    new = _proved(fix, line, row, before)
    if new is None:
        return _lose(fix, line, row[0] & MAX_SEQ, row, before)
    fix.tx.run(DELETE, (row[0],))
    fix.tx.run(entries.INSERT, new)
    fix.rebuilt += 1
    return after_of(line, new)


def _proved(fix: Repair, line: Line, row: Row, before: Before) -> Row | None:
    """Give the row with one value put right if the chain proves it."""
    if before.hash is None or line.lost.get(0) == BRANCH:
        return None
    for each in _readings(row):
        try:
            new = _proved_as(fix, line, each, before.hash, before)
        except (*derived.UNREADABLE, OverflowError):
            continue  # of this reading nothing can be read or hashed
        if new is not None:
            return new
    return None


def _readings(row: Row) -> Iterator[Row]:
    """Give a row as it is, and without what a row with its content in it has not: a blob, a hash of erased content."""
    yield row
    if row[5] is not None and row[7] is not None:
        yield (*row[:7], None, *row[8:])
    if (row[5] is not None or row[7] is not None) and row[22] is not None:
        yield (*row[:22], None, *row[23:])


def _proved_as(fix: Repair, line: Line, row: Row, previous: bytes, before: Before) -> Row | None:
    (body, raw), hashed = content_of(fix.tx, line.branch.scope, row)
    for numbers in _numbers(row, body, raw, before):
        new = (*row[:3], numbers[1], *row[4:10], numbers[0], *numbers[2:], *row[21:])
        found = hash_of(line, new, previous, hashed)
        if found == row[23] or found in _expected(fix, line, row[0] & MAX_SEQ, found):
            mid = codec.decode(body).get("id") if body is not None and row[1] in MESSAGE_KINDS else None
            return _whole(line, (*new[:4], mid, *new[5:]), found)
    return None


def _whole(line: Line, row: Row, found: bytes) -> Row:
    """Put scope, hash and both checks into a row."""
    chained = (line.branch.scope, *row[10:23], found)
    return (*checked(row[:8]), *chained, row_check((row[0], row[3], *chained)))


def _numbers(row: Row, body: bytes | None, raw: bytes | None, before: Before) -> Iterator[tuple[int, ...]]:
    yield numbers_of(row)
    if before.numbers is not None and body is not None:
        adds, seq = _adds(row, body, raw), row[0] & MAX_SEQ
        yield (*map(add, before.numbers[:-1], adds), seq if adds[-1] else before.numbers[-1])


def _adds(row: Row, body: bytes, raw: bytes | None) -> Numbers:
    """Compute what an entry adds to the running numbers, as its append did."""
    if row[1] in STATE_KINDS:
        return Numbers(work_seq=1)
    said = codec.decode(body)
    if row[1] == CALL:
        return Numbers(tool_calls=int("arguments" in said))
    message = Message("", 0, 0, 0, body, raw)
    given = None
    if message.body.form is not None:
        known = forms.recognise(decode_raw(raw or b""))
        tools = message.tool_calls, message.tool_results
        given = (
            known[0] if len(known) == 1 else forms.Given(message.body.form, message.role, {}, None, None, None, *tools)
        )
    return draft(said, usage=message.usage, given=given).adds


def _expected(fix: Repair, line: Line, seq: int, tried: bytes) -> set[bytes]:
    """Give the hashes that other records expect of an entry, with ``tried`` if the next entry follows from it."""
    branch, found = line.branch, set[bytes]()
    if seq == line.tip:
        found.add(line.tip_hash)
    found |= {bytes(each) for (each,) in fix.tx.all(CHECKPOINTS_AT, (branch.scope, branch.bid, seq))}
    for row in fix.tx.all(FORKS_AT, (branch.bid, seq)):
        fork = branches.checked(row)
        if fork.tip_seq == seq:
            found.add(fork.tip_hash)
        if _follows(fix, line_of(fix.tx, fork), seq, tried):
            found.add(tried)
    if _follows(fix, line, seq, tried):
        found.add(tried)
    return found


def _is_contradicted(fix: Repair, line: Line, row: Row) -> bool:
    """Say whether the records behind an entry that nothing before it can prove expect another one."""
    seq, stored = row[0] & MAX_SEQ, bytes(row[23])
    if line.lost.get(seq) == ENTRY or line.lost.get(0) == BRANCH:
        return False
    after = read_row(fix.tx, key_of(line.branch.bid, seq + 1))
    expects = seq == line.tip or (is_chained(after) and is_whole(after) and not line.lost.get(seq + 1))
    return expects and stored not in _expected(fix, line, seq, stored)


def _follows(fix: Repair, line: Line, seq: int, previous: bytes) -> bool:
    """Say whether the entry behind a place is intact and follows from this hash."""
    row = read_row(fix.tx, key_of(line.branch.bid, seq + 1))
    if not is_chained(row) or not is_whole(row) or line.lost.get(seq + 1):
        return False
    try:
        return hash_of(line, row, previous, content_of(fix.tx, line.branch.scope, row)[1]) == bytes(row[23])
    except derived.UNREADABLE:
        return False


# ---------------------------------------------------------------------- losing


def _lose(fix: Repair, line: Line, seq: int, row: Row | None, before: Before) -> Before:
    """Leave a place without content, with the hash if others expect it."""
    stored = bytes(row[23]) if row is not None and isinstance(row[23], bytes) and len(row[23]) == 32 else None
    known = _hash(fix, line, seq, stored, row)
    numbers, kind = _guess(fix, line, seq, row, before)
    at_ms = _time(fix, line, seq, row)
    key, scope = key_of(line.branch.bid, seq), line.branch.scope
    blank = (
        key,
        kind,
        at_ms,
        numbers[1],
        None,
        None,
        None,
        None,
        0,
        scope,
        numbers[0],
        *numbers[2:],
        None,
        None,
        b"",
        0,
    )
    new = _whole(line, blank, known or _UNKNOWN)
    fix.tx.run(DELETE, (key,))
    fix.tx.run(entries.INSERT, new)
    line.lost[seq] = ENTRY if known is None else CONTENT
    fix.replace(LOST_ROWS, (key,), checked((key, scope, line.lost[seq], fix.now_ms)))
    fix.lose("entry", line.where(seq), "it was missing" if row is None else "its content was damaged", EMPTY)
    return after_of(line, new)


def _hash(fix: Repair, line: Line, seq: int, stored: bytes | None, row: Row | None) -> bytes | None:
    """Give the hash of a lost entry if another record confirms one."""
    expected = _expected(fix, line, seq, stored or b"")
    if stored is not None and stored in expected:
        return stored
    for each in sorted(expected - {b""}):
        if _follows(fix, line, seq, each) or seq == line.tip:
            return each
    alone = seq == line.tip and line.session is None
    return stored if alone and row is not None and is_chained(row) else None


def _guess(fix: Repair, line: Line, seq: int, row: Row | None, before: Before) -> tuple[tuple[int, ...], str]:
    """Give running numbers and kind of a lost entry as far as they are known, else those of the entry before it."""
    session, last = line.session, _last_numbers(fix, line, seq)
    if session is not None and (session.branch, session.seq) == (line.branch.bid, seq):
        numbers = session.numbers
    elif row is not None and is_chained(row) and all(map(int.__ge__, numbers_of(row), last)):
        numbers = numbers_of(row)
    else:
        numbers = _between(fix, line, seq, last)
    if numbers[-1] == seq:
        return numbers, _state_kind(fix, line, seq, row)
    if numbers[0] > last[0]:
        return numbers, row[1] if row is not None and row[1] in MESSAGE_KINDS else "message"
    return numbers, CALL if row is not None and row[1] == CALL else "lost"


def _last_numbers(fix: Repair, line: Line, seq: int) -> tuple[int, ...]:
    """Give the numbers of the entry before a place, also of a lost one."""
    if seq == 1:
        return tuple(Numbers())
    own = seq - 1 > line.branch.fork_seq
    row = read_row(fix.tx, key_of(line.branch.bid if own else line.branch.parent or 0, seq - 1))
    return numbers_of(row) if is_chained(row) else tuple(Numbers())


def _between(fix: Repair, line: Line, seq: int, last: tuple[int, ...]) -> tuple[int, ...]:
    """Infer from the entry behind a place what its entry was: a message, a change of the state of work."""
    row = read_row(fix.tx, key_of(line.branch.bid, seq + 1))
    if not is_chained(row):
        return last
    after = numbers_of(row)
    message = after[0] - (row[1] in MESSAGE_KINDS) > last[0]
    worked = after[-1] == seq or seq in _lasts(row).values()
    return (last[0] + message, *last[1:-1], seq if worked else last[-1])


def _state_kind(fix: Repair, line: Line, seq: int, row: Row | None) -> str:
    """Give the kind of a lost state entry: its own if that is one, else what the next state entry says of it."""
    if row is not None and row[1] in STATE_KINDS:
        return str(row[1])
    for later in read_rows(fix.tx, line, seq, _PAGE):
        for kind, at in _lasts(later).items():
            if at == seq and kind in STATE_KINDS:
                return kind
    return "note"


def _lasts(row: Row) -> dict[str, int]:
    """Give the places that a state entry names for the last one of each kind; nothing if it is none."""
    if row[1] not in STATE_KINDS or not is_whole(row) or row[5] is None:
        return {}
    try:
        return dict(codec.decode(row[5])["last"])
    except derived.UNREADABLE:
        return {}


def _time(fix: Repair, line: Line, seq: int, row: Row | None) -> int:
    """Give the time of a lost entry if it fits between those of its neighbours, else that of the one before."""
    before = read_row(fix.tx, key_of(line.branch.bid, seq - 1))[2]
    after = read_row(fix.tx, key_of(line.branch.bid, seq + 1))[2]
    low = before if isinstance(before, int) else line.branch.created_ms
    high = after if isinstance(after, int) else 1 << 62
    return row[2] if row is not None and isinstance(row[2], int) and low <= row[2] <= high else low


def _fix_lost(fix: Repair) -> None:
    """Drop records of losses that are damaged or name nothing; entries without content get theirs again above."""
    for row in fix.rows(LOST_ROWS):
        entry = read_row(fix.tx, row[0])
        gone = entry[9] is None and row[0] & MAX_SEQ != 0
        if row_check(row[:-1]) != row[-1] or gone:
            fix.delete(LOST_ROWS, row[:1])
