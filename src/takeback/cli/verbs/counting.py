"""``stats`` and ``agents``: tokens, cost, time and tool failures, of a session, a workspace or the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click

from ...client.session import Session
from ...model import words
from ...model.session import Stats, show_duration
from ...model.usage import Usage
from ...shell import documents, times
from ..consent import tell
from ..frame import Frame, option, ref_argument, verb
from ..output import Cell


class Sum:
    """The totals of some part of the work."""

    def __init__(self) -> None:
        self.messages = self.tool_calls = self.tool_failures = 0
        self.usage = Usage()

    def add(self, usage: Usage | None = None, *, messages: int = 0, calls: int = 0, failures: int = 0) -> None:
        """Add usage and counts."""
        self.messages += messages
        self.tool_calls += calls
        self.tool_failures += failures
        self.usage += usage or Usage()

    def document(self, key: str) -> dict[str, Any]:
        """Describe the totals for ``--json``."""
        usage = self.usage.numbers()
        counts = {"messages": self.messages, "tool_calls": self.tool_calls, "tool_failures": self.tool_failures}
        return {"id": key, **counts, **usage}


@verb("stats")
@ref_argument("ref", required=False)
@option("--by", type=click.Choice(["day", "model", "agent", "tool"]), help="Count separately by this.")
@option("-a", "--all", "everywhere", is_flag=True, help="Count the whole store.")
def stats(frame: Frame, ref: str | None, by: str | None, everywhere: bool) -> None:
    """Count messages, tokens, cost, time and tool failures of a session, this workspace, or with -a the store."""
    sessions = [frame.session(ref)] if ref else [*_sessions(frame, everywhere)]
    if by is not None:
        _apart(frame, sessions, by)
        return
    spent = [each.stats(spent=True) for each in sessions]
    path = sessions[0].stats() if ref else None
    whole = frame.store.stats()
    total = _total(spent)
    document = {
        "id": sessions[0].id if ref else None,
        "sessions": len(sessions),
        "spent": total,
        "path": None if path is None else documents.stats(path),
        "store": {name: getattr(whole, name) for name in whole.__struct_fields__},
    }
    frame.out.one("stats", document, lambda: _lines(frame, len(sessions), total, path))


def _sessions(frame: Frame, everywhere: bool) -> Iterator[Session]:
    place: dict[str, Any] = {} if everywhere or frame.workspace is None else {"workspace": frame.workspace}
    return frame.store.iter_sessions(archived=None, **place)


def _total(spent: list[Stats]) -> dict[str, Any]:
    every = [documents.stats(each) for each in spent]
    empty = documents.stats(Stats(0, 0, 0, Usage(), 0.0))
    return {name: sum(each[name] for each in every) if every else empty[name] for name in empty}


def _lines(frame: Frame, count: int, total: dict[str, Any], path: Stats | None) -> Iterator[str]:
    if path is not None:
        yield f"path      {path}"
    else:
        yield f"sessions  {count:,}"
    failed = f", {total['tool_failures']:,} failed" if total["tool_failures"] else ""
    yield f"messages  {total['messages']:,} in {words.count(total['turns'], 'turn')}"
    yield f"tools     {words.count(total['tool_calls'], 'call')}{failed}"
    cached = f" ({total['cache_read_tokens']:,} from cache)" if total["cache_read_tokens"] else ""
    yield f"tokens    {total['input_tokens']:,} in{cached}, {total['output_tokens']:,} out, on all branches"
    if total["cost"]:
        yield f"cost      {words.money(total['cost'])}"
    yield f"time      {show_duration(total['seconds'])} active"
    yield f"store     {frame.store.stats()}"


# ---------------------------------------------------------------------- by day, model, agent or tool


def _apart(frame: Frame, sessions: list[Session], by: str) -> None:
    sums = dict[str, Sum]()
    for session in sessions:
        _COUNTERS[by](session, lambda key: sums.setdefault(key, Sum()))
    order = sorted(sums) if by == "day" else sorted(sums, key=lambda key: -_weight(sums[key]))
    columns = (f"<{by.upper()}", ">MESSAGES", ">CALLS", ">FAILED", ">IN", ">OUT", ">COST")
    frame.out.items(
        "counts",
        (sums[key].document(key) for key in order),
        lambda: frame.out.table(columns, (_row(key, sums[key]) for key in order)) if order else (),
        about={"by": by, "sessions": len(sessions)},
    )
    if not order and frame.out.for_people:
        tell("Nothing to count.")


def _weight(each: Sum) -> int:
    return each.usage.input_tokens + each.usage.output_tokens + each.tool_calls + each.messages


def _row(key: str, each: Sum) -> list[str | Cell]:
    usage = each.usage
    return [
        Cell(key or "-", "cyan"),
        str(each.messages),
        str(each.tool_calls),
        str(each.tool_failures),
        words.short_number(usage.input_tokens),
        words.short_number(usage.output_tokens),
        words.money(usage.cost) if usage.cost else "-",
    ]


Find = Callable[[str], Sum]


def _by_agent(session: Session, find: Find) -> None:
    """Count by agent, over all branches."""
    spent = session.stats(spent=True)
    find(session.agent_id).add(
        spent.usage, messages=spent.messages, calls=spent.tool_calls, failures=spent.tool_failures
    )


def _by_day(session: Session, find: Find) -> None:
    for message in session.iter_messages():
        failed = sum(not each.success for each in message.tool_results)
        day = f"{message.created_at:%Y-%m-%d}"
        find(day).add(message.usage, messages=1, calls=len(message.tool_results), failures=failed)


def _by_model(session: Session, find: Find) -> None:
    for message in session.iter_messages(tools=False):
        if message.role == "assistant":
            find(message.model or session.model or "").add(message.usage, messages=1, calls=len(message.tool_calls))


def _by_tool(session: Session, find: Find) -> None:
    for call in session.tool_calls():
        find(call.name).add(calls=1, failures=int(call.status == "failed"))


_COUNTERS: dict[str, Callable[[Session, Find], None]] = {
    "agent": _by_agent,
    "day": _by_day,
    "model": _by_model,
    "tool": _by_tool,
}

# ---------------------------------------------------------------------- agents


@verb("agents")
def agents(frame: Frame) -> None:
    """List the agents with the number of their sessions."""
    found = [(each, [*each.sessions()]) for each in frame.store.list_agents(limit=10_000)]
    rows: Iterator[list[str | Cell]] = (
        [
            Cell(each.id, "cyan"),
            each.name or "",
            each.type,
            str(len(sessions)),
            str(sum(session.status == "active" for session in sessions)),
            str(each.version),
            times.age(each.modified_at),
        ]
        for each, sessions in found
    )
    columns = ("<ID", "<NAME?", "<TYPE?", ">SESSIONS", ">ACTIVE", ">VERSION", "<CHANGED")
    frame.out.items(
        "agents",
        ({**_agent(each), "sessions": len(sessions)} for each, sessions in found),
        lambda: frame.out.table(columns, rows) if found else (),
    )
    if not found and frame.out.for_people:
        tell("No agents yet. The first session creates one: takeback new NAME --agent AGENT")


def _agent(each: Any) -> dict[str, Any]:
    return {
        "id": each.id,
        "name": each.name,
        "type": each.type,
        "capabilities": [*each.capabilities],
        "version": each.version,
        "created_at": times.rfc3339(each.created_at),
        "modified_at": times.rfc3339(each.modified_at),
    }


COMMANDS = {"stats": stats, "agents": agents}
