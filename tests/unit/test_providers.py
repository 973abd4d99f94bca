"""Everything known of a provider lies in its folder: nothing else branches on a provider's name."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from takeback.providers import NAMES, find_provider, load

pytestmark = pytest.mark.feature("F3")

SOURCE = Path(takeback.__file__).parent
FOLDERS = {name.replace("-", "_") for name in NAMES}
MODULES = {"__init__", "form", "glance", "provider", "read", "rules", "write"}
# What tests is a second opinion: the strict validators are made from the providers' rules, not from what is known here.
APART = ("providers/", "testing/")


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(APART):
            yield name, ast.parse(path.read_text())


def names_in(node: ast.AST) -> Iterator[int]:
    """Find the places where a provider's name decides: compared, matched, looked up, or listed."""
    for each in ast.walk(node):
        if isinstance(each, ast.Compare | ast.Dict | ast.Set | ast.List | ast.Tuple | ast.Subscript | ast.MatchValue):
            yield from (
                inner.lineno
                for inner in ast.iter_child_nodes(each)
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str) and inner.value in NAMES
            )


def test_no_module_elsewhere_branches_on_a_providers_name() -> None:
    assert [f"{name}:{line}" for name, tree in modules() for line in names_in(tree)] == []


def test_no_module_elsewhere_imports_from_a_providers_folder() -> None:
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and "providers" in (node.module or "").split("."):
                assert FOLDERS.isdisjoint((node.module or "").split(".")), name
                assert FOLDERS.isdisjoint(each.name for each in node.names), name


def test_every_folder_is_registered_and_holds_the_same_modules() -> None:
    found = {path.name: {each.stem for each in path.glob("*.py")} for path in (SOURCE / "providers").iterdir()}
    assert {name for name in found if found[name]} == FOLDERS
    for name in FOLDERS:
        assert found[name] == MODULES, name


@pytest.mark.parametrize("name", NAMES)
def test_a_provider_goes_by_the_name_it_is_registered_with(name: str) -> None:
    assert load(name, "form").FORM == find_provider(name).rules.form == name
