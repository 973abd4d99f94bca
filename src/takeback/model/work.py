"""What a session works on: tasks, notes and the files it touched."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..clock import to_datetime
from ..errors import Invalid
from . import Portable, words

TASK_STATES = ("pending", "in_progress", "completed", "failed", "skipped")


class Task(Portable, msgspec.Struct, frozen=True, omit_defaults=True):
    """One task of a session's list; ``status`` is one of the five task states."""

    description: str
    status: str = "pending"
    id: str = ""

    def __repr__(self) -> str:
        return f"<Task {self.id} {self.status} {self.description[:40]!r}>"


def require_status(status: object) -> str:
    """Return a valid task status; anything else raises ``Invalid``."""
    if status not in TASK_STATES:
        raise Invalid(f"a task's status is {', '.join(TASK_STATES[:-1])} or {TASK_STATES[-1]}, not {status!r}")
    return str(status)


class Note(Portable, msgspec.Struct, frozen=True):
    """One line of a session's reasoning log, and the id of the task it is about."""

    seq: int
    text: str
    task: str | None
    at_ms: int

    @property
    def created_at(self) -> datetime:
        """When it was noted."""
        return to_datetime(self.at_ms)

    def __repr__(self) -> str:
        about = f" on {self.task}" if self.task else ""
        return f"<Note {self.seq}{about} {self.text[:40]!r}>"


class FileTouched(Portable, msgspec.Struct, frozen=True):
    """A path with its last action, and the tool call that did it, if known."""

    path: str
    action: str
    call_id: str | None
    seq: int
    calls: tuple[str, ...] = ()  # all calls open at the time, if more than one

    def __repr__(self) -> str:
        return f"<FileTouched {self.action} {words.plain(self.path)}>"


class Compaction(Portable, msgspec.Struct, frozen=True):
    """A summary that replaces the entries up to ``upto`` in contexts; the originals stay."""

    seq: int
    upto: int
    summary: str

    def __repr__(self) -> str:
        return f"<Compaction of 1..{self.upto}: {self.summary[:40]!r}>"
