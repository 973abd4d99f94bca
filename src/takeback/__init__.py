"""Durable sessions and state for AI agents.

    import takeback

    with takeback.open("work.db") as store:
        session = store.create_session("fix-retry")
        session.user("Fix the flaky test")

The names in ``__all__`` are the public API; everything else is private and may change.
"""

from typing import TYPE_CHECKING, Any

from . import lazy

lazy.install()

from . import model  # noqa: E402

if TYPE_CHECKING:
    from . import tools as tools
    from .aio import (
        AsyncAgent,
        AsyncAgentState,
        AsyncAttachment,
        AsyncDocuments,
        AsyncRewind,
        AsyncSession,
        AsyncSessionState,
        AsyncStore,
        AsyncStream,
        AsyncToolRun,
        AsyncWorkspace,
        aopen,
    )
    from .client.agent import Agent
    from .client.copying import copy
    from .client.documents import Documents
    from .client.open import migrate, salvage
    from .client.open import open_store as open
    from .client.reading import Turn
    from .client.refs import Resolved
    from .client.rewind import Rewind
    from .client.session import Session
    from .client.state import AgentState, SessionState
    from .client.store import Store
    from .client.streams import Stream
    from .client.tools import ToolRun
    from .client.workspace import Workspace
    from .context.tokens import offline_tokens
    from .context.value import Context, Repair
    from .errors import (
        Ambiguous,
        BackendError,
        Busy,
        Closed,
        Conflict,
        Corrupt,
        Error,
        Invalid,
        LeaseLost,
        NotFound,
        SchemaTooNew,
        StorageFull,
        Unsupported,
    )
    from .model.approval import Approval
    from .model.attachment import Attachment
    from .model.branch import Branch
    from .model.capture import Capture
    from .model.checkpoint import Checkpoint
    from .model.comparison import Comparison, Side
    from .model.copied import Amounts, Copied, Copying
    from .model.document import Document
    from .model.entry import Entry
    from .model.exchange import Exported, Loaded
    from .model.feed import Change
    from .model.files import Diff, FileChange, FileDiff, FileState
    from .model.items import Custom, Native, Written
    from .model.message import Message
    from .model.operation import Operation
    from .model.page import Page
    from .model.purge import Pruned, Purged
    from .model.redaction import ForkReader, RedactedEntry, Redaction
    from .model.report import Problem, Repaired, Report
    from .model.scan import Scan, ScanChange
    from .model.search import Hit, Hits
    from .model.session import Head, Stats, StoreStats
    from .model.spending import Spent
    from .model.subagents import Sent, Spawned, Tree
    from .model.tools import ToolCall, ToolResult
    from .model.usage import Usage
    from .model.work import Compaction, FileTouched, Note, Task
    from .portal import AsyncReader
    from .presence import Holder
    from .prices import priced
    from .storage.base import Capabilities

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AgentState",
    "Ambiguous",
    "Amounts",
    "Approval",
    "AsyncAgent",
    "AsyncAgentState",
    "AsyncAttachment",
    "AsyncDocuments",
    "AsyncReader",
    "AsyncRewind",
    "AsyncSession",
    "AsyncSessionState",
    "AsyncStore",
    "AsyncStream",
    "AsyncToolRun",
    "AsyncWorkspace",
    "Attachment",
    "BackendError",
    "Branch",
    "Busy",
    "Capabilities",
    "Capture",
    "Change",
    "Checkpoint",
    "Closed",
    "Compaction",
    "Comparison",
    "Conflict",
    "Context",
    "Copied",
    "Copying",
    "Corrupt",
    "Custom",
    "Diff",
    "Document",
    "Documents",
    "Entry",
    "Error",
    "Exported",
    "FileChange",
    "FileDiff",
    "FileState",
    "FileTouched",
    "ForkReader",
    "Head",
    "Hit",
    "Hits",
    "Holder",
    "Invalid",
    "LeaseLost",
    "Loaded",
    "Message",
    "Native",
    "NotFound",
    "Note",
    "Operation",
    "Page",
    "Problem",
    "Pruned",
    "Purged",
    "RedactedEntry",
    "Redaction",
    "Repair",
    "Repaired",
    "Report",
    "Resolved",
    "Rewind",
    "Scan",
    "ScanChange",
    "SchemaTooNew",
    "Sent",
    "Session",
    "SessionState",
    "Side",
    "Spawned",
    "Stats",
    "StorageFull",
    "Store",
    "Spent",
    "StoreStats",
    "Stream",
    "Task",
    "ToolCall",
    "ToolResult",
    "ToolRun",
    "Tree",
    "Turn",
    "Unsupported",
    "Usage",
    "Workspace",
    "Written",
    "__version__",
    "aopen",
    "copy",
    "migrate",
    "offline_tokens",
    "open",
    "priced",
    "salvage",
]


# The module of each name. Names are loaded on first use, so that a command that only lists sessions starts instantly.
_WHERE = {
    "client.agent": "Agent",
    "client.copying": "copy",
    "client.documents": "Documents",
    "client.open": "migrate salvage open",
    "client.reading": "Turn",
    "client.refs": "Resolved",
    "client.rewind": "Rewind",
    "client.session": "Session",
    "client.state": "AgentState SessionState",
    "client.store": "Store",
    "client.streams": "Stream",
    "client.tools": "ToolRun",
    "client.workspace": "Workspace",
    "context.tokens": "offline_tokens",
    "context.value": "Context Repair",
    "errors": "Ambiguous BackendError Busy Closed Conflict Corrupt Error Invalid LeaseLost NotFound SchemaTooNew"
    " StorageFull Unsupported",
    "model.approval": "Approval",
    "model.attachment": "Attachment",
    "model.branch": "Branch",
    "model.capture": "Capture",
    "model.checkpoint": "Checkpoint",
    "model.comparison": "Comparison Side",
    "model.copied": "Amounts Copied Copying",
    "model.document": "Document",
    "model.entry": "Entry",
    "model.exchange": "Exported Loaded",
    "model.feed": "Change",
    "model.files": "Diff FileChange FileDiff FileState",
    "model.items": "Custom Native Written",
    "model.message": "Message",
    "model.operation": "Operation",
    "model.page": "Page",
    "model.purge": "Pruned Purged",
    "model.redaction": "ForkReader RedactedEntry Redaction",
    "model.report": "Problem Repaired Report",
    "model.scan": "Scan ScanChange",
    "model.search": "Hit Hits",
    "model.session": "Head Stats StoreStats",
    "model.spending": "Spent",
    "model.subagents": "Sent Spawned Tree",
    "model.tools": "ToolCall ToolResult",
    "model.usage": "Usage",
    "model.work": "Compaction FileTouched Note Task",
    "presence": "Holder",
    "prices": "priced",
    "storage.base": "Capabilities",
    "aio": "AsyncAgent AsyncAgentState AsyncAttachment AsyncDocuments AsyncRewind AsyncSession AsyncSessionState"
    " AsyncStore AsyncStream AsyncToolRun AsyncWorkspace aopen",
    "portal": "AsyncReader",
}
_RENAMED = {"open": "open_store"}


def _forms() -> Any:
    from . import providers

    return providers


model.forms = _forms  # values are read by what lies above them, when they are


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    from importlib import import_module

    if name == "tools":
        return import_module(f"{__name__}.tools")
    for module, names in _WHERE.items():
        if name in names.split():
            found = getattr(import_module(f"{__name__}.{module}"), _RENAMED.get(name, name))
            globals()[name] = found
            return found
    raise AttributeError(f"module 'takeback' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
