"""Values as ``--json`` shows them: plain data, full ids, times in RFC 3339 UTC.

The schemas in ``schemas/`` describe them; fields are added, never renamed or removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..client.overview import Overview, overview
from .times import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..client.reading import Reading
    from ..model.branch import Branch
    from ..model.checkpoint import Checkpoint
    from ..model.files import FileDiff
    from ..model.message import Message
    from ..model.operation import Operation
    from ..model.scan import Scan
    from ..model.search import Hit
    from ..model.session import Stats
    from ..model.subagents import Tree
    from ..model.tools import ToolCall, ToolResult
    from ..model.usage import Usage


def session(found: Reading) -> dict[str, Any]:
    """Describe a session: its fields, and the totals of its path."""
    return listed(overview(found))


def listed(seen: Overview[Any]) -> dict[str, Any]:
    """Describe a session in a list."""
    found: Reading = seen.session
    given, stats = found.to_dict(), seen.stats
    times = ("created_at", "updated_at", "last_message_at", "finished_at")
    return {
        **given,
        **{name: rfc3339(getattr(found, name)) for name in times},
        "branch": seen.branch,
        "branches": seen.branches,
        "waiting": seen.waiting,
        "tokens": stats.estimated_tokens,
        "cost": stats.usage.cost,
        "holder": None if found.holder is None else str(found.holder),
        "stopped_at": found.stopped_at,
        "error": found.error,
        "deleted": found.deleted,
    }


def head_branch(found: Reading) -> str:
    """Return the name of the branch that a session's head is on."""
    return overview(found).branch


def message(found: Message, asked: Mapping[str, ToolCall] | None = None) -> dict[str, Any]:
    """Describe a message without its raw bytes; ``asked`` holds calls that no message announced."""
    usage, asked = found.usage, asked or {}
    return {
        "id": found.id,
        "seq": found.seq,
        "turn": found.turn,
        "role": found.role,
        "text": found.text,
        "tool_calls": [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in found.tool_calls],
        "tool_results": [
            {
                "call_id": each.call_id,
                "name": each.name or found.tool_name,
                "arguments": asked[each.call_id].arguments if each.call_id in asked else None,
                "success": each.success,
                "text": said(each),
            }
            for each in found.tool_results
        ],
        "model": found.model,
        "usage": None if usage is None else _usage(usage),
        "status": found.status,
        "created_at": rfc3339(found.created_at),
    }


def _usage(found: Usage) -> dict[str, Any]:
    return {**found.numbers(), "extra": found.extra} if found.extra else {**found.numbers()}


def said(result: ToolResult) -> str:
    """Return a tool's result as text."""
    content = result.content
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    ):
        return "\n".join(part["text"] for part in content)
    return compact(content)


def compact(value: Any) -> str:
    """Format any value on one line."""
    if _is_simple(value):  # same output as ``json``, which takes longer to import than a session to read
        return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
    import json

    return json.dumps(value, ensure_ascii=False, default=repr)


def _is_simple(value: Any) -> bool:
    """Whether msgspec and ``json`` write a value alike: no floats, bytes, lone surrogates or huge integers."""
    if isinstance(value, str):
        return value.isascii() or value.isprintable()
    if isinstance(value, dict):
        return all(type(name) is str and _is_simple(name) and _is_simple(each) for name, each in value.items())
    if isinstance(value, list):
        return all(map(_is_simple, value))
    return value is None or value is True or value is False or (type(value) is int and -(1 << 63) < value < 1 << 63)


def call(found: ToolCall) -> dict[str, Any]:
    """Describe a tool call."""
    return {
        "id": found.id,
        "name": found.name,
        "arguments": found.arguments,
        "status": found.status,
        "started_at": rfc3339(found.started_at),
    }


def checkpoint(found: Checkpoint) -> dict[str, Any]:
    """Describe a checkpoint."""
    return {
        "id": found.id,
        "name": found.name,
        "description": found.description,
        "type": found.type,
        "session_id": found.session_id,
        "agent_id": found.agent_id,
        "created_at": rfc3339(found.created_at),
        "branch": found.head.branch,
        "seq": found.head.seq,
        "turn": found.stats.turns,
        "files": found.tree is not None,
        "not_captured": [*found.not_captured],
        "checksum": found.checksum,
    }


def branch(found: Branch) -> dict[str, Any]:
    """Describe a branch."""
    return {
        "id": found.id,
        "name": found.name,
        "parent": found.parent,
        "fork_seq": found.fork_seq,
        "head_seq": found.head_seq,
        "is_head": found.is_head,
        "created_at": rfc3339(found.created_at),
    }


def operation(found: Operation) -> dict[str, Any]:
    """Describe an operation."""
    return {
        "id": found.id,
        "kind": found.kind,
        "session_id": found.session_id,
        "agent_id": found.agent_id,
        "workspace": found.workspace,
        "created_at": rfc3339(found.created_at),
        "summary": found.summary,
        "paths": [*found.paths],
        "undone": found.undone,
    }


def scan(found: Scan) -> dict[str, Any]:
    """Describe a step of a timeline."""
    return {
        "id": found.id,
        "created_at": rfc3339(found.created_at),
        "workspace": found.workspace,
        "session_id": found.session_id,
        "calls": [*found.calls],
        "operation": found.operation,
        "failed": found.failed,
        "changes": [
            {
                "path": each.path,
                "action": each.action,
                "by": each.by,
                "kind": each.kind,
                "session_ids": [*each.session_ids],
                "calls": [*each.calls],
            }
            for each in found.changes
        ],
        "more": found.more,
    }


def hit(found: Hit) -> dict[str, Any]:
    """Describe a hit of a search."""
    return {
        "ref": found.ref,
        "session_id": found.session_id,
        "title": found.title,
        "name": found.name,
        "agent_id": found.agent_id,
        "workspace": found.workspace,
        "branch": found.branch,
        "seq": found.seq,
        "turn": found.turn,
        "role": found.role,
        "kind": found.kind,
        "tool": found.tool,
        "snippet": found.snippet,
        "score": found.score,
        "whole": found.whole,
        "why": None if found.why is None else {**found.why},
        "created_at": rfc3339(found.created_at),
    }


def stats(found: Stats) -> dict[str, Any]:
    """Describe statistics."""
    usage = found.usage
    return {
        "messages": found.messages,
        "turns": found.turns,
        "tool_calls": found.tool_calls,
        "tool_failures": found.tool_failures,
        "seconds": found.duration,
        **usage.numbers(),
    }


def tree(found: Tree) -> dict[str, Any]:
    """Describe a session with its sub-agents."""
    return {
        "id": found.id,
        "name": found.name,
        "title": found.title,
        "label": found.label,
        "agent_id": found.agent_id,
        "status": found.status,
        "seconds": found.seconds,
        "spent": stats(found.stats),
        "totals": stats(found.totals),
        "children": [tree(each) for each in found.children],
    }


def file_diff(found: FileDiff) -> dict[str, Any]:
    """Describe a changed path."""
    added, removed = found.lines
    return {"path": found.path, "action": action(found), "added": added, "removed": removed}


def action(found: FileDiff) -> str:
    """Return what happened to a path: create, delete or overwrite."""
    if found.before.kind == "missing":
        return "create"
    return "delete" if found.after.kind == "missing" else "overwrite"
