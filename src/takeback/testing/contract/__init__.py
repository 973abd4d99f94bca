"""The contract of every store, as a test class.

The whole test of a backend is a subclass that defines how to open it:

    class TestMyBackend(StoreContract):
        def open(self, tmp_path, **options):
            return my_open(tmp_path / "store", **options)

If the store is persistent, calling ``open`` twice with the same ``tmp_path`` must reach the same data.
"""

from __future__ import annotations

from .agents import Agents, States
from .announced import Announced, Sweeping
from .base import said
from .branches import Branches
from .checkpoint_stats import CheckpointStats
from .checkpoints import AgentCheckpoints, AutoCheckpoints
from .documents import StoredContents, StoredDocuments
from .entering import Entering, Places
from .families import Families
from .files import Captures, FilePoints
from .listings import ByMetadata, InThePast, WithState
from .live import Leases
from .messages import Messages
from .money import Money
from .points import Operations, Points
from .races import Races
from .redaction import Redactions
from .regressions import Regressions
from .replies import Denials, Replies
from .rewinds import FileRewinds, Rewinds
from .rewound import RewindsOfOthers, RewindsOfWork
from .search import Searches
from .sessions import Listing, Sessions, Trash
from .statuses import Statuses
from .stores import Stores
from .streams import Calls, Streams
from .timelines import Timelines
from .together import Approvals, Inboxes, SubAgents
from .values import Values
from .work import Attachments, Tools, Work
from .writes import AnyBranch, Customs, Natives, Writes

_PARTS = (Messages, Races, Branches, Stores, Agents, States, Sessions, Listing, Trash, Work, Tools, Attachments)
_LISTS = (ByMetadata, WithState, InThePast, Entering, Places, Money)
_CONTENTS = (StoredDocuments, StoredContents)
_FILES = (Captures, FilePoints, Announced, Sweeping, Rewinds, FileRewinds, RewindsOfOthers, RewindsOfWork, Timelines)
_LIVE = (Leases, Statuses, Streams, Calls, Approvals, Denials, Replies, SubAgents, Families, Inboxes)
_WRITES = (Writes, Natives, Customs, AnyBranch)
_CHECKPOINTS = (AgentCheckpoints, CheckpointStats, AutoCheckpoints)


_REST = (Searches, Points, Operations, Values, Regressions, Redactions)
_ALL = (*_PARTS, *_LISTS, *_WRITES, *_CONTENTS, *_LIVE, *_FILES, *_CHECKPOINTS, *_REST)


class StoreContract(*_ALL):  # type: ignore[misc]
    """All contracts of a store: subclass it and define ``open``."""


__all__ = ["StoreContract", "said"]
