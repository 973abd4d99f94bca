"""Cutting tool results to a length: the beginning and the end stay, with a note of what is left out between."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ..providers.normal import Item, Part, Result, Text, with_parts

SHORTENED = "\n[... {:,} characters are left out here ...]\n"


def longest_text(item: Item) -> str:
    """Return the longest text among the tool results of a message."""
    results = [part for part in item.parts if isinstance(part, Result)]
    return max((each.text for part in results for each in part.parts if isinstance(each, Text)), key=len, default="")


def shorten(items: Sequence[Item], most: int) -> tuple[list[Item], list[int]]:
    """Cut the texts of results to ``most`` characters; return the items, and the seqs of those cut."""
    found, cut = list[Item](), list[int]()
    for item in items:
        if len(longest_text(item)) > most:
            item = with_parts(item, tuple(_shortened(part, most) for part in item.parts))
            cut.append(item.seq)
        found.append(item)
    return found, cut


def _shortened(part: Part, most: int) -> Part:
    if not isinstance(part, Result):
        return part
    inner = tuple(_cut(each, most) for each in part.parts)
    return part if inner == part.parts else replace(part, parts=inner, value=None, raw=None)


def _cut(part: Part, most: int) -> Part:
    """Keep the beginning and the end of a text: the answer is often first, and how it ended last."""
    if not isinstance(part, Text) or len(part.text) <= most:
        return part
    head = most * 2 // 3
    tail = most - head
    said = SHORTENED.format(len(part.text) - most)
    return Text(part.text[:head] + said + part.text[len(part.text) - tail :])
