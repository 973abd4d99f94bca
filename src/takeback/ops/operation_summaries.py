"""What operations did, in a few words for people.

Operations name sessions, agents and branches by number or id; the names that people use are looked up for many
operations at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

from .. import codec
from ..errors import Corrupt
from ..model import words
from ..model.operation import Operation
from ..storage.base import Tx
from ..tables import agents
from ..tables.branches import BRANCH
from ..tables.history import OperationRow
from ..tables.sessions import SESSION
from ..tables.table import Table, slots
from . import sessions

R = TypeVar("R", bound="tuple[Any, ...]")
View: TypeAlias = "dict[str, Any]"
Named = Callable[[str], str | None]  # returns the name of a branch by its id
_SHORT = 7  # characters of an id shown to people
_MANY = 500  # rows that one statement looks up


def named(tx: Tx, row: OperationRow) -> Operation:
    """Return an operation as the value callers see, with the ids of what it changed."""
    return all_named(tx, [row])[0]


def all_named(tx: Tx, rows: Sequence[OperationRow]) -> list[Operation]:
    """Return operations of one scope as values; what they name is looked up for all of them at once."""
    if not rows:
        return []
    scope, views = rows[0].scope, [(codec.decode(row.before), codec.decode(row.after)) for row in rows]
    ids = _ids(tx, SESSION, scope, {row.session for row in rows} - {0})
    agent_ids = _ids(tx, agents.AGENT, scope, {row.agent for row in rows} - {0})
    uids = {uid for before, after in views for uid in branches_in(before, after)}
    names = {row.uid: row.name for row in _several(tx, BRANCH, "uid", scope, uids)}
    return [
        _value(row, before, after, ids.get(row.session), agent_ids.get(row.agent), names)
        for row, (before, after) in zip(rows, views, strict=True)
    ]


def _ids(tx: Tx, table: Table[R], scope: str, numbers: set[int]) -> dict[int, str]:
    """Return the ids of rows by local number; a missing row raises ``Corrupt``."""
    rows: dict[int, Any] = dict(table.numbered(tx, scope, numbers))
    found = {number: row.id for number, row in rows.items()}
    for number in sorted(numbers - found.keys()):
        what = f"{table.name} number {number}"
        raise Corrupt(f"the record of {what} is missing", what=what)
    return found


def _several(tx: Tx, table: Table[R], column: str, scope: str, wanted: Iterable[Any]) -> list[R]:
    """Return rows by the values of a column, many per statement."""
    found, values = list[R](), sorted(wanted)
    for first in range(0, len(values), _MANY):
        some = values[first : first + _MANY]
        found += table.all(tx, f"WHERE scope = ? AND {column} IN ({slots(len(some))})", (scope, *some))
    return found


def as_value(tx: Tx, row: OperationRow, session_id: str | None, agent_id: str | None) -> Operation:
    """Return an operation as the value callers see, given the ids of what it changed."""
    before, after = codec.decode(row.before), codec.decode(row.after)
    found = _several(tx, BRANCH, "uid", row.scope, branches_in(before, after))
    return _value(row, before, after, session_id, agent_id, {each.uid: each.name for each in found})


def _value(
    row: OperationRow, before: View, after: View, session_id: str | None, agent_id: str | None, names: dict[str, str]
) -> Operation:
    files = after.get("files") or {}
    return Operation(
        id=row.id,
        kind=row.kind,
        session_id=session_id,
        at_ms=row.at_ms,
        summary=summary(before, after, names.get),  # a branch without a name was purged
        undone=row.undone_by is not None,
        agent_id=agent_id,
        workspace=files.get("workspace") or after.get("workspace"),
        paths=tuple(files.get("paths", ())),
    )


# ---------------------------------------------------------------------- the words


def summary(before: View, after: View, named: Named) -> str:
    """Describe what an operation changed."""
    return "; ".join(_describe(thing, before.get(thing), value, named) for thing, value in after.items())


def _describe(thing: str, before: Any, after: Any, named: Named) -> str:
    match thing:
        case "head":
            return _describe_head(before, after, named)
        case "hidden":
            return "stays as it is" if before == after else "into the trash" if after else "out of the trash"
        case "name":
            return f"name {after!r}" if before == after else f"now named {after!r}"
        case "branch" | "session":
            name = named(after[0]) if thing == "branch" else None
            return f"{thing} {name or after[0][:_SHORT]} {'hidden' if after[1] else 'shown'}"
        case "files":
            return f"{words.count(len(after['paths']), 'path')} in the workspace"
        case "below":
            return words.count(len(after), "sub-agent") + " with it"
        case "sessions":
            return f"{words.count(len(after), 'session')} with it"
        case "redacted":
            return f"content of {words.count(len(after), 'entry')} erased"
        case "heads":
            return f"{words.count(len(after), 'session')} moved"
        case "state":
            return f"state of version {after}"
        case "archived" | "pinned":
            return thing if after else f"not {thing}"
        case "title" | "key" | "workspace" | "status":
            return f"{thing} {before!r} -> {after!r}"
        case "tags":
            return f"tags {', '.join(sessions.unpack_tags(after)) or 'none'}"
        case _:
            return thing


def branches_in(before: View, after: View) -> set[str]:
    """Return the ids of the branches that a summary mentions by name."""
    found = {after["branch"][0]} if "branch" in after else set[str]()
    if "head" in after and "head" in before and _changes_branch(before["head"], after["head"]):
        found |= {before["head"][0], after["head"][0]}
    return found


def _changes_branch(before: list[Any], after: list[Any]) -> bool:
    return bool(after[0] != before[0] and before[1])


def _describe_head(before: list[Any], after: list[Any], named: Named) -> str:
    text = f"entry {before[1]} -> entry {after[1]}"
    if _changes_branch(before, after):
        names = named(before[0]), named(after[0])
        return f"{text}, on another branch" if None in names else f"{text}, from branch {names[0]} to {names[1]}"
    if after[1] < before[1]:
        gone = words.count(before[1] - after[1], "entry")
        return f"{text}; {gone} off the path, kept on the branch"
    return text
