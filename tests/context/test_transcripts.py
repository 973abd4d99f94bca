"""Any transcript, cut after each of its entries, gives a request that its provider takes: promise R18.

What is real: every transcript is told into a real store through the calls that users have, and read back from there.
The cuts are then made on what was read - ``build`` is given what the log holds up to each entry, with the compaction
that was newest there - which is what ``Session.context`` does; for a share of them a SQLite file is rewound to each
entry, asked by ``Session.context`` itself, closed, opened and asked again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import takeback
from takeback import Session
from takeback.context.build import build, outlasting
from takeback.context.value import Context
from takeback.model.entry import CALL, Entry
from takeback.model.message import Message
from takeback.model.work import Compaction

from ._checks import ALL, as_sent, dumped, kept, require_valid
from ._teller import MODELS
from ._transcripts import damaged, play

pytestmark = [pytest.mark.feature("F3"), pytest.mark.promise("R18")]
Source = Message | Entry
_ASKED = {name: (None, *models) for name, models in MODELS.items()}


class Cut(NamedTuple):
    """What a log holds up to one of its entries."""

    sources: list[Source]
    compaction: Compaction | None

    def context(self, provider: str, model: str | None = None) -> Context:
        return build(provider, self.sources, model=model, prompt="You fix code.", compaction=self.compaction)


def read(session: Session, rng: random.Random | None = None) -> tuple[list[Entry], dict[int, Source]]:
    """Read a session: all its entries, and what of them a context is made of; ``rng`` damages some."""
    entries = [*session.entries()]
    found: dict[int, Source] = {entry.seq: entry for entry in entries if entry.kind == CALL}
    for message in session.iter_messages():
        found[message.seq] = message if rng is None else damaged(message, rng)
    return entries, dict(sorted(found.items()))


def cut(entries: list[Entry], sources: dict[int, Source], seq: int) -> Cut:
    """Cut a log behind an entry."""
    newest: Any = None
    for entry in entries:
        if entry.kind == "compaction" and entry.seq <= seq:
            newest = entry
    made = None if newest is None else Compaction(newest.seq, newest.content["upto"], newest.content["summary"])
    low = 0 if made is None else made.upto
    hidden = [source for at, source in sources.items() if at <= low]
    return Cut([*outlasting(hidden), *(source for at, source in sources.items() if low < at <= seq)], made)


def is_half(source: Source) -> bool:
    if not isinstance(source, Message) or source.data is None or source.role != "assistant":
        return False
    return source.status in ("interrupted", "cancelled", "streaming")


def require_right(part: Cut, provider: str, model: str | None, *, sdk: bool) -> None:
    """Check all that is promised of one context."""
    found = part.context(provider, model)
    require_valid(found, sdk=sdk, finished=not (part.sources and is_half(part.sources[-1])))
    again = build(provider, [kept(seq, item, provider) for seq, item in enumerate(found.messages, 1)], model=model)
    assert dumped(again.messages) == dumped(found.messages), "repairing twice is repairing once"
    assert again.repairs == (), "what was repaired needs no repair"
    if not found.repairs:
        require_verbatim(part, found)


def require_verbatim(part: Cut, found: Context) -> None:
    """Check that what nobody says was repaired is all there as it was stored, for its own provider."""
    sent = dumped(found.messages)
    for source in part.sources:
        if not isinstance(source, Message) or source.body.form != found.provider or source.role == "system":
            continue
        value = msgspec.json.decode(source.raw or b"null")
        for block in blocks(value, found.provider):
            assert dumped(block) in sent


def blocks(value: dict[str, Any], form: str) -> list[Any]:
    """Return what of a stored message must be found in what is sent."""
    if form == "openai-responses":
        return [value["content"]] if "content" in value and value.get("type") == "message" else [value]
    content = value.get("parts" if form == "gemini" else "content")
    beside = value.get("tool_calls") or []
    return [*(content if isinstance(content, list) else [content]), *beside]


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_every_cut_of_every_transcript_is_valid_for_every_provider(
    seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    with takeback.open(":memory:") as store:
        for number in range(counts(300, 20_000)):
            rng = random.Random(f"{seed}/{number}")
            for session in play(store.create_session(f"{number}"), rng):
                entries, sources = read(session, rng)
                last = entries[-1].seq if entries else 0
                for seq in range(last + 1):
                    part = cut(entries, sources, seq)
                    for provider in ALL:
                        model = rng.choice(_ASKED[provider])
                        try:
                            require_right(part, provider, model, sdk=seq == last)
                        except Exception as error:
                            error.add_note(f"seed {seed}, transcript {number}, entry {seq}, {provider}, {model}")
                            raise
                tally("R18 cuts", len(ALL) * (last + 1))
            tally("R18 transcripts", 1)


def test_a_store_says_the_same_and_is_not_changed_by_looking(
    tmp_path: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    for number in range(counts(12, 200)):
        rng, path = random.Random(f"{seed}/{number}"), str(tmp_path / f"{number}.db")
        with takeback.open(path) as store:
            store.create_agent("coder", system_prompt="You fix code.")
            names = [session.id for session in play(store.create_session("s", agent="coder"), rng)]
            before = {name: asked(store.get_session(name)) for name in names}
        with takeback.open(path) as store:
            for name in names:
                assert asked(store.get_session(name)) == before[name], "the same bytes after a restart"
            for name in reversed(names):  # rewinding a session takes its sub-agents back, which come behind it
                tally("R18 cuts in stores", cuts_agree(store.get_session(name)))


def asked(session: Session) -> list[bytes]:
    """Ask for all contexts of a session, and check that this changes nothing."""
    was = session.refresh().revision, [*session._store.events()], [*session.entries()]
    found = [as_sent(session.context(provider, model=model)) for provider in ALL for model in _ASKED[provider]]
    assert (session.refresh().revision, [*session._store.events()], [*session.entries()]) == was
    return found


def cuts_agree(session: Session) -> int:
    """Rewind to each entry and ask: a store says what the cut of its log says."""
    entries, sources = read(session)
    for entry in reversed(entries):
        session.rewind(entry.seq)
        part = cut(entries, sources, entry.seq)
        for provider in ALL:
            found = session.context(provider)
            require_valid(found, sdk=False)
            if session.agent_id != "main":
                assert as_sent(found) == as_sent(part.context(provider))
    return len(ALL) * len(entries)
