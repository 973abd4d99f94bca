"""Files through time: what was at a path, what differs between two points, what an announced file was.

An announced file is kept as it was when first announced; that copy counts until it is forgotten or a checkpoint starts
over. It is an entry, so it survives a crash and goes back with a rewind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import Invalid, NotFound, Unsupported
from ..files import changes, contents, history, snapshots, states, workspaces
from ..files.disk import apply, preview
from ..model import comparison, names, tree
from ..model import files as file_values
from ..model.entry import Numbers
from ..model.message import Message
from ..model.session import Head, Stats
from ..model.work import FileTouched
from ..ops import entries, work
from ..ops.sessions import SessionRow
from ..storage import notices
from ..tables.entries import EntryRow
from . import points
from .reading import Reading, make_messages
from .running import Running

if TYPE_CHECKING:
    from ..files.journal import JournalRow
    from ..files.workspaces import CapturedDirectory, Trees
    from ..model.comparison import Comparison, Side
    from ..model.files import Diff, FileDiff, FileState
    from .points import Point

T = TypeVar("T")
_ACTIONS = {"create": "created", "overwrite": "written", "delete": "deleted", "chmod": "mode", "link": "linked"}


class Files(Running, Reading):
    """The part of a session that knows its files through time."""

    # ------------------------------------------------------------------ points

    def file_at(self, path: str | PathLike[str], point: Point) -> bytes:
        """Return the content of a file as it was at a point.

        Raises ``NotFound`` if it was absent, ``Unsupported`` if it was not captured, ``Invalid`` if it was not a file.
        """
        name, trees, root = self._path_then(path), workspaces.Trees(self._store._runner), self._snapshot_at(point)
        node = tree.find(trees.load, trees.root(root.body["root"]).tree, name)
        if node is None or node.kind == tree.ABSENT:
            raise NotFound(f"there was no {os.fsdecode(name)!r} at that point")
        if node.kind == tree.GAP:
            raise Unsupported(
                f"{os.fsdecode(name)!r} was not captured at that point: {node.content.decode('utf-8', 'replace')}",
                capability="capture",
            )
        if node.kind != tree.FILE:
            what = f"a link to {os.fsdecode(node.content)!r}" if node.kind == tree.LINK else "a directory"
            raise Invalid(f"{os.fsdecode(name)!r} was {what} at that point")
        return b"".join(trees.content(node.content))

    def _snapshot_at(self, point: Point) -> work.WorkEntry:
        found = self._ask(history.snapshot_at, points.target_of(point))
        if found is None:
            raise NotFound("the files of this session were never captured; give it a workspace, or take a checkpoint")
        return found

    def _files_at(self, point: Point | None) -> tuple[Trees, bytes]:
        """Return the tree at a point; by default at the head, after recording what is in the workspace now."""
        if point is None and self._place() is not None:
            self._scan_by_hand()
        trees = workspaces.Trees(self._store._runner)
        found = self._snapshot_at(self._seen.seq if point is None else point)
        return trees, trees.root(found.body["root"]).tree

    def diff(self, a: Point, b: Point | None = None) -> Diff:
        """Compare files and messages at two points; without a second one, with the head and the workspace now."""
        trees = workspaces.Trees(self._store._runner)
        place = self._place()
        files = tuple(self._file_differences(trees, place, a, b)) if self._captured() else ()
        left, right = self._ask(history.rows_between, points.target_of(a), points.optional_target(b))
        return file_values.Diff(files, self._lines(*left), self._lines(*right))

    def compare(self, a: Point, b: Point | None = None) -> Comparison:
        """Compare the paths to two points from where they part; without a second one, with the head.

        Branches are points too: ``compare(one, other)`` shows what each of them did, cost and left behind.
        """
        first, second, parting = self._ask(history.parted, points.target_of(a), points.optional_target(b))
        left, right = (self._side(each, parting) for each in (first, second))
        ends = tuple(Head(each.uid, each.seq, False) for each in (first, second))
        files = self._file_differences(workspaces.Trees(self._store._runner), None, *ends) if self._captured() else ()
        return comparison.Comparison(parting.seq, left, right, tuple(files))

    def _side(self, there: SessionRow, parting: entries.Point) -> Side:
        """Read and count what a path has after a point."""
        since = Numbers._make(now - then for now, then in zip(there.numbers, parting.numbers, strict=True))
        said = self.messages(at=Head(there.uid, there.seq, False), after=parting.seq)
        return comparison.Side(tuple(said), Stats.from_numbers(since, started_ms=there.created_ms))

    def _captured(self) -> bool:
        return self._ask(history.is_captured)

    def _file_differences(
        self, trees: Trees, place: CapturedDirectory | None, a: Point, b: Point | None
    ) -> Iterator[FileDiff]:
        if b is None and place is not None:
            now, trees = place.glance(), place.trees
        else:
            now = trees.root(self._snapshot_at(self._seen.seq if b is None else b).body["root"])
        then = self._snapshot_at(a)
        before = trees.root(then.body["root"])
        on_disk = b is None and place is not None
        for path, old, new in tree.differences(trees.load, before.tree, now.tree):
            if tree.DIR in (old and old.kind, new and new.kind):
                continue
            # What is not captured is not shown either: ignore rules and size limits hold for this too.
            seen = on_disk and (new is None or new.kind != tree.GAP)
            after = states.on_disk(self._seen.workspace, path) if seen else states.of_node(trees, new)
            yield file_values.FileDiff(os.fsdecode(path), states.of_node(trees, old), after, then.at_ms)

    def _lines(self, uids: dict[int, str], rows: list[EntryRow]) -> tuple[str, ...]:
        return tuple(map(_line, make_messages(True, self._store._attachment)(uids, rows)))

    # ------------------------------------------------------------------ what was touched

    def files(self) -> list[FileTouched]:
        """List the paths that the session touched, each once, with its last action and the calls that did it.

        Includes paths seen to change in the workspace, whatever tool did it, and those that ``record_file`` named.
        """
        seen_, said = self._ask(history.touched)
        found, trees = {each.path: each for each in said}, workspaces.Trees(self._store._runner)
        for before, after in reversed([*history.pairs(seen_)]):
            for each in history.own_changes(self._store._runner, trees, self._seen, before, after):
                seen = _touched(each, after)
                if seen is not None and (seen.path not in found or found[seen.path].seq < seen.seq):
                    found[seen.path] = seen
        return [*found.values()]

    # ------------------------------------------------------------------ announced files

    def snapshot_file(self, path: str | PathLike[str], *, idempotency_key: str | None = None) -> FileState:
        """Keep a file as it is before a change; the first copy counts until forgotten or until a checkpoint."""
        name = self._path_in(path)
        state = states.on_disk(self._seen.workspace, name)
        decide = history.announce(name.decode("utf-8", "surrogateescape"), self._kept_node(state))
        self._change_quietly(snapshots.ANNOUNCED, decide, [os.fsdecode(name)], idempotency_key)
        return state

    def _kept_node(self, state: FileState) -> list[Any]:
        """Store what is at a path and describe it."""
        store = self._store
        if state.data is not None:
            content = contents.store(store._runner, state.data)
            return [tree.FILE, state.mode, len(state.data), content, store._clock.now_ms()]
        if state.kind == "link":
            return [tree.LINK, 0, 0, state.target, store._clock.now_ms()]
        kind = tree.ABSENT if state.kind == "missing" else state.kind
        return [kind, state.mode or 0, 0, state.reason or "", store._clock.now_ms()]

    def file_diff(self, path: str | PathLike[str]) -> FileDiff | None:
        """Return how an announced file differs from its kept copy; None if it does not, or was never announced."""
        wanted = self._path_in(path)
        return next((each for each in self._announced_diffs(lambda name: name == wanted)), None)

    def file_diffs(self) -> list[FileDiff]:
        """List the differences of all announced files that changed, in the order they were announced."""
        return [*self._announced_diffs(lambda name: True)]

    def _announced_diffs(self, wanted: Callable[[bytes], bool]) -> Iterator[FileDiff]:
        for name, node in self._ask(history.announced).items():
            path = name.encode("utf-8", "surrogateescape")
            if wanted(path):
                before, after = self._announced_state(node), states.on_disk(self._seen.workspace, path)
                if before != after:
                    yield file_values.FileDiff(name, before, after, node[4])

    def _announced_state(self, node: list[Any]) -> FileState:
        kind, mode, _, content, _ = node
        if kind == tree.FILE:
            data = b"".join(contents.open_linked(self._store._runner, content))
            return file_values.FileState("file", data, mode)
        if kind == tree.LINK:
            return file_values.FileState("link", target=content)
        if kind == tree.ABSENT:
            return states.MISSING
        return file_values.FileState(kind, mode=mode or None, reason=content or None)

    def forget_files(self, *, idempotency_key: str | None = None) -> None:
        """Forget all announced files: the next announcement of each counts."""
        self._change_quietly(snapshots.ANNOUNCED, history.forget, ["forget"], idempotency_key)

    def _change_quietly(self, kind: str, decide: work.Decide, ask: Any, key: str | None) -> None:
        now_ms = self._store._clock.now_ms()
        self._seen, _ = self._do(work.change, *self._key, kind, decide, ask=ask, now_ms=now_ms, key=key)


def write_files(session: Files, point: Point | None, into: str, commit: Callable[[JournalRow], T]) -> T:
    """Write the files at a point into a new or empty directory, and commit; files of a repository are left out."""
    trees, root = session._files_at(point)
    steps, refused = list[apply.Step](), dict[bytes, None]()
    for path, _, new in tree.differences(trees.load, tree.EMPTY, root):
        if preview.is_refused(path, None, new):
            refused[names.control_part(path)] = None
        elif new is not None and new.kind in tree.THERE:
            steps.append(apply.Step(path, None, new))
    done = changes.materialise(session._store._runner, trees, into, session._seen, steps, commit)
    for path in refused:
        notices.warn("%s was not written into %r: it belongs to a repository", names.shown(path), into)
    return done


def _line(message: Message) -> str:
    """Format a message as one line."""
    tools = [each.name or message.tool_name or "" for each in message.tool_results]
    role = " ".join([message.role, *filter(None, tools)])
    return f"{role}: {message.text[:200]}".replace("\n", " ")


def _touched(each: tree.Difference, after: work.WorkEntry) -> FileTouched | None:
    """Describe a path's change between snapshots; gaps and directories do not count as files."""
    if {tree.GAP, tree.DIR} & {each.old and each.old.kind, each.new and each.new.kind}:
        return None
    calls = tuple(after.body.get("calls", ()))
    action = _ACTIONS.get(preview.action(each), "written")
    return FileTouched(os.fsdecode(each.path), action, calls[0] if calls else None, after.seq, calls)
