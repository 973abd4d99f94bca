"""Which names of a workspace are left out: git's rules, read from the files git reads, and a few of our own.

``.gitignore`` and ``.takebackignore`` apply in every directory to what is below it; the deeper and the later line wins,
as in git. So does a repository's ``.git/info/exclude``. Folders of reproducible files are left out by default;
``!build/`` in a ``.takebackignore`` brings one back. What a repository's index names is captured all the same. So is
what was captured once: a rule that an agent writes must not hide what it does next.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from ... import ids
from ...model import names
from . import patterns

if TYPE_CHECKING:
    from .git_index import GitIndex
    from .patterns import IgnorePattern

FILES = (".gitignore", ".takebackignore")
STAGING = ".takeback-"  # the prefix of our own names
DEFAULTS = frozenset(  # folders of reproducible files
    (
        *("node_modules", "bower_components", ".venv", "venv", "__pycache__", ".tox", ".nox"),
        *(".eggs", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".gradle", ".terraform"),
        *(".next", ".nuxt", ".svelte-kit", ".parcel-cache", ".turbo", "target", "build"),
        *("dist",),
    )
)


def is_ours(name: str) -> bool:
    """Whether a name is one of our temporary ones; others that merely begin alike are not."""
    if not name.startswith(STAGING):
        return False
    rest = name.removeprefix(STAGING)
    return ids.is_id(rest.removesuffix(".tmp")) or rest.startswith(("mark-", "backup-"))


def is_repository(name: str) -> bool:
    """Whether a name is a repository's own directory, in any spelling: never captured, never written."""
    return names.is_control(os.fsencode(name))


class _Part(NamedTuple):
    below: int  # the length of the directory's path, with a trailing slash
    patterns: list[IgnorePattern]


class _Repository(NamedTuple):
    below: int
    tracked: GitIndex


class IgnoreRules:
    """The rules in force in a directory; ``digest`` changes whenever one of them does."""

    def __init__(
        self,
        digest: bytes = b"",
        parts: tuple[_Part, ...] = (),
        repositories: tuple[_Repository, ...] = (),
        entered: tuple[IgnoreRules, str] | None = None,
    ) -> None:
        self.digest = digest
        self._parts, self._repositories, self._entered = parts, repositories, entered
        self._within: bool | None = None if entered else False

    def with_lines(self, below: str, lines: Iterable[bytes]) -> IgnoreRules:
        """Add the lines of a rule file in a directory; meaningless ones are skipped, as git does."""
        part = _Part(len(os.fsencode(below)), _parsed(tuple(lines)))
        digest = sha256(b"\0".join((self.digest, os.fsencode(below), *lines))).digest()
        return IgnoreRules(digest, (*self._parts, part), self._repositories, self._entered)

    def with_index(self, below: str, index: GitIndex) -> IgnoreRules:
        """Add the index of a repository in a directory: whatever rules say, what it names is not ignored."""
        repository = _Repository(len(os.fsencode(below)), index)
        digest = sha256(self.digest + index.digest).digest()
        return IgnoreRules(digest, self._parts, (*self._repositories, repository), self._entered)

    def inside(self, path: str) -> IgnoreRules:
        """Return the rules for what is in a directory, which may itself be one that rules name.

        The digest stays: the same rules and the same path always mean the same.
        """
        return IgnoreRules(self.digest, self._parts, self._repositories, (self, path))

    def ignores(self, path: str, *, is_dir: bool) -> bool:
        """Whether a path is left out."""
        return self._names(path, is_dir=is_dir) and not self._tracks(os.fsencode(path), is_dir=is_dir)

    def _names(self, path: str, *, is_dir: bool) -> bool:
        if self._within is None:  # asked only if there is something new in the directory
            assert self._entered is not None
            above, entered = self._entered
            self._within = above._names(entered, is_dir=True)
        if self._within:
            return True  # nothing can bring back what is in a directory that is left out
        whole = os.fsencode(path)
        name = whole.rpartition(b"/")[2]
        for below, lines in reversed(self._parts):
            inside = whole[below:]
            for each in lines:
                if (is_dir or not each.only_dirs) and each.matches(inside, name):
                    return not each.brings_back
        return os.fsdecode(name) in DEFAULTS if is_dir else name.endswith(b".pyc")

    def _tracks(self, path: bytes, *, is_dir: bool) -> bool:
        return any(tracked.names(path[below:], is_dir=is_dir) for below, tracked in self._repositories)


@lru_cache(maxsize=256)
def _parsed(lines: tuple[bytes, ...]) -> list[IgnorePattern]:
    return patterns.parse(lines)


def given(lines: Iterable[str] = ()) -> IgnoreRules:
    """Return the rules that hold without any file: the defaults, and those that a caller adds."""
    return IgnoreRules().with_lines("", tuple(map(os.fsencode, lines))) if lines else IgnoreRules()
