"""What the pages show runs as it is printed."""

import re
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```python\n(.*?)```", re.S)


@pytest.mark.feature("E6")
@pytest.mark.parametrize("page", ["README.md", "docs/guide.md"])
def test_every_python_block_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / page).read_text("utf-8"))
    assert blocks
    with holdfast.open(":memory:") as store:
        session = store.create_session()
        session.user("so that there is something")
        for block in blocks:
            names = {"holdfast": holdfast, "store": store, "session": session}
            exec(compile(block, page, "exec"), names)


@pytest.mark.feature("E6")
def test_the_readme_names_its_two_commands_and_backs_its_claims() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert "pip install holdfast" in text
    for target in re.findall(r"^    make (\S+)", text, re.M):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.M)
