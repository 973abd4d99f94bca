"""Who changed a path, in words: the tools of a session's own calls, or the names of other sessions."""

from __future__ import annotations

from ..files.authors import OUTSIDE, RESTORE, UNCLEAR, Author
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
        """Describe who changed a path; empty if that is not known here."""
        if self._moment is None:
            return ""
        if author.kind == UNCLEAR:
            return self.candidates(author)
        if author.kind == RESTORE:
            own = self._session is not None and {sid for sid, _ in author.who} == {self._session.sid}
            return "an earlier rewind" if own else f"a rewind{f' of {self._all(author, 0)}' if author.who else ''}"
        return "someone outside" if author.kind == OUTSIDE else self._all(author, turn)

    def _all(self, author: Author, turn: int) -> str:
        return " and ".join(self._one(sid, ids, turn) for sid, ids in author.who)

    def candidates(self, author: Author) -> str:
        """Describe who may have changed a path."""
        return " or ".join([*(self._one(sid, ids, 0) for sid, ids in author.who), "someone else"])

    def ids(self, author: Author) -> str:
        """Return the id of the session that changed a path."""
        return self.id_of(author.who[0][0]) or ""

    def all_ids(self, author: Author) -> tuple[str, ...]:
        """Return the ids of the sessions that changed a path, or may have."""
        return tuple(found for sid, _ in author.who if (found := self.id_of(sid)) is not None)

    def id_of(self, sid: int) -> str | None:
        """Return the id of a session by its number; None if it was purged."""
        row = self._row(sid)
        return None if row is None else row.id

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
