"""File names: which are valid, and which belong to a version control system.

A repository's control directory can name programs that the next ``git status`` runs, so Takeback neither captures nor
writes one, in any spelling that leads to it on some file system. These are the spellings that git itself guards
against (``is_hfs_dotgit`` and ``is_ntfs_dotgit`` in its sources), for Mercurial, Subversion and Jujutsu too: letters of
either case, code points that HFS+ and the case-insensitive directories of ext4 and f2fs ignore, trailing spaces, dots
and streams on NTFS (``.git::$INDEX_ALLOCATION``), short names on NTFS and FAT (``GIT~1``), and backslashes, which
separate names on Windows.
"""

from __future__ import annotations

import re
import unicodedata

LONGEST = 4096  # bytes; no system has longer paths

_SHOWN = 80
# Unicode's Default_Ignorable_Code_Point; HFS+ ignores some of these.
_IGNORED = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_ignored = re.compile(f"[{_IGNORED}]")
# A short name is the name without its dot plus a number; if many collide, two letters of it plus four hex digits.
_CONTROL = (
    r"(?:^|\\)(?:\.(?:git|hg|svn|jj)|(?:git|hg|svn|jj)~[0-9]+|(?:gi|hg|sv|jj)[0-9a-f]{4}~[0-9]+)[. ]*(?:\Z|[\\:])"
)
_in_ascii = re.compile(_CONTROL.encode(), re.IGNORECASE).search
_in_text = re.compile(_CONTROL).search


def is_control(name: bytes) -> bool:
    """Whether a name leads to a control directory of git, hg, svn or jj on any file system."""
    if name.isascii():
        return _in_ascii(name) is not None
    text = _ignored.sub("", unicodedata.normalize("NFD", name.decode("utf-8", "surrogateescape")))
    return _in_text(text.upper().casefold()) is not None  # both foldings, for dotless i and long s


def leads_into_control(path: bytes) -> bool:
    """Whether any name in a path is that of a control directory."""
    return any(map(is_control, path.split(b"/")))


def control_part(path: bytes) -> bytes:
    """Return a path up to its first control directory; the whole path if it has none."""
    names = path.split(b"/")
    first = next((number for number, name in enumerate(names, 1) if is_control(name)), len(names))
    return b"/".join(names[:first])


def fault(name: bytes) -> str:
    """Explain why no file can have a name; empty if one can."""
    if not name:
        return "an empty name"
    if name in (b".", b".."):
        return f"the name {shown(name)}, which leads elsewhere"
    if b"/" in name:
        return f"the name {shown(name)}, which is a path"
    if b"\0" in name:
        return f"the name {shown(name)}, which contains a NUL"
    return f"the name {shown(name)}, which is longer than {LONGEST:,} bytes" if len(name) > LONGEST else ""


def path_fault(path: bytes) -> str:
    """Explain why a path cannot lie inside a directory; empty if it can."""
    return next(filter(None, map(fault, path.split(b"/"))), "")


def shown(name: bytes) -> str:
    """Format an untrusted name for a message, escaping what a reader would not see."""
    text = ascii(name[:_SHOWN].decode("utf-8", "surrogateescape"))
    return f"{text}..." if len(name) > _SHOWN else text
