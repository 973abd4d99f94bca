"""The table of verbs, and one run of the program from arguments to exit code.

A verb's module is loaded only when that verb is used, so no verb pays for the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import click

from ..shell import failures
from . import outcome, params, queries
from .outcome import fail
from .settings import Settings

COMPLETE = "_TAKEBACK_COMPLETE"

# Maps each verb to its module and its one-line help, in the order of the help page.
VERBS: dict[str, tuple[str, str]] = {
    "status": ("status", "Show store, workspace, session, changes since the last checkpoint, open calls."),
    "ls": ("listing", "List the sessions of this workspace, or all sessions."),
    "show": ("reading", "Print a session."),
    "search": ("searching", "Search what was said and done."),
    "tail": ("tailing", "Print the last messages; -f follows the session live."),
    "log": ("history", "Show branches and checkpoints as a graph."),
    "checkpoints": ("history", "List checkpoints."),
    "timeline": ("timeline", "Show what happened to the files here, and who did it."),
    "tree": ("history", "Show sub-agents with status, tokens, run time."),
    "stats": ("counting", "Count tokens, cost, time, tool failures."),
    "agents": ("counting", "List agents and their sessions."),
    "diff": ("files", "Show how files and messages differ between two points."),
    "compare": ("comparing", "Compare two branches side by side."),
    "waiting": ("approving", "List the tool calls that wait for a person's answer."),
    "cat": ("files", "Print a file as it was at a point."),
    "new": ("writing", "Start a session."),
    "say": ("writing", "Add a message."),
    "task": ("writing", "List, add or change tasks."),
    "plan": ("writing", "Show or set the plan."),
    "note": ("writing", "List or add notes."),
    "state": ("writing", "Show or set the state of a session or an agent."),
    "resume": ("resuming", "Show where a session stopped and what is open; --exec runs a program."),
    "checkpoint": ("moving", "Save this point: conversation, work, state and files."),
    "rewind": ("rewinding", "Go back to a point: preview, confirm, apply."),
    "fork": ("moving", "Start a branch at a point."),
    "switch": ("moving", "Switch to another branch."),
    "approve": ("approving", "Approve a tool call that is waiting for an answer."),
    "deny": ("approving", "Deny a tool call that is waiting for an answer."),
    "undo": ("undoing", "Undo the last operation in this workspace."),
    "redo": ("undoing", "Redo what was undone."),
    "ops": ("history", "List operations, newest first."),
    "run": ("running", "Run any program as a session."),
    "guard": ("guarding", "Take a checkpoint whenever files settle."),
    "hook": ("hooking", "Record what Claude Code does, through its hooks."),
    "import": ("exchange", "Import what export or mirror wrote."),
    "export": ("exchange", "Export sessions as JSON lines, Markdown or HTML."),
    "mirror": ("exchange", "Write sessions as readable folders; -f keeps them up to date."),
    "mcp": ("serving", "Serve this store to agents over MCP."),
    "rename": ("keeping", "Change a session's title."),
    "tag": ("keeping", "Add tags."),
    "untag": ("keeping", "Remove tags."),
    "pin": ("keeping", "Pin sessions."),
    "unpin": ("keeping", "Unpin sessions."),
    "archive": ("keeping", "Hide sessions from lists."),
    "unarchive": ("keeping", "Show sessions in lists again."),
    "rm": ("keeping", "Move sessions to the trash."),
    "restore": ("keeping", "Restore sessions from the trash."),
    "purge": ("keeping", "Erase a session permanently."),
    "prune": ("keeping", "Erase content that nothing needs any more."),
    "demo": ("demo", "See it work, in a scratch directory."),
    "doctor": ("doctoring", "Find what could cause trouble later, and how to fix it."),
    "verify": ("health", "Recompute every checksum and hash."),
    "repair": ("health", "Make a copy without the damaged parts."),
    "backup": ("health", "Copy the whole store to a new file and verify the copy."),
    "migrate": ("health", "Bring the tables up to date; --check only reports."),
    "completion": ("health", "Print the completion script for bash, zsh or fish."),
}


_HELP = """Durable sessions for AI agents: inspect them, go back, continue.

A REF is a session's name, key or id prefix, or @ (the newest here) or @-1 (the one before). A point in it: REF:12 is
the end of turn 12, REF:12^ before turn 12, REF:e340 an entry, REF:name a checkpoint. REF/branch is a branch."""


class _Helpful(click.Command):
    """A command whose help option is ours: click would load ``inspect`` and ``locale`` to make its own."""

    def get_help_option(self, ctx: click.Context) -> click.Option:
        return params.help_option()


class VerbCommand(_Helpful):
    """A verb with the flags that every verb takes."""

    changes = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = {name for param in self.params for name in (*param.opts, *param.secondary_opts)}
        extra = [*(params.for_changes() if self.changes else ()), *params.everywhere()]
        self.params += [param for param in extra if own.isdisjoint(param.opts)]  # a verb's own flags win

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        params.note_dashes(ctx, args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        chosen = ctx.ensure_object(Settings)
        if (wrong := chosen.contradiction) is not None:
            raise click.UsageError(wrong, ctx)
        if not self.changes and (chosen.dry_run or chosen.yes):  # given before the verb: never ignore -n
            flag = "-n" if chosen.dry_run else "-y"
            raise click.UsageError(f"{flag} is for verbs that change something; {self.name} does not take it", ctx)
        return super().invoke(ctx)


class ChangingCommand(VerbCommand):
    """A verb that changes something: it also takes ``-n`` and ``-y``."""

    changes = True


class QueryCommand(VerbCommand):
    """A verb that searches for words: what looks like a flag and is none may be one of them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = [*args]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise click.UsageError(queries.not_a_flag(error, self, given), ctx) from error


class App(_Helpful, click.Group):
    """The program: verbs by name, each loaded on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = import_module(f".verbs.{VERBS[cmd_name][0]}", __package__)
        found: click.Command = module.COMMANDS[cmd_name]
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"no such verb: {args[0]!r}{_nearest(args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, about) for verb, (_, about) in VERBS.items()])


_MEANT = {"find": "search", "grep": "search"}


def _nearest(verb: str) -> str:
    from difflib import get_close_matches

    near = [_MEANT[verb]] if verb in _MEANT else get_close_matches(verb, VERBS, n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else "; takeback --help lists them"


def _version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from .. import __version__

        click.echo(f"takeback {__version__}")
        ctx.exit()


def make() -> App:
    """Build the program."""
    version = params.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version."
    )
    return App(
        name="takeback",
        params=[*params.for_changes(), *params.everywhere(), version],
        context_settings={"max_content_width": 100},
        help=_HELP,
    )


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    chosen = Settings()
    return outcome.run(lambda: _guarded(lambda: _invoke([*arguments], chosen), chosen), chosen)


def _invoke(arguments: list[str], chosen: Settings) -> object:
    """Run a verb without click's ``main``, which would exit the process on a broken pipe."""
    app = make()
    if instruction := os.environ.get(COMPLETE):
        from .completion import complete

        return complete(app, instruction, chosen)
    with app.make_context("takeback", arguments, obj=chosen) as context:
        return app.invoke(context)


def _guarded(step: Callable[[], object], chosen: Settings) -> object:
    """Run a step and turn click's exceptions into a message and an exit code."""
    try:
        return step()
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
        return failures.USAGE
    except click.UsageError as error:
        return fail(error.format_message(), failures.USAGE, chosen, error.ctx.command_path if error.ctx else None)
    except click.ClickException as error:
        return fail(error.format_message(), failures.FAILED, chosen)
    except click.Abort:
        return fail("interrupted", failures.INTERRUPTED, chosen)
