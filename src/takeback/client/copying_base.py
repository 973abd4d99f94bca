"""The two stores of a copy: reading one, writing the other, counting, and telling how far it is."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from ..clock import Clock
from ..errors import Conflict, Corrupt
from ..model import words
from ..model.copied import Amounts, Copied, Copying
from ..ops.transfer import base
from ..storage.base import Backend, Op

T = TypeVar("T")
Progress: TypeAlias = Callable[[Copying], Any]

_PAUSE = 0.1  # between two calls of progress
_REPAIR = "Repair the source first (Store.repair) and copy what that makes"


class Stores:
    """A source and a destination, all scopes of them, and what was done so far."""

    def __init__(self, source: Backend, target: Backend, clock: Clock, progress: Progress | None) -> None:
        self._from = source
        self._to = target
        self._progress = progress
        self._phase, self._told_at, self._started = "", 0.0, time.monotonic()
        self._total, self._now, self._there = Counter[str](), Counter[str](), Counter[str]()
        self._conflicts: list[Conflict] = []
        self.clock = clock
        self.left_out: list[str] = []
        self.fetch: Callable[[str, str], None] = lambda scope, content_hash: None

    def read(self, op: Op[T]) -> T:
        """Look into the source; damage says what to do about it."""
        try:
            return self._from.read(op)
        except Corrupt as error:
            raise Corrupt(f"the source is damaged: {error}. {_REPAIR}", what=error.what) from error

    def look(self, op: Op[T]) -> T:
        """Look into the destination."""
        return self._to.read(op)

    def write(self, scope: str, op: Op[T], alone: bool = False) -> T:
        """Write into the destination; content that turns out to be needed first is copied first."""
        backend = self._to.scoped(scope)
        while True:
            try:
                return backend.write(op, alone=alone)
            except base.Needs as needs:
                for content_hash in needs.hashes:
                    self.fetch(needs.scope, content_hash)

    # ------------------------------------------------------------------ telling

    def count(self, *, already: bool = False, **amounts: int) -> None:
        """Count what was written, or found to be there."""
        (self._there if already else self._now).update(amounts)
        self.tell()

    def tell(self, phase: str | None = None, *, now: bool = False) -> None:
        """Call back, not too often: ``now`` if a phase begins."""
        self._phase = phase or self._phase
        clock = time.monotonic()
        if self._progress is None or not (now or clock - self._told_at > _PAUSE):
            return
        self._told_at = clock
        done = {name: min(self._now[name] + self._there[name], total) for name, total in self._total.items()}
        totals = {f"{name}_total": total for name, total in self._total.items()}
        self._progress(Copying(self._phase, **done, **totals))

    def _conflict(self) -> Conflict:
        first, *others = self._conflicts
        names = ", ".join(str(each.found) for each in others[:10])
        more = f" (and {words.count(len(others), 'conflict')} more: {names})" if others else ""
        return Conflict(f"{first}{more}", expected=first.expected, found=first.found)

    def attempt(self, step: Callable[[], None]) -> None:
        """Do something that others do not depend on; a conflict is kept for the end."""
        try:
            step()
        except Conflict as error:
            self._conflicts.append(error)

    def attempt_or_leave(self, step: Callable[[], None]) -> None:
        """Do something that others do not depend on; a conflict is told in ``left_out``, and is no error."""
        try:
            step()
        except Conflict as error:
            self.left_out.append(str(error).removesuffix(f". {base.AGAIN}"))

    def expect(self, **totals: int) -> None:
        """Note how much there is to be done."""
        self._total.update(totals)

    def result(self) -> Copied:
        """Say what was done; what was in conflict is raised now."""
        if self._conflicts:
            raise self._conflict()
        seconds = time.monotonic() - self._started
        return Copied(**self._now, already=Amounts(**self._there), seconds=seconds, left_out=tuple(self.left_out))

    def leave_keys(self, count: int, whose: str) -> None:
        """Say that idempotency keys were left out, if any were."""
        if count:
            said = words.count(count, "idempotency key")
            self.left_out.append(f"{said} of {whose}: what they stand for is not there")
