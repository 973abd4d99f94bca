"""History: branches and checkpoints as a graph and as a list, sub-agents as a tree, operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from ...client.session import Session
from ...model import words
from ...model.branch import Branch
from ...model.checkpoint import Checkpoint
from ...model.operation import Operation
from ...model.session import show_duration
from ...model.subagents import Tree
from ...shell import documents, times
from ..consent import tell
from ..frame import Frame, option, ref_argument, verb
from ..output import Cell, line

# ---------------------------------------------------------------------- checkpoints


@verb("checkpoints")
@ref_argument("ref", required=False)
def checkpoints(frame: Frame, ref: str | None) -> None:
    """List the checkpoints of a session, oldest first."""
    session = frame.session(ref)
    made, name = session.checkpoints(), frame.short(session.id)
    columns = ("<POINT", "<AGE", ">TURN", "<TYPE", "<FILES", "<DESCRIPTION?")
    rows = (
        [
            Cell(_point_name(name, each), "cyan"),
            times.age(each.created_at),
            str(each.stats.turns),
            each.type,
            "yes" if each.tree else "no",
            each.description or "",
        ]
        for each in made
    )
    frame.out.items(
        "checkpoints",
        map(documents.checkpoint, made),
        lambda: frame.out.table(columns, rows) if made else (),
        about={"session_id": session.id},
    )
    if not made and frame.out.for_people:
        tell(f"{name} has no checkpoints. Make one: takeback checkpoint NAME -s {name}")


def _point_name(session: str, each: Checkpoint) -> str:
    return f"{session}:{each.name}"


# ---------------------------------------------------------------------- the graph


class _Event(NamedTuple):
    """Something at one entry of a branch."""

    seq: int
    order: int
    what: Branch | Checkpoint | str


@verb("log")
@ref_argument("ref", required=False)
def log(frame: Frame, ref: str | None) -> None:
    """Show the branches of a session with their checkpoints as a graph."""
    session = frame.session(ref)
    branches, made = session.branches(), session.checkpoints()
    frame.out.items(
        "branches",
        map(documents.branch, branches),
        lambda: _Graph(frame, session, branches, made).lines(),
        about={
            "session_id": session.id,
            "head": session.head._asdict(),
            "checkpoints": [documents.checkpoint(each) for each in made],
        },
        long=True,
    )


class _Graph:
    """Draws branches as a tree, each with its checkpoints and forks in order."""

    def __init__(self, frame: Frame, session: Session, branches: list[Branch], made: Sequence[Checkpoint]) -> None:
        self._frame, self._out, self._session = frame, frame.out, session
        self._branches, self._made = branches, made
        known = {each.name for each in branches}
        self._roots = [each for each in branches if each.parent not in known]

    def lines(self) -> Iterator[str]:
        name = line(self._session.title or self._session.name or "untitled")
        yield f"{self._out.paint(self._frame.short(self._session.id), 'cyan')} {self._out.paint(name, 'bold')}"
        for root in self._roots:
            yield self._branch_line(root)
            yield from self._below(root, "")

    def _below(self, branch: Branch, indent: str) -> Iterator[str]:
        events = sorted(self._events(branch), key=lambda event: event[:2])
        for number, event in enumerate(events):
            last = number == len(events) - 1
            edge = indent + ("└─ " if last else "├─ ")
            if isinstance(event.what, Branch):
                yield edge + self._branch_line(event.what)
                yield from self._below(event.what, indent + ("   " if last else "│  "))
            else:
                yield edge + (event.what if isinstance(event.what, str) else self._checkpoint_line(event.what))

    def _events(self, branch: Branch) -> Iterator[_Event]:
        yield from (_Event(each.head.seq, 0, each) for each in self._made if each.head.branch == branch.id)
        yield from (_Event(each.fork_seq, 2, each) for each in self._branches if self._leaves(each, branch))
        head = self._session.head
        if branch.is_head:
            where = f"turn {self._session.turn_count}, entry {head.seq}"
            detached = "" if head.attached else "; the next message starts a branch"
            yield _Event(head.seq, 1, self._out.paint(f"● you are here, {where}{detached}", "green"))

    def _leaves(self, each: Branch, branch: Branch) -> bool:
        return each.parent == branch.name and each.id != branch.id

    def _branch_line(self, each: Branch) -> str:
        origin = f" from entry {each.fork_seq}" if each.parent is not None else ""
        count = words.count(each.head_seq - each.fork_seq, "entry")
        return f"{self._out.paint(line(each.name), 'bold')}{origin}, {count}, {times.ago(each.created_at)}"

    def _checkpoint_line(self, each: Checkpoint) -> str:
        about = f": {line(each.description)}" if each.description else ""
        name = self._out.paint(line(each.name), "yellow")
        return f"◆ {name} turn {each.stats.turns}, {each.type}, {times.ago(each.created_at)}{about}"


# ---------------------------------------------------------------------- sub-agents


@verb("tree")
@ref_argument("ref", required=False)
def tree(frame: Frame, ref: str | None) -> None:
    """Show a session's sub-agents with status, tokens and run time."""
    found = frame.session(ref).tree()
    frame.out.one("tree", documents.tree(found), lambda: _tree_lines(frame, found, "", ""))


def _tree_lines(frame: Frame, found: Tree, edge: str, indent: str) -> Iterator[str]:
    name = line(found.label or found.title or found.name or "untitled")
    tokens = words.short_number(found.totals.estimated_tokens)
    state = frame.out.paint(found.status, "yellow" if found.status in ("error", "interrupted", "timeout") else "")
    about = f"{line(found.agent_id)}, {state}, {tokens} tokens, {show_duration(found.seconds)}"
    yield f"{edge}{frame.out.paint(frame.short(found.id), 'cyan')} {name}  ({about})"
    for number, child in enumerate(found.children):
        last = number == len(found.children) - 1
        yield from _tree_lines(frame, child, indent + ("└─ " if last else "├─ "), indent + ("   " if last else "│  "))


# ---------------------------------------------------------------------- operations


@verb("ops")
@option("--all", "everywhere", is_flag=True, help="In all workspaces.")
@option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Show at most this many.")
def ops(frame: Frame, everywhere: bool, limit: int) -> None:
    """List the operations on sessions and files of this workspace, newest first; undo takes one back."""
    found = [*_first(here(frame, everywhere), limit)]
    frame.out.items(
        "operations",
        map(documents.operation, found),
        lambda: _operation_lines(frame, found) if found else (),
        about={"workspace": None if everywhere else frame.workspace},
    )
    if not found and frame.out.for_people:
        tell("No operations" + ("" if everywhere else " in this workspace. In all workspaces: takeback ops --all"))


def here(frame: Frame, everywhere: bool) -> Iterator[Operation]:
    """Yield the operations of the workspace, or all of them, newest first."""
    cursor = None
    if not everywhere and frame.workspace is None:
        return
    while True:
        page = frame.store.operations(limit=200, cursor=cursor)
        yield from (each for each in page if everywhere or _is_here(frame, each))
        cursor = page.cursor
        if cursor is None:
            return


def _is_here(frame: Frame, operation: Operation) -> bool:
    """Whether an operation is one of the workspace: on a session that belongs to it, or on its files alone."""
    if operation.session_id is not None:
        return frame.belongs_here(operation.session_id)
    return operation.workspace is not None and operation.workspace == frame.workspace


def _first(found: Iterator[Operation], limit: int) -> Iterator[Operation]:
    for number, each in enumerate(found, 1):
        yield each
        if number == limit:
            return


def _operation_lines(frame: Frame, found: list[Operation]) -> Iterator[str]:
    length = _telling([each.id for each in found])
    columns = ("<OP", "<AGE", "<KIND", "<SESSION", "<WHAT", "<?")
    rows = (
        [
            Cell(each.id[:length], "cyan"),
            times.age(each.created_at),
            each.kind,
            "-" if each.session_id is None else frame.short(each.session_id),
            each.summary,
            "undone" if each.undone else "",
        ]
        for each in found
    )
    return frame.out.table(columns, rows)


def _telling(ids: list[str]) -> int:
    """Return how many characters are needed to tell the ids apart."""
    return next((length for length in range(7, 25) if len({each[:length] for each in ids}) == len(ids)), 25)


COMMANDS = {"checkpoints": checkpoints, "log": log, "tree": tree, "ops": ops}
