"""What the number beside an idempotency key stands for: a record says the number, but not of what.

A key of a session that stored no entry is an operation's or a checkpoint's, one of the store a session's, an agent's or
a version's. The digest of the request tells: the requests that can have made a thing are written again from what is
known of it. A key that fits nothing for certain is left out and counted, since a wrong answer to a retry is
worse than none.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from ... import codec
from ...storage.base import Tx
from .. import agents, checkpoints, sessions
from ..agents import AgentRow
from ..sessions import SessionRow
from . import base

CHECKPOINT = f"SELECT {checkpoints.COLUMNS} FROM checkpoint WHERE cid = ? AND session = ?"
OPERATION = "SELECT id FROM operation WHERE oid = ? AND session = ?"
FIRST = """SELECT before FROM operation WHERE scope = ? AND session = ? AND agent = ? AND kind IN (?, ?)
ORDER BY oid LIMIT 1"""
UPDATES = """SELECT before, after FROM operation WHERE scope = ? AND session = 0 AND agent = ? AND kind = 'update'
ORDER BY oid LIMIT ?"""
VERSIONED = f"SELECT {agents.COLUMNS} FROM agent WHERE scope = ? AND version >= ? ORDER BY aid LIMIT ?"
NUMBERS = {
    "operation": "SELECT oid FROM operation WHERE scope = ? AND id = ?",
    "checkpoint": "SELECT cid FROM checkpoint WHERE scope = ? AND id = ?",
    "session": "SELECT sid FROM session WHERE scope = ? AND id = ?",
}

_TRIES = 200


class Made(NamedTuple):
    """What a call made: its kind, its id, and for an agent when it was made and the how-manieth of these it is."""

    kind: str
    id: str
    created_ms: int = 0
    ordinal: int = 0


def of(tx: Tx, scope: str, sid: int, number: int, digest: int) -> Made | None:
    """Find out what a number stands for, in the store that has it; None if that cannot be told."""
    return _of_session(tx, sid, number, digest) if sid else _of_store(tx, scope, number, digest)


def number(tx: Tx, scope: str, made: Made) -> int | None:
    """Give the number of a thing in another store; None if it is not there."""
    if made.kind == "version":
        return int(made.id)
    if made.kind == "agent":
        twin = base.find_twin(tx, scope, made.id, made.created_ms, made.ordinal)
        found = twin or agents.find(tx, scope, made.id)
        return None if found is None else found.aid
    row = tx.one(NUMBERS[made.kind], (scope, made.id))
    return int(row[0]) if row else None


def _fits(request: Any, digest: int) -> bool:
    return zlib.crc32(codec.canonical(request)) == digest


# ---------------------------------------------------------------------- of a session


def _of_session(tx: Tx, sid: int, number: int, digest: int) -> Made | None:
    row, operation = tx.one(CHECKPOINT, (number, sid)), tx.one(OPERATION, (number, sid))
    if row is not None and (operation is None or _made_checkpoint(checkpoints.checked(row), digest)):
        return Made("checkpoint", row[2])
    return None if operation is None else Made("operation", operation[0])


def _made_checkpoint(row: checkpoints.CheckpointRow, digest: int) -> bool:
    name = None if row.name == row.id else row.name
    return _fits(["checkpoint", {"name": name, "description": row.description, "type": row.type}], digest)


# ---------------------------------------------------------------------- of the store


def _of_store(tx: Tx, scope: str, number: int, digest: int) -> Made | None:
    """Try what has that number; where only one thing has it, there is nothing to choose."""
    session, agent = tx.one(sessions.BY_NUMBER, (number,)), tx.one(agents.BY_NUMBER, (number,))
    versioned = [agents.checked(row) for row in tx.all(VERSIONED, (scope, number, _TRIES))]
    choices: list[tuple[Made, Iterator[Any]]] = []
    if session is not None and session[1] == scope:
        row = sessions.checked(session)
        choices.append((Made("session", row.id), _session_requests(tx, row)))
    if agent is not None and agent[1] == scope:
        found = agents.checked(agent)
        choices.append((_made_agent(tx, found), _agent_requests(tx, found)))
    if versioned:
        asked = (_state_request(tx, each, number) for each in versioned)
        choices.append((Made("version", str(number)), asked))
    if len(choices) == 1:
        return choices[0][0]
    return next((made for made, requests in choices if any(_fits(each, digest) for each in requests)), None)


def _made_agent(tx: Tx, agent: AgentRow) -> Made:
    return Made("agent", agent.id, agent.created_ms, base.ordinal(tx, agent))


def _session_requests(tx: Tx, row: SessionRow) -> Iterator[Any]:
    """Give what may have been asked for when a session was made: its fields as they were at first."""
    if row.hidden == base.HIDDEN:
        return
    detail = sessions.decoded(sessions.detail(tx, row))
    metadata = _first(tx, row, "metadata", ("metadata", "metadata"), detail.get("metadata"))
    detail = {
        **{name: value for name, value in detail.items() if name not in ("metadata", "ended", *sessions.UNDER_WAY)},
        "run_id": None,
    }
    if metadata:
        detail["metadata"] = metadata
    name = _first(tx, row, "name", ("delete", "restore"), row.name)
    tags = sessions.unpack_tags(_first(tx, row, "tags", ("tag", "untag"), row.tags))
    titles = dict.fromkeys((_first(tx, row, "title", ("rename", "delete"), row.title), None))
    for title in titles:
        made = (row.agent, row.kind, name, row.label, row.workspace, detail.get("parent_id"), title, tags, None)
        yield [list(made), detail]


def _first(tx: Tx, row: SessionRow, thing: str, kinds: tuple[str, str], now: Any) -> Any:
    """Give what something of a session was before the first operation that changed it."""
    found = tx.one(FIRST, (row.scope, row.sid, 0, *kinds))
    return now if found is None else codec.decode(found[0]).get(thing, now)


def _agent_requests(tx: Tx, agent: AgentRow) -> Iterator[Any]:
    """Give what may have been asked for when an agent was made or its fields changed."""
    views = [
        (codec.decode(before)["fields"], codec.decode(after)["fields"])
        for before, after in tx.all(UPDATES, (agent.scope, agent.aid, _TRIES))
    ]
    yield ["agent", agent.id, views[0][0] if views else codec.decode(agent.fields)]
    for before, after in views:
        same = [name for name in after if before.get(name) == after[name]]
        for count in range(len(same) + 1):
            for also in itertools.combinations(same, count):
                changed = {name: value for name, value in after.items() if name not in same or name in also}
                yield ["update", agent.id, changed]


def _state_request(tx: Tx, agent: AgentRow, version: int) -> Any:
    """Give what must have been asked for to get from one version of a state to the next."""
    after = agents.state_at(tx, agent, version)
    before = agents.state_at(tx, agent, version - 1) if version > 1 else {}
    put = {key: value for key, value in after.items() if key not in before or before[key] != value}
    return ["state", agent.id, put, sorted(before.keys() - after.keys())]
