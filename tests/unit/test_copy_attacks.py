"""Copies attacked: what an independent review found to go wrong once, and must not again."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from _copied import Interrupted, assert_sound, interruptible, memory
from _damages import rot  # noqa: F401

import takeback
from takeback import Conflict, Store
from takeback.client.store import Store as Handle
from takeback.clock import SystemClock
from takeback.storage.memory import MemoryBackend
from takeback.storage.wrap import Wrapper

pytestmark = [pytest.mark.feature("C6"), pytest.mark.promise("R12")]


def _with_agent(name: str, versions: int) -> Store:
    store = memory()
    time.sleep(0.002)  # agents of one id are told apart by when they were made
    agent = store.create_agent("g", name=name)
    for number in range(versions):
        agent.state.set("k", number)
    return store


def test_checkpoints_of_an_agent_never_go_to_another_one() -> None:
    source, target = _with_agent("one", 3), _with_agent("two", 1)
    source.checkpoint_agent("g", "here")
    with pytest.raises(Conflict):
        takeback.copy(source, target)
    assert target.list_checkpoints("g") == []
    assert_sound(target)


def test_an_agent_with_checkpoints_does_not_make_way() -> None:
    source, target = memory(), memory()
    source.create_agent("g", name="described")
    target.create_session("s", agent="g").user("hello")
    target.checkpoint_agent("g", "here")
    with pytest.raises(Conflict):
        takeback.copy(source, target)
    assert [point.name for point in target.list_checkpoints("g")] == ["here"]
    assert_sound(target)


def test_a_store_with_half_an_agent_can_be_copied_and_repaired(tmp_path: Path) -> None:
    """A copy that ends between two versions of an agent leaves what nobody sees; that is no obstacle."""
    source, left = _with_agent("long", 1200), [10**9]
    with interruptible(left) as target:
        left[0] = 2
        with pytest.raises(Interrupted):
            takeback.copy(source, target)
        left[0] = 10**9
        assert target._read(lambda tx: tx.one("SELECT version FROM agent WHERE id = 'g'"))[0] > 0
        target.create_session("mine").user("hello")
        takeback.copy(target, tmp_path / "b.db")
        assert target.repair(tmp_path / "c.db").report.problems == ()
    with takeback.open(tmp_path / "c.db") as copy:
        assert copy.get_session("mine").message_count == 1


def test_two_stores_copied_in_both_directions_at_once_do_not_wait_for_each_other() -> None:
    one, two = memory(), memory()
    for store, name in ((one, "a"), (two, "b")):
        for number in range(10):
            store.create_session(f"{name}{number}", agent=f"{name}{number}").user("hello")
    takeback.copy(one, two)
    takeback.copy(two, one)
    for store, name in ((one, "a"), (two, "b")):
        for number in range(10):
            store.get_session(f"{name}{number}").user("more")

    def copy(source: Store, target: Store) -> None:
        for _ in range(4):
            takeback.copy(source, target)

    threads = [threading.Thread(target=copy, args=pair, daemon=True) for pair in ((one, two), (two, one))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert [each.message_count for each in two.iter_sessions()] == [2] * 20
    assert_sound(one)
    assert_sound(two)


def test_half_an_upload_is_not_taken_for_another_content() -> None:
    stores = []
    for seed in (1, 2):
        made = memory()
        made.create_session(f"s{seed}", agent=f"a{seed}").user(
            "see", attachments=[random.Random(seed).randbytes(2_500_000)]
        )
        stores.append(made)
    for number in (2, 3, 4):
        left = [10**9]
        with interruptible(left) as target:
            left[0] = number
            with pytest.raises(Interrupted):
                takeback.copy(stores[0], target)
            left[0] = 10**9
            takeback.copy(stores[1], target)
            takeback.copy(stores[0], target)
            assert_sound(target)


class Meddling(Wrapper):
    """Does something in a store after each of the writes of somebody else."""

    def __init__(self, step: Any) -> None:
        super().__init__(MemoryBackend())
        self._step, self._busy = step, False

    def write(self, op: Any, **how: Any) -> Any:
        done = self.inner.write(op, **how)
        if not self._busy:
            self._busy = True
            try:
                self._step()
            finally:
                self._busy = False
        return done


def test_a_session_that_somebody_goes_on_with_there_stops_no_other(tmp_path: Path) -> None:
    """It is changed in both stores while it is copied: that is said at the end, and everything else is there."""
    source, armed = memory(), list[Any]()
    backend = Meddling(lambda: armed.pop()() if armed else None)
    with Handle(backend, clock=SystemClock()) as target:
        for number in range(4):
            source.create_session(f"s{number}").user("one")
        takeback.copy(source, target)
        for number in range(4):
            session = source.get_session(f"s{number}")
            session.append(*({"role": "user", "content": str(each)} for each in range(600)))
        source.create_session("new").user("hello")
        armed.append(lambda: target.get_session("s1").user("said there meanwhile"))
        with pytest.raises(Conflict, match="somebody else writes there"):
            takeback.copy(source, target)
        assert [target.get_session(f"s{number}").message_count for number in (0, 2, 3)] == [601] * 3
        assert target.get_session("new").message_count == 1
        assert target.get_session("s1").messages()[-1].text == "said there meanwhile"
        assert_sound(target)


def test_contents_that_are_purged_there_meanwhile_come_again(tmp_path: Path) -> None:
    """Another session of the destination has the same files: they go with it while they are counted on."""
    place = tmp_path / "work"
    place.mkdir()
    (place / "a.txt").write_text("one\n")
    with takeback.open(tmp_path / "a.db") as source:
        for name in "ab":
            with source.session(name, agent="c", workspace=place) as session:
                session.user("go")
                with session.tool("edit", {}) as run:
                    (place / f"{name}.txt").write_text(f"{name}\n")
                    run.result("ok")
        first = source.find_session("a") or next(each for each in source.iter_sessions() if each.name == "a")
        armed: list[Any] = []
        backend = Meddling(lambda: armed.pop()() if armed else None)
        with Handle(backend, clock=SystemClock()) as target:
            takeback.copy(source, target, sessions=[first])
            armed.append(lambda: target.purge_session(target.get_session(first.id)))
            takeback.copy(source, target)
            assert_sound(target)
            takeback.copy(source, target)
            assert_sound(target)
