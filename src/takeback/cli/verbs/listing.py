"""``ls``: the sessions of a workspace, last changed first; a footer counts the hidden ones and names the flag.

With a text it lists the sessions that a search finds, best match first, and its filters apply to those.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ...client.overview import Overview
from ...client.reading import Reading
from ...model import words
from ...shell import documents, times
from ...shell.failures import USAGE, Stop
from .. import no_hits, queries
from ..app import QueryCommand
from ..consent import tell
from ..frame import Frame, option, verb
from ..output import Cell
from ..params import Value

if TYPE_CHECKING:
    from ...model.search import Hits

_AT_ONCE = 100  # sessions that are searched for at once
_COLUMNS = ("<  ID", "<AGE", "<AGENT", "<WORKSPACE?", "<BRANCH", ">TURNS", ">TOKENS", "<TITLE", "<?")
_STATUSES = ("active", "completed", "error", "timeout", "stopped", "interrupted")
_FLAGS = {"agent": "--agent", "kinds": "--kind", "status": "--status", "label": "--label", "tag": "--tag"}
_FLAGS |= {"since": "--since", "archived": "--archived", "pinned": "--pinned", "trash": "--trash"}


class Matching(NamedTuple):
    """The sessions to list, whether there are more, the ids of damaged ones, and what a search says of itself."""

    sessions: Sequence[Any]
    more: bool
    damaged: Sequence[str] = ()
    hits: Hits | None = None


@verb("ls", reads=True, cls=QueryCommand)
@click.argument("text", nargs=-1)
@option("-a", "--all", "everywhere", is_flag=True, help="List the sessions of all workspaces.")
@option("--agent", help="Only sessions of this agent.")
@option("--kind", "kinds", type=click.Choice(("main", "subagent", "cron")), multiple=True, help="Only this kind.")
@option("--status", type=click.Choice(_STATUSES), multiple=True, help="Only sessions with this status.")
@option("--since", type=Value("when", times.parse_since), help="Only changed since: 90m, 36h, 2w, 2026-01-31.")
@option("--label", help="Only sessions with this label.")
@option("--tag", help="Only sessions with this tag.")
@option("--pinned", is_flag=True, help="Only pinned sessions.")
@option("--archived", is_flag=True, help="Include archived sessions.")
@option("--trash", is_flag=True, help="Only sessions in the trash.")
@option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="List at most this many.")
def ls(frame: Frame, text: tuple[str, ...], everywhere: bool, limit: int, **given: Any) -> None:
    """List the sessions of this workspace, last changed first; -a lists those of all workspaces.

    With TEXT only the sessions in which a search finds it in one entry, best match first: takeback ls flaky test
    """
    filters, words_ = _filters(given), " ".join(text)
    if words_:
        queries.require_words(words_)
    if words_ and "trash" in filters:
        raise Stop("what is in the trash is not searched; leave out TEXT or --trash", USAGE)
    frame.indexes = bool(words_)
    place = None if everywhere else (frame.workspace or frame.directory)
    where: dict[str, Any] = {} if place is None else {"workspace": place}
    if words_:
        listed = _matching(frame, words_, where, filters, limit)
    else:
        page = frame.reading.list_sessions(**where, **filters, limit=limit)
        listed = Matching(page, page.cursor is not None, page.damaged)
    found = frame.overviews(listed.sessions) if listed.sessions else []
    if listed.hits is not None and not frame.settings.json:
        for note in queries.notes(listed.hits, words_, lambda other: _command(other, everywhere=everywhere)):
            tell(note)  # before the list, or a pager would hide it
    frame.out.items(
        "sessions",
        map(documents.listed, found),
        lambda: _lines(frame, found),
        about={"workspace": place, "more": listed.more, "damaged": [*listed.damaged]},
        long=True,
    )
    if frame.out.for_people:
        _footer(frame, found, place, filters, text=words_, more=listed.more)
    for each in listed.damaged:
        tell(f"takeback: session {each} is damaged and was left out; run: takeback verify")


def _filters(given: dict[str, Any]) -> dict[str, Any]:
    """Return the chosen filters under the names the library uses."""
    chosen = {name: value for name, value in given.items() if value}
    if "archived" in chosen:
        chosen["archived"] = None
    return chosen


# ---------------------------------------------------------------------- sessions that match a text


def _matching(frame: Frame, text: str, where: dict[str, Any], filters: dict[str, Any], limit: int) -> Matching:
    """Return the sessions that a search finds and that fit the filters, best match first."""
    first = _page(frame, text, where, filters)
    fitting = _fitting(frame, text, where, filters, first)
    found = [*islice(fitting, limit)]
    return Matching(found, next(fitting, None) is not None, hits=first)


def _page(
    frame: Frame, text: str, where: dict[str, Any], filters: dict[str, Any], *, cursor: str | None = None
) -> Hits:
    with frame.progress("Indexing", "changes") as progress:
        return frame.reading.search(
            text,
            **where,
            agent=filters.get("agent"),
            group="session",
            limit=_AT_ONCE,
            cursor=cursor,
            progress=progress,
        )


def _fitting(
    frame: Frame, text: str, where: dict[str, Any], filters: dict[str, Any], first: Hits | None = None
) -> Iterator[Reading]:
    hits = first if first is not None else _page(frame, text, where, filters)
    while True:
        for hit in hits:
            session = frame.reading.find_session(hit.session_id)
            if session is not None and _fits(session, filters):
                yield session
        if hits.cursor is None:
            return
        hits = _page(frame, text, where, filters, cursor=hits.cursor)


def _fits(session: Reading, filters: dict[str, Any]) -> bool:
    """Whether a session is one that a listing with these filters would show."""
    return (
        (session.archived is False or "archived" in filters)
        and session.kind in filters.get("kinds", (session.kind,))
        and session.status in filters.get("status", (session.status,))
        and filters.get("label") in (None, session.label)
        and ("tag" not in filters or filters["tag"] in session.tags)
        and ("pinned" not in filters or session.pinned)
        and ("since" not in filters or session.updated_at >= filters["since"])
    )


# ---------------------------------------------------------------------- for people


def _lines(frame: Frame, found: list[Overview[Any]]) -> Iterator[str]:
    if not found:
        return iter(())
    return frame.out.table(_COLUMNS, [_row(frame, each) for each in found])


def _row(frame: Frame, seen: Overview[Any]) -> list[str | Cell]:
    each: Reading = seen.session
    return [
        _name(frame, seen),
        times.age(each.updated_at),
        each.agent_id,
        os.path.basename(each.workspace or "") or "-",
        seen.branch + (f"({seen.branches})" if seen.branches > 1 else ""),
        str(each.turn_count),
        words.short_number(seen.stats.estimated_tokens),
        each.title or each.name or "-",
        Cell(_remark(frame, seen), "yellow"),
    ]


def _name(frame: Frame, seen: Overview[Any]) -> Cell:
    each: Reading = seen.session
    mark, style = " ", "cyan"
    if seen.waiting:
        mark, style = "?", "yellow"
    elif each.status in ("interrupted", "error", "timeout"):
        mark, style = frame.out.mark("⚠", "!"), "yellow"
    elif each.holder is not None:
        mark, style = frame.out.mark("●", "*"), "green"
    elif each.pinned:
        mark = frame.out.mark("◆", "+")
    return Cell(f"{mark} {frame.short(each.id)}", style)


def _remark(frame: Frame, seen: Overview[Any]) -> str:
    each: Reading = seen.session
    if each.deleted:
        return f"in the trash: takeback restore {frame.short(each.id)}"
    if seen.waiting:
        return f"waits for an answer: takeback approve {frame.short(each.id)}, or deny"
    if each.status == "interrupted":
        turn = f" at turn {each.stopped_at}" if each.stopped_at is not None else ""
        return f"interrupted{turn}: takeback resume {frame.short(each.id)}"
    words_ = [each.status] if each.status != "active" else []
    return ", ".join([*words_, *(f"#{tag}" for tag in each.tags), *(["archived"] if each.archived else [])])


# ---------------------------------------------------------------------- what is not shown


def _footer(
    frame: Frame, found: list[Overview[Any]], place: str | None, filters: dict[str, Any], *, text: str, more: bool
) -> None:
    _, everything = frame.count()
    if found:
        where = "all workspaces" if place is None else "this workspace; -a for all"
        hidden = "".join(f", {_FLAGS[name]}" for name in filters)
        count = f"{len(found)} of {everything}"
        if text:
            count = f"{'First ' if more else ''}{words.count(len(found), 'session')} with {words.plain(repr(text))}"
        tell(f"{count} ({where}{hidden}{'; --limit for more' if more else ''})")
    elif text and frame.missing is None:
        tell(_no_match(frame, text, place, filters))
    else:
        tell(_nothing(frame, place, filters))


def _no_match(frame: Frame, text: str, place: str | None, filters: dict[str, Any]) -> str:
    """Explain that no session matches a text, with the command that does find one."""
    if (reason := no_hits.no_sessions(frame)) is not None:
        return words.plain(f"No session matches: {reason}")
    where = "" if place is None else f" in {place}"
    flags = "".join(f", {_FLAGS[name]}" for name in filters)
    return words.plain(f"No session{where} matches {text!r}{flags}. {_elsewhere(frame, text, place, filters)}".rstrip())


def _elsewhere(frame: Frame, text: str, place: str | None, filters: dict[str, Any]) -> str:
    if place is not None and any(_fitting(frame, text, {}, filters)):
        return f"Other workspaces have one: {_command(text)}"
    if any(_fitting(frame, text, {}, {"archived": True})):
        chosen = not any(_fitting(frame, text, {}, {}))
        return f"{'An archived one does' if chosen else 'Others do'}: {_command(text, archived=chosen)}"
    advice = no_hits.spelling(text, lambda other: _command(other) if any(_fitting(frame, other, {}, {})) else None)
    return f"Nor does any other ({no_hits.NOWHERE}). {advice}"


def _command(text: str, *, everywhere: bool = True, archived: bool = False) -> str:
    """Return the command that lists the sessions with a text."""
    flags = f"{'-a ' if everywhere else ''}{'--archived ' if archived else ''}"
    return f"takeback ls {flags}{queries.typed(text)}"


def _nothing(frame: Frame, place: str | None, filters: dict[str, Any]) -> str:
    """Explain an empty list: which filter hid how many sessions, and how to show them."""
    if frame.missing is not None:
        return f"No sessions: there is no store at {words.plain(frame.missing)} yet. Start one: takeback new NAME"
    where = {} if place is None else {"workspace": place}
    here, shown = frame.count(**where)
    in_place = "" if place is None else f" in {place}"
    if filters and here:
        said = [_hidden(frame, name, where, filters) for name in filters]
        hint = "; ".join(filter(None, said)) or f"the filters together hide {shown}"
        return f"No matching sessions{in_place}: {hint}. Show them: takeback ls{'' if place else ' -a'}"
    elsewhere, count = frame.count()
    if place is not None and elsewhere:
        return f"No sessions{in_place} yet; {count} elsewhere. Show them: takeback ls -a"
    archived = frame.reading.list_sessions(trash=True, limit=1)
    return "No sessions" + (
        ", only some in the trash. Show them: takeback ls -a --trash" if archived else ". Start one: takeback new NAME"
    )


def _hidden(frame: Frame, name: str, where: dict[str, Any], filters: dict[str, Any]) -> str:
    rest = {key: value for key, value in filters.items() if key != name}
    count, shown = frame.count(**where, **rest)
    return f"{_FLAGS[name]} hides {shown}" if count else ""


COMMANDS = {"ls": ls}
