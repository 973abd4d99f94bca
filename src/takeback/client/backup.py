"""A backup: a complete, verified copy of a store in one new file, as of one moment, while the store is in use."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import Conflict, Invalid
from ..model.report import Problem, Report
from ..storage import files
from . import arguments
from .open import open_store
from .repairing import FILES

if TYPE_CHECKING:
    from .store import Store

LEFT_OUT = "left out"  # the kind of problem that is not damage


def back_up(store: Store, path: str | os.PathLike[str], progress: Callable[[int], None] | None) -> Report:
    """Write the copy next to its target, verify it, and only then rename it: the target is never half a backup.

    A damaged store gives a copy with the same damage, which the report names: better than no copy.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise Invalid("the path is empty; name a new file for the backup")
    if store.scope != arguments.scope(None):
        raise Invalid("a backup holds all scopes; take it from a store that was opened without a scope")
    target = os.path.realpath(path)
    _require_free(target)
    try:
        with tempfile.TemporaryDirectory(prefix=files.BACKUP, dir=os.path.dirname(target)) as folder:
            part = os.path.join(folder, files.BACKUP_PART)
            lost = _copy(store, part)
            with open_store(part, clock=store._clock) as copy:
                report = copy.verify(progress=progress)
            # Content, then name, then directory: after a power cut the backup is complete or absent.
            _sync(part)
            _require_free(target)
            _name(part, target)
            _sync(os.path.dirname(target))
    except FileExistsError as error:
        raise Conflict(f"{target!r} already exists; name a new file for the backup", found=target) from error
    except OSError as error:
        raise files.translate(error, target) from error
    return Report((*lost, *report.problems), report.checked)


def _require_free(target: str) -> None:
    if any(os.path.lexists(target + suffix) for suffix in FILES):
        raise Conflict(f"{target!r} already exists; name a new file for the backup", found=target)


def _name(part: str, target: str) -> None:
    """Put the file under its final name, never over something that appeared meanwhile if the file system allows."""
    try:
        # Unlike a rename, a hard link fails if the target exists.
        os.link(part, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        _require_free(target)
        os.rename(part, target)


def _copy(store: Store, path: str) -> list[Problem]:
    """Copy everything; return what could not be read, or what a file leaves out of a server."""
    if store.capabilities.persistent and not store.capabilities.file:  # a server
        from .copying import copy

        said = copy(store, path).left_out
        return [Problem(LEFT_OUT, "server", each, "They stay on the server") for each in said]
    unread = store._backend.copy_to(path)
    return [Problem("file", each, "it could not be read", "takeback repair keeps the rest") for each in unread]


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
