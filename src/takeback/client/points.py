"""Points of a session as callers pass them, checked; ``ops.points`` finds them in the store."""

from __future__ import annotations

from typing import Any

from ..errors import Invalid
from ..model.branch import Branch
from ..model.checkpoint import Checkpoint
from ..model.entry import Entry
from ..model.items import Custom
from ..model.message import Message
from ..model.session import Head
from ..ops.points import Target
from . import arguments

Point = int | str | Message | Entry | Custom | Checkpoint | Branch | Head


def target_of(point: Point) -> Target:
    """Check a point of any branch.

    That is a message or another entry, a checkpoint or its name or id, a branch (its tip) or its name, a head, or a seq
    of the path. A name that both a checkpoint and a branch have means the checkpoint.
    """
    if isinstance(point, Message | Entry | Custom):
        if not point.seq:
            raise Invalid("this message is still being written and has no position; wait until its stream is finished")
        return Target(point.seq, point.branch)
    if isinstance(point, Checkpoint):
        return Target(point.head.seq, point.head.branch, anywhere=True)
    if isinstance(point, Head):
        seq, branch = arguments.whole(point.seq, what="a point"), arguments.name(point.branch, what="branch")
        return Target(seq, branch, anywhere=True)
    if isinstance(point, Branch):
        return Target(tip_of=point.id)
    if isinstance(point, str):
        return Target(checkpoint=arguments.name(point, what="a point"))
    return Target(arguments.whole(point, what="a point"))


def optional_target(point: Point | None) -> Target | None:
    """Check a point that may be left out."""
    return None if point is None else target_of(point)


def request_of(point: Point) -> Any:
    """Describe a point, for comparing two requests with the same idempotency key."""
    if isinstance(point, Head):
        return [*point]
    return point if isinstance(point, int | str) else point.id
