"""An agent's side of a connection: the SDK's own client, used without ``await``, and each answer taken apart."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio.from_thread
import httpx2
import msgspec
from jsonschema import Draft202012Validator
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

import takeback
from takeback.mcp.server import TakebackServer
from takeback.tools import bind

ENVELOPE = re.compile(
    r"(?P<said>[^\n]*\b(?P<mark>[0-9a-f]{8,})\b[^\n]*)\n--- (?P=mark)\n(?P<body>.*)\n--- (?P=mark)", re.S
)
COMMAND = (sys.executable, "-m", "takeback")


class Opened(NamedTuple):
    """A text that a server gave: what it says itself, the mark, and the data between the two lines with that mark."""

    said: str
    mark: str
    body: str


def opened(text: str) -> Opened:
    """Take a text apart; everything that was stored must be between the two lines, and cannot know the mark."""
    found = ENVELOPE.fullmatch(text)
    assert found is not None, text
    assert found["mark"] not in found["body"]
    return Opened(found["said"], found["mark"], found["body"])


class Prompt(NamedTuple):
    """A prompt: what the model is to do, and what is stored."""

    task: str
    data: Opened


class Agent:
    """An agent that is connected to a server."""

    def __init__(self, client: Client, run: Callable[..., Any]) -> None:
        self.client, self.run = client, run
        self.used = set[str]()
        self.tools = {each.name: each for each in run(client.list_tools).tools}
        self._answers = {name: Draft202012Validator(each.output_schema) for name, each in self.tools.items()}

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Call a tool; whatever it answers is in the envelope."""
        found = self.run(self.client.call_tool, tool, arguments)
        (content,) = found.content
        opened(content.text)
        assert (found.structured_content is None) == found.is_error
        return found

    def ask(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool, which must succeed; its text and its data say the same and are as the tool's schema says."""
        found = self.call(tool, arguments)
        (content,) = found.content
        assert not found.is_error, content.text
        self.used.add(tool)
        data: dict[str, Any] = found.structured_content
        self._answers[tool].validate(data)
        said = msgspec.json.decode(opened(content.text).body)
        assert said == {name: value for name, value in data.items() if name != "note"}
        return data

    def refused(self, tool: str, /, **arguments: Any) -> str:
        """Call a tool, which must fail; returns what it says."""
        found = self.call(tool, arguments)
        assert found.is_error, found.content
        text: str = found.content[0].text
        return text

    def twice(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool that takes two calls: look first, and then repeat the digest."""
        return self.ask(tool, **arguments, digest=self.ask(tool, **arguments)["digest"])

    def read(self, uri: str) -> str:
        """Read a resource."""
        (content,) = self.run(self.client.read_resource, uri).contents
        text: str = content.text
        return text

    def unread(self, uri: str) -> str:
        """Read a resource, which must fail; returns what the error says."""
        try:
            found = self.read(uri)
        except MCPError as error:
            return str(error)
        raise AssertionError(found)

    def prompt(self, name: str, **arguments: str) -> Prompt:
        """Return what a prompt asks for, and the data below it."""
        (message,) = self.run(self.client.get_prompt, name, arguments).messages
        assert message.role == "user"
        task, _, data = message.content.text.partition("\n\n")
        return Prompt(task, opened(data))

    def listed(self) -> dict[str, bytes]:
        """Return all that is listed, byte for byte."""
        client = self.client
        lists = client.list_tools, client.list_prompts, client.list_resource_templates, client.list_resources
        return {each.__name__: self.run(each).model_dump_json(by_alias=True).encode() for each in lists}


@contextmanager
def connected(server: Any, **how: Any) -> Iterator[Agent]:
    """Connect an agent to a server, in memory or through a transport."""
    failed = None
    with anyio.from_thread.start_blocking_portal() as portal:
        with portal.wrap_async_context_manager(Client(server, cache=None, **how)) as client:
            try:
                yield Agent(client, portal.call)
            except BaseException as error:  # the SDK would put it into groups of groups
                failed = error
        if failed is not None:
            raise failed


@asynccontextmanager
async def over_http(url: str, token: str) -> AsyncIterator[Any]:
    """Reach a server over HTTP, with a token in each request."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers) as web, streamable_http_client(url, http_client=web) as streams:
        yield streams


@contextmanager
def serving(store: takeback.Store, *allow: str, place: Path | None = None, **how: Any) -> Iterator[Agent]:
    """Connect an agent to a server in this process."""
    with connected(TakebackServer(bind(store, allow, workspace=place)), **how) as agent:
        yield agent


@contextmanager
def started(place: Path, store: Path, *arguments: str) -> Iterator[Agent]:
    """Start a server as a process that works in a directory, and connect an agent to its stdin and stdout."""
    given = [*COMMAND[1:], "--store", str(store), "mcp", *arguments]
    how = StdioServerParameters(command=COMMAND[0], args=given, env={**os.environ}, cwd=place)
    with (place.parent / "stderr").open("w") as log, connected(stdio_client(how, errlog=log)) as agent:
        yield agent


def use_tool(s: takeback.Session, name: str, step: Callable[[], object], result: str = "ok") -> None:
    """Let an agent's shell do something in a call that is recorded."""
    with s.tool(name, {"command": "make"}) as running:
        step()
        running.result(result)


def everything(store: takeback.Store) -> tuple[bytes, ...]:
    """Return all that a store holds: its sessions as they are exported, its changes, operations and agents."""
    out = io.BytesIO()
    if sessions := [*store.iter_sessions(archived=None)]:
        store.export(sessions, out, documents=True)
    agents = [(each.to_dict(), each.state.read()) for each in store.list_agents()]
    rest = [*store.events()], [*store.operations()], agents
    return out.getvalue(), *(repr(each).encode() for each in rest)
