"""Scanning a workspace: what every directory holds, read again only where something changed.

A ``Scanner`` remembers size, times, inode and mode of everything it saw. A file with the same ones is not read again,
unless it changed so shortly before it was read that the clock could not tell a second change apart. A directory is
opened inside its parent and never through a link; only regular files are opened, and never in a way that could block.
What is not captured becomes a gap with its reason. New content goes to a ``Keep``, and so does the tree of each changed
directory, so whoever has the root's digest has everything.

From the second scan on, Linux reports what changes (``watch``), and only that is scanned. A process that scans once,
as a hook does, pays nothing for it.
"""

from __future__ import annotations

import copy
import errno
import os
import stat
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ... import mounts
from ...errors import Unsupported
from ...model import tree
from ...model.tree import DIR, FILE, GAP, Node
from . import cache, gaps, helper, ignore, leaves, read, rules, unchanged, watch
from . import paths as paths_
from .cache import A_DIRECTORY, Folder, Known
from .leaves import Limits as Limits
from .unchanged import Name

if TYPE_CHECKING:
    from .helper import Helper
    from .ignore import IgnoreRules
    from .read import Keep
    from .watch import Watcher

_SHOWN = 50
# Local file systems known to change a directory's own times whenever a name comes or goes.
_TELLING = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "overlay", "zfs"})
_Inner = tuple[str, Known | None]  # a directory to scan, and what was known of it


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
        self._rules = rules.RuleBook(path, more_rules)
        self._leaves = leaves.Leaves(limits or Limits(), not_here)
        self.folders: dict[str, Folder] = {}  # by path: '' is the root, others end in a slash
        self.changed: set[str] = set()  # folders that changed since the last ``taken_note``
        self._whole = False  # everything was scanned once: directories remembered by others may not fit together
        self._helper: Helper | None = None
        self._times_tell = mounts.kind_of(path) in _TELLING
        self._device = 0
        self._expected: set[str] = set()  # paths that count as captured in the next scan
        self._modes: dict[str, int] = {}  # of the directories that a scan of some paths went through
        self._due: set[str] = set()  # paths that the next scan must not pass over
        # Files with several names, and their inodes: a change through one name is not reported at the others.
        self._linked: dict[str, int] = {}
        self._relinked = False
        self._watcher: Watcher | None = None
        self.can_watch = self._watches = self._times_tell and sys.platform == "linux"
        self._basis: tuple[int, bytes] = 0, b""  # the root's inode and the rules that reports cannot tell about

    # ------------------------------------------------------------------ scanning

    def scan(self, keep: Keep, paths: Iterable[bytes] | None = None) -> Seen:
        """Scan the workspace, or only some paths and what is below them; return the tree as it is now.

        What the system reports as unchanged is passed over.
        """
        descriptor = self._open()
        self._leaves.begin(sum(folder.size for folder in self.folders.values()))
        try:
            self._device = os.fstat(descriptor).st_dev
            due = self._reported(descriptor) if paths is None else None
            if paths is not None and self._whole and not paths_.names_rules(paths := [*paths]):
                self._scan_paths(descriptor, map(os.fsdecode, paths), keep)
            elif due is None or not self._scan_reported(descriptor, due, keep):
                self._scan_everything(descriptor, keep)
            self._require_bounded()
        except OSError as error:
            raise _not_scanned(self.path, error) from error
        finally:
            os.close(descriptor)
        self._expected.clear()
        self.changed |= self._rules.changed
        self._rules.changed.clear()
        return self.seen()

    def _scan_everything(self, descriptor: int, keep: Keep) -> None:
        """Scan everything; twice if files were left out for lack of room that others freed meanwhile."""
        self._watch()
        rules, leaves = self._rules.at_root(descriptor), self._leaves
        self._whole, leaves.is_full = True, False
        self._due.clear()
        self._linked.clear()
        self._helper = None if self.folders else helper.Helper()
        try:
            self._scan_directory(descriptor, "", rules, keep, 0)
            if leaves.has_more_room(sum(folder.size for folder in self.folders.values())):
                self._scan_directory(descriptor, "", rules, keep, 0)
        finally:
            if self._helper is not None:
                self._helper.close()
                self._helper = None
        # As this scan found it, not as it is by now.
        self._basis = os.fstat(descriptor).st_ino, self._rules.basis(rules)

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

    def _scan_directory(self, descriptor: int, path: str, above: IgnoreRules, keep: Keep, depth: int) -> bytes:
        """Scan a directory and everything below it; return its digest."""
        folder = self.folders.get(path)
        if folder is None:
            folder = self.folders[path] = Folder()
            self.changed.add(path)
        if self._watcher is not None:
            self._watcher.add(path, descriptor)  # before it is listed, or a change in between would be missed
        own = unchanged.key_of(os.fstat(descriptor))
        gone, rest, linked = (unchanged.asked if folder.listed == own else unchanged.listed)(descriptor, folder)
        _require_few(len(rest))  # before they are read: in a first scan these are all of them
        folder.listed = None  # not trusted again until the scan of this directory is complete
        self._linked |= {path + name: key[3] for name in linked if (key := folder.leaves[name])}
        rules = self._rules.inside(descriptor, path, above, folder, {name for name, _ in rest})
        found = self._rest(descriptor, path, rest, folder, rules, keep, depth)
        if folder.rules != rules.digest:
            folder.rules = rules.digest
            if any(known[1].kind == GAP for known in found.values()):
                self.changed.add(path)  # or every later process would judge its gaps again
        if gone or found != folder.others or not folder.digest:
            again = {*gone, *folder.others, *(name for name, _ in rest)}
            now = {name: known for name, known in folder.names.items() if name not in again}
            self._settle(path, folder, now | found, keep)
        folder.listed = self._leaves.trusted(own) if self._times_tell else None
        return folder.digest

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
                settled = same and known[0] is None and path + name not in self._expected
                if settled and bool(known[1].mode) == is_dir:
                    found[name] = known
                    continue
                known = None
            if is_dir:
                inner.append((name, known))
                continue
            scanned = self._changed(descriptor, path, name, known, rules, keep)
            if scanned is not None:
                found[name] = scanned

        def enter(each: _Inner) -> None:
            scanned = self._directory(descriptor, path, *each, rules, keep, depth)
            if scanned is not None:
                found[each[0]] = scanned

        if self._helper is not None:
            self._helper.share(inner, enter)
        else:
            for each in inner:
                enter(each)
        return found

    def _changed(
        self, descriptor: int, path: str, name: str, known: Known | None, rules: IgnoreRules, keep: Keep
    ) -> Known | None:
        try:
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except OSError:
            return None  # gone meanwhile
        return self._leaf(descriptor, path + name, found, known, rules, keep)

    def _leaf(
        self, above: int, path: str, status: os.stat_result, known: Known | None, rules: IgnoreRules, keep: Keep
    ) -> Known | None:
        if status.st_nlink > 1 and self._linked.get(path) != status.st_ino:
            self._linked[path], self._relinked = status.st_ino, True
        key, captured = unchanged.key_of(status), path in self._expected
        return self._leaves.scan(above, path, key, known, rules, keep, captured=captured)

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
            self._rules.forget(each)
            if self._watcher is not None:
                self._watcher.forget(each)

    def _directory(
        self, above: int, path: str, name: str, known: Known | None, rules: IgnoreRules, keep: Keep, depth: int
    ) -> Known | None:
        if ignore.is_ours(name):
            return None
        place = f"{path}{name}/"
        if ignore.is_repository(name):
            return gaps.gap(leaves.REPOSITORY, is_dir=True)
        captured = place[:-1] in self._expected or (known is not None and known[1].kind == DIR)
        if not captured and rules.ignores(place[:-1], is_dir=True):
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
                return gaps.gap(gaps.OTHER_DEVICE, is_dir=True, again=True)
            digest = self._scan_directory(descriptor, place, rules, keep, depth + 1)
        except OSError as error:
            self._forget(place)
            return gaps.unless_gone(error, is_dir=True)
        finally:
            os.close(descriptor)
        return A_DIRECTORY, Node(DIR, _mode_of(own), 0, digest)

    # ------------------------------------------------------------------ what the system reports

    def _watch(self) -> None:
        """Watch from the second scan on; if the system refuses, every scan is a full one."""
        if self._whole and self._watches and self._watcher is None:
            try:
                self._watcher = watch.Watcher()
            except OSError:
                self._watches = False

    def _reported(self, descriptor: int) -> set[str] | None:
        """Return the paths that may have changed; None if that is not known, and everything must be scanned."""
        if self._watcher is None or not self._watcher.watches(self.folders):
            return None
        found, basis = (
            self._watcher.changed(),
            (os.fstat(descriptor).st_ino, self._rules.read(descriptor, self.folders)),
        )
        if found is None or self._leaves.is_full or basis != self._basis:
            return None
        again = {
            path + name
            for path, folder in self.folders.items()
            for name, (key, node) in folder.others.items()
            if node.kind == GAP and key is not None
        }
        due = found | again | self._due | self._linked.keys()
        return None if paths_.names_rules(map(os.fsencode, due)) else due

    def _scan_reported(self, descriptor: int, due: set[str], keep: Keep) -> bool:
        """Scan what was reported; False if that is not enough."""
        self._relinked = False
        self._scan_paths(descriptor, due, keep)
        self._due.clear()
        # A file that has got another name may have got it anywhere, and what does not fit may fit elsewhere.
        return not self._relinked and not self._leaves.is_full

    def close(self) -> None:
        """Stop watching."""
        if self._watcher is not None:
            self._watcher.close()

    # ------------------------------------------------------------------ some paths only

    def _scan_paths(self, root: int, paths: Iterable[str], keep: Keep) -> None:
        """Scan some paths; directories that are not known yet are scanned completely."""
        by_folder: dict[str, set[str]] = {}
        wanted, self._modes = {*paths}, {}
        for path in wanted:
            if wanted.isdisjoint(above[:-1] for above in paths_.above(path) if above):
                folder, name = self._known_part(path)
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
        entered, folder = self._entered(root, path), self.folders.get(path)
        if entered is None or folder is None:
            return  # gone meanwhile; the scan of the directory above notices
        descriptor, rules = entered
        try:
            now = dict(folder.names)
            for name in names:
                scanned = self._one(descriptor, path, name, folder.names.get(name), rules, keep)
                if scanned is None:
                    now.pop(name, None)
                else:
                    now[name] = scanned
            self._settle(path, folder, now, keep)
        finally:
            os.close(descriptor)

    def _entered(self, root: int, path: str) -> tuple[int, IgnoreRules] | None:
        """Open a known directory, with the rules that hold in it; None if it is gone."""
        here, rules, place = os.dup(root), self._rules.at_root(root), ""
        for name in ["", *path.split("/")[:-1]]:
            place = f"{place}{name}/" if name else ""
            try:
                below = os.open(name or ".", read.DIRECTORY, dir_fd=here)
            except OSError:
                return None
            finally:
                os.close(here)
            here, folder = below, self.folders.get(place)
            if folder is None:
                os.close(here)
                return None
            self._modes[place] = _mode_of(os.fstat(here))
            rules = self._rules.inside(here, place, rules, folder, folder.others)
        return here, rules

    def _one(
        self, above: int, path: str, name: str, known: Known | None, rules: IgnoreRules, keep: Keep
    ) -> Known | None:
        try:
            found = os.stat(name, dir_fd=above, follow_symlinks=False)
        except OSError:
            return None
        if stat.S_ISDIR(found.st_mode):
            return self._directory(above, path, name, known, rules, keep, path.count("/"))
        if known is not None and known[0] == unchanged.key_of(found):
            return known
        return self._leaf(above, path + name, found, known, rules, keep)

    def _take_up(self, path: str, keep: Keep) -> None:
        """Update a directory with the current digests and modes of those in it."""
        folder = self.folders[path]
        now = dict(folder.names)
        for name, (key, node) in folder.names.items():
            below = self.folders.get(f"{path}{name}/") if node.kind == DIR else None
            if below is not None:
                mode = self._modes.get(f"{path}{name}/", node.mode)
                now[name] = key, node._replace(content=below.digest, mode=mode)
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
        other._rules, other._leaves = self._rules.copied(), copy.copy(self._leaves)
        other.changed, other._linked, other._due, other._expected = set(), {}, set(), {*self._expected}
        other._watcher, other._watches = None, False
        return other

    def expect(self, paths: Mapping[bytes, Node | None]) -> None:
        """Let restored paths count as captured in the next scan: rules leave out only what is new.

        They are read again, for changes that size and times do not show, as with ``mmap``; without a node that is all.
        """
        for path, node in paths.items():
            place = os.fsdecode(path)
            folder, name = place[: place.rfind("/") + 1], place.rpartition("/")[2]
            if node is not None:
                self._expected.update((place, *(above[:-1] for above in paths_.above(place))))
            self._due.add(place)
            known = self.folders.get(folder)
            if known is not None and name in known.leaves:
                known.take({**known.names, name: (_NEVER, known.names[name][1])})
                self.changed.add(folder)

    def distrust(self) -> None:
        """Read everything again in the next scan; what was captured still counts as captured."""
        for path, folder in self.folders.items():
            folder.take({name: (_NEVER, node) for name, (_, node) in folder.names.items()})
            folder.digest, folder.listed = b"", None
            self.changed.add(path)


def _mode_of(status: os.stat_result) -> int:
    return status.st_mode & tree.PERMISSIONS


def _require_few(names: int, size: int = 0) -> None:
    """Refuse a directory whose record could not be read back; inside another one it becomes a gap."""
    if names > tree.MOST_NAMES or size > tree.LARGEST:
        raise OSError(errno.EFBIG, f"a directory holds more than {tree.MOST_NAMES:,} names, or too long ones")


def _not_scanned(path: str, error: OSError) -> Unsupported:
    return Unsupported(f"the workspace {path!r} cannot be scanned: {error.strerror}", capability="workspace")


_NEVER = (-2, 0, 0, 0, 0)  # matches no status: always read again
