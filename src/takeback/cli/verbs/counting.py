"""``stats`` and ``agents``: tokens, cost, time and tool failures, of a session, a workspace or the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from ...model import words
from ...model.session import Stats, show_duration
from ...model.usage import Usage
from ...shell import documents, times
from ..consent import tell
from ..frame import Frame, option, ref_argument, verb
from ..output import Cell, line

if TYPE_CHECKING:
    from ...model.spending import Spent


@verb("stats")
@ref_argument("ref", required=False)
@option("--by", type=click.Choice(["day", "model", "agent", "tool"]), help="Count separately by this.")
@option("-a", "--all", "everywhere", is_flag=True, help="Count the whole store.")
def stats(frame: Frame, ref: str | None, by: str | None, everywhere: bool) -> None:
    """Count messages, tokens, cost, time and tool failures of a session, this workspace, or with -a the store.

    Every branch counts once, also those left by a rewind. Messages without a stored cost count with the list price of
    their model, if the extra 'prices' is installed.
    """
    session = frame.session(ref) if ref else None
    place = None if everywhere or session else frame.workspace
    asked: dict[str, Any] = {"session": session} if session else {"workspace": place} if place else {}
    if by is not None:
        _apart(frame, by, asked)
        return
    path = session.stats() if session else None
    count, total = 0, documents.stats(Stats(0, 0, 0, Usage(), 0.0))
    for each in (session,) if session else frame.store.iter_sessions(archived=None, workspace=place):
        spent = documents.stats(each.stats(spent=True))
        count, total = count + 1, {name: total[name] + spent[name] for name in total}
    unpriced = _priced(frame, total, asked)
    whole = frame.store.stats()
    document = {
        "id": session.id if session else None,
        "sessions": count,
        "spent": total,
        "path": None if path is None else documents.stats(path),
        "store": {name: getattr(whole, name) for name in whole.__struct_fields__},
        "unpriced": unpriced,
    }
    frame.out.one("stats", document, lambda: _lines(frame, count, total, path))
    _tell_unpriced(frame, unpriced)


def _priced(frame: Frame, total: dict[str, Any], asked: dict[str, Any]) -> dict[str, int]:
    """Put what everything cost into the total, by list prices too; return what has none, by model."""
    if not (total["input_tokens"] or total["output_tokens"]) or not _has_prices():
        return {}
    with frame.progress("Prices", "messages"):
        found = frame.store.spending("agent", **asked)
    total["cost"] = sum((each.usage for each in found), Usage()).cost
    return _unpriced(found)


def _has_prices() -> bool:
    return find_spec("genai_prices") is not None


def _unpriced(found: Iterable[Spent]) -> dict[str, int]:
    counts = Counter[str]()
    for each in found:
        counts.update(each.unpriced)
    return dict(sorted(counts.items()))


def _tell_unpriced(frame: Frame, unpriced: dict[str, int]) -> None:
    """Report which messages have no known cost, so that nobody takes the sum for complete."""
    if not unpriced or not frame.out.for_people:
        return
    if not _has_prices():
        total = words.count(sum(unpriced.values()), "message")
        tell(f"No cost is stored for {total}. For list prices: pip install 'takeback[prices]'")
        return
    for model, number in unpriced.items():
        of = f"model {line(model)}" if model else "an unnamed model"
        tell(f"{words.count(number, 'message')} of {of} {'has' if number == 1 else 'have'} no known price.")


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


def _apart(frame: Frame, by: str, asked: dict[str, Any]) -> None:
    # As everywhere: people see their own days unless they ask for UTC, programs always see UTC.
    zone = UTC if frame.out.utc or not frame.out.for_people else datetime.now().astimezone().tzinfo
    with frame.progress("Counting", "messages"):
        found = frame.store.spending(by, time_zone=zone, **asked)
    if by != "day":
        found.sort(key=lambda each: -_weight(each))
    columns = (f"<{by.upper()}", ">MESSAGES", ">CALLS", ">FAILED", ">IN", ">OUT", ">COST")
    count = 1 if "session" in asked else sum(1 for _ in frame.store.iter_sessions(archived=None, **asked))
    frame.out.items(
        "counts",
        map(_document, found),
        lambda: frame.out.table(columns, map(_row, found)) if found else (),
        about={"by": by, "sessions": count},
    )
    if not found and frame.out.for_people:
        tell("Nothing to count.")
    _tell_unpriced(frame, _unpriced(found))


def _document(each: Spent) -> dict[str, Any]:
    counts = {"messages": each.messages, "tool_calls": each.tool_calls, "tool_failures": each.tool_failures}
    return {"id": each.key, **counts, **each.usage.numbers(), "priced": each.priced, "unpriced": dict(each.unpriced)}


def _weight(each: Spent) -> int:
    return each.usage.input_tokens + each.usage.output_tokens + each.tool_calls + each.messages


def _row(each: Spent) -> list[str | Cell]:
    usage = each.usage
    return [
        Cell(each.key or "-", "cyan"),
        str(each.messages),
        str(each.tool_calls),
        str(each.tool_failures),
        words.short_number(usage.input_tokens),
        words.short_number(usage.output_tokens),
        words.money(usage.cost) if usage.cost else "-",
    ]


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
