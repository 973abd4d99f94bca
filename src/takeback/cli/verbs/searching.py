"""``search``: what was said and done in all sessions, ranked; each hit with the ref that shows it.

A hit is two lines: where it is, and what it says there with the matches marked. The snippet wraps below its own indent
on a terminal, so it reads the same at 60 columns and at 120. A page that is not the last one ends with the command of
the next: it repeats the filters, with times as moments, because a cursor belongs to one question.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from ...client import address
from ...model import words
from ...model.search import Hit, Hits
from ...search import query, texts
from ...shell import documents, times
from ...shell.failures import NOTHING
from .. import no_hits, queries
from ..app import QueryCommand
from ..consent import tell
from ..frame import Frame, option, ref_option, verb
from ..output import Cell, edge, line, width
from ..params import Value, files

_COLUMNS = ("<REF", "<AGE", "<WHAT", "<WORKSPACE?", "<SESSION")
_ROLES = ("user", "assistant", "system")
_TOOL = ("call", "result")  # what the name ``tool`` stands for, besides the role
_INDENT = "    "
_LIMIT = 20
_LEAST = 30  # columns that a snippet gets at least
_MATCH = re.compile(r"«([^«»]*)»")
# Filters by parameter: the flag that a person types.
_FLAGS = {"places": "--in", "tool": "--tool", "path": "--path", "since": "--since", "until": "--until"}
_FLAGS |= {"agent": "--agent", "session": "--session"}
NO_FILTERS = {"places": (), "tool": (), **dict.fromkeys(("path", "since", "until", "agent", "session"))}
_SWITCHES = {"by_session": "--sessions", "branches": "--branches", "explain": "--explain"}


def names() -> tuple[str, ...]:
    """Return everything that ``--in`` takes: roles, tools, then kinds."""
    return (*_ROLES, "tool", *(kind for kind in texts.KINDS if kind not in _TOOL), *_TOOL)


def _places(text: str) -> tuple[str, ...]:
    """Parse the names of ``--in``; one that is not known raises ``ValueError`` with what is near."""
    found = tuple(each.strip().lower() for each in text.split(",") if each.strip())
    for each in found:
        if each not in names():
            from difflib import get_close_matches

            near = get_close_matches(each, names(), n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"choose from: {', '.join(names())}"
            raise ValueError(f"{each!r} is not a part of a session; {hint}")
    if not found:
        raise ValueError(f"--in is empty; choose from: {', '.join(names())}")
    return found


def _names(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def _complete_places(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names() if name.startswith(last)]


@verb("search", reads=True, cls=QueryCommand)
@click.argument("words_", metavar="[WORDS]...", nargs=-1)
@option("-a", "--all", "everywhere", is_flag=True, help="Search the sessions of all workspaces.")
@option(
    "--in",
    "places",
    metavar="A,B",
    type=Value("names", _places),
    multiple=True,
    shell_complete=_complete_places,
    help="Only in these: user, assistant, system, tool, plan, note, task, title, file...",
)
@option(
    "--tool", metavar="A,B", type=Value("names", _names), multiple=True, help="Only inputs and outputs of these tools."
)
@option(
    "--path",
    metavar="PATH",
    shell_complete=files,
    help="Only what has this path in it, as a phrase; one word matches any text.",
)
@option("--since", type=Value("time", times.parse_moment), help="Only what came after: 14:00, 36h, 2w, 2026-01-31.")
@option("--until", type=Value("time", times.parse_moment), help="Only what came before.")
@option("--agent", help="Only sessions of this agent.")
@ref_option("--session", metavar="REF", help="Only this session, wherever it belongs.")
@option("--sessions", "by_session", is_flag=True, help="Show only the best hit of each session.")
@option("--branches", is_flag=True, help="Also search branches that were left, for example by a rewind.")
@option("--explain", is_flag=True, help="Show what each score is made of.")
@option("--limit", type=click.IntRange(1, 1000), default=_LIMIT, show_default=True, help="Show at most this many.")
@option("--cursor", metavar="CURSOR", help="Show the next page; the page before it prints this command.")
@option("--rebuild", is_flag=True, help="Rebuild the search index first.")
def search(frame: Frame, words_: tuple[str, ...], rebuild: bool, **given: Any) -> int | None:
    """Search what was said and done in the sessions of this workspace; -a searches all of them.

    Words, "a phrase", begin*, one OR other, -without; all words must occur. In a shell, put single quotes around a
    phrase, '"connection pool"', and around a query with a dash: 'pool -lock' or 'git push --force'. Without words,
    filters list all there is, newest first. Exit code 3 means that nothing was found.
    """
    frame.indexes = True
    asked = TypedSearch(frame, words_, given)
    text = asked.text
    asks = not (rebuild and not text.strip() and not asked.narrows)
    if asks and not (asked.narrows and asked.query.only_filters):
        queries.require_words(text)
    if rebuild:
        _rebuild(frame)
    hits = asked.page() if asks else Hits([], None)
    if not frame.settings.json:  # the document says so itself
        for note in queries.notes(hits, text, asked.command):
            tell(note)  # before the hits, or a pager would hide it
    frame.out.items(
        "hits",
        map(documents.hit, hits),
        lambda: _lines(frame, hits, everywhere=asked.place is None),
        about={
            "query": text,
            "workspace": asked.place,
            "exact": hits.exact,
            "notes": [*hits.notes],
            "cursor": hits.cursor,
        },
        long=True,
    )
    if not asks:
        return None
    if frame.out.for_people:
        tell(line(_footer(asked, hits) if hits else no_hits.explained(frame, asked)))
    return None if hits else NOTHING


def _rebuild(frame: Frame) -> None:
    frame.require_store()
    with frame.progress("Indexing", "changes") as progress:
        frame.reading.rebuild_search(progress=progress)
    tell("Search index rebuilt.")


class TypedSearch:
    """A question: what the flags mean for the library, and how to type it again."""

    def __init__(self, frame: Frame, words_: tuple[str, ...], given: dict[str, Any]) -> None:
        self._frame, self._words, self._given = frame, words_, given
        self._session = None if given["session"] is None else frame.session(given["session"]).id
        self.text = " ".join(words_)
        self.query = query.parse(self.text)
        self.agent: str | None = given["agent"]
        self.tools = [name for each in given["tool"] for name in each]
        one = self._session is not None
        self.place = None if given["everywhere"] or one else frame.workspace or frame.directory

    def page(self, text: str | None = None, **other: Any) -> Hits:
        """Search, with a progress line while a backlog is indexed; ``other`` replaces what was typed."""
        given = {**self._given, **other}
        chosen = [name for each in given["places"] for name in each]
        with self._frame.progress("Indexing", "changes") as progress:
            return self._frame.reading.search(
                self.text if text is None else text,
                roles=[name for name in chosen if name in (*_ROLES, "tool")],
                kinds=[kind for name in chosen for kind in _kinds(name)],
                tool=[name for each in given["tool"] for name in each] or None,
                path=given["path"],
                since=given["since"],
                until=given["until"],
                agent=given["agent"],
                session=None if given["session"] is None else self._session,
                workspace=None if given["everywhere"] else self.place,
                group="session" if given["by_session"] else "message",
                branches=given["branches"],
                explain=given["explain"],
                limit=given["limit"],
                cursor=given["cursor"],
                progress=progress,
            )

    def finding(self, text: str | None = None, *, here: bool = True, filtered: bool = True, **other: Any) -> str | None:
        """Return the command of another search that finds something: where this one looked, or else everywhere."""
        changes = {**({} if filtered else NO_FILTERS), **other, "limit": 1, "cursor": None}
        if here and self.place is not None and self.page(text, **changes):
            return self.command(text, filtered=filtered, **other)
        if self.page(text, **changes, everywhere=True):
            return self.command(text, everywhere=True, filtered=filtered, **other)
        return None

    @property
    def filters(self) -> list[str]:
        """The filters that may have hidden something, as they are typed."""
        import shlex

        said = [*self._typed()]
        return [f"{flag} {shlex.quote(value)}" for flag, value in zip(said[::2], said[1::2], strict=True)]

    @property
    def narrows(self) -> bool:
        """Whether there is a filter."""
        return any(self._given[name] for name in _FLAGS)

    @property
    def is_of_one_session(self) -> bool:
        """Whether one session is searched, wherever it belongs."""
        return self._session is not None

    @property
    def branches(self) -> bool:
        """Whether branches that were left are searched too."""
        return bool(self._given["branches"])

    def command(
        self,
        text: str | None = None,
        *,
        more: Sequence[str] = (),
        everywhere: bool = False,
        filtered: bool = True,
        **other: Any,
    ) -> str:
        """Return the command that asks this again, with another text or other flags before the words."""
        import shlex

        given, settings = {**self._given, **other}, self._frame.settings
        query_ = self._words if text is None else (text,)
        parts = ["takeback", "search"]
        parts += ["--store", address.shown(settings.store)] if settings.store else []
        parts += ["-C", settings.directory] if settings.directory is not None else []
        parts += ["-a"] if given["everywhere"] or (everywhere and not (filtered and self.is_of_one_session)) else []
        parts += [*self._typed()] if filtered else []
        parts += [flag for name, flag in _SWITCHES.items() if given[name]]
        parts += ["--limit", str(given["limit"])] if given["limit"] != _LIMIT else []
        parts += [*more, *(["--"] if any(each.startswith("-") for each in query_) else []), *query_]
        return shlex.join(parts)

    def _typed(self) -> Iterator[str]:
        """Yield the filters as they are typed, with times as moments."""
        for name, flag in _FLAGS.items():
            value = self._given[name]
            if isinstance(value, tuple):
                yield from (flag, ",".join(each for some in value for each in some)) if value else ()
            elif value is not None:
                yield from (flag, _moment(value) if isinstance(value, datetime) else value)


def _kinds(name: str) -> tuple[str, ...]:
    return _TOOL if name == "tool" else () if name in _ROLES else (name,)


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


# ---------------------------------------------------------------------- for people


def _lines(frame: Frame, hits: Hits, *, everywhere: bool) -> Iterator[str]:
    """Yield two lines for each hit; more where the snippet wraps."""
    if not hits:
        return
    places = _workspaces(frame, hits) if everywhere else {}
    heads = frame.out.table(_COLUMNS, [_row(each, places.get(each.session_id, "")) for each in hits])
    yield next(heads)
    for each, head in zip(hits, heads, strict=True):
        yield head
        yield from _snippet(frame, each.snippet)
        if each.why is not None:
            yield _INDENT + frame.out.paint(_why(each), "dim")


def _row(hit: Hit, place: str) -> list[str | Cell]:
    what = hit.role if hit.kind == "message" and hit.role else f"{hit.tool or ''} {hit.kind}".strip()
    return [Cell(hit.ref, "cyan"), times.age(hit.created_at), what, place, Cell(hit.title or "-", "dim")]


def _workspaces(frame: Frame, hits: Iterable[Hit]) -> dict[str, str]:
    """Return the last part of the workspace of each session."""
    found = {each: frame.reading.find_session(each) for each in dict.fromkeys(hit.session_id for hit in hits)}
    return {name: os.path.basename(each.workspace or "") or "-" for name, each in found.items() if each is not None}


def _snippet(frame: Frame, text: str) -> Iterator[str]:
    """Yield a snippet in lines as wide as the terminal; a pipe gets one line."""
    shown = line(text)
    room = max(edge() - len(_INDENT), _LEAST) if frame.out.is_terminal else width(shown)
    for each in _marked(_wrapped(shown, room)) if frame.out.colored else _wrapped(shown, room):
        painted = _MATCH.sub(lambda match: frame.out.paint(match[1], "match"), each) if frame.out.colored else each
        yield _INDENT + painted


def _wrapped(text: str, room: int) -> Iterator[str]:
    """Break a text at spaces, and inside a word only where one is wider than a line."""
    row = ""
    for word in text.split(" "):
        if row and width(row) + 1 + width(word) > room:
            yield row
            row = word
        else:
            row = f"{row} {word}" if row else word
        while width(row) > room:
            fits = next(at for at in range(len(row), 0, -1) if at == 1 or width(row[:at]) <= room)
            yield row[:fits]
            row = row[fits:]
    if row:
        yield row


def _marked(rows: Iterable[str]) -> Iterator[str]:
    """Yield lines in which every match that goes on in the next line ends and begins anew."""
    inside = False
    for each in rows:
        text = f"«{each}" if inside else each
        inside = text.rfind("«") > text.rfind("»")
        yield f"{text}»" if inside else text


def _why(hit: Hit) -> str:
    parts = " + ".join(f"{name} {value:.2f}" for name, value in (hit.why or {}).items() if value)
    return f"score {hit.score:.2f} = {parts}{'' if hit.whole else '; as a part of longer words'}"


def _footer(asked: TypedSearch, hits: Hits) -> str:
    where = "this workspace; -a for all" if asked.place is not None else "all workspaces"
    if asked.is_of_one_session:
        where = "one session"
    if hits.cursor is None:
        return f"{words.count(len(hits), 'hit')} ({where})"
    first = "First hit" if len(hits) == 1 else f"First {words.count(len(hits), 'hit')}"
    return f"{first} ({where}). Next page: {asked.command(more=('--cursor', hits.cursor))}"


COMMANDS = {"search": search}
