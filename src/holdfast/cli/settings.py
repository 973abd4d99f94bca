"""The flags that every verb knows, as they were given: before the verb or behind it, the last one wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


class Settings:
    """What the flags say."""

    def __init__(self) -> None:
        self.store: str | None = None
        self.directory: str | None = None
        self.json = self.jsonl = self.quiet = self.verbose = self.utc = False
        self.dry_run = self.yes = False
        self.fields: tuple[str, ...] = ()
        self.color = "auto"
        self.pager = True


def _sets(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if context.get_parameter_source(parameter.name or "") is not click.core.ParameterSource.DEFAULT:
            setattr(context.ensure_object(Settings), name, value)

    return callback


def _fields(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Settings).fields = tuple(each.strip() for each in value.split(",") if each.strip())


def _no_pager(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Settings).pager = False


def _flag(*names: str, to: str, help: str) -> click.Option:
    return click.Option(names, is_flag=True, expose_value=False, callback=_sets(to), help=help)


def everywhere() -> list[click.Parameter]:
    """Give new options that every verb has."""
    return [
        click.Option(["--store"], metavar="URL", expose_value=False, callback=_sets("store"), help="The store to use."),
        click.Option(
            ["-C", "directory"], metavar="DIR", expose_value=False, callback=_sets("directory"), help="Start in DIR."
        ),
        _flag("--json", to="json", help="One JSON document."),
        _flag("--jsonl", to="jsonl", help="One JSON object per line."),
        click.Option(["--fields"], metavar="A,B", expose_value=False, callback=_fields, help="Only these fields."),
        _flag("-q", "--quiet", to="quiet", help="Only ids."),
        _flag("-v", "--verbose", to="verbose", help="Say more on stderr, with tracebacks."),
        _flag("--utc", to="utc", help="Show times in UTC."),
        click.Option(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            expose_value=False,
            callback=_sets("color"),
            help="When to colour (NO_COLOR is obeyed).",
        ),
        click.Option(["--no-pager"], is_flag=True, expose_value=False, callback=_no_pager, help="Never use a pager."),
    ]


def for_changes() -> list[click.Parameter]:
    """Give new options of verbs that change something."""
    return [
        _flag("-n", "--dry-run", to="dry_run", help="Only say what would be done."),
        _flag("-y", "--yes", to="yes", help="Do not ask."),
    ]
