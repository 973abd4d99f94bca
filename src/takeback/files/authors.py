"""Who changed what in a workspace, as far as that can be known.

Between two scans only calls that were open can have changed files, since every start and every end of a call scans; a
call that ended without a good scan is owed to the next one. So whoever has a call open now, in any session that works
in this directory, may have made the changes that a scan finds, and so may those owed. If they all belong to one session
and its sub-agents, the change is theirs. If not, a path that only one of them names, or a time at which only one of
them was open, decides. Otherwise it is unclear, and so is what a process may have done that is gone by now: nothing is
stated that is a guess. If nobody may have done it, it was somebody outside.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..model import tree
from ..model.tree import Difference
from ..ops import calls, sessions
from ..ops.sessions import SessionRow
from ..presence import Holder
from ..storage.base import Tx
from ..tables.files import SCAN, TOUCHED, WORKSPACE, ScanRow, TouchedRow, WorkspaceRow
from . import roots
from .candidates import Candidate, Candidates, Claim, When, family_of
from .disk import preview

AT = "WHERE scope = ? AND machine = ? AND path = ?"
INSIDE = "WHERE scope = ? AND machine = ? AND path > ? AND path < ?"
OF_PATH = "WHERE scope = ? AND wid = ? AND path = ? AND n < ? ORDER BY n DESC LIMIT ?"
CALLS, TURN, SESSION, OUTSIDE, UNCLEAR, START, RESTORE = (
    *("calls", "turn", "session", "outside", "unclear", "start", "restore"),
)
KINDS = (CALLS, TURN, SESSION, OUTSIDE, UNCLEAR, START, RESTORE)
MOST_OVER = 256  # calls that are remembered to have ended


class Author(NamedTuple):
    """Who changed a path: a kind, and the sessions with their calls."""

    kind: str
    who: tuple[tuple[int, tuple[str, ...]], ...] = ()


class Authors:
    """Who may have changed files since the last scan, and who changed a path."""

    def __init__(self, tx: Tx, workspace: WorkspaceRow, claim: Claim | None) -> None:
        self._tx, self._workspace = tx, workspace
        self._beside = beside(tx, workspace)
        self._search = Candidates(tx, CALLS)
        self.found = [*self._candidates(claim)]
        self._names: dict[tuple[int, str], set[bytes]] = {}

    def _candidates(self, claim: Claim | None) -> Iterator[Candidate]:
        search, known = self._search, set[int]()
        if claim is not None:
            yield from search.claimed(claim, OUTSIDE)
        for each in (self._workspace, *self._beside):
            yield from search.open_in(each, claim, known, self._workspace)
        yield from search.owed_in(self._workspace)

    @property
    def gone(self) -> list[Holder]:
        """The processes of open calls that are gone by now."""
        return self._search.gone

    def over(self) -> list[list[Any]]:
        """Return the calls that are open in the log but have ended: what they did is in this scan at the latest."""
        found = dict.fromkeys(tuple(each) for each in self._workspace.over)
        found |= dict.fromkeys(each.over for each in self.found if each.over is not None)
        return [[*each] for each in [*found][-MOST_OVER:]]

    def of_all(self) -> Author:
        """Return who changed something, whatever it is."""
        return _decided(self.found, None)

    def of(self, change: Difference, when: When | None) -> Author:
        """Return who changed a path; ``when`` is None if the system cannot tell."""
        told = self._told_beside(change)
        if told is not None:
            return told
        whole = f"{self._workspace.path}/{os.fsdecode(change.path)}"
        few = [each for each in self.found if each.could(whole, when)]
        if len({each.family for each in few}) > 1:
            few = self._named(few, change.path) or few
        return _decided(few, when)

    def _named(self, among: Sequence[Candidate], path: bytes) -> list[Candidate]:
        """Return the one family whose calls name a path; empty if none does, or several do."""
        naming = [each for each in among if self._names_it(each, path)]
        return naming if len({each.family for each in naming}) == 1 else []

    def _names_it(self, candidate: Candidate, path: bytes) -> bool:
        key = candidate.session.sid, candidate.call
        if key not in self._names:
            self._names[key] = {*self._paths_of(candidate.session, candidate.call)} if candidate.call else set()
        names = self._names[key]
        return path in names or any(above + b"/" in names for above in preview.above_all(path))

    def _paths_of(self, session: SessionRow, call_id: str) -> Iterator[bytes]:
        """Yield the paths of the workspace that the arguments of a call name.

        An argument that is a path, and nothing else, stands for what is below it too, and is yielded with a slash as
        well. A word in a longer text may be just a word: it stands for a file of that name alone.
        """
        found = calls.newest(self._tx, session, call_id)
        if found is None:
            return
        for text in _texts(calls.announced(self._tx, session, found.marks.call, call_id).arguments):
            for word in _words(text):
                whole = os.path.normpath(os.path.join(session.workspace, word))
                if whole.startswith(f"{self._workspace.path}/"):
                    inside = os.fsencode(whole[len(self._workspace.path) + 1 :])
                    yield from (inside, inside + b"/") if word == text else (inside,)

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


def _decided(among: Sequence[Candidate], when: When | None) -> Author:
    if not among:
        return Author(OUTSIDE)
    who = dict[int, dict[str, None]]()
    for each in among:
        who.setdefault(each.session.sid, {}).update({each.call: None} if each.call else {})
    given = tuple((sid, tuple(ids)) for sid, ids in who.items())
    if len({each.family for each in among}) > 1 or not any(each.was_at_work(when) for each in among):
        return Author(UNCLEAR, given)
    return Author(among[0].kind if len({each.kind for each in among}) == 1 else CALLS, given)


def running(tx: Tx, workspace: WorkspaceRow) -> list[tuple[SessionRow, bytes]]:
    """Return the sessions with calls that run in a workspace, and the process that scans for each."""
    found = {each.session.sid: each.session for each in Authors(tx, workspace, None).found if each.until_ms is None}
    return [(row, workspace.by[sid]) for sid, row in found.items() if sid in workspace.by]


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


def beside(tx: Tx, workspace: WorkspaceRow) -> list[WorkspaceRow]:
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
