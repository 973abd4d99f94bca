"""What contexts, summaries and documents need of a session besides its messages, each read at one moment."""

from __future__ import annotations

from collections.abc import Callable

from .. import codec
from ..clock import to_datetime
from ..model.about import About, Brief
from ..model.session import Stats
from ..model.work import Compaction
from ..storage.base import Tx
from . import agents, calls, checkpoints, sessions, work
from .listing import shown_status
from .points import Target, seen_from
from .sessions import LeaseRow, SessionRow, Whole

Denied = dict[tuple[int, str], str]  # calls by seq and id, with what a model is told of each


def for_context(
    tx: Tx, session: SessionRow, target: Target | None
) -> tuple[SessionRow, str | None, Compaction | None, Denied]:
    """Return a session as it is, or was at a point, its agent's prompt, the compaction in force, and denied calls."""
    agent = agents.find(tx, session.scope, session.agent)
    prompt = None if agent is None else codec.decode(agent.fields).get("system_prompt")
    there = seen_from(tx, session, target)
    return there, prompt, work.compaction(tx, there), calls.denied_open(tx, there)


def brief(tx: Tx, session: SessionRow) -> Brief:
    """Return what a summary says about a session."""
    plan = work.text_at(tx, session, "plan")
    return Brief(
        session.title, session.workspace or None, work.task_list(tx, session), work.file_list(tx, session), plan
    )


def for_document(
    tx: Tx, session: SessionRow, target: Target | None, is_gone: Callable[[LeaseRow], bool]
) -> tuple[Whole, SessionRow, About]:
    """Return a session, the session as it was at a point if one is given, and what a document says about it."""
    whole = sessions.with_rest(tx, session)
    there = seen_from(tx, session, target)
    return whole, there, _about(tx, there, whole[1], shown_status(whole, is_gone))


def _about(tx: Tx, row: SessionRow, doc: bytes, status: str) -> About:
    details = sessions.decoded(doc)
    return About(
        id=row.id,
        title=row.title,
        status="in the trash" if row.hidden else status,
        created=to_datetime(row.created_ms),
        model=details.get("model"),
        provider=details.get("provider"),
        workspace=row.workspace or None,
        stats=Stats.from_numbers(row.numbers, started_ms=row.created_ms),
        tasks=work.task_list(tx, row),
        files=work.file_list(tx, row),
        notes=work.note_list(tx, row),
        plan=work.text_at(tx, row, "plan"),
        written=work.text_at(tx, row, "walkthrough"),
        checkpoints=checkpoints.page(tx, row, checkpoints.EVERY)[0],
    )
