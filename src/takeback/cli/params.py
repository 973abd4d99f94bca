"""The parameters of verbs: options, values that click does not know, and the flags that every verb takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import click

from .settings import Settings


class Option(click.Option):
    """An option whose help is one line: click would load ``inspect`` to clean it, a tenth of what a verb may cost."""

    def __init__(self, *args: Any, help: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.help = help


option = partial(click.option, cls=Option)


class Value(click.ParamType[Any]):
    """A kind of value that click does not know: ``read`` parses it, or raises ``ValueError`` with a message."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except (ValueError, OverflowError) as error:
            self.fail(str(error), param, ctx)


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Let the shell complete file names."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def directories(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Let the shell complete directory names."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


_AFTER = "takeback.after_dashes"


def note_dashes(context: click.Context, arguments: list[str]) -> None:
    """Remember how many arguments follow two dashes, which click drops."""
    if "--" in arguments:
        context.meta[_AFTER] = len(arguments) - arguments.index("--") - 1


def after_dashes(given: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Divide the arguments of the running verb into those before two dashes and those after."""
    count = click.get_current_context().meta.get(_AFTER, 0)
    return given[: len(given) - count], given[len(given) - count :]


def _fields(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


_FIELDS = Value("fields", _fields)


def _setting(*names: str, to: str, **more: Any) -> Option:
    """Declare a flag that is kept in the settings, wherever on the command line it is given."""
    return Option([*names, to], expose_value=False, callback=_set, **more)


def _set(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    name = parameter.name or ""
    if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
        setattr(context.ensure_object(Settings), name, value)


def _show_help(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        click.echo(context.get_help(), color=context.color)
        context.exit()


@cache
def help_option() -> click.Option:
    """Return the option that shows the help page."""
    about = "Show this message and exit."
    return Option(["-h", "--help"], is_flag=True, is_eager=True, expose_value=False, callback=_show_help, help=about)


@cache
def everywhere() -> tuple[click.Parameter, ...]:
    """Return the options that every verb takes."""
    return (
        _setting("--store", to="store", metavar="URL", help="Use this store."),
        _setting("-C", to="directory", metavar="DIR", shell_complete=directories, help="Start in DIR."),
        _setting("--json", to="json", is_flag=True, help="Write one JSON document."),
        _setting("--jsonl", to="jsonl", is_flag=True, help="Write one JSON object per line."),
        _setting("--fields", to="fields", metavar="A,B", type=_FIELDS, help="Write only these fields."),
        _setting("-q", "--quiet", to="quiet", is_flag=True, help="Write only ids."),
        _setting("-v", "--verbose", to="verbose", is_flag=True, help="Write more to stderr, with tracebacks."),
        _setting("--utc", to="utc", is_flag=True, help="Show times in UTC."),
        _setting(
            "--color",
            to="color",
            type=click.Choice(("auto", "always", "never")),
            help="When to use colour; NO_COLOR is respected.",
        ),
        _setting("--no-pager", to="no_pager", is_flag=True, help="Never use a pager."),
    )


@cache
def for_changes() -> tuple[click.Parameter, ...]:
    """Return the options of verbs that change something."""
    return (
        _setting("-n", "--dry-run", to="dry_run", is_flag=True, help="Only show what would be done."),
        _setting("-y", "--yes", to="yes", is_flag=True, help="Do not ask for confirmation."),
    )
