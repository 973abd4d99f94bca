"""What texts about a session say beside its messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from .checkpoint import Checkpoint
from .session import Stats
from .work import FileTouched, Note, Task


class Brief(NamedTuple):
    """What a summary says of a session."""

    title: str | None
    workspace: str | None
    tasks: Sequence[Task]
    files: Sequence[FileTouched]
    plan: str | None


class About(NamedTuple):
    """What a document for people says of a session."""

    id: str
    title: str | None
    status: str
    created: datetime
    model: str | None
    provider: str | None
    workspace: str | None
    stats: Stats
    tasks: Sequence[Task]
    files: Sequence[FileTouched]
    notes: Sequence[Note]
    plan: str | None
    written: str | None
    checkpoints: Sequence[Checkpoint]
