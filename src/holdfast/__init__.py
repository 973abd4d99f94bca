"""Durable sessions and state for AI agents.

    import holdfast

    with holdfast.open("work.db") as store:
        session = store.create_session("fix-retry")
        session.user("Fix the flaky test")

The names here are the public API; everything below is private and may change.
"""

from .client.open import open_store as open
from .client.open import salvage
from .client.session import Session
from .client.store import Store
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
from .model.branch import Branch
from .model.entry import Entry
from .model.feed import Change
from .model.message import Message
from .model.operation import Operation
from .model.page import Page
from .model.report import Problem, Report
from .model.session import Head, Stats, StoreStats
from .model.usage import Usage
from .storage.base import Capabilities

__version__ = "0.1.0"

__all__ = [
    "Ambiguous",
    "BackendError",
    "Branch",
    "Busy",
    "Capabilities",
    "Change",
    "Closed",
    "Conflict",
    "Corrupt",
    "Entry",
    "Error",
    "Head",
    "Invalid",
    "LeaseLost",
    "Message",
    "NotFound",
    "Operation",
    "Page",
    "Problem",
    "Report",
    "SchemaTooNew",
    "Session",
    "Stats",
    "StorageFull",
    "Store",
    "StoreStats",
    "Unsupported",
    "Usage",
    "__version__",
    "open",
    "salvage",
]
