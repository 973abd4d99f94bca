"""Verify: recompute everything that can be recomputed, and say what does not fit.

Rows are read in pages, each in a read of its own, so a large store needs little memory and holds up no
writer. A damaged record is reported once, where it is, as far as that can be told; a check that meets pages which the
engine cannot read says so and the next check goes on. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import Corrupt
from ...model.report import Report
from . import agents, changes, content, documents, files, history, live, log, sessions, timelines
from .base import BACKUP, UNREADABLE, Check, Found, Read, walk


def verify(read: Read, engine_check: Callable[[], list[str]], progress: Callable[[int], None] | None = None) -> Report:
    """Check every record of a store, in all scopes; ``progress`` is told how many were looked at."""
    found = Found(progress)
    _attempt(found, lambda: _check_engine(found, engine_check))
    for check in _checks():
        _attempt(found, lambda: walk(read, found, check))  # noqa: B023
    _attempt(found, lambda: content.check_blobs(read, found))
    return Report(tuple(found.problems), found.checked)


def _checks() -> tuple[Check, ...]:
    """Return the checks of one run; the entries come first of all that name entries."""
    trees = files.TreeChecks()
    beside = (
        *history.RULES,
        *agents.RULES,
        *live.RULES,
        *documents.RULES,
        *changes.RULES,
        *files.named_beside(trees),
        *timelines.rules(trees),
    )
    return (*sessions.RULES, log.EntriesCheck(trees), *log.RULES, *beside, content.chunks_page)


def _attempt(found: Found, step: Callable[[], None]) -> None:
    try:
        step()
    except Corrupt as error:
        found.add("file", "store", str(error), BACKUP)
    except UNREADABLE as error:  # pages that changed places hold values of any type
        found.add("file", "store", f"a record holds what does not belong there: {error}", BACKUP)


def _check_engine(found: Found, engine_check: Callable[[], list[str]]) -> None:
    for complaint in engine_check():
        found.add("file", "store", complaint, BACKUP)
