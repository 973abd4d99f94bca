"""The tools that read history: searched, listed, read around a point."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta

from ..errors import Invalid
from ..model.message import Message
from ..shell.secrets import mask
from ..shell.times import parse_moment
from .answers import (
    ALL,
    MOST,
    NOTE,
    TEXT,
    CallSeen,
    CheckpointSeen,
    Data,
    HitSeen,
    MessageSeen,
    SessionLine,
    ToolAnswer,
    checkpoint,
    cut,
    fitting,
    hit,
    line,
    message,
    session_lines,
)
from .bound import BoundStore
from .parameters import SESSION, Cursor, Limit, MaybeAgent, MaybeSession, SessionRef, Since

if TYPE_CHECKING:
    from datetime import datetime

    from ..client.session import Session
    from ..model.search import Hit

_PROMPTS = 10
_SHOWN = 20


class HitsFound(Data, frozen=True, kw_only=True, omit_defaults=True):
    """What a search found, best first; ``notes`` say what was done otherwise than asked."""

    hits: list[HitSeen]
    notes: list[str] = msgspec.field(default_factory=list)
    cursor: str | None = None


class Sessions(Data, frozen=True, kw_only=True, omit_defaults=True):
    """A page of sessions."""

    sessions: list[SessionLine]
    cursor: str | None = None


class PromptSeen(ToolAnswer, frozen=True, kw_only=True):
    """What was asked at the beginning of a turn."""

    turn: int
    seq: int
    text: str


class BranchSeen(ToolAnswer, frozen=True, kw_only=True, omit_defaults=True):
    """A branch of a session."""

    name: str
    parent: str = ""
    forked_at: int = 0
    tip: int
    is_head: bool = False


class TaskSeen(ToolAnswer, frozen=True, kw_only=True):
    """A task of a session."""

    description: str
    status: str


class SessionSeen(Data, frozen=True, kw_only=True, omit_defaults=True):
    """A session at a glance: ``read_messages`` reads what was said, ``diff_points`` what changed."""

    session: SessionLine
    key: str
    parent_id: str = ""
    stopped: str = ""
    latest_prompts: list[PromptSeen] = msgspec.field(default_factory=list)
    last_answer: str = ""
    plan: str = ""
    tasks: list[TaskSeen] = msgspec.field(default_factory=list)
    more_tasks: int = 0
    open_calls: list[CallSeen] = msgspec.field(default_factory=list)
    files_touched: list[str] = msgspec.field(default_factory=list)
    more_files: int = 0
    branches: list[BranchSeen] = msgspec.field(default_factory=list)
    checkpoints: list[CheckpointSeen] = msgspec.field(default_factory=list)
    sub_agents: list[SessionLine] = msgspec.field(default_factory=list)


class Messages(Data, frozen=True, kw_only=True, omit_defaults=True):
    """Messages in their order. ``older`` is to be passed as ``before``, ``newer`` as ``after``, for those beyond."""

    session_id: str
    messages: list[MessageSeen]
    older: int | None = None
    newer: int | None = None


def search_history(
    here: BoundStore,
    query: Annotated[
        str,
        Meta(
            description='Words, all of which must be there; "a phrase", begin*, -without, one OR other. May be empty if'
            " path, tool or kinds is given."
        ),
    ],
    session: MaybeSession = None,
    agent: MaybeAgent = None,
    everywhere: Annotated[
        bool, Meta(description="Whether to search the sessions of all directories; true by default.")
    ] = True,
    kinds: Annotated[
        list[Literal["message", "call", "result", "plan", "task", "note", "summary", "file", "title"]],
        Meta(description="Only what is of these kinds."),
    ]
    | None = None,
    roles: Annotated[list[Literal["user", "assistant", "system", "tool"]], Meta(description="Only what these said.")]
    | None = None,
    tool: Annotated[str, Meta(description="Only calls and results of this tool.")] | None = None,
    path: Annotated[str, Meta(description="Only what names this file, or a part of its path.")] | None = None,
    since: Since = None,
    branches: Annotated[
        bool, Meta(description="Whether to search branches that were left by a rewind too; false by default.")
    ] = False,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> HitsFound:
    """Search everything that was said and done in earlier sessions: messages, tool calls and their output, plans,
    tasks, notes, files, titles. Best hits first; parts of words and identifiers are found too.
    """
    found = here.searched.search(
        query,
        session=None if session is None else here.session(session).id,
        agent=agent,
        workspace=None if everywhere else here.workspace,
        kinds=kinds or (),
        roles=roles or (),
        tool=tool,
        path=path,
        since=_moment(since),
        branches=branches,
        limit=limit,
        cursor=cursor,
        hide=mask,
    )
    return HitsFound(note=NOTE, hits=hits(found), notes=[*found.notes], cursor=found.cursor)


def hits(found: Iterable[Hit]) -> list[HitSeen]:
    """Describe the hits of a search."""
    return [hit(each) for each in found]


def _moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else parse_moment(text)
    except ValueError as error:
        raise Invalid(f"since: {error}") from None


def list_sessions(
    here: BoundStore,
    everywhere: Annotated[
        bool, Meta(description="Whether to list the sessions of all directories; true by default.")
    ] = True,
    agent: MaybeAgent = None,
    status: Annotated[
        Literal["active", "completed", "error", "timeout", "stopped", "interrupted"],
        Meta(description="Only sessions with this status."),
    ]
    | None = None,
    parent: Annotated[str, Meta(description="Only the sub-agents of this session.")] | None = None,
    tag: Annotated[str, Meta(description="Only sessions with this tag.")] | None = None,
    since: Since = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Sessions:
    """List sessions, the last changed first."""
    found = here.store.list_sessions(
        workspace=None if everywhere else here.workspace,
        agent=agent,
        status=status,
        parent=None if parent is None else here.session(parent).id,
        tag=tag,
        since=_moment(since),
        limit=limit,
        cursor=cursor,
    )
    return Sessions(note=NOTE, sessions=session_lines(found), cursor=found.cursor)


def get_session(here: BoundStore, session: SessionRef) -> SessionSeen:
    """See a session at a glance: what was asked last, its plan and tasks, what is open, its branches, checkpoints,
    files and sub-agents. Read this first, and then what you need of it.
    """
    found = here.session(session)
    said = [each for each in found.messages(limit=200, tools=False) if each.text.strip()]
    prompts = [each for each in said if each.role == "user"][-_PROMPTS:]
    answers = [each for each in said if each.role == "assistant"]
    tasks, files, below = found.tasks(), found.files(), found.children()
    return SessionSeen(
        note=NOTE,
        session=session_lines([found])[0],
        key=cut(found.key, TEXT),
        parent_id=found.parent_id or "",
        stopped=_stopped(found),
        latest_prompts=[PromptSeen(turn=each.turn, seq=each.seq, text=cut(each.text, 500)) for each in prompts],
        last_answer=cut(answers[-1].text, TEXT) if answers else "",
        plan=cut(found.get_plan(), TEXT),
        tasks=[TaskSeen(description=line(each.description), status=each.status) for each in tasks[:_SHOWN]],
        more_tasks=max(0, len(tasks) - _SHOWN),
        open_calls=[CallSeen(id=cut(each.id), name=cut(each.name)) for each in found.pending_calls()[:_SHOWN]],
        files_touched=[f"{each.action} {cut(each.path, TEXT)}" for each in files[-_SHOWN:]],
        more_files=max(0, len(files) - _SHOWN),
        branches=[
            BranchSeen(
                name=cut(each.name),
                parent=cut(each.parent),
                forked_at=each.fork_seq or 0,
                tip=each.head_seq,
                is_head=each.is_head,
            )
            for each in found.branches()[-_SHOWN:]
        ],
        checkpoints=[checkpoint(each) for each in found.checkpoints(limit=10, newest=True)],
        sub_agents=session_lines(below[:_SHOWN]),
    )


def _stopped(found: Session) -> str:
    """Describe how its last run ended, if it did not end well."""
    if found.status == "interrupted":
        return "it was cut off" + (f" in turn {found.stopped_at}" if found.stopped_at is not None else "")
    return line(found.error) if found.status in ("error", "timeout", "stopped") and found.error else ""


def read_messages(
    here: BoundStore,
    session: Annotated[
        str, Meta(description=f"A session ({SESSION}), or a point of it, such as the ref of a hit.", min_length=1)
    ],
    around: Annotated[int, Meta(description="Read the messages around this seq.", ge=0)] | None = None,
    after: Annotated[int, Meta(description="Read the first messages behind this seq.", ge=0)] | None = None,
    before: Annotated[int, Meta(description="Read the last messages before this seq.", ge=1)] | None = None,
    limit: Limit = 20,
    tools: Annotated[bool, Meta(description="Whether to show tool calls and results; true by default.")] = True,
    max_chars: Annotated[
        int, Meta(description="Cut each text to so many characters, 100 to 50000; 2000 by default.", ge=100, le=50_000)
    ] = TEXT,
) -> Messages:
    """Read what was said in a session: its last messages, or with a point or ``around`` those around it, such as the
    ref of a hit. Long texts are cut; read one message with a larger max_chars to see all of it.
    """
    if sum(each is not None for each in (around, after, before)) > 1:
        raise Invalid("give only one of around, after and before")
    found, point = here.maybe_point(session)
    if point is not None:
        found.stats(at=point)  # refuses a point that is not there
    at = None if point is None or isinstance(point, int) else point
    if isinstance(point, int) and around is after is before is None:
        around = point
    if around is not None:
        behind = found.messages(limit=limit - limit // 2, after=around, tools=tools, at=at)
        ahead = found.messages(limit=limit // 2, before=around + 1, tools=tools, at=at)
        messages = [*ahead, *behind]
    else:
        messages = found.messages(limit=limit, after=after, before=before, tools=tools, at=at)
    return _portion(found, messages, max_chars, newest=after is None and around is None)


def _portion(found: Session, messages: list[Message], most: int, *, newest: bool) -> Messages:
    """Return as many messages as fit, and where to read on."""
    room = min(ALL, max(MOST, most))
    shown = [message(each, most) for each in messages]
    kept = fitting(reversed(shown), room)[::-1] if newest else fitting(shown, room)
    first, last = (kept[0].seq, kept[-1].seq) if kept else (0, 0)
    older = next(iter(found.messages(limit=1, before=first)), None) if first else None
    return Messages(
        note=NOTE,
        session_id=found.id,
        messages=kept,
        older=first if older is not None else None,
        newer=last if last and last < found.head.seq else None,
    )


def first_prompt(session: Session, seq: int) -> PromptSeen | None:
    """Return what the user asked last before an entry."""
    spoken = reversed(session.messages(limit=20, before=seq + 1, tools=False))
    for each in islice(spoken, 20):
        if each.role == "user":
            return PromptSeen(turn=each.turn, seq=each.seq, text=cut(each.text, 500))
    return None
