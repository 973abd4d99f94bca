"""What a verb stands on: the store, the workspace found from the current directory upwards, and refs.

The store is opened when it is first needed, to read only unless the verb changes something: looking never makes a
store. One that is not there yet looks like an empty one. A workspace is a directory that has a session here; the
nearest one above the current directory counts, as git does it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import click

from ..client.handle import Point
from ..client.open import default_url, open_store
from ..client.refs import Resolved
from ..client.session import Session
from ..client.store import Store
from ..client.workspaces import why_not
from ..errors import Ambiguous, Error, NotFound
from ..model import words
from ..model.session import Head
from .app import Change, Verb
from .consent import tell
from .failing import NOT_FOUND, Stop
from .output import Output
from .settings import Settings

SHORT = 7  # characters of an id: those of one second; more where several sessions began in it
_COUNTED = 1000
_COMPLETED = 200


class Frame:
    """One command at work."""

    def __init__(self, settings: Settings, *, changes: bool, makes: bool = False) -> None:
        self.settings = settings
        self.out = Output(settings)
        self.missing: str | None = None  # where the store would be, if there is none yet
        self._changes = changes and not settings.dry_run
        self._makes = makes
        self._opened: Store | None = None
        self._found: tuple[str | None] | None = None
        self._shorts: dict[str, str] = {}
        self._places: dict[str, str | None] = {}  # the workspaces of sessions

    def __enter__(self) -> Frame:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            self._opened.close()

    # ------------------------------------------------------------------ the store

    @property
    def url(self) -> str:
        """Which store was named: by ``--store``, else as the library finds the user's own."""
        return self.settings.store or default_url()

    @property
    def store(self) -> Store:
        """The store, opened now if it is not yet."""
        if self._opened is None:
            self._opened = self._open()
            if self.settings.verbose:
                tell(f"store {self._opened.url}")
        return self._opened

    def _open(self) -> Store:
        if self._changes and (self._makes or _is_there(self.url)):
            return open_store(self.url)
        try:
            return open_store(self.url, read_only=True)
        except NotFound:
            self.missing = self.url
            return open_store(":memory:")

    def count(self, **filters: Any) -> tuple[int, str]:
        """Count sessions, and write the count: ``36``, or ``1,000+`` where there are more than are counted."""
        page = self.store.list_sessions(**{"archived": None, **filters}, limit=_COUNTED)
        return len(page), f"{len(page):,}{'+' if page.cursor else ''}"

    # ------------------------------------------------------------------ the workspace

    @property
    def directory(self) -> str:
        """Where the command starts: the current directory, or that of ``-C``."""
        place = os.path.realpath(self.settings.directory or os.getcwd())
        if not os.path.isdir(place):
            raise Stop(f"{self.settings.directory!r} is no directory")
        return place

    @property
    def workspace(self) -> str | None:
        """The nearest directory upwards that has sessions; None if there is none."""
        if self._found is None:
            self._found = (next((each for each in above(self.directory) if self._has_sessions(each)), None),)
        return self._found[0]

    def place_of_new(self) -> str:
        """Choose the workspace of a new session: the nearest one upwards, or repository, or the directory itself."""
        here = self.directory
        for each in above(here):
            if each != here and why_not(each) is not None:  # a home directory: what lies above is nobody's project
                break
            if self._has_sessions(each) or os.path.exists(os.path.join(each, ".git")):
                return each
        return here

    def _has_sessions(self, directory: str) -> bool:
        return bool(self.store.list_sessions(workspace=directory, archived=None, limit=1))

    def belongs_here(self, session_id: str | None) -> bool:
        """Say whether a session is one of the workspace, also one in the trash."""
        if session_id is None:
            return False
        if session_id not in self._places:
            found = self.store.find_session(session_id)
            self._places[session_id] = None if found is None else found.workspace
        return self._places[session_id] == self.workspace

    # ------------------------------------------------------------------ refs

    def short(self, session_id: str) -> str:
        """Give the beginning of a session's id that is enough to name it."""
        if session_id not in self._shorts:
            self._shorts[session_id] = next(filter(self._names(session_id), _beginnings(session_id)), session_id)
        return self._shorts[session_id]

    def _names(self, session_id: str) -> Callable[[str], bool]:
        def names(text: str) -> bool:
            try:
                return self.store.resolve(text).session.id == session_id
            except (Ambiguous, NotFound):
                return False

        return names

    def resolve(self, ref: str | None) -> Resolved[Session]:
        """Find what a ref names; without one the session of ``HOLDFAST_SESSION``, else the newest of the workspace."""
        text = ref or os.environ.get("HOLDFAST_SESSION") or "@"
        if text.startswith("@") and self.workspace is None:
            raise Stop(f"{self._no_session_here()}; name one: holdfast ls -a lists them", NOT_FOUND)
        try:
            return self.store.resolve(text, workspace=self.workspace)
        except Ambiguous as error:
            raise Stop(f"{error}:\n{self._candidates(error)}", NOT_FOUND) from error
        except NotFound as error:
            if not str(error).startswith("no session matches"):
                raise
            raise Stop(self._unknown(text), NOT_FOUND) from error

    def session(self, ref: str | None) -> Session:
        """Find the session that a ref names; a point in it is a slip."""
        found = self.resolve(ref)
        if found.seq is not None or found.branch is not None:
            raise Stop(f"{ref!r} names a point; this verb takes a whole session: {self.short(found.session.id)}", 2)
        return found.session

    def _no_session_here(self) -> str:
        if self.missing is not None:
            return f"there is no store yet at {self.missing}"
        return f"no session belongs to {self.directory} or a directory above it"

    def _candidates(self, error: Ambiguous) -> str:
        found = [self.store.get_session(each) for each in error.candidates]
        return "\n".join(f"  {each.id}  {each.name or each.title or ''}" for each in found)

    def _unknown(self, text: str) -> str:
        if self.missing is not None:
            return f"no session matches {text!r}: {self._no_session_here()}. Start one: holdfast new"
        count, shown = self.count()
        near = ", ".join(self._nearest(text)) if count else ""
        nearest = f" Nearest: {near}." if near else ""
        return f"no session matches {text!r} ({shown} session{'' if count == 1 else 's'}).{nearest} Try: holdfast ls -a"

    def _nearest(self, text: str) -> list[str]:
        """Give sessions whose name, title or id is near to what was typed, best first."""
        from difflib import SequenceMatcher

        wanted, scored = text.partition(":")[0].lower(), list[tuple[float, str]]()
        for each in self.store.list_sessions(archived=None, limit=_COUNTED):
            names = [name for name in (each.name, each.title, each.id[: max(len(wanted), SHORT)]) if name]
            score = max(SequenceMatcher(None, wanted, name.lower()).ratio() for name in names)
            if score >= 0.6 or any(wanted in name.lower() for name in names):
                scored.append((score, each.id))
        best = sorted(scored, reverse=True)[:3]
        return [self._called(self.store.get_session(each)) for _, each in best]

    def _called(self, session: Session) -> str:
        name = session.name or session.title
        return f"{words.plain(name)} ({self.short(session.id)})" if name else self.short(session.id)


def _is_there(url: str) -> bool:
    """Say whether a store that is a file is there; servers are asked when they are opened."""
    path = url.removeprefix("sqlite:///")
    return "://" in path or os.path.exists(path)


def above(directory: str) -> Iterator[str]:
    """Give a directory and those above it."""
    while True:
        yield directory
        parent = os.path.dirname(directory)
        if parent == directory:
            return
        directory = parent


def _beginnings(session_id: str) -> Iterator[str]:
    return (session_id[:length] for length in range(SHORT, len(session_id)))


def point_of(found: Resolved[Session]) -> Point | None:
    """Give the point that a ref named, on whatever branch; None where it named a session only."""
    if found.checkpoint is not None:
        return found.checkpoint
    if found.branch is None:
        return found.seq
    if found.seq is not None:
        return Head(found.branch, found.seq, False)
    return next(each for each in found.session.branches() if each.name == found.branch)


def ref_argument(name: str = "ref", **options: Any) -> Callable[[Any], Any]:
    """Make an argument that names a session or a point, which a shell can complete."""
    return click.argument(name, shell_complete=completed, **options)


def completed(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Give the names, or the branches or checkpoints of a session, that begin so; whatever goes wrong gives none."""
    try:
        with Frame(context.ensure_object(Settings), changes=False) as frame:
            return [each for each in _names(frame, incomplete) if each.startswith(incomplete)]
    except (Error, Stop, OSError):
        return []


def _names(frame: Frame, incomplete: str) -> Iterator[str]:
    for sign in "/:":
        ref, found, _ = incomplete.partition(sign)
        if found:
            session = frame.resolve(ref or None).session
            named = session.branches() if sign == "/" else session.checkpoints()
            yield from (f"{ref}{sign}{each.name}" for each in named)
            return
    place: dict[str, Any] = {} if frame.workspace is None else {"workspace": frame.workspace}
    for each in frame.store.list_sessions(limit=_COMPLETED, **place):
        yield each.name or frame.short(each.id)


def verb(
    name: str,
    *,
    changes: bool = False,
    makes: bool = False,
    looks: Callable[[dict[str, Any]], bool] = lambda given: False,
    **options: Any,
) -> Callable[[Any], click.Command]:
    """Make a function of a frame and its parameters a verb, with its docstring as its help.

    One that ``changes`` something gets the store to write, unless it ``looks`` only with the parameters given; one
    that ``makes`` a store makes it if there is none.
    """

    def wrap(function: Any) -> click.Command:
        params = [*reversed(getattr(function, "__click_params__", []))]

        @click.pass_context
        def run(context: click.Context, /, **given: Any) -> Any:
            settings = context.ensure_object(Settings)
            with Frame(settings, changes=changes and not looks(given), makes=makes) as frame:
                return function(frame, **given)

        kind = Change if changes else Verb
        return kind(name, callback=run, params=params, help=function.__doc__, **options)

    return wrap
