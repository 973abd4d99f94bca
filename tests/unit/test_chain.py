"""The hash format, pinned: these digests may never change (docs/SPEC.md, section 4)."""

import hashlib
import struct

import pytest

from takeback.model.entry import Numbers
from takeback.ops import chain

SALT = bytes(range(16))
UID = "0123456789abcdefghjkmnpqr"
VECTORS = [
    (
        (b'{"role":"user","content":"hello"}', None, 1, 1_700_000_000_000, (1, 1, *[0] * 10)),
        "0bf91f1bf58d2aae7748886472b99d7773f36d266a2ee1f113913a8fe08dd338",
        "ba8243db0e18a8c0485c7dcb0713b4cc71ca375a6cdce38f211c6c6ae8030a38",
    ),
    (
        (b"{}", b'{"b": 1, "a": "\xc3\xa4"}', 2, -1, (2, 1, 0, 0, 7, 5, 3, 1, 2, 12_500_000, 1500, 0)),
        "05779b28dceb5eaff673dbc45d62d17be37f24fc3a0d1028287e7304cb95cb38",
        "8f5ff7228ff4c11eb64128fb948f096f46925aed8883a6c21c161a2d2beda2c6",
    ),
]


@pytest.mark.feature("F5")
def test_the_hash_format_is_pinned() -> None:
    previous = bytes(32)
    for (body, raw, seq, at_ms, numbers), body_hash, entry_hash in VECTORS:
        content = chain.body_hash(SALT, body, raw)
        assert content.hex() == body_hash
        previous = chain.entry_hash(previous, chain.header(UID, seq, "message", at_ms, numbers), content)
        assert previous.hex() == entry_hash


@pytest.mark.feature("F5")
def test_the_format_is_the_one_that_the_page_describes() -> None:
    """Computed once more, straight from the words of the specification."""

    def i64(number: int) -> bytes:
        return struct.pack(">q", number)

    previous = bytes(32)
    for (body, raw, seq, at_ms, numbers), body_hash, entry_hash in VECTORS:
        tail = b"\x00" if raw is None else b"\x01" + i64(len(raw)) + raw
        content = hashlib.sha256(b"takeback body 1\n" + SALT + i64(len(body)) + body + tail).digest()
        header = struct.pack(">H", 25) + UID.encode() + i64(seq) + struct.pack(">H", 7) + b"message" + i64(at_ms)
        header += struct.pack(">H", 12) + b"".join(map(i64, numbers))
        previous = hashlib.sha256(b"takeback entry 1\n" + previous + header + content).digest()
        assert (content.hex(), previous.hex()) == (body_hash, entry_hash)


@pytest.mark.feature("F5")
def test_moving_bytes_between_parts_changes_the_hash() -> None:
    assert (
        len({chain.body_hash(SALT, *parts) for parts in [(b"ab", None), (b"a", b"b"), (b"", b"ab"), (b"ab", b"")]}) == 4
    )
    heads = {chain.header(uid, 1, kind, 0, Numbers()) for uid, kind in [("ab", "c"), ("a", "bc"), ("abc", "")]}
    assert len(heads) == 3
