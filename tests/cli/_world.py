"""A project with a store, and the program run on it: in this process where no terminal matters."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import _schema
import pytest

import takeback
from takeback.cli import main

HOUR = 3_600_000
ID = re.compile(r"\b1[0-9a-hjkmnp-tv-z]{6,24}\b")


class Ran(NamedTuple):
    """What a command gave."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of stdout, with every id as ``#######``."""
        return [ID.sub("#######", line) for line in self.out.splitlines()]

    @property
    def document(self) -> Any:
        """The JSON document, compared with its schema."""
        return _schema.check_document(self.out)


class Clock:
    """A clock that is moved by hand; it starts some hours ago."""

    def __init__(self) -> None:
        self.ms = time.time_ns() // 1_000_000 - 30 * HOUR - HOUR // 2

    def now_ms(self) -> int:
        """Read it; every look takes a millisecond."""
        self.ms += 1
        return self.ms


class World:
    """A store with a project in it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.url, self.project, self.clock = folder / "store.db", folder / "pay", Clock()
        self.project.mkdir()
        self._capsys = capsys

    def open(self) -> takeback.Store:
        """Open the store with the clock that is moved by hand."""
        return takeback.open(self.url, clock=self.clock)

    def run(self, *arguments: str) -> Ran:
        """Run the program in this process."""
        self._capsys.readouterr()
        code = main([*arguments])
        out, err = self._capsys.readouterr()
        ran = Ran(code, out, err)
        if "--json" in arguments and code == 0:
            assert ran.document
        return ran

    def ok(self, *arguments: str) -> Ran:
        """Run the program; it must end well."""
        ran = self.run(*arguments)
        assert ran.code == 0, ran.err
        return ran

    def process(self, *arguments: str, **given: Any) -> subprocess.CompletedProcess[Any]:
        """Run the program as a process of its own."""
        command = [sys.executable, "-m", "takeback", *arguments]
        return subprocess.run(command, capture_output=True, timeout=60, check=False, **{"text": True, **given})


def use_tool(s: takeback.Session, name: str, step: Callable[[], object], result: str = "ok") -> None:
    """Let the agent run a tool that does something."""
    with s.tool(name, {"command": "make"}) as running:
        step()
        running.result(result)
