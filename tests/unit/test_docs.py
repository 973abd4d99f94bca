"""The pages are true: what they show runs as it is printed, what they name is there, what is there is named."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_docs  # noqa: E402
import features  # noqa: E402

sys.path.remove(str(ROOT / "tools"))


@pytest.mark.feature("E6")
@pytest.mark.parametrize("page", check_docs.pages_with_code(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_block_runs(page: Path, tmp_path: Path) -> None:
    problem = check_docs.broken_example(page, tmp_path)
    assert not problem, problem


@pytest.mark.feature("E6")
def test_links_lead_somewhere_and_public_names_are_described() -> None:
    assert check_docs.broken_links() == []
    assert check_docs.undocumented() == []


@pytest.mark.feature("C3")
def test_the_awaitable_twins_have_the_same_names_and_generated_files_are_current() -> None:
    assert check_docs.missing_twins() == []
    assert check_docs.stale() == []


@pytest.mark.feature("E6")
def test_an_example_that_prints_something_else_is_noticed(tmp_path: Path) -> None:
    assert check_docs._not_printed("print(1 + 1)  # 2\nprint('b')  # b", "2\nb\n") == ""
    assert check_docs._not_printed("print(1 + 1)  # 3", "2\n") == "line 1 does not print '3'"


@pytest.mark.feature("E6")
def test_every_marker_names_a_row_and_every_defect_has_a_test() -> None:
    assert features.unknown_markers() == []
    assert features.unproved_defects() == []


@pytest.mark.feature("E6")
def test_the_readme_names_its_two_commands_and_backs_its_claims() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert "pip install holdfast" in text
    for target in re.findall(r"^    make (\S+)", text, re.M):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.M)
