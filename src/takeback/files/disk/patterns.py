"""One line of a rule file, matched as git matches it: on bytes, and in bounded time.

Git's own matcher (``wildmatch.c``, ``dir.c``) is the specification, its corners included: a class that holds nothing,
such as ``[z-a]``, matches nothing, and a line with an open bracket, an unknown class or a trailing backslash never
matches. So any line is a pattern or is passed over, and none can fail. Everything after a star is matched atomically at
its first place, which is enough for a glob, so that no line can make a match take exponential time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

T = TypeVar("T")
_SPECIAL = re.compile(rb"[*?\[\\]")
_SLASH, _STAR, _TREE, _NOTHING = b"/", b"*", b"**", b"(?!)"


class IgnorePattern(NamedTuple):
    """What a line says: which paths it names, directories only or not, and whether it brings them back."""

    brings_back: bool
    only_dirs: bool
    matches: Callable[[bytes, bytes], bool]  # of the path below the rule file, and its last name


def parse(lines: Iterable[bytes]) -> list[IgnorePattern]:
    """Return the patterns of a rule file, the last line first: it decides."""
    found = [_pattern(line) for line in lines]
    return [each for each in reversed(found) if each is not None]


def _pattern(line: bytes) -> IgnorePattern | None:
    line = _without_spaces(line.removesuffix(b"\r").partition(b"\0")[0])
    if not line or line.startswith(b"#"):
        return None
    back = line.startswith(b"!")
    text = line[1:] if back else line
    only_dirs = text.endswith(b"/")
    return IgnorePattern(back, only_dirs, _matcher(text[:-1] if only_dirs else text))


def _without_spaces(line: bytes) -> bytes:
    """Remove trailing spaces, unless a backslash keeps one."""
    bare = line.rstrip(b" ")
    kept = len(bare) - len(bare.rstrip(b"\\"))
    return line[: len(bare) + 1] if kept % 2 and len(bare) < len(line) else bare


def _matcher(text: bytes) -> Callable[[bytes, bytes], bool]:
    special = _SPECIAL.search(text)
    plain = len(text) if special is None else special.start()
    if b"/" not in text:
        if special is None:
            return lambda path, name: name == text
        if text.startswith(b"*") and not _SPECIAL.search(text, 1):
            end = text[1:]
            return lambda path, name: name.endswith(end)
        of_name = _compiled(text)
        return lambda path, name: of_name(name) is not None
    if text.startswith(b"/"):
        text, plain = text[1:], plain - 1
    if plain == len(text):
        return lambda path, name: path == text
    # Git compares what comes before the first special character by itself, so ``x/a**`` begins with a ``**`` to it.
    start, of_rest = text[:plain], _compiled(text[plain:])
    return lambda path, name: path.startswith(start) and of_rest(path, plain) is not None


def _compiled(text: bytes) -> Callable[..., object]:
    tokens = _tokens(text)
    return re.compile(_NOTHING if tokens is None else _regex(tokens), re.DOTALL).fullmatch


# ---------------------------------------------------------------------- reading a pattern


def _tokens(text: bytes) -> list[bytes] | None:
    """Split a pattern into stars, slashes and expressions for one byte; None if it can never match."""
    found, at = list[bytes](), 0
    while at < len(text):
        here = text[at : at + 1]
        at += 1
        if here == b"[":
            members, at = _bracket(text, at)
            if members is None:
                return None
            found.append(_class(members))
        elif here == b"*":
            begin, at = at - 1, _after_stars(text, at)
            found.append(_TREE if at - begin > 1 and _is_a_name(text, begin, at) else _STAR)
            if found[-1] == _TREE and text.startswith(b"\\", at):
                found += [_SLASH, _STAR]  # before an escaped slash git wants at least one directory
        elif here == b"\\":
            if at == len(text):
                return None
            found.append(_literal(text[at : at + 1]))
            at += 1
        else:
            found.append(b"[^/]" if here == b"?" else _literal(here))
    return found


def _after_stars(text: bytes, at: int) -> int:
    while text[at : at + 1] == b"*":
        at += 1
    return at


def _is_a_name(text: bytes, begin: int, end: int) -> bool:
    """Whether what stands here is a whole name: between slashes, or the ends of the pattern."""
    begins = not begin or text[begin - 1 : begin] == b"/"
    return begins and (end == len(text) or text.startswith((b"/", b"\\/"), end))


def _literal(byte: bytes) -> bytes:
    return _SLASH if byte == b"/" else re.escape(byte)


def _class(members: frozenset[int]) -> bytes:
    return b"[%s]" % b"".join(b"\\x%02x" % each for each in sorted(members)) if members else _NOTHING


_EVERY = frozenset(range(256)) - {ord("/")}
_ASCII = range(128)
_CLASSES = {
    b"alnum": frozenset(each for each in _ASCII if chr(each).isalnum()),
    b"alpha": frozenset(each for each in _ASCII if chr(each).isalpha()),
    b"blank": frozenset(b" \t"),
    b"cntrl": frozenset({*range(32), 127}),
    b"digit": frozenset(b"0123456789"),
    b"graph": frozenset(range(33, 127)),
    b"lower": frozenset(each for each in _ASCII if chr(each).islower()),
    b"print": frozenset(range(32, 127)),
    b"punct": frozenset(each for each in range(33, 127) if not chr(each).isalnum()),
    b"space": frozenset(b" \t\r\n"),
    b"upper": frozenset(each for each in _ASCII if chr(each).isupper()),
    b"xdigit": frozenset(b"0123456789abcdefABCDEF"),
}


def _bracket(text: bytes, at: int) -> tuple[frozenset[int] | None, int]:
    """Read what stands in brackets; return the bytes it matches, None if it is malformed, and where it ends."""
    negated = text[at : at + 1] in (b"!", b"^")
    at += negated
    members, before, first = set[int](), 0, True
    while first or text[at : at + 1] != b"]":
        first = False
        if at >= len(text):
            return None, at
        if text.startswith(b"[:", at) and (end := text.find(b"]", at + 2)) >= 0:
            if text[end - 1 : end] == b":" and end > at + 2:
                known = _CLASSES.get(text[at + 2 : end - 1])
                if known is None:
                    return None, at
                members |= known
                before, at = 0, end + 1
                continue
        elif text.startswith(b"[:", at):
            return None, at
        is_range = text[at] == ord("-") and before and text[at + 1 : at + 2] not in (b"", b"]")
        at += bool(is_range)
        if text[at] == ord("\\"):
            at += 1
            if at >= len(text):
                return None, at
        members |= set(range(before, text[at] + 1)) if is_range else {text[at]}
        before, at = (0 if is_range else text[at]), at + 1
    return (_EVERY - members if negated else _EVERY & members), at + 1


# ---------------------------------------------------------------------- making an expression


def _regex(tokens: list[bytes]) -> bytes:
    """Return the expression for a pattern: runs of names, with any number of directories where a ``**`` stands."""
    names = [*_split(tokens, _SLASH)]
    runs = [*_split(names, [_TREE])]
    if len(runs) == 1:
        return _run(runs[0])
    found = [_run(runs[0]) + b"/"] if runs[0] else []
    found += [b"(?>(?:[^/]*/)*?%s/)" % _run(run) for run in runs[1:-1] if run]
    # A last ``**`` matches all that is left.
    found.append(b"(?>(?:[^/]*/)*?%s\\Z)" % _run(runs[-1]) if runs[-1] else b".*")
    return b"".join(found)


def _split(items: list[T], at: T) -> Iterator[list[T]]:
    here = list[T]()
    for each in items:
        if each == at:
            yield here
            here = []
        else:
            here.append(each)
    yield here


def _run(names: list[list[bytes]]) -> bytes:
    return b"/".join(map(_name, names))


def _name(tokens: list[bytes]) -> bytes:
    first, *rest = (b"".join(each) for each in _split(tokens, _STAR))
    if not rest:
        return first
    middle = b"".join(b"(?>[^/]*?%s)" % each for each in rest[:-1])
    last = b"(?>[^/]*?%s(?=/|\\Z))" % rest[-1] if rest[-1] else b"[^/]*"
    return first + middle + last
