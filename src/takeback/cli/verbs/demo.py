"""``demo``: shows and proves the main job in a scratch directory, which is left behind."""

from __future__ import annotations

import os
import shlex
import time

import click

from ...shell.failures import USAGE, Stop
from ..frame import Frame, verb
from ..params import directories


@verb("demo")
@click.argument("place", metavar="[DIRECTORY]", required=False, shell_complete=directories)
def demo(frame: Frame, place: str | None) -> None:
    """See it work: an agent is killed and resumes, the files it breaks are rewound, and that is undone and redone.

    A scripted agent works in DIRECTORY, which must be new or empty, or in a new temporary directory. Nothing is asked,
    no model is called, no other store is touched. Each command is shown as you would type it, with its output, and each
    claim is proved from the files and the store; if one fails, the exit code is 1. The directory is left for you.
    """
    if os.name != "posix":
        raise Stop("the demo needs a POSIX shell and workspaces, which are not supported on this system yet")
    if frame.settings.store is not None:
        raise Stop("the demo uses its own store; leave out --store", USAGE)
    from ..demo.scratch import Scratch
    from ..demo.story import Story

    began, scratch = time.monotonic(), Scratch(place and os.path.join(frame.directory, place))
    story = Story(frame, scratch)
    story.play()
    seconds = time.monotonic() - began
    document = {"directory": str(scratch.folder), "proofs": story.proofs, "seconds": round(seconds, 2)}
    frame.out.one("demo", document, lambda: _ending(frame, str(scratch.folder), len(story.proofs), seconds))


def _ending(frame: Frame, folder: str, proofs: int, seconds: float) -> list[str]:
    return [
        "",
        frame.out.paint(f"All {proofs} proofs hold; {seconds:.0f} s. Everything is left for you to explore:", "bold"),
        f"  cd {shlex.quote(folder)}; . ./env; cd payments",
        "  takeback status; takeback show fix-retry; takeback log fix-retry; takeback ops",
    ]


COMMANDS = {"demo": demo}
