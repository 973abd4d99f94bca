"""R2: what was acknowledged survives a power cut.

The store lies on ext4 on a loop device. At a random moment the writer is stopped and the image is copied: it
holds what reached the device, and nothing that only lay in the kernel's memory. The copy is mounted, which
replays the journal of the file system, and opened.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import takeback

from . import _harness
from ._harness import Acks, Child, compose, in_child, loop_disk, say, some_sizes, told

pytestmark = [pytest.mark.slow, pytest.mark.needs_root, pytest.mark.promise("R2")]

_CUTS_PER_DISK = 5


def _make(path: Path) -> str:
    with takeback.open(path) as store:
        return store.create_session("victim").id


def _write_for_ever(
    path: Path, session_id: str, writer: str, acks: Acks, seed: str, pause: float, durability: str
) -> None:
    rng, acknowledge, call = random.Random(seed), acks.writer(), 0
    while True:
        with takeback.open(path, durability=durability) as store:
            session = store.get_session(session_id)
            for _ in range(rng.randrange(20, 600)):
                call += 1
                say(session, compose(writer, call, some_sizes(rng)))
                acknowledge(writer, call)
                time.sleep(pause)


def _copy_as_of_one_moment(image: Path, copy: Path) -> None:
    """Copy an image; if the kernel wrote to it meanwhile, the copy was no moment: copy again."""
    for _ in range(200):
        shutil.copyfile(image, copy)
        if copy.read_bytes() == image.read_bytes():
            return
    raise AssertionError("the kernel never stops writing to the image")


def _cut(disk: Path, writers: list[Child], acks: Acks, rng: random.Random) -> dict[str, int]:
    """Stop the writers at a random moment, copy the image, let them go on; give what was acknowledged."""
    size, deadline = acks.size(), time.monotonic() + 120
    while acks.size() == size and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(rng.uniform(0, 0.5))
    for writer in writers:
        assert writer.alive(), f"a writer ended by itself: {writer.result()}"
        writer.send(signal.SIGSTOP)
    time.sleep(0.02)
    acked = acks.read()
    _copy_as_of_one_moment(disk / "image", disk / "copy")
    for writer in writers:
        writer.send(signal.SIGCONT)
    return acked


def _cut_again_and_again(
    disk: Path, seed: int, cuts: int, check: Callable[[Path, str, dict[str, int]], int], *, many: int, durability: str
) -> int:
    """Cut the power that often, on a new disk now and then; give the sum of what ``check`` gave."""
    rng, done, total = random.Random(f"power {durability} {many} {seed}"), 0, 0
    while done < cuts:
        _harness.make_ext4(disk / "image", 64)
        acks = Acks(disk / f"acks {done}")
        with loop_disk(disk / "image", disk / "live") as live:
            path, pause = live / "a.db", rng.choice((0, 0, 0.01)) if many == 1 else 0.005
            session_id = in_child(_make, path)
            names = [f"w{number}" for number in range(many)]
            args = [(path, session_id, name, acks, f"{seed} {done} {name}", pause, durability) for name in names]
            writers = [Child(_write_for_ever, *each) for each in args]
            for _ in range(min(_CUTS_PER_DISK, cuts - done)):
                with told(seed=seed, round=done):
                    acked = _cut(disk, writers, acks, rng)
                    with loop_disk(disk / "copy", disk / "after", must=True) as after:
                        total += in_child(check, after / "a.db", session_id, acked)
                done += 1
            for writer in writers:
                writer.kill()
    return total


def _everything_acknowledged(path: Path, session_id: str, acked: dict[str, int]) -> int:
    with takeback.open(path) as store:
        report = store.verify()
        assert not report, str(report)
        _harness.check_history(store.get_session(session_id).iter_messages(), acked)
        return sum(acked.values())


def test_an_acknowledged_append_survives_a_power_cut(
    tmp_path: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    cuts = counts(10, 300)
    with _harness.tmpfs(tmp_path / "disk", "200m") as disk:
        check = _everything_acknowledged
        acknowledged = _cut_again_and_again(disk, seed, cuts, check, many=1, durability="full")
    tally("R2 power cuts", cuts)
    tally("R2 acknowledged calls at the cuts", acknowledged)


def test_what_many_writers_were_told_survives_a_power_cut(
    tmp_path: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    """Several commits may be on their way to the disk at once; none of them may stand in the way of opening."""
    cuts = counts(5, 150)
    with _harness.tmpfs(tmp_path / "disk", "200m") as disk:
        check = _everything_acknowledged
        acknowledged = _cut_again_and_again(disk, seed, cuts, check, many=4, durability="full")
    tally("R2 power cuts", cuts)
    tally("R2 acknowledged calls at the cuts", acknowledged)


def _a_beginning(path: Path, session_id: str, acked: dict[str, int]) -> int:
    """Whole calls in order, from the first on: the last ones may be gone. Give how many are."""
    with takeback.open(path) as store:
        report = store.verify()
        assert not report, str(report)
        session = store.get_session(session_id)
        stored = _harness.check_history(session.iter_messages(), {}, acked_only=False).get("w0", 0)
        assert stored <= acked["w0"] + 1
        return acked["w0"] - min(stored, acked["w0"])


def test_relaxed_durability_may_lose_the_last_appends_but_never_the_store(
    tmp_path: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    cuts = counts(4, 60)
    with _harness.tmpfs(tmp_path / "disk", "200m") as disk:
        lost = _cut_again_and_again(disk, seed, cuts, _a_beginning, many=1, durability="relaxed")
    tally("R2 power cuts, relaxed", cuts)
    tally("R2 calls lost, relaxed", lost)
