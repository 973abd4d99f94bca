"""``ls``: the sessions of a workspace, last changed first; what is not shown is said, with the flag that shows it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from ...client.session import Session
from ...model import words
from .. import documents, times
from ..consent import tell
from ..frame import Frame, verb
from ..output import Cell

_COLUMNS = ("<  ID", "<AGE", "<AGENT", "<WORKSPACE?", "<BRANCH", ">TURNS", ">TOKENS", "<TITLE", "<?")
_FLAGS = {"agent": "--agent", "kinds": "--kind", "status": "--status", "label": "--label", "tag": "--tag"}
_FLAGS |= {"since": "--since", "archived": "--archived", "pinned": "--pinned", "trash": "--trash"}


class Since(click.ParamType[datetime]):
    """A span back from now, or a date."""

    name = "when"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, datetime):
            return value
        try:
            return times.parse_since(value)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is neither a span (90m, 36h, 2w) nor a date (2026-01-31)", param, ctx)


@verb("ls")
@click.option("-a", "--all", "everywhere", is_flag=True, help="Sessions of all workspaces.")
@click.option("--agent", help="Only of this agent.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(["main", "subagent", "cron"]), help="Only this kind.")
@click.option(
    "--status",
    multiple=True,
    type=click.Choice(["active", "completed", "error", "timeout", "stopped", "interrupted"]),
    help="Only with this status.",
)
@click.option("--since", type=Since(), help="Only changed since: 90m, 36h, 2w, 2026-01-31.")
@click.option("--label", help="Only with this label.")
@click.option("--tag", help="Only with this tag.")
@click.option("--pinned", is_flag=True, help="Only pinned ones.")
@click.option("--archived", is_flag=True, help="Archived ones too.")
@click.option("--trash", is_flag=True, help="Only what is in the trash.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
def ls(frame: Frame, everywhere: bool, limit: int, **given: Any) -> None:
    """List the sessions of this workspace, last changed first; -a lists all."""
    filters = _filters(given)
    place = None if everywhere else (frame.workspace or frame.directory)
    where: dict[str, Any] = {} if place is None else {"workspace": place}
    page = frame.store.list_sessions(**where, **filters, limit=limit)
    found = [*page]
    frame.out.items(
        "sessions",
        map(documents.session, found),
        lambda: _lines(frame, found, all_places=place is None),
        about={"workspace": place, "more": page.cursor is not None, "damaged": [*page.damaged]},
        long=True,
    )
    if frame.out.for_people:
        _footer(frame, found, place, filters, more=page.cursor is not None)
    for each in page.damaged:
        tell(f"holdfast: the record of session {each} is damaged and was left out; run: holdfast verify")


def _filters(given: dict[str, Any]) -> dict[str, Any]:
    """Give the filters that were asked for, as the library names them."""
    chosen = {name: value for name, value in given.items() if value}
    if "archived" in chosen:
        chosen["archived"] = None
    return chosen


# ---------------------------------------------------------------------- for people


def _lines(frame: Frame, found: list[Session], *, all_places: bool) -> Iterator[str]:
    if not found:
        return iter(())
    return frame.out.table(_COLUMNS, [_row(frame, each, all_places=all_places) for each in found])


def _row(frame: Frame, each: Session, *, all_places: bool) -> list[str | Cell]:
    stats, branches = each.stats(), each.branches()
    branch = documents.head_branch(each) + (f"({len(branches)})" if len(branches) > 1 else "")
    return [
        _name(frame, each),
        times.age(each.updated_at),
        each.agent_id,
        os.path.basename(each.workspace or "") or "-",
        branch,
        str(each.turn_count),
        words.short_number(stats.estimated_tokens),
        each.title or each.name or "-",
        Cell(_remark(frame, each), "yellow"),
    ]


def _name(frame: Frame, each: Session) -> Cell:
    mark, style = " ", "cyan"
    if each.status in ("interrupted", "error", "timeout"):
        mark, style = frame.out.mark("⚠", "!"), "yellow"
    elif each.holder is not None:
        mark, style = frame.out.mark("●", "*"), "green"
    elif each.pinned:
        mark = frame.out.mark("◆", "+")
    return Cell(f"{mark} {frame.short(each.id)}", style)


def _remark(frame: Frame, each: Session) -> str:
    if each.deleted:
        return f"in the trash: holdfast restore {frame.short(each.id)}"
    if each.status == "interrupted":
        turn = f" at turn {each.stopped_at}" if each.stopped_at is not None else ""
        return f"interrupted{turn}: holdfast resume {frame.short(each.id)}"
    words_ = [each.status] if each.status != "active" else []
    return ", ".join([*words_, *(f"#{tag}" for tag in each.tags), *(["archived"] if each.archived else [])])


# ---------------------------------------------------------------------- what is not shown


def _footer(frame: Frame, found: list[Session], place: str | None, filters: dict[str, Any], *, more: bool) -> None:
    _, everything = frame.count()
    if found:
        where = "all workspaces" if place is None else "this workspace; -a for all"
        hidden = "".join(f", {_FLAGS[name]}" for name in filters)
        tell(f"{len(found)} of {everything} ({where}{hidden}{'; --limit for more' if more else ''})")
    else:
        tell(_nothing(frame, place, filters))


def _nothing(frame: Frame, place: str | None, filters: dict[str, Any]) -> str:
    """Say which filter hid how many, and what shows them."""
    if frame.missing is not None:
        return f"No sessions: there is no store yet at {frame.missing}. Start one: holdfast new NAME"
    where = {} if place is None else {"workspace": place}
    here, shown = frame.count(**where)
    in_place = "" if place is None else f" in {place}"
    if filters and here:
        said = [_hidden(frame, name, where, filters) for name in filters]
        hint = "; ".join(filter(None, said)) or f"together the filters hide {shown}"
        return f"No sessions match{in_place}: {hint}. Show them: holdfast ls{'' if place else ' -a'}"
    elsewhere, count = frame.count()
    if place is not None and elsewhere:
        return f"No sessions{in_place}; {count} elsewhere. Show them: holdfast ls -a"
    archived = frame.store.list_sessions(trash=True, limit=1)
    return "No sessions" + (
        ", only some in the trash. Show them: holdfast ls -a --trash" if archived else ". Start one: holdfast new NAME"
    )


def _hidden(frame: Frame, name: str, where: dict[str, Any], filters: dict[str, Any]) -> str:
    rest = {key: value for key, value in filters.items() if key != name}
    count, shown = frame.count(**where, **rest)
    return f"{_FLAGS[name]} hides {shown}" if count else ""


COMMANDS = {"ls": ls}
