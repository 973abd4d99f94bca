"""``doctor``: checks the store, its location and this installation for anything that could cause trouble later."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

from ... import __version__, mounts
from ...client import open_to_read
from ...client.store import Store
from ...errors import Error, Unsupported
from ...model import words
from ...search.searcher import BEHIND
from ...shell.failures import DAMAGED, FAILED
from ...storage.beside import SUFFIX
from ..frame import Frame, option, verb
from ..output import line
from .health import problem

_ROOM = 100_000_000  # bytes: warn if less is free
_LOG = 64_000_000  # bytes: a log this large should have been checkpointed into the store long ago
_EXTRAS = {"psycopg": "postgres", "tiktoken": "tokens", "genai_prices": "prices"}


class Finding(NamedTuple):
    """The result of one check: ``ok``, ``note`` or ``problem``, what was found, and how to fix it."""

    kind: str
    where: str
    what: str
    fix: str = ""


@verb("doctor")
@option("--full", is_flag=True, help="Verify the store too, as takeback verify does.")
def doctor(frame: Frame, full: bool) -> int | None:
    """Check the store, its location and this installation, and suggest fixes; nothing is changed."""
    found = [*_installation(), *_store(frame)]
    damage = None
    if full and frame.missing is None and not _failed(found):
        with frame.progress("Verifying", "records") as progress:
            damage = frame.store.verify(progress=progress)
    if damage is not None:
        said = f"{damage.checked:,} records checked, {words.count(len(damage.problems), 'problem')}"
        found.append(Finding("problem" if damage else "ok", "records", said, "takeback verify" if damage else ""))
    frame.out.items(
        "findings",
        map(_document, found),
        lambda: _lines(frame, found),
        about={"url": frame.shown_url, "problems": [] if damage is None else [*map(problem, damage.problems)]},
    )
    return DAMAGED if damage else FAILED if _failed(found) else None


def _failed(found: list[Finding]) -> bool:
    return any(each.kind == "problem" for each in found)


def _document(each: Finding) -> dict[str, Any]:
    return {"id": each.where, "kind": each.kind, "what": each.what, "fix": each.fix}


def _lines(frame: Frame, found: list[Finding]) -> Iterator[str]:
    styles, signs = {"ok": "green", "note": "yellow", "problem": "red"}, {"ok": "ok", "note": "!", "problem": "!!"}
    for each in found:
        fix = f"  -> {line(each.fix)}" if each.fix else ""
        yield f"{frame.out.paint(f'{signs[each.kind]:2}', styles[each.kind])} {each.where:12} {line(each.what)}{fix}"
    problems, notes = (sum(each.kind == kind for each in found) for kind in ("problem", "note"))
    yield f"{words.count(problems, 'problem')}, {words.count(notes, 'note')}"


# ---------------------------------------------------------------------- checks


def _installation() -> Iterator[Finding]:
    import apsw

    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("ok", "installation", f"takeback {__version__}, Python {python}, SQLite {apsw.sqlite_lib_version()}")
    there = [extra for module, extra in _EXTRAS.items() if find_spec(module) is not None]
    missing = [extra for extra in _EXTRAS.values() if extra not in there]
    more = f"; not installed: {', '.join(missing)} (pip install 'takeback[{missing[0]}]')" if missing else ""
    yield Finding("ok", "extras", f"{', '.join(there) or 'none'}{more}")


def _store(frame: Frame) -> Iterator[Finding]:
    try:
        store = frame.store
    except Unsupported as error:
        old = error.capability == "migrate"
        yield Finding("problem", "store", str(error), "takeback migrate" if old else "")
        return
    except Error as error:
        yield Finding("problem", "store", str(error))
        return
    if frame.missing is not None:
        yield Finding("note", "store", f"there is no store at {frame.missing} yet", "takeback new NAME")
        return
    stats = store.stats()
    yield Finding("ok", "store", f"{store.url}: {stats}")
    if store.capabilities.file:
        yield from _file(store.capabilities.file, stats.total_bytes)
    yield from _sessions(store)
    yield _search(frame)


def _search(frame: Frame) -> Finding:
    """Check the search index, through a handle that uses the one beside the store."""
    with contextlib.closing(open_to_read.open_for_reading(frame.url, indexes=True)) as reading:
        file = reading.capabilities.file
        if file and not os.path.exists(file + SUFFIX):
            return Finding("note", "search", "no index yet: the first search makes one")
        said = [each.what for each in reading.check_search().problems]
    if not said:
        return Finding("ok", "search", "the index is intact")
    kind = "note" if all(each.startswith(BEHIND) for each in said) else "problem"
    fix = "takeback search --rebuild" if kind == "problem" else "the next search adds them"
    return Finding(kind, "search", "; ".join(said), fix)


def _file(path: str, size: int) -> Iterator[Finding]:
    """Check permissions, disk space and log of a store that is a file."""
    for each, most in ((path, 0o600), (os.path.dirname(path), 0o755)):
        mode = stat.S_IMODE(os.stat(each).st_mode)
        if mode & ~most & 0o077:
            yield Finding("problem", "rights", f"others can use {each} (mode {mode:03o})", f"chmod {most:o} {each}")
            break
    else:
        yield Finding("ok", "rights", f"only you can read {path}")
    free = shutil.disk_usage(path).free
    short = free < max(_ROOM, size // 10)
    yield Finding(
        "problem" if short else "ok",
        "disk",
        f"{free / 1e9:,.1f} GB free, {mounts.kind_of(path) or 'unknown file system'}",
        "free some space: on a full disk writes fail, though nothing is lost" if short else "",
    )
    log = f"{path}-wal"
    if os.path.exists(log) and os.path.getsize(log) > _LOG:
        what = f"{os.path.getsize(log) / 1e6:,.0f} MB not yet merged into the store"
        yield Finding("note", "log", what, "a long-running reader keeps it from shrinking: end that process")


def _sessions(store: Store) -> Iterator[Finding]:
    cut_off = store.list_sessions(status="interrupted", archived=None, limit=1000)
    if cut_off:
        count = f"{len(cut_off)}{'+' if cut_off.cursor else ''}"
        yield Finding("note", "sessions", f"{count} interrupted", "takeback ls -a --status interrupted")
    gone = {each.workspace for each in store.list_sessions(limit=1000) if each.workspace}
    gone = {each for each in gone if not os.path.isdir(each)}
    if gone:
        some = ", ".join(sorted(gone)[:3])
        yield Finding("note", "workspaces", f"{len(gone)} missing: {some}", "captured files are kept")


COMMANDS = {"doctor": doctor}
