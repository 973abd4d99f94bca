"""Leaves of a workspace: files and links, read within the limits on size, or recorded as gaps."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ...errors import Unsupported
from ...model.tree import FILE, LINK, Node
from . import gaps, ignore, read, unchanged
from .cache import Known, Stat

if TYPE_CHECKING:
    from .ignore import IgnoreRules
    from .read import Keep

REPOSITORY = "a repository's own records"
_TICK, _COARSE_TICK = 100_000_000, 2_100_000_000  # ns within which a file system may stamp two changes alike


class Limits(NamedTuple):
    """What is too large to be captured, in bytes."""

    file: int = 100 << 20
    total: int = 4 << 30


class Leaves:
    """Reads the leaves of one scan after the other."""

    def __init__(self, limits: Limits, not_here: Iterable[str]) -> None:
        self.limits = limits
        self._not_here = tuple(not_here)  # files that are never opened, nor their side files: NAME-...
        self.is_full = False  # something was left out because the whole is too large
        self._total = 0
        self._start = 0

    def begin(self, total: int) -> None:
        """Begin a scan of a workspace whose known files have this size."""
        self._start, self._total = time.time_ns(), total

    def has_more_room(self, total: int) -> bool:
        """Whether something was left out that fits by now; then it can be scanned again."""
        freed = self.is_full and total < self._total
        self._total = total if freed else self._total
        return freed

    def scan(
        self, above: int, path: str, key: Stat, known: Known | None, rules: IgnoreRules, keep: Keep, *, captured: bool
    ) -> Known | None:
        """Scan a path that is not a directory and has changed; None if it is none of the workspace's, or gone."""
        name = path.rpartition("/")[2]
        if ignore.is_ours(name):
            return None
        if any(path == own or path.startswith(f"{own}-") for own in self._not_here):
            return gaps.gap(gaps.STORE)
        if ignore.is_repository(name):
            return gaps.gap(REPOSITORY)
        captured = captured or (known is not None and known[1].kind in (FILE, LINK))
        if not captured and rules.ignores(path, is_dir=False):
            return gaps.gap("ignored")
        try:
            if stat.S_ISLNK(key[4]):
                target = os.fsencode(os.readlink(name, dir_fd=above))
                return self.trusted(key), Node(LINK, 0, len(target), target)
            if not stat.S_ISREG(key[4]):
                return gaps.gap(gaps.what(key[4]), again=True)
            return self._file(above, name, key, known, keep)
        except OSError as error:
            return gaps.unless_gone(error)
        except Unsupported:  # closing it would drop the locks of a store that this process has open
            return gaps.gap(gaps.OPEN_STORE, again=True)

    def _file(self, above: int, name: str, key: Stat, known: Known | None, keep: Keep) -> Known:
        size = key[0]
        if size > self.limits.file:
            return gaps.gap(f"larger than {gaps.size(self.limits.file)}", again=True)
        more = size - (known[1].size if known is not None and known[1].kind == FILE else 0)
        if self._total + more > self.limits.total:
            self.is_full = True
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
        return self.trusted(after) if settled else None, Node(FILE, after[4] & 0o777, length, digest)

    def trusted(self, key: Stat) -> Stat | None:
        """Return what distinguishes this content from a later one, unless a change right now could look the same."""
        tick = _COARSE_TICK if key[2] % 1_000_000_000 == 0 else _TICK
        return key if key[2] < self._start - tick else None
