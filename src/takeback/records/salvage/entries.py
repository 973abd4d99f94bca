"""Salvage of entries: what the chain proves is put right, what it does not becomes a place without content.

An entry is proved when its content and header, with one value computed anew, give a hash that it has itself or that the
records behind it expect. The running numbers, the tool calls and the id follow from the content and the entry before;
the salt follows from nothing, so without it content proves nothing. The hash of a lost entry is kept if the records
behind it expect it, so that the chain goes on; else the entry behind it cannot be checked, and verify knows that from
the ``lost`` record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ... import codec
from ... import providers as forms
from ...ids import MAX_SEQ
from ...model.entry import CALL, STATE_KINDS, Draft, More, Numbers
from ...model.items import CUSTOM, custom_adds
from ...model.message import MESSAGE_KINDS, Message, draft
from ...ops import entries, open_calls
from ...ops.log import key_of
from ...ops.verify import derived, log
from ...ops.verify.base import UNREADABLE
from ...ops.verify.history import BRANCH, CONTENT, ENTRY, lost_fault
from ...ops.verify.log import Before, WalkedBranch, after_of, chain_of, is_sound, line_of, read_row
from ...tables.branches import BRANCH as BRANCHES
from ...tables.branches import BranchRow
from ...tables.entries import ENTRY as ENTRIES
from ...tables.entries import LOST, Chain, EntryRow, LostRow
from .base import EMPTY, SPARE, Salvage

BEHIND = "SELECT key FROM entry WHERE key > ? AND key <= ? ORDER BY key"
TOLD = "SELECT 1 FROM feed WHERE scope = ? AND branch = ? AND last_seq >= ? AND kind = 'entries' AND session > 0"
CHECKPOINTS_AT = "SELECT hash FROM checkpoint WHERE scope = ? AND branch = ? AND seq = ?"

_PAGE = 300
_UNKNOWN = bytes(32)
_SALT, _HASH, _END = slice(2, 18), slice(21, 53), 53  # in the last bytes of ``rest``, of what is not redacted


def fix_entries(fix: Salvage) -> None:
    """Go through all branches, parents first."""
    for branch in fix.sound(BRANCHES):
        _fix_line(fix, _line(fix, branch))
    _fix_lost(fix)


def walk(fix: Salvage, line: WalkedBranch, seq: int) -> Iterator[EntryRow]:
    """Yield the entries of a branch behind a seq; what was yielded may be replaced meanwhile."""
    while rows := log.read_rows(fix.tx, line, seq, _PAGE):
        yield from rows
        seq = rows[-1].seq


def _line(fix: Salvage, branch: BranchRow) -> WalkedBranch:
    """Return a branch with its end; where the row that knew it is damaged, the last entry there is.

    An end far behind it that the feed does not know either is damaged as well: the gap would take for ever to fill.
    """
    line, (_, last) = line_of(fix.tx, branch), fix.ends(branch.bid) or (0, branch.fork_seq)
    far = line.tip > last + SPARE and fix.tx.one(TOLD, (branch.scope, branch.bid, line.tip)) is None
    if not far and (line.session is not None or last <= line.tip):
        return line
    found = log.before_of(fix.tx, line, last).hash
    return line._replace(tip=last, tip_hash=found or _UNKNOWN)


def _fix_line(fix: Salvage, line: WalkedBranch) -> None:
    line, seq = _with_what_follows(fix, line), line.branch.fork_seq
    before = log.before_of(fix.tx, line, seq)
    for row in walk(fix, line, seq):
        before = _lose_missing(fix, line, seq, row.seq, before)
        seq = row.seq
        fault, content = log.judge(fix.tx, line, row, before)
        sound = fault is None and log.is_readable(row, content)
        sound = sound and (before.hash is not None or not _is_contradicted(fix, line, row))
        before = after_of(line, row, before) if sound else _mend(fix, line, row, before)
    _lose_missing(fix, line, seq, line.tip + 1, before)


def _lose_missing(fix: Salvage, line: WalkedBranch, low: int, high: int, before: Before) -> Before:
    for seq in range(low + 1, high):
        before = _lose(fix, line, seq, None, before)
    return before


def _with_what_follows(fix: Salvage, line: WalkedBranch) -> WalkedBranch:
    """Keep entries behind the recorded end if they follow from it, drop them if they do not."""
    branch = line.branch
    before = log.before_of(fix.tx, line, max(line.tip, branch.fork_seq))
    for (key,) in fix.tx.all(BEHIND, (key_of(branch.bid, line.tip), key_of(branch.bid, MAX_SEQ))):
        row = read_row(fix.tx, branch.scope, key)
        next_one = row.seq == line.tip + 1 and before.hash is not None
        if next_one and log.judge(fix.tx, line, row, before)[0] is None:
            line, before = line._replace(tip=row.seq, tip_hash=row.chain.hash), after_of(line, row, before)
        else:
            fix.delete(ENTRIES, row)
            fix.lose("entry", line.where(row.seq), "it lay behind the end of its branch and did not follow from it")
    return line


# ---------------------------------------------------------------------- proving


def _mend(fix: Salvage, line: WalkedBranch, row: EntryRow, before: Before) -> Before:
    new = _proved(fix, line, row, before)
    if new is None:
        return _lose(fix, line, row.seq, row, before)
    fix.replace(ENTRIES, row, new)
    return after_of(line, new, before)


def _proved(fix: Salvage, line: WalkedBranch, row: EntryRow, before: Before) -> EntryRow | None:
    """Return the row with one value put right if the chain proves it."""
    if before.hash is None or line.lost.get(0) == BRANCH:
        return None
    tries = (_proved_as(fix, line, each, before.hash, before) for each in _readings(row))
    return next((new for new in tries if new is not None), None)


def _readings(row: EntryRow) -> Iterator[EntryRow]:
    """Yield a row as it is, and without what a row with its content in it has not: a blob, a hash of erased content."""
    found = _claimed(row)
    if found is None:
        return
    row = row.with_chain(found)
    yield row
    if row.body is not None and row.spill is not None:
        yield row._replace(spill=None)
    if (row.body is not None or row.spill is not None) and found.body_hash is not None:
        yield row.with_chain(found._replace(body_hash=None))


def _claimed(row: EntryRow) -> Chain | None:
    """Return what a row says of the chain, proved or not.

    Where it cannot be unpacked, salt and hash are in its last bytes, and the rest follows from the content.
    """
    try:
        return row.chain
    except UNREADABLE:
        end = row.rest[-_END:] if row.rest is not None else b""
        return Chain(0, *Numbers(), (), end[_SALT], None, end[_HASH]) if len(end) == _END else None


def _proved_as(fix: Salvage, line: WalkedBranch, row: EntryRow, previous: bytes, before: Before) -> EntryRow | None:
    """Return a reading of a row as it must have been, None if it cannot be read, hashed or proved."""
    try:
        (body, raw), hashed = log.content_of(fix.tx, line.branch.scope, row)
        said = row.chain
        for numbers in _numbers(fix, line, row, (body, raw), before):
            new = row.with_chain(said._replace(**numbers._asdict()))
            found = log.hash_of(line, new, previous, hashed)
            if found == said.hash or found in _expected(fix, line, row.seq, found):
                calls = said.calls if body is None else tuple(dict.fromkeys(derived.needs(row, body, raw).marks))
                mid = codec.decode(body).get("id") if body is not None and row.kind in MESSAGE_KINDS else None
                new = new.with_chain(new.chain._replace(calls=calls, hash=found))
                return new._replace(scope=line.branch.scope, turns=numbers.turns, mid=mid)
    except UNREADABLE:
        pass
    return None


def _numbers(
    fix: Salvage, line: WalkedBranch, row: EntryRow, content: tuple[bytes | None, bytes | None], before: Before
) -> Iterator[Numbers]:
    """Yield the running numbers that an entry may have: its own, and those that follow from the entry before it."""
    yield row.chain.numbers
    (body, raw), there = content, before.numbers
    if there is not None and body is not None:
        standing = derived.standing(line.branch, row.seq - 1, there)._replace(calls=before.calls, hash=b"")
        more = More(calls=derived.needs(row, body, raw).marks)
        made = Draft(row.kind, body, raw, adds=_adds(row, body, raw), more=more)
        yield entries.chained(open_calls.filled(fix.tx, standing), made, row.at_ms)[1].numbers


def _adds(row: EntryRow, body: bytes, raw: bytes | None) -> Numbers:
    """Compute what an entry adds to the running numbers, as its append did."""
    if row.kind in STATE_KINDS:
        return Numbers(work_seq=1)
    said = codec.decode(body)
    if row.kind.startswith(CUSTOM):
        return custom_adds(said)
    if row.kind not in MESSAGE_KINDS:
        return Numbers(tool_calls=int(row.kind == CALL and "arguments" in said))
    message = Message("", 0, 0, 0, body, raw)
    given = None
    if message.body.form is not None:
        given = forms.given_as(message.body.form, message.role, message.given())
    return draft(said, usage=message.usage, given=given).adds


def _expected(fix: Salvage, line: WalkedBranch, seq: int, tried: bytes) -> set[bytes]:
    """Return the hashes that other records expect of an entry, with ``tried`` if the next entry follows from it."""
    branch = line.branch
    found = {line.tip_hash} if seq == line.tip else set()
    found |= {bytes(each) for (each,) in fix.tx.all(CHECKPOINTS_AT, (branch.scope, branch.bid, seq))}
    forks = BRANCHES.all(fix.tx, "WHERE scope = ? AND parent = ? AND fork_seq = ?", (branch.scope, branch.bid, seq))
    found |= {fork.tip_hash for fork in forks if fork.tip_seq == seq}
    lines = (line, *(line_of(fix.tx, fork) for fork in forks))
    return found | {tried for each in lines if _follows(fix, each, seq, tried)}


def _is_contradicted(fix: Salvage, line: WalkedBranch, row: EntryRow) -> bool:
    """Whether the records behind an entry that nothing before it can prove expect another one."""
    if line.lost.get(row.seq) == ENTRY or line.lost.get(0) == BRANCH:
        return False
    after = _at(fix, line, row.seq + 1)
    expects = row.seq == line.tip or (chain_of(after) is not None and not line.lost.get(row.seq + 1))
    return expects and row.chain.hash not in _expected(fix, line, row.seq, row.chain.hash)


def _follows(fix: Salvage, line: WalkedBranch, seq: int, previous: bytes) -> bool:
    """Whether the entry behind a place follows from this hash."""
    return log.follows(fix.tx, line, _at(fix, line, seq + 1), previous)


def _at(fix: Salvage, line: WalkedBranch, seq: int) -> EntryRow:
    """Read an entry of a branch's path, if it has just one parent above it; what is not there is only its key."""
    owner = line.branch.bid if seq > line.branch.fork_seq else line.branch.parent or 0
    return read_row(fix.tx, line.branch.scope, key_of(owner, seq))


# ---------------------------------------------------------------------- losing


def _lose(fix: Salvage, line: WalkedBranch, seq: int, row: EntryRow | None, before: Before) -> Before:
    """Leave a place without content, with the hash if others expect it."""
    known = _hash(fix, line, seq, row)
    numbers, kind = _guess(fix, line, seq, row)
    key, scope = key_of(line.branch.bid, seq), line.branch.scope
    said = Chain(0, *numbers, (), None, None, known or _UNKNOWN)
    at_ms = _time(fix, line, seq, row)
    new = EntryRow(scope, key, kind, at_ms, numbers.turns, None, None, None, None, b"").with_chain(said)
    fix.replace(ENTRIES, new, new)
    line.lost[seq] = ENTRY if known is None else CONTENT
    record = LostRow(scope, key, line.lost[seq], fix.now_ms)
    fix.replace(LOST, record, record)
    fix.lose("entry", line.where(seq), "it was missing" if row is None else "its content was damaged", EMPTY)
    return after_of(line, new, before)


def _hash(fix: Salvage, line: WalkedBranch, seq: int, row: EntryRow | None) -> bytes | None:
    """Return the hash of a lost entry if another record confirms one."""
    said = None if row is None else _claimed(row)
    stored = said.hash if said is not None and len(said.hash) == len(_UNKNOWN) else None
    expected = _expected(fix, line, seq, stored or b"")
    if stored is not None and stored in expected:
        return stored
    for each in sorted(expected - {b""}):
        if _follows(fix, line, seq, each) or seq == line.tip:
            return each
    alone = seq == line.tip and line.session is None
    return stored if alone and row is not None and is_sound(row) else None


def _guess(fix: Salvage, line: WalkedBranch, seq: int, row: EntryRow | None) -> tuple[Numbers, str]:
    """Return running numbers and kind of a lost entry.

    A head at it knows its numbers, and so does the damaged row if its numbers lie between those of its neighbours. Else
    the entry behind it says whether it was a message, a change of the state of work, or touched a tool call.
    """
    session, said, following = line.session, None if row is None else _claimed(row), _at(fix, line, seq + 1)
    before, after = chain_of(_at(fix, line, seq - 1)) if seq > 1 else None, chain_of(following)
    last = before.numbers if before else Numbers()
    if session is not None and (session.branch, session.seq) == (line.branch.bid, seq):
        numbers = session.numbers
    elif row is not None and said is not None and _lies_between(last, said.numbers, after, sound=is_sound(row)):
        numbers = said.numbers
    elif after is None:
        numbers = last
    else:
        message = after.messages - (following.kind in MESSAGE_KINDS) > last.messages
        worked = after.work_seq == seq or seq in _lasts(following).values()
        numbers = last._replace(
            messages=last.messages + message,
            work_seq=seq if worked else last.work_seq,
            call_seq=after.call_seq if after.call_seq <= seq else last.call_seq,
            open_seq=after.open_seq if after.open_seq <= seq else last.open_seq,
        )
    own = "" if row is None else row.kind
    if numbers.work_seq == seq:
        return numbers, own if own in STATE_KINDS else _state_kind(fix, line, seq)
    if numbers.messages > last.messages:
        return numbers, own if own in MESSAGE_KINDS else "message"
    return numbers, CALL if own == CALL else "lost"


def _lies_between(low: Numbers, numbers: Numbers, after: Chain | None, *, sound: bool) -> bool:
    """Whether numbers can come between others; the oldest open call alone may be an earlier one."""
    if after is None and not sound:
        return False
    low, middle, high = (each._replace(open_seq=0) for each in (low, numbers, after.numbers if after else numbers))
    return all(a <= b <= c for a, b, c in zip(low, middle, high, strict=True))


def _state_kind(fix: Salvage, line: WalkedBranch, seq: int) -> str:
    """Return the kind of a lost state entry: what the next state entry says of it."""
    later = log.read_rows(fix.tx, line, seq, _PAGE)
    named = (kind for row in later for kind, at in _lasts(row).items() if at == seq and kind in STATE_KINDS)
    return next(named, "note")


def _lasts(row: EntryRow) -> dict[str, Any]:
    """Return the places that a state entry names for the last one of each kind; nothing if it is none."""
    try:
        return dict(codec.decode(row.body or b"")["last"]) if row.kind in STATE_KINDS and is_sound(row) else {}
    except UNREADABLE:
        return {}


def _time(fix: Salvage, line: WalkedBranch, seq: int, row: EntryRow | None) -> int:
    """Return the time of a lost entry if it fits between those of its neighbours, else that of the one before."""
    low, high = _at(fix, line, seq - 1).at_ms or line.branch.created_ms, _at(fix, line, seq + 1).at_ms or 1 << 62
    return row.at_ms if row is not None and low <= row.at_ms <= high else low


def _fix_lost(fix: Salvage) -> None:
    """Drop records of losses that are damaged or wrong; entries without content get theirs again above."""
    for row, sound, _ in fix.rows(LOST):
        if not sound or lost_fault(fix.tx, row):
            fix.delete(LOST, row)
