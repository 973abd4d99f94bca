"""Run the groups and write the page. ``--only p1,p4`` runs some of them, ``--quick`` takes three minutes.

``--smoke`` does as little as can be, also without peers, and writes nothing: it shows that all groups run.

Groups are imported when they run: writing processes import this module again, and need none of the peers.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import tempfile
import time
import warnings
from importlib import import_module
from pathlib import Path

from .common import ROOT, SCRATCH, Settings, load, machine, say
from .report import Section, renewed, summary, write_page

GROUPS = {
    "p1": "p1_append",
    "p2": "p2_concurrent",
    "p3": "p3_async",
    "p4": "p4_read",
    "p5": "p5_list",
    "p6": "p6_search",
    "p7": "p7_points",
    "p8": "workspace",
    "p9": "p9_growth",
    "p10": "p10_start",
    "p11": "p11_memory",
    "p12": "p12_postgres",
    "p13": "p13_open",
    "p17": "p17_scale",
    "context": "context",
    "live": "live",
}


def main() -> None:
    """Read the command line, run, print, write."""
    options = _options()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    SCRATCH.mkdir(parents=True, exist_ok=True)
    described, before = machine(SCRATCH), load()
    say(f"{described}, load average {before}")
    found = _run(options.only, options)
    for section in found.values():
        print(f"\n{section.markdown()}")
    print(f"\n{summary(check for section in found.values() for check in section.checks)}")
    if options.smoke:
        return
    described = f"Last run: {', '.join(found)}; seed {options.seed}; {described}; load average {before} before the run"
    described += f" and {load()} after it, its own work included."
    _write(SCRATCH if options.quick else ROOT / "docs", found, described)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", type=_names, default=list(GROUPS), help=f"some of {','.join(GROUPS)}")
    parser.add_argument("--quick", action="store_true", help="small amounts; writes to build/bench, not to docs")
    parser.add_argument("--smoke", action="store_true", help="hardly anything, to see that it runs; writes nothing")
    parser.add_argument("--seed", type=int, default=1, help="of the messages and of the order of arms")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in GROUPS:
            raise argparse.ArgumentTypeError(f"there is no group {name!r}; there are {', '.join(GROUPS)}")
    return names


def _run(names: list[str], options: argparse.Namespace) -> dict[str, Section]:
    found = {}
    for name in names:
        started = time.monotonic()
        scratch = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=None if options.smoke else SCRATCH))
        try:
            group = import_module(f"benchmarks.{GROUPS[name]}")
            found[name] = group.run(
                Settings(
                    scratch,
                    quick=options.quick or options.smoke,
                    smoke=options.smoke,
                    seed=options.seed,
                    rng=random.Random(options.seed),
                )
            )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        say(f"{name} took {time.monotonic() - started:.0f} s")
    return found


def _write(directory: Path, found: dict[str, Section], described: str) -> None:
    """Replace what was measured; the picture needs all of it."""
    blocks = {name: section.markdown() for name, section in found.items()}
    blocks["machine"] = described
    checks = [check for section in found.values() for check in section.checks]
    page = directory / "benchmarks.md"
    if found.keys() == GROUPS.keys():
        from . import plot

        plot.draw(directory / "benchmarks.svg", {name: section.plot for name, section in found.items()})
        picture = "![Append, eight writers and reading, next to the limit and the peers](benchmarks.svg)"
        blocks["summary"] = f"{picture}\n\n{summary(checks)}"
    elif page.exists():
        blocks["summary"] = renewed(page, checks)
    write_page(page, blocks)
    say(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
