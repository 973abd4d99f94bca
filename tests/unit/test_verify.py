"""R12: verify is right. Every kind of planted damage is found and named, and no healthy store gives an alarm.

Damage is planted with SQL in a closed store, either as a value that no longer matches its check, or, where that is
meant to be harder, with the check computed again: then only what other records say can give it away.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from _damages import DAMAGES, build, damaged, rot, rows_of  # noqa: F401

import takeback
from takeback.files import roots, snapshots, timeline
from takeback.files.roots import Root
from takeback.files.snapshots import StoredScan
from takeback.files.timeline import DirectoryAt
from takeback.model import tree
from takeback.model.tree import Node
from takeback.ops import blobs
from takeback.storage.base import Tx
from takeback.testing.contract.base import die

pytestmark = [pytest.mark.promise("R12"), pytest.mark.feature("F5")]

# ---------------------------------------------------------------------- healthy stores of all kinds


def _say(session: takeback.Session, rng: random.Random) -> None:
    usage = {"input_tokens": rng.randrange(90), "output_tokens": rng.randrange(9), "cost": 0.25}
    texts = [f"text {rng.random()}" * rng.randrange(1, 9) for _ in range(rng.randrange(1, 4))]
    if rng.random() < 0.5:
        session.append(*({"role": "user", "content": text} for text in texts))
    else:
        session.assistant(texts[0], model="m", usage=usage, duration=0.5, raw=b"\0" if rng.random() < 0.3 else None)


def _keyed(session: takeback.Session, rng: random.Random) -> None:
    key = f"key {rng.randrange(5)}"
    session.user(f"said under {key}", idempotency_key=key)


def _named_message(session: takeback.Session, rng: random.Random) -> None:
    session.user("named", id=f"id-{rng.getrandbits(60)}", metadata={"a": [1, None]})


def _attach(session: takeback.Session, rng: random.Random) -> None:
    session.user("see", attachments=[rng.randbytes(rng.choice((0, 9, 3000))), "https://example.org/a.png"])


def _spill(session: takeback.Session, rng: random.Random) -> None:
    if rng.random() < 0.3:
        session.user("large " + rng.randbytes(34_000).hex())


def _run_tool(session: takeback.Session, rng: random.Random) -> None:
    with session.tool("ls", {"path": "."}) as run:
        run.result("files") if rng.random() < 0.7 else run.error("no")


def _call_and_answer(session: takeback.Session, rng: random.Random) -> None:
    call = {"id": f"c{rng.randrange(3)}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    session.append({"role": "assistant", "content": None, "tool_calls": [call]})
    for waiting in session.pending_calls()[: rng.randrange(3)]:
        session.tool_result(waiting, "done", success=rng.random() < 0.8)


def _gemini(session: takeback.Session, rng: random.Random) -> None:
    calls = [{"functionCall": {"name": "g", "args": {}}} for _ in range(rng.randrange(1, 3))]
    answers = [{"functionResponse": {"name": "g", "response": {"a": 1}}} for _ in calls]
    asked, answered = {"role": "model", "parts": calls}, {"role": "user", "parts": answers}
    if rng.random() < 0.5:
        session.append(asked, answered)
    else:
        session.append(asked)
        session.append(answered)


def _anthropic(session: takeback.Session, rng: random.Random) -> None:
    name = f"toolu_{rng.randrange(4)}"
    session.append({"role": "assistant", "content": [{"type": "tool_use", "id": name, "name": "t", "input": {}}]})
    session.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": name, "content": "ok"}]})


def _work(session: takeback.Session, rng: random.Random) -> None:
    chosen = rng.randrange(8)
    if chosen == 0:
        session.set_tasks(["one", "two", "three"][: rng.randrange(4)])
    elif chosen == 1:
        session.add_task(f"task {rng.random()}", rng.choice(("pending", "completed")))
    elif chosen == 2 and session.tasks():
        session.update_task(rng.randrange(len(session.tasks())), rng.choice(("completed", "pending")))
    elif chosen == 3:
        session.set_plan(rng.choice((None, "a plan")))
    elif chosen == 4:
        session.note("noted", idempotency_key=f"note {rng.randrange(3)}")
    elif chosen == 5:
        session.record_file(f"file {rng.randrange(4)}", "write")
    elif chosen == 6:
        session.add_build_attempt()
    elif session.head.seq:
        session.compact(rng.randrange(1, session.head.seq + 1), "a summary")


def _keep(session: takeback.Session, rng: random.Random) -> None:
    session.state.set(f"k{rng.randrange(4)}", "v" * rng.choice((1, 3000)))
    if rng.random() < 0.3:
        session.state.delete("k1")


def _move(session: takeback.Session, rng: random.Random) -> None:
    chosen = rng.randrange(7)
    if chosen == 0:
        session.rewind(rng.randrange(session.head.seq + 1))
    elif chosen == 1:
        session.fork(rng.randrange(session.head.seq + 1))
    elif chosen == 2:
        session.switch(rng.choice(session.branches()))
    elif chosen == 3:
        session.pop()
    elif chosen == 4:
        session.clear()
    elif chosen == 5 and session.head.seq:
        first = rng.randrange(1, session.head.seq + 1)
        session.replace_tail(first, [{"role": "user", "content": "instead"}], session.revision)
    else:
        session.checkpoint(None if rng.random() < 0.5 else f"point {rng.getrandbits(60)}")


def _label(session: takeback.Session, rng: random.Random) -> None:
    rng.choice((session.archive, session.unarchive, session.pin, session.unpin))()
    session.tag(f"tag {rng.randrange(3)}")
    session.rename(f"title {rng.random()}")
    session.set_metadata({"n": rng.randrange(9)})


def _undo(session: takeback.Session, rng: random.Random) -> None:
    (session.undo if rng.random() < 0.6 else session.redo)()


def _go_back(session: takeback.Session, rng: random.Random) -> None:
    points = session.checkpoints()
    if points:
        session.rewind(rng.choice(points))


def _live(session: takeback.Session, rng: random.Random) -> None:
    chosen = rng.randrange(8)
    if chosen == 0:
        session.send(f"sent {rng.random()}", idempotency_key=rng.choice((None, "sent once")))
    elif chosen == 1:
        session.receive(rng.choice((None, 1)))
    elif chosen == 2:
        with session.stream(id=rng.choice((None, "an answer"))) as stream:
            stream.write("thinking", rng.choice(("text", "thinking")))
            stream.flush()
            stream.write("text")
            stream.cancel() if rng.random() < 0.3 else None
    elif chosen == 3:
        stream = session.stream()
        stream.write("left open")
        stream.flush()
        session.rewind(rng.randrange(session.head.seq + 1))
    elif chosen == 4:
        with session:
            session.send("to itself")
            die(session) if rng.random() < 0.7 else None
    elif chosen == 5:
        with session:
            run = session.tool("ls")
            run.__enter__()
            session.ask_approval(run.call)
            die(session)
    elif chosen == 6:
        rng.choice((session.complete, session.reopen, session.stop, session.timeout))()
    else:
        session.spawn("a task", label=f"label {rng.randrange(4)}")


def _scan(session: takeback.Session, rng: random.Random) -> None:
    """Record a scan of a directory that all sessions share, as if a tool had changed it."""
    store, contents = session._store, [rng.choice(("a", "b", "c")).encode() for _ in range(rng.randrange(4))]
    held = {b"file %d" % at: Node(tree.FILE, 0o644, 1, sha256(each).digest()) for at, each in enumerate(contents)}
    top = tree.encode(held)
    root = roots.encode(Root(sha256(top).digest(), len(contents), [], 0))
    packed = [blobs.Packed(sha256(each).hexdigest(), len(each), blobs.pack(each)) for each in (*contents, top, root)]
    place, now_ms = DirectoryAt("a machine", "/a directory"), store._clock.now_ms()

    def record(tx: Tx) -> None:
        blobs.put_many(tx, store.scope, packed, now_ms=now_ms)
        here, count = timeline.find(tx, store.scope, place), snapshots.sweeps(tx, store.scope)
        who = rng.choice(("calls", "outside", "session", None))
        taken = StoredScan(sha256(root).hexdigest(), count, place, here.tip if here else 0, who, ("c1",))
        snapshots.record(tx, store.scope, session.id, taken, now_ms=now_ms)

    store._write(record)


_ACTIONS = (
    *(_say, _say, _say, _keyed, _named_message, _attach, _spill, _run_tool, _call_and_answer, _gemini, _anthropic),
    *(_work, _work, _work, _keep, _move, _move, _label, _undo, _go_back, _live, _live),
    *(_scan, _scan),
)


def _store_action(store: takeback.Store, sessions: list[takeback.Session], rng: random.Random) -> None:
    chosen, session = rng.randrange(14), rng.choice(sessions)
    if chosen == 0:
        sessions.append(store.create_session(f"s {rng.getrandbits(60)}", agent=rng.choice("ab"), parent=session.id))
    elif chosen == 1:
        sessions.append(session.fork(rng.randrange(session.head.seq + 1), as_session=True))
    elif chosen == 2:
        store.delete_session(session)
    elif chosen == 3:
        store.restore_session(session)
    elif chosen == 4 and len(sessions) > 2:
        store.purge_session(session, include_forks=rng.random() < 0.2)
    elif chosen == 5:
        store.update_agent("a", metadata={"n": rng.randrange(9)})
    elif chosen == 6:
        store.get_agent("a").state.set("k", rng.randrange(3))
    elif chosen == 7:
        store.delete_agent("b")
    elif chosen == 8:
        store.checkpoint_agent(rng.choice("ab"), type=rng.choice(("manual", "automatic")))
    elif chosen in (9, 10):
        made = store.list_checkpoints(rng.choice("ab"))
        act = store.restore_checkpoint if chosen == 9 else store.delete_checkpoint
        act(rng.choice(made)) if made else None
    elif chosen in (11, 12):
        _put_document(store, rng)
    else:
        store.undo()


def _put_document(store: takeback.Store, rng: random.Random) -> None:
    docs, key = store.docs(rng.choice(("n", ("a", "b")))), rng.choice("xyz")
    if rng.random() < 0.2:
        docs.delete(key)
    value = rng.choice((None, {"n": rng.random()}, b"bytes", rng.randbytes(70_000)))
    docs.put(key, value, ttl=rng.choice((None, None, 0.001, 1000)))


def grow(store: takeback.Store, rng: random.Random, steps: int) -> None:
    """Do whatever comes to mind; what the library refuses is not done."""
    store.create_agent("a", system_prompt="be", config={"x": 1})
    sessions = [store.main_session("a"), store.create_session("first", agent="b", idempotency_key="made")]
    for _ in range(steps):
        try:
            if rng.random() < 0.2:
                _store_action(store, sessions, rng)
            else:
                rng.choice(_ACTIONS)(rng.choice(sessions).refresh(), rng)
        except takeback.Error:
            continue


def test_a_healthy_store_gives_no_alarm(tmp_path: Path, seed: int, counts: Callable[[int, int], int]) -> None:
    checked = 0
    for number in range(counts(200, 3000)):
        rng, path = random.Random(f"healthy {seed} {number}"), tmp_path / f"{number}.db"
        with takeback.open(path, durability="relaxed") as store:
            grow(store, rng, rng.randrange(60))
            grow(store.scoped("other"), rng, rng.randrange(20))
            report = store.verify()
        assert not report, f"seed {seed}, store {number}: {report}"
        checked += report.checked
    assert checked > 10_000


def test_a_directory_that_was_moved_gives_no_alarm(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "a.db") as store:
        (tmp_path / "here").mkdir()
        store.directory_session(tmp_path / "here").user("hello")
        (tmp_path / "here").rename(tmp_path / "there")
        store.directory_session(tmp_path / "there").user("hello again")
        store.cron_session("main", "nightly").user("tick")
        assert not store.verify(), str(store.verify())


def test_writers_that_go_on_give_no_alarm(tmp_path: Path, seed: int) -> None:
    """All that one finding compares is read at one moment, whatever is appended, rewound or purged meanwhile."""
    with takeback.open(tmp_path / "a.db", durability="relaxed") as store:
        grow(store, random.Random(f"before {seed}"), 40)
        stop = threading.Event()

        def write(number: int) -> None:
            rng = random.Random(f"writer {seed} {number}")
            sessions = [store.create_session(f"writer {number}", agent="a")]
            while not stop.is_set():
                try:
                    if rng.random() < 0.2:
                        _store_action(store, sessions, rng)
                    else:
                        rng.choice(_ACTIONS)(rng.choice(sessions).refresh(), rng)
                except takeback.Error:
                    continue

        writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for writer in writers:
            writer.start()
        try:
            reports = [store.verify() for _ in range(12)]
        finally:
            stop.set()
            for writer in writers:
                writer.join()
        assert [str(report) for report in reports if report] == []
        assert reports[-1].checked > reports[0].checked


def test_verify_changes_nothing_and_needs_no_right_to_write(tmp_path: Path) -> None:
    path = build(tmp_path / "a.db")
    before = rows_of(path)
    with takeback.open(path, read_only=True) as store:
        assert not store.verify()
    assert rows_of(path) == before


@pytest.mark.parametrize("name", DAMAGES)
def test_planted_damage_is_found(tmp_path: Path, name: str) -> None:
    path, _ = damaged(tmp_path, name)
    with takeback.open(path) as store:
        report = store.verify()
    assert report, "nothing was found"
    assert {problem.kind for problem in report.problems} & DAMAGES[name][1], str(report)
    assert all(problem.where and problem.what and problem.fix for problem in report.problems)


def test_there_are_at_least_25_kinds_of_damage() -> None:
    assert len(DAMAGES) >= 25
