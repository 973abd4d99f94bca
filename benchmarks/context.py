"""Contexts: what it costs to make a request of a long session, next to reading it.

The same conversation is stored in each provider's own form. The limit is reading it back through Takeback, role and
content of every message. A context of the provider that the conversation came from is what an agent builds before
every call; one for another provider is what it builds after a change.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import takeback

from . import messages
from .common import Settings, median, say, show_both, show_ratio, show_time, steady
from .report import Check, Section, Table

PROVIDERS = ("anthropic", "openai-chat", "openai-responses", "gemini")
SIZE, ROOM, MOST = 10_000, 100_000, 2.0
_PAGE = 500
READ = "limit: role and content of each message"


def run(settings: Settings) -> Section:
    """Build contexts of one conversation in four forms, for all four providers."""
    size = settings.pick(SIZE, 1000)
    with takeback.open(settings.directory("context", size, "store") / "store.db") as store:
        sessions = _fill(store, messages.take(size, settings.seed))
        found = {form: _measure(settings, session) for form, session in sessions.items()}
    return _section(found, size)


def _fill(store: takeback.Store, said: list[Any]) -> dict[str, takeback.Session]:
    """Store a conversation, and then what a context of it says in each form, as if that provider had said it."""
    source, sessions = store.create_session("source"), dict[str, takeback.Session]()
    _append(source, said)
    for form in PROVIDERS:
        sessions[form] = store.create_session(form)
        _append(sessions[form], source.context(form).messages)
        say(f"context: {sessions[form].message_count:,} messages in the form of {form}")
    return sessions


def _append(session: takeback.Session, said: list[Any]) -> None:
    for first in range(0, len(said), _PAGE):
        session.append(*said[first : first + _PAGE])


def _measure(settings: Settings, session: takeback.Session) -> dict[str, float]:
    """Return the seconds of reading, of a context for each provider, and of one within a budget."""
    ways: dict[str, Callable[[], Any]] = {READ: lambda: [(each.role, each.content) for each in session.messages()]}
    for provider in PROVIDERS:
        ways[provider] = lambda provider=provider: session.context(provider)
        ways[f"{provider}, {ROOM:,} tokens"] = lambda provider=provider: session.context(provider, max_tokens=ROOM)
    times: dict[str, list[float]] = {name: [] for name in ways}
    with steady():
        for _ in range(settings.pick(7, 2)):
            for name in settings.rng.sample(list(ways), len(ways)):
                started = perf_counter()
                ways[name]()
                times[name].append(perf_counter() - started)
    return {name: median(each) for name, each in times.items()}


def _section(found: dict[str, dict[str, float]], size: int) -> Section:
    text = (
        f"**What does the request of a session of {size:,} messages cost?** Each column is the conversation stored in"
        " one provider's form; each cell the median time and its ratio to reading that session, role and content of"
        " each message. On the diagonal is what an agent does before every call; the rest is the first call after a"
        f" change of provider. With a budget of {ROOM:,} tokens older messages are left out."
    )
    table, checks = Table(text, ("context for", *(f"said by {form}" for form in found))), list[Check]()
    table.add(READ, *(show_time(each[READ]) for each in found.values()))
    for name in [name for name in next(iter(found.values())) if name != READ]:
        cells = [show_both(each[name], each[name] / each[READ]) for each in found.values()]
        form = name.partition(",")[0]
        ratio = found[form][name] / found[form][READ]
        table.add(name, *cells, must=f"at most {MOST:g} for its own form", reached=ratio <= MOST)
        checks.append(Check(f"context: {name}", show_ratio(ratio), f"at most {MOST:g} of reading it", ratio <= MOST))
    return Section("What a model is sent", [table], checks)
