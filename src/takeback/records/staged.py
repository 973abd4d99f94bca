"""What a half-copied session will be, kept where its details will lie, until it is whole.

So showing a session needs nothing but what is in the store, in whichever order sessions are shown, and a stream of any
length needs no memory for those that wait.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

import msgspec

from .. import codec
from ..errors import Corrupt
from ..ops import sessions
from ..storage.base import Tx
from ..tables.sessions import SessionRow
from .stream import SessionRecord

_NAME = "copying"


class Final(NamedTuple):
    """A session as it is to be: its row, details and parent, undone operations, where branches end and are hidden."""

    row: SessionRow
    doc: bytes
    parent: str | None
    undone: tuple[tuple[str, str], ...]
    tips: tuple[tuple[str, int, int, bytes], ...]  # id, where it starts, where it ends, the hash there
    hidden: tuple[tuple[str, int], ...]


_decode = msgspec.msgpack.Decoder(Final).decode
_encode = msgspec.msgpack.Encoder().encode


def of(session: SessionRecord) -> Final:
    """Return what a session is to be."""
    tips = tuple((each.row.uid, each.row.fork_seq, each.tip, each.hash) for each in session.branches if each.hash)
    hidden = tuple((each.row.uid, each.row.hidden) for each in session.branches)
    return Final(session.row._replace(calls=None), session.doc, session.parent, session.undone, tips, hidden)


def encode(session: SessionRecord) -> bytes:
    """Write what a session is to be as details."""
    return codec.encode({_NAME: base64.b64encode(_encode(of(session))).decode()})


def decode(tx: Tx, session: SessionRow | None) -> Final:
    """Read what a half-copied session is to be."""
    try:
        if session is None:
            raise LookupError("the session is gone")
        return _decode(base64.b64decode(codec.decode(sessions.detail(tx, session))[_NAME]))
    except (msgspec.MsgspecError, binascii.Error, LookupError, TypeError) as error:
        name = "" if session is None else session.id
        raise Corrupt(f"session {name} is half copied, and what it is to be cannot be read", what=name) from error


def landed(session: SessionRow, position: int, rank: int, now_ms: int, *, above: int = 0) -> dict[str, Any]:
    """Return where a session is listed that says itself when it last changed: there, and not below ``above``."""
    place = sessions.placed(session, position, rank, now_ms, happened_ms=session.updated_ms)
    lifted = max(place["rank"], above)
    return {**place, "updated_ms": session.updated_ms, "rank": lifted, "past": rank if lifted < rank else 0}
