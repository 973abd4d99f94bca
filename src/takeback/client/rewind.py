"""A move in time that is previewed before it is made: a rewind, or the undo or redo of one.

The preview compares three trees: what is on disk, what was recorded at the head, what was recorded at the point. It
changes nothing. ``apply`` does exactly what the preview shows or, if anything has changed since, nothing: it first
records what is on disk, so that the move can be undone, then changes the files (``files.changes``) and moves the
session.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import presence
from ..clock import to_datetime
from ..errors import Busy, Conflict, Error, LeaseLost, NotFound
from ..files import changes, journal, states
from ..files.attribution import blame, changed_by_others
from ..files.disk import preview
from ..files.disk.preview import FilePlan
from ..files.snapshots import Root
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
    from ..model.files import FileChange, FileDiff
    from .branching import Moving

_SHOWN = 20
_NOTHING = FilePlan((), (), (), ())
_SPOKEN = frozenset({MESSAGE})
_AHEAD = 10  # entries in which a prompt is looked for at once: it is nearly always the first


class Rewind:
    """What going to ``target`` does to the conversation and to each path; ``print`` it, then ``apply`` it.

    ``kept`` are paths that somebody else changed, ``others`` those that another live session changed too; both are left
    alone, and ``other_sessions`` maps the latter to the id of that session. ``not_captured`` are paths left alone
    because their content is unknown, ``not_written`` those that belong to a repository. ``target_at`` is when the point
    was reached. ``pending`` describes an earlier change to these files that was interrupted: it is taken back first,
    and the preview shows what happens after that.
    """

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
        overwrite: tuple[bytes, ...] = (),
        shown: bool = True,
    ) -> None:
        self._shown = shown  # False: applied at once, so nobody reads the preview
        self._session, self.target, self._goal = session, target, goal
        self._files, self._conversation, self._overwrite = files, conversation, overwrite
        self._by: dict[bytes, tuple[int, tuple[str, ...]]] = {}
        self._theirs: dict[bytes, str] = {}
        self._place: Workspace | None = session._place() if files else None
        self._recorded: Root | None = None
        if self._place is not None and not shown:
            # Applied at once, so the safety snapshot comes first; like a preview, it must miss nothing.
            self._recorded = session._scan_files(everything=True)
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
        self._facts = facts = moment.read(rewinds.look_at, moment.read(sessions.get, *session._key), self._goal)
        self._root, self._plan = None, _NOTHING
        if place is not None and facts.there is not None and facts.here is not None:
            trees = place.trees.at(moment)
            self._root = self._recorded or self._before_it(moment, trees) or scanned
            if self._root is None:
                return False
            self._plan = self._planned(moment, trees, self._root.tree, facts.there)
        self._describe(moment, facts)
        return True

    def _planned(self, moment: Moment, trees: Trees, now: bytes, there: str) -> FilePlan:
        """Compare what is on disk with what was there; without a snapshot there is nothing to go back to."""
        found = blame(moment, trees, self._facts, now)
        self._by, self._theirs = found.by, changed_by_others(moment, trees, self._facts)
        wanted = trees.root(there).tree
        self._require_known(trees, now, wanted)
        return preview.plan(trees.load, now, wanted, yours=found.yours, others=self._theirs, overwrite=self._overwrites)

    def _before_it(self, moment: Moment, trees: Trees) -> Root | None:
        """Return what was on disk before an interrupted change: what will be there once it is taken back."""
        found = None if self._left is None else moment.read(journal.disk_before, self._left)
        return None if found is None else trees.root(found)

    def _overwrites(self, path: bytes) -> bool:
        return any(path == each or path.startswith(each + b"/") for each in self._overwrite)

    def _require_known(self, trees: Trees, *roots: bytes) -> None:
        """Refuse to overwrite a path that neither exists nor existed then: it is a typo."""
        for path in self._overwrite:
            if all(tree.find(trees.load, root, path) is None for root in roots):
                raise NotFound(f"{os.fsdecode(path)!r} cannot be overwritten: it exists neither now nor at that point")

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
        self.kept, self.others = _texts(self._plan.kept), _texts(self._plan.others)
        self.other_sessions = {os.fsdecode(path): self._theirs[path] for path in self._plan.others}
        self.not_captured, self.not_written = self._missed(), _texts(self._plan.refused)
        same = facts.view == operations.head_view(row) or facts.is_quiet
        self.is_empty = not self.files and (not talks or (same and not facts.below))

    def _file_change(self, step: Any, names: _Names) -> FileChange:
        found = self._by.get(step.path, (0, ()))
        return files.FileChange(os.fsdecode(step.path), preview.action(step), names.said(*found), found[1])

    def _missed(self) -> tuple[str, ...]:
        if not self._files:
            return ()
        if self._place is None or self._facts.here is None:
            workspace = self._session._seen.workspace
            why = self._session._why_not_captured() or f"{workspace} (its files were never captured)"
            return (why,) if workspace else ()
        now = self._root.missed if self._root is not None else []
        reasons = {os.fsdecode(path): reason for path, reason in now}
        more = dict.fromkeys(_texts(self._plan.missed), "not captured then or now")
        known = {name.rstrip("/") for name in reasons}
        hidden = 0 if self._root is None else self._root.missed_count - len(self._root.missed)
        if hidden:
            reasons[f"... and {hidden:,} more"] = "not shown"
        gaps = (f"{path} ({reason})" for path, reason in {**reasons, **_without(more, known)}.items())
        return (*gaps, *(f"{path} (files of a sub-agent)" for path in self._facts.elsewhere if self._conversation))

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
        root = session._scan_files()
        if root is None or seen is None or root.tree != seen.tree:
            changed = () if root is None or seen is None else tree.differences(place.trees.load, seen.tree, root.tree)
            names = ", ".join(os.fsdecode(each.path) for each in [*changed][:5])
            raise Conflict(f"files changed since the preview: {names or 'all'}; preview again", found=names)
        return session._ask(rewinds.look_at, self._goal)

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
            tuple(each.path for each in self.files),
            facts.there if files else None,
            take_over,
            0 if session._held is None else session._held.lease.token,
        )

    # ------------------------------------------------------------------ for people

    def __str__(self) -> str:
        if self.is_empty:
            return "\n".join([f"Already at entry {self.to_seq}: nothing to change.", *self._first(), *self._stays()])
        return "\n".join([self._headline(), *self._first(), *self._said(), *self._changed(), *self._stays()])

    def _headline(self) -> str:
        word = {"rewind": "Rewind", "undo": "Undo", "redo": "Redo", "switch": "Switch"}[self._goal.kind]
        if not self._conversation:
            return f"{word} files only, to entry {self.to_seq} (turn {self.stats.turns})"
        now, then = self._facts.session.turns, self.stats.turns
        turns = f"from turn {now} to the end of turn {then}" if now != then else f"within turn {now}"
        return f"{word} {turns} (entry {self.from_seq} to entry {self.to_seq})"

    def _first(self) -> Iterator[str]:
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

    def _stays(self) -> Iterator[str]:
        for path in self.kept[:_SHOWN]:
            yield f"  yours         ! {words.plain(path)} changed by someone else, left alone (overwrite= restores it)"
        for path in self.others[:_SHOWN]:
            yield f"  others        ! {words.plain(path)} also changed by another live session, left alone"
        if self.not_captured:
            more = "" if len(self.not_captured) <= 5 else f" and {len(self.not_captured) - 5:,} more"
            yield f"  not captured  {', '.join(map(words.plain, self.not_captured[:5]))}{more}"
        for path in self.not_written[:_SHOWN]:
            yield f"  not written   ! {words.plain(path)} belongs to a repository: never written"

    def _repr_html_(self) -> str:
        rows = {each.path: f"{each.action} {each.by}" for each in self.files}
        stays = dict.fromkeys((*self.kept, *self.others), "kept")
        about = {"turns": self.turns, "prompt": self.prompt, "to": self.to_seq}
        return html.fields(repr(self), {**about, **rows, **stays})

    def __repr__(self) -> str:
        files = f", {words.count(len(self.files), 'path')}" if self.files else ""
        return f"<Rewind to entry {self.to_seq}, removes {words.count(self.turns, 'turn')}{files}>"


class _Names:
    """The names of the tools whose calls changed files, each looked up once."""

    def __init__(self, moment: Moment | None, session: SessionRow) -> None:
        self._moment, self._session = moment, session
        self._known: dict[str, str | None] = {}

    def said(self, turn: int, call_ids: tuple[str, ...]) -> str:
        """Describe who changed a path."""
        if self._moment is None or (not turn and not call_ids):
            return ""
        names = dict.fromkeys(self._name(call_id) for call_id in call_ids[:3])
        return " and ".join([", ".join(names) or "the agent"]) + f" in turn {turn}"

    def _name(self, call_id: str) -> str:
        if call_id not in self._known and self._moment is not None:
            self._known[call_id] = self._moment.read(calls.name_of, self._session, call_id)
        return self._known[call_id] or "a tool"


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


def _without(found: dict[str, str], known: set[str]) -> dict[str, str]:
    return {name: reason for name, reason in found.items() if name not in known}


def paths_given(session: Moving, overwrite: Any) -> tuple[bytes, ...]:
    """Check the paths that a caller wants overwritten."""
    return tuple(session._path_in(path) for path in arguments.many(overwrite, what="overwrite"))
