"""What was or is at a path, as values for callers."""

from __future__ import annotations

import os
import stat

from ..model import names
from ..model.files import FileDiff, FileState
from ..model.tree import ABSENT, DIR, FILE, GAP, LINK, Node
from .disk import read
from .disk.paths import open_below
from .workspaces import CapturedDirectory, Trees

MISSING = FileState("missing")


def of_node(trees: Trees, node: Node | None) -> FileState:
    """Describe what a tree holds at a path."""
    if node is None or node.kind == ABSENT:
        return MISSING
    if node.kind == FILE:
        return FileState("file", b"".join(trees.content(node.content)), node.mode)
    if node.kind == LINK:
        return FileState("link", target=os.fsdecode(node.content))
    if node.kind == DIR:
        return FileState("directory", mode=node.mode)
    assert node.kind == GAP
    return FileState("unreadable", reason=f"not captured: {node.content.decode('utf-8', 'replace')}")


def on_disk(root: str, path: bytes) -> FileState:
    """Describe what is at a path now, without leaving the workspace; unreadable is not the same as missing."""
    if names.path_fault(path):
        return MISSING  # the path may come from a forged export: nothing outside is read
    folder, _, name = os.fsdecode(path).rpartition("/")
    try:
        above = os.open(root, read.DIRECTORY)
    except OSError:
        return MISSING
    try:
        inside = open_below(above, f"{folder}/" if folder else "")
    finally:
        os.close(above)
    if inside is None:
        return MISSING
    try:
        return _state_in(inside, name)
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except OSError as error:
        return FileState("unreadable", reason=str(error.strerror))
    finally:
        os.close(inside)


def _state_in(directory: int, name: str) -> FileState:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if stat.S_ISLNK(status.st_mode):
        return FileState("link", target=os.readlink(name, dir_fd=directory))
    if stat.S_ISDIR(status.st_mode):
        return FileState("directory", mode=mode)
    if not stat.S_ISREG(status.st_mode):
        return FileState("unreadable", reason="no regular file")
    with open(os.open(name, read.OPEN, dir_fd=directory), "rb") as file:
        return FileState("file", file.read(), mode)


def difference(
    place: CapturedDirectory, path: bytes, old: Node | None, new: Node | None, *, recorded: bool
) -> FileDiff:
    """Describe how a path changes from what is on disk, or was recorded before, to what was recorded."""
    before = of_node(place.trees, old) if recorded or old is None else on_disk(place.path, path)
    return FileDiff(os.fsdecode(path), before, of_node(place.trees, new))
