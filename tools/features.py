"""List every mission row with the tests that prove it. Reads the markers; runs nothing."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| ([A-F]\d+) \| (.*?) \|$", re.M)
MARKED = re.compile(r"@pytest\.mark\.feature\(([^)]*)\)(?:\s*@[^\n]*(?:\([^@]*?\))?)*\s*(?:def|class) (\w+)", re.S)


def rows() -> dict[str, str]:
    """Read the rows of docs/features.md."""
    return dict(ROW.findall((ROOT / "docs" / "features.md").read_text("utf-8")))


def proofs() -> dict[str, list[str]]:
    """Find the tests that carry each id."""
    found: dict[str, list[str]] = {}
    files = [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "src" / "holdfast" / "testing" / "contract").glob("*.py")]
    for path in sorted(files):
        for ids, name in MARKED.findall(path.read_text("utf-8")):
            for row in re.findall(r"[A-F]\d+", ids):
                found.setdefault(row, []).append(f"{path.relative_to(ROOT)}::{name}")
    return found


def main() -> int:
    """Print the list; fail on a marker that names no row."""
    known, found = rows(), proofs()
    for row, what in known.items():
        tests = found.get(row, [])
        print(f"{row:4} {what}  [{len(tests) or 'no'} tests]")
        for test in tests:
            print(f"       {test}")
    missing = [row for row in known if row not in found]
    print(f"\n{len(known) - len(missing)} of {len(known)} rows have tests. Without: {' '.join(missing) or 'none'}")
    unknown = sorted(found.keys() - known.keys())
    if unknown:
        print(f"markers that name no row: {' '.join(unknown)}", file=sys.stderr)
    return int(bool(unknown))


if __name__ == "__main__":
    sys.exit(main())
