"""Redaction: erasing the content of single entries, which keep their place, their id and their numbers.

What was said goes: body, provider's bytes, blobs and the salt, without which the hash of a short text could be guessed.
The hash of the content stays in the chain, which still verifies. A tool call goes as a whole, on every branch: the
message that announces it with all its calls, its starts, approvals and results. Otherwise a context would have a call
without its result, and the rest of a call mostly says what the erased part said. Forks that read the call may have
results of their own: those go, too. But a fork reaches only its own part of a call that the original announced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from .. import codec, presence
from ..errors import Busy, Conflict, Corrupt, Invalid, NotFound
from ..ids import entry_id, parse_entry_id
from ..model.entry import APPROVAL, CALL, STATUS
from ..model.message import MESSAGE_KINDS, Message
from ..model.redaction import ForkReader, RedactedEntry, Redaction
from ..storage.base import Tx, scalars
from ..tables.branches import BRANCH
from ..tables.entries import ENTRY, LINK, LOST, EntryRow
from ..tables.history import OPERATION
from ..tables.sessions import PURGED, SESSION
from ..tables.table import several, slots
from . import blobs, branches, chain, idempotency, log, open_calls, open_streams, operations, sessions, sweep, titles
from .agent_restore import Judge
from .branches import BranchRow, Segment
from .sessions import SessionRow

KIND = "redact"
GONE = "redacted"  # the title of a session whose first message is gone, if it has no other
_WITH_CALLS = (*MESSAGE_KINDS, CALL, APPROVAL)
_WITH_MID = "SELECT key FROM entry WHERE scope = ? AND mid = ? ORDER BY key"
_UNCOMPACT = "uncompact() takes the summary of a compaction out of contexts"
_MANY = 500  # rows of one read


class _Mark(NamedTuple):
    """What an entry does to a call, which is known by the key of the entry that announced it and its id."""

    key: int
    call: tuple[int, str]


class _Reach(NamedTuple):
    """The branches of a session, those that it reads from, and those of other sessions that start on its own.

    Of those that it reads from, the ones whose session was purged count as its own: nobody else could redact them.
    """

    own: dict[int, BranchRow]
    outer: dict[int, BranchRow]
    below: dict[int, BranchRow]

    def every(self) -> Iterator[BranchRow]:
        """Yield all of them, each after the one it starts on."""
        yield from (row for _, row in sorted((self.own | self.outer | self.below).items()))

    def goes(self, key: int, call: tuple[int, str]) -> bool:
        """Whether an entry is erased with a call: of somebody else's call, only what the session itself has."""
        theirs = call[0] >> 32 in self.outer
        return key >> 32 in self.own or (key >> 32 in self.below and not theirs)

    def id_of(self, row: EntryRow) -> str:
        """Return our id of an entry that may be erased."""
        return entry_id((self.own.get(row.branch) or self.below[row.branch]).uid, row.seq)


def redact(tx: Tx, scope: str, session_id: str, ids: Sequence[str], judge: Judge | None, *, now_ms: int) -> Redaction:
    """Erase the content of entries, and of whatever belongs to their tool calls; without ``judge`` only look for it."""
    session = sessions.get(tx, scope, session_id)
    if judge is not None:
        _require_free(tx, session, judge)
    reach = _reach(tx, session)
    keys = {key for wanted in ids for key in _find(tx, session, reach, wanted)}
    rows, calls = _closed(tx, session, reach, _rows(tx, scope, keys))
    _require_finished(tx, session, calls)
    rows = [row for row in rows if row.body is not None or row.spill is not None]
    found = _described(tx, session, reach, rows, calls)
    if judge is None or not rows:
        return found
    _retitle(tx, session, reach, rows)
    _erase(tx, scope, rows)
    named = [reach.id_of(row) for row in rows]
    operations.record(tx, sessions.get(tx, scope, session_id), KIND, {"redacted": named}, now_ms=now_ms)
    return Redaction(found.entries, found.calls, found.forks, found.bytes, applied=True)


def _require_free(tx: Tx, session: SessionRow, judge: Judge) -> None:
    lease = sessions.find_lease(tx, session)
    if lease is not None and lease.holder is not None and not judge.is_own(lease) and not judge.is_gone(lease):
        holder = str(presence.decode(lease.holder))
        raise Busy(f"this session is run by {holder}; wait until it is free", holder=holder)
    if open_streams.of_session(tx, session):
        raise Conflict("an answer is still being written in this session; finish or cancel it first", found="stream")


def _reach(tx: Tx, session: SessionRow) -> _Reach:
    own = {row.bid: row for row in branches.of_session(tx, session.scope, session.sid, session.branches)}
    outer, waiting = dict[int, BranchRow](), {row.parent for row in own.values() if row.parent is not None}
    while waiting := waiting - own.keys() - outer.keys():
        above = BRANCH.numbered(tx, session.scope, waiting)
        outer |= above
        if waiting - above.keys():
            raise Corrupt("a branch of this session has lost its parent", what=f"session {session.id}")
        waiting = {row.parent for row in above.values() if row.parent is not None}
    owners = SESSION.numbered(tx, session.scope, {row.session for row in outer.values()})
    purged = {sid for sid, row in owners.items() if row.hidden == PURGED and not row.staged}
    own |= {bid: row for bid, row in outer.items() if row.session in purged}
    outer = {bid: row for bid, row in outer.items() if bid not in own}
    return _Reach(own, outer, _below(tx, session.scope, own))


def _below(tx: Tx, scope: str, own: Mapping[int, BranchRow]) -> dict[int, BranchRow]:
    """Return the branches of other sessions that start on these, or on one that does."""
    found, waiting = dict[int, BranchRow](), {*own}
    while waiting:
        more = dict[int, BranchRow]()
        for some in several(sorted(waiting), _MANY):
            where = f"WHERE scope = ? AND parent IN ({slots(len(some))})"
            more |= {row.bid: row for row in BRANCH.all(tx, where, (scope, *some)) if row.bid not in own}
        waiting = more.keys() - found.keys()
        found |= more
    return found


# ---------------------------------------------------------------------- which entries


def _find(tx: Tx, session: SessionRow, reach: _Reach, wanted: str) -> set[int]:
    """Return the keys of the entries of a session that have an id, the caller's or ours, on any branch."""
    keys = set[int]() if "\0" in wanted else {*scalars(tx, _WITH_MID, (session.scope, wanted))}
    if parsed := parse_entry_id(wanted):
        keys |= {log.key_of(row.bid, parsed[1]) for row in reach.every() if row.uid == parsed[0]}
    found = {key for key in keys if key >> 32 in reach.own and _is_read(session, reach, key)}
    if not found and (outer := [reach.outer[key >> 32] for key in keys if key >> 32 in reach.outer]):
        raise _elsewhere(tx, session, wanted, outer[0])
    if not found:
        raise NotFound(f"there is no entry {wanted!r} on any branch of this session")
    return found


def _is_read(session: SessionRow, reach: _Reach, key: int) -> bool:
    """Whether an entry is on a branch of the session: of a purged one, only what it reads of it."""
    if reach.own[key >> 32].session == session.sid:
        return True
    here = (row for row in (reach.own | reach.outer).values() if row.parent == key >> 32)
    return any(row.fork_seq >= key & log.MAX_SEQ for row in here)


def _elsewhere(tx: Tx, session: SessionRow, what: str, branch: BranchRow) -> Invalid:
    owner = sessions.by_number(tx, session.scope, branch.session)
    return Invalid(f"{what!r} belongs to session {owner.id}, from which this one was forked; redact it there")


def _rows(tx: Tx, scope: str, keys: Iterable[int]) -> list[EntryRow]:
    found = ENTRY.numbered(tx, scope, keys)
    if missing := {*keys} - found.keys():
        raise NotFound(f"there is no entry {min(missing) & log.MAX_SEQ} on that branch")
    for row in found.values():
        if row.kind not in _WITH_CALLS and not row.kind.startswith("custom:"):
            instead = _UNCOMPACT if row.kind == "compaction" else "Set tasks, plan, notes or state anew"
            raise Invalid(
                f"entry {row.seq} is of the kind {row.kind!r}: only messages, tool calls and custom entries can be"
                f" redacted. {instead}; only a purge of the session erases it"
            )
    return [*found.values()]


def _closed(
    tx: Tx, session: SessionRow, reach: _Reach, rows: list[EntryRow]
) -> tuple[list[EntryRow], set[tuple[int, str]]]:
    """Add whatever belongs to the calls of entries, and to the calls of what that adds; return the calls, too."""
    found = {row.key: row for row in rows}
    if not any(row.chain.calls for row in rows):
        return [found[key] for key in sorted(found)], set()
    of_entry, of_call = dict[int, set[tuple[int, str]]](), dict[tuple[int, str], set[int]]()
    for mark in _marks(tx, session.scope, reach):
        of_entry.setdefault(mark.key, set()).add(mark.call)
        of_call.setdefault(mark.call, set()).add(mark.key)
    calls, waiting = set[tuple[int, str]](), {*found}
    while waiting:
        more = {call for key in waiting for call in of_entry.get(key, ())} - calls
        calls |= more
        waiting = {key for call in more for key in of_call[call] if reach.goes(key, call)} - found.keys()
        found |= {row.key: row for row in _rows(tx, session.scope, waiting - _bookkeeping(tx, session.scope, waiting))}
        waiting &= found.keys()
    return [found[key] for key in sorted(found)], calls


def _bookkeeping(tx: Tx, scope: str, keys: set[int]) -> set[int]:
    """Return which entries only record that the process of a call was lost: they say nothing about it."""
    return {key for key, row in ENTRY.numbered(tx, scope, keys).items() if row.kind == STATUS}


def _marks(tx: Tx, scope: str, reach: _Reach) -> Iterator[_Mark]:
    """Yield what each entry does to which call. Ids repeat between turns: one means the newest call before it."""
    known, ends = dict[int, list[tuple[int, str, tuple[int, str]]]](), dict[int, dict[str, tuple[int, str]]]()
    for branch in reach.every():
        base = dict(ends.get(branch.parent or 0, {}))
        for seq, call_id, call in known.get(branch.parent or 0, ()):
            if seq <= branch.fork_seq:
                base[call_id] = call
        ends[branch.bid], known[branch.bid], calls = dict(base), [], base
        for row in _all_rows(tx, scope, branch):
            for what, call_id in row.chain.calls:
                if what == "call":
                    calls[call_id] = (row.key, call_id)
                    known[branch.bid].append((row.seq, call_id, calls[call_id]))
                if call_id in calls:
                    yield _Mark(row.key, calls[call_id])


def _all_rows(tx: Tx, scope: str, branch: BranchRow) -> Iterator[EntryRow]:
    """Yield the entries that a branch holds, in pages."""
    low = branch.fork_seq
    while True:
        first, last = log.key_of(branch.bid, low), log.key_of(branch.bid, log.MAX_SEQ)
        where = "WHERE scope = ? AND key > ? AND key <= ? ORDER BY key LIMIT ?"
        rows = ENTRY.all(tx, where, (scope, first, last, log.PAGE))
        yield from rows
        if len(rows) < log.PAGE:
            return
        low = rows[-1].seq


def _require_finished(tx: Tx, session: SessionRow, calls: set[tuple[int, str]]) -> None:
    """Refuse to erase a call that waits for its result on the path: it would come and say what was erased."""
    for each in open_calls.at(tx, session) if calls else ():
        segment: Segment = log.path_segments(tx, session, each.call - 1, each.call)[0]
        if (log.key_of(segment.bid, each.call), each.id) in calls:
            raise Conflict(f"tool call {each.id!r} is still open; record its result first", found=each.id)


# ---------------------------------------------------------------------- what is shown of it


def _described(
    tx: Tx, session: SessionRow, reach: _Reach, rows: Sequence[EntryRow], calls: set[tuple[int, str]]
) -> Redaction:
    entries = tuple(RedactedEntry(row.mid or reach.id_of(row), row.seq, row.kind, _role(tx, row)) for row in rows)
    size = sum(len(row.body or b"") + len(row.raw or b"") for row in rows)
    names = _linked(tx, rows[0].scope, rows) if rows else set()
    size += sum(found.size for name in names if (found := blobs.find(tx, rows[0].scope, name)))
    ids = tuple(dict.fromkeys(call_id for _, call_id in sorted(calls)))
    return Redaction(entries, ids if rows else (), _readers(tx, session, reach, rows), size)


def _role(tx: Tx, row: EntryRow) -> str | None:
    if row.kind not in MESSAGE_KINDS:
        return None
    (whole,) = log.loaded(tx, [row])
    return Message("", row.seq, row.turns, row.at_ms, whole.body, whole.raw).role


def _readers(tx: Tx, session: SessionRow, reach: _Reach, rows: Sequence[EntryRow]) -> tuple[ForkReader, ...]:
    """Return the other sessions, visible or in the trash, that have or read these entries."""
    lowest = dict[int, int]()
    for row in rows:
        lowest[row.branch] = min(row.seq, lowest.get(row.branch, row.seq))
    found = set[int]()
    for branch in reach.every():  # each after the one it starts on
        above = lowest.get(branch.parent or 0)
        if above is not None and branch.fork_seq >= above:
            lowest[branch.bid] = min(above, lowest.get(branch.bid, above))
        found |= {branch.session} if branch.bid in lowest else set()
    known = SESSION.numbered(tx, session.scope, found - {session.sid})
    return tuple(ForkReader(row.id, row.name) for _, row in sorted(known.items()) if row.hidden < 2)


# ---------------------------------------------------------------------- erasing


def _linked(tx: Tx, scope: str, rows: Sequence[EntryRow]) -> set[str]:
    """Return the contents that entries need."""
    found = set[str]()
    for some in several([row.key for row in rows], _MANY):
        where = f"INDEXED BY link_key WHERE scope = ? AND key IN ({slots(len(some))})"
        found |= {link.hash for link in LINK.all(tx, where, (scope, *some))}
    return found


def _erase(tx: Tx, scope: str, rows: Sequence[EntryRow]) -> None:
    """Erase body, provider's bytes, salt and blobs; the hash of the content stays."""
    names, pairs = _linked(tx, scope, rows), list[tuple[EntryRow, EntryRow]]()
    for row in rows:
        if LOST.get(tx, scope, row.key) is not None:
            raise Corrupt("a part of what is to be redacted was lost to damage; purge the session", what="entry")
        (whole,) = log.loaded(tx, [row])
        kept = row.chain
        if whole.body is None or kept.salt is None:
            raise log.damage(f"number {row.key:x}", missing=False)
        hashed = chain.body_hash(kept.salt, whole.body, whole.raw)
        bare = row._replace(body=None, raw=None, spill=None)
        pairs.append((row, bare.with_chain(kept._replace(salt=None, body_hash=hashed))))
    ENTRY.update_many(tx, pairs)
    for some in several([row.key for row in rows], _MANY):
        tx.run(f"DELETE FROM link WHERE scope = ? AND key IN ({slots(len(some))})", (scope, *some))
    sweep.drop(tx, scope, names, ())
    places = dict[int, list[int]]()
    for row in rows:
        places.setdefault(row.branch, []).append(row.seq)
    for branch in BRANCH.numbered(tx, scope, places).values():
        idempotency.blank(tx, branch, places[branch.bid])


def _retitle(tx: Tx, session: SessionRow, reach: _Reach, rows: Sequence[EntryRow]) -> None:
    """Replace titles made from erased messages, in this session and its forks, and where operations noted them.

    A fork begins with the title of the session, also if it starts before the message that gave it.
    """
    whole = [each for row in rows if row.kind in MESSAGE_KINDS for each in log.loaded(tx, [row])]
    gone, keys = {title for row in whole if (title := titles.of_body(row.body, row.raw))}, {row.key for row in rows}
    near = SESSION.numbered(tx, session.scope, {branch.session for branch in reach.below.values()})
    waiting = operations.all_unless_purged(tx, session.scope, {session.id, *(row.id for row in near.values())})
    seen = set[str]()
    while waiting:
        seen |= waiting.keys()
        forks = set[str]()  # one that starts at the beginning shares no branch: only the operation knows of it
        for each in waiting.values():
            new = _next_title(tx, each, keys) if each.title in gone else each.title or GONE
            if new != each.title and each.title in gone:
                sessions.write(tx, each, title=new)
            forks |= _rewrite(tx, each, gone, new)
        waiting = operations.all_unless_purged(tx, session.scope, forks - seen)


def _next_title(tx: Tx, session: SessionRow, keys: set[int]) -> str:
    """Return the title that the first message of a turn on the path gives that is not erased."""
    low, turns = 0, 0
    while low < session.seq:
        segments = log.path_segments(tx, session, low, min(session.seq, low + log.PAGE))
        for row in log.read(tx, session.scope, segments):
            opens, turns, low = row.turns > turns, row.turns, row.seq
            if opens and row.kind in MESSAGE_KINDS and row.key not in keys and row.body is not None:
                return titles.of_body(row.body, row.raw) or GONE
    return GONE


def _rewrite(tx: Tx, session: SessionRow, gone: set[str], new: str) -> set[str]:
    """Replace such a title in what operations recorded: an undo would bring it back. Return the forks they made."""
    pairs, forks = [], set[str]()
    for row in OPERATION.all(tx, f"{operations.OF}", (session.scope, session.sid, 0)):
        views = codec.decode(row.before), codec.decode(row.after)
        before, after = (_without(view, gone, new) for view in views)
        pairs.append((row, row._replace(before=before or row.before, after=after or row.after)))
        forks |= {views[1]["session"][0]} if row.kind == "fork" and "session" in views[1] else set()
    OPERATION.update_many(tx, pairs)
    return forks


def _without(view: Mapping[str, object], gone: set[str], new: str) -> bytes | None:
    return codec.encode({**view, "title": new}) if view.get("title") in gone else None
