"""A move in time that is previewed before it is made: a rewind, or the undo or redo of one.

The preview compares what is on disk with what was recorded at the point, and asks the timeline of the workspace who
made each difference. It changes nothing. ``apply`` does exactly what the preview shows or, if one of its paths has
changed since, nothing: it first records what is on disk, so that the move can be undone, then changes the files
(``files.changes``) and moves the session.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from .. import codec, presence
from ..clock import to_datetime
from ..errors import Busy, Conflict, Error, LeaseLost, NotFound
from ..files import attribution, authors, changes, journal, states
from ..files.attribution import OTHERS, Blame
from ..files.authors import CALLS, OUTSIDE, UNCLEAR, Author, Claim
from ..files.disk import preview
from ..files.disk.identity import identity
from ..files.disk.preview import FilePlan
from ..files.roots import Root
from ..files.workspaces import Trees, Workspace
from ..model import files, html, tree, words
from ..model.message import MESSAGE
from ..model.operation import Operation
from ..model.session import Stats
from ..ops import calls, log, operations, rewinds, sessions
from ..ops.rewinds import Goal, MoveFacts, Wish
from ..ops.sessions import SessionRow
from ..storage.runner import Moment
from . import arguments
from .points import Point

if TYPE_CHECKING:
    from ..files.disk.apply import Step
    from ..model.files import FileChange, FileDiff
    from .branching import Moving

_SHOWN = 20
_NOTHING = FilePlan((), (), {})
_NOBODY = Blame({}, {})
_SPOKEN = frozenset({MESSAGE})
_UNKNOWN = Author("")
_AHEAD = 10  # entries in which a prompt is looked for at once: it is nearly always the first


class Rewind:
    """What going to ``target`` does to the conversation and to each path; ``print`` it, then ``apply`` it.

    ``workspace`` is the directory that changes. Left alone are: ``kept``, paths changed from outside; ``others``, paths
    that another session changed, which ``other_sessions`` maps to its id; ``unclear``, paths that several may have
    changed, each with who; and ``stays``, what should change and does not, each with the reason. ``not_captured`` are
    paths whose content is unknown, so they do not come back; ``not_written`` those that belong to a repository.
    ``target_at`` is when the point was reached. ``digest`` names exactly this plan. ``pending`` describes an earlier
    change to these files that was interrupted: it is taken back first, and the preview shows what comes after that.
    """

    workspace: str | None

    target: Point
    target_at: datetime
    to_seq: int
    from_seq: int
    turns: int
    messages: int
    stats: Stats
    prompt: str | None
    is_empty: bool
    files: tuple[FileChange, ...]
    kept: tuple[str, ...]
    others: tuple[str, ...]
    other_sessions: dict[str, str]
    unclear: dict[str, str]
    stays: dict[str, str]
    digest: str
    not_captured: tuple[str, ...]
    not_written: tuple[str, ...]
    pending: str | None

    def __init__(
        self,
        session: Moving,
        target: Point,
        goal: Goal,
        *,
        files: bool = True,
        conversation: bool = True,
        choice: RewindChoice | None = None,
        shown: bool = True,
    ) -> None:
        self._shown = shown  # False: applied at once, so nobody reads the preview
        self._session, self.target, self._goal = session, target, goal
        self._files, self._conversation, self._choice = files, conversation, choice or RewindChoice()
        self.workspace = session._seen.workspace or None
        self._blame = _NOBODY
        self._place: Workspace | None = session._place() if files else None
        self._recorded: Root | None = None
        if self._place is not None and not shown:
            self._recorded = session._scan_files()  # applied at once, so the safety snapshot comes first
        self._read(session)

    # ------------------------------------------------------------------ what it would do

    def _read(self, session: Moving) -> None:
        """Read the store in one transaction. The disk is scanned before it, so that nobody waits for the scan."""
        scanned, place, runner = self._recorded, self._place, session._store._runner
        if scanned is None and place is not None and session._seen.work_seq:
            scanned = place.glance()
        while not runner.at_once(partial(self._read_at, scanned)):
            assert place is not None
            scanned = place.glance()  # files were captured since this handle last read the session

    def _read_at(self, scanned: Root | None, moment: Moment) -> bool:
        """Read everything there is to know; False if the disk must be scanned first."""
        session, place = self._session, self._place
        self._left = None
        if place is not None and self._shown:
            left = changes.pending(moment, place, session.id)
            self._left = left if left is not None and changes.is_there(left) else None
        self.pending = None if self._left is None else changes.said(self._left, left=True)
        self._facts = facts = moment.read(rewinds.look, moment.read(sessions.get, *session._key), self._goal)
        self._root, self._plan = None, _NOTHING
        self._identity = None if place is None else identity(place.path)
        if place is not None and facts.there is not None and facts.workspace is not None:
            trees = place.trees.at(moment)
            self._root = self._recorded or self._before_it(moment, trees) or scanned
            if self._root is None:
                return False
            self._plan = self._planned(moment, trees, self._root.tree, facts.there)
        self._describe(moment, facts)
        return True

    def _planned(self, moment: Moment, trees: Trees, now: bytes, there: str) -> FilePlan:
        """Compare what is on disk with what was there; without a snapshot there is nothing to go back to."""
        facts, choice = self._facts, self._choice
        assert facts.workspace is not None
        claim = Claim(facts.session, CALLS if facts.open else OUTSIDE, facts.open)
        own = moment.read(authors.families, facts.session, choice.sessions)
        asked = attribution.Question(facts.workspace, facts.scan, now, claim, own, facts.session)
        self._blame = moment.read(attribution.blame, trees.load, asked)
        wanted = trees.root(there).tree
        self._require_known(trees, now, wanted)
        yours = {path: verdict.root for path, verdict in self._blame.kept.items()}
        return preview.plan(trees.load, now, wanted, yours=yours, wants=choice.wants, overwrite=choice.overwrites)

    def _before_it(self, moment: Moment, trees: Trees) -> Root | None:
        """Return what was on disk before an interrupted change: what will be there once it is taken back."""
        found = None if self._left is None else moment.read(journal.disk_before, self._left)
        return None if found is None else trees.root(found)

    def _require_known(self, trees: Trees, *roots: bytes) -> None:
        """Refuse to overwrite a path that neither exists nor existed then: it is a typo."""
        for path in (*self._choice.overwrite, *(self._choice.paths or ())):
            if path and all(tree.find(trees.load, root, path) is None for root in roots):
                raise NotFound(f"{os.fsdecode(path)!r} cannot be restored: it exists neither now nor at that point")

    def _describe(self, moment: Moment, facts: MoveFacts) -> None:
        row, there, shared = facts.session, facts.point.numbers, facts.parting.numbers
        self.to_seq, self.from_seq, self.target_at = facts.point.seq, row.seq, to_datetime(facts.at_ms)
        talks = self._conversation
        self.turns = max(0, row.turns - shared.turns) if talks else 0
        self.messages = max(0, row.messages - shared.messages) if talks else 0
        self._back = max(0, there.messages - shared.messages) if talks else 0
        self._work = talks and facts.work
        self.stats = Stats.from_numbers(there, started_ms=row.created_ms)
        self.prompt = _first_prompt(moment, facts) if self.turns and self._shown else None
        names = _Names(moment if self._shown else None, row)
        self.files = tuple(self._file_change(step, names) for step in self._plan.steps)
        self._sort_kept(names)
        self.stays = {os.fsdecode(path): why for path, why in self._plan.stays.items()}
        self.not_captured, self.not_written = self._missed(), _texts(self._plan.refused)
        same = facts.view == operations.head_view(row) or facts.is_quiet
        self.is_empty = not self.files and (not talks or (same and not facts.below))
        self.digest = _digest(row.revision, facts.view, self._plan.steps)

    def _sort_kept(self, names: _Names) -> None:
        """Tell apart what was changed from outside, by other sessions, and by nobody knows whom."""
        found = {path: self._blame.kept[path] for path in self._plan.kept}
        outside, others, unclear = (
            [path for path, each in found.items() if each.kind == kind] for kind in (OUTSIDE, OTHERS, UNCLEAR)
        )
        self.kept, self.others = _texts(tuple(outside)), _texts(tuple(others))
        self.other_sessions = {os.fsdecode(path): names.ids(found[path].author) for path in others}
        self.unclear = {os.fsdecode(path): names.candidates(found[path].author) for path in unclear}
        self._named = {os.fsdecode(path): names.said(found[path].author, 0) for path in others}

    def _file_change(self, step: Any, names: _Names) -> FileChange:
        author, turn = self._blame.by.get(step.path, (_UNKNOWN, 0))
        call_ids = tuple(call for _, ids in author.who for call in ids)
        return files.FileChange(os.fsdecode(step.path), preview.action(step), names.said(author, turn), call_ids)

    def _missed(self) -> tuple[str, ...]:
        if not self._files:
            return ()
        if self._place is None or self._facts.workspace is None:
            workspace = self._session._seen.workspace
            why = self._session._why_not_captured() or f"{workspace} (its files were never captured)"
            return (why,) if workspace else ()
        now = self._root.missed if self._root is not None else []
        reasons = {os.fsdecode(path): reason for path, reason in now}
        hidden = 0 if self._root is None else self._root.missed_count - len(self._root.missed)
        if hidden:
            reasons[f"... and {hidden:,} more"] = "not shown"
        gaps = [f"{path} ({reason})" for path, reason in reasons.items()]
        if self._facts.elsewhere:
            gaps.append(f"{self.workspace} (the files at that point were captured in {self._facts.elsewhere})")
        return (*gaps, *(f"{path} (files of a sub-agent)" for path in self._facts.apart if self._conversation))

    def diff(self) -> str:
        """Return the difference it makes to each path, as text."""
        return "".join(each.text for each in self._differences())

    def _differences(self) -> Iterator[FileDiff]:
        assert self._place is not None or not self._plan.steps
        for step in self._plan.steps:
            if tree.DIR not in (step.old and step.old.kind, step.new and step.new.kind):
                assert self._place is not None
                yield states.difference(self._place, step.path, step.old, step.new, recorded=self._left is not None)

    # ------------------------------------------------------------------ doing it

    def apply(self, *, take_over: bool = False) -> Operation:
        """Make the move; raises ``Conflict`` and changes nothing if session or files changed since the preview.

        Raises ``Busy`` if somebody else runs the session or one of its sub-agents; with ``take_over`` their next write
        raises ``LeaseLost`` instead.
        """
        return self._apply(take_over, None)

    def _apply(self, take_over: bool, key: str | None) -> Operation:
        session, place = self._session, self._place
        self._require_free(take_over)
        if place is None or self._root is None:
            call = session._store._call(key, self._goal.asked)
            return session._operate(call, rewinds.move_as_seen, self._wish(self._facts, take_over), self._revision)
        facts, held = self._secured(place), session._held
        finish = partial(
            rewinds.finish,
            where=session._key,
            call=session._store._call(key, self._goal.asked),
            wish=self._wish(facts, take_over),
            revision=self._revision,
            fence=None if held is None else held.fence,
        )
        try:
            session._seen, operation = changes.change_files(
                session._store._runner, place, facts.session, self._plan.steps, finish
            )
        except Conflict as error:
            self._rescan(place, error)
            raise
        except LeaseLost:
            if held is not None:
                held.lose()
            raise
        if held is not None:
            held.sure = max(held.sure, session._seen.updated)
        if operation.summary != operations.NOTHING:
            session._store._made(operation)
        return operation

    def _rescan(self, place: Workspace, error: Conflict) -> None:
        """Reread paths that differ from the preview, whatever their size and times say, for the next preview."""
        paths = [each for each in error.found if isinstance(each, bytes)] if isinstance(error.found, tuple) else []
        if paths:
            with suppress(Error):
                place.expect(dict.fromkeys(paths))
                self._session._scan_quietly()

    def _secured(self, place: Workspace) -> MoveFacts:
        """Record what is on disk, so that the move can be undone; return the session's facts after that."""
        if self._recorded is not None:
            return self._facts
        session, seen = self._session, self._root
        if self._identity != identity(place.path):
            raise Conflict(f"{place.path} is a different directory since the preview; preview again", found=place.path)
        root = session._scan_files()
        if root is None or seen is None:
            raise Conflict("the workspace cannot be scanned any more; preview again", found=place.path)
        load, now = place.trees.load, root.tree
        changed = [step.path for step in self._plan.steps if not _as_planned(load, now, step)]
        if changed:
            names = ", ".join(map(os.fsdecode, changed[:5]))
            raise Conflict(f"files changed since the preview: {names}; preview again", found=tuple(changed))
        return session._ask(rewinds.look, self._goal)

    @property
    def _revision(self) -> int:
        return self._facts.session.revision

    def _require_free(self, take_over: bool) -> None:
        """Refuse to change files while somebody else is working on them."""
        session = self._session
        for row, lease in () if take_over else self._facts.runners:
            holder = presence.decode(lease.holder or b"{}")
            mine = row.sid == session._seen.sid and session._holds()
            if not mine and not presence.is_here(holder) and not session._store._is_gone(lease):
                raise Busy(
                    f"session {row.name or row.title or row.id!r} is run by {holder}; end that first, or take it over"
                    " (take_over=True)",
                    holder=str(holder),
                )

    def _wish(self, facts: MoveFacts, take_over: bool) -> Wish:
        """Describe the move of the session."""
        session, goal = self._session, self._goal
        files = self._root is not None
        return Wish(
            facts,
            goal.kind,
            goal.operation,
            self._conversation,
            files or self._place is None,
            self._plan.steps,
            take_over,
            0 if session._held is None else session._held.lease.token,
        )

    # ------------------------------------------------------------------ for people

    def __str__(self) -> str:
        if self.is_empty:
            first = f"Already at entry {self.to_seq}: nothing to change."
            return "\n".join([first, *self._first(), *self.left_alone()])
        return "\n".join([self._headline(), *self._first(), *self._said(), *self._changed(), *self.left_alone()])

    def _headline(self) -> str:
        word = {"rewind": "Rewind", "undo": "Undo", "redo": "Redo", "switch": "Switch"}[self._goal.kind]
        if not self._conversation:
            return f"{word} files only, to entry {self.to_seq} (turn {self.stats.turns})"
        now, then = self._facts.session.turns, self.stats.turns
        turns = f"from turn {now} to the end of turn {then}" if now != then else f"within turn {now}"
        return f"{word} {turns} (entry {self.from_seq} to entry {self.to_seq})"

    def _first(self) -> Iterator[str]:
        if self.workspace is not None and self._place is not None:
            yield f"  in            {words.plain(self.workspace)}"
        if self.pending is not None:
            yield f"  pending       ! {words.plain(self.pending)}; it is taken back first"

    def _said(self) -> Iterator[str]:
        """Describe what happens besides files."""
        if self.messages:
            first = "" if self.prompt is None else f", from {self.prompt[:60]!r} on"
            gone = f"{words.count(self.messages, 'message')} in {words.count(self.turns, 'turn')}"
            yield f"  conversation  removes {gone}{first}; still on their branch"
        if self._back:
            yield f"  back          {words.count(self._back, 'message')} from another branch"
        if self._work:
            yield "  work          tasks, plan, notes and state as they were then"
        if self._conversation and self._facts.below:
            yield f"  sub-agents    {words.count(len(self._facts.below), 'sub-agent')} as they were then"

    def _changed(self) -> Iterator[str]:
        marks = {"create": "A", "overwrite": "M", "delete": "D", "mkdir": "A", "rmdir": "D", "chmod": "m", "link": "L"}
        for number, each in enumerate(self.files[:_SHOWN]):
            by = f"   (changed by {each.by})" if each.by else ""
            end = "/" if each.action in ("mkdir", "rmdir") else ""
            yield f"  {'files' if number == 0 else '':13} {marks[each.action]} {words.plain(each.path)}{end}{by}"
        if len(self.files) > _SHOWN:
            yield f"  {'':13} ... and {len(self.files) - _SHOWN:,} more"

    def left_alone(self, overwrite: str = "overwrite={}", take: str = "sessions={}") -> Iterator[str]:
        """Yield a line for everything that does not change although it differs, with the reason and what to do.

        ``overwrite`` and ``take`` say how to restore a path, or a session's changes, all the same.
        """
        for path in _few(self.kept):
            yield f"  kept          ! {_with(path, 'changed from outside, left alone', overwrite.format(path))}"
        for path in _few(self.others):
            name = self._named.get(path, "another session")
            how = f"{overwrite.format(path)}, or {take.format(self.other_sessions.get(path, ''))}"
            yield f"  others        ! {_with(path, f'changed later by {name}, left alone', how)}"
        for path in _few(self.unclear):
            who = self.unclear.get(path, "")
            yield f"  unclear       ! {_with(path, f'changed by {who}, left alone', overwrite.format(path))}"
        for path in _few(self.stays):
            yield f"  stays         ! {_with(path, f'does not come back: {self.stays.get(path, str())}', '')}"
        for each in _few(self.not_captured, 5):
            yield f"  not captured  {words.plain(each)}; it does not come back"
        for path in _few(self.not_written):
            yield f"  not written   ! {_with(path, 'belongs to a repository: never written', '')}"

    def _repr_html_(self) -> str:
        rows = {each.path: f"{each.action} {each.by}" for each in self.files}
        stays = dict.fromkeys((*self.kept, *self.others, *self.unclear, *self.stays), "kept")
        about = {"turns": self.turns, "prompt": self.prompt, "to": self.to_seq}
        return html.fields(repr(self), {**about, **rows, **stays})

    def __repr__(self) -> str:
        files = f", {words.count(len(self.files), 'path')}" if self.files else ""
        return f"<Rewind to entry {self.to_seq}, removes {words.count(self.turns, 'turn')}{files}>"


class _Names:
    """The names of the tools whose calls changed files, each looked up once."""

    def __init__(self, moment: Moment | None, session: SessionRow) -> None:
        self._moment, self._session = moment, session
        self._known: dict[tuple[int, str], str | None] = {}
        self._rows: dict[int, SessionRow | None] = {}

    def said(self, author: Author, turn: int) -> str:
        """Describe who changed a path."""
        if self._moment is None or not author.who:
            return ""
        return " and ".join(self._one(sid, ids, turn) for sid, ids in author.who)

    def candidates(self, author: Author) -> str:
        """Describe who may have changed a path."""
        return " or ".join([*(self._one(sid, ids, 0) for sid, ids in author.who), "someone else"])

    def ids(self, author: Author) -> str:
        """Return the id of the session that changed a path."""
        row = self._row(author.who[0][0])
        return "" if row is None else row.id

    def _one(self, sid: int, call_ids: tuple[str, ...], turn: int) -> str:
        row = self._row(sid)
        if row is None:
            return "a purged session"
        tools = ", ".join(dict.fromkeys(self._tool(row, call_id) for call_id in call_ids[:3]))
        if sid == self._session.sid:
            return f"{tools or 'the agent'}{f' in turn {turn}' if turn else ''}"
        return f"{f'{tools} of ' if tools else ''}session {row.name or row.title or row.id!r}"

    def _row(self, sid: int) -> SessionRow | None:
        if sid == self._session.sid or self._moment is None:
            return self._session if sid == self._session.sid else None
        if sid not in self._rows:
            self._rows[sid] = self._moment.read(sessions.find_number, self._session.scope, sid)
        return self._rows[sid]

    def _tool(self, row: SessionRow, call_id: str) -> str:
        key = row.sid, call_id
        if key not in self._known and self._moment is not None:
            self._known[key] = self._moment.read(calls.name_of, row, call_id)
        return self._known.get(key) or "a tool"


def _first_prompt(moment: Moment, facts: MoveFacts) -> str | None:
    """Return what the user said first of what a move leaves behind."""
    session, low = facts.session, facts.parting.seq
    while low < session.seq:
        high = min(low + _AHEAD, session.seq)
        found, low = moment.read(log.read_messages, session, low, high, _SPOKEN, None)
        for message in found:
            if message.role == "user":
                return message.text
    return None


def _texts(paths: tuple[bytes, ...]) -> tuple[str, ...]:
    return tuple(os.fsdecode(path) for path in paths)


class RewindChoice(NamedTuple):
    """What a caller wants of a rewind: only some paths, some overwritten, and other sessions' changes taken back too.

    An empty path among those to be overwritten stands for all of them.
    """

    overwrite: tuple[bytes, ...] = ()
    paths: tuple[bytes, ...] | None = None
    sessions: tuple[str, ...] | Literal["all"] = ()

    def overwrites(self, path: bytes) -> bool:
        """Whether a path is to be restored whoever changed it."""
        return _is_in(path, self.overwrite)

    def wants(self, path: bytes) -> bool:
        """Whether a path is to be restored at all."""
        return self.paths is None or _is_in(path, self.paths)


def _few(names: Iterable[str], most: int = _SHOWN) -> Iterator[str]:
    """Yield the first few names, and how many more there are."""
    names = [*names]
    yield from names[:most]
    if len(names) > most:
        yield f"... and {len(names) - most:,} more"


def _with(path: str, what: str, how: str) -> str:
    """Describe a path that stays; a line that only counts more of them needs no reason."""
    if path.startswith("... and "):
        return path
    return f"{words.plain(path)} {what}{f' ({how} restores it)' if how else ''}"


def _is_in(path: bytes, among: tuple[bytes, ...]) -> bool:
    return any(not each or path == each or path.startswith(each + b"/") for each in among)


def _as_planned(load: tree.Load, now: bytes, step: Step) -> bool:
    """Whether a path is as the plan found it."""
    found = tree.find(load, now, step.path)
    return tree.shown(None if found is None or found.kind == tree.ABSENT else found) == tree.shown(step.old)


def _digest(revision: int, view: list[Any], steps: tuple[Step, ...]) -> str:
    """Name a plan: two with the same name do the same."""
    return sha256(codec.canonical([revision, view, [[*map(_plain, step)] for step in steps]])).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return None if value is None else [_plain(each) if isinstance(each, bytes) else each for each in value]


def choice_of(session: Moving, overwrite: Any, paths: Any, others: Any) -> RewindChoice:
    """Check what a caller wants of a rewind."""
    every = overwrite == "all"
    forced = (b"",) if every else tuple(session._path_in(path) for path in arguments.many(overwrite, what="overwrite"))
    only = None if paths is None else tuple(session._path_in(path) for path in arguments.many(paths, what="paths"))
    if others == "all":
        return RewindChoice(forced, only, "all")
    ids = [getattr(each, "id", each) for each in arguments.many(others, what="sessions")]
    return RewindChoice(forced, only, tuple(arguments.name(each, what="session") for each in ids))
