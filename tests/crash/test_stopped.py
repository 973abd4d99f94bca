"""R31: nobody waits for ever. A process is stopped by SIGSTOP at one call to the file system after another.

While it is stopped, others read and write: each call succeeds, or raises ``Busy`` with the pid of the stopped process
once ``lock_timeout`` has passed. When it goes on, it finishes what it was doing, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import takeback
from takeback.testing.faults import FaultyVFS

from . import _newer
from ._harness import Child, copy_store, in_child, open_through, told

pytestmark = [pytest.mark.promise("R31"), pytest.mark.trial("T5"), pytest.mark.feature("C5")]

_SECONDS = 0.05  # the limit while somebody is stopped: it is always reached, or not needed
_OTHER = "other"


def _make(path: Path) -> None:
    with takeback.open(path) as store:
        (path.parent / "files").mkdir()
        (path.parent / "files" / "a").write_text("1")
        with store.session("talk", workspace=path.parent / "files") as session:
            session.user("one")
            session.checkpoint("here")
            (path.parent / "files" / "a").write_text("2")
            session.user("two")


# ---------------------------------------------------------------------- what is stopped in its middle


def _first_open(path: Path, number: int) -> int:
    vfs = FaultyVFS()
    vfs.arm(number, "stop")
    with open_through(vfs, path) as store:
        vfs.disarm()
        store.create_session("talk").append(_said("one"), _said("two"))
    return 0


def _append(path: Path, number: int) -> int:
    vfs = FaultyVFS()
    with open_through(vfs, path) as store:
        session = store.get_session("talk")
        vfs.arm(number, "stop")
        session.append(*(_said(f"{each} of a batch {'x' * 3000}") for each in range(5)))
        vfs.disarm()
    return 5


def _close(path: Path, number: int) -> int:
    vfs = FaultyVFS()
    store = open_through(vfs, path)
    store.get_session("talk").user("before closing")
    vfs.arm(number, "stop")
    store.close()
    return 1


def _rewind(path: Path, number: int) -> int:
    vfs = FaultyVFS()
    with open_through(vfs, path) as store:
        session = store.get_session("talk")
        (Path(session.workspace) / "a").write_text("2")
        plan = session.preview_rewind("here", conversation=False, overwrite="all")
        vfs.arm(number, "stop")
        plan.apply()
        vfs.disarm()
    return 0


def _said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


_WORK: dict[str, tuple[Callable[[Path, int], int], int]] = {  # and how far apart the points are, except in deep runs
    "first open": (_first_open, 37),
    "append": (_append, 4),
    "close": (_close, 3),
    "rewind": (_rewind, 7),
}


# ---------------------------------------------------------------------- what others can do meanwhile


def _meanwhile(path: Path, pid: int) -> dict[str, str]:
    """Read and write beside a stopped process; return how each went."""
    return {"read": _outcome(pid, _read, path), "write": _outcome(pid, _write, path)}


def _read(path: Path) -> None:
    with takeback.open(path, read_only=True, lock_timeout=_SECONDS) as store:
        store.find_session("talk")


def _write(path: Path) -> None:
    with takeback.open(path, lock_timeout=_SECONDS) as store:
        store.session(_OTHER, hold=False).user("from another process")


def _outcome(pid: int, call: Callable[..., object], *args: Any) -> str:
    try:
        call(*args)
    except takeback.Busy as error:
        said = str(error)
        is_named = error.holder == f"process {pid} on {os.uname().nodename}"
        return "busy" if is_named and (f"kill -CONT {pid}" in said or "is changing the files" in said) else said
    return "done"


def _check(path: Path, others: int, own: int) -> None:
    with takeback.open(path) as store:
        assert not store.verify()
        talk, other = store.get_session("talk"), store.find_session(_OTHER)
        assert talk.message_count == 2 + own
        assert (other.message_count if other else 0) == others


def _stop_at(work: Callable[[Path, int], int], path: Path, number: int) -> list[dict[str, str]]:
    """Stop a process at its n-th call, see what others can do, let it go on; no such call, no outcome."""
    child, found = Child(work, path, number), list[dict[str, str]]()
    if child.stops():
        found.append(in_child(_meanwhile, path, child.pid))
        child.send(signal.SIGCONT)
    in_child(_check, path, sum(each["write"] == "done" for each in found), child.result())
    return found


@pytest.mark.parametrize("name", _WORK)
def test_whoever_is_stopped_holds_others_up_for_the_timeout_only(
    tmp_path: Path, name: str, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    work, step = _WORK[name]
    found, made = list[dict[str, str]](), tmp_path / "made" / "a.db"
    made.parent.mkdir()
    if name != "first open":
        in_child(_make, made)
    for number in range(1, 1000, counts(step, 1)):
        path = copy_store(made, tmp_path / str(number))
        with told(what=name, call=number):
            outcomes = _stop_at(work, path, number)
        if not outcomes:
            break
        found += outcomes
    tally("R31 stops", len(found))
    assert len(found) >= 3
    assert {outcome for each in found for outcome in each.values()} <= {"busy", "done"}
    assert any(each["write"] == "busy" for each in found)
    if name in ("append", "rewind"):
        assert all(each["read"] == "done" for each in found), "readers wait for nobody who writes"
    if name == "first open":
        assert all(each["read"] == "busy" for each in found), "nobody gets past a store that is being made"


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Takeback that knows two schemas more."""
    return _newer.make(tmp_path_factory.mktemp("package"))


def test_a_stopped_migration_holds_others_up_for_the_timeout_only(tmp_path: Path, newer: Path) -> None:
    def migrate(number: int) -> None:
        from takeback.storage.sqlite import SqliteBackend

        vfs = FaultyVFS()
        vfs.arm(number, "stop")
        SqliteBackend(os.fspath(path), vfs=vfs.name, sync=vfs.sync).close()

    def meet(number: int) -> str:
        _newer.become(newer)
        import takeback as theirs

        child = Child(migrate, number)
        assert child.stops()
        with pytest.raises(theirs.Busy) as caught:
            theirs.open(path, lock_timeout=_SECONDS)
        child.send(signal.SIGCONT)
        child.result()
        with theirs.open(path) as store:
            assert store.get_session("talk").message_count == 2
            assert not store.verify()
        return str(caught.value.holder) if str(child.pid) in str(caught.value) else ""

    path = tmp_path / "a.db"
    in_child(_make, path)
    assert in_child(meet, 9)


# ---------------------------------------------------------------------- the turnstile


def _stop_within_a_write(path: Path) -> None:
    with takeback.open(path) as store:
        store._backend.write(lambda tx: os.kill(os.getpid(), signal.SIGSTOP))
        store.get_session("talk").user("after all")


@pytest.fixture
def stopped(tmp_path: Path) -> Child:
    """A process that is stopped while it has the lock that writers wait for."""
    in_child(_make, tmp_path / "a.db")
    child = Child(_stop_within_a_write, tmp_path / "a.db")
    assert child.stops()
    return child


def _texts(path: Path) -> list[str]:
    with takeback.open(path, read_only=True) as store:
        return [message.text for message in store.get_session("talk").messages()]


def test_threads_and_tasks_get_busy_too_each_of_them(tmp_path: Path, stopped: Child) -> None:
    """Those who wait behind a leader of their own process wait no second time for each of them."""

    def work() -> list[str]:
        with takeback.open(tmp_path / "a.db", lock_timeout=_SECONDS) as store:
            session, found = store.get_session("talk"), list[str]()
            each = [threading.Thread(target=lambda: found.append(_raised(session))) for _ in range(20)]
            for thread in each:
                thread.start()
            for thread in each:
                thread.join()
        return found + asyncio.run(tasks())

    async def tasks() -> list[str]:
        async with takeback.aopen(tmp_path / "a.db", lock_timeout=_SECONDS) as store:
            session = await store.get_session("talk")
            raised = await asyncio.gather(*(session.user("x") for _ in range(20)), return_exceptions=True)
            assert len(await session.messages()) == 2, "and reading goes on"
            return [str(each.holder) for each in raised if isinstance(each, takeback.Busy)]

    assert in_child(work, timeout=30) == [f"process {stopped.pid} on {os.uname().nodename}"] * 40
    stopped.send(signal.SIGCONT)
    stopped.result()
    assert in_child(_texts, tmp_path / "a.db") == ["one", "two", "after all"]


def _raised(session: takeback.Session) -> str:
    try:
        session.user("never")
    except takeback.Busy as error:
        return str(error.holder)
    return "nothing"


def _append_in_time(path: Path, text: str) -> None:
    with takeback.open(path) as store:
        store.get_session("talk").user(text)


def test_whoever_waits_goes_on_when_the_stopped_one_does_or_is_killed(tmp_path: Path, stopped: Child) -> None:
    path = tmp_path / "a.db"
    waiting = Child(_append_in_time, path, "waited")
    assert waiting.alive()
    stopped.send(signal.SIGCONT)
    stopped.result()
    waiting.result()
    second = Child(_stop_within_a_write, path)
    assert second.stops()
    waiting = Child(_append_in_time, path, "waited for a killed one")
    second.kill()
    waiting.result()
    assert in_child(_texts, path)[-3:] in (
        ["after all", "waited", "waited for a killed one"],
        ["waited", "after all", "waited for a killed one"],
    )


def test_one_who_is_stopped_while_it_waits_holds_up_nobody(tmp_path: Path, stopped: Child) -> None:
    """A wake-up that goes to somebody who is stopped must not be the only one."""
    path, (reading, writing) = tmp_path / "a.db", os.pipe()

    def wait() -> None:
        with takeback.open(path) as store:
            session = store.get_session("talk")
            os.write(writing, b"1")
            session.user("late")

    waiting = Child(wait)
    os.read(reading, 1)
    waiting.send(signal.SIGSTOP)
    assert waiting.stops()
    stopped.send(signal.SIGCONT)
    stopped.result()
    for number in range(3):
        in_child(_append_in_time, path, str(number))
    waiting.send(signal.SIGCONT)
    waiting.result()
    assert in_child(_texts, path) == ["one", "two", "after all", "0", "1", "2", "late"]


def test_a_stopped_backup_holds_up_nobody(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    in_child(_make, path)

    def back_up() -> None:
        with takeback.open(path) as store:
            store.backup(tmp_path / "b.db", progress=lambda _: os.kill(os.getpid(), signal.SIGSTOP))

    child = Child(back_up)
    assert child.stops()
    assert in_child(_meanwhile, path, child.pid) == {"read": "done", "write": "done"}
    while not child.send(signal.SIGCONT) and child.stops():
        pass
    child.result()
    assert in_child(_texts, tmp_path / "b.db") == ["one", "two"]


def test_a_rewind_beside_a_stopped_one_names_it(tmp_path: Path, counts: Callable[[int, int], int]) -> None:
    """The workspace is locked by a row of the store: nobody waits for it at all."""
    path, found = tmp_path / "a.db", set[str]()

    def rewind() -> None:
        with takeback.open(path, lock_timeout=_SECONDS) as store:
            store.get_session("talk").preview_rewind("here", conversation=False, overwrite="all").apply()

    in_child(_make, path)
    for number in range(1, 200, counts(4, 1)):
        child = Child(_rewind, path, number)
        if not child.stops():
            break
        found.add(in_child(_outcome, child.pid, rewind))
        child.kill()
        in_child(_check, path, 0, 0)
    assert "busy" in found
    assert found <= {"busy", "done"}
