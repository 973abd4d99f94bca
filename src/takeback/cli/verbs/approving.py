"""``waiting``, ``approve`` and ``deny``: what asks for a person, and the person's answer, from any process."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from typing import Any

import click

from ...client.session import Session
from ...model.approval import Approval
from ...shell import documents, times
from ...shell.failures import CONFLICT, NOT_FOUND, Stop
from ...shell.times import rfc3339
from ..consent import tell
from ..frame import Frame, option, ref_argument, verb
from ..output import line


@verb("waiting")
@option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="List at most this many.")
def waiting(frame: Frame, limit: int) -> None:
    """List the tool calls that wait for a person's answer, in all sessions."""
    found = [*frame.store.waiting(limit=limit)]
    frame.out.items("approvals", (document(*each) for each in found), lambda: _lines(frame, found))
    if not found and frame.out.for_people:
        tell("Nothing is waiting for an answer.")


def _lines(frame: Frame, found: list[tuple[Session, Approval]]) -> Iterator[str]:
    for session, asked in found:
        short = frame.out.paint(frame.short(session.id), "cyan")
        title = line(session.title or session.name or "untitled")
        yield f"{short} {title}  asked {times.ago(asked.asked_at)}"
        yield f"  {question(asked)}"
        yield f"  takeback approve {frame.short(session.id)} --call {line(asked.call.id)}, or deny"


def question(asked: Approval) -> str:
    """Return the call that asks, and the question."""
    what = f"{line(asked.call.name)} {line(documents.compact(asked.call.arguments))[:200]}"
    return f"{what}: {line(asked.question)}" if asked.question else what


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
    what = question(asked)
    if frame.settings.dry_run:
        tell(f"Dry run: would {'approve' if approved else 'deny'} {what}.")
        return
    done = session.answer_approval(asked.call, approved, by=_person(), note=note)
    said = f"{'Approved' if approved else 'Denied'} {what} (asked {times.ago(done.asked_at)})"
    frame.out.one("approval", document(session, done), lambda: [said])


def _asked(frame: Frame, session: Session, wanted: str | None) -> Approval:
    """Find the question to answer: the only one waiting, or the one whose call was named."""
    short = frame.short(session.id)
    waiting = [each for each in session.approvals() if each.approved is None]
    found = [each for each in waiting if wanted is None or each.call.id.startswith(wanted)]
    if not waiting:
        raise Stop(f"{short} is not waiting for an answer", CONFLICT)
    if len(found) == 1:
        return found[0]
    listed = "\n".join(f"  --call {line(each.call.id)}  {question(each)}" for each in found or waiting)
    if not found:
        raise Stop(f"{short} does not ask about call {wanted!r}; it asks about:\n{listed}", NOT_FOUND)
    raise Stop(f"{short} asks about {len(found)} calls; name one:\n{listed}", CONFLICT)


def _person() -> str | None:
    """Return the name of the user who answers; None in a container without a user database."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def document(session: Session, done: Approval) -> dict[str, Any]:
    """Describe a question and its answer."""
    return {
        "id": done.call.id,
        "session_id": session.id,
        "call": documents.call(done.call),
        "question": done.question,
        "status": done.status,
        "by": done.by,
        "note": done.note,
        "asked_at": rfc3339(done.asked_at),
        "answered_at": rfc3339(done.answered_at),
    }


COMMANDS = {"waiting": waiting, "approve": approve, "deny": deny}
