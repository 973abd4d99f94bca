"""agno: SqliteDb keeps a row per session and a row per run, in two commits.

A run of its agents is a whole turn; here it is one message, because one message must be safe when the call returns.
Its agents also read the session before a run; only the writing is measured.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, time
from typing import Any

os.environ["AGNO_TELEMETRY"] = "false"

from . import is_installed

if is_installed("agno"):
    from agno.db.sqlite import SqliteDb
    from agno.db.utils import build_single_run_row
    from agno.models.message import Message as AgnoMessage
    from agno.run.agent import RunOutput
    from agno.session import AgentSession
    from sqlalchemy import insert

from ..messages import Message
from ..stores import Arm

AGENT, USER = "agent", "user"


class Agno(Arm):
    """SqliteDb of agno, one run per message."""

    name = "agno SqliteDb"
    needs = "agno"
    slow = True

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._sessions: dict[str, AgentSession] = {}
        self._counts: dict[str, int] = {}

    def open(self) -> None:
        self.db = SqliteDb(db_file=str(self.path))

    def close(self) -> None:
        self.db.close()

    def use(self, session: str) -> None:
        if session not in self._sessions:
            self._sessions[session] = as_session(session)
            self._counts[session] = 0
            self.db.upsert_session(self._sessions[session])
        self._session = self._sessions[session]

    def prepare(self, messages: Sequence[Message]) -> list[Any]:
        return [as_run([message]) for message in messages]

    def append(self, prepared: Sequence[Any]) -> list[float]:
        times = []
        for run in prepared:
            started = perf_counter()
            self.db.upsert_session(self._session)
            self.db.upsert_run(run, self._session.session_id, user_id=USER, run_index=self._next())
            times.append(perf_counter() - started)
        return times

    def fill(self, prepared: Sequence[Any]) -> None:
        self.insert_runs([(run, self._session.session_id, self._next()) for run in prepared])

    def insert_runs(self, runs: Sequence[tuple[RunOutput, str, int]]) -> None:
        """Insert the rows that ``upsert_run`` would, in one commit."""
        table: Any = self.db._get_table(table_type="runs", create_table_if_not_found=True)
        rows = [build_single_run_row(run, session_id=name, user_id=USER, run_index=index) for run, name, index in runs]
        with self.db.Session() as session, session.begin():
            session.execute(insert(table), rows)

    def read(self, last: int | None) -> tuple[float, int]:
        started = perf_counter()
        found: Any = self.db.get_session(self._session.session_id, runs_limit=last)
        return perf_counter() - started, len(found.runs)

    def _next(self) -> int:
        number = self._counts[self._session.session_id]
        self._counts[self._session.session_id] = number + 1
        return number


def as_session(name: str, *, updated_at: int | None = None) -> AgentSession:
    """Make a session as an agent of agno has it."""
    now = int(time())
    data = {"session_name": name}
    return AgentSession(
        session_id=name, agent_id=AGENT, user_id=USER, session_data=data, created_at=now, updated_at=updated_at or now
    )


def as_run(messages: Sequence[Message]) -> RunOutput:
    """Turn messages into a run."""
    return RunOutput(run_id=uuid.uuid4().hex, agent_id=AGENT, messages=[_as_agno(message) for message in messages])


def _as_agno(message: Message) -> AgnoMessage:
    parts = message["content"]
    if message["role"] == "tool":
        return AgnoMessage(role="tool", content=parts[0]["content"], tool_call_id=parts[0]["tool_use_id"])
    calls = [_call(part) for part in parts if part["type"] == "tool_use"]
    return AgnoMessage(role=message["role"], content=parts[0]["text"], tool_calls=calls or None)


def _call(part: Message) -> dict[str, Any]:
    return {
        "id": part["id"],
        "type": "function",
        "function": {"name": part["name"], "arguments": json.dumps(part["input"])},
    }
