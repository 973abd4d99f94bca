"""The hash format, pinned: these digests may never change (docs/SPEC.md, section 4)."""

import hashlib
import struct

import pytest

from takeback.model.entry import Numbers
from takeback.ops import chain

SALT = bytes(range(16))
UID = "0123456789abcdefghjkmnpqr"
NOW = 1_700_000_000_000
VECTORS = [
    (
        (b'{"role":"user","content":"hello"}', None, 1, (NOW, NOW), Numbers(messages=1, turns=1)),
        "e22e2217171bec3bb0b4bd17188e57df7f50639a589fb4987599f8509ffc2b49",
        "0ab0ac257f8afb7cef2bb3c611d0881c37370e0684b0cafe57e13444e6e4eb73",
    ),
    (
        (
            b"{}",
            b'{"b": 1, "a": "\xc3\xa4"}',
            2,
            (-1, NOW + 500),
            Numbers(2, 1, 1, 0, 7, 5, 3, 1, 2, 12_500_000, 1500, 0, 2, 2),
        ),
        "ef179e488e4200e7005bb5e77eecd12165d6ec411f8b2887ed4b6a3a2efb0ba5",
        "373f4717b5df8c0e21d8439dc42cde9515063dde8499af6035bb4578802ad0f5",
    ),
]


@pytest.mark.feature("F5")
def test_the_hash_format_is_pinned() -> None:
    previous = bytes(32)
    for (body, raw, seq, times, numbers), body_hash, entry_hash in VECTORS:
        content = chain.body_hash(SALT, body, raw)
        assert content.hex() == body_hash
        previous = chain.entry_hash(previous, chain.header(UID, seq, "message", *times, numbers), content)
        assert previous.hex() == entry_hash


@pytest.mark.feature("F5")
def test_the_format_is_the_one_that_the_page_describes() -> None:
    """Computed once more, straight from the words of the specification."""

    def i64(number: int) -> bytes:
        return struct.pack(">q", number)

    previous = bytes(32)
    for (body, raw, seq, times, numbers), body_hash, entry_hash in VECTORS:
        tail = b"\x00" if raw is None else b"\x01" + i64(len(raw)) + raw
        content = hashlib.sha256(b"takeback body 1\n" + SALT + i64(len(body)) + body + tail).digest()
        header = struct.pack(">H", 25) + UID.encode() + i64(seq) + struct.pack(">H", 7) + b"message"
        header += i64(times[0]) + i64(times[1]) + struct.pack(">H", 14) + b"".join(map(i64, numbers))
        previous = hashlib.sha256(b"takeback entry 1\n" + previous + header + content).digest()
        assert (content.hex(), previous.hex()) == (body_hash, entry_hash)


@pytest.mark.feature("F5")
def test_moving_bytes_between_parts_changes_the_hash() -> None:
    assert (
        len({chain.body_hash(SALT, *parts) for parts in [(b"ab", None), (b"a", b"b"), (b"", b"ab"), (b"ab", b"")]}) == 4
    )
    heads = {chain.header(uid, 1, kind, 0, 0, Numbers()) for uid, kind in [("ab", "c"), ("a", "bc"), ("abc", "")]}
    assert len(heads) == 3
    assert chain.header("a", 1, "b", 1, 2, Numbers()) != chain.header("a", 1, "b", 2, 1, Numbers())
