"""When a tool call of Claude Code ended, as its own transcript says.

A call that was denied or interrupted fires no hook, but the transcript gets a result for it, with its time. Both read
alike there, so a call with such a result may have run up to that time; it did not run any longer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

_MOST = 32 << 20  # bytes read from the end of a transcript: what is still open happened lately


class CallEnd(NamedTuple):
    """How a call ended: when, in milliseconds, what its result says, and whether it succeeded."""

    at_ms: int
    text: Any
    success: bool


def ends(path: str | None, call_ids: Iterable[str]) -> dict[str, CallEnd]:
    """Return the ends of these calls as far as a transcript has them; one that cannot be read has none."""
    wanted = [*call_ids]
    try:
        data = _tail(path) if path and wanted else b""
    except OSError:
        return {}
    found = {each: _end(data, each) for each in wanted}
    return {each: end for each, end in found.items() if end is not None}


def of_subagent(path: str | None, agent_id: str) -> str | None:
    """Return where Claude Code keeps the transcript of a sub-agent of this one."""
    if not path or "/" in agent_id or not path.endswith(".jsonl"):
        return None
    return os.path.join(path.removesuffix(".jsonl"), "subagents", f"agent-{agent_id}.jsonl")


def _tail(path: str) -> bytes:
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST))
        return file.read()


def _end(data: bytes, call_id: str) -> CallEnd | None:
    """Return the last result of a call."""
    name = json.dumps(call_id).encode()
    at = data.rfind(name)
    while at >= 0:
        first = data.rfind(b"\n", 0, at) + 1
        for each in _results(data[first : data.find(b"\n", at) % (len(data) + 1)], call_id):
            return each
        at = data.rfind(name, 0, first)
    return None


def _results(line: bytes, call_id: str) -> Iterator[CallEnd]:
    try:
        said = json.loads(line)
        at = datetime.fromisoformat(said["timestamp"])
        blocks = [each for each in said["message"]["content"] if isinstance(each, dict)]
    except (ValueError, KeyError, TypeError):
        return  # not a message, or a line that is still being written
    for block in blocks:
        if block.get("type") == "tool_result" and block.get("tool_use_id") == call_id and at.tzinfo is not None:
            yield CallEnd(int(at.timestamp() * 1000), block.get("content"), not block.get("is_error"))
