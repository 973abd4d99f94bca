"""Click parameters, built from options declared as data (``options``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from .options import TEXT, Kind, OneOf, Option, Whole
from .settings import EVERYWHERE, FOR_CHANGES, Settings


class _Read(click.ParamType[Any]):
    """A kind of value that click does not know."""

    def __init__(self, kind: Kind) -> None:
        self.name, self._read = kind.name, kind.read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except (ValueError, OverflowError) as error:
            self.fail(str(error), param, ctx)


def _type(kind: Kind) -> Any:
    if isinstance(kind, OneOf):
        return click.Choice(kind.words)
    if isinstance(kind, Whole):
        return click.IntRange(kind.low, kind.high)
    return click.STRING if kind is TEXT else _Read(kind)


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Let the shell complete file names."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def directories(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Let the shell complete directory names."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


def param(option: Option) -> click.Option:
    """Build the click parameter of an option."""
    return _made(option)


def _made(option: Option, **more: Any) -> click.Option:
    names = [*option.names, option.to]
    if option.kind is None:
        return click.Option(names, is_flag=True, help=option.help, **more)
    return click.Option(
        names,
        type=_type(option.kind),
        multiple=option.many,
        default=None if option.many else option.default,
        show_default=option.default is not None,
        metavar=option.metavar,
        help=option.help or None,
        shell_complete=directories if option.metavar == "DIR" else None,
        **more,
    )


def _sets(option: Option) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if context.get_parameter_source(parameter.name or "") is not click.core.ParameterSource.DEFAULT:
            setattr(context.ensure_object(Settings), option.to, value if option.kind is not None else option.sets)

    return callback


def _settings(options: tuple[Option, ...]) -> list[click.Parameter]:
    return [_made(each, expose_value=False, callback=_sets(each)) for each in options]


def everywhere() -> list[click.Parameter]:
    """Build the options that every verb takes."""
    return _settings(EVERYWHERE)


def for_changes() -> list[click.Parameter]:
    """Build the options of verbs that change something."""
    return _settings(FOR_CHANGES)
