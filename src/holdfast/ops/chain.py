"""The hash chain: fixed by SPEC.md, version 1, and not migratable.

An entry's hash covers the hash before it, a header and the body's hash. The header holds no content
and nothing local to a store, so a copy elsewhere has the same hashes. The body's hash is salted and
the salt goes with the body, so an erased text leaves nothing to guess from.
"""

from __future__ import annotations

import struct
from hashlib import sha256

from ..model.entry import Numbers

GENESIS = bytes(32)
SALT_BYTES = 16
_ENTRY_TAG = b"holdfast entry 1\n"
_BODY_TAG = b"holdfast body 1\n"
_COUNT = len(Numbers._fields)
_PLACE = struct.Struct(">qH")
_NUMBERS = struct.Struct(f">qH{_COUNT}q")
_LENGTH = struct.Struct(">q")
_SHORT = struct.Struct(">H")


def body_hash(salt: bytes, body: bytes, raw: bytes | None) -> bytes:
    """Hash the content of an entry: what it says and the provider's bytes, if any."""
    parts = [_BODY_TAG, salt, _LENGTH.pack(len(body)), body]
    parts += [b"\0"] if raw is None else [b"\1", _LENGTH.pack(len(raw)), raw]
    return sha256(b"".join(parts)).digest()


def header(uid: str, seq: int, kind: str, at_ms: int, numbers: tuple[int, ...]) -> bytes:
    """Encode an entry's header: branch, seq, kind, time, running numbers."""
    branch, name = uid.encode(), kind.encode()
    return b"".join(
        (
            _SHORT.pack(len(branch)),
            branch,
            _PLACE.pack(seq, len(name)),
            name,
            _NUMBERS.pack(at_ms, _COUNT, *numbers),
        )
    )


def entry_hash(previous: bytes, head: bytes, content: bytes) -> bytes:
    """Chain an entry: previous hash, header, body hash."""
    return sha256(b"".join((_ENTRY_TAG, previous, head, content))).digest()
