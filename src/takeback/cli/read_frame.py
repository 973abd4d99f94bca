"""The context of read-only verbs: the store, the workspace found from the current directory upwards, and refs.

The store is opened read-only, on first use: looking never creates a store, and one that does not exist yet looks
empty. A workspace is a directory that has a session; as with git, the nearest one at or above the current directory
counts. ``frame`` adds what verbs need that change something.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from ..client import address
from ..client.open_to_read import open_empty, open_for_reading
from ..client.overview import SHORT, Overview, overviews
from ..client.reading import Reading
from ..client.refs import Resolved
from ..client.store_reading import StoreReading
from ..errors import Ambiguous, NotFound, Unsupported
from ..model import words
from ..model.session import Head
from ..shell.failures import NOT_FOUND, USAGE, Stop
from .consent import tell
from .output import Output
from .settings import Settings

if TYPE_CHECKING:
    from ..client.points import Point

S = TypeVar("S", bound=Reading)
_COUNTED = 1000


def lightly(settings: Settings) -> Look[Reading]:
    """Return the context of a read-only verb that must start instantly."""
    return Look(settings, open_for_reading, open_empty)


class Look(Generic[S]):
    """The context of one running read-only command."""

    def __init__(
        self, settings: Settings, opens: Callable[[str], StoreReading[S]], empty: Callable[[], StoreReading[S]]
    ) -> None:
        self.settings = settings
        self.out = Output(settings)
        self.missing: str | None = None  # where the store would be, if it does not exist yet
        self._opens, self._empty = opens, empty
        self._opened: StoreReading[S] | None = None
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
    def store(self) -> StoreReading[S]:
        """The store, opened on first use."""
        if self._opened is None:
            self._opened = self._open()
            if self.settings.verbose:
                tell(f"store {self._opened.url}")
        return self._opened

    def _open(self) -> StoreReading[S]:
        if self.settings.directory is not None:
            _ = self.directory  # report a wrong -C even where the directory would not matter
        try:
            return self._opens(self.url)
        except NotFound:
            self.missing = address.shown(self.url if "://" in self.url else os.path.abspath(self.url))
            return self._empty()
        except Unsupported as error:
            if self.url.startswith(f"{error.capability}://"):  # an unknown kind of store: a typing error
                raise Stop(str(error), USAGE) from error
            raise

    def require_store(self) -> None:
        """Raise ``Stop`` if there is no store yet."""
        if self.store is not None and self.missing is not None:
            raise Stop(self._no_store(), NOT_FOUND)

    def _no_store(self) -> str:
        return f"there is no store at {self.missing or self.shown_url} yet. Create one: takeback new"

    def count(self, **filters: Any) -> tuple[int, str]:
        """Count sessions, and format the count: ``36``, or ``1,000+`` if there are more than we count."""
        found = self.store._count(_COUNTED + 1, **{"archived": None, **filters})
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
            known = self.store._with_sessions(upwards)
            self._found = (next((each for each in upwards if each in known), None),)
        return self._found[0]

    def belongs_here(self, session_id: str | None) -> bool:
        """Whether a session belongs to the workspace, even if it is in the trash."""
        if session_id is None:
            return False
        if session_id not in self._places:
            found = self.store.find_session(session_id)
            self._places[session_id] = None if found is None else found.workspace
        return self._places[session_id] == self.workspace

    # ------------------------------------------------------------------ refs

    def short(self, session_id: str) -> str:
        """Return the shortest prefix of a session's id that names it."""
        if session_id not in self._shorts:
            self._shorts |= self.store._short_ids([session_id], SHORT)
        return self._shorts[session_id]

    def overviews(self, found: Sequence[S]) -> list[Overview[S]]:
        """Read many sessions in few queries, and remember their short ids."""
        seen = overviews(found)
        self._shorts |= {each.session.id: each.short for each in seen}
        return seen

    def resolve(self, ref: str | None) -> Resolved[S]:
        """Find what a ref names; without one, the session of ``TAKEBACK_SESSION``, else the newest of the workspace."""
        text = ref or os.environ.get("TAKEBACK_SESSION") or "@"
        if text.startswith("@") and self.workspace is None:
            self.require_store()
            here = f"no session belongs to {self.directory} or a directory above it"
            raise Stop(f"{here}; name a session (takeback ls -a lists them)", NOT_FOUND)
        try:
            return self.store.resolve(text, workspace=self.workspace)
        except Ambiguous as error:
            raise Stop(f"{error}:\n{self._candidates(error)}", NOT_FOUND) from error
        except NotFound as error:
            if not str(error).startswith("no session matches"):
                raise
            raise Stop(self._unknown(text), NOT_FOUND) from error

    def session(self, ref: str | None) -> S:
        """Find the session that a ref names; a ref with a point in it raises ``Stop``."""
        found = self.resolve(ref)
        if found.seq is not None or found.branch is not None:
            raise Stop(f"{ref!r} names a point, but this verb takes a session: {self.short(found.session.id)}", 2)
        return found.session

    def _candidates(self, error: Ambiguous) -> str:
        found = [self.store.get_session(each) for each in error.candidates]
        return "\n".join(f"  {each.id}  {each.name or each.title or ''}" for each in found)

    def _unknown(self, text: str) -> str:
        if self.missing is not None:
            return f"no session matches {text!r}: {self._no_store()}"
        count, shown = self.count()
        near = ", ".join(self._nearest(text)) if count else ""
        nearest = f" Nearest: {near}." if near else ""
        return f"no session matches {text!r} ({shown} session{'' if count == 1 else 's'}).{nearest} Try: takeback ls -a"

    def _nearest(self, text: str) -> list[str]:
        """List sessions whose name, title or id is close to what was typed, best match first."""
        from difflib import SequenceMatcher

        wanted, scored = text.partition(":")[0].lower(), list[tuple[float, str]]()
        for each in self.store.list_sessions(archived=None, limit=_COUNTED):
            names = [name for name in (each.name, each.title, each.id[: max(len(wanted), SHORT)]) if name]
            score = max(SequenceMatcher(None, wanted, name.lower()).ratio() for name in names)
            if score >= 0.6 or any(wanted in name.lower() for name in names):
                scored.append((score, each.id))
        best = sorted(scored, reverse=True)[:3]
        return [self._called(self.store.get_session(each)) for _, each in best]

    def _called(self, session: S) -> str:
        name = session.name or session.title
        return f"{words.plain(name)} ({self.short(session.id)})" if name else self.short(session.id)


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


def point_of(found: Resolved[S]) -> Point | None:
    """Return the point that a ref names, on any branch; None if it names only a session."""
    if found.checkpoint is not None:
        return found.checkpoint
    if found.branch is None:
        return found.seq
    if found.seq is not None:
        return Head(found.branch, found.seq, False)
    return next(each for each in found.session.branches() if each.name == found.branch)
