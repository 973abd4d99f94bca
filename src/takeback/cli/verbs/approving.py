"""``approve`` and ``deny``: a person's answer to a tool call that asks, given from any process."""

from __future__ import annotations

import getpass
from typing import Any

from ...client.session import Session
from ...model.approval import Approval
from ...shell import documents
from ...shell.failures import CONFLICT, NOT_FOUND, Stop
from ...shell.times import rfc3339
from ..consent import tell
from ..frame import Frame, option, ref_argument, verb
from ..output import line


@verb("approve", changes=True)
@ref_argument("ref", required=False)
@option("--call", "wanted", metavar="ID", help="Answer this call (id or prefix); needed if several wait.")
@option("--note", help="A note for the agent.")
def approve(frame: Frame, ref: str | None, wanted: str | None, note: str | None) -> None:
    """Approve the tool call that a session asks about."""
    _answer(frame, frame.session(ref), wanted, note, approved=True)


@verb("deny", changes=True)
@ref_argument("ref", required=False)
@option("--call", "wanted", metavar="ID", help="Answer this call (id or prefix); needed if several wait.")
@option("--note", help="Why not, and what to do instead.")
def deny(frame: Frame, ref: str | None, wanted: str | None, note: str | None) -> None:
    """Deny the tool call that a session asks about."""
    _answer(frame, frame.session(ref), wanted, note, approved=False)


def _answer(frame: Frame, session: Session, wanted: str | None, note: str | None, *, approved: bool) -> None:
    asked = _asked(frame, session, wanted)
    what = f"{line(asked.call.name)} {line(documents.compact(asked.call.arguments))[:200]}"
    if frame.settings.dry_run:
        tell(f"Dry run: would {'approve' if approved else 'deny'} {what}.")
        return
    done = session.answer_approval(asked.call, approved, by=_person(), note=note)
    said = f"{'Approved' if approved else 'Denied'} {what}"
    frame.out.one("approval", _document(session, done), lambda: [said])


def _asked(frame: Frame, session: Session, wanted: str | None) -> Approval:
    """Find the question to answer: the only one waiting, or the one whose call was named."""
    short = frame.short(session.id)
    waiting = [each for each in session.approvals() if each.approved is None]
    found = [each for each in waiting if wanted is None or each.call.id.startswith(wanted)]
    if not waiting:
        raise Stop(f"{short} is not waiting for an answer", CONFLICT)
    if len(found) == 1:
        return found[0]
    listed = "\n".join(f"  --call {line(each.call.id)}  {line(each.call.name)}" for each in found or waiting)
    if not found:
        raise Stop(f"{short} does not ask about call {wanted!r}; it asks about:\n{listed}", NOT_FOUND)
    raise Stop(f"{short} asks about {len(found)} calls; name one:\n{listed}", CONFLICT)


def _person() -> str | None:
    """Return the name of the user who answers; None in a container without a user database."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def _document(session: Session, done: Approval) -> dict[str, Any]:
    return {
        "id": done.call.id,
        "session_id": session.id,
        "call": documents.call(done.call),
        "question": done.question,
        "status": done.status,
        "by": done.by,
        "note": done.note,
        "answered_at": rfc3339(done.answered_at),
    }


COMMANDS = {"approve": approve, "deny": deny}
