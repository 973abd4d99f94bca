"""Ids: 25 characters, sorted by time, globally unique.

Nine characters of Crockford base32 hold the milliseconds since 1970 (45 bits, until the year
3084), sixteen hold 80 random bits. As text they sort in the order of their clock readings, and
they stay unique when the clock stands still. An entry needs no id of its own: its id is that
of its branch, a dash and its seq. Ids are data; an id becomes a path only after ``is_id``.
"""

from __future__ import annotations

import os
from collections import deque

_salts: deque[bytes] = deque()
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_LIMIT = (1 << 45) - 1
LENGTH = 25
MAX_SEQ = (1 << 32) - 1  # per path: a seq is the lower 32 bits of an entry's key


def new_id(now_ms: int) -> str:
    """Create an id for something that happens at ``now_ms``; the caller reads the clock once."""
    value = min(max(now_ms, 0), _TIME_LIMIT) << 80 | int.from_bytes(os.urandom(10), "big")
    return "".join([_ALPHABET[value >> shift & 31] for shift in range(120, -5, -5)])


def new_salt() -> bytes:
    """Return 16 random bytes, drawn from the kernel many at a time because the system call is what costs."""
    try:
        return _salts.popleft()
    except IndexError:
        drawn = os.urandom(16 * 64)
        _salts.extend(drawn[at : at + 16] for at in range(16, len(drawn), 16))
        return drawn[:16]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_salts.clear)  # parent and child must not use the same salts


def is_id(text: str) -> bool:
    """Whether ``text`` has the form of an id."""
    return len(text) == LENGTH and all(character in _ALPHABET for character in text)


def entry_id(branch_uid: str, seq: int) -> str:
    """Return the id of the entry at ``seq`` of a branch."""
    return f"{branch_uid}-{seq}"


def parse_entry_id(text: str) -> tuple[str, int] | None:
    """Split an entry's id into branch id and seq; None if it has another form."""
    uid, dash, number = text.partition("-")
    if not dash or not is_id(uid) or not number.isascii() or not number.isdigit():
        return None
    if len(number) > 10 or number[0] == "0":
        return None
    return uid, int(number)
