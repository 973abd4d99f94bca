"""Transcripts as they come in real life and worse, from one seed: what is said, in every form, and what goes wrong.

``play`` tells one into a real session of a real store: parallel calls, results in another order, missing, doubled or
for nobody, user messages between a call and its result, repeated, long and odd ids, thinking, reasoning and signatures,
tools of the servers, media in every form and as attachments, broken Unicode, system messages in the middle, unknown
roles, sub-agents, compactions, forks and rewinds, other providers and models from one turn to the next, dicts and SDK
objects. Two things that no call of a store does yet are done to what was read from it: ``damaged`` cuts answers off
while they were written and erases messages. Beta blocks of Anthropic's are left out: the validators know the API only
without its beta headers.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from takeback import Session
from takeback.model.message import Message

from ._teller import MODELS, Teller


def play(session: Session, rng: random.Random) -> list[Session]:
    """Tell a transcript into a session; give all sessions that came of it."""
    teller, told = Teller(rng), [session]
    for _ in range(rng.choice([1, 1, 2, 2, 3, 4])):
        _turn(teller, session)
        for share, event in _EVENTS:
            if teller.chance(share):
                session = event(teller, session) or session
                told += [] if session in told else [session]
    return told


def _turn(teller: Teller, session: Session) -> None:
    if teller.chance(0.9):
        session.append(teller.asking())
    for _ in range(teller.rng.randrange(0, 3)):
        session.append(*teller.answer(teller.rng.choice([1, 1, 2, 3])))
        if teller.chance(0.1):
            session.append({"role": "user", "content": "Are you there?"})
        session.append(*teller.results())
    if teller.chance(0.8):
        session.append(*teller.answer(0))
    if teller.chance(0.25):
        teller.provider = teller.rng.choice([*MODELS])
        teller.model = teller.rng.choice(MODELS[teller.provider])


# ---------------------------------------------------------------------- what else happens


def _switch_model(teller: Teller, session: Session) -> None:
    teller.model = teller.rng.choice(MODELS[teller.provider])


def _say_more(teller: Teller, session: Session) -> None:
    roles = ["system", "developer", "critic"]
    session.append({"role": teller.rng.choice(roles), "content": teller.text() or "Be brief."})


def _start_tool(teller: Teller, session: Session) -> None:
    """Run a tool that no message announced; it may never end."""
    run = session.tool(teller.name(), {"path": "a"}, id=f"own-{teller.count}-{session.refresh().revision}")
    run.__enter__()
    if teller.chance(0.5):
        run.result("done")


def _compact(teller: Teller, session: Session) -> None:
    if count := session.refresh().head.seq:
        session.compact(teller.rng.randrange(1, count + 1), "Much was said.")


def _rewind(teller: Teller, session: Session) -> None:
    if count := session.refresh().head.seq:
        session.rewind(teller.rng.randrange(1, count + 1))


def _fork(teller: Teller, session: Session) -> Session:
    return session.fork(name=f"fork {teller.rng.random()}", as_session=True)


def _send_sub_agent(teller: Teller, session: Session) -> Session:
    made = session._store.create_session(f"sub {teller.rng.random()}", kind="subagent", parent=session)
    made.append({"role": "user", "content": "Look into it."})
    return made


Event = Callable[[Teller, Session], Session | None]
_EVENTS: tuple[tuple[float, Event], ...] = (
    (0.2, _switch_model),
    (0.1, _say_more),
    (0.1, _start_tool),
    (0.1, _compact),
    (0.1, _rewind),
    (0.05, _fork),
    (0.05, _send_sub_agent),
)


# ---------------------------------------------------------------------- what no call of a store does yet


def damaged(message: Message, rng: random.Random) -> Message:
    """Cut an answer off while it was written, or erase a message, now and then."""
    if rng.random() < 0.02:
        return Message(message.branch, message.seq, message.turn, message.at_ms, None)
    if message.role != "assistant" or rng.random() > 0.05 or message.data is None:
        return message
    body = msgspec.json.decode(message.data)
    cut = msgspec.json.encode({**body, "status": rng.choice(["interrupted", "cancelled", "streaming"])})
    return Message(message.branch, message.seq, message.turn, message.at_ms, cut, message.raw, None, message._reader)
