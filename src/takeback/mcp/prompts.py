"""The prompts that people pick in their client: going on with a session, and handing one over.

Each begins with what the model is to do, in words of our own, followed by what is stored, marked as data.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

from mcp import MCPError
from mcp_types import INVALID_PARAMS
from pydantic import Field

if TYPE_CHECKING:
    from ..tools import ToolReply
    from .server import TakebackServer

_RESUME = """Go on with this session where it stopped. Below is what is known of it; read more with read_messages, and \
files as they were with get_file_at. First say in a few sentences what was being done, what is finished, and what is \
open: unfinished tasks, tool calls without a result, an answer that was cut off. A tool call that was cut off may or \
may not have had its effect, so check that before you repeat it. Then propose the next step."""
_HANDOFF = """Write a handover of this session for another agent that knows nothing of it: the goal, what was decided \
and why, what is done, what is open, which files changed and how, what was tried and did not work, and what to do \
next. Use read_messages, file_history and diff_points for what you need. Name files and turns precisely, leave out \
what a reader can see in the files themselves, and stay under 800 words."""


Ref = Annotated[str, Field(description="The session: its id, name or key; @ is the newest one here.")]


def add_to(server: TakebackServer, call: Callable[..., Awaitable[ToolReply]]) -> None:
    """Add the prompts to a server."""

    async def resume_work(session: Ref = "@") -> str:
        return await _prompt(_RESUME, session, call)

    async def handoff(session: Ref = "@") -> str:
        return await _prompt(_HANDOFF, session, call)

    server.prompt("resume_work", title="Resume work", description="Go on with a session where it stopped.")(resume_work)
    server.prompt("handoff", title="Hand over", description="Write a handover of a session for another agent.")(handoff)


async def _prompt(task: str, session: str, call: Callable[..., Awaitable[ToolReply]]) -> str:
    found = await call("get_session", {"session": session or "@"})  # clients send a field that was left empty
    if found.is_error:
        raise MCPError(INVALID_PARAMS, found.text)
    return f"{task}\n\n{found.text}"
