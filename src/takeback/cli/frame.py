"""The context of one running command: the store, the workspace found from the current directory upwards, and refs.

The store is opened on first use, read-only unless the verb changes something, and is created only by verbs that may
create one: looking never creates a store, and one that does not exist yet looks empty. A workspace is a directory that
has a session; as with git, the nearest one at or above the current directory counts. ``verb`` turns a function of a
frame into a click command.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from .. import mounts
from ..client import address, open_to_read, overview, store
from ..client import open as opening
from ..errors import Ambiguous, Error, NotFound, Unsupported
from ..files import workspaces
from ..model import words
from ..shell.failures import NOT_FOUND, USAGE, Stop
from . import progress
from .app import ChangingCommand, VerbCommand
from .consent import tell
from .output import Output
from .params import option as option
from .settings import Settings

if TYPE_CHECKING:
    from ..client.overview import Overview
    from ..client.reading import Reading
    from ..client.refs import Resolved
    from ..client.session import Session
    from ..client.store import Store
    from ..client.store_reading import StoreReading
    from .progress import Progress

S = TypeVar("S", bound="Reading")
GUARD = "guard"  # name and agent of the session that guards a directory
_COUNTED = 1000
_COMPLETED = 200


class Frame:
    """The context of one running command."""

    def __init__(self, settings: Settings, *, changes: bool = False, makes: bool = False, reads: bool = False) -> None:
        if changes:  # in a container, or under sudo, HOME may differ from the password file's: both count as homes
            mounts.homes.add(os.path.realpath(os.path.expanduser("~")))
        self.settings = settings
        self.out = Output(settings)
        self.missing: str | None = None  # where the store would be, if it does not exist yet
        self._changes = changes and not settings.dry_run
        self._makes, self._reads = makes, reads
        self.indexes = False  # whether this searches: on a server the index lies in the store, which must be writable
        self._opened: StoreReading[Any] | None = None
        self._found: tuple[str | None] | None = None
        self._shorts: dict[str, str] = {}
        self._places: dict[str, str | None] = {}  # workspace by session id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store if it was opened."""
        if self._opened is not None:
            self._opened.close()

    # ------------------------------------------------------------------ the store

    @property
    def url(self) -> str:
        """The store's URL: from ``--store``, else the user's default store."""
        if self.settings.store == "":
            raise Stop("--store is empty; name a file or a URL", USAGE)
        return self.settings.store or address.default_url()

    @property
    def shown_url(self) -> str:
        """The URL without its password; only this form may be printed."""
        return address.shown(self.url)

    @property
    def reading(self) -> StoreReading[Any]:
        """The store, opened on first use; all that it offers to verbs that only read."""
        if self._opened is None:
            self._opened = self._open()
            if self.settings.verbose:
                tell(f"store {self._opened.url}")
        return self._opened

    @property
    def store(self) -> Store:
        """The store, opened on first use."""
        found = self.reading
        assert isinstance(found, store.Store)
        return found

    def _open(self) -> StoreReading[Any]:
        if self.settings.directory is not None:
            _ = self.directory  # report a wrong -C even where the directory would not matter
        try:
            return self._open_existing(self.url)
        except NotFound:
            self.missing = address.shown(self.url if "://" in self.url else os.path.abspath(self.url))
            return open_to_read.open_empty() if self._reads else opening.open_store(":memory:")
        except Unsupported as error:
            if self.url.startswith(f"{error.capability}://"):  # an unknown kind of store: a typing error
                raise Stop(str(error), USAGE) from error
            raise

    def _open_existing(self, url: str) -> StoreReading[Any]:
        if self._reads:
            return open_to_read.open_for_reading(url, indexes=self.indexes)
        writes = self._changes and (self._makes or _is_there(url))
        return opening.open_store(url) if writes else opening.open_store(url, read_only=True)

    def require_store(self) -> None:
        """Raise ``Stop`` if there is no store yet."""
        if self.reading is not None and self.missing is not None:
            raise Stop(self._no_store(), NOT_FOUND)

    def _no_store(self) -> str:
        return f"there is no store at {self.missing or self.shown_url} yet. Create one: takeback new"

    def count(self, **filters: Any) -> tuple[int, str]:
        """Count sessions, and format the count: ``36``, or ``1,000+`` if there are more than we count."""
        found = self.reading._count(_COUNTED + 1, **{"archived": None, **filters})
        count = min(found, _COUNTED)
        return count, f"{count:,}{'+' if found > count else ''}"

    # ------------------------------------------------------------------ the workspace

    @property
    def directory(self) -> str:
        """The directory the command starts in: the current one, or that of ``-C``."""
        place = os.path.realpath(self.settings.directory or os.getcwd())
        if not os.path.isdir(place):
            raise Stop(f"{self.settings.directory!r} is not a directory; -C needs an existing one", USAGE)
        return place

    @property
    def workspace(self) -> str | None:
        """The nearest directory upwards that has sessions; None if no directory has any."""
        if self._found is None:
            upwards = [each for each in above(self.directory) if _is_text(each)]
            known = self.reading._with_sessions(upwards)
            self._found = (next((each for each in upwards if each in known), None),)
        return self._found[0]

    @property
    def guard(self) -> Session | None:
        """The session that guards the workspace, if one ever did."""
        if self.workspace is None:
            return None
        found: Session | None = self.reading.find_session(GUARD, agent=GUARD, workspace=self.workspace)
        return found

    def belongs_here(self, session_id: str | None) -> bool:
        """Whether a session belongs to the workspace, even if it is in the trash."""
        if session_id is None:
            return False
        if session_id not in self._places:
            found = self.reading.find_session(session_id)
            self._places[session_id] = None if found is None else found.workspace
        return self._places[session_id] == self.workspace

    # ------------------------------------------------------------------ refs

    def short(self, session_id: str) -> str:
        """Return the shortest prefix of a session's id that names it."""
        if session_id not in self._shorts:
            self._shorts |= self.reading._short_ids([session_id], overview.SHORT)
        return self._shorts[session_id]

    def overviews(self, found: Sequence[S]) -> list[Overview[S]]:
        """Read many sessions in few queries, and remember their short ids."""
        seen = overview.overviews(found)
        self._shorts |= {each.session.id: each.short for each in seen}
        return seen

    def resolve(self, ref: str | None) -> Resolved[Any]:
        """Find what a ref names; without one, the session of ``TAKEBACK_SESSION``, else the newest of the workspace."""
        text = ref or os.environ.get("TAKEBACK_SESSION") or "@"
        if text.startswith("@") and self.workspace is None:
            self.require_store()
            here = f"no session belongs to {self.directory} or a directory above it"
            raise Stop(f"{here}; name a session (takeback ls -a lists them)", NOT_FOUND)
        try:
            found = self.reading.resolve(text, workspace=self.workspace)
            self._require_own_guard(text, found.session)
            return found
        except Ambiguous as error:
            raise Stop(f"{error}:\n{self._candidates(error)}", NOT_FOUND) from error
        except NotFound as error:
            if not str(error).startswith("no session matches"):
                raise
            raise Stop(self._unknown(text), NOT_FOUND) from error

    def _require_own_guard(self, text: str, found: Reading) -> None:
        """Refuse the guard of another directory: by its name only the one of this directory is meant."""
        if found.agent_id == GUARD and found.workspace != self.workspace and text.startswith(GUARD):
            raise Stop(
                f"nothing guards {self.workspace or self.directory}; start with: takeback guard. The guard of"
                f" {words.plain(found.workspace or '')} is session {self.short(found.id)}",
                NOT_FOUND,
            )

    def session(self, ref: str | None) -> Session:
        """Find the session that a ref names; a ref with a point in it raises ``Stop``."""
        found = self.resolve(ref)
        if found.seq is not None or found.branch is not None:
            raise Stop(f"{ref!r} names a point, but this verb takes a session: {self.short(found.session.id)}", 2)
        one: Session = found.session
        return one

    def _candidates(self, error: Ambiguous) -> str:
        found = [self.reading.get_session(each) for each in error.candidates]
        return "\n".join(f"  {each.id}  {each.name or each.title or ''}" for each in found)

    def _unknown(self, text: str) -> str:
        if self.missing is not None:
            return f"no session matches {text!r}: {self._no_store()}"
        count, shown = self.count()
        near = ", ".join(self._nearest(text)) if count else ""
        nearest = f" Nearest: {near}." if near else ""
        then = f"search -a {_as_typed(text)}" if count and not self.indexes else "ls -a"  # whoever searches did so
        return (
            f"no session matches {text!r} ({shown} session{'' if count == 1 else 's'}).{nearest} Try: takeback {then}"
        )

    def _nearest(self, text: str) -> list[str]:
        """List sessions whose name, title or id is close to what was typed, best match first."""
        from difflib import SequenceMatcher

        wanted, scored = text.partition(":")[0].lower(), list[tuple[float, str]]()
        for each in self.reading.list_sessions(archived=None, limit=_COUNTED):
            names = [name for name in (each.name, each.title, each.id[: max(len(wanted), overview.SHORT)]) if name]
            score = max(SequenceMatcher(None, wanted, name.lower()).ratio() for name in names)
            if score >= 0.6 or any(wanted in name.lower() for name in names):
                scored.append((score, each.id))
        best = sorted(scored, reverse=True)[:3]
        return [self._called(self.reading.get_session(each)) for _, each in best]

    def _called(self, session: Reading) -> str:
        name = session.name or session.title
        return f"{words.plain(name)} ({self.short(session.id)})" if name else self.short(session.id)

    def progress(self, what: str, unit: str) -> Progress:
        """Show the progress of long work, if stderr is a terminal."""
        return progress.Progress(what, unit, shown=sys.stderr.isatty() and not self.settings.quiet)

    def place_of_new(self) -> str:
        """Return the workspace for a new session: the nearest workspace or repository upwards, else the directory."""
        here = self.directory
        for each in above(here):
            if each != here and workspaces.why_not(each) is not None:  # a home: nothing above it is a project
                break
            if each == self.workspace or os.path.exists(os.path.join(each, ".git")):
                return each
        return here


def _is_text(path: str) -> bool:
    """Whether a path is valid UTF-8; one that is not cannot be a workspace, though its parents may be."""
    return path.encode("utf-8", "replace").decode() == path


def above(directory: str) -> Iterator[str]:
    """Yield a directory and its parents, up to the root."""
    while True:
        yield directory
        parent = os.path.dirname(directory)
        if parent == directory:
            return
        directory = parent


def _as_typed(ref: str) -> str:
    """Return the session part of a ref as words to search for."""
    import shlex

    wanted = ref.partition(":")[0] or ref
    return f"{'-- ' if wanted.startswith('-') else ''}{shlex.quote(wanted)}"


def _is_there(url: str) -> bool:
    """Whether a store that is a file exists; for a server, opening it tells."""
    path = url.removeprefix("sqlite:///")
    return "://" in path or os.path.exists(path)


def ref_argument(name: str = "ref", **more: Any) -> Callable[[Any], Any]:
    """Declare an argument that names a session or a point, with shell completion."""
    return click.argument(name, shell_complete=completed, **more)


def ref_option(*names: str, **more: Any) -> Callable[[Any], Any]:
    """Declare an option that names a session, with shell completion."""
    return option(*names, shell_complete=completed, **more)


def completed(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """List the sessions, or branches or checkpoints of a session, with this prefix; an error completes nothing."""
    try:
        with Frame(context.ensure_object(Settings)) as frame:
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
    reads: bool = False,
    looks: Callable[[dict[str, Any]], bool] = lambda given: False,
    cls: type[VerbCommand] | None = None,
    **more: Any,
) -> Callable[[Any], click.Command]:
    """Turn a function of a frame and parameters into a verb, with its docstring as the help text.

    A verb that ``changes`` something gets a writable store, unless ``looks`` says these parameters only read; a verb
    that ``makes`` a store creates it if it does not exist. A verb that ``reads`` uses only ``Frame.reading``, and
    opening the store then loads nothing that writes. ``cls`` is a click command of its own kind.
    """

    def wrap(function: Any) -> click.Command:
        own = [*reversed(getattr(function, "__click_params__", []))]

        @click.pass_context
        @wraps(function)
        def run(context: click.Context, /, **given: Any) -> Any:
            settings = context.ensure_object(Settings)
            with Frame(settings, changes=changes and not looks(given), makes=makes, reads=reads) as frame:
                return function(frame, **given)

        kind = cls or (ChangingCommand if changes else VerbCommand)
        return kind(name, callback=run, params=own, help=function.__doc__, **more)

    return wrap
