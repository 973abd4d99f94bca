"""What an attack on live sessions found: each of these once went wrong."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import takeback
from takeback import Busy, Conflict, Invalid, LeaseLost, Session, Store
from takeback.client.background import Keeper
from takeback.storage.base import Tx
from takeback.testing.contract.base import PATIENCE, eventually

pytestmark = pytest.mark.feature("F6")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with takeback.open(path) as found:
        yield found


def _call(session: Session, *ids: str) -> None:
    calls = [{"id": id, "name": "work", "arguments": {}} for id in ids]
    session.append({"role": "assistant", "content": "", "tool_calls": calls})


def _child(code: str, path: Path) -> subprocess.Popen[str]:
    text = f"import takeback, os, signal, sys, time\nstore = takeback.open({str(path)!r})\n{code}"
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


# ---------------------------------------------------------------------- approvals, calls


@pytest.mark.feature("F4")
def test_a_no_that_comes_while_waiting_is_a_no(store: Store) -> None:
    session = store.session("x")
    _call(session, "c1")
    other = store.get_session("x")
    session.ask_approval("c1", "delete it?")
    timer = threading.Timer(0.1, lambda: other.answer_approval("c1", False, by="ann"))
    timer.start()
    found = session.ask_approval("c1", wait=5)
    timer.join()
    assert (found.approved, found.status, found.by) == (False, "denied", "ann")


@pytest.mark.feature("F4")
@pytest.mark.parametrize("how", ["sys.exit(0)", "s.release(); os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_a_call_whose_process_left_in_the_middle_is_unknown(store: Store, path: Path, how: str) -> None:
    store.create_session("x")
    code = (
        'with store.session("x") as s:\n'
        '    call = {"id": "c1", "name": "w", "arguments": {}}\n'
        '    s.append({"role": "assistant", "content": "", "tool_calls": [call]})\n'
        f"    with s.tool(s.pending_calls()[0]):\n        {how}\n"
    )
    _child(code, path).communicate(timeout=20)
    with store.session("x") as session:
        (call,) = session.pending_calls()
        assert (call.status, call.attempts) == ("unknown", 1)
        with pytest.raises(Conflict, match="retry"), session.tool(call):
            pass
        with session.retry(call) as run:
            run.result("done")
    assert store.get_session("x").pending_calls() == []


@pytest.mark.feature("F4")
def test_calls_of_one_message_come_in_its_order(store: Store) -> None:
    session = store.session("x")
    _call(session, "zeta", "alpha", "mid")
    assert [call.id for call in session.pending_calls()] == ["zeta", "alpha", "mid"]
    assert [call.id for call in session.tool_calls()] == ["zeta", "alpha", "mid"]


@pytest.mark.feature("D8")
def test_who_was_stopped_starts_nothing_more(store: Store) -> None:
    session = store.session("x")
    stream = session.stream()
    stream.write("half")
    store.get_session("x").stop(reason="too expensive")
    with pytest.raises(Conflict, match="stopped"), session.tool("work"):
        pass
    with pytest.raises(Conflict, match="stopped"):
        stream.flush()
    assert store.get_session("x").error == "too expensive"


@pytest.mark.feature("D8")
def test_stopping_a_finished_parent_stops_those_below(store: Store) -> None:
    boss = store.create_session("boss")
    child = boss.spawn("work").session
    boss.complete("done")
    boss.stop()
    assert (boss.refresh().status, child.refresh().status) == ("completed", "stopped")
    with pytest.raises(Conflict):
        boss.stop()


@pytest.mark.feature("D8")
def test_the_end_of_a_session_can_be_repeated_while_a_tool_ran(store: Store) -> None:
    session = store.session("x")
    _call(session, "c1")
    session.tool(session.pending_calls()[0]).__enter__()
    for _ in range(2):
        session.complete(7, idempotency_key="k")
    assert (session.status, session.result) == ("completed", 7)


# ---------------------------------------------------------------------- leases


def test_a_lost_handle_writes_nothing_until_it_is_entered_again(store: Store) -> None:
    old, new = store.session("x"), store.session("x", take_over=True)
    for _ in range(2):
        with pytest.raises(LeaseLost):
            old.user("late")
    assert old.refresh().holder == new.holder
    new.release()
    with old:
        old.user("mine again")
    assert [message.text for message in old.messages()] == ["mine again"]


def test_leaving_what_was_lost_leaves_the_handle_lost(store: Store) -> None:
    with store.session("x") as old:
        store.session("x", take_over=True).user("new")
    with pytest.raises(LeaseLost):
        old.user("late")


def test_entering_a_held_session_that_is_finished_goes_on(store: Store) -> None:
    session = store.session("x")
    session.complete()
    with session:
        session.user("more")
    assert session.status == "active"


def test_an_interrupt_while_taking_leaves_nobody_outside(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease is stored, and its holder never heard of it."""
    real = store._backend.write
    session = store.create_session("x")

    def unheard(op: object, **options: object) -> object:
        real(op, **options)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store._backend, "write", unheard)
        with pytest.raises(KeyboardInterrupt):
            store.session(session)
    with store.session("x") as again:
        again.user("hello")


def test_who_wanted_a_lease_and_did_not_get_it_takes_nothing_back(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails before anything is stored; somebody else takes the very same token then."""
    session = store.create_session("x")

    def fails(op: object, **options: object) -> object:
        raise Busy("not now")

    with monkeypatch.context() as patch:
        patch.setattr(store._backend, "write", fails)
        with pytest.raises(Busy, match="not now"):
            store.session(session)
    with takeback.open(path) as other, other.session("x") as mine:
        store._keeper.give_back_abandoned()
        mine.user("still mine")
        with pytest.raises(Busy, match="has been run by"):
            store.session("x")


def test_a_lease_that_could_not_be_given_back_is_given_back_later(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = store.session("x")
    real = store._backend.write

    def busy(op: object, **options: object) -> object:
        raise Busy("not now")

    monkeypatch.setattr(store._backend, "write", busy)
    with pytest.raises(ValueError, match="boo"), session:
        raise ValueError("boo")
    monkeypatch.setattr(store._backend, "write", real)
    store._keeper._beat_at = 0.0
    with takeback.open(path) as other, other.session("x", wait=10) as mine:
        assert mine.error == "ValueError: boo"


def test_entering_again_and_again_keeps_nothing(store: Store) -> None:
    import weakref

    session = store.create_session("x")
    before = len(weakref.finalize._registry)  # type: ignore[attr-defined]
    for _ in range(50):
        with session:
            pass
    assert len(weakref.finalize._registry) - before < 5  # type: ignore[attr-defined]
    assert not store._keeper._held


def test_a_write_without_a_lease_proves_nothing_for_one_that_came_later(store: Store) -> None:
    """A write is planned blindly, the handle then holds the session and loses it: it must not count as a sign."""
    session = store.create_session("x")
    blind = session._append(({"role": "user", "content": "blind"},), "error", None, None)
    store.session(session)
    store.session("x", take_over=True)
    session._run(blind)
    with pytest.raises(LeaseLost):
        session.user("late")


def test_a_stuck_stream_does_not_silence_the_leases(store: Store) -> None:
    class Stuck:
        def _due(self) -> float:
            return 0.0

        def flush(self) -> None:
            freed.wait(PATIENCE)

        def _cut(self) -> None: ...

    stuck, freed = Stuck(), threading.Event()
    held = store.session("x")._held
    session = store.session("y")
    store._keeper.watch(stuck)
    time.sleep(0.1)
    store._keeper._beat_at = 0.0
    assert eventually(lambda: _beats(store, session))
    freed.set()
    assert held is not None


def _beats(store: Store, session: Session) -> int:
    def look(tx: Tx) -> int:
        return int((tx.one("SELECT beats FROM lease WHERE session = ?", (session._seen.sid,)) or (0,))[0])

    return store._read(look)


def test_the_background_survives_what_it_did_not_expect(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    session = store.session("x")
    real, count = Keeper._beat, [0]

    def fails_once(self: Keeper, held: object) -> None:
        count[0] += 1
        if count[0] == 1:
            raise MemoryError
        real(self, held)  # type: ignore[arg-type]

    monkeypatch.setattr(Keeper, "_beat", fails_once)

    def beats() -> int:
        store._keeper._beat_at = 0.0
        return _beats(store, session)

    assert eventually(beats)
    assert count[0] > 1


def test_a_handler_that_closes_the_store_is_told_and_does_not_hang(path: Path) -> None:
    """Ten processes that write without a pause are ended by a signal whose handler closes the store."""
    code = (
        "def bye(*_):\n    try:\n        store.close()\n    finally:\n        os._exit(3)\n"
        "signal.signal(signal.SIGTERM, bye)\n"
        's = store.session(None)\nprint("ready", flush=True)\n'
        'while True:\n    s.user("x")\n'
    )
    children = [_child(code, path.with_name(f"{number}.db")) for number in range(5)]
    for number, child in enumerate(children):
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(0.02 + 0.013 * number)
        child.send_signal(signal.SIGTERM)
    for child in children:
        assert child.wait(20) == 3
        child.communicate()


def test_a_silent_process_of_another_user_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where processes of others are hidden, only a signal tells whether they are there."""
    from takeback import presence

    monkeypatch.setattr(presence.os, "kill", lambda pid, number: (_ for _ in ()).throw(PermissionError()))
    assert presence._began(2**22 + 1) == ""


# ---------------------------------------------------------------------- streams


@pytest.mark.feature("F4")
def test_a_stream_that_lost_its_session_is_let_go(store: Store) -> None:
    session = store.session("x")
    with pytest.raises(LeaseLost), session.stream() as stream:  # noqa: PT012
        stream.write("half")
        store.session("x", take_over=True)
        stream.flush()
    assert not list(store._keeper._streams)
    assert store.get_session("x").messages() == []  # nothing of it was on disk when the other one came


@pytest.mark.feature("F4")
def test_a_stream_nobody_has_any_more_holds_no_session(store: Store, path: Path) -> None:
    store.session("x").stream().write("half")
    with takeback.open(path) as other, other.session("x", wait=10):
        pass


@pytest.mark.feature("F4")
def test_a_write_that_could_not_come_through_yet_is_taken_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    session = store.session("x")
    stream = session.stream(flush_bytes=1)
    real = store._backend.write

    def busy(op: object, **options: object) -> object:
        raise Busy("not now")

    monkeypatch.setattr(store._backend, "write", busy)
    stream.write("hello ")
    monkeypatch.setattr(store._backend, "write", real)
    stream.write("world")
    assert stream.finish().text == "hello world"


@pytest.mark.feature("F4")
def test_a_block_in_which_nothing_arrived_leaves_nothing(store: Store) -> None:
    session = store.session("x")
    with session.stream():
        pass
    assert session.messages() == []


@pytest.mark.feature("F4")
def test_half_a_tools_input_is_no_text(store: Store) -> None:
    session = store.session("x")
    with session.stream() as stream:
        stream.write("Let me see.")
        stream.write('{"path": "/etc', kind="tool_input")
    assert session.messages()[-1].text == "Let me see."
    assert session.messages()[-1].content[-1] == {"type": "tool_input", "json": '{"path": "/etc'}


# ---------------------------------------------------------------------- tasks, input


def test_a_task_that_is_cancelled_leaves_nothing_behind(path: Path) -> None:
    async def run() -> None:
        async with takeback.aopen(path) as store:
            session = await store.create_session("x")
            for _ in range(10):
                for begin in (session.__aenter__, lambda: session.stream().__aenter__()):
                    task = asyncio.ensure_future(begin())  # type: ignore[arg-type]
                    await asyncio.sleep(0)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                    await asyncio.sleep(0.05)  # what was begun is ended behind the task's back
            await asyncio.sleep(0.3)
            assert await session.messages() == []
            with takeback.open(path) as other, other.session("x", wait=10):
                pass

    asyncio.run(run())


def test_odd_arguments_are_refused(store: Store) -> None:
    session = store.session("x")
    for wrong in (
        lambda: session.send("x", sender=1),  # type: ignore[arg-type]
        lambda: session.wait(1),  # type: ignore[arg-type]
        lambda: session.spawn("x", metadata=[1]),  # type: ignore[arg-type]
        lambda: session.spawn("x", agent=""),
        lambda: session.fail(1),  # type: ignore[arg-type]
        lambda: session.stream(flush_seconds=-1),
        lambda: store.session("x", wait=float("nan")),
    ):
        with pytest.raises(Invalid):
            wrong()
    assert session.refresh().status == "active"
    assert list(session.entries()) == []


@pytest.mark.feature("D4")
def test_sub_agents_are_not_nested_without_end(store: Store) -> None:
    session = store.create_session("boss")
    with pytest.raises(Invalid, match="levels deep"):  # noqa: PT012
        for _ in range(200):
            session = session.spawn("go on").session
    assert len(store.get_session("boss").tree().lines()) == 101
    store.get_session("boss").stop()
    assert session.refresh().status == "stopped"
