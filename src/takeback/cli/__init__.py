"""The command line: a thin shell over the library, and the only place that knows click and the terminal.

``app`` is the table of verbs, each loaded on first use; ``plain_arguments`` runs plain read-only command lines without
click, because loading click takes longer than running them. ``read_frame`` and ``frame`` open the store and find the
workspace and the session, ``output`` is the only way to stdout, ``consent`` the only way to ask, and ``outcome`` turns
errors into messages and exit codes. A verb reads through the public API, passes plain values to ``output`` and sees no
flags.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if arguments is None:
        from .startup import start

        return start(sys.argv[1:])
    from .plain_arguments import parse, run_line

    line = parse([*arguments])
    if line is not None:
        return run_line(line)
    from .app import run

    return run(arguments)
