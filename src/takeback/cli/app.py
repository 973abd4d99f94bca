"""The table of verbs, and one run of the program from its arguments to its exit code.

A verb's module is loaded when that verb is asked for, so that none pays for the others. Plain command lines of the
verbs that look need not come here at all (``quick``); click has the last word on all others, and on what is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import click

from ..shell import failures
from . import params, running
from .quick import COMPLETE
from .running import fail
from .settings import Settings

# verb: its module, and what it is for. The order is that of the help page.
VERBS: dict[str, tuple[str, str]] = {
    "status": ("status", "Store, workspace, session, changes since the last checkpoint, open calls."),
    "ls": ("listing", "List the sessions of this workspace, or all."),
    "show": ("reading", "Read a session."),
    "tail": ("tailing", "The last messages; -f follows live."),
    "log": ("history", "Branches and checkpoints as a graph."),
    "checkpoints": ("history", "Checkpoints as a list."),
    "tree": ("history", "Sub-agents with status, tokens, runtime."),
    "stats": ("counting", "Tokens, cost, time, tool failures."),
    "agents": ("counting", "Agents and their sessions."),
    "diff": ("files", "Files and messages between two points."),
    "compare": ("comparing", "Two branches side by side."),
    "cat": ("files", "A file as it was."),
    "new": ("writing", "Start a session."),
    "say": ("writing", "Add a message."),
    "task": ("writing", "Tasks: list, add, change."),
    "plan": ("writing", "The plan: show, set."),
    "note": ("writing", "Notes: list, add."),
    "state": ("writing", "State of a session or an agent: show, set."),
    "resume": ("resuming", "Where it stopped and what is open; --exec runs a program."),
    "checkpoint": ("moving", "Name this point: conversation, work, state and files."),
    "rewind": ("moving", "Go back to a point: preview, question, apply."),
    "fork": ("moving", "Open a branch at a point."),
    "switch": ("moving", "Move to another branch."),
    "approve": ("approving", "Say yes to a tool call that waits."),
    "deny": ("approving", "Say no to it."),
    "undo": ("moving", "Take back the last operation of this workspace."),
    "redo": ("moving", "Bring back what was undone."),
    "ops": ("history", "What was done, newest first."),
    "run": ("running", "Run any program as a session."),
    "guard": ("guarding", "Automatic checkpoints whenever files settle."),
    "hook": ("hooking", "Record what Claude Code does, from its hooks."),
    "import": ("exchange", "Bring in what export or mirror wrote."),
    "export": ("exchange", "Write sessions as lines, Markdown or HTML."),
    "mirror": ("exchange", "A folder that people can read; -f keeps it up to date."),
    "rename": ("keeping", "Another title."),
    "tag": ("keeping", "Add tags."),
    "untag": ("keeping", "Take tags away."),
    "pin": ("keeping", "Mark for finding again."),
    "unpin": ("keeping", "Take the mark away."),
    "archive": ("keeping", "Leave out of lists."),
    "unarchive": ("keeping", "Put back into lists."),
    "rm": ("keeping", "Put into the trash."),
    "restore": ("keeping", "Take out of the trash."),
    "purge": ("keeping", "Erase for good."),
    "prune": ("keeping", "Erase contents that nothing needs."),
    "demo": ("demo", "See it work, in a directory made for it."),
    "doctor": ("doctoring", "What could bite later, with its fix."),
    "verify": ("health", "Recompute every check and hash."),
    "repair": ("health", "A copy without what is damaged."),
    "backup": ("health", "The whole store in a new file, verified."),
    "migrate": ("health", "Bring tables up to date; --check only says."),
    "completion": ("health", "Completion for bash, zsh, fish."),
}


_HELP = """Durable sessions of AI agents: look at them, go back, go on.

A REF is a name, a key, the beginning of an id, @ (the newest here) or @-1, then a point: REF:12 the end of turn 12,
REF:12^ before it, REF:e340 an entry, REF:name a checkpoint; REF/branch a branch."""


class Verb(click.Command):
    """A verb with the flags that every verb has."""

    changes = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = {name for param in self.params for name in (*param.opts, *param.secondary_opts)}
        extra = [*(params.for_changes() if self.changes else ()), *params.everywhere()]
        self.params += [param for param in extra if own.isdisjoint(param.opts)]

    def invoke(self, ctx: click.Context) -> Any:
        chosen = ctx.ensure_object(Settings)
        if (wrong := chosen.contradiction) is not None:
            raise click.UsageError(wrong, ctx)
        if not self.changes and (chosen.dry_run or chosen.yes):  # given before the verb: who says -n means it
            flag = "-n" if chosen.dry_run else "-y"
            raise click.UsageError(f"{flag} is for verbs that change something; {self.name} does not know it", ctx)
        return super().invoke(ctx)


class Change(Verb):
    """A verb that changes something: it also knows ``-n`` and ``-y``."""

    changes = True


class App(click.Group):
    """The program: verbs by name, each loaded when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = import_module(f".verbs.{VERBS[cmd_name][0]}", __package__)
        found = module.COMMANDS[cmd_name]
        if isinstance(found, click.Command):
            return found
        from .frame import command

        return command(cmd_name, found)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"there is no verb {args[0]!r}{_nearest(args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, about) for verb, (_, about) in VERBS.items()])


def _nearest(verb: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(verb, VERBS, n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else "; takeback --help lists them"


def _version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from .. import __version__

        click.echo(f"takeback {__version__}")
        ctx.exit()


def make() -> App:
    """Make the program."""
    version = click.Option(
        ["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version."
    )
    return App(
        name="takeback",
        params=[*params.for_changes(), *params.everywhere(), version],
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        help=_HELP,
    )


def run(arguments: Sequence[str]) -> int:
    """Run one command and give its exit code."""
    chosen = Settings()
    return running.run(lambda: _guarded(lambda: _invoke([*arguments], chosen), chosen), chosen)


def _invoke(arguments: list[str], chosen: Settings) -> object:
    """Run a verb; click's own ``main`` would end the process when a reader leaves."""
    app = make()
    if instruction := os.environ.get(COMPLETE):
        from .completing import complete

        return complete(app, instruction, chosen)
    with app.make_context("takeback", arguments, obj=chosen) as context:
        return app.invoke(context)


def _guarded(step: Callable[[], object], chosen: Settings) -> object:
    """Run a step; what click has to say becomes a sentence and an exit code."""
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
