"""Directories for tests: what is in them, compared whole, and shells that change them."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Thing = tuple[Any, ...]


def look(root: Path, *, but: tuple[bytes, ...] = ()) -> dict[bytes, Thing]:
    """Everything below a directory: bytes, modes, targets of links, empty directories; names as the system has them."""
    return dict(_look(os.fsencode(root), b"", but))


def _look(root: bytes, below: bytes, but: tuple[bytes, ...]) -> Iterator[tuple[bytes, Thing]]:
    for entry in os.scandir(os.path.join(root, below)):
        path, status = os.path.join(below, entry.name), entry.stat(follow_symlinks=False)
        if path in but:
            continue
        if stat.S_ISLNK(status.st_mode):
            yield path, ("link", os.readlink(entry.path))
        elif stat.S_ISDIR(status.st_mode):
            yield path, ("dir", stat.S_IMODE(status.st_mode))
            yield from _look(root, path, but)
        elif stat.S_ISREG(status.st_mode):
            with open(entry.path, "rb") as file:
                yield path, ("file", stat.S_IMODE(status.st_mode), file.read())
        else:
            yield path, ("other", stat.S_IFMT(status.st_mode))


def shell(root: Path, script: str) -> None:
    """Run a script as an agent's shell would."""
    done = subprocess.run(["/bin/bash", "-ec", script], cwd=root, capture_output=True, timeout=60, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr.decode()


ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "LC_ALL": "C.UTF-8",
}
AUTHOR = "-c user.name=a -c user.email=a@example.org -c init.defaultBranch=main"


def run(session: Any, root: Path, script: str, name: str = "bash") -> str:
    """Run a script inside a tool call; give the call's id."""
    with session.tool(name, {"command": script}) as call:
        shell(root, script)
        call.result("ok")
        return str(call.call.id)
