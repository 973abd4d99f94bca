"""The command line: a thin shell on the library, and the only place that knows click and the terminal.

``app`` is the table of verbs, each loaded when it is asked for; ``quick`` reads plain command lines of verbs that look
without click, which alone takes longer than they do. ``look`` and ``frame`` open the store and find workspace and
session, ``output`` is the one way to stdout, ``consent`` the one way to ask, ``failing`` turns errors into sentences
and exit codes. A verb reads through the public API, hands plain values to ``output`` and knows none of the flags.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    if arguments is None:
        from .starting import start

        return start(sys.argv[1:])
    from .quick import parse, run_line

    line = parse([*arguments])
    if line is not None:
        return run_line(line)
    from .app import run

    return run(arguments)
