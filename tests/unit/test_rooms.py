"""The house: every room is on the map, the client is thin, a class name means one thing, a provider is a folder."""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback

SOURCE = Path(takeback.__file__).parent
ROOT = SOURCE.parent.parent
SQL = re.compile(r"\\b(SELECT|INSERT INTO|UPDATE|DELETE FROM)\\b [\\w*?(]")


def trees(room: str = "") -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules of a room, parsed."""
    for path in sorted((SOURCE / room).rglob("*.py")):
        yield str(path.relative_to(SOURCE)), ast.parse(path.read_text("utf-8"))


def test_the_map_of_contributing_shows_every_room() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    drawn = page.split("    src/takeback/\n")[1].split("    tests/")[0]
    shown = {name for line in drawn.splitlines() for name in re.findall(r"[a-z_]+", line[:32])}
    rooms = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or path.joinpath("__init__.py").exists()}
    assert shown >= rooms - {"__init__", "__main__"}


def test_every_room_has_its_place_in_the_layers() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    layers = next(each for each in settings["contracts"] if each["type"] == "layers")["layers"]
    placed = {name.split(".")[1] for layer in layers for name in re.findall(r"takeback[.a-z_]+", layer)}
    assert placed >= {path.parent.name for path in SOURCE.glob("*/__init__.py")}


def test_the_client_runs_operations_and_has_none_of_its_own() -> None:
    """No function of a transaction, and no SQL: what it means is in ``ops`` and ``files``."""
    found = list[str]()
    for name, tree in trees("client"):
        for node in ast.walk(tree):
            if isinstance(node, ast.arg) and node.arg == "tx":
                found.append(f"{name}:{node.lineno} takes a transaction")
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.search(node.value):
                found.append(f"{name}:{node.lineno} holds SQL")
    assert not found


def test_a_class_name_means_one_thing() -> None:
    homes = defaultdict[str, list[str]](list)
    for name, tree in trees():
        if name.startswith("testing/") or name == "aio.py":  # the kit for tests, and the generated twin
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    assert not {name: where for name, where in homes.items() if len(where) > 1}


@pytest.mark.trial("T81")
def test_no_assertion_judges_a_time() -> None:
    """A test may give up waiting, but what it measured of time must not decide: machines are busy."""
    clocks = ("monotonic", "perf_counter", "time", "process_time")
    found = list[str]()
    for room in (ROOT / "tests", SOURCE / "testing"):
        for path in sorted(room.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Assert) and any(_is_elapsed(each, clocks) for each in ast.walk(node.test)):
                    found.append(f"{path.name}:{node.lineno}")
    assert not found


def _is_elapsed(node: ast.AST, clocks: tuple[str, ...]) -> bool:
    """Whether an expression is the difference of a clock and something, or is called as if it were one."""
    if isinstance(node, ast.Name):
        return node.id in ("elapsed", "took", "duration_seconds")
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
        return False
    called = node.left.func if isinstance(node.left, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr in clocks


@pytest.mark.trial("T82")
def test_every_benchmark_runs_in_ci_without_being_judged() -> None:
    assert "make bench-quick" in (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    recipe = (ROOT / "Makefile").read_text("utf-8").split("\nbench-quick:")[1].split("\n\n")[0]
    assert "-m benchmarks --smoke" in recipe
    assert "--only" not in recipe
