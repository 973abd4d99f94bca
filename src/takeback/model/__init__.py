"""Frozen value types: what the store returns. They hold data, and leave the process.

Every value is ``Portable``: ``to_dict`` returns it as plain JSON data, ``from_dict`` makes an equal value from that. It
can be compared, pickled, copied and encoded by msgspec. A few values can read more from the store they came from: their
``Home`` holds that store, and stays behind when they are pickled or encoded. What is ``Bound`` to an open store, like a
session, is not a value: it refuses to be pickled, and says what to pass instead.

Messages and usage may be in a provider's form. What reads those lies above this layer, so it is handed in: the package
sets ``forms`` before anything here can be used, and nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Self, SupportsIndex

import msgspec

from . import values

if TYPE_CHECKING:
    from .given import Forms

forms: Callable[[], Forms]
"""Load what reads the forms of the providers."""


class Portable:
    """Frozen data that can leave the process."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON data: times in RFC 3339, bytes as ``{"$bytes": base64}``."""
        return values.to_dict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Make an equal value from what ``to_dict`` returned; raises ``Invalid`` for anything else."""
        return values.from_dict(cls, given)


_ATTACHED = ("id", "type", "name", "mime_type", "size", "hash", "url")


class Home(msgspec.Struct, dict=True):
    """The store that a value came from. It has no fields, so pickling and encoding leave the store behind."""

    if TYPE_CHECKING:
        store: Any = None  # the store, or None once the value has left it
        wrap: Any = None  # makes the awaitable twin of an attachment
    else:  # no annotations, so no fields
        store = wrap = None

    def __call__(self, given: Mapping[str, Any]) -> Any:
        """Return an attachment as a message records it."""
        from .attachment import Attachment

        made = Attachment(**{name: given[name] for name in _ATTACHED if name in given}, _home=self)
        return made if self.wrap is None else self.wrap(made)

    def __deepcopy__(self, memo: object) -> Home:
        """Stay the same: a copy in this process can still read its content."""
        return self


def home(store: Any) -> Home:
    """Return the home of values that come from a store."""
    made = Home()
    made.store = store
    return made


class Bound:
    """Something that works on an open store, and only in this process."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} is bound to an open store, so it cannot be pickled or copied; pass its id (or the"
            " store's URL) and open it there, or pass to_dict() of what it returns"
        )
