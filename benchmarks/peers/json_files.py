"""A JSON file per session, written anew with every message: what many agents begin with.

The file is written beside the old one, synced and renamed, so that it keeps what this library promises. Most of
those agents do not sync; at more than a few messages encoding costs more than syncing anyway.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from ..stores import Arm


class WholeJson(Arm):
    """One pretty-printed file per session."""

    name = "whole-JSON rewrite"
    slow = True
    has_log = False

    def open(self) -> None:
        self._sessions: dict[str, list[Any]] = {}

    def close(self) -> None:
        self._sessions.clear()

    def use(self, session: str) -> None:
        self.file = self.directory / f"{session}.json"
        if session not in self._sessions:
            self._sessions[session] = load(self.file) if self.file.exists() else []
        self._messages = self._sessions[session]

    def append(self, prepared: Sequence[Any]) -> list[float]:
        times = []
        for message in prepared:
            started = perf_counter()
            self.fill([message])
            times.append(perf_counter() - started)
        return times

    def fill(self, prepared: Sequence[Any]) -> None:
        self._messages.extend(prepared)
        document = {"id": self.file.stem, "messages": self._messages}
        replace(self.file, json.dumps(document, indent=2).encode())

    def read(self, last: int | None) -> tuple[float, int]:
        started = perf_counter()
        found = load(self.file)
        if last is not None:
            found = found[-last:]
        return perf_counter() - started, len(found)


def load(file: Path) -> list[Any]:
    """Read all messages of a session."""
    with open(file, encoding="utf-8") as opened:
        messages: list[Any] = json.load(opened)["messages"]
    return messages


def replace(file: Path, content: bytes) -> None:
    """Put new content in place of a file, durably."""
    beside = file.with_suffix(".new")
    with open(beside, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    os.replace(beside, file)
