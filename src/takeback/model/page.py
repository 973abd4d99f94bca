"""A page of a listing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")


class Page(Sequence[T], Generic[T]):
    """Items in order, the cursor of the next page (None at the end), and ids of damaged records left out."""

    __slots__ = ("cursor", "damaged", "items")

    def __init__(self, items: Sequence[T], cursor: str | None, damaged: tuple[str, ...] = ()) -> None:
        self.items = tuple(items)
        self.cursor = cursor
        self.damaged = damaged

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self.items[index]

    def __eq__(self, other: object) -> bool:
        """Whether another sequence has the same items; where the next page begins does not count."""
        return [*self.items] == [*other] if isinstance(other, Page | list | tuple) else NotImplemented

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
