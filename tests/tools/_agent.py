"""An agent that calls tools as a model does, and a shell whose commands are calls of a session."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from jsonschema import Draft202012Validator

import takeback
from takeback.tools import Toolbox, ToolReply


class Agent:
    """Calls tools as a model does, and checks each answer against the schema that the model was shown."""

    def __init__(self, tools: Toolbox) -> None:
        self.tools = tools

    def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool that must succeed; return its data."""
        reply = self.reply(name, **arguments)
        assert not reply.is_error, reply.text
        assert reply.data is not None
        return reply.data

    def refused(self, name: str, /, **arguments: Any) -> tuple[str, str]:
        """Call a tool that must fail; return the code and the text."""
        reply = self.reply(name, **arguments)
        assert reply.code is not None, reply.text
        return reply.code, reply.text

    def reply(self, name: str, /, **arguments: Any) -> ToolReply:
        reply = self.tools.call(name, arguments)
        if reply.data is not None:
            Draft202012Validator(self.tools[name].input_schema).validate(arguments)
            Draft202012Validator(self.tools[name].output_schema).validate(reply.data)
        return reply


def shell(session: takeback.Session, command: str, call_id: str) -> None:
    """Run a shell command in the session's directory, as a tool call of the session."""
    session.append(
        {"role": "assistant", "content": "", "tool_calls": [_asked(call_id, command)]},
    )
    with session.tool(open_call(session, call_id)) as run:
        done = subprocess.run(["sh", "-c", command], cwd=session.workspace, capture_output=True, text=True, check=True)
        run.result(done.stdout)


def _asked(call_id: str, command: str) -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": "bash", "arguments": json.dumps({"command": command})},
    }


def open_call(session: takeback.Session, call_id: str) -> takeback.ToolCall:
    """Return an open call by its id."""
    return next(each for each in session.pending_calls() if each.id == call_id)
