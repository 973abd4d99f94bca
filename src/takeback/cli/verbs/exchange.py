"""Taking sessions out and bringing them in: export, import, and mirror, a folder that people can read."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from ...client import address
from ...client.repairing import FILES
from ...client.session import Session
from ...model import words
from ..consent import tell
from ..failing import CONFLICT, DAMAGED, NOT_FOUND, OK, USAGE, Stop, refused
from ..frame import Frame, point_of, ref_argument, verb
from ..output import block, line
from ..params import directories, files

if TYPE_CHECKING:
    from ...exporters.mirror import Mirrored
    from ...importers.folder import Brought
    from ...importers.jsonl import Imported

_FORMATS = {"jsonl": "jsonl", "md": "markdown", "html": "html"}


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
        _document(frame, ref, "md" if md else "html", path, {"tools": tools, "secrets": secrets})
        return OK
    damaged = list[str]()
    _lines(frame, _chosen(frame, ref, here, everything, damaged), path, subagents=not no_subagents)
    _tell_damaged(damaged)
    return DAMAGED if damaged else OK


def _place(frame: Frame, path: str | None) -> str | None:
    """Give the file that was named, None for stdout; a file of the store itself is refused."""
    from ...exporters import files

    if path is None or files.open_number(path) == 1:
        return None
    if address.is_server(frame.url) or address.is_memory(frame.url):
        return path
    store = address.path_of(frame.url)
    own = [f"{base}{suffix}" for base in {store, os.path.realpath(store)} for suffix in FILES]
    if files.is_one_of(path, own):
        raise Stop(f"{line(path)} belongs to the store itself; name another file for the export", CONFLICT)
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
        raise Stop(f"no session in {line(frame.url)} can be exported; takeback repair makes a copy that can", DAMAGED)
    if not found:
        raise Stop(f"there is no session in {line(frame.url)}", NOT_FOUND)
    return found


def _lines(frame: Frame, sessions: list[Session], path: str | None, *, subagents: bool) -> None:
    from ...exporters import jsonl
    from ...exporters.secrets import said

    def write(out: jsonl.Sink) -> jsonl.Written:
        with frame.progress("Export", "entries") as shown:
            return jsonl.write(
                frame.store,
                sessions,
                out,
                subagents=subagents,
                progress=lambda far: shown(far.entries, far.entries_total),
            )

    done = write(_Terminal(frame)) if path is None and frame.out.is_terminal else _written(path, write)
    counts = {"sessions": done.sessions, "entries": done.entries, "lines": done.lines, "bytes": done.bytes}
    _report(frame, "jsonl", path, counts, f"{words.count(done.sessions, 'session')}, {done.lines:,} lines")
    if done.secrets:
        tell(f"It likely holds secrets ({said(done.secrets)}): look before you give it to anybody.")


def _document(frame: Frame, ref: str | None, form: str, path: str | None, how: dict[str, Any]) -> None:
    from ...exporters import html, markdown

    found = frame.resolve(ref)
    write = html.pieces if form == "html" else markdown.pieces
    pieces = write(found.session, at=point_of(found), **how)
    if path is None and frame.out.is_terminal:
        frame.out.text(_shown(pieces), long=True)
        return
    size = _written(path, lambda out: sum(out.write(each.encode("utf-8", "replace")) for each in pieces))
    _report(frame, _FORMATS[form], path, {"sessions": 1, "bytes": size}, f"{size:,} bytes")


def _shown(pieces: Iterable[str]) -> Iterator[str]:
    return (each for piece in pieces for each in block(piece.removesuffix("\n")))


def _written(path: str | None, write: Any) -> Any:
    """Write into a file, whole or not at all, or to stdout as it comes."""
    if path is None:
        sys.stdout.flush()
        return write(sys.stdout.buffer)
    from ...exporters import files

    try:
        with files.whole(path) as out:
            return write(out)
    except OSError as error:  # it names a file of its own beside the one that was asked for
        raise Stop(refused(error, path, "write")) from error


class _Terminal:
    """Takes lines for a terminal, which must only show them."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def write(self, data: bytes) -> int:
        self._frame.out.text(block(data.decode().removesuffix("\n")))
        return len(data)


def _report(frame: Frame, form: str, path: str | None, counts: dict[str, int], said: str) -> None:
    if path is None:
        if frame.settings.verbose:
            tell(said)
        return
    document = {"path": path, "format": form, "lines": None, "entries": None, **counts}
    frame.out.one("exported", document, lambda: [f"{line(path)}: {said}"])


# ---------------------------------------------------------------------- import


@verb("import", changes=True, makes=True)
@click.argument("path", metavar="FILE", shell_complete=files)
def import_(frame: Frame, path: str) -> None:
    """Bring in what export wrote, or a folder of a mirror; - reads stdin. Doing it twice changes nothing.

    The file is judged first, every hash of it computed again: one that is cut off, changed or forged is refused, and
    nothing of it is in the store.
    """
    from ...importers import folder, jsonl

    if path != "-" and folder.is_folder(path):
        _show_folder(frame, folder.read(frame.store, path, dry_run=frame.settings.dry_run))
        return
    with _opened(path) as source, frame.progress("Import", "lines are read") as shown:
        found = jsonl.read(frame.store, source, dry_run=frame.settings.dry_run, progress=shown)
    _show_lines(frame, found)


def _opened(path: str) -> Any:
    if path == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise Stop(f"there is no file {path!r}; takeback export -o FILE writes one", NOT_FOUND) from None


def _show_lines(frame: Frame, found: Imported) -> None:
    done = found.copied
    count = words.count(len(found.sessions), "session")
    if done is None:
        tell(f"Dry run: the file is sound and holds {count}; nothing was changed.")
    names = ("sessions", "entries", "agents", "checkpoints", "operations", "blobs")
    frame.out.items(
        "imported",
        ({"id": each, "from": each} for each in found.sessions),
        lambda: [] if done is None else [str(done)],
        about={
            "new": {name: 0 if done is None else getattr(done, name) for name in names},
            "left_out": [] if done is None else [*done.left_out],
        },
    )


def _show_folder(frame: Frame, found: list[Brought]) -> None:
    would = "would be " if frame.settings.dry_run else ""
    names = ("sessions", "entries", "agents", "checkpoints", "operations", "blobs")
    frame.out.items(
        "imported",
        ({"id": each.session, "from": each.mirrored} for each in found),
        lambda: [
            f"{each.mirrored}: {f'{would}brought back as {each.session}' if each.new else 'it is here already'}"
            for each in found
        ],
        about={"new": {**dict.fromkeys(names, 0), "sessions": sum(each.new for each in found)}, "left_out": []},
    )


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
