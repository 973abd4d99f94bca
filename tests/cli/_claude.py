"""Claude Code as its hooks see it: events in the documented form, each given to a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from _world import World

import takeback

SESSION = "00893aaf-19fa-41d2-8238-13269b9b3ca0"
BASH = {"command": "sed -i s/hello/goodbye/ app.py", "description": "Change the greeting", "timeout": 120000}
GAVE = {"stdout": "", "stderr": "", "interrupted": False, "isImage": False}


class Claude:
    """Claude Code at work in the project: each event is a process with the documented JSON on its stdin."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.common = {
            "session_id": SESSION,
            "transcript_path": f"/home/ada/.claude/projects/pay/{SESSION}.jsonl",
            "cwd": str(world.project),
            "permission_mode": "default",
        }

    def event(self, name: str, **fields: Any) -> None:
        """Let an event happen: nothing is said on stdout, and it ends with 0."""
        ran = self.give(json.dumps({**self.common, "hook_event_name": name, **fields}))
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")

    def give(self, text: str) -> subprocess.CompletedProcess[str]:
        return self.world.process("hook", "claude-code", input=text, env=self.env)

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "CLAUDE_PROJECT_DIR": str(self.world.project)}

    def begin(self, name: str, given: dict[str, Any], call: str = "toolu_01ABC123", **fields: Any) -> None:
        self.event("PreToolUse", tool_name=name, tool_input=given, tool_use_id=call, **fields)

    def finish(self, name: str, given: dict[str, Any], gave: Any, call: str = "toolu_01ABC123", **fields: Any) -> None:
        self.event(
            "PostToolUse",
            tool_name=name,
            tool_input=given,
            tool_response=gave,
            tool_use_id=call,
            duration_ms=12,
            **fields,
        )

    def session(self) -> takeback.Session:
        with takeback.open(self.world.url) as store:
            found = store.get_session(f"claude-{SESSION}")
            found.branches()
            return found
