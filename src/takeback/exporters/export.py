"""One export, as lines or as a document: to a file, written completely or not at all, or to an open file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EDQUOT, ENOSPC
from typing import Any, BinaryIO

from ..client import address
from ..client.points import Point
from ..client.repairing import FILES
from ..client.store import Store
from ..errors import BackendError, Conflict, StorageFull
from ..model.copied import Copying
from ..model.exchange import Exported
from ..ops import sessions
from ..shell.secrets import Findings
from . import files, html, jsonl, markdown

_DOCUMENTS = {"markdown": markdown.pieces, "html": html.pieces}


def write_lines(
    store: Store,
    ids: list[str],
    to: str | BinaryIO,
    *,
    subagents: bool,
    documents: bool,
    progress: Callable[[Copying], Any] | None,
) -> Exported:
    """Write sessions as lossless lines; likely secrets in them are counted, not hidden."""
    with _place(store, to) as (path, out):
        done = jsonl.write(store, ids, out, subagents=subagents, documents=documents, progress=progress)
    return Exported(path, "jsonl", done.sessions, done.entries, done.lines, done.bytes, dict(done.secrets))


def write_document(
    store: Store, session_id: str, to: str | BinaryIO, *, format: str, tools: str, keep: bool, at: Point | None
) -> Exported:
    """Write a session as a document, up to a point if given; likely secrets are masked unless ``keep``."""
    session = store._session(*store._read(lambda tx: sessions.whole(tx, store.scope, session_id)))
    found, size = Findings(), 0
    pieces = _DOCUMENTS[format](session, at=at, tools=tools, clean=found.look if keep else found.mask)
    with _place(store, to) as (path, out):
        for piece in pieces:
            data = piece.encode("utf-8", "replace")
            out.write(data)
            size += len(data)
    return Exported(path, format, 1, None, None, size, dict(found.counts))


@contextmanager
def _place(store: Store, to: str | BinaryIO) -> Iterator[tuple[str | None, BinaryIO]]:
    """Yield the file that an export goes to; a file of the store itself raises ``Conflict``."""
    if not isinstance(to, str):
        yield None, to  # whoever opened it handles its errors
        return
    require_elsewhere(store.url, to)
    try:
        with files.whole(to) as out:
            yield to, out
    except OSError as error:  # it may name the temporary file
        raise _refused(error, to) from error


def require_elsewhere(url: str, path: str) -> None:
    """Raise ``Conflict`` if a file belongs to a store, whatever name it is given by."""
    if address.is_server(url) or address.is_memory(url):
        return
    store = address.path_of(url)
    own = [f"{base}{suffix}" for base in {store, os.path.realpath(store)} for suffix in FILES]
    if files.is_one_of(path, own):
        raise Conflict(f"{path!r} belongs to the store itself; choose another file for the export", found=path)


def _refused(error: OSError, path: str) -> Exception:
    if error.errno in (ENOSPC, EDQUOT):
        return StorageFull(f"cannot write {path!r}: {os.strerror(error.errno)}. Free some space, or write elsewhere")
    return BackendError(f"cannot write {path!r}: {error.strerror or error}. Check the path and its permissions")
