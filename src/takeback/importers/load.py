"""Importing an export of any form: lines in a file, lines from an open file, or a mirror's folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, BinaryIO

from ..client.store import Store
from ..errors import NotFound
from ..model.exchange import Loaded
from ..storage.files import translate
from . import folder, jsonl


def load(
    store: Store,
    source: str | BinaryIO,
    *,
    workspace: str,
    dry_run: bool,
    progress: Callable[[int], Any] | None,
) -> Loaded:
    """Load an export into the scope of a store; sessions that had a workspace get ``workspace``."""
    if not isinstance(source, str):
        return _lines(store, source, workspace, dry_run, progress)
    try:
        if os.path.isdir(source):
            return _folder(store, source, workspace, dry_run)
        with open(source, "rb") as file:
            return _lines(store, file, workspace, dry_run, progress)
    except FileNotFoundError:
        raise NotFound(f"there is no file {source!r}; Store.export writes one") from None
    except OSError as error:
        raise translate(error, source) from error


def _lines(
    store: Store, source: BinaryIO, workspace: str, dry_run: bool, progress: Callable[[int], Any] | None
) -> Loaded:
    found = jsonl.read(store, source, workspace=workspace, dry_run=dry_run, progress=progress)
    return Loaded(found.sessions, found.new, found.copied, found.renamed, dry_run)


def _folder(store: Store, path: str, workspace: str, dry_run: bool) -> Loaded:
    found, copied = folder.read(store, path, workspace=workspace, dry_run=dry_run)
    return Loaded(
        tuple(each.session for each in found),
        tuple(each.session for each in found if each.new),
        copied,
        {each.session: each.renamed for each in found if each.renamed is not None},
        dry_run,
        {each.session: each.mirrored for each in found},
    )
