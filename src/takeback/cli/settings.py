"""The flags that every verb knows, as they were given: before the verb or behind it, the last one wins."""

from __future__ import annotations

from .options import TEXT, Choice, Kind, Option, flag


class Settings:
    """What the flags say."""

    def __init__(self) -> None:
        self.store: str | None = None
        self.directory: str | None = None
        self.json = self.jsonl = self.quiet = self.verbose = self.utc = False
        self.dry_run = self.yes = False
        self.fields: tuple[str, ...] = ()
        self.color = "auto"
        self.pager = True

    @property
    def contradiction(self) -> str | None:
        """Which flags cannot both be meant; None if all can."""
        other = "--jsonl" if self.jsonl else "-q" if self.quiet else None
        return f"--json and {other} contradict each other: leave one out" if self.json and other else None


def _fields(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


EVERYWHERE = (
    Option(("--store",), "store", TEXT, "The store to use.", metavar="URL"),
    Option(("-C",), "directory", TEXT, "Start in DIR.", metavar="DIR"),
    flag("--json", to="json", help="One JSON document."),
    flag("--jsonl", to="jsonl", help="One JSON object per line."),
    Option(("--fields",), "fields", Kind("fields", _fields), "Only these fields.", metavar="A,B"),
    flag("-q", "--quiet", to="quiet", help="Only ids."),
    flag("-v", "--verbose", to="verbose", help="Say more on stderr, with tracebacks."),
    flag("--utc", to="utc", help="Show times in UTC."),
    Option(("--color",), "color", Choice("auto", "always", "never"), "When to colour (NO_COLOR is obeyed)."),
    flag("--no-pager", to="pager", help="Never use a pager.", sets=False),
)
FOR_CHANGES = (
    flag("-n", "--dry-run", to="dry_run", help="Only say what would be done."),
    flag("-y", "--yes", to="yes", help="Do not ask."),
)
