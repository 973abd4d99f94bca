"""Which file system a path lies on, as Linux tells it: some keep no locks, some no times of directories."""

from __future__ import annotations

import os


def kind_of(path: str) -> str | None:
    """Name the kind of file system that holds a path, such as ``ext4``; None where nobody tells."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return kind_in(file.read(), os.path.realpath(path))
    except OSError:
        return None


def kind_in(mountinfo: str, path: str) -> str | None:
    """Find the mount that holds a path in the text of mountinfo, and give its kind."""
    best, kind = -1, None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        mount = _unescaped(fields[4])
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= best:
            best, kind = len(mount), right.split(" ", 1)[0]
    return kind


def _unescaped(mount: str) -> str:
    """Read the name of a mount, in which spaces and the like are written as three octal digits."""
    if "\\" not in mount:
        return mount
    import re

    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), mount)
