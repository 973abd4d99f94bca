"""Ctrl-C at random moments: nobody hangs, nothing acknowledged is lost, the store goes on."""

import contextlib
import random
import signal
import threading
import time
from pathlib import Path
from types import FrameType

import pytest

import takeback
from takeback.testing.contract.base import PATIENCE, eventually


# An interrupt may also strike inside a hook of another library (a weak reference, the garbage collector): Python
# swallows it there and says so, which is neither ours to prevent nor a failure of the store.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
@pytest.mark.promise("R1")
@pytest.mark.feature("D9")
@pytest.mark.parametrize("place", ["file", "memory"])
def test_interrupts_at_random_moments_hang_nobody(tmp_path: Path, place: str, seed: int) -> None:
    rng, told = random.Random(seed), list[str]()
    store = takeback.open(tmp_path / "s.db" if place == "file" else ":memory:")
    session = store.create_session()
    stop = threading.Event()

    def write(worker: int) -> None:
        number = 0
        while not stop.is_set():
            try:
                session.user(f"{worker}:{number}")
            except takeback.BackendError:
                continue  # rode in a batch whose leader was interrupted
            finally:
                number += 1
            told.append(f"{worker}:{number - 1}")

    armed, interrupts = [False], [0]

    def interrupt(number: int, frame: FrameType | None) -> None:
        if armed[0]:
            armed[0] = False
            interrupts[0] += 1
            raise KeyboardInterrupt

    def until_interrupted() -> None:
        armed[0] = True
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.00005, 0.003))
        while armed[0]:
            text = f"main:{time.monotonic_ns()}"
            try:
                session.user(text)
            except takeback.BackendError:
                continue
            told.append(text)

    old = signal.signal(signal.SIGALRM, interrupt)
    threads = [threading.Thread(target=write, args=(worker,), daemon=True) for worker in range(3)]
    try:
        for thread in threads:
            thread.start()
        while interrupts[0] < 300:
            with contextlib.suppress(KeyboardInterrupt):
                until_interrupted()
    finally:
        armed[0] = False
        signal.signal(signal.SIGALRM, old)
    before = len(told)
    assert eventually(lambda: len(told) > before), "the other writers stand still"
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), "a writer hangs"
    session.user("the end")
    texts = [message.text for message in session.messages()]
    assert len(set(texts)) == len(texts)
    assert set(told) <= set(texts)
    assert not store.verify(), str(store.verify())
    store.close()
