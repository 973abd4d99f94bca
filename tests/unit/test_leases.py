"""R26: one holder at a time: held, taken over, expired, forgotten, killed, forked, with clocks that jump."""

from __future__ import annotations

import gc
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import _postgres
import takeback
from takeback import Busy, Closed, LeaseLost, Session, Store, presence
from takeback.client import waiting
from takeback.ops import leases, sessions
from takeback.ops.sessions import LeaseRow
from takeback.storage.base import Tx
from takeback.testing.clock import ManualClock
from takeback.testing.contract.base import PATIENCE, die, eventually

pytestmark = [pytest.mark.promise("R26"), pytest.mark.feature("F6")]

DAY = 86_400_000
HOUR = 3_600_000


def _lease(store: Store, name: str = "job") -> LeaseRow:
    wanted = store.get_session(name).id
    found = store._read(lambda tx: sessions.find_lease(tx, sessions.get(tx, store.scope, wanted)))
    assert found is not None
    return found


def _put_far_away(store: Store, session: Session, *, silent_ms: int, keep: bool = False) -> None:
    """Let the holder of a session be on another machine, where its last sign of life is so long ago."""
    held = session._held
    assert held is not None
    mine = presence.decode(held.lease.holder or b"")
    far = msgspec.structs.replace(mine, host="far", pid=7, machine="another start of another machine")

    def op(tx: Tx) -> None:
        lease = sessions.find_lease(tx, sessions.get(tx, store.scope, session.id))
        assert lease is not None
        now_ms = store._clock.now_ms()
        leases.put(tx, lease._replace(holder=presence.encode(far), beat_ms=now_ms - silent_ms))

    if not keep:
        store._keeper.drop(held)
    store._write(op)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signs of life come fast, and are missed fast."""
    monkeypatch.setattr(presence, "BEAT_SECONDS", 0.04)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with takeback.open(tmp_path / "a.db", durability="relaxed") as store:
        store.create_session("job")
        yield store
        report = store.verify()
        assert not report, str(report)


# ---------------------------------------------------------------------- fifty rounds


class _Rounds:
    """Somebody holds a session, and then something happens to them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.holder = store.session("job")
        self.tokens = [_lease(store).token]
        self.said = list[str]()
        self.lost = list[Session]()

    def say(self) -> None:
        """Let the holder write, and everybody who was one before try to."""
        text = f"token {self.tokens[-1]}, message {len(self.said)}"
        self.holder.user(text)
        self.said.append(text)
        for old in self.lost[-3:]:
            with pytest.raises(LeaseLost):
                old.user("too late")

    def held(self) -> None:
        with pytest.raises(Busy):
            self.store.session("job")
        with pytest.raises(Busy):
            self.store.session("job", wait=0.01)

    def taken_over(self) -> None:
        self.lost.append(self.holder)
        self._next(self.store.session("job", take_over=True))

    def expired(self) -> None:
        _put_far_away(self.store, self.holder, silent_ms=HOUR)
        assert self.store.get_session("job").status == "interrupted"
        self.lost.append(self.holder)
        self._next(self.store.session("job"))
        assert self.holder.stopped_at is not None

    def far_and_alive(self) -> None:
        _put_far_away(self.store, self.holder, silent_ms=100)
        with pytest.raises(Busy) as busy:
            self.store.session("job")
        assert busy.value.holder == "process 7 on far"
        assert self.store.get_session("job").status == "active"

    def killed(self) -> None:
        die(self.holder)
        assert self.store.get_session("job").status == "interrupted"
        self._next(self.store.session("job"))
        assert self.holder.stopped_at is not None

    def given_back(self) -> None:
        self.holder.release()
        assert self.store.get_session("job").holder is None
        self._next(self.store.session("job"))
        assert self.holder.stopped_at is None

    def forgotten(self) -> None:
        self.holder = self.store.get_session("job")
        gc.collect()
        # Its sign of life may be on the way just now, which keeps a handle for that long.
        self._next(self.store.session("job", wait=30))
        assert self.holder.stopped_at is None

    def _next(self, holder: Session) -> None:
        self.holder = holder
        self.tokens.append(_lease(self.store).token)


def test_whatever_happens_to_a_holder_there_is_one_at_a_time(
    store: Store, hurried: None, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    rng, rounds = random.Random(f"leases {seed}"), counts(50, 2000)
    town = _Rounds(store)
    happenings = (town.held, town.taken_over, town.expired, town.far_and_alive, town.killed, town.given_back)
    for number in range(rounds):
        (*happenings, town.forgotten)[number % 7 if number < 7 else rng.randrange(7)]()
        town.say()
    assert town.tokens == sorted(set(town.tokens)), "a token came twice"
    assert [message.text for message in town.holder.messages()] == town.said
    town.holder.release()
    tally("R26 rounds of holders", rounds)


# ---------------------------------------------------------------------- holders elsewhere, clocks


@pytest.mark.promise("R31")
def test_a_silent_holder_elsewhere_is_watched_before_its_lease_is_taken(
    store: Store, hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = store.session("job")
    _put_far_away(store, held, silent_ms=HOUR)
    looks, look = list[None](), store._keeper.give_back_abandoned
    monkeypatch.setattr(store._keeper, "give_back_abandoned", lambda: looks.append(look()))
    with store.session("job") as mine:
        assert len(looks) > 1, "nobody looked again whether it lives"
        assert (mine.stopped_at, mine.crashes) == (0, 1)
    with pytest.raises(LeaseLost):
        held.user("still here")


def test_a_holder_whose_clock_is_wrong_keeps_its_lease_as_long_as_it_gives_signs(
    store: Store, hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, look = store.session("job"), store._keeper.give_back_abandoned
    _put_far_away(store, held, silent_ms=DAY)

    def beat_and_look() -> None:
        store._write(lambda tx: leases.beat(tx, held._held.lease, store._clock.now_ms() - DAY))  # type: ignore[union-attr]
        look()

    monkeypatch.setattr(store._keeper, "give_back_abandoned", beat_and_look)
    with pytest.raises(Busy):
        store.session("job")
    with pytest.raises(Busy):
        store.session("job", wait=0.3)
    held.user("mine")


def test_a_clock_that_runs_ahead_takes_nothing_from_a_holder_elsewhere(
    tmp_path: Path, hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two machines, one of them a day ahead: it shows the other as gone, and yet does not get its lease."""
    path, ahead = tmp_path / "a.db", ManualClock(int(time.time() * 1000) + DAY)
    with takeback.open(path) as one, takeback.open(path, clock=ahead) as two:
        held = one.session("job")
        held.user("a")
        _put_far_away(one, held, silent_ms=0, keep=True)
        look = two._keeper.give_back_abandoned

        def look_after_a_sign_of_life() -> None:
            before = _lease(one).beats
            assert eventually(lambda: _lease(one).beats > before)
            look()

        with monkeypatch.context() as patch:
            patch.setattr(two._keeper, "give_back_abandoned", look_after_a_sign_of_life)
            for _ in range(3):
                with pytest.raises(Busy):
                    two.session("job")
                held.user("b")
        assert _lease(one).beats > 0
        held.release()
        with two.session("job") as mine:
            assert (mine.stopped_at, mine.status) == (None, "active")


def test_a_clock_that_jumps_a_day_back_and_forth_changes_nothing(tmp_path: Path, hurried: None, seed: int) -> None:
    clock, rng = ManualClock(), random.Random(f"jumps {seed}")
    with takeback.open(tmp_path / "a.db", clock=clock, durability="relaxed") as store, store.session("job") as held:
        token, began = _lease(store).token, _lease(store).beats
        for number in range(50):
            clock.advance(rng.choice((DAY, -DAY, 1, 40_000, -40_000)))
            assert held.user(str(number)).seq == number + 1
            seen = store.get_session("job")
            assert (seen.status, seen.holder is not None, seen.runtime() >= 0) == ("active", True, True)
            with pytest.raises(Busy):
                store.session("job")
        eventually(lambda: _lease(store).beats > began)
        assert (_lease(store).token, _lease(store).beats > began) == (token, True)


def test_signs_of_life_are_given_for_all_leases_and_none_that_was_lost(store: Store, hurried: None) -> None:
    held = [store.session(f"job {number}") for number in range(3)]
    store.session("job 1", take_over=True)
    lost = held[1]._held
    assert eventually(lambda: lost not in store._keeper._held)
    for name in ("job 0", "job 2"):
        before = _lease(store, name).beats
        assert eventually(lambda name=name, before=before: _lease(store, name).beats > before)


def test_a_number_of_a_process_that_was_given_out_again_is_another_process(store: Store) -> None:
    held = store.session("job")
    mine = presence.here(0)
    other = msgspec.structs.replace(mine, began="1")
    assert not presence.is_gone(mine)
    assert presence.is_gone(other)
    assert held._held is not None
    store._keeper.drop(held._held)
    store._write(lambda tx: leases.put(tx, held._held.lease._replace(holder=presence.encode(other))) and None)  # type: ignore[union-attr]
    assert store.get_session("job").status == "interrupted"
    with store.session("job") as again:
        assert again.stopped_at == 0


# ---------------------------------------------------------------------- handles, stores, processes


def test_a_handle_that_nobody_has_any_more_gives_its_lease_back(store: Store, hurried: None) -> None:
    held = store.session("job")
    held.user("a")
    del held
    gc.collect()
    assert eventually(lambda: _lease(store).holder is None), "given back in the background, without anybody asking"
    assert store.get_session("job").status == "active"


def test_closing_the_store_gives_back_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with takeback.open(path) as store:
        held = [store.session(f"job {number}") for number in range(3)]
        stream = held[0].stream(flush_seconds=60)
        stream.write("half")
    with takeback.open(path) as store:
        assert {(s.status, s.holder) for s in store.list_sessions()} == {("active", None)}
        assert [(m.text, m.status) for m in store.get_session("job 0").messages()] == [("half", "interrupted")]
        with pytest.raises(Closed):
            held[1].user("too late")


_HOLD = """
import os, signal, sys, time
import takeback
store = takeback.open(sys.argv[1])
session = store.session("job")
session.user("a")
stream = session.stream(flush_seconds=60)
stream.write("half")
stream.flush()
print("ready", os.getpid(), flush=True)
"""


def _python(script: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _ready(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("ready"), process.communicate()[1]
    return int(line.split()[1])


def _finished(process: subprocess.Popen[str], code: int) -> str:
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    return out


@pytest.mark.parametrize(("end", "code"), [("", 0), ("raise ValueError('no')", 1), ("sys.exit(3)", 3)])
def test_a_process_that_ends_without_closing_gives_back_what_it_holds(tmp_path: Path, end: str, code: int) -> None:
    process = _python(_HOLD + end, tmp_path / "a.db")
    _finished(process, code)
    with takeback.open(tmp_path / "a.db") as store:
        seen = store.get_session("job")
        assert (seen.status, seen.holder, seen.stopped_at) == ("active", None, None)
        assert [(m.text, m.status) for m in seen.messages()] == [("a", "complete"), ("half", "interrupted")]


@pytest.mark.feature("D2", "F4")
def test_a_process_that_is_killed_is_seen_to_be_gone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    process = _python(_HOLD + "time.sleep(60)", path)
    pid = _ready(process)
    with takeback.open(path) as store:
        with pytest.raises(Busy) as busy:
            store.session("job")
        assert f"process {pid} on" in str(busy.value)
        assert (store.get_session("job").status, store.get_session("job").messages()[-1].status) == (
            "active",
            "streaming",
        )
        process.send_signal(signal.SIGKILL)
        eventually(lambda: store.get_session("job").status != "active")
        seen = store.get_session("job")  # it was not even reaped: a zombie is no holder
        assert (seen.status, seen.stopped_at, seen.messages()[-1].status) == ("interrupted", 1, "interrupted")
        process.communicate()
        with store.session("job") as mine:
            assert [(m.text, m.status) for m in mine.messages()] == [("a", "complete"), ("half", "interrupted")]
        assert not store.verify()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_no_session_held(tmp_path: Path, number: signal.Signals) -> None:
    body = "\nwith session:\n    time.sleep(60)\n"
    process = _python(_HOLD + body, tmp_path / "a.db")
    _ready(process)
    time.sleep(0.1)
    process.send_signal(number)
    process.communicate(timeout=30)
    with takeback.open(tmp_path / "a.db") as store:
        assert store.get_session("job").status == "interrupted"
        store.session("job").release()


_FORK = """
import os, sys
import takeback
store = takeback.open(sys.argv[1])
session = store.session("job")
session.user("before")
pid = os.fork()
if pid == 0:
    try:
        session.user("from the child")
    except takeback.Closed:
        print("closed", flush=True)
    if sys.argv[2] == "del":
        del session, store
    if sys.argv[2] == "own":
        try:
            with takeback.open(sys.argv[1]) as own:
                own.session("job")
        except takeback.Busy as busy:
            print("busy", f"process {os.getppid()} on" in str(busy), flush=True)
        except takeback.Unsupported:
            print("unsupported", flush=True)
    sys.exit(0)  # as a process ends: what it inherited is cleaned up
print("child", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
session.user("after")
other = takeback.open(sys.argv[1]).get_session("job")
print(other.status, other.holder is not None, [m.text for m in other.messages()], flush=True)
"""


@pytest.mark.parametrize("how", ["end", "del", "own"])
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_a_fork_inherits_no_lease_and_gives_none_back(tmp_path: Path, backend: str, how: str) -> None:
    url = _postgres.url(tmp_path) if backend == "postgres" else str(tmp_path / "a.db")
    out = _finished(_python(_FORK, url, how), 0).splitlines()
    assert out[0] == "closed"
    told = "busy True" if backend == "postgres" else "unsupported"  # SQLite's files cannot be opened there again
    assert out[1:-2] == ([told] if how == "own" else [])
    assert out[-2:] == ["child 0", "active True ['before', 'after']"]


# ---------------------------------------------------------------------- several at once


def test_of_two_threads_that_want_it_at_once_one_gets_it(store: Store) -> None:
    for round_ in range(50):
        got, start = list[Any](), threading.Barrier(2)

        def want(got: list[Any] = got, start: threading.Barrier = start) -> None:
            start.wait(PATIENCE)
            try:
                got.append(store.session("job"))
            except Busy:
                got.append(None)
            except BaseException as error:
                got.append(error)

        threads = [threading.Thread(target=want) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert sorted(type(each).__name__ for each in got) == ["NoneType", "Session"], (round_, got)
        (mine,) = [each for each in got if each is not None]
        mine.user(str(round_))
        mine.release()
    assert len(store.get_session("job").messages()) == 50
    assert _lease(store).token == 50


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_whoever_waits_is_woken_when_it_was_given_back(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a notice, or the naps of an engine without notices, can end the wait."""
    monkeypatch.setattr(waiting, "_LOOK_SECONDS", 2 * PATIENCE)
    url = _postgres.url(tmp_path) if backend == "postgres" else str(tmp_path / "a.db")
    order, ready = list[str](), threading.Event()

    def want(store: Store) -> None:
        ready.set()
        with store.session("job", wait=PATIENCE) as mine:
            order.append("taken")
            mine.user("mine")

    with takeback.open(url) as one, takeback.open(url) as two:
        held = one.session("job")
        thread = threading.Thread(target=want, args=(two,))
        thread.start()
        assert ready.wait(PATIENCE)
        time.sleep(0.2)
        order.append("given back")
        held.release()
        thread.join(PATIENCE)
    assert order == ["given back", "taken"]


def test_whoever_waits_gets_it_after_its_holder_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    process = _python(_HOLD + "time.sleep(60)", path)
    _ready(process)
    with takeback.open(path) as store:
        threading.Timer(0.2, process.kill).start()
        with store.session("job", wait=PATIENCE) as mine:
            assert mine.stopped_at == 1
        process.communicate()


# ---------------------------------------------------------------------- what a repair makes of it


def test_a_repaired_lease_is_free_and_its_old_holder_does_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with takeback.open(path) as store:
        held = store.session("job")
        held.user("a")
        stream = held.stream()
        stream.write("half")
        stream.flush()
        held.send("one")
        held.send("two")
        was = store._read(lambda tx: tx.one("SELECT holder FROM lease"))
        store._write(lambda tx: tx.run("UPDATE lease SET token = token + 5, holder = ?", (b"nobody can tell",)))
        assert {problem.kind for problem in store.verify().problems} == {"lease"}
        done = store.repair(tmp_path / "copy.db")
        assert [problem.kind for problem in done.lost] == ["lease"]
        store._write(lambda tx: tx.run("UPDATE lease SET token = token - 5, holder = ?", was))
    with takeback.open(tmp_path / "copy.db") as copy, copy.session("job") as mine:
        assert [m.text for m in mine.receive()] == ["one", "two"]
        mine.user("b")
        assert not copy.verify()


@pytest.mark.feature("F12")
def test_a_purge_leaves_nothing_of_what_was_under_way(store: Store) -> None:
    kept = store.session("kept")
    kept_stream = kept.stream()
    for session in (kept, store.session("job")):
        stream = kept_stream if session is kept else session.stream()
        stream.write("half")
        stream.flush()
        session.send("waiting")
        session.send("received")
        session.receive(1)
        fork = session.fork(1, as_session=True) if session is not kept else None
    store.purge_session("job")
    for table in ("lease", "stream", "inbox"):
        numbers = store._read(lambda tx, name=table: {row[0] for row in tx.all(f"SELECT session FROM {name}")})
        assert numbers == {kept._seen.sid}, table
    pieces = store._read(lambda tx: {row[0] for row in tx.all("SELECT stream FROM delta")})
    assert pieces == {kept_stream.id}
    assert fork is None or fork.refresh().status == "active"
    kept_stream.finish()
