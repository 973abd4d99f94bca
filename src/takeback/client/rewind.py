"""A move back in time that is previewed before it is made: of files alone, or of a session with its files.

The preview compares what is on disk with what was recorded then, and asks the timeline of the workspace who made each
difference. It changes nothing. ``apply`` does exactly what the preview shows or, if one of its paths has changed since,
nothing: it first records what is on disk, so that the move can be undone, then changes the files (``files.changes``).

This module knows files. What else a move does is known to those who derive from ``Rewind``: a session's conversation
(``session_rewind``), or nothing (``workspace``).
"""

from __future__ import annotations

import os
import shlex
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .. import codec
from ..errors import Conflict, Error, NotFound
from ..files import attribution, changes, journal, roots, states
from ..files.attribution import OTHERS, Blame
from ..files.authors import OUTSIDE, UNCLEAR, Author
from ..files.candidates import Claim
from ..files.disk import preview
from ..files.disk._steps import MOVED
from ..files.disk.identity import which
from ..files.disk.preview import FilePlan
from ..files.roots import Root
from ..files.workspaces import CapturedDirectory, Commit, Trees
from ..model import Bound, files, html, tree, words
from ..model.operation import Operation
from ..model.session import Stats
from ..ops.sessions import SessionRow
from ..storage.runner import Moment
from ..tables.files import WorkspaceRow
from . import arguments
from .author_names import AuthorNames
from .rewind_choice import RewindChoice

if TYPE_CHECKING:
    from ..files.disk.apply import Step
    from ..files.journal import JournalRow
    from ..model.files import FileChange, FileDiff
    from .store import Store

T = TypeVar("T")
_SHOWN = 20
_AND_MORE = "... and "
_NOTHING = FilePlan((), (), {})
_NOBODY = Blame({}, {})
_UNKNOWN = Author("")


class Then(NamedTuple):
    """The files to go back to: their root, the scan behind which changes are taken back, and whose changes.

    ``paths`` are taken back besides: those that an operation changed.
    """

    root: str
    workspace: WorkspaceRow
    scan: int
    claim: Claim | None
    own: Collection[int] | None
    fork: SessionRow | None = None
    paths: frozenset[bytes] = frozenset()
    aside: Mapping[str, str] = MappingProxyType({})  # what the operation that is reversed moved aside


class Rewind(Bound, ABC):
    """What going to ``target`` does to the conversation and to each path; ``print`` it, then ``apply`` it.

    ``workspace`` is the directory that changes. Left alone are: ``kept``, paths changed from outside; ``others``, paths
    that another session changed, which ``other_sessions`` maps to its id; ``unclear``, paths that several may have
    changed, each with who; and ``stays``, what should change and does not, each with the reason. ``not_captured`` are
    paths whose content is unknown, so they do not come back; ``not_written`` those that belong to a repository.
    ``moved`` maps what is in the way and not captured, and is to be overwritten, to the name that it is moved to; in an
    undo it maps that name to the place to which it moves back.
    ``target_at`` is when the point was reached. ``digest`` names exactly this plan. ``pending`` describes an earlier
    change to these files that was interrupted: it is taken back first, and the preview shows what comes after that.
    """

    workspace: str | None
    target: Any
    target_at: datetime
    to_seq: int = 0
    from_seq: int = 0
    turns: int = 0
    messages: int = 0
    stats: Stats
    prompt: str | None = None
    is_empty: bool
    files: tuple[FileChange, ...]
    kept: tuple[str, ...]
    others: tuple[str, ...]
    other_sessions: dict[str, str]
    unclear: dict[str, str]
    stays: dict[str, str]
    moved: dict[str, str]
    digest: str
    not_captured: tuple[str, ...]
    not_written: tuple[str, ...]
    pending: str | None

    def __init__(self, store: Store, place: CapturedDirectory | None, choice: RewindChoice, *, shown: bool) -> None:
        self._store, self._place, self._choice = store, place, choice
        self._shown = shown  # False: applied at once, so nobody reads the preview
        self._recorded: Root | None = None
        if place is not None and not shown:
            self._recorded = self._scan()  # applied at once, so what is there is recorded first
        self._read()
        if self._recorded is not None:
            self._read_again()

    # ------------------------------------------------------------------ what those who derive from this know

    @abstractmethod
    def _scan(self) -> Root | None:
        """Record what is on disk now."""

    @abstractmethod
    def _unfinished(self, moment: Moment) -> JournalRow | None:
        """Return a change of these files that was left half done, or None."""

    @abstractmethod
    def _look(self, moment: Moment) -> Then | None:
        """Read what there is to know of the move; return the files to go back to, None if they stay."""

    @abstractmethod
    def _describe(self, moment: Moment) -> None:
        """Describe the move, once the plan of its files is made."""

    @abstractmethod
    def _apply(self, take_over: bool, key: str | None) -> Operation:
        """Carry out the plan."""

    @abstractmethod
    def _headline(self) -> str:
        """Return the first line of the plan."""

    def _said(self) -> Iterator[str]:
        """Describe what happens besides files."""
        return iter(())

    # ------------------------------------------------------------------ what it would do

    def _read(self) -> None:
        """Read the store in one transaction. The disk is scanned before it, so that nobody waits for the scan."""
        scanned, place = self._recorded, self._place
        if scanned is None and place is not None and self._was_captured():
            scanned = place.glance()
        while not self._store._runner.at_once(partial(self._read_at, scanned)):
            assert place is not None
            scanned = place.glance()  # files were captured only since

    def _read_again(self) -> None:
        """Compare what was changed since, and seems to be as it was then, whatever the system reported.

        Each path of the plan is compared when it is carried out.
        """
        assert self._place is not None
        unplanned = self._blame.by.keys() - {step.path for step in self._plan.steps}
        if unplanned:
            self._place.expect(dict.fromkeys(unplanned))
            found, self._recorded = self._recorded, self._scan()
            if found != self._recorded:
                self._read()

    def _was_captured(self) -> bool:
        """Whether there are files to compare with, as far as is known without asking."""
        return True

    def _read_at(self, scanned: Root | None, moment: Moment) -> bool:
        """Read everything there is to know; False if the disk must be scanned first."""
        place, self._left = self._place, None
        if place is not None and self._shown:
            left = self._unfinished(moment)
            self._left = left if left is not None and changes.is_there(left) else None
        self.pending = None if self._left is None else changes.said(self._left, left=True)
        then = self._look(moment)
        self._root, self._plan, self._blame = None, _NOTHING, _NOBODY
        self._identity = None if place is None else which(place.path)
        if place is not None and then is not None:
            trees = place.trees.at(moment)
            self._root = self._recorded or self._before_it(moment, trees) or scanned
            if self._root is None:
                return False
            self._plan = self._planned(moment, trees, self._root.tree, then)
        self._describe(moment)
        return True

    def _planned(self, moment: Moment, trees: Trees, now: bytes, then: Then) -> FilePlan:
        """Compare what is on disk with what was there; without a snapshot there is nothing to go back to."""
        wanted, choice = trees.root(then.root).tree, self._choice
        asked = attribution.Question(then.workspace, then.scan, now, wanted, then.claim, then.own, then.fork)
        if self._place is not None and self._left is None:
            asked = asked._replace(when=self._place.when)
        self._blame = moment.read(attribution.blame, trees.load, asked)
        self._require_known(trees, now, wanted)
        yours = {path: verdict.root for path, verdict in self._blame.kept.items()}
        aside = {os.fsencode(path): os.fsencode(name) for path, name in then.aside.items()}
        return preview.plan(
            *(trees.load, now, wanted),
            yours=yours,
            wants=choice.wants,
            overwrite=choice.overwrites,
            was_aside=aside,
            seen={*self._blame.by, *then.paths, *aside, *aside.values()} if then.scan else None,
        )

    def _before_it(self, moment: Moment, trees: Trees) -> Root | None:
        """Return what was on disk before an interrupted change: what will be there once it is taken back."""
        found = None if self._left is None else moment.read(journal.disk_before, self._left)
        return None if found is None else trees.root(found)

    def _require_known(self, trees: Trees, *roots: bytes) -> None:
        """Refuse to overwrite a path that neither exists nor existed then: it is a typo."""
        for path in (*self._choice.overwrite, *(self._choice.paths or ())):
            if path and all(tree.find(trees.load, root, path) is None for root in roots):
                raise NotFound(f"{os.fsdecode(path)!r} cannot be restored: it exists neither now nor at that point")

    def _describe_files(self, names: AuthorNames) -> None:
        """Describe what changes, what does not, and who changed it before."""
        self.files = tuple(self._file_change(step, names) for step in self._plan.steps)
        self._sort_kept(names)
        self.stays = {os.fsdecode(path): stay.why for path, stay in self._plan.stays.items()}
        self.moved = {os.fsdecode(one): os.fsdecode(other) for one, other in preview.moves(self._plan.steps)}
        self._hidden = 0 if self._root is None else self._root.missed_count - len(self._root.missed)
        if self._hidden:  # those with a line of their own are not counted twice
            listed = {path.rstrip(b"/") for path, _ in self._root.missed} if self._root is not None else set()
            own = (path for path, stay in self._plan.stays.items() if stay.is_gap and self._is_own(path))
            self._hidden -= sum(path not in listed for path in own)
        self.not_captured, self.not_written = tuple(self._missed()), _texts(self._plan.refused)

    def _sort_kept(self, names: AuthorNames) -> None:
        """Tell apart what was changed from outside, by other sessions, and by nobody knows whom."""
        found = {path: self._blame.kept[path] for path in self._plan.kept}
        outside, others, unclear = (
            [path for path, each in found.items() if each.kind == kind] for kind in (OUTSIDE, OTHERS, UNCLEAR)
        )
        self.kept, self.others = _texts(tuple(outside)), _texts(tuple(others))
        self.other_sessions = {os.fsdecode(path): names.ids(found[path].author) for path in others}
        self.unclear = {os.fsdecode(path): names.candidates(found[path].author) for path in unclear}
        self._named = {os.fsdecode(path): names.said(found[path].author, 0) for path in others}

    def _file_change(self, step: Any, names: AuthorNames) -> FileChange:
        author, turn = self._blame.by.get(step.path, (_UNKNOWN, 0))
        other = self._blame.kept.get(step.path)
        if other is not None and author is _UNKNOWN:  # to be restored all the same
            author = other.author
        left_by = names.said(other.author, 0) if other is not None and step.path in self._plan.back else ""
        call_ids = tuple(call for _, ids in author.who for call in ids)
        path, action = os.fsdecode(step.path), preview.action(step)
        return files.FileChange(path, action, names.said(author, turn), call_ids, left_by)

    def _missed(self) -> Iterator[str]:
        """Yield what is not captured now, and why."""
        if self._root is not None:
            yield from roots.missed(self._root)

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
        arguments.flag(take_over, what="take_over")
        return self._apply(take_over, None)

    def _secure(self, place: CapturedDirectory) -> None:
        """Record what is on disk, so that the move can be undone; the paths of the plan must be as it found them."""
        if self._recorded is not None:
            return
        if self._identity != which(place.path):
            raise Conflict(f"{place.path} is a different directory since the preview; preview again", found=place.path)
        root = self._scan()
        if root is None:
            raise Conflict("the workspace cannot be scanned any more; preview again", found=place.path)
        load, steps = place.trees.load, self._plan.steps
        changed = [step.path for step in steps if not _as_planned(load, root.tree, step)]
        changed += preview.appeared(load, root.tree, steps)
        if changed:
            names = ", ".join(map(os.fsdecode, changed[:5]))
            raise Conflict(f"files changed since the preview: {names}; preview again", found=tuple(changed))

    def _changing(self, place: CapturedDirectory, session: SessionRow | None, finish: Commit[T]) -> T:
        """Change the files, and then the store."""
        try:
            return changes.change_files(self._store._runner, place, session, self._plan.steps, finish)
        except Conflict as error:
            # Paths that differ are read again for the next preview, whatever their size and times say.
            paths = [each for each in error.found if isinstance(each, bytes)] if isinstance(error.found, tuple) else []
            if paths:
                with suppress(Error):
                    place.expect(dict.fromkeys(paths))
                    self._scan()
            raise

    # ------------------------------------------------------------------ for people

    def __str__(self) -> str:
        if self.is_empty:
            return "\n".join([f"{self._headline()}: nothing to change.", *self._first(), *self.left_alone()])
        return "\n".join([self._headline(), *self._first(), *self._said(), *self._changed(), *self.left_alone()])

    def _first(self) -> Iterator[str]:
        if self.workspace is not None and self._place is not None:
            yield f"  in            {words.plain(self.workspace)}"
        if self.pending is not None:
            yield f"  pending       ! {words.plain(self.pending)}; it is taken back first"

    def _changed(self) -> Iterator[str]:
        marks = {"create": "A", "overwrite": "M", "delete": "D", "mkdir": "A", "rmdir": "D", "chmod": "m", "link": "L"}
        for number, each in enumerate(self.files[:_SHOWN]):
            by = f"   ({each.about})" if each.about else ""
            end = "/" if each.action in ("mkdir", "rmdir") else ""
            yield f"  {'files' if number == 0 else '':13} {marks[each.action]} {words.plain(each.path)}{end}{by}"
        if len(self.files) > _SHOWN:
            yield f"  {'':13} ... and {len(self.files) - _SHOWN:,} more"

    def left_alone(
        self, overwrite: str = "overwrite=[{path!r}]", take: str = "sessions=[{session!r}]", more: str = ""
    ) -> Iterator[str]:
        """Yield a line for everything that does not change although it differs, with the reason and what to do.

        ``overwrite`` and ``take`` say how to restore a path, or a session's changes, all the same; empty if there is no
        way to. ``more`` says how to see all of a long list.
        """
        lines = _Lines(overwrite, take, more)
        yield from lines.of("aside", [_moved_line(*each, back=self._is_back) for each in self.moved.items()])
        kept, gone = lines.force, {os.fsdecode(path) for path in self._plan.absent}
        yield from lines.of(
            "kept", [f"{_plain(each)} changed from outside, left alone{kept(each, each in gone)}" for each in self.kept]
        )
        yield from lines.of("others", [self._other_line(each, lines, each in gone) for each in self.others])
        yield from lines.of(
            "unclear",
            [
                f"{_plain(path)} changed by {who}, left alone{kept(path, path in gone)}"
                for path, who in self.unclear.items()
            ],
        )
        yield from lines.of("stays", [self._stays_line(path, lines) for path in self._plan.stays if self._is_own(path)])
        yield from lines.of("not captured", self._not_captured_lines(), mark="", most=5, hidden=self._hidden)
        yield from lines.of(
            "not written", [f"{_plain(each)} belongs to a repository: never written" for each in self.not_written]
        )

    def _other_line(self, path: str, lines: _Lines, gone: bool) -> str:
        who, session = self._named.get(path) or "another session", self.other_sessions.get(path, "")
        return f"{_plain(path)} changed later by {who}, left alone{lines.force(path, gone, session)}"

    def _stays_line(self, path: bytes, lines: _Lines) -> str:
        stay, name = self._plan.stays[path], os.fsdecode(path)
        what = "is not removed" if stay.removal else "does not come back"
        return f"{_plain(name)} {what}: {stay.why}{lines.force(name, False) if stay.force else ''}"

    def _not_captured_lines(self) -> list[str]:
        """Describe what is not captured, except for paths that have a line of their own."""
        return [
            f"{_plain(each)}; it does not come back"
            for each in self.not_captured
            if not each.startswith(_AND_MORE) and not self._is_own(os.fsencode(each.rpartition(" (")[0].rstrip("/")))
        ]

    def _is_own(self, path: bytes) -> bool:
        """Whether a path that stays has a line of its own; one that only came since is merely not captured."""
        stay = self._plan.stays.get(path)
        return stay is not None and not (stay.is_gap and stay.removal)

    @property
    def _is_back(self) -> bool:
        """Whether what was moved aside comes back."""
        return any(step.new is not None and step.new.kind == MOVED for step in self._plan.steps)

    def _repr_html_(self) -> str:
        rows = {each.path: f"{each.action} {each.by}" for each in self.files}
        stays = dict.fromkeys((*self.kept, *self.others, *self.unclear, *self.stays), "kept")
        about = {"turns": self.turns, "prompt": self.prompt, "to": self.to_seq}
        return html.fields(repr(self), {**about, **rows, **stays})


def _texts(paths: tuple[bytes, ...]) -> tuple[str, ...]:
    return tuple(os.fsdecode(path) for path in paths)


class _Lines:
    """How the lines of a plan are made: none of its lists is cut without a word."""

    def __init__(self, overwrite: str, take: str, more: str) -> None:
        self._overwrite, self._take, self._more = overwrite, take, more

    def of(
        self, label: str, lines: list[str], *, mark: str = "! ", most: int = _SHOWN, hidden: int = 0
    ) -> Iterator[str]:
        """Yield the first few lines of a list, and how many more there are."""
        yield from (f"  {label:13} {mark}{each}" for each in lines[:most])
        left = len(lines) - most + hidden if len(lines) > most else hidden
        if left:
            yield f"  {label:13} {mark}{_AND_MORE}{left:,} more{self._more}"

    def force(self, path: str, gone: bool, session: str = "") -> str:
        """Describe how to restore a path all the same; one that was not there is deleted by that."""
        if not self._overwrite:
            return ""
        how = self._overwrite.format(path=path, quoted=shlex.quote(path))
        back = f", {self._take.format(session=session)} all that session changed" if session else ""
        return f" ({words.plain(how)} {'deletes' if gone else 'restores'} it{back})"


def _plain(text: str) -> str:
    return words.plain(text)


def _moved_line(source: str, target: str, *, back: bool) -> str:
    if back:
        return f"{_plain(source)} moves back to {_plain(target)}"
    return f"{_plain(source)} is not captured, so it moves to {_plain(target)}; undo moves it back"


def _as_planned(load: tree.Load, now: bytes, step: Step) -> bool:
    """Whether a path is as the plan found it; what is moved aside was not captured, so nothing else is known of it."""
    found = preview.at(load, now, step.path)
    if step.old is not None and step.old.kind == MOVED:
        return found is not None and found.kind in (tree.GAP, tree.DIR)
    return tree.shown(found) == tree.shown(step.old)


def _in_hex(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return None if value is None else [_in_hex(each) if isinstance(each, bytes) else each for each in value]


def digest_of(*about: Any, steps: tuple[Step, ...]) -> str:
    """Name a plan: two with the same name do the same."""
    return sha256(codec.canonical([*about, [[*map(_in_hex, step)] for step in steps]])).hexdigest()
