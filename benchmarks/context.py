"""Contexts: what it costs to make a request of a long session, next to reading it.

The same conversation is stored in each provider's own form, with call ids that never repeat. The limit is reading it
back through Takeback, role and content of every message. A context of the provider that the conversation came from is
what an agent builds before every call; one for another provider is what it builds after a change. An oddity is what a
log of weeks has now and then: a request that says nothing, and another one at once. With a budget the history must not
count, neither in time nor in memory.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from time import perf_counter
from typing import Any

import takeback

from . import messages
from .common import Settings, median, say, show_both, show_bytes, show_ratio, show_time, steady
from .report import Check, Section, Table

PROVIDERS = ("anthropic", "openai-chat", "openai-responses", "gemini")
SIZE, ROOM, MOST, MOST_OTHER = 10_000, 100_000, 2.0, 5.0
EVERY, FEW, FLAT = 100, 2000, 1.5
ODD = ({"role": "user", "content": "  "}, {"role": "user", "content": "And then?"})
_PAGE = 500
READ = "limit: role and content of each message"
Times = dict[str, float]


def run(settings: Settings) -> Section:
    """Build contexts of one conversation in four forms, for all four providers; and within a budget, of three sizes."""
    size = settings.pick(SIZE, 1000)
    sizes = settings.sizes((2000, 20_000, 200_000), (500, 5000), (100, 400))
    with takeback.open(settings.directory("context", size, "store") / "store.db") as store:
        sessions = _fill(store, _said(size, settings))
        found = {form: _measure(settings, session, _ways(session)) for form, session in sessions.items()}
        odd = {form: _measure(settings, each, _odd_ways(each, form)) for form, each in _odd(store, sessions).items()}
    with takeback.open(settings.directory("context", "budget", "store") / "store.db") as store:
        kept = _grown(store, sizes, settings)
        budget = _interleaved(settings, {str(each): _within(session) for each, session in kept.items()}, 5)
        peaks = {str(each): _peak(session) for each, session in kept.items()}
    first, odd_table, flat = _table(found, size), _odd_table(odd, size), _budget_table(budget, peaks)
    return Section(
        "What a model is sent", [each[0] for each in (first, odd_table, flat)], [*first[1], *odd_table[1], *flat[1]]
    )


def _said(size: int, settings: Settings) -> list[Any]:
    """Return messages whose calls have ids of their own, as providers give them; the stream repeats them."""
    found, last = list[Any](), ""
    for number, message in enumerate(messages.take(size, settings.seed)):
        blocks = [dict(block) for block in message["content"]]
        for block in blocks:
            if block["type"] == "tool_use":
                last = block["id"] = f"call_{number}"
            elif block["type"] == "tool_result":
                block["tool_use_id"] = last
        found.append({**message, "content": blocks})
    return found


def _fill(store: takeback.Store, said: list[Any]) -> dict[str, takeback.Session]:
    """Store a conversation, and then what a context of it says in each form, as if that provider had said it."""
    source, sessions = store.create_session("source"), dict[str, takeback.Session]()
    _append(source, said)
    for form in PROVIDERS:
        sessions[form] = store.create_session(form)
        _append(sessions[form], source.context(form).messages)
        say(f"context: {sessions[form].message_count:,} messages in the form of {form}")
    return sessions


def _odd(store: takeback.Store, sessions: dict[str, takeback.Session]) -> dict[str, takeback.Session]:
    """Store the same conversations with an oddity every hundred messages."""
    found = dict[str, takeback.Session]()
    for form, session in sessions.items():
        found[form], said = store.create_session(f"{form}, odd"), session.context(form).messages
        for first in range(0, len(said), EVERY):
            found[form].append(*ODD, *said[first : first + EVERY])
    return found


def _grown(store: takeback.Store, sizes: tuple[int, ...], settings: Settings) -> dict[int, takeback.Session]:
    found = {size: store.create_session(f"{size:,} messages") for size in sizes}
    for size, session in found.items():
        _append(session, _said(size, settings))
        say(f"context: {size:,} messages for a budget of {FEW:,} tokens")
    return found


def _append(session: takeback.Session, said: list[Any]) -> None:
    for first in range(0, len(said), _PAGE):
        session.append(*said[first : first + _PAGE])


def _ways(session: takeback.Session) -> dict[str, Callable[[], Any]]:
    ways = dict[str, Callable[[], Any]]()
    for provider in PROVIDERS:
        ways[provider] = lambda provider=provider: session.context(provider)
        ways[f"{provider}, {ROOM:,} tokens"] = lambda provider=provider: session.context(provider, max_tokens=ROOM)
    return ways


def _odd_ways(session: takeback.Session, form: str) -> dict[str, Callable[[], Any]]:
    return {form: lambda: session.context(form)}


def _within(session: takeback.Session) -> Callable[[], Any]:
    return lambda: session.context("anthropic", max_tokens=FEW)


def _measure(settings: Settings, session: takeback.Session, ways: dict[str, Callable[[], Any]]) -> Times:
    """Return the seconds of reading, and of every way to build a context."""
    reading = {READ: lambda: [(each.role, each.content) for each in session.messages()]}
    return _interleaved(settings, {**reading, **ways}, 1)


def _interleaved(settings: Settings, ways: dict[str, Callable[[], Any]], times: int) -> Times:
    found: dict[str, list[float]] = {name: [] for name in ways}
    with steady():
        for _ in range(times * settings.pick(7, 2)):
            for name in settings.rng.sample(list(ways), len(ways)):
                started = perf_counter()
                ways[name]()
                found[name].append(perf_counter() - started)
    return {name: median(each) for name, each in found.items()}


def _peak(session: takeback.Session) -> int:
    """Return the bytes that Python takes for a context at most."""
    tracemalloc.start()
    _within(session)()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _table(found: dict[str, Times], size: int) -> tuple[Table, list[Check]]:
    text = (
        f"**What does the request of a session of {size:,} messages cost?** Each column is the conversation stored in"
        " one provider's form; each cell the median time and its ratio to reading that session, role and content of"
        " each message. On the diagonal is what an agent does before every call; the rest is the first call after a"
        f" change of provider. With a budget of {ROOM:,} tokens older messages are left out."
    )
    table, checks = Table(text, ("context for", *(f"said by {form}" for form in found))), list[Check]()
    table.add(READ, *(show_time(each[READ]) for each in found.values()))
    must = f"at most {MOST:g} for its own form, {MOST_OTHER:g} for others"
    for name in [name for name in next(iter(found.values())) if name != READ]:
        ratios = {form: each[name] / each[READ] for form, each in found.items()}
        cells = [show_both(found[form][name], ratio) for form, ratio in ratios.items()]
        own, other = ratios.pop(name.partition(",")[0]), max(ratios.values())
        table.add(name, *cells, must=must, reached=own <= MOST and other <= MOST_OTHER)
        checks.append(Check(f"context: {name}", show_ratio(own), f"at most {MOST:g} of reading it", own <= MOST))
        which = f"context: {name}, another provider's form, the slowest"
        checks.append(Check(which, show_ratio(other), f"at most {MOST_OTHER:g} of reading it", other <= MOST_OTHER))
    return table, checks


def _odd_table(found: dict[str, Times], size: int) -> tuple[Table, list[Check]]:
    text = (
        f"**What does an oddity cost?** The same {size:,} messages, with an empty request before every {EVERY}th. Only"
        " what lies next to one is repaired; the rest is sent as it was stored."
    )
    table, checks = Table(text, ("context for its own form", "time", "reading the session")), list[Check]()
    for form, times in found.items():
        ratio, must = times[form] / times[READ], f"at most {MOST:g} of reading it"
        table.add(form, show_both(times[form], ratio), show_time(times[READ]), must=must, reached=ratio <= MOST)
        checks.append(Check(f"context: {form}, an oddity every {EVERY}", show_ratio(ratio), must, ratio <= MOST))
    return table, checks


def _budget_table(times: Times, peaks: dict[str, int]) -> tuple[Table, list[Check]]:
    text = (
        f"**What does a budget cost?** A context of {FEW:,} tokens, of sessions of several lengths. The log is read"
        " from its end until the budget is full, so the history counts neither in time nor in memory."
    )
    table, checks, least = Table(text, ("messages", "time", "memory")), list[Check](), min(times.values())
    must = f"within {FLAT:g} of each other"
    for size, seconds in times.items():
        ratio = max(seconds / least, peaks[size] / min(peaks.values()))
        cells = show_both(seconds, seconds / least), show_bytes(peaks[size])
        table.add(f"{int(size):,}", *cells, must=must, reached=ratio <= FLAT)
    for what, found in (("time", times), ("memory", peaks)):
        ratio = max(found.values()) / min(found.values())
        name = f"context: {FEW:,} tokens, {what} at all lengths"
        checks.append(Check(name, show_ratio(ratio), must, ratio <= FLAT))
    return table, checks
