"""A session's rewind, undo, redo or switch: its conversation, its work and its sub-agents, and the files with them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from .. import presence
from ..clock import to_datetime
from ..errors import Busy, LeaseLost, Unsupported
from ..files import authors, changes
from ..files.authors import OUTSIDE
from ..files.candidates import Claim
from ..files.journal import JournalRow
from ..files.roots import Root
from ..model import words
from ..model.message import MESSAGE
from ..model.operation import Operation
from ..model.session import Stats
from ..ops import log, operations, rewinds, sessions
from ..ops.rewinds import Goal, MoveFacts, Wish
from ..storage.runner import Moment
from .author_names import AuthorNames
from .points import Point
from .rewind import Rewind, Then, digest_of
from .rewind_choice import RewindChoice

if TYPE_CHECKING:
    from .branching import Moving

_SPOKEN = frozenset({MESSAGE})
_AHEAD = 10  # entries in which a prompt is looked for at once: it is nearly always the first


class SessionRewind(Rewind):
    """What a move does to a session and to its files."""

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
        self._session, self.target, self._goal = session, target, goal
        self._files, self._conversation = files, conversation
        self.workspace = session._seen.workspace or None
        place = session._place() if files else None
        self._why = session._why_not_captured() if files and place is None else None
        super().__init__(session._store, place, choice or RewindChoice(), shown=shown)

    def _scan(self) -> Root | None:
        return self._session._scan_files()

    def _was_captured(self) -> bool:
        return self._session._seen.work_seq > 0

    def _unfinished(self, moment: Moment) -> JournalRow | None:
        assert self._place is not None
        return changes.pending(moment, self._place, self._session.id)

    # ------------------------------------------------------------------ what it would do

    def _look(self, moment: Moment) -> Then | None:
        session = moment.read(sessions.get, *self._session._key)
        self._facts = facts = moment.read(rewinds.look, session, self._goal)
        if facts.there is None or facts.workspace is None:
            return None
        claim = Claim(facts.session, OUTSIDE)
        own = moment.read(authors.families, facts.session, self._choice.sessions)
        aside = {} if self._goal.files is None else self._goal.files.aside
        return Then(facts.there, facts.workspace, facts.scan, claim, own, facts.session, aside=aside)

    def _describe(self, moment: Moment) -> None:
        facts = self._facts
        row, there, shared = facts.session, facts.point.numbers, facts.parting.numbers
        self.to_seq, self.from_seq, self.target_at = facts.point.seq, row.seq, to_datetime(facts.at_ms)
        talks = self._conversation
        self.turns = max(0, row.turns - shared.turns) if talks else 0
        self.messages = max(0, row.messages - shared.messages) if talks else 0
        self._back = max(0, there.messages - shared.messages) if talks else 0
        self._work = talks and facts.work
        self.stats = Stats.from_numbers(there, started_ms=row.created_ms)
        self.prompt = _first_prompt(moment, facts) if self.turns and self._shown else None
        self._describe_files(AuthorNames(moment if self._shown else None, row.scope, row))
        same = facts.view == operations.head_view(row) or facts.is_quiet
        self.is_empty = not self.files and (not talks or (same and not facts.below))
        self.digest = digest_of(row.revision, facts.view, steps=self._plan.steps)

    def _missed(self) -> Iterator[str]:
        if not self._files:
            return
        if self._place is None or self._facts.workspace is None:
            workspace = self._session._seen.workspace
            if workspace:
                yield self._why or f"{workspace} (its files were never captured)"
            return
        yield from super()._missed()
        if self._facts.elsewhere:
            yield f"{self.workspace} (the files at that point were captured in {self._facts.elsewhere})"
        if self._conversation:
            yield from (f"{path} (files of a sub-agent)" for path in self._facts.apart)

    # ------------------------------------------------------------------ doing it

    def _apply(self, take_over: bool, key: str | None) -> Operation:
        session, place = self._session, self._place
        self._require_free(take_over)
        self._require_files()
        if place is None or self._root is None:
            call = session._store._call(key, self._goal.asked)
            return session._operate(call, rewinds.move_as_seen, self._wish(self._facts, take_over), self._revision)
        self._secure(place)
        facts, held = (
            self._facts if self._recorded is not None else session._ask(rewinds.look, self._goal),
            session._held,
        )
        finish = partial(
            rewinds.finish,
            where=session._key,
            call=session._store._call(key, self._goal.asked),
            wish=self._wish(facts, take_over),
            revision=self._revision,
            fence=None if held is None else held.fence,
        )
        try:
            session._seen, operation = self._changing(place, facts.session, finish)
        except LeaseLost:
            if held is not None:
                held.lose()
            raise
        if held is not None:
            held.sure = max(held.sure, session._seen.updated)
        if operation.summary != operations.NOTHING:
            session._store._made(operation)
        return operation

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

    def _require_files(self) -> None:
        """Refuse to move the conversation alone where files were to move with it and cannot."""
        if self._files and self._place is None and self._facts.there is not None and self._session._captures():
            raise Unsupported(
                f"the files cannot go back: {self._why}. Nothing was changed. Make that directory again, or go without"
                " the files (files=False)",
                capability="workspace",
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

    def _headline(self) -> str:
        word = {"rewind": "Rewind", "undo": "Undo", "redo": "Redo", "switch": "Switch"}[self._goal.kind]
        if self.is_empty:
            return f"Already at entry {self.to_seq}"
        if not self._conversation:
            return f"{word} files only, to entry {self.to_seq} (turn {self.stats.turns})"
        now, then = self._facts.session.turns, self.stats.turns
        turns = f"from turn {now} to the end of turn {then}" if now != then else f"within turn {now}"
        return f"{word} {turns} (entry {self.from_seq} to entry {self.to_seq})"

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

    def __repr__(self) -> str:
        files = f", {words.count(len(self.files), 'path')}" if self.files else ""
        return f"<Rewind to entry {self.to_seq}, removes {words.count(self.turns, 'turn')}{files}>"


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
