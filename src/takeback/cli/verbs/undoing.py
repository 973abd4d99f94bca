"""``undo`` and ``redo``: the last operation of this workspace, of one of its sessions or on its files alone.

One that touches files shows its plan first and asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...client.session import Session
from ...errors import Invalid
from ...model.operation import Operation
from ...shell import documents
from ...shell.failures import CONFLICT, NOT_FOUND, USAGE, Stop
from .. import plans
from ..consent import tell
from ..frame import Frame, option, ref_argument, verb
from ..output import line
from . import history

if TYPE_CHECKING:
    from ...client.rewind import Rewind


@verb("undo", changes=True)
@ref_argument("ref", required=False)
@option("--all", "everywhere", is_flag=True, help="Undo the last operation in any workspace.")
@option("--op", "wanted", metavar="ID", help="Undo this operation, as listed by takeback ops.")
def undo(frame: Frame, ref: str | None, everywhere: bool, wanted: str | None) -> None:
    """Undo the last operation in this workspace, or on the session REF; one on files shows its plan first."""
    frame.require_store()
    _require_one(ref, everywhere, wanted)
    operation = _named(frame, wanted) if wanted else _last(frame, ref, everywhere)
    session = None if operation.session_id is None else frame.store.get_session(operation.session_id)
    plan: Rewind | None = None
    try:
        if session is not None:
            plan = session.preview_undo(operation.id)
        elif operation.workspace is not None:
            plan = frame.store.workspace(operation.workspace).preview_undo(operation)
    except Invalid:  # it moves neither the conversation nor files
        plan = None
    if plan is None or plan.is_empty:
        _simply(frame, "Undo", operation, session)
        return
    plans.carry_out(frame, session, plan, "Undo")


@verb("redo", changes=True)
@ref_argument("ref", required=False)
@option("--all", "everywhere", is_flag=True, help="Redo the last undo in any workspace.")
def redo(frame: Frame, ref: str | None, everywhere: bool) -> None:
    """Redo what the last undo in this workspace, or on the session REF, took back."""
    frame.require_store()
    _require_one(ref, everywhere, None)
    found = (each for each in _operations(frame, ref, everywhere) if each.kind == "undo" and not each.undone)
    undone = next(found, None)
    if undone is None or (undone.session_id is None and undone.workspace is None):
        raise Stop(f"there is nothing to redo{_where(ref, everywhere, 'redo')}", CONFLICT)
    session = None if undone.session_id is None else frame.store.get_session(undone.session_id)
    plan: Rewind | None = None
    try:
        if session is not None:
            plan = session.preview_redo()
        elif undone.workspace is not None:
            plan = frame.store.workspace(undone.workspace).preview_redo()
    except Invalid:
        plan = None
    if plan is None or plan.is_empty:
        _simply(frame, "Redo", undone, session)
        return
    plans.carry_out(frame, session, plan, "Redo")


def _require_one(ref: str | None, everywhere: bool, wanted: str | None) -> None:
    if bool(ref) + everywhere + bool(wanted) > 1:
        raise Stop("a session, --all and --op exclude each other; give one of them", USAGE)


def _simply(frame: Frame, word: str, operation: Operation, session: Session | None) -> None:
    """Undo or redo an operation that moves neither the conversation nor files, so there is no plan to show."""
    what = f"{word.lower()} {operation.kind}: {line(operation.summary)}"
    if frame.settings.dry_run:
        tell(f"Dry run: would {what}.")
        return
    if word == "Redo" and session is not None:
        done = session.redo()
    else:
        done = frame.store.undo(operation.id) if session is None else session.undo(operation.id)
    frame.out.one("operation", documents.operation(done), lambda: [f"{done.kind}: {line(done.summary)}"])
    if frame.out.for_people:
        tell(f"Take it back with: takeback {'redo' if word == 'Undo' else 'undo'}")


def _operations(frame: Frame, ref: str | None, everywhere: bool) -> Iterator[Operation]:
    """Yield the operations to choose from, newest first."""
    if ref is None:
        return history.here(frame, everywhere)
    wanted = frame.session(ref).id
    return (each for each in history.here(frame, True) if each.session_id == wanted)


def _last(frame: Frame, ref: str | None, everywhere: bool) -> Operation:
    for each in _operations(frame, ref, everywhere):
        if not each.undone and each.kind not in ("undo", "redo", "purge", "redact"):
            return each
    raise Stop(f"there is nothing to undo{_where(ref, everywhere, 'undo')}", CONFLICT)


def _where(ref: str | None, everywhere: bool, word: str) -> str:
    if ref is not None:
        return f" on {ref}"
    return "" if everywhere else f" in this workspace; in any workspace: takeback {word} --all"


def _named(frame: Frame, wanted: str) -> Operation:
    found = [each for each in history.here(frame, True) if each.id.startswith(wanted.lower())]
    if not found:
        raise Stop(f"no such operation: {wanted!r}; list them with: takeback ops --all", NOT_FOUND)
    if len(found) > 1:
        listed = "\n".join(f"  {each.id}  {each.kind}" for each in found[:10])
        raise Stop(f"{wanted!r} matches several operations:\n{listed}", NOT_FOUND)
    return found[0]


COMMANDS = {"undo": undo, "redo": redo}
