"""What is special about where a path is: the file system that holds it, and whether it is somebody's home.

Some file systems have no working locks, some no directory times. A home directory is no workspace.
"""

from __future__ import annotations

import os

homes: set[str] = set()  # besides the password file's: a shell adds its own, since the library reads no environment


def is_home(path: str) -> bool:
    """Whether a real path is a home directory, by the password file or by a shell."""
    return path in homes or path == _home()


def _home() -> str:
    import pwd

    try:
        return os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return ""


def kind_of(path: str) -> str | None:
    """Return the type of file system that holds a path, such as ``ext4``; None if the system does not say."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return kind_in(file.read(), os.path.realpath(path))
    except OSError:
        return None


def kind_in(mountinfo: str, path: str) -> str | None:
    """Return the file system type of the mount that holds a path, from the text of mountinfo."""
    best, kind = -1, None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        mount = _unescaped(fields[4])
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= best:  # of two mounts at one place the later covers the earlier
            best, kind = len(mount), right.split(" ", 1)[0]
    return kind


def _unescaped(mount: str) -> str:
    """Unescape a mount point, in which spaces and the like are written as three octal digits."""
    if "\\" not in mount:
        return mount
    import re

    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), mount)
