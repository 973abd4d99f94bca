"""Who changed what in a workspace, as far as that can be known.

Between two scans only calls that were open can have changed files, since every start and every end of a call scans; a
call that ended without a good scan is owed to the next one. So whoever has a call open now, in any session that works
in this directory, may have made the changes that a scan finds, and so may those owed. If they all belong to one session
and its sub-agents, the change is theirs. If not, a path that only one of them names, or a time at which only one of
them was open, decides. Otherwise it is unclear. The start of a call names the process that runs it: once that is gone,
or if it is not known, nobody knows how long the call was at work, and what changed since its last sign of life is
unclear, too. Nothing is stated that is a guess. If nobody may have done it, it was somebody outside.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .. import presence
from ..model import tree
from ..model.tree import Difference
from ..ops import calls, open_calls, sessions
from ..ops.sessions import SessionRow
from ..storage.base import Tx
from ..tables.files import SCAN, TOUCHED, WORKSPACE, ScanRow, TouchedRow, WorkspaceRow
from . import roots
from .disk import preview

AT = "WHERE scope = ? AND machine = ? AND path = ?"
INSIDE = "WHERE scope = ? AND machine = ? AND path > ? AND path < ?"
OF_PATH = "WHERE scope = ? AND wid = ? AND path = ? AND n < ? ORDER BY n DESC LIMIT ?"
CALLS, TURN, SESSION, OUTSIDE, UNCLEAR, START, RESTORE = (
    *("calls", "turn", "session", "outside", "unclear", "start", "restore"),
)
KINDS = (CALLS, TURN, SESSION, OUTSIDE, UNCLEAR, START, RESTORE)
_MOST_OVER = 64  # sessions whose calls are remembered to have ended
_SLACK_MS = 20  # by which a file system's clock may lag


class Claim(NamedTuple):
    """Who scans, and what that session says of the changes: they are its calls', its turn's, its own, or not its own.

    ``until_ms`` bounds how long calls that were cut off were certainly at work; if it is ``exact``, they were not at
    work any longer. Calls that whoever scans knows to be at work are ``told``; of others the process is asked for.
    """

    session: SessionRow
    kind: str
    calls: tuple[str, ...] = ()
    until_ms: int | None = None
    exact: bool = False
    told: bool = False


class Author(NamedTuple):
    """Who changed a path: a kind, and the sessions with their calls."""

    kind: str
    who: tuple[tuple[int, tuple[str, ...]], ...] = ()


class _Candidate(NamedTuple):
    session: SessionRow
    family: int
    kind: str
    calls: tuple[str, ...]
    until_ms: int | None  # until when it was certainly at work; None: it is at work now
    over: bool = False  # it has ended by now
    exact: bool = False  # it ended at ``until_ms``


class Authors:
    """Who may have changed files since the last scan, and who changed a path."""

    def __init__(self, tx: Tx, workspace: WorkspaceRow, claim: Claim | None) -> None:
        self._tx, self._workspace = tx, workspace
        self._beside = _beside(tx, workspace)
        self._found = [*self._candidates(claim)]
        self._names: dict[int, set[bytes]] = {}
        self._spans: dict[int, int] = {}

    def _candidates(self, claim: Claim | None) -> Iterator[_Candidate]:
        tx, workspace, known = self._tx, self._workspace, set[int]()
        if claim is not None:
            known.add(claim.session.sid)
            yield from self._claimed(claim)
        for each in (workspace, *self._beside):
            for row, going, holder in running(tx, each, known):
                yield from self._judged(row, going, holder)
        for sid, ids in workspace.owed:
            owing = sessions.find_number(tx, workspace.scope, sid)
            if owing is not None:
                yield self._candidate(owing, CALLS, tuple(ids), None)

    def _claimed(self, claim: Claim) -> Iterator[_Candidate]:
        """Yield what a session says of the changes."""
        session, ids, until_ms = claim.session, claim.calls, claim.until_ms
        if claim.kind == CALLS and ids and until_ms is None and not claim.told:
            over = {call for sid, some in self._workspace.over for call in some if sid == session.sid}
            going = [call for call in ids if call not in over]
            yield from self._judged(session, going, self._workspace.by.get(session.sid))
        elif claim.kind != OUTSIDE:
            found = self._candidate(session, claim.kind, ids, until_ms)
            yield found._replace(over=until_ms is not None, exact=claim.exact)

    def _judged(self, session: SessionRow, ids: Sequence[str], seen: bytes | None) -> Iterator[_Candidate]:
        """Yield the open calls of a session: those at work, those that ended with their process, those not known.

        ``seen`` is the process that last scanned for the session; it stands for those of calls that were not started.
        """
        found = dict[bool | None, list[str]]()
        for call_id in ids:
            call = calls.find_open(self._tx, session, call_id)
            holder = None if call is None else calls.starter(self._tx, session, call)
            if holder is None and seen is not None and (call is None or not call.start):
                holder = presence.decode(seen)
            known = holder is not None and presence.is_known(holder)
            found.setdefault(presence.is_gone(holder) if holder is not None and known else None, []).append(call_id)
        lease = sessions.find_lease(self._tx, session)
        sign_ms = max(session.updated_ms, 0 if lease is None else lease.beat_ms)  # its last sign of life
        for gone, some in found.items():
            made = self._candidate(session, CALLS, tuple(some), None if gone is False else sign_ms)
            yield made._replace(over=gone is True)

    def _candidate(self, session: SessionRow, kind: str, ids: tuple[str, ...], until_ms: int | None) -> _Candidate:
        return _Candidate(session, family_of(self._tx, session), kind, ids, until_ms)

    def over(self) -> list[list[Any]]:
        """Return the calls that are open in the log but have ended: what they did is in this scan at the latest."""
        found = {sid: dict.fromkeys(ids) for sid, ids in self._workspace.over}
        for each in self._found:
            if each.over:
                found.setdefault(each.session.sid, {}).update(dict.fromkeys(each.calls))
        return [[sid, [*ids]] for sid, ids in found.items()][-_MOST_OVER:]

    def of_all(self) -> Author:
        """Return who changed something, whatever it is."""
        return self._decided(self._found, None)

    def of(self, change: Difference, ctime: int | None) -> Author:
        """Return who changed a path; ``ctime`` is when, in milliseconds, if the system tells."""
        told = self._told_beside(change)
        if told is not None:
            return told
        few = [each for each in self._found if not _had_ended(each, ctime)]
        if len({each.family for each in few}) > 1:
            few = self._named(few, change.path) or self._open_then(few, ctime) or few
        return self._decided(few, ctime)

    def _decided(self, among: Sequence[_Candidate], ctime: int | None) -> Author:
        if not among:
            return Author(OUTSIDE)
        sure = [each for each in among if each.until_ms is None or (ctime is not None and ctime <= each.until_ms)]
        who = dict[int, dict[str, None]]()
        for each in sure or among:
            who.setdefault(each.session.sid, {}).update(dict.fromkeys(each.calls))
        given = tuple((sid, tuple(ids)) for sid, ids in who.items())
        if not sure or len({each.family for each in among}) > 1:
            return Author(UNCLEAR, tuple((sid, tuple(ids)) for sid, ids in _all_of(among).items()))
        return Author(sure[0].kind if len({each.kind for each in sure}) == 1 else CALLS, given)

    def _named(self, among: Sequence[_Candidate], path: bytes) -> list[_Candidate]:
        """Return the one family whose calls name a path; empty if none does, or several do."""
        naming = [each for at, each in enumerate(among) if self._names_it(at, each, path)]
        return naming if len({each.family for each in naming}) == 1 else []

    def _names_it(self, at: int, candidate: _Candidate, path: bytes) -> bool:
        if at not in self._names:
            self._names[at] = {name for call in candidate.calls for name in self._paths_of(candidate.session, call)}
        names = self._names[at]
        return path in names or any(above in names for above in preview.above_all(path))

    def _paths_of(self, session: SessionRow, call_id: str) -> Iterator[bytes]:
        """Yield the paths of the workspace that the arguments of a call name."""
        found = calls.find_open(self._tx, session, call_id)
        if found is None:
            return
        for text in _texts(calls.announced(self._tx, session, found.call, call_id).arguments):
            for word in _words(text):
                whole = os.path.normpath(os.path.join(session.workspace, word))
                if whole.startswith(f"{self._workspace.path}/"):
                    yield os.fsencode(whole[len(self._workspace.path) + 1 :])

    def _open_then(self, among: Sequence[_Candidate], ctime: int | None) -> list[_Candidate]:
        """Return the one family with a call open at a time; empty if there is none, or several."""
        if ctime is None:
            return []
        found = [
            each
            for at, each in enumerate(among)
            if self._since(at, each) - _SLACK_MS <= ctime and (each.until_ms is None or ctime <= each.until_ms)
        ]
        return found if len({each.family for each in found}) == 1 else []

    def _since(self, at: int, candidate: _Candidate) -> int:
        """Return when the first call of a candidate began; unknown ones began long ago."""
        if at not in self._spans:
            seqs = [found.start or found.call for found in self._open(candidate)]
            times = [calls.entry_at(self._tx, candidate.session, seq)[1].at_ms for seq in seqs]
            self._spans[at] = min(times) if len(times) == len(candidate.calls) and times else 0
        return self._spans[at]

    def _open(self, candidate: _Candidate) -> list[open_calls.OpenCall]:
        found = (calls.find_open(self._tx, candidate.session, call) for call in candidate.calls)
        return [each for each in found if each is not None]

    def _told_beside(self, change: Difference) -> Author | None:
        """Return whom a workspace inside this one, or around it, already knows as the author of this very change."""
        for other in self._beside:
            path = _as_seen_from(other.path, self._workspace.path, change.path)
            row = None if path is None else newest(self._tx, other, path)
            if row is None or not self._same(other, row, path or b"", change):
                continue
            scan = SCAN.get(self._tx, other.scope, other.wid, row.n)
            if scan is not None and scan.at_ms >= self._tip_ms():
                return author_of(scan, row)
        return None

    def _tip_ms(self) -> int:
        tip = SCAN.get(self._tx, self._workspace.scope, self._workspace.wid, self._workspace.tip)
        return 0 if tip is None else tip.at_ms

    def _same(self, other: WorkspaceRow, row: TouchedRow, path: bytes, change: Difference) -> bool:
        scan = SCAN.get(self._tx, other.scope, other.wid, row.n)
        if scan is None or scan.root is None:
            return False
        there = tree.find(roots.loading(self._tx, other.scope), roots.read(self._tx, other.scope, scan.root).tree, path)
        return tree.shown(there) == tree.shown(change.new)


def _had_ended(candidate: _Candidate, ctime: int | None) -> bool:
    """Whether a candidate is known to have ended before a change."""
    return candidate.exact and ctime is not None and ctime > (candidate.until_ms or 0)


def running(
    tx: Tx, workspace: WorkspaceRow, known: set[int] | None = None
) -> Iterator[tuple[SessionRow, tuple[str, ...], bytes]]:
    """Yield the sessions with calls open in a workspace, these calls, and the process that runs them.

    Sessions that are ``known`` are left out, and those that are found become known.
    """
    known = set() if known is None else known
    over = {(sid, call) for sid, ids in workspace.over for call in ids}
    for sid, holder in workspace.by.items():
        row = None if sid in known else sessions.find_number(tx, workspace.scope, sid)
        if row is None or row.hidden:
            continue
        known.add(sid)
        going = tuple(call for call in calls.going_on(tx, row) if (sid, call) not in over)
        if going:
            yield row, going, holder


def family_of(tx: Tx, session: SessionRow) -> int:
    """Return the session that is above all others of its tree: it answers for its sub-agents."""
    for _ in range(sessions.DEEPEST):
        above = sessions.find_number(tx, session.scope, session.parent) if session.parent else None
        if above is None:
            break
        session = above
    return session.sid


def families(tx: Tx, session: SessionRow, others: Sequence[str]) -> Collection[int]:
    """Return the families of a session and of others by their ids; ``"all"`` stands for everyone's."""
    if others == "all":
        return Everyone()
    found = (session, *(sessions.get(tx, session.scope, each) for each in others))
    return {family_of(tx, each) for each in found}


class Everyone(frozenset[int]):
    """The families of all sessions."""

    def __contains__(self, family: object) -> bool:
        return True


def newest(tx: Tx, workspace: WorkspaceRow, path: bytes) -> TouchedRow | None:
    """Return the last change of a path, or None."""
    found = TOUCHED.all(tx, OF_PATH, (workspace.scope, workspace.wid, path, 1 << 62, 1))
    return found[0] if found else None


def author_of(scan: ScanRow, row: TouchedRow) -> Author:
    """Return who changed a path that a scan lists."""
    return of_scan(scan)[row.author]


def of_scan(scan: ScanRow) -> list[Author]:
    """Return all authors of a scan."""
    return [Author(kind, tuple((sid, tuple(ids)) for sid, ids in who)) for kind, who in scan.authors]


def _all_of(among: Sequence[_Candidate]) -> dict[int, dict[str, None]]:
    found = dict[int, dict[str, None]]()
    for each in among:
        found.setdefault(each.session.sid, {}).update(dict.fromkeys(each.calls))
    return found


def _beside(tx: Tx, workspace: WorkspaceRow) -> list[WorkspaceRow]:
    """Return the other workspaces of this machine that contain this one, or are inside it."""
    scope, machine, path = workspace.scope, workspace.machine, workspace.path
    above = (WORKSPACE.one(tx, AT, (scope, machine, each)) for each in _parents(path))
    inside = WORKSPACE.all(tx, INSIDE, (scope, machine, f"{path}/", f"{path}0"))
    return [*(each for each in above if each is not None), *inside]


def _parents(path: str) -> Iterator[str]:
    while (above := os.path.dirname(path)) != path:
        yield above
        path = above


def _as_seen_from(ours: str, theirs: str, path: bytes) -> bytes | None:
    """Translate a path of another workspace into one of ours; None if it is outside ours."""
    whole = os.path.join(os.fsencode(theirs), path)
    root = os.fsencode(ours) + b"/"
    return whole[len(root) :] if whole.startswith(root) else None


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in the arguments of a call."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _words(text: str) -> Iterable[str]:
    """Return what in a text may be a path: the whole of it, and the words of a command."""
    if len(text) > 20_000 or "\0" in text:
        return ()
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return dict.fromkeys((text, *lexer))
    except ValueError:  # a quote that is not closed
        return dict.fromkeys((text, *text.split()))
