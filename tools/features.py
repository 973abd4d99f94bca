"""List every feature, every defect of earlier systems and every finding of trials with its tests, without running them.

A test carries ``@pytest.mark.feature("A3")``, ``defect("S4-19")`` or ``trial("T83")``; so may a class or, as
``pytestmark``, a module. A marker that names no row of its page is an error.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = {kind: ROOT / "docs" / f"{kind}s.md" for kind in ("feature", "defect", "trial")}
ROW = re.compile(r"^\| ([A-Z]\d+(?:-\d+)?) \| (.*?) \|", re.M)

Proofs = dict[str, list[str]]


def rows(kind: str) -> dict[str, str]:
    """Read the rows of a page."""
    return dict(ROW.findall(PAGES[kind].read_text("utf-8")))


def proofs(kind: str) -> Proofs:
    """Find the tests that carry each id."""
    found: Proofs = {}
    for path in sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "src" / "takeback" / "testing").rglob("*.py")]):
        for name, row in _marked(ast.parse(path.read_text("utf-8")), kind):
            found.setdefault(row, []).append(f"{path.relative_to(ROOT)}::{name}".removesuffix("::"))
    return found


def _marked(tree: ast.Module, kind: str) -> Iterator[tuple[str, str]]:
    """Yield each marker of a kind in a file, with the name of the test or class that carries it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for mark in node.decorator_list:
                yield from ((node.name, row) for row in _ids(mark, kind))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            for mark in node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]:
                yield from (("", row) for row in _ids(mark, kind))


def _ids(mark: ast.expr, kind: str) -> list[str]:
    if not isinstance(mark, ast.Call) or ast.unparse(mark.func) != f"pytest.mark.{kind}":
        return []
    return [argument.value for argument in mark.args if isinstance(argument, ast.Constant)]


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
