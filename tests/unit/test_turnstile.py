"""The lock between writing processes: one at a time, woken or not, for a limited time, and never with a wrong name."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import takeback
from takeback.storage import holders, turnstile
from takeback.storage.turnstile import Turnstile

pytestmark = [pytest.mark.promise("R31"), pytest.mark.trial("T5")]


@pytest.fixture(params=["woken", "not woken"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the lock is; on a system without futexes too, where nobody is woken."""
    if request.param == "not woken":
        monkeypatch.setattr(turnstile, "_FUTEX", {})
    return str(tmp_path / "a.db-lock")


def _made(path: str, timeout: float = 60.0) -> Turnstile:
    made = Turnstile(path)
    made.arrange(timeout)
    return made


def test_one_at_a_time(path: str) -> None:
    """Each handle is a process to the others: the lock belongs to a descriptor."""
    count = [0]

    def work() -> None:
        mine = _made(path)
        for _ in range(200):
            mine.exclusive()
            before = count[0]
            os.sched_yield()
            count[0] = before + 1
            mine.unlock()
        mine.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert count == [6 * 200]


def test_a_wait_ends_and_the_lock_stays_with_its_holder(path: str) -> None:
    first, second = _made(path), _made(path, 0.02)
    first.exclusive()
    with pytest.raises(takeback.Busy, match="another process holds the lock") as caught:
        second.exclusive()
    assert caught.value.holder is None, "this process itself is nobody to end"
    first.unlock()
    second.exclusive()
    with pytest.raises(takeback.Busy):
        _made(path, 0).exclusive()


def test_a_wait_counts_from_when_it_began(path: str) -> None:
    """Whoever waited for a leader of its own process has waited."""
    first, second = _made(path), _made(path, 30)
    first.exclusive()
    with pytest.raises(takeback.Busy):
        second.exclusive(1e-9)
    first.unlock()
    second.exclusive(1e-9)


def test_closing_releases_the_lock(path: str) -> None:
    first, second = _made(path), _made(path, 0)
    first.exclusive()
    first.close()
    second.exclusive()


def test_the_mark_in_the_same_file_is_left_alone(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "a.db") as store:
        store.create_session().user("one")
        before = (tmp_path / "a.db-lock").read_bytes()[:29]
        first, second = (_made(str(tmp_path / "a.db-lock"), 0.01) for _ in range(2))
        first.exclusive()
        with pytest.raises(takeback.Busy):
            second.exclusive()
        first.close()
        second.close()
        assert (tmp_path / "a.db-lock").read_bytes()[:29] == before


_HOLD = """import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, int(sys.argv[2]))
print(flush=True)
sys.stdin.read()"""


@pytest.mark.parametrize("kind", [fcntl.LOCK_EX, fcntl.LOCK_SH])
def test_only_who_has_the_lock_now_is_named(tmp_path: Path, kind: int) -> None:
    path = tmp_path / "lock"
    path.touch()
    assert holders.holder_of(str(path)) is None
    command = [sys.executable, "-c", _HOLD, str(path), str(int(kind))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert holders.holder_of(str(path)) == process.pid
        assert holders.holder_of(str(path), shared=False) == (process.pid if kind == fcntl.LOCK_EX else None)
        inode = path.stat().st_ino
        assert holders._is_of(f"ff:ff:{inode}", process.pid, path.stat()), "the list shows another device"
        assert not holders._is_of(f"ff:ff:{inode}", os.getppid(), path.stat())
        assert not holders._is_of(f"ff:ff:{inode + 1}", process.pid, path.stat())
        process.communicate()
    assert holders.holder_of(str(path)) is None


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "30", None, True])
def test_a_limit_is_a_number_of_seconds(value: object) -> None:
    with pytest.raises(takeback.Invalid, match="lock_timeout"):
        takeback.open(":memory:", lock_timeout=value)  # type: ignore[arg-type]
