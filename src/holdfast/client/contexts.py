"""Contexts: what a model would be sent now. Looking at one changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from .. import codec
from ..context import Context, build, find_provider
from ..model.entry import CALL, Entry
from ..model.message import MESSAGE_KINDS, Message
from ..model.work import Compaction
from ..ops import agents, work
from ..ops import entries as log
from ..ops.sessions import SessionRow
from ..storage.base import Row, Tx
from . import check
from .reading import Make, Reading


class Contexts(Reading):
    """The part of a session that speaks to models."""

    def context(self, provider: str, *, model: str | None = None) -> Context:
        """Give the conversation in a provider's form, valid from wherever the log stands.

        ``provider`` is ``anthropic``, ``openai-chat``, ``openai-responses`` or ``gemini``. Messages that came from
        it go out as they were stored; ``repairs`` says what had to be changed. The same log gives the same bytes.
        """
        find_provider(provider)
        model = check.optional_name(model, what="model")
        session, prompt, compaction = self._store._read(lambda tx: _standing(tx, self._row(tx)))
        low = 0 if compaction is None else compaction.upto
        pages = self._pages_of(session, low, session.seq, _make_sources(self._store._attachment))
        sources = chain.from_iterable(pages)
        return build(provider, sources, model=model, prompt=prompt, compaction=compaction)


def _standing(tx: Tx, session: SessionRow) -> tuple[SessionRow, str | None, Compaction | None]:
    """Read what a context needs beside the messages, all as of one moment."""
    agent = agents.find(tx, session.scope, session.agent)
    prompt = None if agent is None else codec.decode(agent.fields).get("system_prompt")
    return session, prompt, work.compaction(tx, session)


def _make_sources(reader: Callable[[dict[str, Any]], Any]) -> Make[Message | Entry]:
    """Give a function that turns checked rows into messages and tool starts."""

    def make(uids: dict[int, str], rows: list[Row]) -> list[Message | Entry]:
        found = list[Message | Entry]()
        for row in rows:
            entry = log.as_entry(uids[row[0] >> 32], row)
            if entry.kind in MESSAGE_KINDS:
                place = (entry.branch, entry.seq, entry.turn, entry.at_ms)
                found.append(Message(*place, entry.body, entry.raw, None, reader))
            elif entry.kind == CALL:
                found.append(entry)
        return found

    return make
