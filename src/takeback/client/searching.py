"""Searching from the API: checks what is asked, and shows what was found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ..errors import Invalid, NotFound
from ..model.report import Problem, Report
from ..model.search import Hits
from ..ops import refs, sessions
from ..search import find, query, texts
from ..search.index import TermRun
from ..search.searcher import SHAPE, Searcher, SearchQuestion
from . import arguments

if TYPE_CHECKING:
    from .agent import Agent
    from .reading import Reading
    from .store_reading import StoreReading

_MOST = 100  # values of one filter
_FIX = "Make it anew: takeback search --rebuild, or store.rebuild_search()"


def searcher(store: StoreReading[Any]) -> Searcher:
    """Return what searches a store."""
    if store._searcher is None:
        store._searcher = Searcher(store._backend.beside(SHAPE), store.scope)
    return store._searcher


def search(
    store: StoreReading[Any],
    words: str,
    *,
    roles: Iterable[str],
    kinds: Iterable[str],
    agent: str | Agent | None,
    session: Reading | str | None,
    workspace: str | PathLike[str] | None,
    since: datetime | None,
    until: datetime | None,
    path: str | PathLike[str] | None,
    tool: str | Iterable[str] | None,
    group: str,
    branches: bool,
    explain: bool,
    limit: int,
    cursor: str | None,
    progress: Callable[[int, int | None], object] | None,
    hide: Callable[[str], str] | None,
) -> Hits:
    """Check a question and answer it."""
    arguments.whole(limit, what="limit", low=1, high=1000)
    arguments.flag(branches, what="branches")
    arguments.flag(explain, what="explain")
    if group not in ("message", "session"):
        raise Invalid(f"group must be 'message' or 'session', not {group!r:.40}")
    place = None if workspace is None else arguments.workspace(workspace)
    named = None if path is None else _inside(_named(path), place)
    asked = query.parse(arguments.text(words, what="query"))
    if not words.strip() and named is not None:
        everything = query.parse('"{}"'.format(named.replace('"', " ")))  # about this path
        asked = everything._replace(by_age=True)
    wanted = find.SearchFilter(
        scope=store.scope,
        roles=_names(roles, what="role"),
        kinds=_kinds(kinds),
        tools=_names(tool, what="tool"),
        path=_path(named),
        session=_session(store, session),
        agent=arguments.optional_agent_id(agent),
        workspace=place,
        since_s=None if since is None else arguments.time_ms(since) // 1000,
        until_s=None if until is None else arguments.time_ms(until) // 1000,
        everywhere=branches,
    )
    mark = format(crc32(repr((asked, wanted, group)).encode("utf-8", "surrogatepass")), "x")
    after = find.parse_cursor(cursor, mark)
    question = SearchQuestion(asked, wanted, limit, group == "session", after, mark, explain, hide)
    return searcher(store).search(question, store._clock.now_ms() // 1000, progress)


def check(store: StoreReading[Any]) -> Report:
    """Report what is wrong with the index."""
    said = searcher(store).check()
    return Report(tuple(Problem("search", "search index", each, _FIX) for each in said), 1)


def _names(given: str | Iterable[str] | None, *, what: str) -> tuple[str, ...]:
    if given is None:
        return ()
    several = (given,) if isinstance(given, str) else arguments.many(given, what=f"{what}s")
    found = tuple(dict.fromkeys(arguments.name(each, what=what) for each in several))
    if len(found) > _MOST:
        raise Invalid(
            f"a search can have at most {_MOST} {what}s, not {len(found):,}; leave the filter out, or narrow it"
        )
    return found


def _kinds(given: str | Iterable[str] | None) -> tuple[str, ...]:
    found = _names(given, what="kind")
    for each in found:
        if each not in texts.KINDS:
            raise Invalid(f"kind must be {', '.join(texts.KINDS[:-1])} or {texts.KINDS[-1]}, not {each!r:.40}")
    return found


def _named(path: object) -> str:
    return arguments.name(os.fspath(path) if isinstance(path, PathLike) else path, what="path", most=8000)


def _inside(path: str, workspace: str | None) -> str:
    """Return a path as sessions of the workspace mostly name it; what names it in full has that in it too."""
    if workspace is None or not os.path.isabs(path):
        return path
    inner = os.path.relpath(os.path.realpath(path), workspace)
    return path if inner.startswith("..") or inner == "." else inner


def _path(path: str | None) -> TermRun | None:
    if path is None:
        return None
    found = query.path(path)
    if found is None:
        raise Invalid(f"the path {path!r:.80} has no letters or digits; name a file or a part of its path")
    return found


def _session(store: StoreReading[Any], given: Reading | str | None) -> int | None:
    """Return the local number of a session; one that does not exist raises ``NotFound``."""
    if given is None:
        return None
    wanted = given if isinstance(given, str) else getattr(given, "id", given)
    asked = arguments.name(wanted, what="session", most=10_000)
    found = store._read(refs.exact, store.scope, asked, agent=None, workspace=None)
    if found is None:
        raise NotFound(f"there is no session {asked!r} in this store and scope")
    row: sessions.SessionRow = found
    return row.sid
