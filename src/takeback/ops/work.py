"""The state of work: tasks, plan, walkthrough, notes, files, build attempts, session state, compactions.

Each is an entry, so it has a history and a rewind takes it back. Every entry of a path knows the last work entry before
it (``work_seq``), and each work entry the last one of every kind (``last``), so the state at any point takes a few
point reads at any depth. Maps (tasks, files, state) are stored as what changed since an entry that holds the whole map
(``base``); once that outgrows half of the map, the next entry is whole again. So a change costs about what it changes,
and two reads return the map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import codec
from ..errors import Conflict, Corrupt, Invalid, NotFound
from ..ids import entry_id
from ..model.entry import STATE_KINDS, Draft, More, Numbers
from ..model.work import Compaction, FileTouched, Note, Task, require_status
from ..storage.base import Tx
from . import branches, entries, points, sessions
from .sessions import SessionRow

if TYPE_CHECKING:
    from .points import Target

LOST_AT = "SELECT 1 FROM lost WHERE scope = ? AND key = ?"
ADDS = Numbers(work_seq=1)
_WHOLE_BYTES = 2048


class Lost(Corrupt):
    """Damage destroyed a piece of the state of work, and a repair left a placeholder for it."""

    def __init__(self, name: str, kind: str, seq: int) -> None:
        what = {"tasks": "the tasks", "state": "the session's state", "file": "the files touched"}.get(
            kind, f"the {kind}"
        )
        super().__init__(
            f"{what} set by entry {name} were lost to damage before a repair; set them again, or restore a backup",
            what=f"entry {name}",
        )
        self.kind = kind
        self.seq = seq


class WorkEntry(NamedTuple):
    """A stored piece of state: where it is and what it says."""

    seq: int
    at_ms: int
    body: dict[str, Any]


class WorkChange(NamedTuple):
    """What to store: the body, the new counts in the session's row, and the content it links."""

    body: dict[str, Any]
    counts: Mapping[str, int] = MappingProxyType({})
    blobs: tuple[str, ...] = ()


Decide = Callable[[Tx, SessionRow], "WorkChange | WorkEntry"]


def change(
    tx: Tx, scope: str, session_id: str, kind: str, decide: Decide, *, ask: Any, now_ms: int, key: str | None = None
) -> tuple[SessionRow, WorkEntry]:
    """Add one state entry: ``decide`` reads what it needs and returns the change, in the same transaction.

    ``ask`` is the request in plain values: a retry with the same key and request returns the first entry.
    """
    session = entries.writable(tx, scope, session_id)
    asked = {} if key is None else {"ask": ask}
    if key is not None:
        probe = Draft(kind, codec.encode(asked))
        if earlier := entries.repeat(tx, session, (probe,), key):
            row = earlier.repeated[0]
            return session, WorkEntry(earlier.first, row.at_ms, codec.decode(row.body or b"{}"))
    decided = decide(tx, session)
    if isinstance(decided, WorkEntry):
        return session, decided  # nothing changes
    body = {"last": lasts(tx, session), **decided.body, **asked}
    draft = Draft(kind, codec.encode(body), adds=ADDS, more=More(blobs=decided.blobs) if decided.blobs else None)
    if decided.counts:
        session = sessions.write(tx, session, **decided.counts)
    done = entries.put(tx, session, (draft,), now_ms=now_ms, idempotency_key=key)
    return done.session, WorkEntry(done.first, now_ms, body)


# ---------------------------------------------------------------------- finding the state at a point


def _read(tx: Tx, session: SessionRow, seq: int) -> tuple[str, WorkEntry]:
    segments = entries.path_segments(tx, session, seq - 1, seq)
    (row,) = entries.read(tx, session.scope, segments)
    what = entry_id(segments[0].uid, seq)
    if row.kind not in STATE_KINDS or row.body is None:
        if tx.one(LOST_AT, (session.scope, row.key)) is not None:
            raise Lost(what, row.kind, seq)
        raise Corrupt(f"entry {what} should hold a state of work but does not", what=f"entry {what}")
    body = codec.decode(row.body)
    if not isinstance(body, dict) or not isinstance(body.get("last"), dict):
        raise Corrupt(f"the state of work in entry {what} cannot be read", what=f"entry {what}")
    return row.kind, WorkEntry(seq, row.at_ms, body)


def entry_at(tx: Tx, session: SessionRow, seq: int) -> WorkEntry:
    """Return the state entry at a seq of the path that is known to hold one."""
    return _read(tx, session, seq)[1]


def lasts(tx: Tx, session: SessionRow, at: int | None = None) -> dict[str, int]:
    """Return the seq of the last entry of every state kind at a point of the path, by default the head."""
    work_seq, lost = entries.numbers_at(tx, session, at).work_seq, dict[str, int]()
    while work_seq:
        try:
            kind, found = _read(tx, session, work_seq)
        except Lost as gone:  # its own ``last`` is gone too: continue from the state entry before it
            lost.setdefault(gone.kind, work_seq)
            before = entries.numbers_at(tx, session, work_seq - 1).work_seq
            if before >= work_seq:
                raise Corrupt("the entries of the state of work form a cycle", what=f"session {session.id}") from gone
            work_seq = before
            continue
        return {**found.body["last"], kind: work_seq, **lost}
    return lost


def latest(tx: Tx, session: SessionRow, kind: str, at: int | None = None) -> WorkEntry | None:
    """Return the last entry of a kind at a point of the path, or None; a lost one raises ``Lost``."""
    work_seq = entries.numbers_at(tx, session, at).work_seq
    if work_seq == 0:
        return None
    try:
        last_kind, found = _read(tx, session, work_seq)
    except Lost:
        seq = lasts(tx, session, at).get(kind)
        return None if seq is None else _read(tx, session, seq)[1]
    if last_kind == kind:
        return found
    seq = found.body["last"].get(kind)
    return None if seq is None else _read(tx, session, seq)[1]


def known(tx: Tx, session: SessionRow, kind: str, at: int | None = None) -> WorkEntry | None:
    """Return the last entry of a kind that is not lost, or None."""
    return next(history(tx, session, kind, at), None)


def history(tx: Tx, session: SessionRow, kind: str, at: int | None = None) -> Iterator[WorkEntry]:
    """Yield all entries of a kind, newest first, one read each; lost ones are left out."""
    seq = lasts(tx, session, at).get(kind)
    while seq is not None:
        try:
            found = _read(tx, session, seq)[1]
        except Lost:
            seq = lasts(tx, session, seq - 1).get(kind)
            continue
        yield found
        seq = found.body["last"].get(kind)


def counts_at_head(tx: Tx, session: SessionRow) -> dict[str, int]:
    """Return the counts for a session's row, as of its head."""
    tasks = task_list(tx, session)
    return {"tasks": len(tasks), "completed": _completed(tasks), "builds": builds(tx, session)}


# ---------------------------------------------------------------------- maps


def mapping(tx: Tx, session: SessionRow, found: WorkEntry | None) -> dict[str, Any]:
    """Return the whole map that an entry represents."""
    if found is None:
        return {}
    body = found.body
    if not body["base"]:
        return dict(body["set"])
    whole = _read(tx, session, body["base"])[1].body["set"]
    gone = set(body["del"])
    return {**{key: value for key, value in whole.items() if key not in gone}, **body["set"]}


def next_map(
    tx: Tx, session: SessionRow, before: WorkEntry | None, put: Mapping[str, Any], drop: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the body for a changed map: the difference from its base while that is short, else the whole map."""
    if before is None:
        return whole_map(dict(put))
    body = before.body
    drop = set(drop)
    if body["base"]:
        base, size = body["base"], body["size"]
        kept = {key: value for key, value in body["set"].items() if key not in drop}
        gone, put = (set(body["del"]) | drop) - put.keys(), {**kept, **put}
    else:
        base, size, gone = before.seq, body["size"], drop - put.keys()
    changed = {"base": base, "size": size, "set": dict(put), "del": sorted(gone)}
    if len(codec.encode(changed)) <= max(_WHOLE_BYTES, size // 2):
        return changed
    whole = mapping(tx, session, before._replace(body={**body, **changed}))
    return whole_map(whole)


def next_or_new(tx: Tx, session: SessionRow, kind: str, put: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body for a changed map that the session records itself; start a new map if the old one is lost."""
    try:
        return next_map(tx, session, latest(tx, session, kind), put)
    except Lost:
        return whole_map(dict(put))


def whole_map(whole: dict[str, Any]) -> dict[str, Any]:
    """Return the body that holds a whole map."""
    return {"base": 0, "size": len(codec.encode(whole)), "set": whole, "del": []}


# ---------------------------------------------------------------------- tasks


def task_list(tx: Tx, session: SessionRow, at: int | None = None) -> list[Task]:
    """Return the tasks at a point of the path, in order."""
    whole = mapping(tx, session, latest(tx, session, "tasks", at))
    return [Task(**whole[key]) for key in sorted(whole, key=int)]


def _plain(task: Task) -> dict[str, str]:
    return {"id": task.id, "description": task.description, "status": task.status}


def _completed(tasks: Iterable[Task]) -> int:
    return sum(task.status == "completed" for task in tasks)


def set_tasks(tasks: list[Task]) -> Decide:
    """Replace the list of tasks; tasks without an id get one."""
    named = _with_ids(tasks)

    def decide(tx: Tx, session: SessionRow) -> WorkChange:
        body = whole_map({str(index): _plain(task) for index, task in enumerate(named)})
        return WorkChange(body, {"tasks": len(named), "completed": _completed(named)})

    return decide


def _with_ids(tasks: list[Task]) -> list[Task]:
    taken = {task.id for task in tasks if task.id}
    if len(taken) != sum(bool(task.id) for task in tasks):
        raise Invalid("two tasks have the same id; leave ids out to have them assigned")
    free = (name for number in range(1, 1 << 31) if (name := f"t{number}") not in taken)
    return [task if task.id else Task(task.description, task.status, next(free)) for task in tasks]


def add_task(task: Task) -> Decide:
    """Add a task at the end of the list."""

    def decide(tx: Tx, session: SessionRow) -> WorkChange:
        before = latest(tx, session, "tasks")
        tasks = _with_ids([*task_list(tx, session), task])
        body = next_map(tx, session, before, {str(len(tasks) - 1): _plain(tasks[-1])})
        return WorkChange(body, {"tasks": len(tasks), "completed": _completed(tasks)})

    return decide


def update_task(index: int, status: str | None, description: str | None) -> Decide:
    """Change one task by index, from 0; a wrong index raises ``Invalid``."""

    def decide(tx: Tx, session: SessionRow) -> WorkChange:
        before = latest(tx, session, "tasks")
        tasks = task_list(tx, session)
        old = tasks[require_index(tasks, index)]
        text = old.description if description is None else description
        new = Task(text, require_status(status or old.status), old.id)
        body = next_map(tx, session, before, {str(index): _plain(new)})
        completed = _completed(tasks) - (old.status == "completed") + (new.status == "completed")
        return WorkChange(body, {"completed": completed})

    return decide


def require_index(tasks: list[Task], index: object) -> int:
    """Return the index of a task; a wrong one raises ``Invalid``."""
    if type(index) is not int or not 0 <= index < len(tasks):
        there = f"0 to {len(tasks) - 1}" if tasks else "none"
        raise Invalid(f"there is no task {index!r}; the indexes are {there}")
    return index


# ---------------------------------------------------------------------- texts, notes, files, builds


def set_text(text: str | None) -> Decide:
    """Set the plan or the walkthrough; None clears it."""
    return lambda tx, session: WorkChange({"text": text})


def text_at(tx: Tx, session: SessionRow, kind: str, at: int | None = None) -> str | None:
    """Return the plan or the walkthrough at a point of the path."""
    found = latest(tx, session, kind, at)
    return None if found is None else found.body["text"]


def add_note(text: str, task: int | str | None) -> Decide:
    """Add a note, on a task if one is named by index or id; an unknown task raises ``Invalid``."""

    def decide(tx: Tx, session: SessionRow) -> WorkChange:
        return WorkChange({"text": text, "task": _task_id(tx, session, task)})

    return decide


def _task_id(tx: Tx, session: SessionRow, task: int | str | None) -> str | None:
    if task is None:
        return None
    tasks = task_list(tx, session)
    if isinstance(task, int):
        return tasks[require_index(tasks, task)].id
    if all(each.id != task for each in tasks):
        raise Invalid(f"there is no task with the id {task!r}")
    return task


def note_list(tx: Tx, session: SessionRow, at: int | None = None) -> list[Note]:
    """Return the notes at a point of the path, oldest first."""
    found = [Note(n.seq, n.body["text"], n.body["task"], n.at_ms) for n in history(tx, session, "note", at)]
    return found[::-1]


def record_file(path: str, action: str, call_id: str | None) -> Decide:
    """Record that a path was touched, replacing its earlier action."""

    def decide(tx: Tx, session: SessionRow) -> WorkChange:
        touched = {path: {"action": action, "call": call_id, "seq": session.seq + 1}}
        return WorkChange(next_or_new(tx, session, "file", touched))

    return decide


def file_list(tx: Tx, session: SessionRow, at: int | None = None) -> list[FileTouched]:
    """Return the files touched up to a point, each once, in the order first touched."""
    whole = mapping(tx, session, latest(tx, session, "file", at))
    return [FileTouched(path, each["action"], each["call"], each["seq"]) for path, each in whole.items()]


def builds(tx: Tx, session: SessionRow, at: int | None = None) -> int:
    """Return the number of build attempts at a point of the path."""
    found = latest(tx, session, "build", at)
    return 0 if found is None else int(found.body["count"])


def add_build(tx: Tx, session: SessionRow) -> WorkChange:
    """Count one more build attempt."""
    count = builds(tx, session) + 1
    return WorkChange({"count": count}, {"builds": count})


def compact(target: Target, summary: str) -> Decide:
    """Replace the path up to a point, which must be on it, with a summary."""

    def decide(tx: Tx, session: SessionRow) -> WorkChange:
        point, origin = points.point_of(tx, session, target)
        here, upto = branches.get(tx, session.scope, session.branch), point.seq
        if upto and branches.owner(tx, origin, upto).bid != branches.owner(tx, here, upto).bid:
            raise NotFound(f"that point is not on the path of this session; entry {upto} is a different one")
        if not 1 <= upto <= session.seq:
            raise NotFound(f"the session has entries 1 to {session.seq}; it cannot be compacted up to {upto}")
        return WorkChange({"upto": upto, "summary": summary})

    return decide


def uncompact(tx: Tx, session: SessionRow) -> WorkChange:
    """Revert the compaction in force: the previous one is in force again."""
    now = latest(tx, session, "compaction")
    if now is None or now.body["upto"] == 0:
        raise NotFound("no compaction is in force in this session; there is nothing to take back")
    before = latest(tx, session, "compaction", _made_at(now) - 1)
    if before is None or before.body["upto"] == 0:
        return WorkChange({"upto": 0, "summary": ""})
    return WorkChange({"upto": before.body["upto"], "summary": before.body["summary"], "of": _made_at(before)})


def _made_at(found: WorkEntry) -> int:
    """Return the entry that first made a compaction, which a later one may have put back in force."""
    return int(found.body.get("of", found.seq))


def compaction(tx: Tx, session: SessionRow, at: int | None = None) -> Compaction | None:
    """Return the compaction in force at a point of the path, or None."""
    found = known(tx, session, "compaction", at)  # ignoring a lost one only makes the conversation longer
    if found is None or found.body["upto"] == 0:
        return None
    return Compaction(_made_at(found), found.body["upto"], found.body["summary"])


# ---------------------------------------------------------------------- session state


def state_version(found: WorkEntry | None) -> int:
    """Return the version of a session's state: 1 until something is set."""
    return 1 if found is None else int(found.body["version"])


def state(tx: Tx, session: SessionRow, at: int | None = None) -> tuple[int, dict[str, Any]]:
    """Return the version and content of a session's state at a point of the path."""
    found = latest(tx, session, "state", at)
    return state_version(found), mapping(tx, session, found)


def state_at_version(tx: Tx, session: SessionRow, version: int) -> dict[str, Any]:
    """Return the state as it was at a version, on whichever branch that was."""
    if version == 1:
        return {}
    if 1 < version <= session.states + 1:
        for place in _every_tip(tx, session):
            for found in history(tx, place, "state"):
                if state_version(found) == version:
                    return mapping(tx, place, found)
                if state_version(found) < version:
                    break
    raise NotFound(f"the state of this session never had a version {version}; the newest is {session.states + 1}")


def _every_tip(tx: Tx, session: SessionRow) -> Iterator[SessionRow]:
    """Yield the session as it stands at the head, and then at the tip of each of its branches, newest first."""
    yield session
    for row in reversed(branches.of_session(tx, session.scope, session.sid, session.branches)):
        if row.bid != session.branch or not session.attached:
            end = entries.point_on(tx, session.scope, row, row.tip_seq)
            yield sessions.standing_at(session, row, end.seq, end.numbers)


def change_state(put: Mapping[str, Any], drop: Iterable[str], expected_version: int | None) -> Decide:
    """Set and delete keys of a session's state; an unexpected version raises ``Conflict``.

    Versions grow across all branches, so one number never names two contents.
    """

    def decide(tx: Tx, session: SessionRow) -> WorkChange | WorkEntry:
        new = session.states + 1
        try:
            before = latest(tx, session, "state")
            now = mapping(tx, session, before)
        except Lost:  # start over with what is set here
            return WorkChange({**whole_map(dict(put)), "version": new + 1}, {"states": new})
        require_version(state_version(before), expected_version)
        if not _changes(now, put, drop):
            return before or WorkEntry(0, 0, {"version": 1})
        return WorkChange({**next_map(tx, session, before, put, drop), "version": new + 1}, {"states": new})

    return decide


def _changes(now: Mapping[str, Any], put: Mapping[str, Any], drop: Iterable[str]) -> bool:
    """Whether setting and deleting these keys would change anything; 1 and True are different values."""
    new = [key for key, value in put.items() if key not in now or codec.encode(now[key]) != codec.encode(value)]
    return bool(new) or any(key in now for key in drop)


def require_version(found: int, expected: int | None) -> None:
    """Raise ``Conflict`` if a state has changed since it was read."""
    if expected is not None and expected != found:
        raise Conflict(
            f"the version is {found}, not {expected}; read again and decide what still applies",
            expected=expected,
            found=found,
        )
