"""Options and fixtures that every test folder shares: long counts, one seed, and a tally of what was proven."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import _unproven

_TALLY = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("takeback")
    group.addoption("--deep", action="store_true", help="prove the promises with their long counts (make crash)")
    group.addoption("--seed", type=int, default=1, metavar="N", help="where all randomness starts (default 1)")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TALLY] = Counter()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background: programs would ignore Ctrl-C too
        signal.signal(signal.SIGINT, signal.default_int_handler)


# Processes that fork come first, while they are small; what is short comes last, so that all workers end together.
_ROOMS = ("crash", "workspace", "contract", "postgres", "mcp_server", "tools", "properties", "cli", "examples", "unit")
_QUICK_OF_EACH = 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the rooms, and mark what ``make test-quick`` runs: a little of everything, and one store's contract."""
    items.sort(key=_place)
    seen = Counter[str]()
    for item in items:
        if item.get_closest_marker("slow") or item.parent is None:
            continue
        seen[item.parent.nodeid] += 1
        if seen[item.parent.nodeid] <= _QUICK_OF_EACH or item.parent.name == "TestFile":
            item.add_marker("quick")


def _place(item: pytest.Item) -> int:
    room = item.path.parent.name
    return _ROOMS.index(room) if room in _ROOMS else len(_ROOMS)


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The number that all randomness of a run starts from; ``--seed N`` repeats a run."""
    return int(request.config.getoption("--seed"))


@pytest.fixture(scope="session")
def deep(request: pytest.FixtureRequest) -> bool:
    """Whether the long counts were asked for."""
    return bool(request.config.getoption("--deep"))


@pytest.fixture(scope="session")
def counts(deep: bool) -> Callable[[int, int], int]:
    """Choose a count: ``counts(ci, deep)`` gives the second one under ``--deep``."""
    return lambda ci, long: long if deep else ci


@pytest.fixture(scope="session")
def tally(request: pytest.FixtureRequest) -> Callable[..., int]:
    """Count what was tried: ``tally("R1 kills", 50)`` adds it to the summary of the run and gives the sum."""
    totals = request.config.stash[_TALLY]

    def add(what: str, number: int = 0) -> int:
        totals[what] += number
        return totals[what]

    return add


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what was tried to the process that sums it up, where tests run in several."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["tried"] = dict(session.config.stash[_TALLY])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Add up what another process tried."""
    node.config.stash[_TALLY].update(getattr(node, "workeroutput", {}).get("tried", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report how much was tried, how to repeat a failure, and loudly what this machine could not prove."""
    report = terminalreporter
    if totals := config.stash[_TALLY]:
        report.write_line("tried: " + ", ".join(f"{what} {number:,}" for what, number in sorted(totals.items())))
    if report.stats.get("failed") or report.stats.get("error"):
        report.write_line(f"repeat with: --seed {config.getoption('--seed')}", bold=True)
    skipped = [each for each in report.stats.get("skipped", []) if _is_unproven(each)]
    if skipped:
        report.write_sep("!", "NOT PROVEN HERE", yellow=True, bold=True)
    for each in skipped:
        reason = each.longrepr[2] if isinstance(each.longrepr, tuple) else each.longrepr
        report.write_line(f"{each.nodeid}: {str(reason).removeprefix('Skipped: ')}", yellow=True)


def _is_unproven(report: pytest.TestReport) -> bool:
    """Whether a test was skipped because this machine lacks what it needs."""
    return "needs_root" in report.keywords or _unproven.NOT_PROVEN in str(report.longrepr)
