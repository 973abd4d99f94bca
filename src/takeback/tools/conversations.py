"""The tools that keep conversations: what people and agents said, saved, loaded, listed, searched, deleted.

A conversation is a session; these tools keep what was said in it and leave tools, tasks and files to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ..errors import Conflict
from ..shell.secrets import mask
from .answers import (
    MOST,
    NOTE,
    TEXT,
    Data,
    HitSeen,
    MessageSeen,
    OperationSeen,
    SessionLine,
    ToolAnswer,
    fitting,
    message,
    operation,
    session_lines,
)
from .bound import BoundStore
from .digests import digest_of, require
from .history import hits
from .parameters import Cursor, Digest, Limit, MaybeAgent, SessionRef

if TYPE_CHECKING:
    from ..client.session import Session
    from ..model.message import Message


class GivenMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message to save."""

    role: Literal["user", "assistant", "system"]
    content: Annotated[str, Meta(description="Its text.")]
    id: Annotated[str, Meta(description="An id of your own; a message is saved once per id.")] | None = None
    model: Annotated[str, Meta(description="The model that wrote it.")] | None = None


class ConversationSaved(ToolAnswer, frozen=True, kw_only=True):
    """A conversation was saved."""

    conversation: str
    created: bool
    added: int
    messages: int


class ConversationLoaded(Data, frozen=True, kw_only=True, omit_defaults=True):
    """A portion of a conversation; pass ``next_after`` as ``after`` for what follows."""

    conversation: SessionLine
    messages: list[MessageSeen]
    next_after: int | None = None


class Conversations(Data, frozen=True, kw_only=True, omit_defaults=True):
    """A page of conversations."""

    conversations: list[SessionLine]
    cursor: str | None = None


class ConversationsFound(Data, frozen=True, kw_only=True, omit_defaults=True):
    """What a search found, one hit for each conversation."""

    hits: list[HitSeen]
    notes: list[str] = msgspec.field(default_factory=list)
    cursor: str | None = None


class ConversationDeletion(Data, frozen=True, kw_only=True, omit_defaults=True):
    """What deleting a conversation would do, or the operation that did it."""

    deleted: bool
    digest: str = ""
    conversation: SessionLine | None = None
    sub_agents: list[SessionLine] = msgspec.field(default_factory=list)
    operation: OperationSeen | None = None


def conversation_save(
    here: BoundStore,
    conversation: Annotated[str, Meta(description="Its name, or the id of one that exists.", min_length=1)],
    messages: Annotated[list[GivenMessage], Meta(description="The messages, oldest first.", max_length=1000)],
    mode: Annotated[
        Literal["extend", "append", "replace"],
        Meta(
            description="extend (default): messages are the whole conversation; those stored already are passed over,"
            " and it is refused if they differ. append: messages are new and go to the end. replace: messages are the"
            " whole conversation; where they differ from what is stored they take its place, which stays on a branch"
            " of its own."
        ),
    ] = "extend",
    title: Annotated[str, Meta(description="A title for lists.", max_length=200)] | None = None,
    agent: MaybeAgent = None,
) -> ConversationSaved:
    """Save a conversation: make it if it is new, else add to it. Nothing that was saved is lost."""
    owner = agent or here.agent
    found = here.store.find_session(conversation, agent=owner)
    created = found is None
    session = found or here.store.create_session(conversation, agent=owner, title=title)
    before = session.message_count
    _write(session, messages, mode)
    if title is not None and session.title != title:
        session.rename(title)
    session.refresh()
    return ConversationSaved(
        conversation=session.id,
        created=created,
        added=max(0, session.message_count - before),
        messages=session.message_count,
    )


def _write(session: Session, messages: Sequence[GivenMessage], mode: str) -> None:
    session.refresh()
    revision, items = session.revision, [_item(each) for each in messages]
    if mode == "append":
        if items:
            session.append(*items, existing="skip")
        return
    stored = [each for each in session.iter_messages(tools=False) if each.role in ("user", "assistant", "system")]
    same = _same(stored, messages)
    if same < min(len(stored), len(messages)) or (mode == "replace" and len(messages) < len(stored)):
        if mode != "replace":
            raise Conflict(
                f"message {same + 1} is not the one that is stored there (entry {stored[same].seq}). To add messages to"
                " the end, use mode 'append'; to put these in its place, mode 'replace'. Nothing was saved",
                expected=messages[same].content[:80],
                found=stored[same].text[:80],
            )
        session.replace_tail(stored[same].seq, items[same:], revision)
    elif items[len(stored) :]:
        session.append(*items[len(stored) :], expected_revision=revision)


def _same(stored: Sequence[Message], given: Sequence[GivenMessage]) -> int:
    """Return how many messages from the beginning are equal."""
    for number, (there, here) in enumerate(zip(stored, given, strict=False)):
        if there.role != here.role or there.text != here.content:
            return number
    return min(len(stored), len(given))


def _item(given: GivenMessage) -> dict[str, Any]:
    fields = {"role": given.role, "content": given.content, "id": given.id, "model": given.model}
    return {name: value for name, value in fields.items() if value is not None}


def conversation_load(
    here: BoundStore,
    conversation: SessionRef,
    after: Annotated[int, Meta(description="Begin behind the message with this seq; 0 is the beginning.", ge=0)] = 0,
    limit: Limit = 20,
) -> ConversationLoaded:
    """Load a conversation from its beginning, or from behind a message."""
    session = here.session(conversation)
    found = session.messages(limit=limit, after=after)
    shown = fitting((message(each, TEXT) for each in found), MOST)
    more = len(shown) < len(found) or len(found) == limit
    following = shown[-1].seq if shown and more else 0
    return ConversationLoaded(
        note=NOTE,
        conversation=session_lines([session])[0],
        messages=shown,
        next_after=following if following and following < session.head.seq else None,
    )


def conversation_list(
    here: BoundStore,
    agent: MaybeAgent = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> Conversations:
    """List conversations, the last changed first; those of one agent if it is named."""
    found = here.store.list_sessions(agent=agent, limit=limit, cursor=cursor)
    return Conversations(note=NOTE, conversations=session_lines(found), cursor=found.cursor)


def conversation_search(
    here: BoundStore,
    query: Annotated[str, Meta(description='Words, "a phrase", begin*, -without, one OR other.', min_length=1)],
    agent: MaybeAgent = None,
    limit: Limit = 20,
    cursor: Cursor = None,
) -> ConversationsFound:
    """Search conversations by what was said in them; one hit for each, the best first."""
    found = here.searched.search(query, agent=agent, group="session", limit=limit, cursor=cursor, hide=mask)
    return ConversationsFound(note=NOTE, hits=hits(found), notes=[*found.notes], cursor=found.cursor)


def conversation_delete(here: BoundStore, conversation: SessionRef, digest: Digest = None) -> ConversationDeletion:
    """Delete a conversation with its sub-agents: they go to the trash, and undo_operation brings them back.

    In two steps: called without a digest it only says what would go.
    """
    session = here.session(conversation)
    below = session.children()
    now = digest_of("conversation_delete", session.id, session.revision, [(each.id, each.revision) for each in below])
    if digest is not None:
        require(digest, now, f"deleting conversation {conversation!r}")
        done = here.store.delete_session(session)
        return ConversationDeletion(note=NOTE, deleted=True, operation=None if done is None else operation(done))
    return ConversationDeletion(
        note=NOTE,
        deleted=False,
        digest=now,
        conversation=session_lines([session])[0],
        sub_agents=session_lines(below[:20]),
    )
