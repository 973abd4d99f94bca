"""Importing a session from a mirror's folder: what ``session.json`` holds becomes a new session.

A mirror is for reading, not for backup: it holds the messages of one branch, and no attachments, operations or hashes.
So the import makes a new session whose metadata names the original; one that is still in the store, or was imported
before, is left alone. It is built in a scratch store and appears only when complete. As with every import, the
directory that it worked in is not trusted, only recorded in its metadata.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from .. import codec
from ..client.copying import copy
from ..client.open import open_store
from ..client.session import Session
from ..client.store import Store
from ..errors import Ambiguous, Corrupt, Error, Invalid, NotFound
from ..ids import is_id
from ..model.copied import Copied
from ..model.message import Message
from ..model.work import Task
from ..ops import sessions
from ..records import lines as records

SCHEMA, FILE = "takeback.mirror/1", "session.json"
FROM, WHERE = "mirrored_from", "mirrored_workspace"
_MOST = 256 << 20


class Brought(NamedTuple):
    """The id that a folder names, and the session that stands for it here; ``new`` if this call created it.

    ``renamed`` is its new name if the old one was taken.
    """

    mirrored: str
    session: str
    new: bool
    renamed: str | None = None


class ReadFolder(NamedTuple):
    """The sessions of a folder, and what was copied; None for a dry run."""

    brought: list[Brought]
    copied: Copied | None


class _Said(msgspec.Struct):
    """A message; ``text`` is used if its content was erased."""

    role: str
    created_at: str
    text: Any = ""
    body: Any = None
    raw: Any = None


class _Note(msgspec.Struct):
    text: str
    task: str | None = None


class _File(msgspec.Struct):
    path: str
    action: str


class _Mirrored(msgspec.Struct):
    """The part of ``session.json`` that is read."""

    schema: str
    id: str
    agent_id: str
    name: str | None = None
    title: str | None = None
    prompt: str | None = None
    model: str | None = None
    provider: str | None = None
    kind: str = "main"
    workspace: str | None = None
    tags: list[str] = []
    metadata: dict[str, Any] | None = None
    tasks: list[Task] = []
    plan: str | None = None
    walkthrough: str | None = None
    notes: list[_Note] = []
    files: list[_File] = []
    messages: list[_Said] = []


_decode = msgspec.json.Decoder(dict[str, Any]).decode
_OURS = ("schema", "messages")  # their values are plain JSON; all others are escaped by the codec


def read(store: Store, path: str | os.PathLike[str], *, workspace: str = "", dry_run: bool = False) -> ReadFolder:
    """Import one session's folder, or a whole mirror; sessions that had a workspace get ``workspace``, or none.

    All of them are built in a scratch store before any is stored: an invalid folder leaves nothing behind.
    """
    found = [_loaded(file) for file in _found(os.fspath(path))]
    with (
        tempfile.TemporaryDirectory(prefix="takeback-import-") as scratch,
        open_store(os.path.join(scratch, "copy.db"), scope=store.scope, durability="relaxed") as aside,
    ):
        brought = [_import(store, aside, each, workspace if each.workspace else "") for each in found]
        if dry_run:  # new sessions got ids only in the scratch store
            return ReadFolder([each._replace(session=each.mirrored) if each.new else each for each in brought], None)
        return ReadFolder(brought, copy(aside, store, sessions=[each.session for each in brought if each.new]))


def _found(path: str) -> Iterator[str]:
    if os.path.isfile(os.path.join(path, FILE)):
        yield os.path.join(path, FILE)
        return
    inner = os.path.join(path, "sessions")
    folder = inner if os.path.isdir(inner) else path
    files = [os.path.join(folder, name, FILE) for name in sorted(os.listdir(folder))]
    there = [file for file in files if os.path.isfile(file)]
    if not there:
        raise NotFound(f"no {FILE} in {path!r} or its folders; name a folder that takeback mirror wrote")
    yield from there


def _loaded(file: str) -> _Mirrored:
    with open(file, "rb") as source:
        data = source.read(_MOST + 1)
    if len(data) > _MOST:
        raise Invalid(f"{file!r} is larger than {_MOST:,} bytes, the most that is read")
    try:
        given = {name: value if name in _OURS else _data(value) for name, value in _decode(data).items()}
        found = msgspec.convert(given, _Mirrored)
    except RecursionError:
        raise Corrupt(f"{file!r} is nested too deeply", what=file) from None
    except (msgspec.MsgspecError, ValueError, Error) as error:
        raise Corrupt(f"{file!r} was not written by takeback mirror, or was changed: {error}", what=file) from error
    if found.schema != SCHEMA:
        raise Invalid(f"{file!r} has schema {found.schema[:80]!r}, not {SCHEMA!r}")
    if not is_id(found.id):
        raise Corrupt(f"{file!r} names no session: {found.id[:40]!r} is not an id", what=file)
    return found


def _import(store: Store, aside: Store, found: _Mirrored, workspace: str) -> Brought:
    there = _there(store, found.id) or _brought_before(store, found.id)
    if there is not None:
        return Brought(found.id, there.id, new=False)
    try:
        name = _free_name((store, aside), found, workspace)
        made = _built(aside, found, name, workspace)
    except Error as error:
        raise Corrupt(f"session {found.id[:40]!r} cannot be imported: {error}", what=found.id[:40]) from error
    return Brought(found.id, made.id, new=True, renamed=name if name != found.name else None)


def _there(store: Store, session_id: str) -> Session | None:
    """Return the session with this id; one that merely has it as its name does not count."""
    with contextlib.suppress(Ambiguous):  # only names are ambiguous, and names do not count
        found = store.find_session(session_id)
        return found if found is not None and found.id == session_id else None
    return None


def _brought_before(store: Store, session_id: str) -> Session | None:
    every = store.iter_sessions(archived=None)
    return next((each for each in every if each.metadata.get(FROM) == session_id), None)


def _free_name(stores: tuple[Store, ...], found: _Mirrored, workspace: str) -> str | None:
    """Return its name, with `` (2)`` or a higher number appended if another session has it."""
    if found.name is None:
        return None
    names = itertools.chain([found.name], (f"{found.name} ({number})" for number in itertools.count(2)))
    asked = {"agent": found.agent_id, "workspace": workspace}
    return next(each for each in names if not any(_has(store, name=each, **asked) for store in stores))


def _has(store: Store, **named: str) -> bool:
    return store._read(lambda tx: sessions.find_by_name(tx, store.scope, **named)) is not None


def _built(aside: Store, found: _Mirrored, name: str | None, workspace: str) -> Session:
    was = {FROM: found.id, **({WHERE: found.workspace} if found.workspace else {})}
    made = aside.create_session(
        name,
        agent=found.agent_id,
        workspace=workspace or None,
        title=found.title,
        prompt=found.prompt,
        model=found.model,
        provider=found.provider,
        tags=found.tags,
        metadata={**(found.metadata or {}), **was},
    )
    said = [_message(each) for each in found.messages]
    if said:
        made.append(*said)
    if found.tasks:
        made.set_tasks(found.tasks)
    if found.plan is not None:
        made.set_plan(found.plan)
    if found.walkthrough is not None:
        made.set_walkthrough(found.walkthrough)
    known = {task.id for task in made.tasks()}
    for note in found.notes:
        made.note(note.text, task=note.task if note.task in known else None)
    for file in found.files:
        made.record_file(file.path, file.action)
    return made


def _data(value: Any) -> Any:
    stored = records.stored(value)
    return None if stored is None else codec.decode(stored)


def _message(said: _Said) -> Message:
    """Rebuild a message; its metadata records its time and the names of its attachments, which the mirror lacks."""
    body = _data(said.body)
    if not isinstance(body, dict):
        body = {"role": said.role, "content": str(_data(said.text))}
    given, metadata = body.pop("attachments", None) or [], body.get("metadata") or {}
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise Invalid("the attachments of a message must be a list of objects")
    if not isinstance(metadata, dict):
        raise Invalid("the metadata of a message must be an object")
    attached = [each.get("name") or each.get("id") for each in given]
    about = {**metadata, "said_at": said.created_at, **({"attached": attached} if attached else {})}
    return Message("", 0, 0, 0, codec.encode({**body, "metadata": about}), records.stored(said.raw))
