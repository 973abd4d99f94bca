"""Which names of a workspace are left out: git's rules, read from the files git reads, and a few of our own.

``.gitignore`` and ``.takebackignore`` apply in every directory to what is below it; the deeper and the later line wins,
as in git. So does a repository's ``.git/info/exclude``. Folders of reproducible files are left out by default;
``!build/`` in a ``.takebackignore`` brings one back. As with git's index, what was captured once stays captured when a
rule comes to name it: a rule that an agent writes must not hide what it does next.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from ... import ids
from ...model import names

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

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
    below: str  # the directory of the file, with a trailing slash; '' is the root
    spec: GitIgnoreSpec


class IgnoreRules:
    """The rules in force in a directory; ``digest`` changes whenever one of them does."""

    def __init__(self, parts: tuple[_Part, ...] = (), digest: bytes = b"") -> None:
        self._parts = parts
        self.digest = digest

    def with_lines(self, below: str, lines: Iterable[str]) -> IgnoreRules:
        """Add the lines of a rule file in a directory; meaningless ones are skipped, as git does."""
        lines = [*lines]
        digest = sha256(self.digest + "\0".join([below, *lines]).encode("utf-8", "surrogateescape")).digest()
        return IgnoreRules((*self._parts, _Part(below, _spec(lines))), digest)

    def ignores(self, path: str, name: str, *, is_dir: bool) -> bool:
        """Whether a path with this last name is left out."""
        path = path.replace("\n", "\0")  # no rule names a newline, and patterns would take it for the end
        for part in reversed(self._parts):
            found = part.spec.check_file(path[len(part.below) :] + ("/" if is_dir else "")).include
            if found is not None:
                return found
        return name in DEFAULTS if is_dir else name.endswith(".pyc")


_CLASSES = {  # git knows these within brackets; pathspec does not
    "[:alpha:]": "a-zA-Z",
    "[:digit:]": "0-9",
    "[:alnum:]": "a-zA-Z0-9",
    "[:upper:]": "A-Z",
    "[:lower:]": "a-z",
    "[:space:]": " \t",
    "[:blank:]": " \t",
    "[:xdigit:]": "0-9a-fA-F",
    "[:punct:]": "!-/:-@\\[-`{-~",
}


def _spec(lines: list[str]) -> GitIgnoreSpec:
    lines = [_plain(line) for line in lines]
    from pathspec import GitIgnoreSpec  # imported only if there are rules, since it is slow

    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError:  # one line is not a pattern: keep the others
        return GitIgnoreSpec.from_lines([line for line in lines if _is_pattern(GitIgnoreSpec, line)])


def _plain(line: str) -> str:
    """Expand classes of characters."""
    for name, characters in _CLASSES.items() if "[:" in line else ():
        line = line.replace(name, characters)
    return line


def _is_pattern(spec: type[GitIgnoreSpec], line: str) -> bool:
    try:
        spec.from_lines([line])
    except ValueError:
        return False
    return True


def given(lines: Iterable[str] = ()) -> IgnoreRules:
    """Return the rules that hold without any file: the defaults, and those that a caller adds."""
    return IgnoreRules().with_lines("", lines) if lines else IgnoreRules()
