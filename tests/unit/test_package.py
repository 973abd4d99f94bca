"""The package: what is in the wheel, and that it works elsewhere."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.mark.slow
@pytest.mark.feature("E6")
def test_the_wheel_works_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(tmp_path / "site"),
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    program = (
        "import takeback; assert 'site' in takeback.__file__, takeback.__file__\n"
        "with takeback.open('elsewhere.db') as store:\n"
        "    store.create_session('a').user('hello')\n"
        "with takeback.open('elsewhere.db') as store:\n"
        "    print(store.find_session('a').messages()[0].text, store.verify())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "hello 11 records checked, no problems", done.stderr


@pytest.mark.slow
@pytest.mark.feature("E6")
def test_the_wheel_holds_types_schema_and_licence_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in ("takeback/py.typed", "takeback/storage/postgres/schema/store.sql", "licenses/LICENSE"):
        assert any(name.endswith(wanted) for name in names), wanted
    assert not [name for name in names if name.startswith("tests")]


@pytest.mark.feature("E6")
def test_importing_is_light() -> None:
    """Heavy or optional things are imported where they are used."""
    program = "import sys, takeback; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"apsw", "sqlite3", "asyncio", "click", "rich", "pytest", "hypothesis", "pathspec"} & set(loaded)


@pytest.mark.feature("E6")
def test_nothing_names_a_registry_or_pickles() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        assert "://" not in path.read_text()
    for path in (ROOT / "src").rglob("*.py"):
        assert "import pickle" not in path.read_text("utf-8")


@pytest.mark.feature("E6")
def test_nothing_is_installed_that_is_not_used() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    text = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    names = [re.split("[^a-z]", each)[0] for each in wanted]
    assert [name for name in names if not re.search(rf"^\s*(?:import|from) {re.escape(name)}\b", text, re.M)] == []


@pytest.mark.trial("T80")
def test_the_old_name_is_in_one_line_of_the_changelog_and_nowhere_else() -> None:
    old = "hold" + "fast"
    done = subprocess.run(["git", "grep", "-il", old], cwd=ROOT, capture_output=True, text=True)
    if done.returncode > 1:
        pytest.skip("this is not a clone")
    assert done.stdout.split() == ["CHANGELOG.md"]
    lines = [line for line in (ROOT / "CHANGELOG.md").read_text("utf-8").split("\n") if old in line.lower()]
    assert len(lines) == 1
