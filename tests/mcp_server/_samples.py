"""Arguments with which each tool succeeds on a store as ``worked`` makes it."""

from __future__ import annotations

from typing import Any

import takeback

Arguments = dict[str, Any]
READING: dict[str, Arguments] = {
    "search_history": {"query": "retry"},
    "list_sessions": {},
    "get_session": {"session": "fix-retry"},
    "read_messages": {"session": "fix-retry"},
    "get_file_at": {"point": "fix-retry:1", "path": "pool.py"},
    "file_history": {"path": "pool.py"},
    "diff_points": {"first": "fix-retry:1"},
    "get_state": {"session": "fix-retry"},
    "preview_rewind": {"point": "fix-retry:1"},
    "agent_load": {"agent": "coder"},
    "agent_list": {},
    "conversation_load": {"conversation": "oauth"},
    "conversation_list": {},
    "conversation_search": {"query": "oauth"},
    "checkpoint_list": {"session": "fix-retry"},
    "persistence_stats": {},
}


def writing(store: takeback.Store) -> dict[str, Arguments]:
    """Return arguments for each tool that changes something; those in two steps lack their digest."""
    of_session = store.get_session("fix-retry").get_checkpoint("fixed")
    of_agent = store.checkpoint_agent("coder", "whole")
    store.save_agent("coder", name="Somebody else")
    undone = store.get_session("oauth").rename("OAuth")
    return {
        "set_state": {"session": "fix-retry", "values": {"tries": 4}, "delete": ["none"]},
        "update_tasks": {"session": "fix-retry", "tasks": [{"description": "Rest", "status": "completed"}]},
        "send_message": {"session": "oauth", "text": "Hurry"},
        "spawn_subagent": {"parent": "oauth", "task": "Read the logs"},
        "create_checkpoint": {"session": "fix-retry"},
        "fork_session": {"point": "fix-retry:1"},
        "apply_rewind": {"point": "fix-retry:1"},
        "undo_operation": {"operation": undone.id},
        "agent_save": {"agent": "coder", "name": "Coder", "state": {"likes": "coffee"}},
        "agent_delete": {"agent": "coder"},
        "conversation_save": {"conversation": "new", "messages": [{"role": "user", "content": "hello"}]},
        "conversation_delete": {"conversation": "fix-retry"},
        "checkpoint_create": {"agent": "coder"},
        "checkpoint_restore": {"checkpoint": of_agent.id},
        "checkpoint_delete": {"checkpoint": of_session.id},
    }
