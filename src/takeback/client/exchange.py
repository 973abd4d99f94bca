"""Sessions out of a store and in again: arguments are checked here, then handed over.

Exporters and importers are shells: they build on the handles of a store, so nothing below them knows them. This module
is the one exception, and imports them only when it is called: two imports that the layer contract names.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from ..errors import Invalid, Unsupported
from ..model.copied import Copying
from ..model.exchange import Exported, Loaded
from . import arguments
from .points import Point
from .session import Session

if TYPE_CHECKING:
    from .store import Store

Target: TypeAlias = "str | PathLike[str] | BinaryIO"
LINES, DOCUMENTS, PLANNED = "jsonl", ("markdown", "html"), ("atif",)
_TOOLS, _SECRETS = ("full", "short", "none"), ("mask", "keep")


def export(
    store: Store,
    sessions: Session | str | Iterable[Session | str],
    to: Target,
    *,
    format: str,
    subagents: bool,
    documents: bool,
    tools: str,
    secrets: str,
    at: Point | None,
    progress: Callable[[Copying], Any] | None,
) -> Exported:
    """Check the arguments of an export, and let an exporter write it."""
    from ..exporters.export import write_document, write_lines

    ids, target = _ids(sessions), _opened(to, "write", "wb")
    _require_one_of(format, (LINES, *DOCUMENTS), what="format")
    _require_one_of(tools, _TOOLS, what="tools")
    _require_one_of(secrets, _SECRETS, what="secrets")
    arguments.flag(subagents, what="subagents")
    arguments.flag(documents, what="documents")
    if format == LINES:
        if at is not None:
            raise Invalid("jsonl always holds whole sessions; at= is only for markdown and html")
        return write_lines(store, ids, target, subagents=subagents, documents=documents, progress=progress)
    if documents:
        raise Invalid("only jsonl holds documents of the store; export them with format='jsonl'")
    if len(ids) != 1:
        raise Invalid(f"a document holds one session, not {len(ids)}; export each on its own, or all of them as jsonl")
    return write_document(store, ids[0], target, format=format, tools=tools, keep=secrets == "keep", at=at)


def load(
    store: Store,
    source: Target,
    *,
    workspace: str | PathLike[str] | None,
    dry_run: bool,
    progress: Callable[[int], Any] | None,
) -> Loaded:
    """Check the arguments of a load, and let an importer read it."""
    from ..importers.load import load as read

    place = arguments.workspace(workspace)
    arguments.flag(dry_run, what="dry_run")
    if store.capabilities.read_only and not dry_run:
        raise Unsupported("this store was opened read-only; open it for writing to load sessions", capability="write")
    return read(store, _opened(source, "readline", "rb"), workspace=place, dry_run=dry_run, progress=progress)


def _ids(sessions: Session | str | Iterable[Session | str]) -> list[str]:
    given = [sessions] if isinstance(sessions, Session | str) else arguments.many(sessions, what="sessions")
    if not given:
        raise Invalid("no session was given; pass at least one to export")
    found = (each.id if isinstance(each, Session) else arguments.name(each, what="session id") for each in given)
    return [*dict.fromkeys(found)]


def _require_one_of(value: object, known: tuple[str, ...], *, what: str) -> None:
    if value in PLANNED and what == "format":
        raise Unsupported(f"the format {value!r} is not supported yet; use {', '.join(known)}", capability=str(value))
    if not isinstance(value, str) or value not in known:
        raise Invalid(f"{what} must be {', '.join(known[:-1])} or {known[-1]}, not {value!r:.40}")


def _opened(given: Any, does: str, mode: str) -> str | BinaryIO:
    """Return a path as text, and an open binary file as it is."""
    if isinstance(given, str | PathLike):
        path = fspath(given)
        if not isinstance(path, str) or not path or "\0" in path:
            raise Invalid(f"{path!r:.80} does not name a file")
        return path
    if isinstance(given, io.TextIOBase) or not callable(getattr(given, does, None)):
        raise Invalid(f"pass a path or a file opened with mode {mode!r}, not {type(given).__name__}")
    if getattr(given, "closed", False):
        raise Invalid("the file is closed; open it again, or pass its path")
    return given  # type: ignore[no-any-return]
