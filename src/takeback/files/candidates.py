"""Who may have changed the files of a workspace since its last good scan: calls, each with the time in which it ran.

Every start of a call names the process that runs the tool, and every start and end scans. So the open calls of the
sessions that work here are all there is, together with those that ended without a good scan (``owed``). A call whose
process exists is at work. One whose process is gone was certainly at work up to its last sign of life; nobody knows how
long after that. Once a scan has begun after its process was gone, it is ``over``: later changes are not its own.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import NamedTuple

from .. import presence
from ..ops import calls, sessions
from ..ops.calls import FoundCall
from ..ops.open_calls import OpenCall
from ..ops.sessions import SessionRow
from ..presence import Holder
from ..storage.base import Tx
from ..tables.files import WorkspaceRow
from ..tables.sessions import PURGED

SLACK_MS = 20  # by which a file system's clock may lag


class Claim(NamedTuple):
    """Who scans, and what that session says of the changes: they are its turn's, its own, its calls', or not its own.

    ``calls`` are those that whoever scans knows to be at work; if only ``until_ms``, nobody knows how much longer,
    unless that is ``exact``. Calls that were only ``announced`` may have run, unless one is about to start.
    """

    session: SessionRow
    kind: str
    calls: tuple[str, ...] = ()
    until_ms: int | None = None
    exact: bool = False
    announced: bool = True


class When(NamedTuple):
    """The time in which a path was changed, in milliseconds: not before ``first``, not after ``last``."""

    first: int
    last: int


class Candidate(NamedTuple):
    """A call that may have changed files, or a session that does not report its calls.

    It began at ``since_ms``, and was certainly at work up to ``until_ms``; None: it still is. If it has ``ended``, it
    was then, otherwise nobody knows when.
    """

    session: SessionRow
    family: int
    kind: str
    call: str = ""
    since_ms: int = 0
    until_ms: int | None = None
    ended: bool = False
    over: tuple[int, str, int] | None = None  # how it is remembered to be over, if its process is gone
    paths: tuple[str, ...] | None = None  # all that it touches, if it was said

    def could(self, path: str, when: When | None) -> bool:
        """Whether it may have changed a path at a time."""
        if self.paths is not None and not any(_are_in_line(path, each) for each in self.paths):
            return False
        if when is None:
            return True
        if when.last + SLACK_MS < self.since_ms:
            return False
        return not (self.ended and self.until_ms is not None and when.first > self.until_ms)

    def was_at_work(self, when: When | None) -> bool:
        """Whether it was certainly at work at a time."""
        if self.until_ms is None:
            return True
        return when is not None and when.last + SLACK_MS <= self.until_ms


def _are_in_line(one: str, other: str) -> bool:
    """Whether two paths are the same, or one is a directory above the other."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


class Candidates:
    """Finds who may have changed files. ``gone`` are processes of which it is known that they are."""

    def __init__(self, tx: Tx, calls_kind: str) -> None:
        self._tx, self._calls = tx, calls_kind
        self.gone = list[Holder]()

    def claimed(self, claim: Claim, nobody: str) -> Iterator[Candidate]:
        """Yield what a session says itself: the calls that run through its handle, or that it worked without any."""
        for call_id in claim.calls:
            found = calls.newest(self._tx, claim.session, call_id)
            one = self._call(claim.session, found, call_id)._replace(since_ms=0)  # whoever scans knows better
            if claim.until_ms is not None:
                key = None if found is None else (claim.session.sid, call_id, found.marks.start)
                until_ms = claim.until_ms + SLACK_MS * claim.exact  # an end that was told is not doubted
                one = one._replace(until_ms=until_ms, ended=claim.exact, over=key)
            yield one
        if not claim.calls and claim.kind != nobody:
            yield Candidate(claim.session, family_of(self._tx, claim.session), claim.kind)

    def _call(self, session: SessionRow, found: FoundCall | None, call_id: str) -> Candidate:
        one = Candidate(session, family_of(self._tx, session), self._calls, call_id)
        if found is None:
            return one
        start = calls.start_of(self._tx, session, found.marks)
        paths = None if start.paths is None else tuple(os.path.join(session.workspace, each) for each in start.paths)
        return one._replace(since_ms=start.at_ms, paths=paths)

    def open_in(
        self, workspace: WorkspaceRow, claim: Claim | None, known: set[int], here: WorkspaceRow
    ) -> Iterator[Candidate]:
        """Yield the open calls of the sessions that work in a directory, as the log has them."""
        over = {tuple(each) for each in here.over}
        by = dict(workspace.by)
        if claim is not None:
            by.setdefault(claim.session.sid, b"")
        for sid, holder in by.items():
            row = None if sid in known else sessions.find_number(self._tx, workspace.scope, sid)
            if row is None or row.hidden == PURGED:  # one in the trash may still be at work
                continue
            known.add(sid)
            mine = claim if claim is not None and claim.session.sid == sid else None
            yield from self._open_calls(row, holder, mine, over)

    def _open_calls(
        self, session: SessionRow, holder: bytes, claim: Claim | None, over: Collection[tuple[object, ...]]
    ) -> Iterator[Candidate]:
        found = calls.begun(self._tx, session, announced=claim is None or claim.announced)
        skip = () if claim is None else claim.calls
        for call in found:
            key = (session.sid, call.id, call.start)
            if call.id in skip or key in over:
                continue
            by = calls.start_of(self._tx, session, call).by or (presence.decode(holder) if holder else None)
            yield self._judged(self._call(session, FoundCall(call), call.id), call, by, key)

    def _judged(self, one: Candidate, call: OpenCall, by: Holder | None, key: tuple[int, str, int]) -> Candidate:
        """Add how long a call was certainly at work, if it is not known to be so now."""
        if by is not None and presence.is_past(by):
            self.gone.append(by)
            return one._replace(until_ms=max(one.since_ms, self._last_beat(one.session, by)), over=key)
        known = by is not None and presence.is_known(by) and presence.is_near(by)
        if not known or call.lost > call.start:
            return one._replace(until_ms=one.since_ms)
        return one

    def _last_beat(self, session: SessionRow, by: Holder) -> int:
        """Return the last heartbeat of a process that runs a session; 0 if it never held it, or somebody took it."""
        lease = sessions.find_lease(self._tx, session)
        if lease is None or lease.holder is None or not presence.is_same(presence.decode(lease.holder), by):
            return 0
        return lease.beat_ms

    def owed_in(self, workspace: WorkspaceRow) -> Iterator[Candidate]:
        """Yield the calls that ended without a good scan, or were at work when one failed."""
        for sid, call_id, until in workspace.owed:
            row = sessions.find_number(self._tx, workspace.scope, sid)
            if row is not None:
                found = calls.newest(self._tx, row, call_id)
                yield self._call(row, found, call_id)._replace(until_ms=until, ended=True)


def family_of(tx: Tx, session: SessionRow) -> int:
    """Return the session that is above all others of its tree: it answers for its sub-agents."""
    for _ in range(sessions.DEEPEST):
        above = sessions.find_number(tx, session.scope, session.parent) if session.parent else None
        if above is None:
            break
        session = above
    return session.sid
