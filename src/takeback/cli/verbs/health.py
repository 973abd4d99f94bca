"""The health of a store: verify, repair, backup, migrate. And the completion scripts for shells."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click

from ...client.backup import LEFT_OUT
from ...client.open import migrate as bring_up_to_date
from ...client.open import open_store
from ...errors import Unsupported
from ...model import words
from ...model.report import Problem, Report
from ...shell.failures import DAMAGED, FAILED, NOT_FOUND, Stop
from ..consent import tell
from ..frame import Frame, option, verb
from ..output import line
from ..params import files


@verb("verify")
def verify(frame: Frame) -> int | None:
    """Recompute every checksum and hash in the store; nothing is changed. Exit code 7 means damage."""
    store = _there(frame)
    with frame.progress("Verifying", "records") as progress:
        report = store.verify(progress=progress)
    frame.out.items(
        "problems",
        map(problem, report.problems),
        lambda: _report_lines(report),
        about={"url": store.url, "checked": report.checked},
    )
    if report and frame.out.for_people:
        tell("Make a copy without the damaged parts: takeback repair")
    return DAMAGED if report else None


def _there(frame: Frame) -> Any:
    store = frame.store
    if frame.missing is not None:
        raise Stop(f"there is no store at {frame.missing}; name one with --store", NOT_FOUND)
    return store


def problem(each: Problem) -> dict[str, Any]:
    """Describe a problem for ``--json``."""
    return {"id": each.where, "kind": each.kind, "what": each.what, "fix": each.fix}


def _report_lines(report: Report) -> Iterator[str]:
    yield from (line(str(each)) for each in report.problems)
    count = words.count(len(report.problems), "problem") if report.problems else "no problems"
    yield f"{report.checked:,} records checked, {count}"


@verb("repair", changes=True)
@option(
    "--to",
    metavar="FILE",
    shell_complete=files,
    help="Where to write the copy; default: beside the store, with .repaired appended.",
)
def repair(frame: Frame, to: str | None) -> int | None:
    """Copy the store without the damaged parts, verify the copy, and list what was lost; the store is not changed."""
    store = _there(frame)
    if frame.settings.dry_run:
        report = store.verify()
        tell(f"Dry run: would make a copy without {words.count(len(report.problems), 'problem')}.")
        return None
    with frame.progress("Repairing", "making a copy"):
        done = store.repair(to)
    frame.out.items(
        "lost",
        map(problem, done.lost),
        lambda: [
            *(f"lost: {line(str(each))}" for each in done.lost),
            f"{line(done.path)}: {len(done.lost):,} lost, {done.rebuilt:,} rebuilt",
        ],
        about={"path": done.path, "rebuilt": done.rebuilt, "problems": len(done.report.problems)},
    )
    return DAMAGED if done.report else None


@verb("backup", changes=True, looks=lambda given: True)
@click.argument("file", shell_complete=files)
def backup(frame: Frame, file: str) -> int | None:
    """Copy the whole store to a new file, as of one moment, and verify the copy; the store may be in use."""
    store = _there(frame)
    if frame.settings.dry_run:
        tell(f"Dry run: would copy {store.stats()} to {line(file)}.")
        return None
    with frame.progress("Backing up", "records verified") as progress:
        report = store.backup(file, progress=progress)
    path, size, count = os.path.realpath(file), os.path.getsize(file), len(report.problems) or "no"
    frame.out.items(
        "backup",
        map(problem, report.problems),
        lambda: [
            *(line(str(each)) for each in report.problems),
            f"{line(path)}: {size / 1e6:,.1f} MB, {report.checked:,} records checked, {count} problems",
        ],
        about={"path": path, "bytes": size, "checked": report.checked},
    )
    if frame.out.for_people:
        tell(f"Inspect it with: takeback --store {line(file)} ls -a")
    return DAMAGED if any(each.kind != LEFT_OUT for each in report.problems) else None


@verb("migrate", changes=True, makes=True)
@option("--check", is_flag=True, help="Only report whether an update is needed; exit code 1 if so.")
def migrate(frame: Frame, check: bool) -> None:
    """Bring the store's tables up to date; opening a store for writing also does that."""
    current = _is_current(frame.url)
    if check or frame.settings.dry_run:
        if not current:
            raise Stop(f"{frame.shown_url} has tables of an older version; update them: takeback migrate", FAILED)
        frame.out.one(
            "migration", {"url": frame.shown_url, "current": True}, lambda: [f"{line(frame.shown_url)} is up to date"]
        )
        return
    version = bring_up_to_date(frame.url)
    frame.out.one(
        "migration",
        {"url": frame.shown_url, "current": True},
        lambda: [f"{line(frame.shown_url)} is at version {version}{'' if current else ' now'}"],
    )


def _is_current(url: str) -> bool:
    """Whether a store's tables are current: one whose tables are older cannot be opened read-only."""
    try:
        open_store(url, read_only=True).close()
    except Unsupported as error:
        if error.capability != "migrate":
            raise
        return False
    return True


# ---------------------------------------------------------------------- completion


@verb("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(frame: Frame, shell: str) -> None:
    """Print the script that completes verbs, flags, names and branches: eval "$(takeback completion bash)"."""
    from ..app import make
    from ..completion import script

    frame.out.text(script(make(), shell).splitlines())


COMMANDS = {"verify": verify, "repair": repair, "backup": backup, "migrate": migrate, "completion": completion}
