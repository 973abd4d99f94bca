"""Attachments: bytes next to a message, stored once per scope, streamed in and out one chunk at a time.

The source may be bytes, an open file, a path, a URL (kept as is, never fetched), a dict with more fields, or another
message's attachment. The content is stored before the message that names it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from .. import codec
from ..errors import Closed, Invalid, NotFound
from ..files import contents
from ..model import attachment
from ..ops import blobs
from . import arguments

if TYPE_CHECKING:
    from .store import Store

TYPES = ("image", "audio", "video", "file", "code")
_CODE = frozenset({"application/json", "application/javascript", "application/x-sh", "text/javascript"})
_PIECE = 1 << 20


if TYPE_CHECKING:
    Attachable: TypeAlias = (
        bytes | bytearray | str | os.PathLike[str] | IO[bytes] | Mapping[str, Any] | attachment.Attachment
    )
else:  # ``typing.get_type_hints`` on the methods that take one must not load the class
    Attachable = Any


def open_content(store: Any, content_hash: str) -> IO[bytes]:
    """Open content of a store for reading, one chunk in memory at a time."""
    return io.BufferedReader(_Stored(store, content_hash), _PIECE)


class _Stored(io.RawIOBase):
    """A blob as a file that is read from the start."""

    def __init__(self, store: Store, content_hash: str) -> None:
        self._chunks: Iterator[bytes] = contents.open_stream(store._runner, content_hash)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.closed:
            raise Closed("this attachment is closed; open it again")
        if not self._left:
            self._left = memoryview(next(self._chunks, b""))
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


# ---------------------------------------------------------------------- storing


def store(store: Store, given: Attachable) -> dict[str, Any]:
    """Store the content of an attachment and return its record."""
    said: dict[str, Any] = {}
    source: Any = getattr(given, "_sync", given)  # an async attachment wraps a blocking one
    if isinstance(source, attachment.Attachment):
        said, source = source.to_dict(), _elsewhere(store, source)
    elif isinstance(source, Mapping):
        said, source = _described(source)
    wanted = said.get("type")
    if wanted is not None and (not isinstance(wanted, str) or wanted not in TYPES):
        raise Invalid(f"the type of an attachment must be {', '.join(TYPES[:-1])} or {TYPES[-1]}, not {wanted!r}")
    for field in ("id", "mime_type"):
        arguments.optional_name(said.get(field), what=f"{field} of an attachment")
    record = _content(store, source, said)
    name = record.get("name")
    record["mime_type"] = said.get("mime_type") or (_mime_type(name) if name else None)
    record["type"] = wanted or _type_of(record["mime_type"])
    record["id"] = said.get("id") or _id_of(record)
    return {field: value for field, value in record.items() if value is not None}


def _mime_type(name: str) -> str | None:
    import mimetypes

    return mimetypes.guess_type(name)[0]


def _described(given: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    said = dict(given)
    sources = [name for name in ("data", "path", "file", "url", "hash") if said.get(name) is not None]
    if "hash" in sources:
        sources = ["hash"]
    if len(sources) != 1:
        raise Invalid("an attachment needs exactly one of data (bytes), path, file or url")
    source = said[sources[0]]
    arguments.optional_name(said.get("name"), what="name of an attachment")
    if sources[0] == "data" and isinstance(source, str):
        source = codec.storable_text(source.replace("\0", " "), what="data").encode()
    if sources[0] == "path":
        if not isinstance(source, str | os.PathLike):
            raise Invalid(f"path must be a path, not {type(source).__name__}")
        source = os.fspath(source)
        said["is_path"] = True
    return said, source


def _elsewhere(store: Store, given: attachment.Attachment) -> Any:
    """Return where to read an attachment of another store or scope; None if its content is here, or a URL."""
    if given.hash is None:
        return given.url
    there = None if given._home is None else given._home.store
    if there is None or (there._backend is store._backend and there.scope == store.scope):
        return None  # of one that left its store the hash is known, and its content may be here
    return given.open()


def _content(store: Store, given: Any, said: Mapping[str, Any]) -> dict[str, Any]:
    """Store the content and describe it by hash and size, or by URL."""
    name = said.get("name")
    if said.get("hash") and given in (None, said["hash"]):
        return _known(store, said)
    if isinstance(given, bytes | bytearray | memoryview):
        data = bytes(given)
        return {
            "name": name,
            "hash": contents.store(store._runner, data),
            "size": len(data),
        }
    if isinstance(given, str) and "://" in given and not said.get("is_path"):
        from urllib.parse import urlsplit

        last = os.path.basename(urlsplit(given).path) or None
        return {"name": name or last, "url": arguments.name(given, what="url", most=100_000)}
    if isinstance(given, str | os.PathLike):
        return _from_path(store, os.fspath(given), name)
    if hasattr(given, "read"):
        own = getattr(given, "name", None)
        return _from_stream(store, given, name or (os.path.basename(own) if isinstance(own, str) else None))
    raise Invalid(f"an attachment must be bytes, an open file, a path, a URL or a dict, not {type(given).__name__}")


def _known(store: Store, said: Mapping[str, Any]) -> dict[str, Any]:
    """Refer to content that this scope already has."""
    size = store._read(blobs.describe, store.scope, arguments.name(said["hash"], what="hash")).size
    return {"name": said.get("name"), "hash": said["hash"], "size": size}


def _from_path(store: Store, path: str, name: str | None) -> dict[str, Any]:
    try:
        with open(path, "rb") as stream:
            return _from_stream(store, stream, name or os.path.basename(path))
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {path!r} to attach") from error
    except (OSError, ValueError) as error:
        raise Invalid(f"{path!r} cannot be read, so it was not attached: {error}") from error


def _from_stream(store: Store, stream: Any, name: str | None) -> dict[str, Any]:
    counted = _Counted(stream)
    content_hash = contents.store_stream(store._runner, counted)
    return {"name": name, "hash": content_hash, "size": counted.size}


class _Counted:
    """A stream read in pieces, with a count of the bytes."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        while piece := self._piece():
            self.size += len(piece)
            yield piece

    def _piece(self) -> bytes:
        try:
            piece = self._stream.read(_PIECE)
        except Exception as error:  # a caller's own object may raise anything
            raise Invalid(f"the attachment cannot be read: {error}") from error
        if not isinstance(piece, bytes):
            raise Invalid("an attachment must be read as bytes; open the file in binary mode")
        return piece


def _id_of(record: Mapping[str, Any]) -> str:
    """Derive an id from the content, so that a retry makes the same message."""
    return sha256(f"{record.get('hash')} {record.get('url')} {record.get('name')}".encode()).hexdigest()[:25]


def _type_of(mime: str | None) -> str:
    kind = (mime or "").partition("/")[0]
    if kind in ("image", "audio", "video"):
        return kind
    return "code" if mime in _CODE or (mime or "").startswith("text/x-") else "file"
