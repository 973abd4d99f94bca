"""Agents for the crash tests: processes that talk, stream, run tools and spawn until they are killed.

Whatever an agent was told is done it notes in a side file, one line each. What it says can be told from its id alone,
and every write names the token of the lease that it was made under.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import takeback
from takeback import Conflict, LeaseLost, Session, Store, Usage

from ._harness import SideFile

ROLES = ("alpha", "beta", "helper")
Tell = Callable[..., None]


class Notes(SideFile):
    """The side file of agents: the kind of what was acknowledged, and what it was."""

    def read(self, kind: str | None = None) -> list[list[Any]]:
        """Return what was noted, in order, without the word for its kind if only one kind is wanted."""
        return [each if kind is None else each[1:] for each in self.notes() if kind in (None, each[0])]


def make(url: str) -> dict[str, str]:
    """Make the two agents and the sub-agent; give their ids."""
    with takeback.open(url) as store:
        alpha, beta = store.create_session("alpha"), store.create_session("beta")
        helper = alpha.spawn("help", label="helper").session
        return {"alpha": alpha.id, "beta": beta.id, "helper": helper.id}


def full_text(message_id: str) -> str:
    """Return all that the stream of an id would say."""
    rng = random.Random(message_id)
    return "".join(f"{message_id} {n} {rng.getrandbits(80):x}. " for n in range(rng.randrange(3, 25)))


# ---------------------------------------------------------------------- one run of an agent


class Agent:
    """One run of an agent, from entering its session until something ends it."""

    def __init__(self, store: Store, session: Session, ids: dict[str, str], role: str, run: int, tell: Tell) -> None:
        assert session._held is not None
        self.store, self.session, self.ids, self.role = store, session, ids, role
        self.token = session._held.lease.token
        self.name = f"{role}.{run}.{self.token}"
        self.rng, self.tell = random.Random(self.name), tell
        self.count = 0

    def step(self) -> None:
        """Do one thing."""
        self.count += 1
        doing = (self.send, self.send, self.receive, self.stream, self.stream, self.tool, self.say, self.spawn)
        self.rng.choice(doing)()

    def send(self) -> None:
        to = self.rng.choice([role for role in ROLES if role != self.role])
        text = f"{self.name} {self.count}"
        try:
            sent = self.store.get_session(self.ids[to]).send(text, sender=self.session)
        except Conflict:
            assert to == "helper", "only the helper is finished now and then"
        else:
            self.tell("sent", sent.id, to, text)

    def receive(self) -> None:
        for message in self.session.receive(self.rng.choice((None, 1, 3)), wait=self.rng.choice((0, 0.02))):
            assert message.metadata is not None
            self.tell("received", message.metadata["sent_id"], self.role)

    def stream(self) -> None:
        id = f"{self.name}.{self.count}"
        text, said = full_text(id), 0
        with self.session.stream(id=id, model=f"t{self.token}", flush_seconds=0.01, flush_bytes=200) as stream:
            while said < len(text):
                piece = text[said : said + self.rng.randrange(1, 60)]
                stream.write(piece)
                said += len(piece)
                if self.rng.random() < 0.3:
                    stream.flush()
                    self.tell("flushed", id, said)
            if self.rng.random() < 0.3:
                stream.finish(usage={"input_tokens": 3, "output_tokens": 1})
        self.tell("finished", id)

    def tool(self) -> None:
        asked = [{"id": f"{self.name}.{self.count}.{n}", "name": "work", "arguments": {}} for n in range(2)]
        said = {"role": "assistant", "content": "", "tool_calls": asked, "metadata": {"token": self.token}}
        self.session.append(said)
        for call in self.session.pending_calls():
            with self.session.tool(call) as run:
                self._work(run)

    def _work(self, run: takeback.ToolRun) -> None:
        self.tell("effect", run.call.id, run.call.idempotency_key)
        time.sleep(self.rng.uniform(0, 0.01))  # a kill must hit a tool at work now and then
        run.result(f"did {run.call.id}")
        self.tell("result", run.call.id)

    def settle(self) -> None:
        """See to what the run before left open: try it again, or say how it ended."""
        for call in self.session.pending_calls():
            if call.status != "unknown":
                with self.session.tool(call) as run:
                    self._work(run)
            elif call.attempts < 3:
                with self.session.retry(call) as run:
                    self._work(run)
            else:
                self.session.resolve_call(call, "it kills everybody", success=False)
                self.tell("result", call.id)

    def say(self) -> None:
        text = f"{self.name} {self.count} says"
        self.session.assistant(text, usage=Usage(2, 1), metadata={"token": self.token})
        self.tell("said", self.role, text)

    def spawn(self) -> None:
        label = f"{self.name}.{self.count}"
        child = self.session.spawn("a small thing", label=label, idempotency_key=label).session
        self.tell("spawned", self.role, label, child.id)
        child.assistant("done", usage=Usage(5, 1))
        child.complete(label)
        self.tell("completed", label, child.id)


def run(url: str, ids: dict[str, str], role: str, number: int, notes: Notes, stop: Path, take_over: bool) -> str:
    """Be an agent until the stop file is there; 'lost' if somebody else took its session over."""
    tell = notes.writer()
    with takeback.open(url) as store:
        while True:
            try:
                session = store.session(store.get_session(ids[role]), wait=20, take_over=take_over)
                with session:
                    agent = Agent(store, session, ids, role, number, tell)
                    tell("entered", role, number, agent.token, session.resumed, session.stopped_at, session.status)
                    agent.settle()
                    while not stop.exists() and not (role == "helper" and agent.rng.random() < 0.01):
                        agent.step()
                    if stop.exists():
                        return "stopped"
                    session.complete(agent.name)
            except LeaseLost:
                return "lost"
            take_over = False


# ---------------------------------------------------------------------- what must be true


def shown(url: str, ids: dict[str, str], role: str) -> dict[str, Any]:
    """Look at a session as every reader sees it."""
    with takeback.open(url) as store:
        session, tree = store.get_session(ids[role]), store.get_session(ids["alpha"]).tree()
        in_tree = {each.id: each.status for each in (tree, *tree.children)}
        listed = {status: [s.id for s in store.list_sessions(status=status)] for status in ("active", "interrupted")}
        return {
            "status": session.status,
            "listed": [status for status, found in listed.items() if session.id in found],
            "tree": in_tree.get(session.id, session.status),
            "pending": sorted({call.status for call in session.pending_calls()}),
            "streaming": [message.status for message in session.messages(limit=3) if not message.seq],
            "finished": session.finished_at is not None,
        }


def drain(url: str, ids: dict[str, str], notes: Notes) -> None:
    """Take in whatever waits, and settle what is open."""
    tell = notes.writer()
    with takeback.open(url) as store:
        for role in ROLES:
            with store.session(store.get_session(ids[role])) as session:
                agent = Agent(store, session, ids, role, 10**6, tell)
                tell("entered", role, 10**6, agent.token, session.resumed, session.stopped_at, session.status)
                agent.settle()
                while found := session.receive():
                    for message in found:
                        assert message.metadata is not None
                        tell("received", message.metadata["sent_id"], role)
                assert not session.inbox()
                assert not session.pending_calls()


def check(url: str, ids: dict[str, str], notes: Notes) -> dict[str, int]:
    """Compare the store with all that was noted; give how much there was of each."""
    with takeback.open(url) as store:
        sessions = {role: store.get_session(ids[role]) for role in ROLES}
        logs = {role: list(session.iter_messages()) for role, session in sessions.items()}
        _check_mail(logs, notes)
        _check_streams(logs, notes)
        for role in ROLES:
            _check_tokens(role, logs[role])
            assert (sessions[role].status, sessions[role].holder) == ("active", None)
        _check_calls(sessions, notes)
        _check_tree(store, sessions, logs, notes)
        report = store.verify()
        assert not report, str(report)
        cut = sum(message.status == "interrupted" for log in logs.values() for message in log)
        again = sum(call.attempts > 1 for session in sessions.values() for call in session.tool_calls())
    return {**Counter(each[0] for each in notes.read()), "cut off": cut, "tried again": again}


def _check_mail(logs: dict[str, list[takeback.Message]], notes: Notes) -> None:
    """Everything that was sent is there once, in the order of its sender, and was given once."""
    for role, log in logs.items():
        arrived = [m for m in log if m.metadata and "sent_id" in m.metadata]
        found = Counter(m.metadata["sent_id"] for m in arrived if m.metadata)
        assert max(found.values(), default=1) == 1, "delivered twice"
        sent = {id for id, to, _ in notes.read("sent") if to == role}
        assert sent <= found.keys(), f"lost: {sorted(sent - found.keys())[:5]}"
        given = Counter(id for id, to in notes.read("received") if to == role)
        assert max(given.values(), default=1) == 1, "given twice"
        assert given.keys() <= found.keys()
        order = defaultdict[str, list[int]](list)
        for message in arrived:
            name, number = message.text.split()
            order[name].append(int(number))
        for name, numbers in order.items():
            assert numbers == sorted(set(numbers)), f"out of order or doubled from {name}: {numbers}"


def _check_streams(logs: dict[str, list[takeback.Message]], notes: Notes) -> None:
    """What had been flushed is the beginning of exactly one message; what was finished is whole."""
    streamed = [m for log in logs.values() for m in log if m.text and m.text == full_text(m.id)[: len(m.text)]]
    found = {m.id: m for m in streamed}
    assert len(found) == len(streamed), "an answer is there twice"
    for log in logs.values():
        for message in log:
            assert message.status in ("complete", "interrupted")
            assert message.status == "complete" or message.id in found, f"{message.id} is no beginning of its text"
            assert message.seq > 0, "a stream was left open"
    for id, said in notes.read("flushed"):
        assert len(found[id].text) >= said, f"{id}: {said} characters were on disk, {len(found[id].text)} are left"
    for (id,) in notes.read("finished"):
        assert (found[id].text, found[id].status) == (full_text(id), "complete")


def _check_tokens(role: str, log: list[takeback.Message]) -> None:
    """Nobody wrote after somebody else had taken the session."""
    last = 0
    for message in log:
        own = (message.metadata or {}).get("token")
        token = int(message.model[1:]) if message.model else own
        if token is not None:
            assert token >= last, f"{role}: token {token} behind {last} at seq {message.seq}"
            last = token


def _check_calls(sessions: dict[str, Session], notes: Notes) -> None:
    """Every effect belongs to a call that was on disk before, under one key; every result that was told is there."""
    calls = {call.id: call for session in sessions.values() for call in session.tool_calls()}
    assert {call.status for call in calls.values()} <= {"completed", "failed"}
    effects = defaultdict[str, set[str]](set)
    for id, key in notes.read("effect"):
        effects[id].add(key)
    assert effects.keys() <= calls.keys(), "a tool ran that nobody knows of"
    for id, keys in effects.items():
        assert keys == {calls[id].idempotency_key}
    for (id,) in notes.read("result"):
        assert calls[id].result in (f"did {id}", "it kills everybody")
    for id, call in calls.items():
        assert call.status == "failed" or id in effects, f"{id} has a result and never ran"


def _check_tree(
    store: Store, sessions: dict[str, Session], logs: dict[str, list[takeback.Message]], notes: Notes
) -> None:
    """Sub-agents are there once each, with their results, and what all of them spent is counted once."""
    spawned = notes.read("spawned")
    for role, session in sessions.items():
        tree, children = session.tree(), session.children()
        labels = Counter(child.label for child in children)
        assert max(labels.values(), default=1) == 1
        told = {id: label for who, label, id in spawned if who == role}
        assert told.items() <= {child.id: child.label for child in children}.items()
        assert [each.id for each in tree.children] == [child.id for child in children]
        spent = _spent(logs[role]) + sum(_spent(child.messages()) for child in children)
        if role == "alpha":
            spent += sum(_spent(child.messages()) for child in sessions["helper"].children())
        assert tree.totals.usage.input_tokens == spent
        assert {text for who, text in notes.read("said") if who == role} <= {m.text for m in logs[role]}
    for label, id in notes.read("completed"):
        child = store.get_session(id)
        assert (child.status, child.result) == ("completed", label)


def _spent(messages: list[takeback.Message]) -> int:
    return sum(m.usage.input_tokens for m in messages if m.usage is not None)
