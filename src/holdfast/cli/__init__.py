"""The command line: a thin shell on the library, and the only place that knows click and the terminal.

``app`` is the table of verbs, each loaded when it is asked for. ``frame`` opens the store and finds workspace and
session, ``output`` is the one way to stdout, ``consent`` the one way to ask, ``failing`` turns errors into sentences
and exit codes. A verb reads through the public API, hands plain values to ``output`` and knows none of the flags.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    from .app import run

    return run(arguments)
