"""Recording what Claude Code passes to its hooks: prompts, tool calls with results, and the files around each call.

Each event is a separate process, so nobody holds the session's lease: a call opened by ``PreToolUse`` is finished by
``PostToolUse``, which finds it by its id. What runs the tool is Claude Code, so its process is recorded with the call.
Files are scanned before a tool runs and before its result is stored: what changed in between is attributed to the call,
what changes while no call is open to the user.

A call that was denied or interrupted ends without an event. Its end is looked up in the transcript: what changed after
it is not the call's. If the transcript does not tell, the call is closed when the turn ends, and what changed since its
last sign of life is unclear.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ..client.session import Session
from ..client.store import Store
from ..errors import Conflict, Error, Invalid, NotFound
from ..model.work import TASK_STATES, Task
from . import claude_transcript

if TYPE_CHECKING:
    from ..model.tools import ToolCall
    from .claude_transcript import CallEnd

AGENT = "claude-code"
CAPTURE_OFF = "files are not captured"  # a key in the session's state; its value is the reason
UNTOLD = "no result was reported"

# Tools that change no files: scanning around them would only cost time.
READERS = {
    *("Read", "Glob", "Grep", "LS", "NotebookRead", "WebFetch", "WebSearch", "TodoWrite", "BashOutput", "TaskOutput"),
    *("AskUserQuestion", "ToolSearch", "ListMcpResourcesTool", "ReadMcpResourceTool"),
}


class Event(NamedTuple):
    """One event as received, with the project's directory and the parent session, if any."""

    data: Mapping[str, Any]
    project: str | None = None
    parent: str | None = None

    @property
    def name(self) -> str:
        """The event's name."""
        return str(self.data.get("hook_event_name") or "")

    def text(self, field: str) -> str | None:
        """Return a field if it is a string that is not blank."""
        found = self.data.get(field)
        return found if isinstance(found, str) and found.strip() else None


class Hook:
    """Records one event of Claude Code."""

    def __init__(self, store: Store, event: Event) -> None:
        self._store, self.event = store, event
        self._made: Session | None = None
        self.looking = False
        self.unseen: str | None = None  # why the files could not be scanned

    def record(self) -> None:
        """Record the event; an unknown one is ignored."""
        if step := _STEPS.get(self.event.name):
            step(self)

    # ------------------------------------------------------------------ the sessions

    def session(self, *, reopen: bool = True) -> Session:
        """Return the session of this run of Claude Code; create it if it is new, reopen it if it had ended."""
        if self._made is None:
            wanted = self.event.text("session_id")
            if wanted is None:
                raise Invalid("the event names no session_id")
            name = f"claude-{wanted}"
            self._made = self._scanned_by_us(self._store.find_session(name, agent=AGENT) or self._new(name, wanted))
        if reopen and self._made.status == "completed":
            _reopened(self._made)
        return self._made

    def _scanned_by_us(self, session: Session) -> Session:
        """Return a session that scans no files by itself: the events say when that is needed."""
        return self._store.session(session, hold=False, capture="manual")

    def _new(self, name: str, session_id: str) -> Session:
        event, fields = self.event, dict[str, Any]()
        if event.parent is not None:
            fields = {"kind": "subagent", "parent": event.parent}
        about = {"session_id": session_id, "transcript_path": event.text("transcript_path")}
        place = event.project or event.text("cwd")
        return self._store.session(
            name,
            agent=AGENT,
            workspace=place if place and os.path.isdir(place) else None,  # recorded even if the directory is gone
            hold=False,
            provider="anthropic",
            model=event.text("model"),
            metadata={"claude_code": about},
            **fields,
        )

    def speaker(self) -> Session:
        """Return the session of whoever acts: the main agent's, or the sub-agent's own."""
        agent_id = self.event.text("agent_id")
        return self.session() if agent_id is None else self._child(agent_id)

    def _child(self, agent_id: str) -> Session:
        main, label = self.session(), agent_id[:100]
        found = self._labelled(main, label)
        if found is None:
            try:
                made = main.spawn(self.event.text("agent_type") or "sub-agent", label=label).session
                return self._scanned_by_us(made)
            except Conflict:  # a concurrent hook created it first
                found = self._labelled(main, label)
                if found is None:
                    raise
        if found.status == "completed":
            _reopened(found)
        return self._scanned_by_us(found)

    def _labelled(self, main: Session, label: str) -> Session | None:
        return next(iter(self._store.list_sessions(parent=main, label=label, archived=None, limit=1)), None)

    # ------------------------------------------------------------------ files

    def look(self, session: Session, **known: Any) -> None:
        """Scan the workspace, unless that was too slow before; a failed scan must not stop the event's record.

        What is ``known`` of open calls is passed on.
        """
        if self.session(reopen=False).state.get(CAPTURE_OFF) is not None:
            return
        self.looking = True
        try:
            session.capture_files(**known)
        except (Error, OSError) as error:
            self.unseen = str(error)
        self.looking = False

    def give_up_files(self, why: str) -> None:
        """Stop scanning until Claude Code starts again, so that it does not wait for us at every call."""
        self.session(reopen=False).state.set(CAPTURE_OFF, why)

    # ------------------------------------------------------------------ events

    def start(self) -> None:
        """Record that Claude Code started, or resumed a conversation."""
        session = self.session()
        if session.state.get(CAPTURE_OFF) is not None:
            session.state.delete(CAPTURE_OFF)
        self._close(session)
        self._close_subagents(session)
        self.look(session)

    def prompt(self) -> None:
        """Record a prompt."""
        session, text = self.session(), self.event.text("prompt")
        self._close(session)
        self._close_subagents(session, ended=True)
        self.look(session)
        if text is not None:
            session.user(text)

    def before_tool(self) -> None:
        """Record that a tool is about to run."""
        session = self.speaker()
        self._close(session, ended=True)
        if self._changes_files():
            self.look(session)
        self._begin(session)

    def after_tool(self) -> None:
        """Record that a tool succeeded."""
        self._finish(self.event.data.get("tool_response"), success=True)

    def after_failure(self) -> None:
        """Record that a tool failed."""
        self._finish(self.event.text("error") or "failed", success=False)

    def subagent_start(self) -> None:
        """Record that a sub-agent started."""
        self.speaker()

    def subagent_stop(self) -> None:
        """Record that a sub-agent ended."""
        if self.event.text("agent_id") is not None:
            self._ended(self.speaker())

    def stop(self) -> None:
        """Record Claude's answer, which ends the turn."""
        session, said = self.session(), self.event.text("last_assistant_message")
        self._close(session)
        if said is not None:
            session.assistant(said)

    def end(self) -> None:
        """Record that Claude Code exited."""
        session = self.session(reopen=False)
        self._close(session)
        self._close_subagents(session)
        if session.status != "completed":
            session.complete({"reason": self.event.text("reason")})

    # ------------------------------------------------------------------ calls

    def _changes_files(self) -> bool:
        return self.event.data.get("tool_name") not in READERS

    def _begin(self, session: Session) -> None:
        """Store that a call started, and leave it open when this process exits; a running call is stored once."""
        name = self.event.text("tool_name") or "tool"
        session.tool(name, self.event.data.get("tool_input"), id=self.event.text("tool_use_id")).__enter__()

    def _finish(self, content: Any, *, success: bool) -> None:
        session = self.speaker()
        call = self._open_call(session)
        self._close(session, ended=True)
        if self._changes_files():  # this event says that the call was at work until now
            self.look(session, calls=[call, *(each.id for each in session.pending_calls() if each.id != call)])
        duration = self.event.data.get("duration_ms")
        seconds = duration / 1000 if isinstance(duration, int | float) and duration >= 0 else None
        session.tool_result(call, content, success=success, duration=seconds)
        if success:
            self._take_tasks(session)

    def _open_call(self, session: Session) -> str:
        """Return the id of the call that the event is about; one never reported, or closed meanwhile, is opened now.

        Older versions of Claude Code send no id: then it is the latest open call with the same name and arguments.
        """
        call_id = self.event.text("tool_use_id")
        if call_id is not None:
            try:
                self._begin(session)
            except Conflict:  # its status is unknown, as another process held the session; the result says that it ran
                pass
            return call_id
        asked = self.event.text("tool_name") or "tool", self.event.data.get("tool_input")
        found = [call.id for call in session.pending_calls() if (call.name, call.arguments) == asked]
        if not found:
            self._begin(session)
            return self._open_call(session)
        return found[-1]

    def _take_tasks(self, session: Session) -> None:
        """Copy Claude Code's to-do list to the session's tasks."""
        given = self.event.data.get("tool_input")
        todos = (
            given.get("todos") if self.event.data.get("tool_name") == "TodoWrite" and isinstance(given, dict) else None
        )
        if isinstance(todos, list):
            session.set_tasks([*_tasks(todos)])

    def _close(self, session: Session, *, ended: bool = False) -> None:
        """Close the calls whose end was not reported: all that are open, or those that are known to have ``ended``."""
        about = (
            None if not ended else self.event.text("tool_use_id")
        )  # the call of this event ends by itself, if at all
        path = self.event.text("transcript_path")
        if session.label is not None:
            path = claude_transcript.of_subagent(path, session.label)
        settle(session, path, self.look, every=not ended, but=about)

    def _close_subagents(self, main: Session, *, ended: bool = False) -> None:
        for child in main.children():
            if child.status == "active":
                self._close(self._scanned_by_us(child), ended=ended)

    def _ended(self, session: Session) -> None:
        """Complete a sub-agent's session with its last message."""
        self._close(session)
        said = self.event.text("last_assistant_message")
        if said is not None:
            session.assistant(said)
        session.complete(said[:10_000] if said is not None else None)


def settle(
    session: Session, path: str | None, look: Callable[..., None], *, every: bool = False, but: str | None = None
) -> None:
    """Close calls that have ended although no event said so: those whose result the transcript has, or ``every`` one.

    What changed until then is theirs. What changed later is not; if nobody knows when a call ended, it is unclear.
    """
    waiting = [call for call in session.pending_calls() if call.id != but]
    if not waiting:
        return
    known = claude_transcript.ends(path, [call.id for call in waiting])
    over = waiting if every else [call for call in waiting if call.id in known]
    if not over:
        return
    if len(over) == len(waiting) and not (but and any(call.id == but for call in session.pending_calls())):
        look(session, calls=over, **_until(session, over, known))
    for call in over:
        end = known.get(call.id) or claude_transcript.CallEnd(0, UNTOLD, False)
        try:
            session.resolve_call(call, end.text, success=end.success)
        except (Conflict, NotFound):  # its end was reported just now
            pass


def settle_calls(store: Store, workspace: str) -> None:
    """Close the calls of all sessions in a directory that have ended, as their transcripts say.

    Before files are scanned for another reason: what changed after a call was denied is not that call's.
    """
    for found in store.list_sessions(agent=AGENT, workspace=workspace, active_only=True, archived=None, limit=100):
        if not found.pending_calls():
            continue
        session = store.session(found, hold=False, capture="manual")
        about = (session.metadata or {}).get("claude_code") or {}
        path = about.get("transcript_path")
        settle(session, path, lambda session, **known: session.capture_files(**known))


def _until(session: Session, over: list[ToolCall], known: Mapping[str, CallEnd]) -> dict[str, Any]:
    """Return until when calls were at work, and whether they had ended by then."""
    times = [datetime.fromtimestamp(known[call.id].at_ms / 1000, UTC) for call in over if call.id in known]
    return {"until": max(times), "ended": True} if len(times) == len(over) else {"until": session.updated_at}


def _reopened(session: Session) -> None:
    try:
        session.reopen()
    except Conflict:  # a concurrent hook reopened it first
        session.refresh()


def _tasks(todos: Iterable[Any]) -> Iterable[Task]:
    for each in todos:
        if isinstance(each, dict) and isinstance(each.get("content"), str):
            status = each.get("status")
            yield Task(each["content"], status if status in TASK_STATES else "pending")


_STEPS: dict[str, Callable[[Hook], None]] = {
    "SessionStart": Hook.start,
    "UserPromptSubmit": Hook.prompt,
    "PreToolUse": Hook.before_tool,
    "PostToolUse": Hook.after_tool,
    "PostToolUseFailure": Hook.after_failure,
    "SubagentStart": Hook.subagent_start,
    "SubagentStop": Hook.subagent_stop,
    "Stop": Hook.stop,
    "SessionEnd": Hook.end,
}
