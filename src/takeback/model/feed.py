"""Changes as the feed reports them."""

from __future__ import annotations

import msgspec

from . import Portable


class Change(Portable, msgspec.Struct, frozen=True):
    """One committed change of a session, or of an agent (then ``session_id`` is empty).

    ``cursor`` is opaque: pass it back to continue after this change.
    """

    cursor: str
    kind: str
    session_id: str
    branch: str
    first_seq: int
    last_seq: int
    agent_id: str = ""

    def __repr__(self) -> str:
        what = f"session {self.session_id[:12]}" if self.session_id else f"agent {self.agent_id!r}"
        return f"<Change {self.kind} of {what}>"
