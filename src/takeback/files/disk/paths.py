"""Paths inside a workspace: checked, and opened name by name without following a link."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from ...errors import Invalid
from . import ignore, read


def relative(path: str) -> str:
    """Check that a path stays inside the workspace and has only proper names."""
    names = path.split("/")
    if not path or path.startswith("/") or any(name in ("", ".", "..") or "\0" in name for name in names):
        raise Invalid(f"{path!r} is not a path inside the workspace")
    return path


def names_rules(paths: Iterable[bytes]) -> bool:
    """Whether a rule file or a repository is among paths: its rules may name anything below it."""
    return any(os.fsdecode(path).rpartition("/")[2] in (*ignore.FILES, ".git") for path in paths)


def above(path: str) -> Iterator[str]:
    """Yield the directories above a directory, nearest first."""
    while path:
        path = path[: path.rstrip("/").rfind("/") + 1]
        yield path


def open_below(root: int, path: str) -> int | None:
    """Open a directory inside another name by name, following no link; None if it is not there."""
    here = os.dup(root)
    for name in path.split("/")[:-1]:
        try:
            below = os.open(name, read.DIRECTORY, dir_fd=here)
        except OSError:
            return None
        finally:
            os.close(here)
        here = below
    return here
