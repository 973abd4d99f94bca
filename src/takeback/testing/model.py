"""A session kept in plain dicts: every branch is a full copy of its path.

It is wasteful and obviously correct, which is the point: the store must agree with it after any sequence of appends,
forks, switches, rewinds, renames, deletes, restores, undos and redos. An operation records what it changes as it was
before, and undo restores exactly that.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Place(NamedTuple):
    """Where the model's head is."""

    branch: str
    seq: int
    attached: bool


class Step(NamedTuple):
    """An entry of a path: the branch that owns it, its text, and the plan after it."""

    owner: str
    text: str
    plan: str | None = None


class Done:
    """An operation of the model, as the operations log would record it."""

    def __init__(self, kind: str, before: dict[str, Any], undoes: Done | None = None) -> None:
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
        self.hidden_branches = set[str]()
        self.head = Place("main", 0, True)
        self.title: str | None = None
        self.deleted = False
        self.log: list[Done] = []
        self.revision = 0

    # ------------------------------------------------------------------ reading

    def path(self) -> list[Step]:
        """Return the entries of the head's path."""
        return self.paths[self.head.branch][: self.head.seq]

    def texts(self) -> list[str]:
        """Return the texts of the messages on the path."""
        return [step.text for step in self.path() if step.text != "\0plan"]

    def plan(self) -> str | None:
        """Return the plan at the head."""
        path = self.path()
        return path[-1].plan if path else None

    def branches(self) -> dict[str, tuple[int, int, bool]]:
        """Return the branches that a listing shows: where each starts and ends, and whether the head is on it."""
        return {
            name: (self.forks[name], len(path), name == self.head.branch)
            for name, path in self.paths.items()
            if name not in self.hidden_branches or name == self.head.branch
        }

    # ------------------------------------------------------------------ adding

    def append(self, *texts: str) -> None:
        """Add messages; the first one ever becomes the title."""
        if self.title is None:
            self.title = _title(texts)
        self._add([(text, self.plan()) for text in texts])

    def set_plan(self, plan: str) -> None:
        """Set the plan, which is an entry too."""
        self._add([("\0plan", plan)])

    def _add(self, steps: list[tuple[str, str | None]]) -> None:
        if not self.head.attached:
            name = self._free_name(self.head.branch)
            self._open(name, self.head.seq)
            self.head = Place(name, self.head.seq, True)
        path = self.paths[self.head.branch]
        path += [Step(self.head.branch, text, plan) for text, plan in steps]
        self.head = Place(self.head.branch, len(path), True)
        self.revision += 1

    # ------------------------------------------------------------------ operations

    def fork(self, at: int, name: str | None) -> str:
        """Open a branch at a point of the path; the head stays."""
        name = name or self._free_name(self.head.branch)
        self._open(name, at)
        self.hidden_branches.add(name)
        self._do("fork", {f"branch {name}": False})
        return name

    def rewind(self, to: int) -> None:
        """Move the head back along its path."""
        if to == self.head.seq:
            target = self.head
        elif to == 0:
            target = Place(self.head.branch, 0, False)
        else:
            target = Place(self.paths[self.head.branch][to - 1].owner, to, False)
        self._do("rewind", {"head": target})

    def pop(self) -> str | None:
        """Take the last message off the path, with what came after it."""
        places = [at for at, step in enumerate(self.path()) if step.text != "\0plan"]
        if not places:
            return None
        text = self.path()[places[-1]].text
        self.rewind(places[-1])
        return text

    def switch(self, name: str) -> None:
        """Move the head to the tip of a branch."""
        self._do("switch", {"head": Place(name, len(self.paths[name]), True)})

    def rename(self, title: str) -> None:
        """Change the title."""
        self._do("rename", {"title": title})

    def delete(self, deleted: bool) -> None:
        """Move the session to the trash or out of it."""
        if self.deleted != deleted:
            self._do("delete", {"deleted": deleted})

    def undo(self) -> None:
        """Undo the newest operation that is not undone."""
        standing = [done for done in self.log if done.kind not in ("undo", "redo") and not done.undone]
        if not standing:
            raise NothingToDo
        self._do("undo", standing[-1].before, undoes=standing[-1])
        standing[-1].undone = True

    def redo(self) -> None:
        """Redo the last undo, unless an operation came after it."""
        undos = [at for at, done in enumerate(self.log) if done.kind == "undo" and not done.undone]
        if not undos or any(done.kind not in ("undo", "redo") for done in self.log[undos[-1] :]):
            raise NothingToDo
        last = self.log[undos[-1]]
        assert last.undoes is not None
        self._do("redo", last.before, undoes=last)
        last.undone, last.undoes.undone = True, False

    # ------------------------------------------------------------------ how it is done

    def _do(self, kind: str, after: dict[str, Any], undoes: Done | None = None) -> None:
        if undoes is None and all(self._thing(thing) == value for thing, value in after.items()):
            return  # nothing changes
        self.log.append(Done(kind, {thing: self._thing(thing) for thing in after}, undoes))
        for thing, value in after.items():
            self._put(thing, value)

    def _thing(self, thing: str) -> Any:
        if thing.startswith("branch "):
            return thing.removeprefix("branch ") in self.hidden_branches
        return getattr(self, thing)

    def _put(self, thing: str, value: Any) -> None:
        if thing == "head":
            seq = len(self.paths[value.branch]) if value.attached else value.seq
            self.head = Place(value.branch, seq, value.attached)
            self.revision += 1
        elif thing.startswith("branch "):
            name = thing.removeprefix("branch ")
            (self.hidden_branches.add if value else self.hidden_branches.discard)(name)
        else:
            setattr(self, thing, value)

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


def _title(texts: tuple[str, ...]) -> str | None:
    """Return the title made from the first of these messages, whatever it says."""
    line = " ".join(texts[0].replace("\0", " ").split())
    return line or None
