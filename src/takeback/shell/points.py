"""Points as refs name them: what every shell does with the answer of ``resolve``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model import session as values

if TYPE_CHECKING:
    from ..client.points import Point
    from ..client.refs import Resolved
    from ..model.branch import Branch


def point_of(found: Resolved[Any]) -> Point | None:
    """Return the point that a ref names, on any branch; None if it names only a session."""
    if found.checkpoint is not None:
        return found.checkpoint
    if found.branch is None:
        return found.seq
    if found.seq is not None:
        return values.Head(found.branch, found.seq, False)
    named: Branch = next(each for each in found.session.branches() if each.name == found.branch)
    return named
