"""What a group hands back, and how it becomes tables on the screen and in ``docs/benchmarks.md``.

The page is text around generated blocks; a run replaces the blocks of the groups it ran and leaves the rest.
Every table ends with what must be reached and whether it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NONE = "-"


@dataclass(frozen=True)
class Check:
    """One promise, measured."""

    what: str
    measured: str
    must: str
    reached: bool


@dataclass
class Table:
    """A question, and its answer in rows."""

    text: str
    head: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)

    def add(self, *cells: str, must: str = NONE, reached: bool | None = None, why: str = "") -> None:
        """Add a row; ``why`` names what was missed."""
        answer = NONE if reached is None else "yes" if reached else f"**no**{': ' + why if why else ''}"
        self.rows.append((*cells, must, answer))

    def markdown(self) -> str:
        """Write the table with its text above it."""
        lines = [(*self.head, "must reach", "reached"), ["---"] * (len(self.head) + 2), *self.rows]
        return self.text + "\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


@dataclass
class Section:
    """Everything a group found: tables to read, checks to count, numbers to draw."""

    title: str
    tables: list[Table]
    checks: list[Check]
    plot: dict[str, Any] = field(default_factory=dict)

    def markdown(self) -> str:
        """Write the section."""
        return "\n\n".join([f"## {self.title}", *(table.markdown() for table in self.tables)])


def summary(checks: Iterable[Check]) -> str:
    """Write all checks of a run as one table."""
    head = "| promise | measured | must reach | reached |\n| --- | --- | --- | --- |\n"
    return head + "\n".join(map(_row, checks))


def _row(check: Check) -> str:
    return f"| {check.what} | {check.measured} | {check.must} | {'yes' if check.reached else '**no**'} |"


def renewed(page: Path, checks: Iterable[Check]) -> str:
    """Return the summary of a page with the rows that were measured again, or for the first time."""
    lines = _block(page.read_text("utf-8"), "summary").splitlines()
    for check in checks:
        row = _row(check)
        at = next((n for n, line in enumerate(lines) if line.startswith(f"| {check.what} |")), len(lines))
        lines[at : at + 1] = [row]
    return "\n".join(lines)


def _block(text: str, name: str) -> str:
    return text.partition(f"<!-- generated: {name} -->\n")[2].partition(f"\n<!-- end: {name} -->")[0]


def write_page(page: Path, blocks: dict[str, str]) -> None:
    """Put generated blocks between their markers; a page that is missing is begun from the template."""
    text = page.read_text("utf-8") if page.exists() else TEMPLATE
    for name, block in blocks.items():
        begin, end = f"<!-- generated: {name} -->", f"<!-- end: {name} -->"
        pattern = re.escape(begin) + ".*?" + re.escape(end)
        fresh = f"{begin}\n{block}\n{end}"
        if match := re.search(pattern, text, re.DOTALL):
            text = text[: match.start()] + fresh + text[match.end() :]
        else:
            text = f"{text.rstrip()}\n\n{fresh}\n"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, "utf-8")


TEMPLATE = """# How fast, how large, and next to what

The numbers here come from `make bench`. In one run Takeback, the physical limit and stores that agents use today
do the same work on the same disk in the same minutes, in small blocks of random order.

**Read the ratios, and the load beside them.** Absolute times mean nothing: another disk or a busier machine changes
them all. Judged is the ratio to the least that could do the job in the same run: bare SQLite with a full sync, one
statement, encoded beforehand, nothing checked. Ratios are not free of the machine either: where a sync is slow or the
disk is busy, waiting hides work and every durable store moves toward 1, so **a noisy run flatters**. What was missed
says **no**.

To repeat it, on a machine that does nothing else: `make bench`. Some groups only, a smaller run that writes to
`build/bench/` instead of this page, or other messages and another order:

    .venv-bench/bin/python -m benchmarks --only p1,p4
    .venv-bench/bin/python -m benchmarks --quick
    .venv-bench/bin/python -m benchmarks --seed 7

<!-- generated: machine -->
<!-- end: machine -->

## At a glance

<!-- generated: summary -->
<!-- end: summary -->

<!-- generated: p1 -->
<!-- end: p1 -->

<!-- generated: p2 -->
<!-- end: p2 -->

<!-- generated: p3 -->
<!-- end: p3 -->

<!-- generated: p4 -->
<!-- end: p4 -->

<!-- generated: p5 -->
<!-- end: p5 -->

<!-- generated: p6 -->
<!-- end: p6 -->

<!-- generated: p7 -->
<!-- end: p7 -->

<!-- generated: p8 -->
<!-- end: p8 -->

<!-- generated: p9 -->
<!-- end: p9 -->

<!-- generated: p10 -->
<!-- end: p10 -->

<!-- generated: p11 -->
<!-- end: p11 -->

<!-- generated: p12 -->
<!-- end: p12 -->

<!-- generated: context -->
<!-- end: context -->
"""
