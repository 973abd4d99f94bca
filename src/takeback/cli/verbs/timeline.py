"""``timeline``: what happened to the files of a directory: when, by whom, and which paths."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click

from ...model.page import Page
from ...model.scan import Scan, ScanChange
from ...shell import documents, times
from ..consent import tell
from ..frame import Frame, above, option, verb
from ..output import Cell, line
from ..params import Value, directories, files

_PATHS = 5  # of one author in one scan; --json lists all that are kept
_MARKS = {"create": "A", "overwrite": "M", "delete": "D", "mkdir": "A", "rmdir": "D", "chmod": "m", "link": "L"}
_STYLES = {"outside": "yellow", "unclear": "yellow", "failed": "red"}


@verb("timeline")
@click.argument(
    "folder", metavar="[DIR]", required=False, type=click.Path(exists=True, file_okay=False), shell_complete=directories
)
@option("--path", metavar="PATH", shell_complete=files, help="Only changes of this file, or below this directory.")
@option("--since", type=Value("time", times.parse_moment), help="Only what was found since: 10m, 14:00, 2026-01-31.")
@option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Show at most this many scans.")
def timeline(frame: Frame, folder: str | None, path: str | None, since: Any, limit: int) -> None:
    """Show what happened to the files here, newest first: when, who, and which paths.

    WHO is a session and its call; outside, if no call of any session here was open: you, an editor, another program; or
    unclear, with those who may have done it. Go back to any moment with: takeback rewind --at TIME
    """
    place, inside = _place(frame, folder)
    wanted = inside if path is None else os.path.join(frame.directory, path)
    page = frame.store.workspace(place).timeline(path=wanted, since=since, limit=limit)
    frame.out.items(
        "scans",
        map(documents.scan, page),
        lambda: _lines(frame, page) if page else (),
        about={"workspace": place, "more": page.cursor is not None},
        long=True,
    )
    if frame.out.for_people:
        _footer(frame, page, place, filtered=wanted is not None or since is not None)


def _place(frame: Frame, folder: str | None) -> tuple[str, str | None]:
    """Return the workspace of a directory, and the directory if it is only a part of it."""
    if folder is None:
        return frame.workspace or frame.directory, None
    wanted = os.path.realpath(os.path.join(frame.directory, folder))
    known = frame.reading._with_sessions([*above(wanted)])
    place = next((each for each in above(wanted) if each in known), wanted)
    return place, None if place == wanted else wanted


# ---------------------------------------------------------------------- for people


def _lines(frame: Frame, found: Page[Scan]) -> Iterator[str]:
    rows = [row for scan in found for row in _rows(frame, scan)]
    return frame.out.table(("<WHEN", "<AGE", "<WHO", "<PATHS"), rows)


def _rows(frame: Frame, scan: Scan) -> Iterator[list[str | Cell]]:
    """Yield a row for each author of a scan."""
    when = times.stamp(scan.created_at, utc=frame.out.utc)
    age = times.age(scan.created_at)
    if scan.failed is not None:
        yield [when, age, Cell("scan failed", _STYLES["failed"]), scan.failed]
        return
    if scan.purged:
        yield [when, age, "a purged session", "erased with it"]
        return
    by_author = dict[tuple[str, str], list[ScanChange]]()
    for each in scan.changes:
        by_author.setdefault((each.kind, each.by), []).append(each)
    for number, ((kind, by), changes) in enumerate(by_author.items()):
        more = scan.more if number == 0 else 0
        yield [when, age, Cell(_who(kind, by), _STYLES.get(kind, "")), _paths(changes, more)]
        when, age = "", ""
    if not by_author:
        yield [when, age, "first scan" if not scan.more else "many changes", _paths([], scan.more)]


def _who(kind: str, by: str) -> str:
    if kind == "restore":
        return f"restored by {by}" if by else "restored"
    if kind == "unclear":
        return f"unclear: {by}"
    return by or kind


def _paths(changes: list[ScanChange], more: int) -> str:
    shown = [f"{_MARKS.get(each.action, '?')} {line(each.path)}" for each in changes[:_PATHS]]
    rest = max(0, len(changes) - _PATHS) + more
    listed = "  ".join(shown)
    if rest:
        listed = f"{listed}  and {rest:,} more" if listed else f"{rest:,} paths"
    return listed or "what was there"


def _footer(frame: Frame, found: Page[Scan], place: str, *, filtered: bool) -> None:
    if frame.missing is not None:
        tell(f"No timeline: there is no store at {line(frame.missing)} yet. Start with: takeback guard")
    elif not found and filtered:
        tell(f"Nothing matches in {line(place)}. Show everything: takeback timeline {line(place)}")
    elif not found:
        tell(f"No scans of {line(place)} yet. Watch it: takeback guard, or run a program: takeback run -- CMD")
    else:
        more = "; --limit for more" if found.cursor is not None else ""
        tell(f"{line(place)}{more}. Go back: takeback rewind --at TIME")


COMMANDS = {"timeline": timeline}
