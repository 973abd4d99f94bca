"""List every feature, every defect of earlier systems and every finding of trials with its tests, without running them.

A test carries ``@pytest.mark.feature("A3")``, ``defect("S4-19")`` or ``trial("T83")``; so may a class or, as
``pytestmark``, a module. A marker that names no row of its page is an error.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = {kind: ROOT / "docs" / f"{kind}s.md" for kind in ("feature", "defect", "trial")}
ROW = re.compile(r"^\| ([A-Z]\d+(?:-\d+)?) \| (.*?) \|", re.M)

Proofs = dict[str, list[str]]


@cache
def rows(kind: str) -> dict[str, str]:
    """Read the rows of a page."""
    return dict(ROW.findall(PAGES[kind].read_text("utf-8")))


def proofs(kind: str) -> Proofs:
    """Find the tests that carry each id of a kind."""
    return _all_proofs()[kind]


@cache
def _all_proofs() -> dict[str, Proofs]:
    found: dict[str, Proofs] = {kind: {} for kind in PAGES}
    for path in sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "src" / "takeback" / "testing").rglob("*.py")]):
        for name, mark in _marks(ast.parse(path.read_text("utf-8"))):
            for kind, row in _ids(mark):
                found[kind].setdefault(row, []).append(f"{path.relative_to(ROOT)}::{name}".removesuffix("::"))
    return found


def _marks(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield each decorator and module-wide mark of a file, with the name of the test or class that carries it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from ((node.name, mark) for mark in node.decorator_list)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            several = isinstance(node.value, ast.List | ast.Tuple)
            yield from (("", mark) for mark in (node.value.elts if several else [node.value]))


def _ids(mark: ast.expr) -> Iterator[tuple[str, str]]:
    """Yield the kind and the row of each id that a mark gives."""
    if isinstance(mark, ast.Call):
        kind = ast.unparse(mark.func).removeprefix("pytest.mark.")
        for argument in mark.args if kind in PAGES else ():
            if isinstance(argument, ast.Constant):
                yield kind, argument.value


def unknown_markers() -> list[str]:
    """Find markers that name no row."""
    found = []
    for kind in PAGES:
        unknown = {row: tests for row, tests in proofs(kind).items() if row not in rows(kind)}
        found += [f"{test}: {kind} {row} is not a row of the page" for row, tests in unknown.items() for test in tests]
    return found


def unproved() -> list[str]:
    """Find defects and findings of trials without a test: such a row would be a mere claim."""
    return [
        f"docs/{kind}s.md: no test for {row}"
        for kind in ("defect", "trial")
        for row in sorted(rows(kind).keys() - proofs(kind).keys())
    ]


def _list(kind: str) -> None:
    known, found = rows(kind), proofs(kind)
    for row, what in known.items():
        tests = found.get(row, [])
        print(f"{row:5} {what}  [{len(tests) or 'no'} tests]")
        for test in tests:
            print(f"        {test}")
    missing = [row for row in known if row not in found]
    counted = f"{kind}s: {len(known) - len(missing)} of {len(known)} have tests"
    print(f"\n{counted}. Without: {' '.join(missing) or 'none'}\n")


def main() -> int:
    """Print the lists; fail on a marker that names no row, and on a defect or finding without a test."""
    for kind in PAGES:
        _list(kind)
    wrong = [*unknown_markers(), *unproved()]
    print("\n".join(wrong), file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
