"""``mcp``: serves this store to agents through the Model Context Protocol."""

from __future__ import annotations

import gc
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from ...client import address, open_to_read
from ...client import open as opening
from ...shell.failures import FAILED, USAGE, Stop
from ..app import VerbCommand
from ..consent import tell
from ..frame import Frame, option, verb
from ..output import line

if TYPE_CHECKING:
    from ...tools import Toolbox

TOKEN = "TAKEBACK_MCP_TOKEN"
_PORT = 8765


@verb("mcp", changes=True, makes=True, looks=lambda given: not given["allow"], cls=VerbCommand)
@option(
    "--allow",
    metavar="WHAT",
    multiple=True,
    help="Let agents change this: state, checkpoint, rewind, delete; several with commas.",
)
@option("--http", is_flag=True, help="Listen on a port of this machine instead of stdin and stdout.")
@option("--port", type=click.IntRange(0, 65535), help=f"The port; {_PORT} if not given, 0 takes a free one.")
@option("--agent", metavar="ID", default="main", show_default=True, help="Whose conversations agents save.")
def mcp(frame: Frame, allow: tuple[str, ...], http: bool, port: int | None, agent: str) -> None:
    """Serve this store to agents over MCP: search, sessions, messages, files at any point.

    It only reads unless --allow says otherwise. Add it to an agent's MCP servers as: takeback mcp. With --http every
    request needs a token: that of the environment variable TAKEBACK_MCP_TOKEN, or one that is made and printed.
    """
    if port is not None and not http:
        raise Stop("--port is for --http; without it the server talks over stdin and stdout", USAGE)
    allowed = _allowed(allow)
    _require_sdk()
    with ExitStack() as opened:
        _serve(_tools(frame, allowed, agent, opened), http, port)


def _serve(tools: Toolbox, http: bool, port: int | None) -> None:
    gc.disable()  # the SDK defines thousands of classes, and none of them is garbage
    from ...mcp import server, transports

    gc.enable()
    made = server.TakebackServer(tools)
    if not http:
        transports.serve_stdio(made)
        return
    wanted = _PORT if port is None else port
    given = os.environ.get(TOKEN)
    token = given or os.urandom(24).hex()
    try:
        transports.serve_http(made, wanted, token, lambda url: _say(url, None if given else token))
    except OSError as error:
        raise Stop(f"cannot listen on port {wanted}: {error.strerror}. Choose another: --port 0", FAILED) from error


def _allowed(given: tuple[str, ...]) -> tuple[str, ...]:
    from ...tools import EFFECTS

    found = tuple(each.strip() for some in given for each in some.split(","))
    for each in found:
        if each not in EFFECTS:
            raise Stop(f"--allow takes {', '.join(EFFECTS)}, not {each!r}", USAGE)
    return found


def _require_sdk() -> None:
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise Stop("takeback mcp needs the MCP SDK; install it with: pip install 'takeback[mcp]'", FAILED)


def _tools(frame: Frame, allowed: tuple[str, ...], agent: str, opened: ExitStack) -> Toolbox:
    """Bind the tools to the store, which is made if it is not there yet: agents may come before their first session."""
    from ...tools import bind

    store, how = frame.store, dict[str, Any](workspace=frame.workspace or frame.directory, agent=agent)
    if allowed:
        return bind(store, allowed, **how)
    if frame.missing is not None:
        opening.open_store(frame.url).close()
        store = opened.enter_context(opening.open_store(frame.url, read_only=True))
    if address.is_memory(address.given(frame.url)):
        return bind(store, **how)
    searched = open_to_read.open_for_reading(frame.url, indexes=True)
    opened.callback(searched.close)
    return bind(store, searched=searched, **how)


def _say(url: str, made: str | None) -> None:
    tell(f"Listening on {line(url)}; Ctrl-C ends it.")
    if made is not None:
        tell(f"Clients send the header: Authorization: Bearer {made}")


COMMANDS = {"mcp": mcp}
