"""A session as a dict would keep it: every branch a full copy of its path.

Wasteful and obviously right, which is the point: the store must agree with it after any sequence of
appends, forks, switches, rewinds, undos and redos.
"""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """Where the model's head is."""

    branch: str
    seq: int
    attached: bool


class Step(NamedTuple):
    """An entry of a path: the branch that owns it, and what it says."""

    owner: str
    text: str


class Done:
    """An operation of the model, as the operations log would keep it."""

    def __init__(self, kind: str, before: Place, undoes: Done | None = None) -> None:
        self.kind = kind
        self.before = before
        self.undoes = undoes
        self.undone = False


class NothingToDo(Exception):
    """There is nothing to undo or redo."""


class ModelSession:
    """The behaviour of one session, in memory."""

    def __init__(self) -> None:
        self.paths: dict[str, list[Step]] = {"main": []}
        self.forks: dict[str, int] = {"main": 0}
        self.head = Place("main", 0, True)
        self.log: list[Done] = []
        self.revision = 0

    def texts(self) -> list[str]:
        """What the path of the head says."""
        return [step.text for step in self.paths[self.head.branch][: self.head.seq]]

    def append(self, *texts: str) -> None:
        """Add entries; a detached head opens a branch first."""
        if not self.head.attached:
            name = self._free_name(self.head.branch)
            self._open(name, self.head.seq)
            self.head = Place(name, self.head.seq, True)
        path = self.paths[self.head.branch]
        path += [Step(self.head.branch, text) for text in texts]
        self.head = Place(self.head.branch, len(path), True)
        self.revision += 1

    def fork(self, at: int, name: str | None) -> str:
        """Open a branch at a point of the path; the head stays."""
        name = name or self._free_name(self.head.branch)
        self._open(name, at)
        self.revision += 1
        return name

    def rewind(self, to: int) -> None:
        """Move the head back along its path."""
        if to == self.head.seq:
            target = self.head
        elif to == 0:
            target = Place(self.head.branch, 0, False)
        else:
            target = Place(self.paths[self.head.branch][to - 1].owner, to, False)
        self._do("rewind", target)

    def switch(self, name: str) -> None:
        """Move the head to the tip of a branch."""
        self._do("switch", Place(name, len(self.paths[name]), True))

    def undo(self) -> None:
        """Take back the newest operation that stands."""
        standing = [done for done in self.log if done.kind not in ("undo", "redo") and not done.undone]
        if not standing:
            raise NothingToDo
        self._do("undo", standing[-1].before, undoes=standing[-1])
        standing[-1].undone = True

    def redo(self) -> None:
        """Bring back what the last undo took back, unless an operation came after it."""
        undos = [at for at, done in enumerate(self.log) if done.kind == "undo" and not done.undone]
        if not undos or any(done.kind not in ("undo", "redo") for done in self.log[undos[-1] :]):
            raise NothingToDo
        last = self.log[undos[-1]]
        assert last.undoes is not None
        self._do("redo", last.before, undoes=last)
        last.undone, last.undoes.undone = True, False

    def _do(self, kind: str, target: Place, undoes: Done | None = None) -> None:
        self.log.append(Done(kind, self.head, undoes))
        seq = len(self.paths[target.branch]) if target.attached else target.seq
        self.head = Place(target.branch, seq, target.attached)
        self.revision += 1

    def _open(self, name: str, at: int) -> None:
        self.paths[name] = self.paths[self.head.branch][:at]
        self.forks[name] = at

    def _free_name(self, base: str) -> str:
        stem, dash, number = base.rpartition("-")
        stem = stem if dash and number.isdigit() else base
        count = len(self.paths) + 1
        while f"{stem}-{count}" in self.paths:
            count += 1
        return f"{stem}-{count}"
