"""``demo``: the main job, shown and proved, in a directory that is left behind."""

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
    """See it work: an agent is killed and goes on, its damage to files is taken back, undone and redone.

    A scripted agent works in DIRECTORY, new or empty, or else in a new one for temporary files; nothing is asked, no
    model is called, no other store is touched. Each command is shown as you would type it, with what came back, and
    each claim is proved from files and store: one that fails is exit code 1. The directory is left for looking around.
    """
    if os.name != "posix":
        raise Stop("the demo needs a POSIX shell and workspaces, which are not supported here yet")
    if frame.settings.store is not None:
        raise Stop("the demo has a store of its own; leave --store out", USAGE)
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
        frame.out.paint(f"All {proofs} proofs hold; {seconds:.0f} s. It is all left for you to look at:", "bold"),
        f"  cd {shlex.quote(folder)}; . ./env; cd payments",
        "  takeback status; takeback show fix-retry; takeback log fix-retry; takeback ops",
    ]


COMMANDS = {"demo": demo}
