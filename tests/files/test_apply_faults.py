"""A change is all or nothing when the system fails at any call, and when the process is killed at any call."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_apply import Case, Meddling, Things, d, f, ln, read

from takeback.files.disk import _syscalls

pytestmark = [pytest.mark.feature("F1"), pytest.mark.promise("R15")]

OLD: Things = {
    **{b"over%d" % n: f(b"old %d" % n, 0o640) for n in range(4)},
    **{b"gone%d" % n: f(b"gone %d" % n, 0o400) for n in range(3)},
    **{b"mode%d" % n: f(b"same", 0o644) for n in range(2)},
    b"link": ln(b"/etc/passwd"),
    b"link gone": ln(b"over0"),
    b"link to file": ln(b"nowhere"),
    b"link to directory": ln(b".."),
    b"file to link": f(b"was a file"),
    b"file to directory": f(b"was a file too", 0o755),
    b"directory to file": d(0o555),
    b"directory to file/x": f(b"x"),
    b"directory to file/deep": d(0o500),
    b"directory to file/deep/y": ln(b"y"),
    b"directory to link": d(),
    b"empty gone": d(0o711),
    b"locked": d(0o555),
    b"locked/over": f(b"locked old"),
    b"locked/gone": f(b"locked gone"),
    b"opens": d(0o555),
    b"opens/x": f(b"1"),
    b"closes": d(0o755),
    b"closes/x": f(b"1"),
    b"stays": d(),
    b"stays/\xff\xfe": f(b"not UTF-8"),
    b"untouched": f(b"untouched", 0o604),
}
NEW: Things = {
    **{b"over%d" % n: f(b"new %d" % n, 0o600) for n in range(4)},
    **{b"mode%d" % n: f(b"same", 0o755) for n in range(2)},
    **{b"come%d" % n: f(b"come %d" % n) for n in range(2)},
    b"link": ln(b"/etc/group"),
    b"link new": ln(b"over1"),
    b"link to file": f(b"is a file"),
    b"link to directory": d(0o500),
    b"link to directory/in": f(b"in"),
    b"file to link": ln(b"over2"),
    b"file to directory": d(),
    b"file to directory/more": d(0o555),
    b"file to directory/more/in": f(b"in more"),
    b"directory to file": f(b"is a file now"),
    b"directory to link": ln(b"stays"),
    b"empty new": d(0o711),
    b"locked": d(0o555),
    b"locked/over": f(b"locked new"),
    b"locked/come": f(b"locked come"),
    b"opens": d(0o755),
    b"opens/x": f(b"2"),
    b"closes": d(0o555),
    b"closes/x": f(b"2"),
    b"closes/y": ln(b"x"),
    b"stays": d(),
    b"stays/\xff": f(b"not UTF-8 either"),
    b"untouched": f(b"untouched", 0o604),
}


@pytest.fixture
def case() -> Iterator[Callable[[], Case]]:
    """Make cases in memory where there is such a place: syncing a disk a thousand times proves nothing more."""
    above = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))

    def make() -> Case:
        remove(above / "w")
        return Case(above / "w", OLD, NEW)

    yield make
    remove(above)


@pytest.fixture
def step(counts: Callable[[int, int], int]) -> int:
    """How many calls lie between two that are tried: none under ``--deep``."""
    return counts(2, 1)


def remove(root: Path) -> None:
    """Remove a directory also where parts of it are read-only, and the user is not root."""
    for at, _, _ in os.walk(root):
        os.chmod(at, 0o700)
    shutil.rmtree(root, ignore_errors=True)


def counted(work: Callable[[], Any], meddle: Callable[..., None] = lambda *_: None) -> int:
    """Do some work and give how many of its system calls change something."""
    system = Meddling(meddle)
    _syscalls.system = system  # type: ignore[assignment]
    try:
        work()
    finally:
        _syscalls.system = os
    return system.count


def failing(at: int, code: int, *, ever_after: bool = False) -> Callable[..., None]:
    def fail(count: int, *_: object) -> None:
        if count == at or (ever_after and count > at):
            raise OSError(code, os.strerror(code))

    return fail


def killed(work: Callable[[], Any], at: int) -> bool:
    """Do it in a child that is killed right before its n-th call; False if it came to its end before."""

    def kill(count: int, *_: object) -> None:
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        try:
            counted(work, kill)
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL)
    return status != 0


def assert_as_before(case: Case) -> None:
    assert read(case.root) == OLD
    case.fresh().clean()
    assert read(case.root, ours=True) == OLD


def test_the_change_is_of_all_sorts(case: Callable[[], Case]) -> None:
    one = case()
    assert len(one.change._steps) > 35
    one.carried_out()
    assert read(one.root) == NEW
    one.change.clean()
    assert read(one.root, ours=True) == NEW


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES], ids=errno.errorcode.get)
def test_whatever_call_fails_while_staging_leaves_nothing(case: Callable[[], Case], tally: Any, code: int) -> None:
    one = case()
    total = counted(lambda: one.change.stage(one.fetch))
    one.change.clean()
    for at in range(1, total + 1):
        with pytest.raises(OSError) as caught:
            counted(lambda: one.fresh().stage(one.fetch), failing(at, code))
        assert caught.value.errno == code
        assert read(one.root, ours=True) == OLD, at
    tally("R15 calls failed while staging", total)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES], ids=errno.errorcode.get)
def test_whatever_call_fails_while_carrying_out_takes_everything_back(
    case: Callable[[], Case], tally: Any, code: int
) -> None:
    total = counted(case().staged().carry_out)
    for at in range(1, total + 1):
        one = case()
        change = one.staged()
        with pytest.raises(OSError) as caught:
            counted(change.carry_out, failing(at, code))
        assert caught.value.errno == code
        assert not hasattr(caught.value, "__notes__"), at
        assert not change.half_done
        assert read(one.root) == OLD, at
    assert_as_before(one)
    tally("R15 calls failed while carrying out", total)


def test_a_system_that_fails_for_good_leaves_a_note_and_all_that_is_needed(case: Callable[[], Case]) -> None:
    total = counted(case().staged().carry_out)
    for at in range(1, total + 1, 3):
        one = case()
        change = one.staged()
        with pytest.raises(OSError) as caught:
            counted(change.carry_out, failing(at, errno.EIO, ever_after=True))
        assert "half done" in caught.value.__notes__[0]
        assert change.half_done
        change.clean()
        assert one.fresh().take_back() == []
        assert read(one.root) == OLD, at
    assert_as_before(one)


def test_whatever_call_fails_while_taking_back_it_can_be_repeated(case: Callable[[], Case]) -> None:
    total = counted(case().carried_out().take_back)
    for at in range(1, total + 1):
        one = case()
        change = one.carried_out()
        with pytest.raises(OSError):
            counted(change.take_back, failing(at, errno.EIO))
        assert change.take_back() == []
        assert read(one.root) == OLD, at
    assert_as_before(one)


def test_a_kill_at_any_call_while_staging_changes_nothing(case: Callable[[], Case], step: int, tally: Any) -> None:
    one = case()
    at = 1 - step
    while killed(lambda: one.change.stage(one.fetch), at := at + step):
        assert read(one.root) == OLD, at
        assert one.fresh().take_back() == []
        assert_as_before(one)
    tally("R15 kills while staging", at // step)


def test_a_kill_at_any_call_while_carrying_out_is_taken_back_by_another_process(
    case: Callable[[], Case], step: int, tally: Any
) -> None:
    at = 1 - step
    while True:
        one = case()
        if not killed(one.staged().carry_out, at := at + step):
            break
        assert one.fresh().take_back() == [], at
        assert read(one.root) == OLD, at
    assert read(one.root) == NEW
    assert one.fresh().take_back() == []
    assert_as_before(one)
    tally("R15 kills while carrying out", at // step)


@pytest.mark.parametrize("part", [1.0, 0.6])
def test_a_kill_at_any_call_while_taking_back_is_finished_by_another_process(
    case: Callable[[], Case], step: int, tally: Any, part: float
) -> None:
    total = counted(case().staged().carry_out)
    at = 1 - step
    while True:
        one = case()
        change = one.staged()
        assert killed(change.carry_out, int(total * part) + 1) == (part < 1)
        if not killed(change.take_back, at := at + step):
            break
        assert one.fresh().take_back() == [], at
        assert read(one.root) == OLD, at
    assert_as_before(one)
    tally("R15 kills while taking back", at // step)


def test_a_kill_at_any_call_while_the_lost_is_fetched_again_is_finished_by_another_process(
    case: Callable[[], Case],
    step: int,
) -> None:
    at = 1 - step
    while True:
        one = case()
        one.carried_out().clean()
        if not killed(lambda: one.fresh().take_back(one.fetch), at := at + step):  # noqa: B023
            break
        assert one.fresh().take_back(one.fetch) == [], at
        assert read(one.root) == OLD, at
    assert_as_before(one)


def test_a_kill_at_any_call_while_cleaning_leaves_all_that_was_done(case: Callable[[], Case], step: int) -> None:
    at = 1 - step
    while True:
        one = case()
        one.carried_out()
        if not killed(one.fresh().clean, at := at + step):
            break
        assert read(one.root) == NEW, at
        if at % 5 == 0:
            assert one.fresh().take_back(one.fetch) == []
            assert_as_before(one)
        else:
            one.fresh().clean()
            assert read(one.root, ours=True) == NEW, at


def test_a_kill_at_any_call_while_a_version_is_put_beside_leaves_it_there_once(tmp_path: Path) -> None:
    at, going = 0, True
    while going:
        one = Case(tmp_path / str(at), {b"a": f(b"old"), b"b": ln(b"old")}, {b"a": f(b"new"), b"b": ln(b"new")})
        one.carried_out()
        for name in ("a", "b"):
            (one.root / name).unlink()
            (one.root / name).write_bytes(b"his")
        going = killed(one.fresh().take_back, at := at + 1)
        assert one.fresh().take_back() == [b"a", b"b"]
        one.change.clean()
        beside = {b"a.takeback-1": f(b"old"), b"b.takeback-1": ln(b"old")}
        assert read(one.root, ours=True) == {b"a": f(b"his"), b"b": f(b"his"), **beside}, at
    assert at > 5


def test_all_is_synced_before_the_first_rename_and_before_the_end(case: Callable[[], Case]) -> None:
    one = case()
    made: set[int] = set()
    synced: list[int] = []
    moves: list[int] = []

    def watch(_: int, call: str, args: tuple[Any, ...]) -> None:
        if call == "write":
            made.add(os.fstat(args[0]).st_ino)
        elif call == "fsync":
            synced.append(os.fstat(args[0]).st_ino)
        elif call in ("rename", "link", "unlink", "rmdir"):
            moves.append(len(synced))

    counted(lambda: one.change.stage(one.fetch), watch)
    assert made <= set(synced)
    assert synced[-2:] == [one.staging().stat().st_ino, one.root.stat().st_ino]
    for work in (one.change.carry_out, one.change.take_back):
        synced.clear(), moves.clear()
        counted(work, watch)
        last = set(synced[moves[-1] :])
        names = {os.fsdecode(step.path.rpartition(b"/")[0]) for step in one.change._steps}
        directories = {one.root / name for name in names if (one.root / name).is_dir()} | {one.staging()}
        assert {each.stat().st_ino for each in directories if not each.is_symlink()} <= last
