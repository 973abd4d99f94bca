"""What every source of records does: reading tables page by page, and the contents that records need.

Content comes before what needs it, and what is there already is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, Protocol, TypeVar

from ..errors import Corrupt
from ..files import roots, snapshots
from ..model import tree
from ..ops import blobs
from ..ops.verify.base import Read
from ..ops.verify.history import ATTACHMENT
from ..tables.content import BLOB, BlobRow
from ..tables.entries import LinkRow
from ..tables.table import Table
from . import strict_checks
from .stream import AgentRecord, Blob, Chunk, DocumentRecord, EntriesRecord, Record, SessionRecord, WorkspaceRecord
from .strict_checks import ROWS

R = TypeVar("R", bound="tuple[Any, ...]")


class Known(Protocol):
    """What a source asks whoever takes the records: what is there already is not read."""

    def agent(self, agent: AgentRecord) -> int | None:
        """Return the version that is there, 0 for none; None if the agent is to be left out."""

    def has(self, scope: str, content_hash: str) -> bool:
        """Whether a content is there."""

    def has_root(self, scope: str, content_hash: str) -> bool:
        """Whether a snapshot is there with all that it leads to."""

    def session(self, session: SessionRecord, require: Callable[[], None]) -> dict[str, int] | None:
        """Return where the branches that are there end, by their ids; None if nothing of the session is wanted.

        ``require`` raises ``Corrupt`` if the session is damaged; it is called before anything is wanted or refused.
        """

    def workspace(self, workspace: WorkspaceRecord) -> int | None:
        """Return behind which scan the others are wanted; None if nothing of the workspace is."""

    def document(self, document: DocumentRecord) -> bool:
        """Whether a document is wanted."""


class ContentSource:
    """Reads contents of a store, or of one scope of it; each directory of a snapshot is walked once."""

    def __init__(self, read: Read, scope: str | None) -> None:
        self._read = read
        self._scope = scope  # None: all
        self._walked = set[tuple[str, bytes]]()  # directories of snapshots

    def _pages(self, table: Table[R], limit: int = ROWS) -> Iterator[R]:
        """Yield the rows of a table in the order of its key, a page per read."""
        after = None
        while True:
            stored, after = self._read(lambda tx: table.page(tx, after, limit, scope=self._scope))  # noqa: B023
            yield from map(table.checked, stored)
            if after is None:
                return

    def _all_contents(self, known: Known) -> Iterator[Record]:
        for row in self._pages(BLOB, 200):
            if row.hash is not None and not known.has(row.scope, row.hash):  # others are being uploaded
                try:
                    yield from self._blob(row)
                except Corrupt:
                    if self._read(lambda tx: blobs.find(tx, row.scope, row.hash or "")) == row:  # noqa: B023
                        raise  # it is still there, and damaged

    def _blob(self, row: BlobRow) -> Iterator[Record]:
        yield Blob(row)
        digest = sha256()
        for number in range(row.chunks):
            found, data = self._read(lambda tx: strict_checks.chunk(tx, row, number))  # noqa: B023
            digest.update(data)
            yield Chunk(found)
        if digest.hexdigest() != row.hash:
            raise Corrupt(f"content {(row.hash or '')[:12]} does not match its hash", what=f"blob {row.hash}")

    def _needed(self, page: EntriesRecord, known: Known) -> Iterator[Record]:
        """Yield the content that entries need and that is not there; of a snapshot all that its tree leads to."""
        gone = {row.key for row in page.lost if row.what == ATTACHMENT}
        roots = {row.key for row in page.rows if row.kind == snapshots.KIND}
        for link in page.links:
            yield from self._linked(link, known, is_root=link.key in roots, strict=link.key not in gone)

    def _linked(self, link: LinkRow, known: Known, *, is_root: bool, strict: bool) -> Iterator[Record]:
        if is_root and not known.has_root(link.scope, link.hash):
            yield from self._tree(link, known, strict=strict)
        if not known.has(link.scope, link.hash):
            yield from self._content(link.scope, link.hash, strict=strict)

    def _content(self, scope: str, content_hash: str, *, strict: bool) -> Iterator[Record]:
        row = self._read(lambda tx: blobs.find(tx, scope, content_hash))
        if row is not None:
            yield from self._blob(row)
        elif strict:
            raise Corrupt(f"content {content_hash[:12]} is linked but missing", what=f"blob {content_hash}")

    def _tree(self, link: LinkRow, known: Known, *, strict: bool) -> Iterator[Record]:
        """Yield what is not there of a tree, from the leaves up; each directory is walked once."""
        try:
            waiting = [(self._read(lambda tx: roots.read(tx, link.scope, link.hash)).tree, False)]
        except Corrupt:
            if strict:
                raise
            return
        while waiting:
            digest, expanded = waiting.pop()
            if not expanded:
                if (link.scope, digest) in self._walked:
                    continue
                self._walked.add((link.scope, digest))
                waiting.append((digest, True))
                for node in self._directory(link.scope, digest, strict=strict).values():
                    if node.kind in (tree.DIR, tree.FILE):
                        waiting.append((node.content, node.kind == tree.FILE))
            elif not known.has(link.scope, digest.hex()):  # an empty directory need not be stored
                yield from self._content(link.scope, digest.hex(), strict=strict and digest != tree.EMPTY)

    def _directory(self, scope: str, digest: bytes, *, strict: bool) -> tree.Directory:
        if digest == tree.EMPTY:
            return {}
        try:
            return tree.decode(self._read(lambda tx: blobs.read_whole(tx, scope, digest.hex())))
        except Corrupt:
            if strict:
                raise
            return {}
