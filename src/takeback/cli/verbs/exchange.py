"""Taking sessions out and bringing them in: export, import, and mirror, a folder that people can read."""

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
from ..consent import tell
from ..frame import Frame, point_of, ref_argument, verb
from ..output import block, line
from ..params import directories, files

if TYPE_CHECKING:
    from ...exporters.mirror import Mirrored
    from ...model.exchange import Exported, Loaded

_COUNTED = ("sessions", "entries", "agents", "checkpoints", "operations", "blobs")
_IN_MEMORY = 8 << 20  # bytes of a document that is shown


# ---------------------------------------------------------------------- export


@verb("export")
@ref_argument("ref", required=False)
@click.option("--md", is_flag=True, help="A Markdown document instead: to read.")
@click.option("--html", is_flag=True, help="One HTML file instead: to read, on any device.")
@click.option(
    "-o",
    "--output",
    "path",
    metavar="FILE",
    shell_complete=files,
    help="Into this file, whole or not at all; else to stdout.",
)
@click.option("--here", is_flag=True, help="All sessions of this workspace.")
@click.option("-a", "--all", "everything", is_flag=True, help="All sessions of the store.")
@click.option("--no-subagents", is_flag=True, help="Without the sub-agents of the sessions.")
@click.option(
    "--tools",
    type=click.Choice(["full", "short", "none"]),
    default="short",
    show_default=True,
    help="With --md or --html: how much of what tools were given and gave.",
)
@click.option("--secrets", is_flag=True, help="With --md or --html: show what is likely a secret.")
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
    """Write a session as lines of JSON that import reads back, losing nothing; or as a document to read.

    With --md or --html likely secrets are hidden, and REF:12 or REF/branch is read up to there.
    """
    path = _place(frame, path)
    if path is None and not frame.out.for_people and not frame.settings.jsonl:
        raise Stop("the export itself goes to stdout; name a file for it: -o FILE", USAGE)
    if md and html:
        raise Stop("--md and --html contradict each other: leave one out", USAGE)
    if md or html:
        if here or everything or no_subagents:
            raise Stop("a document is of one session; leave out --md and --html, or name one", USAGE)
        found, kept = frame.resolve(ref), "keep" if secrets else "mask"
        how = {"format": "html" if html else "markdown", "tools": tools, "secrets": kept, "at": point_of(found)}
        _document(frame, found.session, path, how)
        return OK
    damaged = list[str]()
    _lines(frame, _chosen(frame, ref, here, everything, damaged), path, subagents=not no_subagents)
    _tell_damaged(damaged)
    return DAMAGED if damaged else OK


def _place(frame: Frame, path: str | None) -> str | None:
    """Return the file that was named, None for stdout; one of the store is refused before the store is opened."""
    from ...exporters.export import require_elsewhere

    if path is None or open_number(path) == 1:
        return None
    require_elsewhere(frame.url, path)
    return path


def _tell_damaged(damaged: list[str]) -> None:
    for each in damaged:
        tell(f"takeback: the record of session {each} is damaged and was left out; run: takeback verify")


def _chosen(frame: Frame, ref: str | None, here: bool, everything: bool, damaged: list[str]) -> list[Session]:
    """Give the sessions to export; those whose record is damaged cannot be, and are added to a list."""
    if not here and not everything:
        return [frame.session(ref)]
    if ref is not None or (here and everything):
        raise Stop("name one session, or --here, or --all", USAGE)
    if here and frame.workspace is None:
        raise Stop(
            f"no session belongs to {line(frame.directory)}; takeback export --all takes all of the store", NOT_FOUND
        )
    where: dict[str, Any] = {"workspace": frame.workspace} if here else {}
    found = [*frame.store._sessions_beside(damaged, archived=None, **where)]
    if not found and damaged:
        _tell_damaged(damaged)
        raise Stop(
            f"no session in {line(frame.shown_url)} can be exported; takeback repair makes a copy that can", DAMAGED
        )
    if not found:
        raise Stop(f"there is no session in {line(frame.shown_url)}", NOT_FOUND)
    return found


def _lines(frame: Frame, sessions: list[Session], path: str | None, *, subagents: bool) -> None:
    to: Any = _Terminal(frame) if path is None and frame.out.is_terminal else path or _stdout()
    with frame.progress("Export", "entries") as shown:
        done = frame.store.export(
            sessions, to, subagents=subagents, progress=lambda far: shown(far.entries, far.entries_total)
        )
    _report(frame, done, f"{words.count(done.sessions, 'session')}, {done.lines:,} lines")
    if done.secrets:
        tell(f"It likely holds secrets ({said(done.secrets)}): look before you give it to anybody.")


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
    """Takes lines for a terminal, which must only show them."""

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
@click.option(
    "--workspace",
    metavar="DIR",
    shell_complete=directories,
    help="Sessions that had a workspace get this one; else they have none here.",
)
def import_(frame: Frame, path: str, workspace: str | None) -> None:
    """Bring in what export wrote, or a folder of a mirror; - reads stdin. Doing it twice changes nothing.

    The file is judged first, every hash of it computed again: one that is cut off, changed or forged is refused, and
    nothing of it is in the store. No path in it is taken over. A name that is taken gets " (2)" behind it.
    """
    with frame.progress("Import", "lines are read") as shown:
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
        tell(f"Dry run: the file is sound and holds {count}; nothing was changed.")
    frame.out.items(
        "imported",
        ({"id": each, "from": mirrored.get(each, each)} for each in loaded.sessions),
        lambda: _said_of_mirror(loaded) if mirrored else [] if done is None else [str(done)],
        about={"new": new, "left_out": [] if done is None else [*done.left_out], "renamed": loaded.renamed},
    )
    for each, name in loaded.renamed.items():
        tell(f"Session {each} {'would be' if loaded.dry_run else 'is'} called {name!r} here: its name is taken.")


def _said_of_mirror(loaded: Loaded) -> list[str]:
    would = "would be " if loaded.dry_run else ""
    return [
        f"{was}: {f'{would}brought back as {each}' if each in loaded.new else 'it is here already'}"
        for each, was in loaded.mirrored.items()
    ]


# ---------------------------------------------------------------------- mirror


@verb("mirror", changes=True, looks=lambda given: True)
@click.argument("folder", metavar="DIR", shell_complete=directories)
@click.option("-f", "--follow", is_flag=True, help="Keep it up to date until Ctrl-C.")
@click.option(
    "-a", "--all", "everything", is_flag=True, help="All sessions of the store; else those of this workspace."
)
def mirror(frame: Frame, folder: str, follow: bool, everything: bool) -> int:
    """Write sessions as folders that people can read, and remove those of sessions that are gone.

    DIR/sessions/ID/ gets session.json, tasks.md, implementation_plan.md, walkthrough.md and reasoning_log.md, all
    replaced together. Only folders that a mirror of this store made are ever replaced, and removed only when their
    sessions were deleted.
    """
    from ...exporters.mirror import Mirror, require_folder

    _require_store(frame)
    place = None if everything else frame.workspace
    if place is None and not everything:
        raise Stop(
            f"no session belongs to {line(frame.directory)}; takeback mirror --all takes all of the store", NOT_FOUND
        )
    require_folder(folder)
    if frame.settings.dry_run:
        count, shown = frame.count(**({} if place is None else {"workspace": place}))
        tell(f"Dry run: would write {shown} session{'' if count == 1 else 's'} into {line(folder)}.")
        return OK
    with Mirror(frame.store, folder, workspace=place) as made:
        if follow:
            with contextlib.suppress(KeyboardInterrupt):  # how following is meant to end
                made.follow(lambda done: _show_mirrored(frame, folder, done))
            return OK
        done = made.update()
    _show_mirrored(frame, folder, done)
    return DAMAGED if done.damaged else OK


def _require_store(frame: Frame) -> None:
    """Refuse a store that is not there: it would look like one in which every session is gone."""
    assert frame.store
    if frame.missing is not None:
        raise Stop(f"there is no store at {line(frame.missing)}; name another with --store", NOT_FOUND)


def _show_mirrored(frame: Frame, folder: str, done: Mirrored) -> None:
    said = f"{len(done.written):,} written, {len(done.same):,} unchanged, {len(done.removed):,} removed"
    document = {"path": folder, **{name: [*getattr(done, name)] for name in done._fields}}
    frame.out.one("mirrored", document, lambda: [f"{line(folder)}: {said}"])
    sys.stdout.flush()
    for each in done.blocked:
        tell(f"{line(each)} is no mirror's of this store: it was left as it is; move it away to get that session here")
    for each in done.damaged:
        tell(f"takeback: session {each} is damaged; its folder was left as it is. Run: takeback verify")


COMMANDS = {"export": export, "import": import_, "mirror": mirror}
