"""The hash chain: fixed by SPEC.md, version 1; it cannot be migrated.

An entry's hash covers the previous hash, a header and the hash of the body. The header holds no content and nothing
local to a store, so a copy elsewhere has the same hashes. The body's hash is salted, and the salt is erased with the
body, so the hash that stays cannot be used to guess an erased text.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from hashlib import sha256

from ..model.entry import GENESIS as GENESIS
from ..model.entry import Numbers

_ENTRY_TAG = b"takeback entry 1\n"
_BODY_TAG = b"takeback body 1\n"
_COUNT = len(Numbers._fields)
_LENGTH = struct.Struct(">q")


def body_hash(salt: bytes, body: bytes, raw: bytes | None) -> bytes:
    """Hash the content of an entry: its body and the provider's bytes, if any."""
    if raw is None:
        return sha256(b"".join((_BODY_TAG, salt, _LENGTH.pack(len(body)), body, b"\0"))).digest()
    lengths = _LENGTH.pack(len(body)), _LENGTH.pack(len(raw))
    return sha256(b"".join((_BODY_TAG, salt, lengths[0], body, b"\1", lengths[1], raw))).digest()


def header(uid: str, seq: int, kind: str, at_ms: int, stored_ms: int, numbers: Numbers) -> bytes:
    """Encode an entry's header: branch, seq, kind, when it happened, when it was stored, running totals."""
    branch, name = uid.encode(), kind.encode()
    shape = _shape(len(branch), len(name))
    return shape.pack(len(branch), branch, seq, len(name), name, at_ms, stored_ms, _COUNT, *numbers)


@lru_cache(maxsize=256)
def _shape(branch: int, kind: int) -> struct.Struct:
    return struct.Struct(f">H{branch}sqH{kind}sqqH{_COUNT}q")


def entry_hash(previous: bytes, head: bytes, content: bytes) -> bytes:
    """Chain an entry: previous hash, header, body hash."""
    return sha256(b"".join((_ENTRY_TAG, previous, head, content))).digest()
