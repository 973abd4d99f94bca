"""Branches: a run of entries that starts at a point of another branch."""

from typing import NamedTuple

from .table import Index, Table


class BranchRow(NamedTuple):
    """A row of ``branch``."""

    scope: str
    bid: int
    uid: str
    session: int
    name: str
    parent: int | None
    fork_seq: int
    depth: int
    jump: int | None
    jump_seq: int
    created_ms: int
    tip_seq: int
    tip_hash: bytes
    hidden: int = 0


BRANCH = Table(
    "branch",
    BranchRow,
    key="scope, bid",
    number="bid",
    called=lambda row: f"branch {row.uid}",
    refs={"session": "session", "parent": "branch", "jump": "branch"},
    indexes=[
        Index("branch_uid", "scope, uid", unique=True),
        Index("branch_name", "scope, session, name", unique=True),
        Index("branch_parent", "scope, parent", where="parent IS NOT NULL"),
    ],
    notes={
        "bid": "local to this store",
        "fork_seq": "the last seq that is read from the parent; 0 without one",
        "jump_seq": "the last seq of this path that jump or its ancestors own",
        "tip_seq": "of a branch that no head is attached to; else a lower bound",
        "hidden": "1 once the fork that made it is undone",
    },
)
