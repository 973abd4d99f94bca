"""A folder that people can read, with a directory per session: its tasks, plan, walkthrough, notes and messages.

A directory is built completely beside its place and then swapped in atomically, so a reader always sees files of one
moment. Each directory that the mirror made holds a mark naming the store; only marked ones are ever replaced or
removed, and files that somebody else put there stay. A directory is removed only when the store says that its session
was deleted: a session that cannot be read, or that the store never had, keeps its directory, which may be the last
copy. An id becomes a directory name only if it has the form of an id.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from datetime import UTC
from typing import Any, NamedTuple

from .. import codec
from ..client.session import Session
from ..client.store import Store
from ..context.lines import escaped, fenced, visible
from ..context.walkthrough import About, render, when
from ..errors import Busy, Conflict, Corrupt, Invalid, NotFound
from ..ids import is_id
from ..model.message import Message
from ..ops import sessions, store_identity
from ..records import lines as records
from .files import sync_folder

SCHEMA = "takeback.mirror/1"
SESSION, PLAN, WALKTHROUGH, TASKS, LOG = (
    *("session.json", "implementation_plan.md", "walkthrough.md", "tasks.md", "reasoning_log.md"),
)
NAMES = (SESSION, PLAN, WALKTHROUGH, TASKS, LOG)
MARK = ".takeback-mirror"
BOXES = {"completed": "[x]", "in_progress": "[/]", "failed": "[-]", "skipped": "[~]", "pending": "[ ]"}
_LOCK, _STAGED, _ASIDE = ".takeback-mirror.lock", ".takeback-staged-", "-old"
_LINE = 100_000
_CALM = 0.1  # seconds to wait for further changes, so that a burst is written once
_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2: swaps two names atomically


class Mirrored(NamedTuple):
    """What a run did: ids written, unchanged and removed, and the directories in the way.

    ``damaged`` lists sessions that could not be read; their directories were left as they are.
    """

    written: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()


class Mirror:
    """A folder that mirrors the sessions of a store, for one process at a time; a second one raises ``Busy``."""

    def __init__(self, store: Store, base: str | os.PathLike[str], *, workspace: str | None = None) -> None:
        self._store, self._workspace = store, workspace
        self._name = store._read(lambda tx: store_identity.fingerprint(tx, store.scope))
        self._base = os.path.abspath(base)
        self._folder = os.path.join(self._base, "sessions")
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._lock = _locked(os.path.join(self._base, _LOCK))
        self._sweep_staged()

    def __enter__(self) -> Mirror:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the folder for other processes."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # ------------------------------------------------------------------ everything, or what changed

    def update(self) -> Mirrored:
        """Bring the whole folder up to date: write every session, remove deleted ones."""
        done, damaged, seen = Mirrored(), list[str](), set[str]()
        for session in self._sessions(damaged):
            seen.add(session.id)
            done = _joined(done, self._write(session))
        for name in sorted(os.listdir(self._folder)):
            if is_id(name) and name not in seen:
                done = _joined(done, self._remove_if_gone(name))
        return done._replace(damaged=tuple(dict.fromkeys((*done.damaged, *damaged))))

    def _sessions(self, damaged: list[str]) -> Iterator[Session]:
        where: dict[str, Any] = {} if self._workspace is None else {"workspace": self._workspace}
        return self._store._sessions_beside(damaged, archived=None, **where)

    def follow(self, told: Callable[[Mirrored], None] | None = None) -> None:
        """Bring the folder up to date, and keep it up to date until the store is closed."""
        cursor = None
        for change in self._store.events():
            cursor = change.cursor
        tell = told or (lambda done: None)
        tell(self.update())  # after taking the cursor, so that no change falls in between
        known = set[str]()  # changes already handled together with an earlier one
        for change in self._store.follow(cursor):
            if change.cursor in known:
                known.discard(change.cursor)
                continue
            time.sleep(_CALM)
            changed = dict.fromkeys([change.session_id])
            for more in self._store.events(change.cursor):
                known.add(more.cursor)
                changed[more.session_id] = None
            done = Mirrored()
            for session_id in changed:
                done = _joined(done, self._refresh(session_id)) if session_id else done
            tell(done)

    def _refresh(self, session_id: str) -> Mirrored:
        try:
            session = self._store.find_session(session_id)
        except Corrupt:
            return Mirrored(damaged=(session_id,))
        if session is None or session.id != session_id or session.deleted:
            return self._remove_if_gone(session_id)
        return self._write(session) if self._workspace in (None, session.workspace) else Mirrored()

    # ------------------------------------------------------------------ one directory

    def _write(self, session: Session) -> Mirrored:
        place = self._place(session.id)
        try:
            files = contents(session)
        except NotFound:
            return self._remove_if_gone(session.id)  # purged meanwhile
        except Corrupt:
            return Mirrored(damaged=(session.id,))
        if os.path.lexists(place) and not _is_ours(place, self._name):
            return Mirrored(blocked=(place,))
        if _is_same(place, files):
            return Mirrored(same=(session.id,))
        staged = os.path.join(self._folder, f"{_STAGED}{secrets.token_hex(8)}")
        _make(staged, f"{SCHEMA} {session.id} {self._name}\n", files)
        if os.path.lexists(place):
            _swap(staged, place)
            _keep_others(staged, place)
            _clear(staged)
        else:
            os.rename(staged, place)
        sync_folder(self._folder)
        return Mirrored(written=(session.id,))

    def _remove_if_gone(self, session_id: str) -> Mirrored:
        """Remove our directory of a session that was deleted from the store, in whatever workspace it was."""
        place = self._place(session_id)
        if not _is_ours(place, self._name):
            return Mirrored()
        try:
            gone = self._store._read(lambda tx: sessions.is_gone(tx, self._store.scope, session_id))
        except Corrupt:
            return Mirrored(damaged=(session_id,))
        if not gone:
            return Mirrored()
        _clear(place)
        return Mirrored(removed=(session_id,))

    def _place(self, session_id: str) -> str:
        if not is_id(session_id):
            raise Invalid(f"{session_id!r} is not a session id")
        return os.path.join(self._folder, session_id)

    def _sweep_staged(self) -> None:
        """Clean up after an interrupted run; other people's files in staged directories go back where they were."""
        for name in sorted(os.listdir(self._folder), key=lambda name: not name.endswith(_ASIDE)):
            staged = os.path.join(self._folder, name)
            if name.startswith(_STAGED) and _is_directory(staged):
                self._put_back(staged)

    def _put_back(self, staged: str) -> None:
        mark, others = _mark(staged), _others(staged)
        place = self._place(mark[1]) if mark and len(mark) > 1 and is_id(mark[1]) else None
        if place is not None and (others or staged.endswith(_ASIDE)) and not os.path.lexists(place):
            os.rename(staged, place)  # it is complete, and nothing has taken its place
            return
        if place is not None and _is_directory(place):
            _keep_others(staged, place)
        if not _others(staged):
            _clear(staged)


def _joined(one: Mirrored, two: Mirrored) -> Mirrored:
    return Mirrored._make(first + second for first, second in zip(one, two, strict=True))


# ---------------------------------------------------------------------- contents


def contents(session: Session) -> dict[str, bytes]:
    """Return the files of a session; empty ones are left out."""
    about, sources = session._told()
    said = [*sources]
    numbers = {task.id: number for number, task in enumerate(about.tasks, 1)}
    texts = {
        PLAN: visible(about.plan) if about.plan else "",
        WALKTHROUGH: visible(about.written) if about.written else render(about, said),
        TASKS: _listed("Tasks", [f"- {BOXES[task.status]} {escaped(task.description, _LINE)}" for task in about.tasks]),
        LOG: _listed(
            "Reasoning log",
            [
                f"## {when(note.created_at)}{f', task {numbers[note.task]}' if note.task in numbers else ''}\n\n"
                f"{fenced(note.text)}\n"
                for note in about.notes
            ],
        ),
    }
    document = {
        "schema": SCHEMA,
        **{name: _value(value) for name, value in _described(session, about).items()},
        "messages": [_message(each) for each in said if isinstance(each, Message)],
    }
    data = json.dumps(document, indent=1).encode()  # ASCII, so that it cannot control a terminal
    found = {name: f"{text.rstrip()}\n".encode("utf-8", "replace") for name, text in texts.items() if text.strip()}
    return {SESSION: data + b"\n", **found}


def _described(session: Session, about: About) -> dict[str, Any]:
    fields = session.to_dict()
    names = ("id", "name", "title", "prompt", "model", "provider", "agent_id", "kind", "status", "label", "task")
    more = ("workspace", "parent_id", "tags", "created_at", "updated_at", "last_message_at", "revision", "turn_count")
    return {
        **{name: fields.get(name) for name in (*names, *more, "build_attempts", "metadata")},
        "tasks": [{"id": each.id, "description": each.description, "status": each.status} for each in about.tasks],
        "plan": about.plan,
        "walkthrough": about.written,
        "notes": [{"text": each.text, "task": each.task, "created_at": _time(each.created_at)} for each in about.notes],
        "files": [{"path": each.path, "action": each.action} for each in about.files],
    }


def _value(value: Any) -> Any:
    """Convert a value to JSON; lone surrogates and bytes are escaped as in the codec."""
    return None if value is None else records.shown(codec.encode(value))


def _message(message: Message) -> dict[str, Any]:
    return {
        "seq": message.seq,
        "turn": message.turn,
        "role": message.role,
        "text": _value(message.text),
        "created_at": _time(message.created_at),
        "body": records.shown(message.data),
        "raw": records.shown(message.raw),
    }


def _time(moment: Any) -> str:
    return str(moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"))


def _listed(heading: str, lines: list[str]) -> str:
    return "\n".join([f"# {heading}", "", *lines]) if lines else ""


# ---------------------------------------------------------------------- directories


def _locked(path: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise Busy(f"{os.path.dirname(path)!r} is in use by another mirror; end it, or choose another one") from error
    return descriptor


def _is_directory(place: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(place).st_mode)
    except FileNotFoundError:
        return False


def _is_ours(place: str, store: str) -> bool:
    """Whether a real directory, not a link, holds this store's mark; a mark without a store matches any."""
    mark = _mark(place)
    return mark is not None and (len(mark) < 3 or mark[2] == store)


def _mark(place: str) -> list[str] | None:
    """Return the words of a directory's mark: schema, session, store; None if it has no mark."""
    path = os.path.join(place, MARK)
    try:
        if not _is_directory(place) or not stat.S_ISREG(os.lstat(path).st_mode):
            return None
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            return file.read(1000).decode("utf-8", "replace").split()
    except FileNotFoundError:
        return None


def _is_same(place: str, files: dict[str, bytes]) -> bool:
    for name in NAMES:
        try:
            with open(os.open(os.path.join(place, name), os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                if file.read() != files.get(name):
                    return False
        except FileNotFoundError:
            if name in files:
                return False
        except OSError:
            return False
    return True


def _make(place: str, mark: str, files: dict[str, bytes]) -> None:
    os.mkdir(place, 0o700)
    for name, data in {MARK: mark.encode(), **files}.items():
        descriptor = os.open(os.path.join(place, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    sync_folder(place)


def _swap(new: str, old: str) -> None:
    """Swap two directories atomically; where the system cannot, by renaming one after the other."""
    try:
        _exchange(new, old)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
            raise
        aside = f"{new}{_ASIDE}"
        os.rename(old, aside)
        os.rename(new, old)
        os.rename(aside, new)


def _exchange(one: str, two: str) -> None:
    swap = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if swap is None:
        raise OSError(errno.ENOSYS, "this system cannot swap two directories")
    here = -100  # AT_FDCWD; not used, as both paths are absolute
    if swap(here, os.fsencode(one), here, os.fsencode(two), ctypes.c_uint(_EXCHANGE)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), one)


def _keep_others(old: str, new: str) -> None:
    """Move other people's files from the old directory to the new one, renaming them on a clash."""
    for name in _others(old):
        target = os.path.join(new, name)
        while os.path.lexists(target):
            target += "~"
        os.rename(os.path.join(old, name), target)


def _others(place: str) -> list[str]:
    """List the files in a directory that are not the mirror's."""
    return [name for name in os.listdir(place) if name not in (*NAMES, MARK)]


def _clear(place: str) -> None:
    """Remove the mirror's files from a directory, and the directory itself if that leaves it empty."""
    for name in (*NAMES, MARK):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(place, name))
    with contextlib.suppress(OSError):  # not empty: other people's files stay
        os.rmdir(place)


def require_folder(base: str) -> None:
    """Raise ``Conflict`` if a path exists and is not a directory."""
    if os.path.lexists(base) and not os.path.isdir(base):
        raise Conflict(f"{base!r} is not a directory; choose another place for the mirror", found=base)
