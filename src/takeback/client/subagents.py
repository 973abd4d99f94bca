"""A session and others: its sub-agents, messages between sessions, a person's yes or no.

Whatever is sent, spawned or asked is in the store before the call returns. Any process that has the store open can pick
it up, on this machine or, with PostgreSQL, on another.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from .. import codec
from ..errors import Invalid
from ..ids import new_id
from ..model.message import Message
from ..model.status import ACTIVE
from ..model.subagents import Sent, Spawned, Tree
from ..model.tools import ToolCall
from ..ops import approvals, calls, inbox, subagents
from ..storage.runner import ALONE
from . import arguments, waiting
from .work import Working

if TYPE_CHECKING:
    from ..model.approval import Approval
    from .agent import Agent
    from .session import Session

_LARGEST = 1 << 20


class Subagents(Working):
    """The part of a session that deals with others: sub-agents, messages, approvals."""

    # ------------------------------------------------------------------ sub-agents

    def spawn(
        self,
        task: str,
        *,
        label: str | None = None,
        agent: str | Agent | None = None,
        workspace: str | PathLike[str] | None = None,
        model: str | None = None,
        call_id: str | ToolCall | None = None,
        metadata: Mapping[str, Any] | None = None,
        wait: float = 0,
        idempotency_key: str | None = None,
    ) -> Spawned[Session]:
        """Start a sub-agent for a task: a session below this one, by default with the same agent and workspace.

        ``call_id`` is the tool call that asked for it: spawning again for the same call returns the same sub-agent.
        So does the same ``idempotency_key``, even after a crash, and ``wait`` is how many seconds entering it waits for
        whoever still runs it. Raises ``Conflict`` if a sub-agent of this session has the label already, or if this
        session is finished.
        """
        call = None if call_id is None else self._call_of(call_id)
        key = idempotency_key if call is None or idempotency_key is not None else f"spawn {call.idempotency_key}"
        return self._store.spawn(
            task,
            parent=self,  # type: ignore[arg-type]
            label=label,
            agent=self._seen.agent if agent is None else agent,
            workspace=self._seen.workspace or None if workspace is None else workspace,
            model=model,
            metadata={
                **arguments.mapping(metadata or {}, what="metadata"),
                **({} if call is None else {"call_id": call.id}),
            },
            wait=wait,
            idempotency_key=key,
        )

    def _call_of(self, call: str | ToolCall) -> ToolCall:
        if isinstance(call, ToolCall) and call.entry_id:
            return call
        wanted = arguments.name(call.id if isinstance(call, ToolCall) else call, what="tool call id")
        return self._ask(calls.require_open, wanted)

    def children(self) -> list[Session]:
        """List its sub-agents in the order they were started."""
        found = self._ask(subagents.children)
        return [self._store._session(*each) for each in found if not each[0].hidden]

    def tree(self) -> Tree:
        """Return the session with all sub-agents below it: status, time, and what each and all of them spent."""
        return self._ask(subagents.tree, self._store._is_gone, self._store._clock.now_ms())

    def wait(self, *children: str | Session, timeout: float | None = None) -> list[Session]:
        """Wait until sub-agents have ended, by default all of them; return those that have, in order.

        One whose process is gone has ended too, with the status ``interrupted``. After ``timeout`` seconds the list may
        hold fewer than were waited for.
        """
        seconds = None if timeout is None else arguments.seconds(timeout, what="timeout")
        store = self._store
        wanted = [_id_of(each) for each in children] or [child.id for child in self.children()]
        found = list[Any]()

        def check() -> list[Any] | None:
            found[:] = [store.get_session(each) for each in wanted]
            return found if all(each.status != ACTIVE for each in found) else None

        waiting.until(store, check, seconds)
        return [each for each in found if each.status != ACTIVE]

    def stop(self, subtree: bool = True, *, reason: str | None = None, idempotency_key: str | None = None) -> None:
        """Stop the session and all active sub-agents below it: none of them accepts messages any more."""
        self._end_all("stopped", subtree, reason, idempotency_key)

    def timeout(self, subtree: bool = True, *, reason: str | None = None, idempotency_key: str | None = None) -> None:
        """End the session and all active sub-agents below it because time ran out."""
        self._end_all("timeout", subtree, reason, idempotency_key)

    def _end_all(self, status: str, below: bool, reason: str | None, key: str | None) -> None:
        arguments.flag(below, what="subtree")
        why = None if reason is None else arguments.text(reason, what="reason")
        call = self._store._call(key, [status, below, why])
        self._saw(*self._do_as(ALONE, subagents.end_once, self._store.scope, self.id, call, status, why, below=below))

    # ------------------------------------------------------------------ messages

    def send(
        self,
        text: str,
        *,
        sender: str | Session | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Sent:
        """Put a message into its inbox, from any process; ``receive`` turns it into a user message exactly once.

        Raises ``Conflict`` if the session is finished. ``sender`` is the session that sends it.
        """
        said = arguments.text(text, what="message")
        if not said.strip() or len(said) > _LARGEST:
            raise Invalid("the text must have 1 to 1,000,000 characters")
        own = {} if metadata is None else arguments.mapping(metadata, what="metadata")
        sender_id = None if sender is None else _id_of(sender)
        store = self._store
        call = store._call(idempotency_key, ["send", said, own, sender_id])
        id = new_id(call.now_ms)
        about = {**own, "sent_id": id, **({} if sender_id is None else {"sender": sender_id})}
        body = codec.encode({"role": "user", "content": said, "metadata": about})
        sent = inbox.SentRow(store.scope, 0, 0, id, sender_id, call.now_ms, body, 0)
        return _sent(self.id, store._write(inbox.send_once, self.id, call, sent))

    def receive(self, limit: int | None = None, wait: float = 0) -> list[Message]:
        """Take messages out of the inbox, in order, and append them as user messages, once; durable at return.

        At most 200 at a time. If there are none it waits up to ``wait`` seconds for the first.
        """
        most = None if limit is None else arguments.whole(limit, what="limit", low=1)
        return (
            waiting.until(self._store, lambda: self._receive(most) or None, arguments.seconds(wait, what="wait")) or []
        )

    def _receive(self, limit: int | None) -> list[Message]:
        now_ms = self._store._clock.now_ms()
        if not self._ask(inbox.waiting, 1):
            return []
        done = self._do(inbox.receive_waiting, self._store.scope, self.id, limit, now_ms=now_ms)
        return [] if done is None else self._shown(done[0], done[1], now_ms)

    def inbox(self) -> list[Sent]:
        """List the messages that wait to be received, in order: the first 200."""
        return [_sent(self.id, each) for each in self._ask(inbox.waiting)]

    # ------------------------------------------------------------------ approvals

    def ask_approval(self, call: ToolCall | str, question: str | None = None, *, wait: float = 0) -> Approval:
        """Ask a person to approve a call and wait up to ``wait`` seconds; a call is only ever asked about once.

        The question is in the store: ``answer_approval`` answers it from any process, even after a restart. The
        returned approval is true only if the answer was yes.
        """
        wanted = arguments.name(call.id if isinstance(call, ToolCall) else call, what="tool call id")
        text = None if question is None else arguments.text(question, what="question")
        seconds, now_ms = arguments.seconds(wait, what="wait"), self._store._clock.now_ms()

        self._seen, asked = self._do(approvals.ask, self._store.scope, self.id, wanted, text, now_ms=now_ms)

        def check() -> Approval | None:
            found = self._ask(approvals.find, wanted)
            return found if found is not None and found.approved is not None else None

        found = waiting.until(self._store, check, seconds)
        return asked if found is None else found

    def answer_approval(
        self, call: ToolCall | str, approved: bool, *, by: str | None = None, note: str | None = None
    ) -> Approval:
        """Answer the question about a call; raises ``NotFound`` if none was asked, ``Conflict`` if it was answered."""
        wanted = arguments.name(call.id if isinstance(call, ToolCall) else call, what="tool call id")
        arguments.flag(approved, what="approved")
        said = {
            "approved": approved,
            "by": arguments.optional_name(by, what="by"),
            "note": None if note is None else arguments.text(note, what="note"),
        }
        store = self._store
        # Not through ``_do``: whoever answers need not hold the session.
        self._seen, found = store._write(
            approvals.answer, store.scope, self.id, wanted, said, now_ms=store._clock.now_ms()
        )
        return found


def _id_of(session: object) -> str:
    """Return what names a session: the handle's id, or the id, key or name that was given."""
    return arguments.name(session.id if isinstance(session, Subagents) else session, what="session")


def _sent(session_id: str, row: inbox.SentRow) -> Sent:
    text = None if row.body is None else codec.decode(row.body)["content"]
    return Sent(row.id, session_id, row.n, text, row.sender, row.at_ms, row.body is None)
