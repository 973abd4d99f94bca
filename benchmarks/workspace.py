"""P8: what it costs to keep the files of a project beside the conversation, and to bring them back.

The floor is to ask for the status of every file, in Python as Takeback does it, and to do nothing with it: who is not
told what changed cannot know less. On Linux the system tells Takeback, from the second scan of a process on. Every way
to keep files has a tree of its own with the same files, and the same ten of them change. Nothing is timed before those
changes are older than the time within which git and Takeback would not trust a file's times, and other ways' writes are
on disk before a turn. Every restore is checked byte for byte.
"""

from __future__ import annotations

import os
import random
import shutil
from time import perf_counter, sleep
from typing import Any

import takeback

from . import trees
from .common import Settings, median, say, show_both, show_bytes, show_ratio, show_time, steady
from .peers import snapshots
from .peers.snapshots import Git, Keeper, TunedGit
from .report import NONE, Check, Section, Table

KNOWN_MOST = 0.3
FIRST, NEXT, UNCHANGED = "first snapshot", "next snapshot", "nothing changed"
REWIND, UNDO = "rewind", "undo"
COLD, OPENING = "next snapshot, store just opened", "opening the store"
ENTER, LEAVE = "tool with known paths: entering", "tool with known paths: leaving"
ENTER_ANY, LEAVE_ANY = "tool with unknown paths: entering", "tool with unknown paths: leaving"
_COMMON = (FIRST, NEXT, UNCHANGED, REWIND, UNDO)
_SAME = {
    COLD: NEXT,
    LEAVE: NEXT,
    LEAVE_ANY: NEXT,
    ENTER_ANY: UNCHANGED,
    ENTER: UNCHANGED,
}  # what git does instead
_OURS = (*_COMMON, COLD, ENTER, LEAVE, ENTER_ANY, LEAVE_ANY, OPENING)
_KNOWN = (ENTER, LEAVE)
_MOST = {NEXT: 0.2, REWIND: 0.4, COLD: 0.8}  # of shadow git
_SETTLED = 0.2  # seconds
_pause = _SETTLED
_SLOW_EVERY = 4  # rounds
_JUDGED = 20_000  # files, or more; slow ways are left out then: they take longer in proportion
_MB = 1 << 20


class Takeback(Keeper):
    """This library: a session with a workspace, held all the time."""

    name = "Takeback"
    _session: Any
    _store: Any = None
    _points = 0

    def open(self, capture: Any = "manual") -> None:
        self._store = takeback.open(self.store / "store.db")
        self._session = self._store.session("session", workspace=self.root, capture=capture)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def turn(self) -> None:
        self._session.user("Change ten files.")

    def snapshot(self) -> Any:
        self._points += 1
        return self._session.checkpoint(f"c{self._points}")

    def restore(self, kept: Any) -> None:
        self._session.rewind(kept)

    def undo(self, kept: Any) -> None:
        self._session.undo()

    def warm(self) -> None:
        """Scan twice: an agent at work has its workspace in memory, and is told what changes in it."""
        self.snapshot()
        self.snapshot()

    def reopen(self) -> None:
        """Open the store anew, with nothing in memory."""
        self.close()
        self.time(OPENING, self.open)

    def tool(self, change: trees.Change, *, known: bool) -> None:
        """Run a tool that changes files and says which, or does not."""
        run = self._session.tool("edit", {}, paths=change.paths if known else None)
        self.time(ENTER if known else ENTER_ANY, run.__enter__)
        change.do()
        _settle()
        self.time(LEAVE if known else LEAVE_ANY, _leave, run)
        if self._session.capture_error:
            raise RuntimeError(f"the workspace was not captured: {self._session.capture_error}")


def _leave(run: Any) -> None:
    run.result("done")
    run.__exit__(None, None, None)


class Project:
    """One tree with the way that keeps it."""

    def __init__(self, settings: Settings, kind: type[Keeper], count: int, large: tuple[int, ...]) -> None:
        place = settings.directory("p8", kind.__name__, count)
        self.root = place / "project"
        self._files = trees.build(self.root, count, large, settings.seed)
        self._rng = random.Random(settings.seed)
        self.keeper = kind(self.root, place / "store")
        self.floors: list[float] = []
        self.right = self.checked = self.size = self.growth = 0
        self._base: Any = None
        self._was = trees.fingerprint(self.root)

    def first(self) -> None:
        """Keep everything, in a new store."""
        self.keeper.begin()
        os.sync()
        self._base = self.keeper.time(FIRST, self.keeper.snapshot)

    def measure_size(self) -> None:
        """See what the first snapshot takes on the disk."""
        self.size = self._on_disk()

    def _on_disk(self) -> int:
        closed = isinstance(self.keeper, Takeback)
        self.keeper.close()
        os.sync()
        found = trees.on_disk(self.keeper.store)
        if closed:
            self.keeper.open()
        return found

    def forget_times(self) -> None:
        """Begin to count after a round to warm up."""
        self.floors.clear()
        self.keeper.times = {FIRST: self.keeper.times[FIRST]}

    def round(self) -> None:
        """Change files, keep them, go back, take that back."""
        os.sync()
        keeper = self.keeper
        keeper.warm()
        keeper.turn()
        changed = self._change()
        self.floors.append(trees.look(self.root))
        kept = keeper.time(NEXT, keeper.snapshot)
        keeper.forget(keeper.time(UNCHANGED, keeper.snapshot))
        self._back(REWIND)
        _settle()
        keeper.time(UNDO, keeper.undo, kept)
        self._check(changed)
        self._back()
        keeper.forget(kept)
        if isinstance(keeper, Takeback):
            self._more(keeper)

    def _more(self, keeper: Takeback) -> None:
        """Do what only this library can be asked for."""
        keeper.turn()
        changed = self._change()
        keeper.reopen()
        keeper.time(COLD, keeper.snapshot)
        self._there_and_back(changed)
        keeper.close()
        keeper.open(capture=takeback.Capture("calls"))
        for known in (True, False):
            keeper.turn()
            keeper.tool(trees.change(self.root, self._files, self._rng), known=known)
            self._there_and_back(trees.fingerprint(self.root))
        keeper.close()
        keeper.open()

    def _there_and_back(self, changed: str) -> None:
        """Check that a snapshot has the changes: go back, take that back, go back again."""
        self._back()
        self.keeper.undo(None)
        self._check(changed)
        self._back()

    def _change(self) -> str:
        trees.change(self.root, self._files, self._rng).do()
        changed = trees.fingerprint(self.root)
        _settle()
        return changed

    def _back(self, what: str | None = None) -> None:
        _settle()
        if what is None:
            self.keeper.restore(self._base)
        else:
            self.keeper.time(what, self.keeper.restore, self._base)
        self._check(self._was)
        _settle()

    def _check(self, wanted: str) -> None:
        self.checked += 1
        self.right += trees.fingerprint(self.root) == wanted

    def grow(self, times: int) -> None:
        """See what a snapshot of ten changes adds."""
        before, files = self._on_disk(), list(self._files)
        for _ in range(times):
            change = trees.change(self.root, files, self._rng)
            change.do()
            files.remove(change.deleted)
            _settle()
            self.keeper.snapshot()
        self.growth = (self._on_disk() - before) // times

    def end(self) -> None:
        """Close the store and remove everything."""
        self.keeper.close()
        shutil.rmtree(self.root.parent)


def _settle() -> None:
    """Wait until files are so old that a look need not read them again."""
    sleep(_pause)


def run(settings: Settings) -> Section:
    """Measure projects of several sizes; the large ones are judged."""
    global _pause
    _pause = 0.0 if settings.smoke else _SETTLED
    kinds, missing = snapshots.here()
    for program in missing:
        say(f"p8: there is no {program} on this machine: its rows are left out")
    sizes = settings.sizes((1000, 20_000, 100_000), (200, 1000), (20,))
    large = (_MB, 2 * _MB) if settings.quick else (5 * _MB, 10 * _MB, 20 * _MB, 50 * _MB)
    found, checks = list[Table](), list[Check]()
    for size in sizes:
        here = (Takeback, *(kind for kind in kinds if size < _JUDGED or not kind.slow))
        started, projects = perf_counter(), [Project(settings, kind, size, large) for kind in here]
        say(f"p8: {len(projects)} trees of {size:,} files are ready after {show_time(perf_counter() - started)}")
        total = trees.content(projects[0].root)
        _measure(settings, projects)
        found.append(_table(projects, size, total, missing))
        beside, more = _beside(projects, size, judged=size >= _JUDGED or size == sizes[-1])
        found.append(beside)
        checks += more
        for project in projects:
            project.end()
    return Section("Files: snapshot and rewind", found, checks)


def _measure(settings: Settings, projects: list[Project]) -> None:
    for _ in range(2):
        for project in settings.rng.sample(projects, len(projects)):
            project.first()
    for project in projects:
        project.measure_size()
        project.round()
        project.forget_times()
    with steady():
        for number in range(settings.pick(4, 4)):
            for project in settings.rng.sample(projects, len(projects)):
                if not (project.keeper.slow and number % _SLOW_EVERY):
                    project.round()
    for project in projects:
        project.grow(2 if project.keeper.slow else settings.pick(10, 4))
        say(f"p8: {project.keeper.name}: {project.right} of {project.checked} restores were right")


def _floor(projects: list[Project]) -> float:
    return median([seconds for project in projects for seconds in project.floors])


def _table(projects: list[Project], size: int, total: int, missing: list[str]) -> Table:
    absent = f" Not on this machine, so not measured: {', '.join(missing)}." if missing else ""
    floor = _floor(projects)
    text = (
        f"**{size:,} files, {total / 1e6:,.0f} MB: what does it cost to keep them, and to bring them back?** A few"
        f" large files are among them; {trees.CHANGED} small ones change between two snapshots. Each cell is the median"
        f" time and its ratio to the floor, {show_time(floor)}: the status of every file, nothing done with it. First:"
        " everything, into an empty store. Takeback's snapshot is a checkpoint of the conversation as well and durable"
        " when it returns; the tuned git and the copies sync nothing, and the other git syncs only part of what it"
        " writes. Takeback's rewind looks at what is on disk, plans, keeps a safety snapshot, changes files through a"
        " journal and moves the conversation; the others only bring files back, and their undo is to bring back the"
        f" snapshot before.{absent}"
    )
    table = Table(text, ("way", *_COMMON, "on disk after the first", "growth per snapshot", "restored byte for byte"))
    for project in projects:
        times = {what: median(project.keeper.times[what]) for what in _COMMON}
        cells = [show_both(times[what], times[what] / floor) for what in _COMMON]
        right, must = f"{project.right:,} of {project.checked:,}", {}
        if isinstance(project.keeper, Takeback):
            must = {"must": "every byte", "reached": project.right == project.checked}
        table.add(
            project.keeper.name, *cells, show_bytes(project.size), f"{project.growth / 1000:,.0f} kB", right, **must
        )
        say(f"p8: {size:,} files: {project.keeper.name}: {', '.join(cells)}")
    return table


def _beside(projects: list[Project], size: int, *, judged: bool) -> tuple[Table, list[Check]]:
    """Compare with git, and say what was promised."""
    by_kind = {type(project.keeper): project.keeper.times for project in projects}
    ours, plain, tuned = by_kind[Takeback], by_kind.get(Git, {}), by_kind.get(TunedGit, {})
    floor, checks = _floor(projects), list[Check]()
    text = (
        f"**{size:,} files: and next to git?** The last columns are Takeback's time over that of each git for the same"
        " work; git has no memory between two commands, and no other way when the changed paths are known. In a process"
        " that goes on, the system reports what changes; a store that was just opened compares every file. A tool run"
        " looks at the files before and after it, and stores its start and its result durably."
    )
    text += "" if judged else " The promise is about larger projects; here nothing is judged."
    table = Table(text, ("Takeback", "time (times the floor)", "over shadow git", "over tuned git"))
    for what in (what for what in _OURS if what in ours):
        seconds = median(ours[what])
        ratios = [_over(seconds, git, what) for git in (plain, tuned)]
        cells = (show_both(seconds, seconds / floor), *(NONE if each is None else show_ratio(each) for each in ratios))
        must, reached = _judge(what, seconds / floor, *ratios) if judged else (NONE, None)
        table.add(what, *cells, must=must, reached=reached)
        if reached is not None:
            measured = f"{show_ratio(seconds / floor)} of the floor"
            if what not in _KNOWN:
                measured = f"{cells[2]} of tuned git" if what == FIRST else f"{cells[1]} of shadow git"
            checks.append(Check(f"files: {what}, {size:,} files", measured, must, reached))
    if judged:
        project = next(each for each in projects if isinstance(each.keeper, Takeback))
        exact = f"{project.right:,} of {project.checked:,} restores"
        checks.append(Check("files: byte for byte", exact, "all", project.right == project.checked))
    return table, checks


def _over(seconds: float, git: dict[str, list[float]], what: str) -> float | None:
    times = git.get(_SAME.get(what, what))
    return seconds / median(times) if times else None


def _judge(what: str, floors: float, plain: float | None, tuned: float | None) -> tuple[str, bool | None]:
    if what == FIRST and tuned is not None:
        return "under 1 of tuned git", tuned < 1
    if what in _MOST and plain is not None:
        return f"at most {_MOST[what]:g} of shadow git", plain <= _MOST[what]
    if what in _KNOWN:
        return f"under {KNOWN_MOST:g} of the floor", floors < KNOWN_MOST
    return NONE, None
