"""Real transcripts of other people's agents, cut after each message, are valid for every provider.

They are not part of the project: ``TAKEBACK_FIXTURES`` names the folder that holds them, else this is skipped. What is
in one of the four forms - messages of Claude Code and Cline, items of Codex, contents of the Gemini CLI - is read; what
is in none (a broken line, an event, a format of its own) is left where it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from takeback import Invalid, Store

from ._checks import ALL, require_valid

pytestmark = [pytest.mark.feature("F3"), pytest.mark.promise("R18")]
FOLDER = Path(os.environ.get("TAKEBACK_FIXTURES", "")) / "transcripts"
FILES = sorted(path for path in FOLDER.glob("*/*.json*")) if "TAKEBACK_FIXTURES" in os.environ else []


def values(path: Path) -> Iterator[Any]:
    """Return what a file holds: each line of it, or the list in it."""
    text = path.read_text(errors="surrogateescape")
    if path.suffix == ".json":
        whole = json.loads(text)
        yield from next((whole[key] for key in ("loglines", "messages") if isinstance(whole.get(key), list)), [])
        return
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def messages(path: Path) -> Iterator[Any]:
    """Return the messages, items and contents of a file."""
    for value in values(path):
        if "toolCalls" in value or value.get("type") == "gemini":
            yield from contents(value)
        elif isinstance(value.get("message"), dict):
            yield {"role": value.get("type"), **value["message"]}
        elif value.get("type") == "response_item":
            yield value["payload"]
        elif "role" in value:
            yield value


def contents(value: dict[str, Any]) -> Iterator[Any]:
    """Return what the Gemini CLI keeps in one record as the contents that were sent."""
    said = [{"text": value["content"]}] if value.get("content") else []
    calls = value.get("toolCalls") or []
    asked = [{"functionCall": {key: call[key] for key in ("id", "name", "args") if key in call}} for call in calls]
    yield {"role": "model", "parts": [*said, *asked]}
    answers = [part for call in calls for part in call.get("result") or []]
    if answers:
        yield {"role": "user", "parts": answers}


@pytest.mark.skipif(not FILES, reason="TAKEBACK_FIXTURES names no folder with real transcripts")
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_real_transcripts_are_valid_for_every_provider(store: Store, path: Path, tally: Callable[..., int]) -> None:
    session = store.create_session("real")
    for message in messages(path):
        try:
            session.append(message)
        except Invalid:
            continue
        for provider in ALL:
            require_valid(session.context(provider), sdk=False)
        tally("R18 cuts of real transcripts", len(ALL))
    for provider in ALL:
        require_valid(session.context(provider))
