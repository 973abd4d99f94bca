"""The flags that every verb takes, given before or after the verb; the last one wins."""

from __future__ import annotations

from .options import TEXT, Kind, OneOf, Option, flag


class Settings:
    """The values of the common flags."""

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
        """A message about flags that exclude each other; None if there are none."""
        other = "--jsonl" if self.jsonl else "-q" if self.quiet else None
        return f"--json and {other} exclude each other; leave one out" if self.json and other else None


def _fields(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


EVERYWHERE = (
    Option(("--store",), "store", TEXT, "Use this store.", metavar="URL"),
    Option(("-C",), "directory", TEXT, "Start in DIR.", metavar="DIR"),
    flag("--json", to="json", help="Write one JSON document."),
    flag("--jsonl", to="jsonl", help="Write one JSON object per line."),
    Option(("--fields",), "fields", Kind("fields", _fields), "Write only these fields.", metavar="A,B"),
    flag("-q", "--quiet", to="quiet", help="Write only ids."),
    flag("-v", "--verbose", to="verbose", help="Write more to stderr, with tracebacks."),
    flag("--utc", to="utc", help="Show times in UTC."),
    Option(("--color",), "color", OneOf("auto", "always", "never"), "When to use colour; NO_COLOR is respected."),
    flag("--no-pager", to="pager", help="Never use a pager.", sets=False),
)
FOR_CHANGES = (
    flag("-n", "--dry-run", to="dry_run", help="Only show what would be done."),
    flag("-y", "--yes", to="yes", help="Do not ask for confirmation."),
)
