"""How clients reach the server: over stdin and stdout, or over HTTP on this machine.

HTTP listens on the loopback address only. Every request needs the token, and its Host and Origin must be this address,
so that no web page can reach the server through a browser.
"""

from __future__ import annotations

import hmac
import signal
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.transport_security import TransportSecuritySettings

if TYPE_CHECKING:
    from .server import TakebackServer

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]
HOST, PATH = "127.0.0.1", "/mcp"


def serve_stdio(server: TakebackServer) -> None:
    """Serve one client over stdin and stdout, until stdin ends or Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the thread that waits for stdin cannot be interrupted otherwise
    try:
        anyio.run(server.run_stdio_async)
    except* BrokenPipeError:
        pass  # the client left before its answer came


def serve_http(server: TakebackServer, port: int, token: str, listening: Callable[[str], object]) -> None:
    """Serve clients over HTTP until interrupted; ``listening`` is told the address once the port is open."""
    import uvicorn

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOST, port))
        made.listen()  # who is told the address may connect at once, and only one server can listen
        found = made.getsockname()[1]
        listening(f"http://{HOST}:{found}{PATH}")
        config = uvicorn.Config(
            http_app(server, found, token), log_level="error", lifespan="on", ws="none", access_log=False
        )
        uvicorn.Server(config).run(sockets=[made])


def http_app(server: TakebackServer, port: int, token: str) -> App:
    """Return the ASGI app of a server that listens on a port."""
    names = (HOST, "localhost")
    guard = TransportSecuritySettings(
        allowed_hosts=[f"{name}:{port}" for name in names],
        allowed_origins=[f"http://{name}:{port}" for name in names],
    )
    return _WithToken(server.streamable_http_app(streamable_http_path=PATH, transport_security=guard), token)


class _WithToken:
    """Answers 401 to every request without the token."""

    def __init__(self, app: App, token: str) -> None:
        self._app, self._expected = app, token.encode()

    async def __call__(
        self, scope: Scope, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        if scope["type"] == "http" and not self._may(scope):
            await _refuse(send)
            return
        await self._app(scope, receive, send)

    def _may(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token, self._expected)


async def _refuse(send: Callable[[Any], Awaitable[None]]) -> None:
    body = b'{"error": "the request needs the header Authorization: Bearer TOKEN, with the token of takeback mcp"}'
    headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body})
