"""Every error that a caller can get, in one tree.

A class's docstring is its default message: it says what is wrong and what to do next.
``code`` is stable and safe to match on; the text may improve. A driver's own exceptions
never leave ``storage/``: they are translated there and kept as ``__cause__``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class Error(Exception):
    """Takeback could not do this; the message and ``__cause__`` say why."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or type(self).__doc__)


class NotFound(Error):
    """Nothing here has that id; check the id and the scope of the store."""

    code = "not_found"


class Ambiguous(Error):
    """More than one thing matches; use a longer prefix or a full id."""

    code = "ambiguous"

    def __init__(self, message: str | None = None, *, candidates: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.candidates = tuple(candidates)


class Conflict(Error):
    """Somebody changed this first; read it again and decide what still applies."""

    code = "conflict"

    def __init__(self, message: str | None = None, *, expected: object = None, found: object = None) -> None:
        super().__init__(message)
        self.expected = expected
        self.found = found


class Invalid(Error, ValueError):
    """That value cannot be stored; nothing was written. Correct it and call again."""

    code = "invalid"


class Closed(Error):
    """This handle is closed, or was opened before a fork(); open the store again in this process."""

    code = "closed"


class Corrupt(Error):
    """Stored data is damaged; nothing was changed. Run verify to see what is affected."""

    code = "corrupt"

    def __init__(self, message: str | None = None, *, what: str = "") -> None:
        super().__init__(message)
        self.what = what


class Unsupported(Error):
    """This store cannot do that; its capabilities say what it can do."""

    code = "unsupported"

    def __init__(self, message: str | None = None, *, capability: str = "") -> None:
        super().__init__(message)
        self.capability = capability


class Busy(Error):
    """This is in use by somebody else; wait and call again."""

    code = "busy"

    def __init__(self, message: str | None = None, *, holder: str | None = None, retryable: bool = True) -> None:
        super().__init__(message)
        self.holder = holder
        self.retryable = retryable


class StorageFull(Error):
    """The disk is full; nothing was stored. Free some space, or delete and prune: both still work."""

    code = "storage_full"


class LeaseLost(Error):
    """Another process took over this session; open the session again to continue."""

    code = "lease_lost"


class SchemaTooNew(Error):
    """A newer Takeback wrote this store; upgrade with: pip install --upgrade takeback"""

    code = "schema_too_new"


class BackendError(Error):
    """The storage engine failed; nothing was acknowledged. ``__cause__`` holds its own error."""

    code = "backend"
