"""Writing from a script: a new session, messages, tasks, plan, notes, state.

Text comes from the arguments, or from stdin for ``-``. Without text a verb only reads, and opens the store read-only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from ...client.session import Session
from ...model.work import TASK_STATES, Task
from ...shell import documents, times
from ...shell.failures import NOT_FOUND, USAGE, Stop
from ..consent import tell
from ..frame import Frame, option, ref_option, verb
from ..output import block, line

_REF = ref_option("-s", "--session", "ref", metavar="REF", help="Use this session; default: the newest here.")
_BOXES = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "failed": "[!]", "skipped": "[-]"}


def _text(words: tuple[str, ...], what: str) -> str:
    """Return the text: the arguments, or stdin if they are ``-``."""
    if words == ("-",):
        return sys.stdin.read().removesuffix("\n")
    if not words:
        raise Stop(f"the {what} is missing; write it as an argument, or - to read it from stdin", USAGE)
    return " ".join(words)


def _would(frame: Frame, session: Session, what: str) -> bool:
    """Whether this is a dry run; if so, report what would be done."""
    if frame.settings.dry_run:
        tell(f"Dry run: would {what} {frame.short(session.id)}.")
    return frame.settings.dry_run


# ---------------------------------------------------------------------- new, say


@verb("new", changes=True, makes=True)
@click.argument("name", required=False)
@option("--agent", default="main", show_default=True, help="The agent that owns it.")
@option("--title", help="The title shown in lists.")
@option("--prompt", help="The prompt it starts from.")
@option("--model", help="The model it starts with.")
@option("--tag", "tags", multiple=True, help="A tag; may be repeated.")
@option("--no-workspace", is_flag=True, help="Do not bind it to a directory.")
def new(frame: Frame, name: str | None, no_workspace: bool, **fields: Any) -> None:
    """Start a session in this workspace: the nearest one upwards, else the repository, else the directory itself."""
    place = None if no_workspace else frame.place_of_new()
    if frame.settings.dry_run:
        tell(f"Dry run: would start a session{'' if place is None else f' in {line(place)}'}.")
        return
    given = {key: value for key, value in fields.items() if value}
    made = frame.store.create_session(name, workspace=place, **given)
    where = "" if place is None else f" in {line(place)}"
    frame.out.one("session", documents.session(made), lambda: [f"Session {frame.short(made.id)}{where}"])


@verb("say", changes=True)
@click.argument("text", nargs=-1)
@_REF
@option("--role", type=click.Choice(["user", "assistant", "system"]), default="user", show_default=True)
@option("--model", help="The model that produced it.")
@option("--key", help="Idempotency key: repeating the call adds nothing.")
def say(frame: Frame, text: tuple[str, ...], ref: str | None, role: str, model: str | None, key: str | None) -> None:
    """Add a message to a session."""
    session, content = frame.session(ref), _text(text, "message")
    if _would(frame, session, f"add a message of {len(content)} characters to"):
        return
    speak = {"user": session.user, "assistant": session.assistant, "system": session.system}[role]
    made = speak(content, model=model, idempotency_key=key)
    frame.out.one(
        "message",
        documents.message(made),
        lambda: [f"Message {made.seq} in turn {made.turn} of {frame.short(session.id)}"],
    )


# ---------------------------------------------------------------------- tasks, plan, notes


@verb("task", changes=True, looks=lambda given: not given["text"] and given["index"] is None)
@click.argument("text", nargs=-1)
@_REF
@option("--set", "index", type=click.IntRange(1), metavar="N", help="Change task number N.")
@option("--status", type=click.Choice(TASK_STATES), help="The task's status.")
def task(frame: Frame, text: tuple[str, ...], ref: str | None, index: int | None, status: str | None) -> None:
    """List a session's tasks; with TEXT add one; with --set N change one."""
    session = frame.session(ref)
    if index is not None:
        _change_task(frame, session, index, status, text)
    elif text and not _would(frame, session, "add a task to"):
        session.add_task(_text(text, "task"), status or "pending")
    elif status and not text:
        raise Stop("name the task to change: takeback task --set N --status ...", USAGE)
    tasks = session.tasks()
    frame.out.items(
        "tasks",
        (_task(number, each) for number, each in enumerate(tasks, 1)),
        lambda: (f"{number:>3} {_BOXES[each.status]} {line(each.description)}" for number, each in enumerate(tasks, 1)),
        about={"session_id": session.id},
    )
    if not tasks and frame.out.for_people:
        tell(f"{frame.short(session.id)} has no tasks. Add one: takeback task TEXT")


def _change_task(frame: Frame, session: Session, index: int, status: str | None, text: tuple[str, ...]) -> None:
    if index > len(session.tasks()):
        raise Stop(f"no such task: {index}; list them with: takeback task", NOT_FOUND)
    if status is None and not text:
        raise Stop("nothing to change; add --status or a new text", USAGE)
    if not _would(frame, session, f"change task {index} of"):
        session.update_task(index - 1, status, description=_text(text, "task") if text else None)


def _task(number: int, each: Task) -> dict[str, Any]:
    return {"id": each.id, "number": number, "description": each.description, "status": each.status}


@verb("plan", changes=True, looks=lambda given: not given["text"] and not given["clear"])
@click.argument("text", nargs=-1)
@_REF
@option("--clear", is_flag=True, help="Remove the plan.")
def plan(frame: Frame, text: tuple[str, ...], ref: str | None, clear: bool) -> None:
    """Show a session's plan; with TEXT set it."""
    session = frame.session(ref)
    if text and clear:
        raise Stop("TEXT and --clear exclude each other; leave one out", USAGE)
    if (text or clear) and not _would(frame, session, "change the plan of"):
        session.set_plan(None if clear else _text(text, "plan"))
    found = session.get_plan()
    frame.out.one("plan", {"session_id": session.id, "plan": found}, lambda: block(found or "") if found else ())
    if found is None and frame.out.for_people:
        tell(f"{frame.short(session.id)} has no plan. Set one: takeback plan TEXT")


@verb("note", changes=True, looks=lambda given: not given["text"])
@click.argument("text", nargs=-1)
@_REF
@option("--task", "index", type=click.IntRange(1), metavar="N", help="Attach the note to task number N.")
def note(frame: Frame, text: tuple[str, ...], ref: str | None, index: int | None) -> None:
    """List a session's notes; with TEXT add one."""
    session = frame.session(ref)
    if text and not _would(frame, session, "add a note to"):
        session.note(_text(text, "note"), task=None if index is None else index - 1)
    notes = session.notes()
    documents_ = (
        {"id": str(each.seq), "text": each.text, "task": each.task, "created_at": times.rfc3339(each.created_at)}
        for each in notes
    )
    frame.out.items(
        "notes",
        documents_,
        lambda: (f"{times.age(each.created_at):>4}  {shown}" for each in notes for shown in block(each.text)),
        about={"session_id": session.id},
    )
    if not notes and frame.out.for_people:
        tell(f"{frame.short(session.id)} has no notes. Add one: takeback note TEXT")


# ---------------------------------------------------------------------- state


@verb("state", changes=True, looks=lambda given: given["value"] is None and not given["delete"])
@click.argument("key", required=False)
@click.argument("value", required=False)
@_REF
@option("--agent", help="Use the state of this agent instead.")
@option("--delete", is_flag=True, help="Remove KEY.")
@option("--expect", type=int, metavar="VERSION", help="Change it only if this is its version; else exit 5.")
def state(
    frame: Frame,
    key: str | None,
    value: str | None,
    ref: str | None,
    agent: str | None,
    delete: bool,
    expect: int | None,
) -> None:
    """Show the state of a session or an agent; KEY shows one value, KEY VALUE sets it.

    VALUE is parsed as JSON if possible, else it is text; - reads it from stdin.
    """
    if delete and (key is None or value is not None):
        raise Stop("--delete takes a key and no value", USAGE)
    owner: Any = frame.store.get_agent(agent) if agent is not None else frame.session(ref)
    if delete or value is not None:
        if frame.settings.dry_run:
            tell(f"Dry run: would {'remove' if delete else 'set'} {line(key or '')}.")
        elif delete:
            owner.state.delete(key, expected_version=expect)
        else:
            owner.state.set(key, _value(value or ""), expected_version=expect)
    version, items = owner.state.read()
    if key is not None and value is None and not delete:
        _one_value(frame, key, items)
        return
    frame.out.one(
        "state",
        {"id": owner.id, "version": version, "state": _plain(items)},
        lambda: _state_lines(items),
    )
    if frame.out.for_people:
        tell(f"version {version}")


def _one_value(frame: Frame, key: str, items: dict[str, Any]) -> None:
    if key not in items:
        known = f"; its keys: {', '.join(map(line, items))}" if items else ""
        raise Stop(f"the state has no key {key!r}{known}", NOT_FOUND)
    found = _plain(items[key])
    frame.out.one(
        "value", {"key": key, "value": found}, lambda: block(found if isinstance(found, str) else _json(found))
    )


def _state_lines(items: dict[str, Any]) -> Iterator[str]:
    return (f"{line(key)} = {line(_json(_plain(items[key])))}" for key in sorted(items))


def _value(text: str) -> Any:
    import json

    text = sys.stdin.read() if text == "-" else text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _json(value: Any) -> str:
    return documents.compact(value)


def _plain(value: Any) -> Any:
    """Convert data to what JSON can hold: bytes become base64."""
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


COMMANDS = {"new": new, "say": say, "task": task, "plan": plan, "note": note, "state": state}
