"""What a verb stands on that changes something, or needs all of the library; and how functions become verbs of click.

The store is opened to read only unless the verb changes something, and is made only by verbs that make one. The rest,
workspace and refs, is as for verbs that only look (``look``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from ..client.open import open_store
from ..client.session import Session
from ..client.store import Store
from ..errors import Error
from ..files.workspaces import why_not
from ..shell.failures import Stop
from . import options, params
from .app import Change, Verb
from .look import Look, lightly
from .look import above as above
from .look import point_of as point_of
from .progress import Progress
from .settings import Settings

_COMPLETED = 200


class Frame(Look[Session]):
    """One command at work."""

    def __init__(self, settings: Settings, *, changes: bool, makes: bool = False) -> None:
        super().__init__(settings, self._opened_for, lambda: open_store(":memory:"))
        self._changes = changes and not settings.dry_run
        self._makes = makes

    @property
    def store(self) -> Store:
        """The store, opened now if it is not yet."""
        found = super().store
        assert isinstance(found, Store)
        return found

    def progress(self, what: str, unit: str) -> Progress:
        """Show how far long work is, where somebody looks on."""
        return Progress(what, unit, shown=sys.stderr.isatty() and not self.settings.quiet)

    def place_of_new(self) -> str:
        """Choose the workspace of a new session: the nearest one upwards, or repository, or the directory itself."""
        here = self.directory
        for each in above(here):
            if each != here and why_not_here(each) is not None:  # a home: what lies above is nobody's project
                break
            if each == self.workspace or os.path.exists(os.path.join(each, ".git")):
                return each
        return here

    def _opened_for(self, url: str) -> Store:
        """Open the store as this verb needs it."""
        writes = self._changes and (self._makes or _is_there(url))
        return open_store(url) if writes else open_store(url, read_only=True)


def why_not_here(place: str) -> str | None:
    """Say why the files of a directory are not captured; None if they can be.

    The library asks the system which directory is a home. In a container, or with sudo, HOME may say otherwise: both
    count.
    """
    if (why := why_not(place)) is not None:
        return why
    return "it is a home directory" if os.path.realpath(place) == os.path.realpath(os.path.expanduser("~")) else None


def _is_there(url: str) -> bool:
    """Say whether a store that is a file is there; servers are asked when they are opened."""
    path = url.removeprefix("sqlite:///")
    return "://" in path or os.path.exists(path)


def ref_argument(name: str = "ref", **more: Any) -> Callable[[Any], Any]:
    """Make an argument that names a session or a point, which a shell can complete."""
    return click.argument(name, shell_complete=completed, **more)


def ref_option(*names: str, **more: Any) -> Callable[[Any], Any]:
    """Make an option that names a session, which a shell can complete."""
    return click.option(*names, shell_complete=completed, **more)


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


def command(name: str, declared: options.Verb) -> click.Command:
    """Make a command of a verb that only looks, as it is declared."""

    @click.pass_context
    def run(context: click.Context, /, **given: Any) -> Any:
        with lightly(context.ensure_object(Settings)) as frame:
            return declared.run(frame, **given)

    argument = [click.Argument(["ref"], required=False, shell_complete=completed)] if declared.ref else []
    own = [*argument, *map(params.param, declared.options)]
    return Verb(name, callback=run, params=own, help=declared.run.__doc__)


def verb(
    name: str,
    *,
    changes: bool = False,
    makes: bool = False,
    looks: Callable[[dict[str, Any]], bool] = lambda given: False,
    **more: Any,
) -> Callable[[Any], click.Command]:
    """Make a function of a frame and its parameters a verb, with its docstring as its help.

    One that ``changes`` something gets the store to write, unless it ``looks`` only with the parameters given; one
    that ``makes`` a store makes it if there is none.
    """

    def wrap(function: Any) -> click.Command:
        own = [*reversed(getattr(function, "__click_params__", []))]

        @click.pass_context
        def run(context: click.Context, /, **given: Any) -> Any:
            settings = context.ensure_object(Settings)
            with Frame(settings, changes=changes and not looks(given), makes=makes) as frame:
                return function(frame, **given)

        kind = Change if changes else Verb
        return kind(name, callback=run, params=own, help=function.__doc__, **more)

    return wrap
