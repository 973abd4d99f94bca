"""A rewind that was looked at before it is done: the preview holds what will leave, and is checked when applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model import html, words
from ..model.entry import Numbers
from ..model.operation import Operation
from ..model.session import Stats
from ..ops import moves, operations
from ..ops.sessions import SessionRow
from ..storage.base import Tx
from .handle import Point, place_of

if TYPE_CHECKING:
    from .moving import Moving


class Rewind:
    """What going back to ``target`` does: how many turns leave, and with which prompt the first of them begins."""

    target: Point
    to_seq: int
    from_seq: int
    turns: int
    messages: int
    is_empty: bool
    stats: Stats
    prompt: str | None
    files: tuple[Any, ...] = ()
    kept: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    not_captured: tuple[str, ...] = ()

    def __init__(self, session: Moving, target: Point) -> None:
        self._session = session
        self.target = target
        find = place_of(target)

        def look(tx: Tx) -> tuple[SessionRow, bool, int, Numbers, Numbers]:
            row = session._row(tx)
            place = find(tx, row)
            point, _ = moves.point_of(tx, row, place)
            parting = moves.common_point(tx, row, place)
            same = moves.target(tx, row, place) == operations.head_view(row) or parting.seq == point.seq == row.seq
            numbers = Numbers._make(point.numbers), Numbers._make(parting.numbers)
            return row, same, parting.seq, *numbers

        row, self.is_empty, self._parting, there, shared = session._store._read(look)
        self._revision = row.revision
        self.to_seq = session._store._read(lambda tx: find(tx, row)).seq
        self.from_seq = row.seq
        self.turns = max(0, row.turns - shared.turns)
        self.messages = max(0, row.messages - shared.messages)
        self._back = max(0, there.messages - shared.messages)
        self._work = row.work_seq != there.work_seq
        self.stats = Stats.from_numbers(there, started_ms=row.created_ms)
        self.prompt = self._first_prompt() if self.turns else None

    def _first_prompt(self) -> str | None:
        reader: Any = self._session
        for message in reader.iter_messages(after=self._parting, tools=False):
            if message.role == "user":
                return str(message.text)
        return None

    def apply(self) -> Operation:
        """Do it. If the session has changed since the preview it is ``Conflict`` and nothing is touched."""
        return self._session._rewind(self.target, self._revision, None)

    def __str__(self) -> str:
        if self.is_empty:
            return f"Already at entry {self.to_seq}: nothing leaves."
        first = "" if self.prompt is None else f", from {self.prompt[:60]!r} on"
        gone = f"{words.count(self.messages, 'message')} in {words.count(self.turns, 'turn')}"
        lines = [
            f"Rewind from entry {self.from_seq} to the end of entry {self.to_seq}",
            f"  conversation  {gone} off the path{first}; kept on the branch",
        ]
        if self._back:
            lines.append(f"  back          {words.count(self._back, 'message')} of another branch")
        return "\n".join([*lines, "  work          tasks, plan, notes and state go back too"] if self._work else lines)

    def _repr_html_(self) -> str:
        return html.fields(repr(self), {"turns": self.turns, "prompt": self.prompt, "to": self.to_seq})

    def __repr__(self) -> str:
        return f"<Rewind to entry {self.to_seq}, {words.count(self.turns, 'turn')} off the path>"
