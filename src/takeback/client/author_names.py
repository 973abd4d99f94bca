"""Who changed a path, in words: the tools of a session's own calls, or the names of other sessions."""

from __future__ import annotations

from ..files.authors import Author
from ..ops import calls, sessions
from ..ops.sessions import SessionRow
from ..storage.runner import Moment


class AuthorNames:
    """The names of the tools whose calls changed files, each looked up once."""

    def __init__(self, moment: Moment | None, scope: str, session: SessionRow | None) -> None:
        self._moment, self._scope, self._session = moment, scope, session
        self._known: dict[tuple[int, str], str | None] = {}
        self._rows: dict[int, SessionRow | None] = {}

    def said(self, author: Author, turn: int) -> str:
        """Describe who changed a path."""
        if self._moment is None or not author.who:
            return ""
        return " and ".join(self._one(sid, ids, turn) for sid, ids in author.who)

    def candidates(self, author: Author) -> str:
        """Describe who may have changed a path."""
        return " or ".join([*(self._one(sid, ids, 0) for sid, ids in author.who), "someone else"])

    def ids(self, author: Author) -> str:
        """Return the id of the session that changed a path."""
        row = self._row(author.who[0][0])
        return "" if row is None else row.id

    def _one(self, sid: int, call_ids: tuple[str, ...], turn: int) -> str:
        row = self._row(sid)
        if row is None:
            return "a purged session"
        tools = ", ".join(dict.fromkeys(self._tool(row, call_id) for call_id in call_ids[:3]))
        if self._session is not None and sid == self._session.sid:
            return f"{tools or 'the agent'}{f' in turn {turn}' if turn else ''}"
        return f"{f'{tools} of ' if tools else ''}session {row.name or row.title or row.id!r}"

    def _row(self, sid: int) -> SessionRow | None:
        if self._session is not None and sid == self._session.sid:
            return self._session
        if sid not in self._rows and self._moment is not None:
            self._rows[sid] = self._moment.read(sessions.find_number, self._scope, sid)
        return self._rows.get(sid)

    def _tool(self, row: SessionRow, call_id: str) -> str:
        key = row.sid, call_id
        if key not in self._known and self._moment is not None:
            self._known[key] = self._moment.read(calls.name_of, row, call_id)
        return self._known.get(key) or "a tool"
