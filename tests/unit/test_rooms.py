"""The house: every room is on the map, the client is thin, a class name means one thing, a provider is a folder."""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

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
