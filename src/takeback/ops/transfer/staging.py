"""Beginning a session where nobody sees it: its row, hidden as a purged one is, and its branches one after another.

Sessions are begun in the order of their numbers, so that listings by creation stay as they are; and before anything
of a session is written, whatever would be in its way later is looked for.
"""

from __future__ import annotations

from ...storage.base import Tx
from ...tables.branches import BRANCH, BranchRow
from ...tables.sessions import SessionRow
from .. import branches, feed, sessions
from ..verify import places
from . import base
from .base import STAGED_KEY, Read, Taken
from .moments import Moment, Part

# What a half-copied session does not say yet.
_UNSAID = sessions.EMPTY | dict.fromkeys(("name", "label", "title", "calls"))
_UNSAID |= {"workspace": "", "tags": "", "hidden": base.HIDDEN}
_UNSAID |= dict.fromkeys(("parent", "archived", "pinned", "attached", "branches", "updated", "rank"), 0)

# ---------------------------------------------------------------------- what is in the way


def require_room(tx: Tx, ours: Moment, read: Read) -> None:
    """Refuse with ``Conflict`` a new session that could never be finished in this destination."""
    session = ours.session
    for part in ours.parts:
        if branches.find_by_uid(tx, session.scope, part.branch.uid) is not None:
            raise base.conflict(
                f"branch {part.branch.uid} of session {session.id} belongs to another one in the destination."
                f" {base.AGAIN}",
                session.id,
            )
    parent = parent_number(tx, ours)
    try:
        require_free(tx, session, parent)
    except Taken as taken:
        if not gives_way(taken.holder, read):
            raise refused(ours, taken) from taken


def parent_number(tx: Tx, ours: Moment) -> int:
    """Return the number of a session's parent in the destination; 0 for none."""
    if ours.parent is None:
        return 0
    parent = sessions.find_any(tx, ours.session.scope, ours.parent)
    if parent is None:
        raise base.conflict(
            f"session {ours.session.id} belongs to session {ours.parent}, which is not in the destination."
            f" {base.AGAIN}",
            ours.session.id,
        )
    return parent.sid


def require_free(tx: Tx, session: SessionRow, parent: int) -> None:
    """Raise ``Taken`` if another visible session has the key, name or label that a visible one is to have."""
    if session.hidden:
        return
    scope = session.scope
    held: list[tuple[SessionRow | None, str]] = [(sessions.find_by_key(tx, scope, session.key), f"key {session.key!r}")]
    if session.name is not None:
        asked = {"agent": session.agent, "workspace": session.workspace, "name": session.name}
        held.append((sessions.find_by_name(tx, scope, **asked), f"name {session.name!r}"))
    if session.label is not None:
        held.append((sessions.find_by_label(tx, scope, parent, session.label), f"label {session.label!r}"))
    for holder, what in held:
        if holder is not None and holder.id != session.id:
            raise Taken(holder, what)


def gives_way(holder: SessionRow, read: Read) -> bool:
    """Whether the holder of a name is a copy whose original has given it up since."""
    row = read(lambda tx: sessions.find_any(tx, holder.scope, holder.id))
    return row is not None and row.hidden < base.HIDDEN


def refused(ours: Moment, taken: Taken) -> Exception:
    """Return the error for a key, name or label that is taken."""
    return base.conflict(
        f"session {ours.session.id} has the {taken.what}, which session {taken.holder.id} has in the destination."
        f" Delete one of the two, or restore it under another name. {base.AGAIN}",
        ours.session.id,
    )


# ---------------------------------------------------------------------- the row and its branches


def begin(tx: Tx, ours: Moment, fork: bytes, *, now_ms: int) -> None:
    """Write the row of a session with its first branch, hidden; one that is begun already stays as it is."""
    theirs = ours.session
    if sessions.find_any(tx, theirs.scope, theirs.id) is not None:
        return
    staged = theirs._replace(**{**_UNSAID, "states": theirs.states}, key=f"{STAGED_KEY}{theirs.id}")
    session = sessions.insert(tx, staged._replace(sid=tx.next("session")))
    sessions.put_detail(tx, session, b"{}")
    first = _insert(tx, session, ours.parts[0], fork, purged=ours.purged)
    position, rank = feed.record(tx, session, "session", branch=first.bid, first=0, last=0, now_ms=now_ms)
    head = {"branch": first.bid, "uid": first.uid, "fork": first.fork_seq}
    sessions.write(tx, session, **head, branches=1, updated=position, rank=rank)


def add_branch(tx: Tx, ours: Moment, part: Part, fork: bytes) -> None:
    """Open a branch of a session that is begun, unless it is there."""
    scope = ours.session.scope
    if branches.find_by_uid(tx, scope, part.branch.uid) is not None:
        return
    session = sessions.find_any(tx, scope, ours.session.id)
    if session is None:
        raise base.conflict(f"session {ours.session.id} is gone from the destination; call again", ours.session.id)
    _insert(tx, session, part, fork, purged=ours.purged)
    sessions.write(tx, session, branches=session.branches + 1)


def _insert(tx: Tx, session: SessionRow, part: Part, fork: bytes, *, purged: bool) -> BranchRow:
    theirs, bid = part.branch, tx.next("branch")
    parent = None if part.parent is None else branches.find_by_uid(tx, session.scope, part.parent)
    if part.parent is not None and (parent is None or base.hash_at(tx, parent, theirs.fork_seq) != fork):
        raise base.conflict(
            f"session {session.id} goes on from entry {theirs.fork_seq} of branch {part.parent}, which is not in the"
            f" destination: it was purged there, or could not be copied. {base.AGAIN}",
            session.id,
        )
    depth, jump, jump_seq = places.shortcut(tx, parent, theirs.fork_seq)
    made = theirs._replace(
        bid=bid,
        session=session.sid,
        name=theirs.uid if purged else theirs.name,
        parent=parent.bid if parent else None,
        depth=depth,
        jump=jump,
        jump_seq=jump_seq,
        tip_seq=theirs.fork_seq,
        tip_hash=fork,
    )
    return BRANCH.put(tx, made)
