"""A backup: a whole copy of a store in one new file, as of one moment, verified; the store may be in use meanwhile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import Conflict, Invalid
from ..model.report import Problem, Report
from ..storage import files
from . import check
from .open import open_store
from .repairing import FILES

if TYPE_CHECKING:
    from .store import Store

_PART = ".part"


def back_up(store: Store, path: str | os.PathLike[str], progress: Callable[[int], None] | None) -> Report:
    """Write the copy beside its place, verify it, and only then move it there: what lies there is always whole."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise Invalid("name a new file for the backup")
    if store.scope != check.scope(None):
        raise Invalid("a backup holds all scopes; take it through a store that was opened without one")
    target = os.path.realpath(path)
    if any(os.path.lexists(target + suffix) for suffix in FILES):
        raise Conflict(f"{target!r} exists already; name a new file for the backup", found=target)
    part = target + _PART
    _remove(part)  # of an earlier one that was cut off
    try:
        unread = _copy(store, part)
        with open_store(part, clock=store._clock) as copy:
            report = copy.verify(progress=progress)
        _sync(part)
        os.rename(part, target)
        _sync(os.path.dirname(target))
    except OSError as error:
        raise files.translate(error, target) from error
    finally:
        _remove(part)
    lost = (Problem("file", each, "it could not be read", "holdfast repair keeps the rest") for each in unread)
    return Report((*lost, *report.problems), report.checked)


def _copy(store: Store, path: str) -> list[str]:
    if store.capabilities.persistent and not store.capabilities.file:  # a server
        from .copying import copy

        return list(copy(store, path).left_out)
    return store._backend.copy_to(path)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    for suffix in FILES:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + suffix)
