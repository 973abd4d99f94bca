"""Paths inside a workspace: checked, and opened name by name through no link."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from ...errors import Invalid
from . import ignore, read


def relative(path: str) -> str:
    """Check a path inside a workspace: no way out, no name that is none."""
    names = path.split("/")
    if not path or path.startswith("/") or any(name in ("", ".", "..") or "\0" in name for name in names):
        raise Invalid(f"{path!r} is no path inside the workspace")
    return path


def names_rules(paths: Iterable[bytes]) -> bool:
    """Say whether a file of rules is among paths: what it names may be anywhere below it."""
    return any(os.fsdecode(path).rpartition("/")[2] in ignore.FILES for path in paths)


def above(path: str) -> Iterator[str]:
    """Give the directories on the way to one, the nearest first."""
    while path:
        path = path[: path.rstrip("/").rfind("/") + 1]
        yield path


def open_below(root: int, path: str) -> int | None:
    """Open a directory inside another name by name, through no link; None if it is not there."""
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
