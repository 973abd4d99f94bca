"""The tools: each with what it may change, in the order in which they are listed.

``none`` reads. ``state`` writes what sessions and agents hold: conversations, tasks, state, messages, sub-agents.
``checkpoint`` names points to come back to. ``rewind`` goes back to them, or forward again. ``delete`` removes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .agents import agent_delete, agent_list, agent_load, agent_save
from .checkpoints import checkpoint_create, checkpoint_delete, checkpoint_list, checkpoint_restore, create_checkpoint
from .conversations import (
    conversation_delete,
    conversation_list,
    conversation_load,
    conversation_save,
    conversation_search,
)
from .files import diff_points, file_history, get_file_at
from .history import get_session, list_sessions, read_messages, search_history
from .moves import apply_rewind, fork_session, preview_rewind, undo_operation
from .work import get_state, persistence_stats, send_message, set_state, spawn_subagent, update_tasks

NONE = "none"
EFFECTS = ("state", "checkpoint", "rewind", "delete")


class ToolRow(NamedTuple):
    """A tool's function and effect; whether it only adds; whether doing it again changes nothing more."""

    function: Callable[..., Any]
    effect: str = NONE
    adds: bool = False
    repeats: bool = False


TOOLS: dict[str, ToolRow] = {
    # Reading one's own history.
    "search_history": ToolRow(search_history),
    "list_sessions": ToolRow(list_sessions),
    "get_session": ToolRow(get_session),
    "read_messages": ToolRow(read_messages),
    "get_file_at": ToolRow(get_file_at),
    "file_history": ToolRow(file_history),
    "diff_points": ToolRow(diff_points),
    "get_state": ToolRow(get_state),
    "preview_rewind": ToolRow(preview_rewind),
    # Changing what is now.
    "set_state": ToolRow(set_state, "state", repeats=True),
    "update_tasks": ToolRow(update_tasks, "state", repeats=True),
    "send_message": ToolRow(send_message, "state", adds=True),
    "spawn_subagent": ToolRow(spawn_subagent, "state", adds=True),
    "create_checkpoint": ToolRow(create_checkpoint, "checkpoint", adds=True),
    "fork_session": ToolRow(fork_session, "checkpoint", adds=True),
    "apply_rewind": ToolRow(apply_rewind, "rewind", repeats=True),
    "undo_operation": ToolRow(undo_operation, "rewind", repeats=True),
    # Agents, conversations and checkpoints as a program keeps them.
    "agent_save": ToolRow(agent_save, "state", repeats=True),
    "agent_load": ToolRow(agent_load),
    "agent_list": ToolRow(agent_list),
    "agent_delete": ToolRow(agent_delete, "delete", repeats=True),
    "conversation_save": ToolRow(conversation_save, "state", adds=True),
    "conversation_load": ToolRow(conversation_load),
    "conversation_list": ToolRow(conversation_list),
    "conversation_search": ToolRow(conversation_search),
    "conversation_delete": ToolRow(conversation_delete, "delete", repeats=True),
    "checkpoint_create": ToolRow(checkpoint_create, "checkpoint", adds=True),
    "checkpoint_list": ToolRow(checkpoint_list),
    "checkpoint_restore": ToolRow(checkpoint_restore, "rewind", repeats=True),
    "checkpoint_delete": ToolRow(checkpoint_delete, "delete", repeats=True),
    "persistence_stats": ToolRow(persistence_stats),
}
