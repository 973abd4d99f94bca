"""The tools: each with what it may change, in the order in which they are listed.

``none`` reads. ``state`` writes what sessions and agents hold: conversations, tasks, state, messages, sub-agents.
``checkpoint`` names points to come back to. ``rewind`` goes back to them, or forward again. ``delete`` removes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from . import agents, checkpoints, conversations, files, history, moves, work

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
    "search_history": ToolRow(history.search_history),
    "list_sessions": ToolRow(history.list_sessions),
    "get_session": ToolRow(history.get_session),
    "read_messages": ToolRow(history.read_messages),
    "get_file_at": ToolRow(files.get_file_at),
    "file_history": ToolRow(files.file_history),
    "diff_points": ToolRow(files.diff_points),
    "get_state": ToolRow(work.get_state),
    "preview_rewind": ToolRow(moves.preview_rewind),
    # Changing what is now.
    "set_state": ToolRow(work.set_state, "state", repeats=True),
    "update_tasks": ToolRow(work.update_tasks, "state", repeats=True),
    "send_message": ToolRow(work.send_message, "state", adds=True),
    "spawn_subagent": ToolRow(work.spawn_subagent, "state", adds=True),
    "create_checkpoint": ToolRow(checkpoints.create_checkpoint, "checkpoint", adds=True),
    "fork_session": ToolRow(moves.fork_session, "checkpoint", adds=True),
    "apply_rewind": ToolRow(moves.apply_rewind, "rewind", repeats=True),
    "undo_operation": ToolRow(moves.undo_operation, "rewind", repeats=True),
    # Agents, conversations and checkpoints as a program keeps them.
    "agent_save": ToolRow(agents.agent_save, "state", repeats=True),
    "agent_load": ToolRow(agents.agent_load),
    "agent_list": ToolRow(agents.agent_list),
    "agent_delete": ToolRow(agents.agent_delete, "delete", repeats=True),
    "conversation_save": ToolRow(conversations.conversation_save, "state", adds=True),
    "conversation_load": ToolRow(conversations.conversation_load),
    "conversation_list": ToolRow(conversations.conversation_list),
    "conversation_search": ToolRow(conversations.conversation_search),
    "conversation_delete": ToolRow(conversations.conversation_delete, "delete", repeats=True),
    "checkpoint_create": ToolRow(checkpoints.checkpoint_create, "checkpoint", adds=True),
    "checkpoint_list": ToolRow(checkpoints.checkpoint_list),
    "checkpoint_restore": ToolRow(checkpoints.checkpoint_restore, "rewind", repeats=True),
    "checkpoint_delete": ToolRow(checkpoints.checkpoint_delete, "delete", repeats=True),
    "persistence_stats": ToolRow(work.persistence_stats),
}
