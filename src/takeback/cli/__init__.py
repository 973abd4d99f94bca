"""The command line: a thin shell over the library, and the only place that knows click and the terminal.

``app`` is the table of verbs, each loaded on first use. ``frame`` opens the store and finds the workspace and the
session, ``output`` is the only way to stdout, ``consent`` the only way to ask, and ``outcome`` turns errors into
messages and exit codes. A verb reads through the public API, passes plain values to ``output`` and sees no flags.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from . import app, startup


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if arguments is None:
        startup.prepare()
        arguments = sys.argv[1:]
    return app.run(arguments)
