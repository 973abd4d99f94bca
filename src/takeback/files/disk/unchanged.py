"""Which names of a directory are unchanged, by their status alone: most of the work of a scan.

Both functions return the same. Their loops do as little as possible for an unchanged name: there are tens of thousands.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from ...model.tree import DIR
from .cache import Folder, Stat

Name = tuple[str, bool]  # and whether it is a directory


class Changes(NamedTuple):
    """Leaves that are gone, and names to scan: new or changed ones, and everything that is not a leaf.

    ``linked`` are unchanged leaves with more than one name.
    """

    gone: Iterable[str]
    rest: list[Name]
    linked: list[str]


def key_of(status: os.stat_result) -> Stat:
    """Return what distinguishes a file from a later state of it."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode


def listed(descriptor: int, folder: Folder) -> Changes:
    """Compare by listing the directory."""
    rest, same, linked, leaves = list[Name](), list[str](), list[str](), folder.leaves
    with os.scandir(descriptor) as entries:
        for entry in entries:
            known = leaves.get(entry.name)
            if known is None:
                rest.append((entry.name, entry.is_dir(follow_symlinks=False)))
                continue
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # gone meanwhile
            if known == (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_mode):
                same.append(entry.name)
                if found.st_nlink > 1:
                    linked.append(entry.name)
            else:
                rest.append((entry.name, stat.S_ISDIR(found.st_mode)))
    gone = () if len(same) == len(leaves) else leaves.keys() - {*same, *(name for name, _ in rest)}
    return Changes(gone, rest, linked)


def asked(descriptor: int, folder: Folder) -> Changes:
    """Compare by calling stat for each name, if the directory's own times show that none came or went."""
    rest, gone, linked, ask = list[Name](), list[str](), list[str](), os.stat
    for name, known in folder.leaves.items():
        try:
            found = ask(name, dir_fd=descriptor, follow_symlinks=False)
        except OSError:
            gone.append(name)
            continue
        if known != (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_mode):
            rest.append((name, stat.S_ISDIR(found.st_mode)))
        elif found.st_nlink > 1:
            linked.append(name)
    for name, (_, node) in folder.others.items():
        if node.kind == DIR:
            rest.append((name, True))  # its own scan decides
            continue
        try:
            rest.append((name, stat.S_ISDIR(ask(name, dir_fd=descriptor, follow_symlinks=False).st_mode)))
        except OSError:
            continue  # gone meanwhile
    return Changes(gone, rest, linked)
