"""Getting sessions out of a store and into one: export, import, and mirror, which writes readable folders."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from ...client.session import Session
from ...exporters.files import open_number
from ...model import words
from ...model.exchange import said
from ...shell.failures import DAMAGED, NOT_FOUND, OK, USAGE, Stop
from ...shell.points import point_of
from ..consent import tell
from ..frame import Frame, option, ref_argument, verb
from ..output import block, line
from ..params import directories, files

if TYPE_CHECKING:
    from ...exporters.mirror import Mirrored
    from ...model.exchange import Exported, Loaded

_COUNTED = ("sessions", "entries", "agents", "checkpoints", "operations", "blobs")
_IN_MEMORY = 8 << 20  # bytes of a shown document that stay in memory


# ---------------------------------------------------------------------- export


@verb("export")
@ref_argument("ref", required=False)
@option("--md", is_flag=True, help="Write a Markdown document for reading.")
@option("--html", is_flag=True, help="Write one self-contained HTML file for reading.")
@option(
    "-o",
    "--output",
    "path",
    metavar="FILE",
    shell_complete=files,
    help="Write to this file, all or nothing; default: stdout.",
)
@option("--here", is_flag=True, help="Export all sessions of this workspace.")
@option("-a", "--all", "everything", is_flag=True, help="Export all sessions of the store.")
@option("--no-subagents", is_flag=True, help="Leave out the sessions' sub-agents.")
@option(
    "--tools",
    type=click.Choice(["full", "short", "none"]),
    default="short",
    show_default=True,
    help="With --md or --html: how much of tool inputs and outputs to show.",
)
@option("--secrets", is_flag=True, help="With --md or --html: do not hide likely secrets.")
def export(
    frame: Frame,
    ref: str | None,
    md: bool,
    html: bool,
    path: str | None,
    here: bool,
    everything: bool,
    no_subagents: bool,
    tools: str,
    secrets: bool,
) -> int:
    """Export a session as JSON lines, which import reads back without loss, or as a document to read.

    With --md or --html, likely secrets are hidden, and REF:12 or REF/branch exports up to that point.
    """
    path = _place(frame, path)
    if path is None and not frame.out.for_people and not frame.settings.jsonl:
        raise Stop("the export itself goes to stdout; write it to a file instead: -o FILE", USAGE)
    if md and html:
        raise Stop("--md and --html exclude each other; leave one out", USAGE)
    if md or html:
        if here or everything or no_subagents:
            raise Stop("--md and --html export a single session; name one, or leave them out", USAGE)
        found, kept = frame.resolve(ref), "keep" if secrets else "mask"
        how = {"format": "html" if html else "markdown", "tools": tools, "secrets": kept, "at": point_of(found)}
        _document(frame, found.session, path, how)
        return OK
    damaged = list[str]()
    _lines(frame, _chosen(frame, ref, here, everything, damaged), path, subagents=not no_subagents)
    _tell_damaged(damaged)
    return DAMAGED if damaged else OK


def _place(frame: Frame, path: str | None) -> str | None:
    """Return the file to write, None for stdout; refuse one of the store's own files before opening the store."""
    from ...exporters.export import require_elsewhere

    if path is None or open_number(path) == 1:
        return None
    require_elsewhere(frame.url, path)
    return path


def _tell_damaged(damaged: list[str]) -> None:
    for each in damaged:
        tell(f"takeback: session {each} is damaged and was left out; run: takeback verify")


def _chosen(frame: Frame, ref: str | None, here: bool, everything: bool, damaged: list[str]) -> list[Session]:
    """Return the sessions to export; those that are damaged cannot be, and are added to ``damaged``."""
    if not here and not everything:
        return [frame.session(ref)]
    if ref is not None or (here and everything):
        raise Stop("a session, --here and --all exclude each other; choose one", USAGE)
    if here and frame.workspace is None:
        raise Stop(
            f"no session belongs to {line(frame.directory)}; export all sessions: takeback export --all", NOT_FOUND
        )
    where: dict[str, Any] = {"workspace": frame.workspace} if here else {}
    found = [*frame.store._sessions_beside(damaged, archived=None, **where)]
    if not found and damaged:
        _tell_damaged(damaged)
        raise Stop(
            f"no session in {line(frame.shown_url)} can be exported; make a copy that can be: takeback repair", DAMAGED
        )
    if not found:
        raise Stop(f"{line(frame.shown_url)} holds no sessions", NOT_FOUND)
    return found


def _lines(frame: Frame, sessions: list[Session], path: str | None, *, subagents: bool) -> None:
    to: Any = _Terminal(frame) if path is None and frame.out.is_terminal else path or _stdout()
    with frame.progress("Export", "entries") as shown:
        done = frame.store.export(
            sessions, to, subagents=subagents, progress=lambda far: shown(far.entries, far.entries_total)
        )
    _report(frame, done, f"{words.count(done.sessions, 'session')}, {done.lines:,} lines")
    if done.secrets:
        tell(f"It probably contains secrets ({said(done.secrets)}): check it before you share it.")


def _document(frame: Frame, session: Session, path: str | None, how: dict[str, Any]) -> None:
    if path is not None or not frame.out.is_terminal:
        done = frame.store.export(session, path or _stdout(), **how)
        _report(frame, done, f"{done.bytes:,} bytes")
        return
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as out:
        frame.store.export(session, cast("BinaryIO", out), **how)
        out.seek(0)
        frame.out.text((each for data in out for each in block(data.decode().removesuffix("\n"))), long=True)


def _stdout() -> BinaryIO:
    sys.stdout.flush()
    return sys.stdout.buffer


class _Terminal:
    """Escapes exported lines for a terminal."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def write(self, data: bytes) -> int:
        self._frame.out.text(block(data.decode().removesuffix("\n")))
        return len(data)


def _report(frame: Frame, done: Exported, said: str) -> None:
    if done.path is None:
        if frame.settings.verbose:
            tell(said)
        return
    names, where = ("path", "format", "sessions", "bytes", "lines", "entries"), line(done.path)
    frame.out.one("exported", {name: getattr(done, name) for name in names}, lambda: [f"{where}: {said}"])


# ---------------------------------------------------------------------- import


@verb("import", changes=True, makes=True)
@click.argument("path", metavar="FILE", shell_complete=files)
@option(
    "--workspace",
    metavar="DIR",
    shell_complete=directories,
    help="The workspace for sessions that had one; default: none.",
)
def import_(frame: Frame, path: str, workspace: str | None) -> None:
    """Import what export wrote, or a folder of a mirror; - reads stdin. Importing twice changes nothing.

    The file is checked first and every hash recomputed: a truncated, changed or forged file is rejected, and nothing of
    it reaches the store. Paths in the file are not trusted. A session whose name is taken gets " (2)" appended.
    """
    with frame.progress("Import", "lines read") as shown:
        loaded = frame.store.load(
            sys.stdin.buffer if path == "-" else path,
            workspace=workspace,
            dry_run=frame.settings.dry_run,
            progress=shown,
        )
    _show_loaded(frame, loaded)


def _show_loaded(frame: Frame, loaded: Loaded) -> None:
    done, mirrored = loaded.copied, loaded.mirrored
    new = {name: 0 if done is None else getattr(done, name) for name in _COUNTED}
    if done is None and not mirrored:
        count = words.count(len(loaded.sessions), "session")
        tell(f"Dry run: the file is valid and contains {count}; nothing was changed.")
    frame.out.items(
        "imported",
        ({"id": each, "from": mirrored.get(each, each)} for each in loaded.sessions),
        lambda: _said_of_mirror(loaded) if mirrored else [] if done is None else [str(done)],
        about={"new": new, "left_out": [] if done is None else [*done.left_out], "renamed": loaded.renamed},
    )
    for each, name in loaded.renamed.items():
        tell(f"Session {each} {'would be' if loaded.dry_run else 'is'} named {name!r} here, because its name is taken.")


def _said_of_mirror(loaded: Loaded) -> list[str]:
    would = "would be " if loaded.dry_run else ""
    return [
        f"{was}: {f'{would}imported as {each}' if each in loaded.new else 'already here'}"
        for each, was in loaded.mirrored.items()
    ]


# ---------------------------------------------------------------------- mirror


@verb("mirror", changes=True, looks=lambda given: True)
@click.argument("folder", metavar="DIR", shell_complete=directories)
@option("-f", "--follow", is_flag=True, help="Keep it up to date until Ctrl-C.")
@option("-a", "--all", "everything", is_flag=True, help="Mirror all sessions of the store; default: this workspace.")
def mirror(frame: Frame, folder: str, follow: bool, everything: bool) -> int:
    """Write sessions as folders that people can read, and remove the folders of deleted sessions.

    DIR/sessions/ID/ gets session.json, tasks.md, implementation_plan.md, walkthrough.md and reasoning_log.md, replaced
    together. Only folders that a mirror of this store created are ever replaced or removed, and removed only once their
    sessions were deleted.
    """
    from ...exporters.mirror import Mirror, require_folder

    _require_store(frame)
    place = None if everything else frame.workspace
    if place is None and not everything:
        raise Stop(
            f"no session belongs to {line(frame.directory)}; mirror all sessions: takeback mirror --all", NOT_FOUND
        )
    require_folder(folder)
    if frame.settings.dry_run:
        count, shown = frame.count(**({} if place is None else {"workspace": place}))
        tell(f"Dry run: would write {shown} session{'' if count == 1 else 's'} to {line(folder)}.")
        return OK
    with Mirror(frame.store, folder, workspace=place) as made:
        if follow:
            with contextlib.suppress(KeyboardInterrupt):  # the normal way to stop following
                made.follow(lambda done: _show_mirrored(frame, folder, done))
            return OK
        done = made.update()
    _show_mirrored(frame, folder, done)
    return DAMAGED if done.damaged else OK


def _require_store(frame: Frame) -> None:
    """Raise ``Stop`` if the store does not exist: the mirror would take every session for deleted."""
    assert frame.store
    if frame.missing is not None:
        raise Stop(f"there is no store at {line(frame.missing)}; name one with --store", NOT_FOUND)


def _show_mirrored(frame: Frame, folder: str, done: Mirrored) -> None:
    said = f"{len(done.written):,} written, {len(done.same):,} unchanged, {len(done.removed):,} removed"
    document = {"path": folder, **{name: [*getattr(done, name)] for name in done._fields}}
    frame.out.one("mirrored", document, lambda: [f"{line(folder)}: {said}"])
    sys.stdout.flush()
    for each in done.blocked:
        tell(f"{line(each)} is not a mirror of this store and was left alone; move it away to mirror that session")
    for each in done.damaged:
        tell(f"takeback: session {each} is damaged, so its folder was left as it is; run: takeback verify")


COMMANDS = {"export": export, "import": import_, "mirror": mirror}
