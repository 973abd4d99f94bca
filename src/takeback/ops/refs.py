"""Refs: how people name a session and a point in it. Only shells parse them; programs use exact ids, keys or names.

A ref is a session (its key, name, id or a prefix of its id, ``@`` for the newest of the workspace, ``@-1`` for the one
before), then ``/branch``, then ``:point``. A key is matched whole first, since it contains colons. Nothing is guessed:
more than one match raises ``Ambiguous``, which names the candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import Ambiguous, Invalid, NotFound
from ..ids import is_id
from ..model import words
from ..storage.base import Tx
from ..tables.sessions import SESSION, SessionRow
from ..tables.table import slots
from . import branches, listing, log, sessions
from .branches import BranchRow
from .sessions import Whole

PREFIX = "INDEXED BY session_id WHERE scope = ? AND id >= ? AND id < ? AND hidden < 2 ORDER BY id LIMIT ?"
NEIGHBOURS = """SELECT s.id,
(SELECT max(b.id) FROM session b INDEXED BY session_id WHERE b.scope = s.scope AND b.id < s.id AND b.hidden < 2),
(SELECT min(a.id) FROM session a INDEXED BY session_id WHERE a.scope = s.scope AND a.id > s.id AND a.hidden < 2)
FROM session s INDEXED BY session_id WHERE s.scope = ? AND s.id IN """
NAMES = "SELECT name FROM session INDEXED BY session_name WHERE scope = ? AND hidden = 0 AND name IN "
GUARD = "guard"  # the agent whose session guards a directory
_SHOWN = 10


class Where(NamedTuple):
    """The point of a ref: a branch, an entry of its path, a checkpoint; None for what was not named."""

    branch: str | None = None
    seq: int | None = None
    checkpoint: str | None = None


def exact(tx: Tx, scope: str, wanted: str, *, agent: str | None, workspace: str | None) -> SessionRow | None:
    """Find a session by its exact id, key or name; a name that several have raises ``Ambiguous``."""
    if is_id(wanted) and (found := sessions.find(tx, scope, wanted)):
        return found
    if wanted.startswith("agent:") and (found := sessions.find_by_key(tx, scope, wanted)):
        return found
    all_ = sessions.named(tx, scope, wanted)
    named = [row for row in all_ if agent in (None, row.agent) and workspace in (None, row.workspace)]
    return _single(named, f"{len(named)} sessions are named {wanted!r}; name the agent or the workspace too")


def exact_whole(tx: Tx, scope: str, wanted: str, *, agent: str | None, workspace: str | None) -> Whole | None:
    """Find a session as ``exact`` does, with its details and its lease."""
    found = exact(tx, scope, wanted, agent=agent, workspace=workspace)
    return None if found is None else sessions.with_rest(tx, found)


def _single(found: list[SessionRow], message: str) -> SessionRow | None:
    if len(found) > 1:
        raise Ambiguous(message, candidates=[row.id for row in found[:_SHOWN]])
    return found[0] if found else None


def resolve(tx: Tx, scope: str, ref: str, *, workspace: str | None) -> tuple[Whole, Where]:
    """Parse a ref: the longest prefix that names a session is the session, the rest is the point."""
    for end in _ends(ref):
        session = _session(tx, scope, ref[:end], workspace)
        if session is not None:
            return sessions.with_rest(tx, session), _where(tx, session, ref[end:])
    raise NotFound(f"no session matches {ref!r}")


def _ends(ref: str) -> list[int]:
    """Return where the session part may end: at the end, then before each colon or slash, the last one first."""
    return [len(ref), *(at for at in range(len(ref) - 1, 0, -1) if ref[at] in ":/")]


def _session(tx: Tx, scope: str, text: str, workspace: str | None) -> SessionRow | None:
    if text == "@" or (text.startswith("@-") and not {":", "/"} & {*text}):
        return _newest(tx, scope, text[1:], workspace)
    named = sessions.named(tx, scope, text)
    here = [row for row in named if row.workspace == workspace] if workspace is not None else []
    found = exact(tx, scope, text, agent=None, workspace=None) if len(named) < 2 else None
    if found is None and named:
        found = _single(here or named, f"{len(named)} sessions are named {text!r}; use an id")
    return found or _by_prefix(tx, scope, text)


def _by_prefix(tx: Tx, scope: str, text: str) -> SessionRow | None:
    prefix = text.lower()
    if not prefix.isalnum() or not prefix.isascii():
        return None
    rows = SESSION.all(tx, PREFIX, (scope, prefix, prefix + "~", _SHOWN + 1))
    return _single(rows, f"{text!r} matches several ids; add more characters")


def shortest(tx: Tx, scope: str, ids: Sequence[str], least: int) -> dict[str, str]:
    """Return for each id its shortest prefix of at least ``least`` characters that names its session.

    One read finds the neighbours of all ids in order; a second finds sessions whose name equals such a prefix, since
    a name takes precedence.
    """
    found = dict[str, str]()
    for wanted, before, after in tx.all(f"{NEIGHBOURS}({slots(len(ids))})", (scope, *ids)):
        shared = max((_shared(wanted, each) for each in (before, after) if each is not None), default=0)
        found[wanted] = wanted[: max(least, shared + 1)]
    named = _named_otherwise(tx, scope, found)
    return {
        each: found.get(each, each) if each not in named else _unnamed(tx, scope, each, found[each]) for each in ids
    }


def _shared(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    return next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))


def _named_otherwise(tx: Tx, scope: str, beginnings: dict[str, str]) -> set[str]:
    """Return the ids whose prefix is the name of a session."""
    texts = [*beginnings.values()]
    if not texts:
        return set()
    names = {name for (name,) in tx.all(f"{NAMES}({slots(len(texts))})", (scope, *texts))}
    return {wanted for wanted, text in beginnings.items() if text in names}


def _unnamed(tx: Tx, scope: str, wanted: str, text: str) -> str:
    """Return a longer prefix of an id, one that is not the name of a session."""
    longer = (wanted[:length] for length in range(len(text) + 1, len(wanted)))
    return next((each for each in longer if not sessions.named(tx, scope, each)), wanted)


def _newest(tx: Tx, scope: str, back: str, workspace: str | None) -> SessionRow | None:
    if back and not (back[1:].isascii() and back[1:].isdigit() and len(back) < 6):
        raise Invalid(f"'@{back[:20]}' is not a ref; '@' is the newest session, '@-1' to '@-9999' are earlier ones")
    count = int(back[1:]) + 1 if back else 1
    wanted = listing.Filter(workspace=workspace)
    found = [SESSION.unfolded(row) for row, *_ in _page(tx, scope, wanted, count + 1)]
    # A directory has one guard at most. It changes all the time, but people mean the session that they work in.
    found.sort(key=lambda row: row.agent == GUARD)
    if len(found) < count:
        some = words.count(len(found), "session")
        raise NotFound(f"there is no session {'@' + back}: only {some} here" if found else "no sessions here yet")
    return found[count - 1]


def _page(tx: Tx, scope: str, wanted: listing.Filter, limit: int) -> Sequence[Any]:
    return listing.page(tx, scope, wanted, order="updated", before=None, limit=limit).found


# ---------------------------------------------------------------------- points


def _where(tx: Tx, session: SessionRow, rest: str) -> Where:
    branch = None
    if rest.startswith("/"):
        name, colon, point = rest[1:].partition(":")
        branch = branches.find(tx, session.scope, session.sid, name)
        rest = f"{colon}{point}"
    if not rest:
        return Where(None if branch is None else branch.name)
    seen = session if branch is None else _at_tip(tx, session, branch)
    seq, checkpoint = _point(tx, session, seen, rest[1:])
    return Where(None if branch is None else branch.name, seq, checkpoint)


def _at_tip(tx: Tx, session: SessionRow, branch: branches.BranchRow) -> SessionRow:
    if branch.bid == session.branch and session.attached:
        return session
    point = log.point_on(tx, session.scope, branch, branch.tip_seq)
    return sessions.standing_at(session, branch, branch.tip_seq, point.numbers)


def _point(tx: Tx, session: SessionRow, seen: SessionRow, text: str) -> tuple[int, str | None]:
    """Parse what follows the colon: a turn, the point before a turn, an entry or a checkpoint."""
    from . import checkpoint_rows  # imported here, since few refs have a point

    found = checkpoint_rows.find(tx, session, text)
    if found is not None:
        return found.seq, found.id
    number = text.removesuffix("^")
    if number.isascii() and number.isdigit() and len(number) < 10:
        return turn_end(tx, seen, int(number) - 1 if text.endswith("^") else int(number)), None
    if text[:1] == "e" and text[1:].isascii() and text[1:].isdigit() and len(text) < 12:
        return log.point(tx, seen, int(text[1:])).seq, None
    raise NotFound(
        f"this session has no checkpoint {text!r}; a point is a turn (12, 12^), an entry (e340) or a checkpoint"
    )


def turn_end(tx: Tx, session: SessionRow, turn: int) -> int:
    """Find the last entry of a turn of the path by binary search: turns only grow along it."""
    if not 0 <= turn <= session.turns:
        raise NotFound(f"the session has turns 1 to {session.turns}; there is no turn {turn}")
    low, high = 0, session.seq  # invariant: the turn at ``low`` is at most ``turn``
    while low < high:
        middle = (low + high + 1) // 2
        if log.point(tx, session, middle).numbers.turns <= turn:
            low = middle
        else:
            high = middle - 1
    return low


def overview(
    tx: Tx, scope: str, ids: Sequence[str], least: int
) -> tuple[dict[str, SessionRow], dict[int, list[BranchRow]], dict[str, str]]:
    """Return the rows of sessions, their branches and their shortest ids, all as of one moment."""
    rows = sessions.several(tx, scope, ids)
    there = {row.sid: row.branches for row in rows.values()}
    known = branches.of_sessions(tx, scope, there) if there else {}
    return rows, known, shortest(tx, scope, [*rows], least) if rows else {}
