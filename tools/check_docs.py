"""Check the docs: links lead somewhere, public names are described, generated parts are current."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import holdfast

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(#[^)]*)?\)")


def pages() -> list[Path]:
    """Give every Markdown page of the project."""
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def broken_links() -> list[str]:
    """Find relative links that lead nowhere."""
    found = []
    for page in pages():
        for target, _ in LINK.findall(page.read_text("utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                found.append(f"{page.relative_to(ROOT)}: link to {target} leads nowhere")
    return found


def undocumented() -> list[str]:
    """Find public names and methods that the reference does not mention or that have no docstring."""
    reference = (ROOT / "docs" / "reference.md").read_text("utf-8")
    found = []
    for name in holdfast.__all__:
        thing = getattr(holdfast, name)
        if f"`{name}" not in reference:
            found.append(f"docs/reference.md does not mention {name}")
        if not inspect.isclass(thing):
            continue
        for member, value in inspect.getmembers(thing):
            if member.startswith("_") or not (inspect.isfunction(value) or isinstance(value, property)):
                continue
            if not inspect.getdoc(value):
                found.append(f"holdfast.{name}.{member} has no docstring")
            if name in ("Store", "Session") and f"`{member}" not in reference:
                found.append(f"docs/reference.md does not mention {name}.{member}")
    return found


def stale() -> list[str]:
    """Find generated pages that are out of date."""
    done = subprocess.run([sys.executable, str(ROOT / "tools" / "gen_spec.py"), "--check"], check=False)
    return ["docs/SPEC.md is stale"] if done.returncode else []


def main() -> int:
    """Print what is wrong."""
    problems = [*broken_links(), *undocumented(), *stale()]
    print("\n".join(problems) or f"{len(pages())} pages checked, no problems")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
