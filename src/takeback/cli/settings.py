"""The flags that every verb takes, given before or after the verb; the last one wins."""

from __future__ import annotations


class Settings:
    """The values of the common flags."""

    def __init__(self) -> None:
        self.store: str | None = None
        self.directory: str | None = None
        self.json = self.jsonl = self.quiet = self.verbose = self.utc = False
        self.dry_run = self.yes = False
        self.fields: tuple[str, ...] = ()
        self.color = "auto"
        self.no_pager = False

    @property
    def contradiction(self) -> str | None:
        """A message about flags that exclude each other; None if there are none."""
        other = "--jsonl" if self.jsonl else "-q" if self.quiet else None
        return f"--json and {other} exclude each other; leave one out" if self.json and other else None
