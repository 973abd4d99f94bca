"""A server that listens on a port of this machine: for those who know its token, and for nobody else."""

from __future__ import annotations

import http.client
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from _client import connected, over_http
from _wire import HELLO, Listening, listening, request
from mcp import Client

import takeback
from takeback.cli import main

pytestmark = pytest.mark.feature("F10")

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an empty project and a store."""
    made = tmp_path_factory.mktemp("http")
    (made / "pay").mkdir()
    with takeback.open(made / "store.db") as store:
        store.create_session("secret", workspace=made / "pay").user("the treasure is below the tree")
    return made


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Listening]:
    """A server that listens on a free port, with a token of its own."""
    with listening(home / "pay", home / "store.db", "--allow", "state") as made:
        yield made


def _status(server: Listening, method: str = "POST", path: str = "/mcp", body: bytes = b"", **headers: str) -> int:
    """Send a request as anybody on this machine could, and return the status of the answer, which tells nothing."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = body or request(1, "initialize", **HELLO)
    given = HEADERS | {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body=body if method == "POST" else None, headers=given)
    found = connection.getresponse()
    said = found.read()
    connection.close()
    assert b"treasure" not in said
    assert server.token.encode() not in said
    return found.status


def test_the_token_is_made_and_printed_and_good_for_the_header_that_is_printed_with_it(server: Listening) -> None:
    assert len(server.token) == 48
    assert f"Authorization: Bearer {server.token}" in server.said
    assert _status(server, Authorization=f"Bearer {server.token}") == 200
    assert _status(server, Authorization=f"bearer {server.token}") == 200  # schemes are the same in any case


def test_without_the_token_nothing_is_answered(server: Listening) -> None:
    listed = request(1, "tools/list")
    called = request(1, "tools/call", name="read_messages", arguments={"session": "secret"})
    for body in (b"", listed, called, b"{}", b"no JSON"):
        assert _status(server, body=body) == 401
    for method in ("GET", "DELETE", "PUT", "OPTIONS", "HEAD"):
        assert _status(server, method) == 401
    for path in ("/", "/mcp/", "/mcp?token=" + server.token, "/sse", "/.well-known/oauth-protected-resource"):
        assert _status(server, path=path) == 401
    assert _status(server, "GET", Connection="Upgrade", Upgrade="websocket", Sec_WebSocket_Version="13") == 401


def test_a_wrong_token_is_no_token(server: Listening) -> None:
    for wrong in (
        *("x", server.token[:-1], server.token + "0", server.token.upper() + "A", f"{server.token} {server.token}"),
        *("", "\xe9", "null", "undefined"),
    ):
        assert _status(server, Authorization=f"Bearer {wrong}") == 401
    for header in (server.token, f"Basic {server.token}", f"Bearer{server.token}", "Bearer"):
        assert _status(server, Authorization=header) == 401
    assert _status(server, Cookie=f"Authorization=Bearer {server.token}") == 401


def test_a_page_of_the_web_cannot_reach_it_even_with_the_token(server: Listening) -> None:
    token = f"Bearer {server.token}"
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1", f"127.0.0.1:{server.port + 1}", "0.0.0.0"):
        assert _status(server, Authorization=token, Host=host) == 421
    for origin in ("http://evil.example", "https://127.0.0.1", "null", f"https://127.0.0.1:{server.port}"):
        assert _status(server, Authorization=token, Origin=origin) == 403
    assert _status(server, Authorization=token, Origin=f"http://127.0.0.1:{server.port}") == 200
    assert _status(server, Authorization=token, Host=f"localhost:{server.port}") == 200
    assert _status(server, Authorization=token, Content_Type="text/plain") == 400  # what a form could send


def test_it_listens_on_the_loopback_address_only(server: Listening) -> None:
    for address in ("127.0.0.2", "::1", socket.gethostbyname(socket.gethostname())):
        if address != "127.0.0.1":
            with pytest.raises(OSError):
                socket.create_connection((address, server.port), timeout=5)


def test_a_request_that_is_too_large_is_refused(server: Listening) -> None:
    assert _status(server, body=b" " * (5 << 20), Authorization=f"Bearer {server.token}") == 413


def test_with_the_token_everything_works(server: Listening) -> None:
    with connected(over_http(server.url, server.token)) as agent:
        assert "set_state" in agent.tools
        assert agent.ask("read_messages", session="secret")["messages"][0]["text"] == "the treasure is below the tree"
        assert "treasure" in agent.read("takeback://session/@")
        assert "treasure" in agent.prompt("handoff").data.body
        agent.ask("set_state", session="secret", values={"found": True})
        assert "not_allowed" in agent.refused("create_checkpoint", session="secret")


def test_two_clients_at_once_one_writes_while_the_other_reads(server: Listening, home: Path) -> None:
    name, many = "shared", 15
    arguments = {"conversation": name, "mode": "append"}

    async def say(client: Client, number: int) -> None:
        messages = [{"role": "user", "content": f"step {number}"}]
        assert not (await client.call_tool("conversation_save", {**arguments, "messages": messages})).is_error

    async def said(client: Client) -> list[str]:
        found = await client.call_tool("conversation_load", {"conversation": name, "limit": 100})
        assert found.structured_content is not None
        return [each["text"] for each in found.structured_content["messages"]]

    async def go() -> None:
        one, two = (Client(over_http(server.url, server.token), mode=mode) for mode in ("auto", "legacy"))
        async with one, two, anyio.create_task_group() as tasks:
            await say(one, 1)

            async def write() -> None:
                for number in range(2, many + 1):
                    await say(one, number)

            tasks.start_soon(write)
            read = [""]
            while len(read) < many:
                read = await said(two)
                assert read == [f"step {number}" for number in range(1, len(read) + 1)]
            assert await said(one) == read

    anyio.run(go)
    with takeback.open(home / "store.db") as store:
        assert store.get_session(name).message_count == many


def test_the_token_of_the_environment_is_taken_and_never_printed_and_an_interrupt_ends_it(home: Path) -> None:
    with listening(home / "pay", home / "store.db", token="open sesame") as server:
        assert server.said.startswith("Listening on http://127.0.0.1:")
        assert "sesame" not in server.said
        assert _status(server, Authorization="Bearer open sesame") == 200
        assert _status(server, Authorization="Bearer open") == 401
        with connected(over_http(server.url, server.token)) as agent:
            agent.ask("list_sessions")
        server.process.send_signal(signal.SIGINT)
        out, err = server.process.communicate(timeout=60)
        assert (server.process.returncode, out, err) == (130, b"", b"takeback: interrupted\n")


def test_a_port_that_is_taken_is_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["--store", str(home / "store.db"), "mcp", "--http", "--port", port]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        f"takeback: cannot listen on port {port}: Address already in use. Choose another: --port 0\n",
    )
