"""A page of a listing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, overload

from . import values

T = TypeVar("T")


class Page(Sequence[T], Generic[T]):
    """Items in order, the cursor of the next page (None at the end), and ids of damaged records left out."""

    __slots__ = ("cursor", "damaged", "items")

    def __init__(self, items: Sequence[T], cursor: str | None, damaged: tuple[str, ...] = ()) -> None:
        self.items = tuple(items)
        self.cursor = cursor
        self.damaged = damaged

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON data: ``items``, ``cursor`` and ``damaged``."""
        return values.to_dict(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], of: type[Any] | None = None) -> Page[Any]:
        """Make an equal page from what ``to_dict`` returned; ``of`` is the class of its items, such as ``Message``."""
        found = values.from_dict(_Parts, given)
        return cls([each if of is None else values.made(of, each) for each in found.items], found.cursor, found.damaged)

    def _parts(self) -> dict[str, Any]:
        return {"items": values.parts(self.items), "cursor": self.cursor, "damaged": [*self.damaged]}

    def _all(self) -> tuple[object, ...]:
        return self.items, self.cursor, self.damaged

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self.items[index]

    def __eq__(self, other: object) -> bool:
        """Whether another page is the same, or a list has the same items."""
        if isinstance(other, Page):
            return self._all() == other._all()
        return [*self.items] == [*other] if isinstance(other, list | tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def _repr_html_(self) -> str:
        from . import html

        rows = [[repr(item)] for item in self.items]
        return html.table(repr(self), ("item",), rows)

    def __repr__(self) -> str:
        more = "" if self.cursor is None else ", more"
        damaged = f", {len(self.damaged)} damaged" if self.damaged else ""
        first = f": {self.items[0]!r}" if self.items else ""
        rest = ", ..." if len(self.items) > 1 else ""
        return f"<Page of {len(self.items)}{more}{damaged}{first}{rest}>"


class _Parts(NamedTuple):
    """A page as plain data."""

    items: list[Any]
    cursor: str | None
    damaged: tuple[str, ...] = ()
