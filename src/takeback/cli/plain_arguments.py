"""Plain command lines of read-only verbs, parsed and run without click: most of what people type to look around.

Only unambiguous input is parsed here: known flags spelled in full, values of simple kinds, a ref. For everything
else - help, completion, mistakes, odd forms - ``parse`` returns None and click takes over. Click stays the authority
on what a command line means; a test compares the two.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import msgspec

from .options import Option, Verb
from .settings import EVERYWHERE, Settings

COMPLETE = "_TAKEBACK_COMPLETE"
MODULES = {"ls": "listing", "show": "reading"}  # the verbs declared as data, and their modules


class CommandLine(msgspec.Struct, frozen=True):
    """A parsed command line: the flags, the verb and its arguments."""

    settings: Settings
    verb: Verb
    given: dict[str, Any]


class _Odd(Exception):
    """This command line must be parsed by click."""


def parse(arguments: list[str]) -> CommandLine | None:
    """Parse a command line; None if there is any doubt about it."""
    at = next((at for at, each in enumerate(arguments) if each in MODULES), None)
    if at is None or COMPLETE in os.environ:
        return None
    try:
        settings = Settings()
        _take(arguments[:at], EVERYWHERE, settings, {}, refs=None)
        verb: Verb = import_module(f".verbs.{MODULES[arguments[at]]}", __package__).COMMANDS[arguments[at]]
        given = {option.to: option.absent for option in verb.options}
        refs: list[str] = []
        _take(arguments[at + 1 :], (*verb.options, *EVERYWHERE), settings, given, refs=refs if verb.ref else None)
    except (_Odd, ValueError, OverflowError):
        return None
    if settings.contradiction is not None:
        return None
    if verb.ref:
        given["ref"] = refs[0] if refs else None
    return CommandLine(settings, verb, given) if len(refs) < 2 else None


def _take(
    words: list[str], options: tuple[Option, ...], settings: Settings, given: dict[str, Any], *, refs: list[str] | None
) -> None:
    """Parse words into settings, the verb's arguments, and refs if the verb takes them."""
    known = {name: option for option in reversed(options) for name in option.names}  # a verb's own flags win
    left = iter(words)
    for word in left:
        if not word.startswith("-"):
            if refs is None or not word:
                raise _Odd
            refs.append(word)
            continue
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        option = known.get(name)
        if option is None or (equals and option.kind is None):
            raise _Odd
        if option.kind is not None and not equals:
            value = next(left, "")
        _set(option, value, settings, given)


def _set(option: Option, value: str, settings: Settings, given: dict[str, Any]) -> None:
    read: Any = option.sets
    if option.kind is not None:
        if not value or value.startswith("-"):
            raise _Odd
        read = option.kind.read(value)
    if option.to not in given:
        setattr(settings, option.to, read)
    elif option.many:
        given[option.to] = (*given[option.to], read)
    else:
        given[option.to] = read


def run_line(line: CommandLine) -> int:
    """Run a parsed command line and return its exit code."""
    from . import outcome
    from .read_frame import lightly

    def step() -> object:
        with lightly(line.settings) as frame:
            return line.verb.run(frame, **line.given)

    return outcome.run(step, line.settings)
