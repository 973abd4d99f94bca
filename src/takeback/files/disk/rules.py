"""The rules in force in each directory of a workspace, from its rule files and from the indexes of its repositories."""

from __future__ import annotations

import copy
import os
from collections.abc import Container, Iterable, Mapping

from . import git_index, ignore, paths, read
from .cache import Folder, Stat
from .git_index import GitIndex
from .ignore import IgnoreRules


class RuleBook:
    """Finds rules, and reads an index again only when its file has changed."""

    def __init__(self, path: str, given: Iterable[str]) -> None:
        self._path = path
        self._base = ignore.given(tuple(given))
        self._indexes: dict[str, tuple[Stat, GitIndex]] = {}
        self.repositories: set[str] = set()  # the directories that hold one
        self.changed: set[str] = set()  # directories whose index names other paths than before

    def at_root(self, descriptor: int) -> IgnoreRules:
        """Return the rules that hold before any directory is entered."""
        inside = paths.open_below(descriptor, ".git/info/")
        if inside is None:
            return self._base
        try:
            lines = read.lines(inside, "exclude")
        finally:
            os.close(inside)
        return self._base.with_lines("", lines) if lines else self._base

    def inside(
        self, descriptor: int, path: str, above: IgnoreRules, folder: Folder, others: Container[str]
    ) -> IgnoreRules:
        """Return the rules for what is in a directory: what was known of it, and what else it has."""
        rules = above.inside(path[:-1]) if path else above
        for name in ignore.FILES:
            if (name in folder.leaves or name in others) and (lines := read.lines(descriptor, name)):
                rules = rules.with_lines(path, lines)
        if ".git" not in others:
            self.repositories.discard(path)
            return rules
        self.repositories.add(path)
        index = self.index(descriptor, path, folder)
        return rules if index is None else rules.with_index(path, index)

    def index(self, descriptor: int, path: str, folder: Folder) -> GitIndex | None:
        """Return the index of the repository in a directory; None if it has none."""
        found = git_index.find(descriptor, os.path.join(self._path, path))
        if found is None:
            self._indexes.pop(path, None)
            return None
        key, load = found
        known = self._indexes.get(path)
        if known is None or known[0] != key:
            # What it names was remembered with its status, so an unchanged file is not even read.
            remembered = folder.index[1] if folder.index is not None and folder.index[0] == key else None
            known = self._indexes[path] = key, GitIndex(load, remembered)
            if remembered is None:
                folder.index = key, known[1].digest
                self.changed.add(path)
        return known[1]

    def basis(self, root: IgnoreRules) -> bytes:
        """Return what identifies the rules that come from outside the workspace's own files, as last read."""
        indexes = (self._indexes[path][1].digest for path in sorted(self.repositories) if path in self._indexes)
        return b"/".join((root.digest, *indexes))

    def read(self, root: int, folders: Mapping[str, Folder]) -> bytes:
        """Read again what ``basis`` is made of, and return it."""
        for path in self.repositories & folders.keys():
            inside = paths.open_below(root, path)
            if inside is not None:
                try:
                    self.index(inside, path, folders[path])
                finally:
                    os.close(inside)
        return self.basis(self.at_root(root))

    def forget(self, path: str) -> None:
        """Forget a directory that is gone."""
        self.repositories.discard(path)
        self._indexes.pop(path, None)

    def copied(self) -> RuleBook:
        """Return a copy to scan with."""
        other = copy.copy(self)
        other._indexes, other.repositories, other.changed = {**self._indexes}, {*self.repositories}, set()
        return other
