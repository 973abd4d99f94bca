"""Contexts, summaries, walkthroughs: a session as text for models and for people. Making one changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from .. import providers
from ..context import budget, build, tokens, walkthrough
from ..context import summary as summaries
from ..errors import Invalid
from ..model.entry import CALL, Entry
from ..model.message import MESSAGE_KINDS, Message
from ..ops import log
from ..ops import summaries as standing
from ..tables.entries import EntryRow
from . import arguments, points, windows
from .reading import Make, Reading

if TYPE_CHECKING:
    from ..context.tokens import Count
    from ..context.value import Context
    from ..model.about import About
    from .points import Point


class Contexts(Reading):
    """The part of a session that renders it for models and for people."""

    def context(
        self,
        provider: str,
        *,
        model: str | None = None,
        max_tokens: int | None = None,
        at: Point | None = None,
        count: Count | None = None,
    ) -> Context:
        """Return the conversation in a provider's format, valid wherever the log stands.

        ``provider`` is ``anthropic``, ``openai-chat``, ``openai-responses``, ``gemini`` or ``bedrock``. Messages that
        came from that provider go out as they were stored; ``repairs`` lists what had to be changed. The same log
        gives the same bytes. With ``max_tokens`` older messages are left out (``omitted``), in steps, so that prompt
        caches stay valid; messages with ``metadata={"pinned": True}`` stay. ``at`` builds it for another point;
        ``count`` counts the tokens of a text.
        """
        providers.find_provider(provider)
        model = arguments.optional_name(model, what="model")
        most = None if max_tokens is None else arguments.whole(max_tokens, what="max_tokens", low=1)
        session, prompt, compaction, denied = self._ask(standing.for_context, points.optional_target(at))
        low = 0 if compaction is None else compaction.upto
        window, share = windows.Window(self, session, low, _make_sources(self._store._attachment)), 1
        while True:
            sources, unread = (window.everything(), None) if most is None else window.end(share * most)
            try:
                return build.build(
                    provider,
                    sources,
                    model=model,
                    prompt=prompt,
                    compaction=compaction,
                    max_tokens=most,
                    count=_counter(count),
                    unread=unread,
                    denied=denied,
                )
            except budget.TooLittle:
                share *= 2

    def summary(self, max_tokens: int = 1200, *, count: Count | None = None) -> str:
        """Return the session in a few hundred words for the next prompt: tasks, files, plan, latest messages.

        It never exceeds ``max_tokens``, and nothing said in the session can pass for one of its headings.
        """
        most = arguments.whole(max_tokens, what="max_tokens", low=1)
        found = self._ask(standing.brief)
        said = self.messages(limit=summaries.MESSAGES, tools=False)
        return summaries.summarise(found, said, max_tokens=most, count=_counter(count))

    def render_walkthrough(self) -> str:
        """Return the session as Markdown for people: plan, tasks, files, checkpoints, and the conversation."""
        return walkthrough.render(*self._told())

    def _told(self, at: Point | None = None) -> tuple[About, Iterator[Message | Entry]]:
        """Return a session's facts as of one moment, up to a point if given, with its messages and tool starts.

        Those are read in pages, as they are asked for. The fields of this handle are reread at the same moment.
        """
        whole, row, about = self._ask(standing.for_document, points.optional_target(at), self._store._is_gone)
        self._saw(*whole)
        pages = self._pages_of(row, 0, row.seq, _make_sources(self._store._attachment))
        return about, chain.from_iterable(pages)


def _counter(count: Count | None) -> Count:
    """Return what counts tokens; a caller's own function is checked to return numbers."""
    if count is None:
        return tokens.estimate
    if not callable(count):
        raise Invalid(f"count must be a function that counts the tokens of a text, not {type(count).__name__}")
    given = count

    def counted(text: str) -> int:
        number = given(text)
        if type(number) is not int or number < 0:
            raise Invalid(f"count must return the number of tokens in a text, not {number!r}")
        return number

    return counted


def _make_sources(reader: Callable[[dict[str, Any]], Any]) -> Make[Message | Entry]:
    """Return a function that turns checked rows into messages and tool starts."""

    mask = log.MAX_SEQ

    def make(uids: dict[int, str], rows: list[EntryRow]) -> list[Message | Entry]:
        return [  # inlined instead of ``as_message``, as where messages are read
            Message(
                uids[(key := row.key) >> 32],
                key & mask,
                row.turns,
                row.at_ms,
                row.body,
                row.raw,
                None,
                reader,
                row.rest,
            )
            if is_message
            else log.as_entry(uids[row.branch], row)
            for row in rows
            if (is_message := row.kind in MESSAGE_KINDS) or row.kind == CALL
        ]

    return make
