"""How the files of a session are captured."""

from __future__ import annotations

import msgspec

from ..errors import Invalid
from . import Portable

MODES = ("calls", "turns", "manual", "off")


class Capture(Portable, msgspec.Struct, frozen=True):
    """When the workspace of a session is scanned, and what is kept.

    ``calls``: around every tool call and at every turn. ``turns``: at the start and end of turns. ``manual``: only by
    checkpoints. ``off``: never, though announced files are still kept. ``ignore`` adds lines to the rules of
    ``.gitignore`` and ``.takebackignore``.
    """

    mode: str = "calls"
    largest_file: int = 100 << 20
    largest_total: int = 4 << 30
    ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise Invalid(f"capture must be {', '.join(MODES[:-1])} or {MODES[-1]}, not {self.mode!r}")
        for name in ("largest_file", "largest_total"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 0:
                raise Invalid(f"{name} must be a number of bytes, not {getattr(self, name)!r}")
        if not isinstance(self.ignore, tuple) or not all(isinstance(line, str) for line in self.ignore):
            raise Invalid("ignore must be a tuple of lines as in .gitignore")


def capture_of(given: object) -> Capture:
    """Return the ``Capture`` that a caller gave, as a mode or as such."""
    if isinstance(given, Capture):
        return given
    if not isinstance(given, str):
        raise Invalid(f"capture must be a mode or a Capture, not {type(given).__name__}")
    return Capture(given)
