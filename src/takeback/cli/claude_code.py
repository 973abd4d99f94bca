"""What Claude Code tells its hooks, written into a session: prompts, tool calls with their results, files around them.

Each event is a process of its own, so nobody holds the session's lease: a call that ``PreToolUse`` opened is finished
by ``PostToolUse``, found by its id. A call whose end is never told - it was denied, or interrupted - is closed when the
turn is over. Files are looked at before a tool runs and before its result is stored: what changed in between is the
call's, what changes while none is open is the person's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ..client.session import Session
from ..client.store import Store
from ..errors import Conflict, Error, Invalid, NotFound
from ..model.work import TASK_STATES, Task

AGENT = "claude-code"
CAPTURE_OFF = "files are not captured"  # a key of the session's state: why
UNTOLD = "no result was reported"

# Tools that change no files: there is nothing to look for around them.
READERS = {
    *("Read", "Glob", "Grep", "LS", "NotebookRead", "WebFetch", "WebSearch", "TodoWrite", "BashOutput", "TaskOutput"),
    *("AskUserQuestion", "ToolSearch", "ListMcpResourcesTool", "ReadMcpResourceTool"),
}


class Event(NamedTuple):
    """One event as it came, and where: the project's directory, and the session that this one belongs to, if any."""

    data: Mapping[str, Any]
    project: str | None = None
    parent: str | None = None

    @property
    def name(self) -> str:
        """What happened."""
        return str(self.data.get("hook_event_name") or "")

    def text(self, field: str) -> str | None:
        """Give a field if it is a text that says something."""
        found = self.data.get(field)
        return found if isinstance(found, str) and found.strip() else None


class Hook:
    """Records events of one process of Claude Code."""

    def __init__(self, store: Store, event: Event) -> None:
        self._store, self.event = store, event
        self._made: Session | None = None
        self.looking = False
        self.unseen: str | None = None  # why the files could not be looked at

    def record(self) -> None:
        """Write the event down; one that is not known is nothing to write."""
        if step := _STEPS.get(self.event.name):
            step(self)

    # ------------------------------------------------------------------ the sessions

    def session(self, *, reopen: bool = True) -> Session:
        """Give the session of this run of Claude Code; it is made if it is new, and goes on if it had ended."""
        if self._made is None:
            wanted = self.event.text("session_id")
            if wanted is None:
                raise Invalid("the event names no session_id")
            name = f"claude-{wanted}"
            self._made = self._store.find_session(name, agent=AGENT) or self._new(name, wanted)
        if reopen and self._made.status == "completed":
            _reopened(self._made)
        return self._made

    def _new(self, name: str, session_id: str) -> Session:
        event, fields = self.event, dict[str, Any]()
        if event.parent is not None:
            fields = {"kind": "subagent", "parent": event.parent}
        about = {"session_id": session_id, "transcript_path": event.text("transcript_path")}
        return self._store.session(
            name,
            agent=AGENT,
            workspace=event.project or event.text("cwd"),
            hold=False,
            provider="anthropic",
            model=event.text("model"),
            metadata={"claude_code": about},
            **fields,
        )

    def speaker(self) -> Session:
        """Give the session of whoever acts: the sub-agent's own if it is one."""
        agent_id = self.event.text("agent_id")
        return self.session() if agent_id is None else self._child(agent_id)

    def _child(self, agent_id: str) -> Session:
        main, label = self.session(), agent_id[:100]
        found = self._labelled(main, label)
        if found is None:
            try:
                return main.spawn(self.event.text("agent_type") or "sub-agent", label=label).session
            except Conflict:  # a hook beside this one was faster
                found = self._labelled(main, label)
                if found is None:
                    raise
        if found.status == "completed":
            _reopened(found)
        return found

    def _labelled(self, main: Session, label: str) -> Session | None:
        return next(iter(self._store.list_sessions(parent=main, label=label, archived=None, limit=1)), None)

    # ------------------------------------------------------------------ files

    def look(self, session: Session) -> None:
        """Look at the workspace, unless that was too slow before; what fails keeps no event from the record."""
        if self.session(reopen=False).state.get(CAPTURE_OFF) is not None:
            return
        self.looking = True
        try:
            session.capture_files()
        except (Error, OSError) as error:
            self.unseen = str(error)
        self.looking = False

    def give_up_files(self, why: str) -> None:
        """Do not look at files any more until Claude Code starts again: it must not wait for us at every call."""
        self.session(reopen=False).state.set(CAPTURE_OFF, why)

    # ------------------------------------------------------------------ events

    def start(self) -> None:
        """Claude Code began, or went on with a conversation."""
        session = self.session()
        if session.state.get(CAPTURE_OFF) is not None:
            session.state.delete(CAPTURE_OFF)
        self._close(session)
        self.look(session)

    def prompt(self) -> None:
        """Somebody asked for something."""
        session, text = self.session(), self.event.text("prompt")
        self._close(session)
        self.look(session)
        if text is not None:
            session.user(text)

    def before_tool(self) -> None:
        """A tool is about to run."""
        session = self.speaker()
        if self._changes_files():
            self.look(session)
        self._begin(session)

    def after_tool(self) -> None:
        """A tool has run."""
        self._finish(self.event.data.get("tool_response"), success=True)

    def after_failure(self) -> None:
        """A tool has failed."""
        self._finish(self.event.text("error") or "failed", success=False)

    def subagent_start(self) -> None:
        """A sub-agent began."""
        self.speaker()

    def subagent_stop(self) -> None:
        """A sub-agent has ended."""
        if self.event.text("agent_id") is not None:
            self._ended(self.speaker())

    def stop(self) -> None:
        """Claude has answered."""
        session, said = self.session(), self.event.text("last_assistant_message")
        self._close(session)
        if said is not None:
            session.assistant(said)

    def end(self) -> None:
        """Claude Code ends."""
        session = self.session(reopen=False)
        self._close(session)
        if session.status != "completed":
            session.complete({"reason": self.event.text("reason")})

    # ------------------------------------------------------------------ calls

    def _changes_files(self) -> bool:
        return self.event.data.get("tool_name") not in READERS

    def _begin(self, session: Session) -> None:
        """Store that a call began; it stays open when this process ends. One that runs already is no second record."""
        name = self.event.text("tool_name") or "tool"
        session.tool(name, self.event.data.get("tool_input"), id=self.event.text("tool_use_id")).__enter__()

    def _finish(self, content: Any, *, success: bool) -> None:
        session = self.speaker()
        call = self._open_call(session)
        if self._changes_files():
            self.look(session)
        duration = self.event.data.get("duration_ms")
        seconds = duration / 1000 if isinstance(duration, int | float) and duration >= 0 else None
        session.tool_result(call, content, success=success, duration=seconds)
        if success:
            self._take_tasks(session)

    def _open_call(self, session: Session) -> str:
        """Give the open call that the event is about; one whose beginning nobody told, or that was closed, begins now.

        Older versions of Claude Code name no id: then it is the last one that was asked for so.
        """
        call_id = self.event.text("tool_use_id")
        if call_id is not None:
            try:
                self._begin(session)
            except Conflict:  # somebody had the session meanwhile, so nobody can say whether it still runs: it did
                pass
            return call_id
        asked = self.event.text("tool_name") or "tool", self.event.data.get("tool_input")
        found = [call.id for call in session.pending_calls() if (call.name, call.arguments) == asked]
        if not found:
            self._begin(session)
            return self._open_call(session)
        return found[-1]

    def _take_tasks(self, session: Session) -> None:
        """Keep the list of tasks that Claude Code made as the session's own."""
        given = self.event.data.get("tool_input")
        todos = (
            given.get("todos") if self.event.data.get("tool_name") == "TodoWrite" and isinstance(given, dict) else None
        )
        if isinstance(todos, list):
            session.set_tasks([*_tasks(todos)])

    def _close(self, session: Session) -> None:
        """Close calls whose end nobody will tell any more; what they did to files is theirs."""
        waiting = session.pending_calls()
        if waiting:
            self.look(session)
        for call in waiting:
            try:
                session.resolve_call(call, UNTOLD, success=False)
            except (Conflict, NotFound):  # its end was told just now
                pass

    def _ended(self, session: Session) -> None:
        """End a sub-agent's session with what it said last."""
        self._close(session)
        said = self.event.text("last_assistant_message")
        if said is not None:
            session.assistant(said)
        session.complete(said[:10_000] if said is not None else None)


def _reopened(session: Session) -> None:
    try:
        session.reopen()
    except Conflict:  # a hook beside this one was faster
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
