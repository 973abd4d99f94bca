"""The workspaces of a store: scanned, and their contents kept.

A ``CapturedDirectory`` is one directory as one scope of a store knows it. It is scanned under a lock, and the result is
recorded in one transaction with what is remembered for the next scan; if contents were swept out meanwhile, everything
is scanned again. New contents are packed and stored by a second thread while the first one reads on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from .. import mounts, presence
from ..errors import Busy, Conflict
from ..model import tree
from ..model.tree import Directory
from ..ops import blobs
from ..storage.base import Tx
from ..storage.runner import ALONE, Reads, Runner
from . import contents as contents
from . import journal, roots, snapshots, timeline
from .candidates import When
from .disk import preview, scan, watch
from .roots import Root
from .snapshots import StoredScan, Swept
from .timeline import DirectoryAt
from .uploads import Upload

if TYPE_CHECKING:
    from .disk.scan import Limits, Scanner, Seen
    from .disk.watch import Watcher

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_TRIES = 5
_CACHED = 20_000
GONE_WITH_PARENT = "it is gone, and so is the directory that contained it"
Commit = Callable[[Tx, str, int], T]  # takes the root of what is in the workspace, and the time of the commit


class Recording(Protocol[T_co]):
    """Whoever records scans: for a session, or for none."""

    @property
    def scope(self) -> str: ...
    def known(self, tx: Tx, place: DirectoryAt, root: str) -> T_co | None: ...
    def commit(self, tx: Tx, taken: StoredScan) -> T_co: ...


class Who(NamedTuple):
    """Whom a session says that changes are to be attributed to, and the calls that were open.

    ``until_ms`` bounds how long calls that were cut off were certainly at work, to the moment if ``exact``.
    """

    kind: str | None = None
    calls: tuple[str, ...] = ()
    until_ms: int | None = None
    exact: bool = False


class _Standing(NamedTuple):
    """How often contents were swept out, and the last scan of a workspace."""

    sweeps: int
    tip: int
    root: str


class Trees:
    """The trees of a store, each read once; ``extra`` are those of a scan that is not kept."""

    def __init__(self, runner: Reads[Any]) -> None:
        self._runner = runner
        self._known: dict[bytes, Directory] = {}
        self.extra: dict[bytes, bytes] = {}

    def at(self, moment: Reads[Any]) -> Trees:
        """Return these trees as one transaction reads them; what it reads is known here too."""
        found = Trees(moment)
        found._known, found.extra = self._known, self.extra
        return found

    def load(self, digest: bytes) -> Directory:
        """Return a directory by its digest; raises ``Corrupt`` if it is missing."""
        found = self._known.get(digest)
        if found is None:
            if len(self._known) > _CACHED:
                self._known.clear()
            found = self._known[digest] = self._read(digest)
        return found

    def _read(self, digest: bytes) -> Directory:
        if digest == tree.EMPTY:
            return {}
        data = self.extra.get(digest)
        if data is None:
            data = self._runner.read(blobs.read_whole, self._runner.scope, digest.hex())
        return roots.directory(data, digest)

    def root(self, content_hash: str) -> Root:
        """Return a root; raises ``Corrupt`` if it is missing, and never returns an empty one instead."""
        return self._runner.read(roots.read, self._runner.scope, content_hash)

    def content(self, digest: bytes) -> Iterator[bytes]:
        """Yield a file's content in pieces."""
        return contents.open_linked(self._runner, digest.hex())


class Discard:
    """Keeps nothing but trees, in memory: for a scan that changes nothing."""

    def __init__(self, trees: Trees) -> None:
        self._trees = trees

    def has(self, digest: bytes) -> bool:
        return True

    def put(self, digest: bytes, data: bytes) -> None:
        self._trees.extra[digest] = data

    def stream(self, pieces: Iterable[bytes]) -> bytes:
        raise AssertionError("large content is said to be kept")


class _Kept(NamedTuple):
    root: str
    value: Root
    last: list[blobs.Packed]  # contents that are not yet stored


class CapturedDirectory:
    """A workspace of a store."""

    def __init__(self, runner: Runner, path: str, limits: Limits, rules: tuple[str, ...]) -> None:
        self.path = path
        self._runner = runner
        self._lock = threading.RLock()
        self._made = limits, rules
        self._scanner: Scanner | None = None
        self._sweeps = 0
        self._marked = False  # it is recorded that all contents existed at this sweep count
        self._mode = self._known_mode = b""  # of the directory itself, and as it is recorded
        self._gone: tuple[tuple[bytes, None], ...] = ()  # what to forget, as the whole directory is gone
        self.last = ""  # the root recorded last
        self._dead: frozenset[tuple[object, ...]] = frozenset()  # processes known to be gone
        self.trees = Trees(runner)
        self.name = name_of(path)
        self._place = timeline.at(path)
        self.memory = f"{_rules_of(limits, rules)}{self.name}"  # other rules share nothing remembered

    def record(
        self,
        paths: Iterable[bytes] | None,
        recorder: Recording[T],
        *,
        who: Callable[[], Who] = Who,
    ) -> tuple[T, Root]:
        """Scan, keep what is new, and record it in one transaction with what is remembered.

        Writes nothing if this root is known to be recorded already. If somebody else recorded a scan meanwhile,
        everything is scanned again, so that what they saw is never taken for a change back.
        """
        with self._lock:
            paths = None if paths is None else [*paths]
            before = who()  # after waiting for the lock, since calls may have started meanwhile
            for _ in range(_TRIES):
                base = self._standing()
                # Others have recorded what this process has not seen: what is remembered of other paths is stale.
                some = paths if base.root == self.last else None
                kept = self._kept(some)
                if kept.root == base.root and (found := self._runner.read(recorder.known, self._place, kept.root)):
                    self.last = kept.root
                    return found, kept.value
                try:
                    done = self._commit(kept, recorder, base.tip, _either(before, who()), whole=some is None)
                    return done, kept.value
                except Swept:
                    self._scanner, paths = None, None
                except timeline.Behind as behind:  # the last contents and notes were not stored with it
                    self._scanner, paths, self._dead = None, None, self._dead | behind.gone
                except BaseException:
                    self._scanner = None  # its notes were not stored
                    raise
            raise Busy("other processes scan this workspace all the time; try again")

    def _kept(self, paths: list[bytes] | None) -> _Kept:
        """Scan, and store the new contents, except for the last batch."""
        workspace, upload = self._loaded(), Upload(self._runner)
        try:
            if is_gone(self.path):
                # A good scan of nothing: whoever was at work deleted everything, the directory included.
                self._gone = tuple((os.fsencode(path), None) for path in workspace.folders)
                workspace.close()
                self._scanner, root = None, _NOTHING
                upload.put(tree.EMPTY, tree.encode({}))
            else:
                root = _root(workspace.scan(upload, paths))
                self._mode = b"%o" % (os.stat(self.path).st_mode & tree.PERMISSIONS)
            data = roots.encode(root)
            name = tree.digest(data).hex()
            if name != self.last:
                upload.put(tree.digest(data), data)
            return _Kept(name, root, upload.finish())
        except BaseException:
            self._scanner = None
            raise
        finally:
            upload.stop()

    def _commit(self, kept: _Kept, recorder: Recording[T], base: int, who: Who, *, whole: bool) -> T:
        """Store the last batch and record the scan in one transaction."""
        taken = StoredScan(kept.root, self._sweeps, self._place, base, *who, self.memory, self._notes())
        taken = taken._replace(when=self.when, gone=self._dead, whole=whole)
        done = self._runner.write(_record, recorder, taken, kept.last, self._runner.clock.now_ms())
        self.last = kept.root
        return done

    def glance(self) -> Root:
        """Scan without keeping anything; ``trees`` can read the trees of this scan."""
        with self._lock:
            if is_gone(self.path):
                return _NOTHING
            scanner = self._loaded().copied()
            return _root(scanner.scan(Discard(self.trees)))  # everything: a copy is told nothing by the system

    def expect(self, paths: Mapping[bytes, tree.Node | None]) -> None:
        """Let restored paths count as captured, whatever the rules say; None means read them again.

        If they are not restored after all, call ``forget``.
        """
        with self._lock:
            self._loaded().expect(paths)

    def finish(self, paths: list[bytes], commit: Commit[T]) -> T:
        """Scan the paths that were changed, and run ``commit`` alone with the root of what is there now."""
        with self._lock:
            kept = self._kept(paths)
            taken = StoredScan(kept.root, self._sweeps, self._place, memory=self.memory, seen=self._notes())
            try:
                done = self._runner.write_as(
                    ALONE, _finish, self._runner.scope, taken, kept.last, commit, now_ms=self._runner.clock.now_ms()
                )
            except BaseException:
                self._scanner = None
                raise
            self.last = kept.root
            return done

    def mode(self) -> int | None:
        """Return the mode that the directory itself had in the last scan; None if that is not known."""
        with self._lock:
            self._loaded()
            return int(self._mode, 8) if self._mode else None

    def watcher(self) -> Watcher | None:
        """Return a watcher for somebody who waits for changes; None if the system does not report them all here."""
        with self._lock:
            if not self._loaded().can_watch:
                return None
        try:
            return watch.Watcher()
        except OSError:
            return None

    def watch_with(self, watcher: Watcher) -> bool:
        """Let a watcher report on the directories that the last scan went through; whether some are new to it."""
        with self._lock:
            new = [each for each in self._loaded().folders if not watcher.knows(each)]
        for each in new:
            try:
                descriptor = os.open(os.path.join(self.path, each), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            except OSError:
                continue  # gone meanwhile
            try:
                watcher.add(each, descriptor)
            finally:
                os.close(descriptor)
        return bool(new)

    def close(self) -> None:
        """Stop watching."""
        with self._lock:
            if self._scanner is not None:
                self._scanner.close()

    def forget(self) -> None:
        """Forget what is remembered but not stored."""
        with self._lock:
            self._scanner = None

    def _loaded(self) -> Scanner:
        """Return the scanner with what is remembered; nothing that was swept out meanwhile is relied on."""
        scope, sweeps = self._runner.scope, self._standing().sweeps
        if self._scanner is None or sweeps != self._sweeps:
            self._sweeps, self.last, workspace = sweeps, "", self._new()
            notes = self._runner.read(snapshots.remembered, scope, self.memory)
            self._marked = notes.pop(snapshots.MARK, None) == snapshots.mark(sweeps)
            self._mode = self._known_mode = notes.pop(snapshots.MODE, b"")
            for path, doc in notes.items():
                workspace.remember(path, doc)
            if not self._marked and not self._all_there(workspace):
                workspace.distrust()
            self._scanner = workspace
        return self._scanner

    def _standing(self) -> _Standing:
        return self._runner.read(_standing, self._runner.scope, self._place)

    def when(self, path: bytes) -> When | None:
        """Return when a path was last changed, as far as the system tells.

        It came to be what it is when it was changed itself, or when a directory above it was moved; what was deleted,
        at the latest when its directory was last changed.
        """
        root = os.fsencode(self.path)
        own = _changed_at(os.path.join(root, path))
        above = [_changed_at(os.path.join(root, each)) for each in preview.above_all(path)]
        times = [each for each in (*above, own) if each is not None]
        latest = max(times) if times else _changed_at(root)
        return None if latest is None else When(own or 0, latest)

    def _notes(self) -> tuple[tuple[bytes, bytes | None], ...]:
        """Return what the last scan has to record for the next one."""
        notes: tuple[tuple[bytes, bytes | None], ...]
        notes = self._gone if self._scanner is None else tuple(self._scanner.taken_note())
        if not self._marked:
            notes = (*notes, (snapshots.MARK, snapshots.mark(self._sweeps)))
        if self._mode != self._known_mode:
            notes = (*notes, (snapshots.MODE, self._mode))
        self._marked, self._known_mode = True, self._mode
        return notes

    def _all_there(self, scanner: Scanner) -> bool:
        """Whether all contents that the scanner relies on exist."""
        scope, wanted = self._runner.scope, {*scanner.digests()}
        return self._runner.read(blobs.all_exist, scope, [each.hex() for each in wanted])

    def _new(self) -> Scanner:
        limits, rules = self._made
        return scan.Scanner(self.path, limits=limits, more_rules=rules, not_here=_own_files(self._runner, self.path))


def _record(tx: Tx, recorder: Recording[T], taken: StoredScan, last: list[blobs.Packed], now_ms: int) -> T:
    blobs.put_many(tx, recorder.scope, last, now_ms=now_ms)
    return recorder.commit(tx, taken)


def _finish(tx: Tx, scope: str, taken: StoredScan, last: list[blobs.Packed], commit: Commit[T], *, now_ms: int) -> T:
    if snapshots.sweeps(tx, scope) != taken.sweeps:
        raise Conflict("contents were swept out of the store meanwhile; try again")
    blobs.put_many(tx, scope, last, now_ms=now_ms)
    snapshots.remember(tx, scope, taken.memory, taken.seen)
    return commit(tx, taken.root, now_ms)


def _standing(tx: Tx, scope: str, place: timeline.DirectoryAt) -> _Standing:
    found = timeline.find(tx, scope, place)
    tip, root = (0, "") if found is None else (found.tip, found.root)
    return _Standing(snapshots.sweeps(tx, scope), tip, root)


_NOTHING = Root(tree.EMPTY, 0, [], 0)


def _root(seen: Seen) -> Root:
    return Root(seen.root, seen.size, [*seen.missed], seen.missed_count)


def _either(before: Who, after: Who) -> Who:
    """Join who was at work before and after a scan: a call that began meanwhile may have made the changes."""
    calls = tuple(dict.fromkeys((*before.calls, *after.calls)))
    return Who(None, calls, before.until_ms, before.exact) if calls else before


def _changed_at(path: bytes) -> int | None:
    """Return when what is at a path was last changed, in milliseconds; None if nothing is there."""
    try:
        return os.lstat(path).st_ctime_ns // 1_000_000
    except OSError:
        return None


def _rules_of(limits: Limits, rules: tuple[str, ...]) -> str:
    """Name rules and limits that are not the default ones."""
    usual = limits == scan.Limits() and not rules
    return "" if usual else f"{tree.digest(repr((limits, rules)).encode()).hex()[:12]}@"


def name_of(path: str) -> str:
    """Name a workspace so that those of two machines are kept apart."""
    return f"{presence.host()}:{path}"


def _own_files(runner: Runner, root: str) -> list[str]:
    """Return the store's own files in a workspace: opening and closing one here would drop the store's locks."""
    file = runner.backend.capabilities.file
    return [os.path.relpath(file, root)] if file and os.path.commonpath((file, root)) == root else []


def is_gone(path: str) -> bool:
    """Whether nothing is at the path of a workspace: its files are all deleted."""
    return not os.path.lexists(path)


def why_not(path: str, runner: Reads[Any] | None = None) -> str | None:
    """Return why a directory is not captured; None if it can be.

    One that is gone can be if a store, read by ``runner``, knows it: then all its files were deleted.
    """
    if os.name != "posix":
        return "workspaces need a POSIX system"
    if is_gone(path):
        return "it is not a directory here" if runner is None else runner.read(_why_not_gone, runner.scope, path)
    if not os.path.isdir(path):
        return "it is not a directory"
    real = os.path.realpath(path)
    if real == "/":
        return "it is the whole file system"
    return "it is a home directory" if mounts.is_home(real) else None


def _why_not_gone(tx: Tx, scope: str, path: str) -> str | None:
    if not _standing(tx, scope, timeline.at(path)).root:
        return "it is not a directory here"
    if not os.path.isdir(os.path.dirname(path)):
        return GONE_WITH_PARENT
    left = journal.find(tx, scope, name_of(path))
    if left is not None and left.steps:  # what is half done is wherever the directory is now
        return "it is gone, and a change to its files was interrupted: move it back, or make an empty directory there"
    return None
