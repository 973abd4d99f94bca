"""What a provider demands of a conversation, as data that the repair reads.

Each provider's folder says its own rules; the repair knows no provider.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from .normal import Call, Item, Media, Notes, Part, Result, Text, with_parts


def _named(result: Result) -> bool:
    return result.to is not None and result.call_id == result.to.id


def _any(call: Call) -> bool:
    return True


def _none(call: Call) -> bool:
    return False


def _own_id(call: Call) -> str | None:
    return call.id


def _no_id(item: Item) -> str | None:
    return None


def _no_model(model: str) -> bool:
    return False


def _as_it_is(item: Item) -> Item:
    return item


def _as_is(items: Sequence[Item], model: str, notes: Notes) -> list[Item]:
    return list(items)


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The demands of one provider."""

    form: str
    takes: Callable[[Media, str], bool]
    """Whether media can be sent for a role (``tool``: inside a result, ``failed``: inside that of a failure)."""
    holds: Callable[[Part, str], bool]
    """Whether the JSON of a part in this form may stand in a message of a role."""
    forgets: Callable[[Item], Item]
    """An item without what only the model that made it can read: thinking, signatures, the ids that reasoning needs."""
    blind: Callable[[str], bool] = _no_model
    """Whether a model is known to refuse all of that, whoever made it."""
    alternates: bool = False
    """Roles take turns and the user begins."""
    per_message: bool = False
    """Results follow the very message of their calls, not the last one of an assistant's run."""
    itemised: bool = False
    """An answer may be many items, of which only the last one names the model."""
    ordered: bool = False
    """Results lie in the order of their calls."""
    refuses_blank: bool = False
    """Text of nothing but white space is refused, not only empty text."""
    free: Callable[[Call], bool] = _none
    """Whether the JSON of a call is of a kind that need not have an object as its arguments."""
    unique_ids: bool = False
    """No two calls of a request may have the same id; else no two of one step."""
    sent_id: Callable[[Call], str | None] = _own_id
    """The id that a call is sent with; None where calls and results go by their order."""
    id: re.Pattern[str]
    """What ids look like."""
    most: int
    """The longest id."""
    name: re.Pattern[str]
    """What the names of tools look like."""
    agrees: Callable[[Result], bool] = _named
    """Whether the JSON of a result fits the call it was paired with."""
    closes: Callable[[Call], bool] = _any
    """Whether a result can be made up for a call."""
    tidy: Callable[[Sequence[Item], Notes], list[Item]]
    """What else this provider demands, once items are paired and joined."""
    item_id: Callable[[Item], str | None] = _no_id
    """The id that a stored item has itself, where no two items may have the same."""
    signs: Callable[[str], bool] = _no_model
    """Whether a model wants the calls of this form signed."""
    suits: Callable[[Sequence[Item], str, Notes], list[Item]] = _as_is
    """What else the model that is asked demands."""
    untied: Callable[[Item], Item] = _as_it_is
    """An answer without the ids that belong to reasoning which is gone."""
    developer: bool = False
    """Whether there are instructions of a developer's in the middle of a conversation, with a role of their own."""
    prices: str | None = None
    """The provider's name in the list of prices, if that is another one."""


def stripped(items: list[Item], notes: Notes) -> list[Item]:
    """Take white space off the end: what an assistant's last text ends in is what it goes on from."""
    item = items[-1] if items else None
    last = item.parts[-1] if item is not None and item.role == "assistant" and item.parts else None
    if item is None or not isinstance(last, Text) or last.text == last.text.rstrip():
        return items
    notes.add("took white space off the end of the last answer", item.seq)
    return [*items[:-1], with_parts(item, (*item.parts[:-1], replace(last, text=last.text.rstrip(), raw=None)))]
