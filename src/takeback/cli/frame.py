"""The context of verbs that change something or need the whole library, and the decorator that makes click commands.

The store is opened read-only unless the verb changes something, and is created only by verbs that may create one.
Workspaces and refs work as in read-only verbs (``read_frame``).
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
from .app import ChangingCommand, VerbCommand
from .progress import Progress
from .read_frame import Look, lightly
from .read_frame import above as above
from .read_frame import point_of as point_of
from .settings import Settings

_COMPLETED = 200


class Frame(Look[Session]):
    """The context of one running command."""

    def __init__(self, settings: Settings, *, changes: bool, makes: bool = False) -> None:
        super().__init__(settings, self._opened_for, lambda: open_store(":memory:"))
        self._changes = changes and not settings.dry_run
        self._makes = makes

    @property
    def store(self) -> Store:
        """The store, opened on first use."""
        found = super().store
        assert isinstance(found, Store)
        return found

    def progress(self, what: str, unit: str) -> Progress:
        """Show the progress of long work, if stderr is a terminal."""
        return Progress(what, unit, shown=sys.stderr.isatty() and not self.settings.quiet)

    def place_of_new(self) -> str:
        """Return the workspace for a new session: the nearest workspace or repository upwards, else the directory."""
        here = self.directory
        for each in above(here):
            if each != here and why_not_here(each) is not None:  # a home: nothing above it is a project
                break
            if each == self.workspace or os.path.exists(os.path.join(each, ".git")):
                return each
        return here

    def _opened_for(self, url: str) -> Store:
        """Open the store for writing only if this verb writes."""
        writes = self._changes and (self._makes or _is_there(url))
        return open_store(url) if writes else open_store(url, read_only=True)


def why_not_here(place: str) -> str | None:
    """Explain why the files of a directory are not captured; None if they can be.

    The library asks the password file which directory is a home. In a container, or under sudo, HOME may differ: both
    count as homes.
    """
    if (why := why_not(place)) is not None:
        return why
    return "it is a home directory" if os.path.realpath(place) == os.path.realpath(os.path.expanduser("~")) else None


def _is_there(url: str) -> bool:
    """Whether a store that is a file exists; for a server, opening it tells."""
    path = url.removeprefix("sqlite:///")
    return "://" in path or os.path.exists(path)


def ref_argument(name: str = "ref", **more: Any) -> Callable[[Any], Any]:
    """Declare an argument that names a session or a point, with shell completion."""
    return click.argument(name, shell_complete=completed, **more)


def ref_option(*names: str, **more: Any) -> Callable[[Any], Any]:
    """Declare an option that names a session, with shell completion."""
    return click.option(*names, shell_complete=completed, **more)


def completed(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """List the sessions, or branches or checkpoints of a session, with this prefix; an error completes nothing."""
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
    """Build the click command of a read-only verb from its declaration."""

    @click.pass_context
    def run(context: click.Context, /, **given: Any) -> Any:
        with lightly(context.ensure_object(Settings)) as frame:
            return declared.run(frame, **given)

    argument = [click.Argument(["ref"], required=False, shell_complete=completed)] if declared.ref else []
    own = [*argument, *map(params.param, declared.options)]
    return VerbCommand(name, callback=run, params=own, help=declared.run.__doc__)


def verb(
    name: str,
    *,
    changes: bool = False,
    makes: bool = False,
    looks: Callable[[dict[str, Any]], bool] = lambda given: False,
    **more: Any,
) -> Callable[[Any], click.Command]:
    """Turn a function of a frame and parameters into a verb, with its docstring as the help text.

    A verb that ``changes`` something gets a writable store, unless ``looks`` says these parameters only read; a verb
    that ``makes`` a store creates it if it does not exist.
    """

    def wrap(function: Any) -> click.Command:
        own = [*reversed(getattr(function, "__click_params__", []))]

        @click.pass_context
        def run(context: click.Context, /, **given: Any) -> Any:
            settings = context.ensure_object(Settings)
            with Frame(settings, changes=changes and not looks(given), makes=makes) as frame:
                return function(frame, **given)

        kind = ChangingCommand if changes else VerbCommand
        return kind(name, callback=run, params=own, help=function.__doc__, **more)

    return wrap
