"""What a caller wants of a rewind, besides where to: which paths, which of them by force, and whose changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from . import arguments

if TYPE_CHECKING:
    from collections.abc import Callable


class RewindChoice(NamedTuple):
    """What a caller wants of a rewind: only some paths, some overwritten, and other sessions' changes taken back too.

    An empty path among those to be overwritten stands for all of them.
    """

    overwrite: tuple[bytes, ...] = ()
    paths: tuple[bytes, ...] | None = None
    sessions: tuple[str, ...] | Literal["all"] = ()

    def overwrites(self, path: bytes) -> bool:
        """Whether a path is to be restored whoever changed it."""
        return _is_in(path, self.overwrite)

    def wants(self, path: bytes) -> bool:
        """Whether a path is to be restored at all."""
        return self.paths is None or _is_in(path, self.paths)


def _is_in(path: bytes, among: tuple[bytes, ...]) -> bool:
    return any(not each or path == each or path.startswith(each + b"/") for each in among)


def choice_of(inside: Callable[[Any], bytes], overwrite: Any, paths: Any, others: Any = ()) -> RewindChoice:
    """Check what a caller wants of a rewind; ``inside`` makes a path relative to the workspace."""
    forced = (b"",) if overwrite == "all" else tuple(map(inside, arguments.many(overwrite, what="overwrite")))
    only = None if paths is None else tuple(map(inside, arguments.many(paths, what="paths")))
    if others == "all":
        return RewindChoice(forced, only, "all")
    ids = [getattr(each, "id", each) for each in arguments.many(others, what="sessions")]
    return RewindChoice(forced, only, tuple(arguments.name(each, what="session") for each in ids))
