"""Everything known of a provider lies in its folder: nothing else branches on a provider's name."""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from takeback.providers import NAMES, find_provider, load

pytestmark = pytest.mark.feature("F3")

SOURCE = Path(takeback.__file__).parent
FOLDERS = {name.replace("-", "_") for name in NAMES}
MODULES = {"__init__", "form", "glance", "known", "read", "rules", "write"}
ALONE = {"gemini": {"chunks"}}  # its SDK leaves it to the caller to put the chunks of a stream together
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
        assert found[name] == MODULES | ALONE.get(name, set()), name


@pytest.mark.parametrize("name", NAMES)
def test_a_provider_goes_by_the_name_it_is_registered_with(name: str) -> None:
    assert load(name, "form").FORM == find_provider(name).rules.form == name


TOLD = """
import takeback
from takeback.providers import NAMES
assert NAMES[-1] == "toy"
said = [
    {"role": "user", "content": [{"text": "Go"}]},
    {"toyed": {"message": {"role": "assistant", "content": [
        {"text": "I look."}, {"toyUse": {"toyUseId": "t1", "name": "look", "input": {"at": "a"}}}]}},
     "stopReason": "toy", "usage": {"toyTokens": 7}},
    {"role": "user", "content": [{"toyResult": {"toyUseId": "t1", "content": [{"text": "seen"}]}}]},
]
with takeback.open(":memory:") as store:
    session = store.create_session("s")
    session.append(*said)
    call = session.tool_calls()[0]
    assert (call.name, call.status, call.result) == ("look", "completed", [{"text": "seen"}]), call
    assert session.stats().usage.input_tokens == 7
    sent = session.context("toy", model="m").request()
    assert [message["content"] for message in sent["messages"]] == [
        said[0]["content"], said[1]["toyed"]["message"]["content"], said[2]["content"]], sent
    for name in NAMES:
        shown = repr(session.context(name).request())
        assert all(word in shown for word in ("Go", "I look.", "look", "seen")), (name, shown)
    session.append({"role": "assistant", "content": [{"type": "text", "text": "Anthropic's", "citations": None}]})
    assert "Anthropic's" in repr(session.context("toy").request())
"""


def test_a_provider_needs_its_folder_and_one_line(tmp_path: Path) -> None:
    """A form that nobody knows is added to a copy of the library, and everything works with it."""
    copied = tmp_path / "takeback"
    shutil.copytree(SOURCE, copied, ignore=shutil.ignore_patterns("__pycache__", "demo"))
    (copied / "providers" / "toy").mkdir()
    for path in (SOURCE / "providers" / "bedrock").glob("*.py"):
        made = path.read_text().replace("toolUse", "toyUse").replace("toolResult", "toyResult")
        made = made.replace('FORM = "bedrock"', 'FORM = "toy"').replace("inputTokens", "toyTokens")
        made = made.replace('"output"', '"toyed"')
        (copied / "providers" / "toy" / path.name).write_text(made)
    registry = copied / "providers" / "__init__.py"
    registry.write_text(registry.read_text().replace('    "bedrock",\n', '    "bedrock",\n    "toy",\n'))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", TOLD], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
