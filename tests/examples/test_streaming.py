"""The streaming loops of the guide: real programs, real SDKs, killed at every kind of moment and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from _streaming_server import PATIENCE, Reply, Server

import takeback

pytestmark = [pytest.mark.feature("F3", "F4"), pytest.mark.trial("T59")]
FOLDER = Path(__file__).parents[2] / "examples"
ASKED = "Note that the milk is sour"
LINE = "the milk is sour (ä)"
SCRIPT = [
    Reply("I look at the notes first.", (("read_notes", {}),), thinking="It may be there already."),
    Reply("It is not there, so I add it and look again.", (("add_note", {"line": LINE}), ("read_notes", {}))),
    Reply("Noted."),
]
NO_NOTES = "There are no notes yet."
KEYS = {
    "anthropic": {"ANTHROPIC_API_KEY": "none", "ANTHROPIC_BASE_URL": "{url}"},
    "openai": {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "{url}/v1"},
    "gemini": {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": "{url}"},
}
SIGNATURES = {"anthropic": "c2ln", "openai": "c2VjcmV0", "gemini": "c2ln"}
UNCLEAR = "interrupted: check whether it took effect before you repeat it"
# The moments of a run: in the middle of thinking, text or the input of a call, while the tool runs, when a result is
# stored and nothing of the next answer has arrived; and when the line to the provider breaks. Each provider has its
# share of them in every run of the tests, and all with ``make crash``.
MOMENTS = [(0, "thinking"), (0, "line"), (0, "text"), (0, "tool"), (1, "asked"), (1, "input"), (1, "tool"), (2, "text")]
KINDS = {"thinking": "thinking", "text": "text", "input": "tool_input"}
ALWAYS = {
    "anthropic": [(1, "tool")],
    "openai": [(1, "input")],
    "gemini": [(0, "text"), (1, "asked")],
}


class Agent:
    """The example of a provider in a directory of its own, to be started and killed."""

    def __init__(self, provider: str, server: Server, folder: Path, store: takeback.Store) -> None:
        self.program, self.server, self.store = FOLDER / f"streaming_{provider}.py", server, store
        self.folder = folder / "work"
        self.folder.mkdir()
        self.notes = self.folder / "notes.txt"
        given = {name: value.format(url=server.url) for name, value in KEYS[provider].items()}
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        self.environment = {**kept, **given, "HOME": str(folder), "TAKEBACK_STORE": store.url}

    @property
    def session(self) -> takeback.Session:
        return self.store.list_sessions()[0]

    def run(self) -> str:
        """Let it run to its end, and return what it printed."""
        with self._started() as process:
            out, err = process.communicate(timeout=PATIENCE)
        assert err == ""
        return out

    @contextmanager
    def _started(self) -> Iterator[subprocess.Popen[str]]:
        """Start it; it is gone at the end of the block, however that ends."""
        process = subprocess.Popen(
            [sys.executable, "-W", "error", self.program, *ASKED.split()],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    def _kill_when(self, happened: Callable[[], Any]) -> None:
        """Start it, wait for something to happen, and kill it there."""
        with self._started() as process:
            until = time.monotonic() + PATIENCE
            while not happened():
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < until, "it did not happen"
                time.sleep(0.01)
        assert process.returncode == -signal.SIGKILL
        self.server.go_on.set()

    def end(self, step: int, place: str) -> None:
        """End it at a moment: what had arrived until then is on disk."""
        if place == "tool":
            self.server.before[step] = lambda: os.mkfifo(self.notes)  # the tool waits on a pipe: it expects a file
            self._kill_when(lambda: self.notes.is_fifo() and "running" in [call.status for call in self._calls()])
            self.notes.unlink()
        elif place == "line":  # nobody kills it: the connection breaks
            self.server.stop_in(step, "text")
            self.server.go_on.set()
            with self._started() as process:
                process.communicate(timeout=PATIENCE)
            assert process.returncode == 1
        else:
            self.server.stop_in(step, place)
            self._kill_when(lambda: self.server.stopped.is_set() and (place == "asked" or self._is_kept(place)))

    def _is_kept(self, place: str) -> bool:
        last = self.session.messages(limit=1)[0]
        parts = last.content if isinstance(last.content, list) else [{"type": "text"}] if last.text else []
        return last.status == "streaming" and any(part["type"] == KINDS[place] for part in parts)

    def _calls(self) -> list[takeback.ToolCall]:
        return self.session.pending_calls() if self.store.list_sessions() else []


@pytest.fixture
def store(tmp_path: Path) -> Iterator[takeback.Store]:
    with takeback.open(tmp_path / "store.db") as store:
        yield store


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(SCRIPT)
    yield server
    server.shutdown()


def said(session: takeback.Session) -> list[Any]:
    """Return what was said and done, in the same words for every provider."""
    found = list[Any]()
    for message in session.messages():
        if message.status == "complete":
            found += [(message.role, message.text)] if message.text else []
            found += [(call.name, call.arguments) for call in message.tool_calls]
    return found


def scripted(*results: str) -> list[Any]:
    """Return what is said and done according to the script, with the results of its tools."""
    found, left = list[Any]([("user", ASKED)]), iter(results)
    for reply in SCRIPT:
        found += [("assistant", reply.text), *reply.calls, *(("tool", next(left)) for _ in reply.calls)]
    return found


@pytest.mark.parametrize("provider", KEYS)
def test_killed_anywhere_it_goes_on(
    provider: str, server: Server, store: takeback.Store, tmp_path: Path, deep: bool
) -> None:
    moments = MOMENTS if deep else [moment for moment in MOMENTS if moment in ALWAYS[provider]]
    agent = Agent(provider, server, tmp_path, store)
    for step, place in moments:
        agent.end(step, place)
    printed = agent.run()
    assert "(resuming turn 1, which was interrupted)" in printed
    assert printed.count(SCRIPT[-1].text) == 1

    # Every request was valid, and nothing was asked again that had been answered.
    assert [asked.problems for asked in server.asked] == [[]] * len(server.asked)
    assert [asked.step for asked in server.asked if asked.answered] == [0, 1, 2]
    # A partial answer is kept, and the model is shown it; what was signed goes back as it was.
    session, sent = agent.session, json.dumps(server.asked[-1].request, ensure_ascii=False)
    cut = [message.text for message in session.messages() if message.status == "interrupted"]
    assert cut == [_arrived(step, place) for step, place in moments if place not in ("asked", "tool")]
    assert [half for half in cut if half not in sent] == []
    assert SIGNATURES[provider] in sent
    # A tool that must not run twice did not; the other one was tried again.
    is_unclear = (1, "tool") in moments
    results = (UNCLEAR, NO_NOTES) if is_unclear else ("added", f"{LINE}\n")
    assert said(session) == scripted(NO_NOTES, *results)
    assert (agent.notes.read_text("utf-8") if agent.notes.exists() else NO_NOTES) == results[1]
    assert [call.attempts for call in session.tool_calls()] == [2 if (0, "tool") in moments else 1, 1, 1]
    assert session.stats().usage == takeback.Usage(600, 30)
    assert (session.status, session.pending_calls(), session.needs_reply()) == ("active", [], False)


def _arrived(step: int, place: str) -> str:
    """Return the text that had arrived at a moment."""
    text = SCRIPT[step].text
    return {"thinking": "", "input": text}.get(place, text[: len(text) // 2])
