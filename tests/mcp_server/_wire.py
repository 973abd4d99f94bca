"""A server as a process, and the lines that go to it and come from it, written by hand."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from _client import COMMAND

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"}}


class Wire:
    """A client that writes the protocol by hand."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self.stdin, self.stdout = process, process.stdin, process.stdout

    def write(self, *lines: bytes) -> None:
        """Write lines at once."""
        self.stdin.write(b"".join(line + b"\n" for line in lines))
        self.stdin.flush()

    def greet(self) -> Any:
        """Open the conversation, and return what the server says of itself."""
        self.write(request(0, "initialize", **HELLO))
        found = self.answer()["result"]
        self.write(notice("notifications/initialized"))
        return found

    def answer(self) -> Any:
        """Read the next line."""
        line = self.stdout.readline()
        assert line, "the server has ended"
        return json.loads(line)

    def ask(self, number: int, tool: str, **arguments: Any) -> Any:
        """Call a tool and wait for its answer."""
        self.write(call(number, tool, **arguments))
        found = self.answer()
        assert found["id"] == number
        return found["result"]


def request(number: int, method: str, **params: Any) -> bytes:
    """Return the line of a request."""
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()


def notice(method: str, **params: Any) -> bytes:
    """Return the line of a notification."""
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


def call(number: int, tool: str, **arguments: Any) -> bytes:
    """Return the line of a call."""
    return request(number, "tools/call", name=tool, arguments=arguments)


@contextmanager
def process(place: Path, store: Path, *arguments: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server that works in a directory, and see that it has ended in the end."""
    command = [*COMMAND, "--store", str(store), "mcp", *arguments]
    pipe = subprocess.PIPE
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TAKEBACK_")}
    with subprocess.Popen(
        command, cwd=place, env=inherited | env, stdin=pipe, stdout=pipe, stderr=pipe, pipesize=1 << 20
    ) as made:
        try:
            yield made
        finally:
            made.kill()


@contextmanager
def wired(place: Path, store: Path, *arguments: str) -> Iterator[Wire]:
    """Start a server, and open the conversation with it."""
    with process(place, store, *arguments) as made:
        wire = Wire(made)
        wire.greet()
        yield wire


class Listening(NamedTuple):
    """A server that listens: its address, its port, its token, and what it said when it began."""

    url: str
    port: int
    token: str
    said: str
    process: subprocess.Popen[bytes]


@contextmanager
def listening(place: Path, store: Path, *arguments: str, token: str = "") -> Iterator[Listening]:
    """Start a server that listens on a free port."""
    with process(place, store, "--http", "--port", "0", *arguments, TAKEBACK_MCP_TOKEN=token) as made:
        assert made.stderr is not None
        said = made.stderr.readline().decode()
        if not token:
            said += made.stderr.readline().decode()
        url = re.search(r"http://127\.0\.0\.1:(\d+)/mcp", said)
        assert url is not None, said
        shown = re.search(r"Authorization: Bearer (\S+)", said)
        yield Listening(url[0], int(url[1]), shown[1] if shown else token, said, made)
