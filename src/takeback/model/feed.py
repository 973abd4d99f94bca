"""Changes as the feed reports them."""

from __future__ import annotations

import msgspec

from . import Portable
from .document import Namespace


class Change(Portable, msgspec.Struct, frozen=True):
    """One committed change of a session, of an agent (then ``session_id`` is empty) or of a document.

    ``cursor`` is opaque: pass it back to continue after this change. A change of kind ``document`` has a ``namespace``,
    a ``key`` and the ``version`` that was put, 0 if the document was deleted.
    """

    cursor: str
    kind: str
    session_id: str
    branch: str
    first_seq: int
    last_seq: int
    agent_id: str = ""
    namespace: Namespace = ""
    key: str = ""
    version: int = 0

    def __repr__(self) -> str:
        if self.key:
            return f"<Change {self.kind} {self.key!r} in {self.namespace!r}>"
        what = f"session {self.session_id[:12]}" if self.session_id else f"agent {self.agent_id!r}"
        return f"<Change {self.kind} of {what}>"
