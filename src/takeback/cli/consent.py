"""The only place that asks questions. Without a terminal nothing is asked: the command fails and names the flag."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection

from ..shell.failures import CONFLICT, Stop
from .settings import Settings


def is_terminal() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def agreed(settings: Settings, question: str, *, diff: Callable[[], None] | None = None) -> bool:
    """Whether to continue: ``--yes`` always, ``--dry-run`` never, otherwise as the user answers."""
    if settings.dry_run:
        tell("Dry run: nothing was changed.")
        return False
    if settings.yes:
        return True
    if not is_terminal():
        raise Stop(
            "this needs confirmation, and there is no terminal to ask on; add --yes, or -n to preview it", CONFLICT
        )
    choices = "[y]es [d]iff [n]o" if diff is not None else "[y]es [n]o"
    while True:
        answer = _answer(f"{question} {choices} ")
        if answer in ("y", "yes"):
            return True
        if answer in ("d", "diff") and diff is not None:
            diff()
        elif answer in ("n", "no", "q", ""):
            tell("Nothing was changed.")
            return False
        else:
            tell(f"Answer one of: {choices}")


def _answer(question: str) -> str:
    """Ask on stderr, so that stdout holds only results; end of input means no."""
    sys.stderr.write(question)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        sys.stderr.write("\n")
    return line.strip().lower()


def choose(count: int, names: Collection[str] = ()) -> str | None:
    """Ask for a turn from 1 to ``count``, or one of the names of checkpoints; anything else returns None."""
    turns = f"1-{count}" if count else ""
    if not names:
        question = f"Go back to before which turn? [{turns}, Enter cancels] "
    elif turns:
        question = f"Go back to before which turn, or to which checkpoint? [{turns} or a name, Enter cancels] "
    else:
        question = "Go back to which checkpoint? [a name, Enter cancels] "
    answer = _answer(question)
    if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= count:
        return str(int(answer))
    return next((each for each in names if each.lower() == answer), None)


def tell(text: str) -> None:
    """Write a message to stderr; results go to stdout."""
    sys.stderr.write(f"{text}\n")
