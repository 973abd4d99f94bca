"""What ``verify`` found, and what ``repair`` could keep."""

from __future__ import annotations

import msgspec

from . import Portable


class Problem(Portable, msgspec.Struct, frozen=True):
    """One problem: its kind, where it is, what it is and what to do about it."""

    kind: str
    where: str
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.where}: {self.what}. {self.fix}"


class Report(Portable, msgspec.Struct, frozen=True):
    """All problems that a check found. A report without problems is false."""

    problems: tuple[Problem, ...]
    checked: int

    def __bool__(self) -> bool:
        return bool(self.problems)

    def __str__(self) -> str:
        if not self.problems:
            return f"{self.checked} records checked, no problems"
        lines = [f"{self.checked} records checked, {len(self.problems)} problems:"]
        return "\n  ".join([*lines, *map(str, self.problems)])


class Repaired(Portable, msgspec.Struct, frozen=True):
    """A repaired copy: where it is, what was lost record by record, and the report of verifying the copy.

    ``rebuilt`` counts damaged records that were rebuilt from others without loss.
    """

    path: str
    lost: tuple[Problem, ...]
    rebuilt: int
    report: Report

    def __str__(self) -> str:
        count = f"{len(self.lost)} records lost, {self.rebuilt} rebuilt; the copy: {self.report}"
        return "\n  ".join([f"{self.path}: {count}", *(f"lost: {each}" for each in self.lost)])
