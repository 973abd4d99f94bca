"""Scanning a workspace: what every directory holds, read again only where something changed.

A ``Scanner`` remembers size, times, inode and mode of everything it saw. A file with the same ones is not read again,
unless it changed so shortly before it was read that the clock could not tell a second change apart. A directory is
opened inside its parent and never through a link; only regular files are opened, and never in a way that could block.
What is not captured becomes a gap with its reason. New content goes to a ``Keep``, and so does the tree of each changed
directory, so whoever has the root's digest has everything.
"""

from __future__ import annotations

import copy
import errno
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ... import mounts
from ...errors import Unsupported
from ...model import tree
from ...model.tree import DIR, FILE, GAP, LINK, Node
from . import cache, gaps, ignore, read, unchanged
from . import paths as paths_
from .cache import A_DIRECTORY, Folder, Known, Stat
from .ignore import IgnoreRules
from .unchanged import Name

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from .read import Keep

_REPOSITORY = "a repository's own records"
_TICK, _COARSE_TICK = 100_000_000, 2_100_000_000  # ns within which a file system may stamp two changes alike
_SHOWN = 50
# File systems known to change a directory's own times whenever a name comes or goes.
_TELLING = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "overlay", "zfs"})
_Inner = tuple[str, Known | None]  # a directory to scan, and what was known of it


class Limits(NamedTuple):
    """What is too large to be captured, in bytes."""

    file: int = 100 << 20
    total: int = 4 << 30


class Seen(NamedTuple):
    """The result of a scan: the digest of the tree, and what was not captured (the first few, and how many)."""

    root: bytes
    missed: tuple[tuple[bytes, str], ...]
    missed_count: int
    size: int


class Scanner:
    """A directory that is scanned again and again. Not safe for two threads at once."""

    def __init__(
        self,
        path: str,
        *,
        limits: Limits | None = None,
        more_rules: Iterable[str] = (),
        not_here: Iterable[str] = (),
    ) -> None:
        self.path = path
        self.limits = limits or Limits()
        self._base = ignore.given(tuple(more_rules))
        self._not_here = tuple(not_here)  # files in it that are never opened, nor their side files: NAME-...
        self.folders: dict[str, Folder] = {}  # by path: '' is the root, others end in a slash
        self.changed: set[str] = set()  # folders that changed since the last ``taken_note``
        self._whole = False  # everything was scanned once: directories remembered by others may not fit together
        self._helper: ThreadPoolExecutor | None = None
        self._times_tell = mounts.kind_of(path) in _TELLING
        self._full = False  # something was left out because the whole is too large
        self._device = 0
        self._total = 0
        self._start = 0

    # ------------------------------------------------------------------ scanning

    def scan(self, keep: Keep, paths: Iterable[bytes] | None = None) -> Seen:
        """Scan everything, or only some paths and what is below them; return the tree as it is now."""
        self._start = time.time_ns()
        descriptor = self._open()
        paths = None if paths is None else [*paths]
        # A second thread helps to read, hash and compress. If two threads only call stat they fight over the
        # interpreter's lock: 1.8 times the time of one.
        self._helper = helper = None
        if not self.folders:
            from concurrent.futures import ThreadPoolExecutor  # slow to import, and only a first scan needs it

            self._helper = helper = ThreadPoolExecutor(1)
        try:
            self._device = os.fstat(descriptor).st_dev
            self._total = sum(folder.size for folder in self.folders.values())
            if paths is None or not self._whole or paths_.names_rules(paths):
                self._whole = True
                self._scan_everything(descriptor, keep)
            else:
                self._scan_paths(descriptor, paths, keep)
            self._require_bounded()
        except OSError as error:
            raise _not_scanned(self.path, error) from error
        finally:
            if helper is not None:
                helper.shutdown()
            os.close(descriptor)
        return self.seen()

    def _scan_everything(self, descriptor: int, keep: Keep) -> None:
        """Scan everything; twice if files were left out for lack of room that others freed meanwhile."""
        rules = self._root_rules(descriptor)
        self._full = False
        self._scan_directory(descriptor, "", rules, keep, 0)
        room = sum(folder.size for folder in self.folders.values())
        if self._full and room < self._total:
            self._total = room
            self._scan_directory(descriptor, "", rules, keep, 0)

    def _require_bounded(self) -> None:
        """Refuse a workspace with more paths than a rewind can handle."""
        paths = sum(len(folder.leaves) + len(folder.others) for folder in self.folders.values())
        if paths > tree.MOST_PATHS:
            raise OSError(errno.EFBIG, f"it holds more than {tree.MOST_PATHS:,} paths")

    def seen(self) -> Seen:
        """Return the tree of the last scan."""
        missed = sorted(self._missed())
        size = sum(folder.size for folder in self.folders.values())
        return Seen(self.folders[""].digest, tuple(missed[:_SHOWN]), len(missed), size)

    def _missed(self) -> Iterator[tuple[bytes, str]]:
        for path, folder in self.folders.items():
            for name, (_, node) in folder.others.items():
                if node.kind == GAP:
                    place = os.fsencode(path + name + ("/" if node.mode else ""))
                    yield place, node.content.decode("utf-8", "replace")

    def _open(self) -> int:
        try:
            return os.open(self.path, read.DIRECTORY)
        except OSError as error:
            raise _not_scanned(self.path, error) from error

    def _root_rules(self, descriptor: int) -> IgnoreRules:
        inside = paths_.open_below(descriptor, ".git/info/")
        if inside is None:
            return self._base
        try:
            lines = read.lines(inside, "exclude")
        finally:
            os.close(inside)
        return self._base.with_lines("", lines) if lines else self._base

    def _rules(self, descriptor: int, path: str, above: IgnoreRules, names: Iterable[str]) -> IgnoreRules:
        for name in ignore.FILES:
            if name in names and (lines := read.lines(descriptor, name)):
                above = above.with_lines(path, lines)
        return above

    def _scan_directory(self, descriptor: int, path: str, above: IgnoreRules, keep: Keep, depth: int) -> bytes:
        """Scan a directory and everything below it; return its digest."""
        folder = self.folders.get(path)
        if folder is None:
            folder = self.folders[path] = Folder()
            self.changed.add(path)
        own = unchanged.key_of(os.fstat(descriptor))
        gone, rest = (unchanged.asked if folder.listed == own else unchanged.listed)(descriptor, folder)
        _require_few(len(rest))  # before they are read: in a first scan these are all of them
        folder.listed = None  # not trusted again until the scan of this directory is complete
        rules = self._rules_in(descriptor, path, above, folder, rest)
        found = self._rest(descriptor, path, rest, folder, rules, keep, depth)
        folder.rules = rules.digest
        if gone or found != folder.others or not folder.digest:
            again = {*gone, *folder.others, *(name for name, _ in rest)}
            now = {name: known for name, known in folder.names.items() if name not in again}
            self._settle(path, folder, now | found, keep)
        folder.listed = self._trusted(own) if self._times_tell else None
        return folder.digest

    def _rules_in(
        self, descriptor: int, path: str, above: IgnoreRules, folder: Folder, rest: list[Name]
    ) -> IgnoreRules:
        names = [name for name in ignore.FILES if name in folder.leaves or any(each == name for each, _ in rest)]
        return self._rules(descriptor, path, above, names) if names else above

    def _rest(
        self,
        descriptor: int,
        path: str,
        rest: list[Name],
        folder: Folder,
        rules: IgnoreRules,
        keep: Keep,
        depth: int,
    ) -> dict[str, Known]:
        """Scan the names of a directory that are new, changed, or directories themselves."""
        found, same = dict[str, Known](), rules.digest == folder.rules
        inner = deque[_Inner]()
        for name, is_dir in rest:
            known = folder.others.get(name) or (folder.names.get(name) if name in folder.leaves else None)
            if known is not None and known[1].kind == GAP:
                if same and known[0] is None and bool(known[1].mode) == is_dir:
                    found[name] = known
                    continue
                known = None
            if is_dir:
                inner.append((name, known))
                continue
            scanned = self._changed(descriptor, path, name, known, rules, keep)
            if scanned is not None:
                found[name] = scanned
        if inner:
            self._together(inner, found, lambda each: self._directory(descriptor, path, *each, rules, keep, depth))
        return found

    def _together(self, inner: deque[_Inner], found: dict[str, Known], scan: Callable[[_Inner], Known | None]) -> None:
        """Scan directories, with a second thread as soon as a directory holds more than one."""

        def work() -> None:
            while inner:
                try:
                    each = inner.popleft()
                except IndexError:
                    return  # the other thread took it
                scanned = scan(each)
                if scanned is not None:
                    found[each[0]] = scanned

        helper, other = self._helper, None
        if helper is not None and len(inner) > 1:
            self._helper = None  # before it starts: the helper itself must not wait for a helper
            other = helper.submit(work)
        try:
            work()
        finally:
            if other is not None:
                # After a failure here the helper must find nothing more to do.
                inner.clear()
                other.result()
                self._helper = helper

    def _changed(
        self, descriptor: int, path: str, name: str, known: Known | None, rules: IgnoreRules, keep: Keep
    ) -> Known | None:
        try:
            key = unchanged.key_of(os.stat(name, dir_fd=descriptor, follow_symlinks=False))
        except OSError:
            return None  # gone meanwhile
        return self._leaf(descriptor, path, name, key, known, rules, keep)

    def _settle(self, path: str, folder: Folder, now: dict[str, Known], keep: Keep) -> bytes:
        """Take over what a directory holds now; a changed one gets a new tree."""
        before = folder.names
        if now != before or not folder.digest:
            for name, (_, node) in before.items():
                if node.kind == DIR and (name not in now or now[name][1].kind != DIR):
                    self._forget(f"{path}{name}/")
            folder.take(now)
            self.changed.add(path)
            shown = {os.fsencode(name): node for name, (_, node) in now.items()}
            data = tree.encode(shown)
            _require_few(len(shown), len(data))
            digest = tree.digest(data)
            if digest != folder.digest:
                folder.digest = digest
                keep.put(digest, data)
        return folder.digest

    def _forget(self, path: str) -> None:
        """Forget a directory that is gone, and everything below it."""
        for each in [each for each in [*self.folders] if each.startswith(path)]:
            self.folders.pop(each, None)
            self.changed.add(each)

    def _directory(
        self, above: int, path: str, name: str, known: Known | None, rules: IgnoreRules, keep: Keep, depth: int
    ) -> Known | None:
        if ignore.is_ours(name):
            return None
        place = f"{path}{name}/"
        if ignore.is_repository(name):
            return gaps.gap(_REPOSITORY, is_dir=True)
        if (known is None or known[1].kind != DIR) and rules.ignores(place[:-1], name, is_dir=True):
            return gaps.gap("ignored", is_dir=True)
        if depth >= tree.DEEPEST:
            return gaps.gap(f"deeper than {tree.DEEPEST} directories", is_dir=True, again=True)
        try:
            descriptor = os.open(name, read.DIRECTORY, dir_fd=above)
        except OSError as error:
            return gaps.unless_gone(error, is_dir=True)
        try:
            own = os.fstat(descriptor)
            if own.st_dev != self._device:
                return gaps.gap("another file system", is_dir=True, again=True)
            digest = self._scan_directory(descriptor, place, rules, keep, depth + 1)
        except OSError as error:
            self._forget(place)
            return gaps.unless_gone(error, is_dir=True)
        finally:
            os.close(descriptor)
        return A_DIRECTORY, Node(DIR, stat.S_IMODE(own.st_mode) & 0o777, 0, digest)

    def _leaf(
        self, above: int, path: str, name: str, key: Stat, known: Known | None, rules: IgnoreRules, keep: Keep
    ) -> Known | None:
        """Scan a name that is not a directory and has changed."""
        if ignore.is_ours(name):
            return None
        if any(path + name == own or (path + name).startswith(f"{own}-") for own in self._not_here):
            return gaps.gap("the store itself")
        if ignore.is_repository(name):
            return gaps.gap(_REPOSITORY)
        captured = known is not None and known[1].kind in (FILE, LINK)
        if not captured and rules.ignores(path + name, name, is_dir=False):
            return gaps.gap("ignored")
        try:
            if stat.S_ISLNK(key[4]):
                target = os.fsencode(os.readlink(name, dir_fd=above))
                return self._trusted(key), Node(LINK, 0, len(target), target)
            if not stat.S_ISREG(key[4]):
                return gaps.gap(gaps.what(key[4]), again=True)
            return self._file(above, name, key, known, keep)
        except OSError as error:
            return gaps.unless_gone(error)
        except Unsupported:  # closing it would drop the locks of a store that this process has open
            return gaps.gap("a store that is open", again=True)

    def _file(self, above: int, name: str, key: Stat, known: Known | None, keep: Keep) -> Known:
        size = key[0]
        if size > self.limits.file:
            return gaps.gap(f"larger than {gaps.size(self.limits.file)}", again=True)
        more = size - (known[1].size if known is not None and known[1].kind == FILE else 0)
        if self._total + more > self.limits.total:
            self._full = True
            return gaps.gap(f"the workspace is larger than {gaps.size(self.limits.total)}", again=True)
        self._total += more
        descriptor = os.open(name, read.OPEN, dir_fd=above)
        try:
            before = unchanged.key_of(os.fstat(descriptor))
            if not stat.S_ISREG(before[4]):
                return gaps.gap(gaps.what(before[4]), again=True)
            digest, length = read.content(descriptor, before[0], keep)
            after = unchanged.key_of(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        # What changed while it was read is kept as read, but not trusted: the next scan reads it again.
        settled = before == after and length == after[0]
        return self._trusted(after) if settled else None, Node(FILE, after[4] & 0o777, length, digest)

    def _trusted(self, key: Stat) -> Stat | None:
        """Return what distinguishes this content from a later one, unless a change right now could look the same."""
        tick = _COARSE_TICK if key[2] % 1_000_000_000 == 0 else _TICK
        return key if key[2] < self._start - tick else None

    # ------------------------------------------------------------------ some paths only

    def _scan_paths(self, root: int, paths: Iterable[bytes], keep: Keep) -> None:
        """Scan some paths; directories that are not known yet are scanned completely."""
        by_folder: dict[str, set[str]] = {}
        for path in paths:
            folder, name = self._known_part(os.fsdecode(path))
            by_folder.setdefault(folder, set()).add(name)
        for place in sorted(by_folder, key=len, reverse=True):  # deepest first: those above take their digests
            self._refresh(root, place, by_folder[place], keep)
        touched = {above for place in by_folder for above in paths_.above(place)}
        for place in sorted(touched, key=len, reverse=True):
            if place in self.folders:
                self._take_up(place, keep)

    def _known_part(self, path: str) -> tuple[str, str]:
        """Return the deepest known directory on the way to a path, and the next name on that way."""
        names, folder = paths_.relative(path).split("/"), ""
        for name in names[:-1]:
            if f"{folder}{name}/" not in self.folders:
                return folder, name
            folder = f"{folder}{name}/"
        return folder, names[-1]

    def _refresh(self, root: int, path: str, names: set[str], keep: Keep) -> None:
        """Scan some names of a known directory again."""
        folder = self.folders.get(path)
        descriptor = paths_.open_below(root, path)
        if folder is None or descriptor is None:
            return  # gone meanwhile; the scan of the directory above notices
        try:
            rules, now = self._rules_at(root, path), dict(folder.names)
            for name in names:
                scanned = self._one(descriptor, path, name, folder.names.get(name), rules, keep)
                if scanned is None:
                    now.pop(name, None)
                else:
                    now[name] = scanned
            self._settle(path, folder, now, keep)
        finally:
            os.close(descriptor)

    def _one(
        self, above: int, path: str, name: str, known: Known | None, rules: IgnoreRules, keep: Keep
    ) -> Known | None:
        try:
            found = os.stat(name, dir_fd=above, follow_symlinks=False)
        except OSError:
            return None
        if stat.S_ISDIR(found.st_mode):
            return self._directory(above, path, name, known, rules, keep, path.count("/"))
        key = unchanged.key_of(found)
        if known is not None and known[0] == key:
            return known
        return self._leaf(above, path, name, key, known, rules, keep)

    def _rules_at(self, root: int, path: str) -> IgnoreRules:
        rules, folder = self._root_rules(root), ""
        for name in ["", *path.split("/")[:-1]]:
            folder = f"{folder}{name}/" if name else ""
            descriptor = paths_.open_below(root, folder)
            known = self.folders.get(folder)
            if descriptor is None or known is None:
                break
            try:
                rules = self._rules(descriptor, folder, rules, known.names)
            finally:
                os.close(descriptor)
        return rules

    def _take_up(self, path: str, keep: Keep) -> None:
        """Update a directory with the current digests of those in it."""
        folder = self.folders[path]
        now = dict(folder.names)
        for name, (key, node) in folder.names.items():
            below = self.folders.get(f"{path}{name}/") if node.kind == DIR else None
            if below is not None and below.digest != node.content:
                now[name] = key, node._replace(content=below.digest)
        self._settle(path, folder, now, keep)

    # ------------------------------------------------------------------ between two scans

    def taken_note(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the directories that changed since the last call, encoded; None for one that is gone."""
        changed, self.changed = self.changed, set()
        for path in changed:
            folder = self.folders.get(path)
            yield os.fsencode(path), None if folder is None else cache.dump(folder)

    def remember(self, path: bytes, doc: bytes) -> None:
        """Take over a directory that an earlier process scanned; if it cannot be decoded, scan everything again."""
        try:
            folder = self.folders[os.fsdecode(path)] = cache.load(doc)
        except msgspec.MsgspecError:
            self.folders.clear()
            return
        if not self._times_tell:
            folder.listed = None

    def digests(self) -> Iterator[bytes]:
        """Yield the digests of everything assumed to be stored: contents and trees."""
        for folder in self.folders.values():
            yield folder.digest
            yield from (node.content for _, node in folder.names.values() if node.kind == FILE)

    def copied(self) -> Scanner:
        """Return a copy to scan with: what it finds is not remembered here."""
        other = copy.copy(self)
        other.folders = {path: copy.copy(folder) for path, folder in self.folders.items()}
        other.changed = set()
        return other

    def expect(self, paths: Mapping[bytes, Node | None]) -> None:
        """Let restored paths count as captured: rules leave out only what is new.

        Without a node they are only read again, for changes that size and times do not show, as with ``mmap``.
        """
        for path, node in paths.items():
            folder, _, name = os.fsdecode(path).rpartition("/")
            known = self.folders.get(f"{folder}/" if folder else "")
            if known is None or (node is None and name not in known.names):
                continue
            known.take({**known.names, name: (_NEVER, node or known.names[name][1])})
            self.changed.add(f"{folder}/" if folder else "")


def _require_few(names: int, size: int = 0) -> None:
    """Refuse a directory whose record could not be read back; inside another one it becomes a gap."""
    if names > tree.MOST_NAMES or size > tree.LARGEST:
        raise OSError(errno.EFBIG, f"a directory holds more than {tree.MOST_NAMES:,} names, or too long ones")


def _not_scanned(path: str, error: OSError) -> Unsupported:
    return Unsupported(f"the workspace {path!r} cannot be scanned: {error.strerror}", capability="workspace")


_NEVER = (-2, 0, 0, 0, 0)  # matches no status: always read again
