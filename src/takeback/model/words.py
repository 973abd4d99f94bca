"""Small pieces of text for people, formatted the same way everywhere."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Format a count with its noun: 1 turn, 2 turns."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return the plural of a noun."""
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def money(cost: float) -> str:
    """Format dollars, with more digits for small amounts."""
    return f"${cost:,.2f}" if cost >= 1 else f"${cost:.4f}"


def short_number(value: int) -> str:
    """Format a count for people: 950, 22k, 1.3M."""
    if value < 10_000:
        return str(value)
    return f"{value / 1000:.0f}k" if value < 1_000_000 else f"{value / 1e6:.1f}M"


def plain(text: str) -> str:
    """Escape control characters in untrusted text, so that it cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in text
    )


def of_error(error: BaseException | str) -> str:
    """Format an error briefly, even one whose ``__str__`` raises."""
    try:
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:
        text = type(error).__name__
    return text[:10_000].encode("utf-8", "replace").decode()
