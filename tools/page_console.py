"""Types the console blocks of a page into a shell: ``check_docs`` replaces each block with a call of ``run``.

A block holds commands after ``$ `` and, below each, lines that it must write, in this order; other lines may come in
between, and ids may differ. All blocks of a page share one shell, which starts in the directory of the page's program
and finds ``takeback`` on its path, as a person would.
"""

from __future__ import annotations

import atexit
import os
import re
import tempfile
from functools import cache

from takeback.cli.demo.shell import Shell, write_program

ID = re.compile(r"\b1[0-9a-hjkmnp-tv-z]{6,24}\b")


def run(block: str, line: int) -> None:
    """Type the commands of a block; ``line`` is where it starts on the page."""
    first, *commands = re.split(r"^\$ ", block, flags=re.M)
    assert not first.strip(), f"line {line}: a console block must begin with a command"
    for command in commands:
        typed, _, said = command.partition("\n")
        ran = _shell().type(typed)
        assert ran.code == 0, f"line {line}: {typed!r} ended with {ran.code}: {ran.text}"
        missing = not_said(said, ran.text)
        assert missing is None, f"line {line}: {typed!r} does not say {missing!r} but: {ran.text}"


def not_said(wanted: str, text: str) -> str | None:
    """Return the first line that was not written, or not in this order; None if all were."""
    left = iter([*map(_plain, text.splitlines())])
    return next((each for each in wanted.splitlines() if each.strip() and _plain(each) not in left), None)


def _plain(line: str) -> str:
    return ID.sub("#", line).strip()


@cache
def _shell() -> Shell:
    programs = tempfile.TemporaryDirectory()
    write_program(os.path.join(programs.name, "takeback"), "-m", "takeback")
    hidden = ("TAKEBACK_", "NO_COLOR")
    env = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    path = f"{programs.name}{os.pathsep}{env.get('PATH', os.defpath)}"
    shell = Shell(folder=os.getcwd(), env={**env, "PATH": path, "TZ": "UTC"}, show=lambda text: None)
    atexit.register(programs.cleanup)
    atexit.register(shell.close)
    return shell
