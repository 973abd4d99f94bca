"""Queries as people type them in a shell, for the verbs that take one.

A dash means two things here: a flag to the shell's command, a word to leave out to the search. Whoever pastes a command
means neither, so every message about a dash ends with the command that searches for the text as it stands.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence

import click

from ..model.search import Hits
from ..search import query
from ..shell.failures import USAGE, Stop
from .output import line

# What people try who know other programs.
_MEANT = {"-n": "For fewer hits: --limit 5", "-i": "Case never matters.", "-w": "Whole words come first anyway."}


def quoted(text: str) -> str:
    """Return a query that searches for a text as it stands."""
    return '"{}"'.format(" ".join(text.translate(dict.fromkeys(map(ord, '"“”„'), " ")).split()))


def typed(text: str) -> str:
    """Return a query as one argument of a command."""
    return f"{'-- ' if text.startswith('-') else ''}{shlex.quote(text)}"


def require_words(text: str) -> None:
    """Refuse a text that holds nothing to search for."""
    if reason := query.parse(text).nothing:
        blank = "; name a word or a filter, as in: takeback search pool"
        raise Stop(f"nothing to search for{f': {reason}' if text.strip() else blank}", USAGE)


def notes(hits: Hits, text: str, command: Callable[[str], str]) -> Iterator[str]:
    """Yield how a search differs from what was asked; ``command`` types the command for another query."""
    left_out = query.parse(text).left_out
    for note in hits.notes:
        yield f"Note: {line(note)}" + (f": {line(command(quoted(text)))}" if note == left_out else ".")
    if not hits.exact:
        yield "Note: ranked among the newest matches; older ones follow on later pages."


# ---------------------------------------------------------------------- what looks like a flag and is none


def not_a_flag(error: click.NoSuchOption, command: click.Command, arguments: Sequence[str]) -> str:
    """Explain what looks like a flag and is none: perhaps a part of the query."""
    if error.option_name in _MEANT and error.option_name in arguments:
        return f"{error.format_message()} {_MEANT[error.option_name]}"
    known = _options(command)
    words = [*_besides(known, arguments)]
    strange = next((word for word in words if word.startswith("-") and len(word) > 1), None)
    if strange is None or all(word.startswith("-") for word in words):
        return error.format_message()
    text, verb = " ".join(words), f"takeback {command.name}"
    said = f"{strange!r} is not a flag of {command.name}{_near(strange, known) or '.'}"
    if strange.startswith("--"):
        return f"{said} To search for it, quote the query: {verb} {typed(text)}"
    as_it_stands = f"To search for the text as it stands: {verb} {typed(quoted(text))}"
    if text.startswith("-"):
        return f"{said} {as_it_stands}"
    return f"{said} To leave the word out, quote the query: {verb} {typed(text)}. {as_it_stands}"


def _options(command: click.Command) -> dict[str, click.Option]:
    options = [each for each in command.params if isinstance(each, click.Option)]
    return {name: each for each in options for name in (*each.opts, *each.secondary_opts)}


def _besides(known: dict[str, click.Option], arguments: Sequence[str]) -> Iterator[str]:
    """Yield what was typed besides the flags of a command and their values."""
    rest = iter(arguments)
    for each in rest:
        name, equals, _ = each.partition("=")
        if each == "--":
            yield from rest
        elif name in known:
            if not known[name].is_flag and not equals:
                next(rest, None)
        elif not _are_flags(known, each):
            yield each


def _are_flags(known: dict[str, click.Option], text: str) -> bool:
    """Whether a text is short flags behind one dash, the last one perhaps with its value."""
    if not text.startswith("-") or text.startswith("--") or len(text) == 1:
        return False
    for char in text[1:]:
        option = known.get(f"-{char}")
        if option is None or not option.is_flag:
            return option is not None
    return True


def _near(strange: str, known: dict[str, click.Option]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(strange.partition("=")[0], known, n=1, cutoff=0.8)
    return f"; did you mean {near[0]}?" if near and strange.startswith("--") else ""
