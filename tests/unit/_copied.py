"""What the tests of copying share: a store with some of everything, all that is seen of one, and interruptions."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_verify import _ACTIONS

import _postgres
import takeback
from takeback import Copied, Store
from takeback.client.store import Store as Handle
from takeback.clock import SystemClock
from takeback.ops import calls
from takeback.records import sink, source, strict_checks
from takeback.storage.base import Backend
from takeback.storage.memory import MemoryBackend
from takeback.storage.wrap import Wrapper

Open = Callable[[Path], Store]

# How the stores of these tests are opened: the same path is the same store, where a store outlives its handle.
OPENERS: dict[str, Open] = {
    "file": lambda path: takeback.open(path, durability="relaxed"),
    "memory": lambda path: takeback.open(":memory:"),
    "postgres": lambda path: takeback.open(_postgres.url(path)),
}
SCOPES = ("", "anna")


def rich(store: Store) -> Store:
    """Put some of everything into a store."""
    _agents(store)
    talk = store.create_session(
        "talk", agent="coder", tags=["a", "b"], metadata={"m": 1}, prompt="Do it", idempotency_key="talk"
    )
    for number in range(1, 6):
        talk.user(f"question {number}", id=f"user-{number}")
        talk.assistant(f"answer {number}", usage={"input_tokens": number, "cost": 0.5}, raw=b"{}", duration=0.5)
    _work(talk)
    _tools(talk)
    talk.user("see", attachments=[b"attached " * 9, random.Random(2).randbytes(2_500_000), "https://example.org/a"])
    talk.user("large " + random.Random(1).randbytes(40_000).hex())
    talk.user("with a key", idempotency_key="once")
    _moves(store, talk)
    _others(store, talk)
    _documents(store)
    anna = store.scoped("anna")
    anna.docs("kept").put("k", "in another scope")
    anna.create_session("talk", agent="coder").user("in another scope", attachments=[b"attached " * 9])
    talk.refresh().user("the end")
    return store


NAMESPACES: tuple[Any, ...] = ("kept", ("a", "b"), "n")


def _documents(store: Store) -> None:
    docs = store.docs("kept")
    docs.put("small", 1, idempotency_key="document")
    docs.put("small", {"n": 2})
    docs.put("large", random.Random(4).randbytes(2_500_000))
    docs.put("short-lived", "x", ttl=0.001)
    docs.put("gone", 1)
    docs.delete("gone")
    store.docs(("a", "b")).put("k", ["x" * 70_000], ttl=10**6)
    store.put_content(b"linked by nothing")


def _agents(store: Store) -> None:
    store.create_agent("coder", name="Coder", system_prompt="be brief", config={"x": 1}, idempotency_key="agent")
    store.update_agent("coder", metadata={"team": "one"})
    for number in range(4):
        store.get_agent("coder").state.set("count", number, idempotency_key=f"count {number}")
    store.create_agent("gone").state.set("k", 1)
    store.delete_agent("gone")
    store.create_agent("gone", name="made again")
    store.update_agent("gone", type="x")
    store.undo()


def _work(talk: takeback.Session) -> None:
    talk.set_tasks(["one", "two"])
    talk.update_task(0, "completed")
    talk.set_plan("the plan")
    talk.note("a note", task=1)
    talk.record_file("a.py", "write")
    talk.state.set("k", 1)
    talk.state.set("k", "v" * 3000)
    talk.add_build_attempt()
    talk.compact(4, "a summary")
    talk.checkpoint("here", description="a point", idempotency_key="point")


def _tools(talk: takeback.Session) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    talk.append({"role": "assistant", "content": None, "tool_calls": [call]})
    talk.tool_result("c1", "done")
    talk.append({"role": "model", "parts": [{"functionCall": {"name": "g", "args": {}}}]})
    talk.append({"role": "user", "parts": [{"functionResponse": {"name": "g", "response": {"a": 1}}}]})
    with talk.tool("ls", {"path": "."}) as run:
        run.error("no")
    talk.append({"role": "assistant", "content": None, "tool_calls": [{**call, "id": "open"}]})


def _moves(store: Store, talk: takeback.Session) -> None:
    talk.fork(4, name="aside")
    talk.rewind(8, idempotency_key="back")
    talk.undo()
    talk.redo()
    talk.user("after the rewind")
    talk.checkpoint("here")
    talk.switch("aside")
    talk.user("on the side")
    talk.fork(name="taken back")
    talk.undo()
    talk.switch("main")
    talk.rewind(6)
    talk.pop()
    talk.rename("Another title")
    talk.undo()


def _others(store: Store, talk: takeback.Session) -> None:
    child = store.create_session("child", agent="coder", kind="subagent", parent=talk, label="helper")
    child.user("from the parent")
    fork = talk.fork(3, as_session=True, name="forked")
    fork.user("on its own")
    fork.fork(2, as_session=True, name="forked again").user("further")
    store.main_session("coder").user("main")
    store.delete_session(store.main_session("coder"))
    store.cron_session("coder", "nightly").user("tick")
    trash = store.create_session("trash", agent="passing")
    trash.user("in the trash")
    store.delete_session(trash)
    store.create_session("trash", agent="passing").user("the same name")
    origin = store.create_session("origin", agent="coder")
    origin.append(*({"role": "user", "content": f"kept {number}"} for number in range(9)))
    origin.fork(5, as_session=True, name="survivor").user("reads from a purged one")
    origin.user("erased")
    store.purge_session(origin)
    erased = store.create_session("erased")
    erased.user("erased too", attachments=[b"erased"])
    erased.rename("erased title")
    store.purge_session(erased)
    store.create_session("empty").archive()
    child.refresh().pin()


# ---------------------------------------------------------------------- what people can see


def view(store: Store) -> dict[Any, Any]:
    """Return everything that the API shows of a scope, but cursors, which are a store's own."""
    seen: dict[Any, Any] = {}
    for trash in (False, True):
        for order in ("updated", "created"):
            found = store.iter_sessions(archived=None, trash=trash, order=order)
            seen["listed", trash, order] = [session.id for session in found]
    for session_id in (*seen["listed", False, "created"], *seen["listed", True, "created"]):
        seen[session_id] = session_view(store.get_session(session_id))
    seen["agents"] = [
        (agent.to_dict(), [agent.state.at(version) for version in range(1, agent.version + 1)])
        for agent in store.list_agents(limit=1000)
    ]
    seen["documents"] = [list(store.docs(each).list(limit=1000)) for each in NAMESPACES]
    counted = store.stats()
    names = [
        name for name in counted.__struct_fields__ if name not in ("total_bytes", "checkpoints")
    ]  # those of agents stay behind
    seen["stats"] = {name: getattr(counted, name) for name in names}
    seen["operations"] = sorted((operation.id, operation) for operation in store.operations(limit=10_000))
    return seen


def session_view(session: takeback.Session) -> dict[str, Any]:
    """Return everything that the API shows of a session; hashes are those of its checkpoint and its rows."""
    names = ("id", "key", "name", "title", "kind", "label", "agent_id", "workspace", "tags", "archived")
    more = ("pinned", "deleted", "metadata", "prompt", "revision", "head", "created_at", "updated_at", "message_count")
    return {
        **{name: getattr(session, name) for name in (*names, *more) if hasattr(session, name)},
        "status": session._seen.status,  # as it is stored: nobody runs a session in a copy
        "row": (session._seen.hash, session._seen.numbers, session._seen.message_ms, session._seen.states),
        "entries": list(session.entries()),
        "hashes": _hashes(session),
        "contents": [
            (part.name, part.url or part.read()) for message in session.messages() for part in message.attachments
        ],
        "checkpoints": session.checkpoints(),
        "branches": session.branches(),
        "operations": session.operations(limit=10_000),
        "stats": (session.stats(), session.stats(spent=True)),
        "work": (session.tasks(), session.get_plan(), session.notes(), session.files(), session.state.read()),
        "calls": session._ask(lambda tx, row: list(calls.all_calls(tx, row))),
        # An answer that is still being written is shown and has no place yet; it is not copied.
        "turns": [turn.prompt for turn in session.turns() if any(message.seq for message in turn.messages)],
    }


_HASHES = """SELECT b.uid, e.key - (e.key >> 32 << 32), e.rest FROM branch b JOIN session s ON s.sid = b.session
JOIN entry e ON e.key > (b.bid << 32) AND e.key < ((b.bid + 1) << 32) WHERE s.scope = ? AND s.id = ? ORDER BY 1, 2"""


def _hashes(session: takeback.Session) -> list[Any]:
    return session._store._read(lambda tx: tx.all(_HASHES, (session._store.scope, session.id)))


def views(store: Store) -> list[dict[Any, Any]]:
    """Return what is seen of each scope."""
    return [view(store.scoped(scope)) for scope in SCOPES]


def assert_same(one: Store, two: Store) -> None:
    """Compare all that can be seen, one thing after another, and check both stores."""
    for mine, other in zip(views(one), views(two), strict=True):
        assert mine.keys() == other.keys()
        for name in mine:
            if isinstance(mine[name], dict):
                for part in mine[name]:
                    assert mine[name][part] == other[name][part], (name, part)
            assert mine[name] == other[name], name
    assert_sound(one)
    assert_sound(two)


def assert_sound(store: Store) -> None:
    """Every check and hash of a store is right."""
    report = store.verify()
    assert not report, str(report)


def assert_whole(store: Store, wanted: list[dict[Any, Any]]) -> int:
    """Whatever session can be seen is as it must be at the end; give how many those are."""
    count = 0
    for scope, full in zip(SCOPES, wanted, strict=True):
        handle = store.scoped(scope)
        for trash in (False, True):
            for session in handle.iter_sessions(archived=None, trash=trash):
                assert session_view(session) == full[session.id]
                count += 1
        assert {operation.session_id for operation in handle.operations(limit=10_000)} <= {*full, None}
    return count


# ---------------------------------------------------------------------- interruptions


def small_pages(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Let pages and batches hold so many rows only."""
    for module in (source, strict_checks, sink):
        monkeypatch.setattr(module, "ROWS", rows)


class Interrupted(Exception):
    """The test stops a copy here."""


class Interrupting(Wrapper):
    """Lets so many writes through and refuses the next one."""

    def __init__(self, inner: Backend, left: list[int]) -> None:
        super().__init__(inner)
        self._left = left

    def write(self, op: Any, **how: Any) -> Any:
        if self._left[0] <= 0:
            raise Interrupted
        self._left[0] -= 1
        return self.inner.write(op, **how)


def interruptible(left: list[int]) -> Store:
    """Open a store in memory whose writes are counted down."""
    return Handle(Interrupting(MemoryBackend(), left), clock=SystemClock())


# ---------------------------------------------------------------------- small things


def memory() -> Store:
    return takeback.open(":memory:")


def is_empty(done: Copied) -> bool:
    return not any((done.sessions, done.entries, done.agents, done.checkpoints, done.operations, done.blobs))


def go_on(store: Store, rng: random.Random) -> None:
    """Do more of everything but purging, which a copy leaves to people."""
    for scope in SCOPES:
        handle = store.scoped(scope)
        handle.session("new", agent="a", hold=False).user("one more session")
        handle.session("new", agent="a", hold=False).fork(1, as_session=True).user("and a fork of it")
        handle.get_agent("a").state.set("k", rng.random())
        sessions = list(handle.iter_sessions())
        for _ in range(25):
            if rng.random() < 0.1:
                rng.choice((handle.delete_session, handle.restore_session))(rng.choice(sessions))
            try:
                rng.choice(_ACTIONS)(rng.choice(sessions).refresh(), rng)
            except takeback.Error:
                continue
