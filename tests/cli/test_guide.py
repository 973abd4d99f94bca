"""The guide is true: its commands run in the order of the page and show what it says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from _world import ID

from holdfast.cli.app import VERBS

ROOT = Path(__file__).parents[2]
GUIDES = {"cli": 25, "run": 12, "claude-code": 6}  # with how many commands each has at least

pytestmark = pytest.mark.feature("F10")


def _blocks(guide: str, kind: str) -> list[str]:
    text = (ROOT / "docs" / "guides" / f"{guide}.md").read_text("utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.M | re.S)


def _plain(line: str) -> str:
    return ID.sub("#", line).strip()


@pytest.mark.slow
@pytest.mark.parametrize(("guide", "least"), GUIDES.items())
def test_every_command_of_the_guide_runs_and_shows_what_it_says(guide: str, least: int, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("\n".join(_blocks(guide, "python")))
    subprocess.run([sys.executable, "agent.py"], cwd=tmp_path, check=True, timeout=60)
    (tmp_path / "project").mkdir(exist_ok=True)
    (tmp_path / "holdfast").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m holdfast "$@"\n')
    (tmp_path / "holdfast").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOLDFAST_STORE": str(tmp_path / "work.db")}
    commands = re.split(r"^\$ ", "".join(_blocks(guide, "console")), flags=re.M)[1:]
    assert len(commands) > least
    for command in commands:
        typed, _, said = command.partition("\n")
        if typed.startswith(("cd ", "export ")):
            continue
        ran = subprocess.run(
            typed,
            shell=True,
            cwd=tmp_path / "project",
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0, f"{typed}: {ran.stderr}"
        shown = [*map(_plain, (ran.stdout + ran.stderr).splitlines())]
        missing = [each for each in map(_plain, said.splitlines()) if each not in shown]
        assert not missing, f"{typed}: {shown}"


def test_every_verb_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference.md").read_text("utf-8")
    listed = set(re.findall(r"^\| `([a-z]+)[ `]", text.partition("## Command line")[2].partition("\n## ")[0], re.M))
    assert listed == {*VERBS}
