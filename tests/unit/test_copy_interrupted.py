"""Copying under duress: interrupted, killed, while both stores are in use, from a damaged one, with little memory."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _copied import (
    OPENERS,
    SCOPES,
    Interrupted,
    assert_same,
    assert_sound,
    assert_whole,
    go_on,
    interruptible,
    memory,
    rich,
    small_pages,
    views,
)
from _damages import DAMAGES, damaged, rot  # noqa: F401
from test_verify import _ACTIONS, grow

import takeback
from takeback import Copying, Corrupt, NotFound, Store

pytestmark = [pytest.mark.feature("C6"), pytest.mark.feature("E6")]


# ---------------------------------------------------------------------- interruptions


def _small(store: Store, rng: random.Random) -> Store:
    grow(store, rng, 45)
    grow(store.scoped("anna"), rng, 12)
    store.session("last", agent="a", hold=False).user("see", attachments=[rng.randbytes(2_200_000)])
    return store


@pytest.mark.parametrize("rows", [4, 500])
def test_interrupted_before_any_write_it_shows_nothing_half_done_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, seed: int, rows: int, tally: Callable[..., int]
) -> None:
    small_pages(monkeypatch, rows)
    source, left = _small(memory(), random.Random(f"interrupted {seed}")), [10**9]
    wanted, shown = views(source), set[int]()
    with interruptible(left) as target:
        takeback.copy(source, target)
    writes = 10**9 - left[0]
    for number in range(writes):
        left[0] = 10**9
        with interruptible(left) as target:
            left[0] = number
            with pytest.raises(Interrupted):
                takeback.copy(source, target)
            left[0] = 10**9
            assert_sound(target)
            shown.add(assert_whole(target, wanted))
            takeback.copy(source, target)
            assert views(target) == wanted, f"seed {seed}, write {number}"
            assert_sound(target)
    tally("interrupted copies", writes)
    assert len(shown) > 4, "sessions show up one after another"


@pytest.mark.parametrize("kind", ["growing", "new"])
def test_interrupted_while_it_brings_what_is_new_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, seed: int, kind: str
) -> None:
    """A session that is seen already shows more and more of what was said, and is never another."""
    small_pages(monkeypatch, 5)
    source, left = _small(memory(), random.Random(f"new {seed}")), [10**9]
    with memory() as first:
        takeback.copy(source, first)
        if kind == "growing":
            last = source.get_session("last")
            last.append(*({"role": "user", "content": str(number)} for number in range(23)))
            last.set_tasks(["a"])
            last.rewind(9)
            last.user("elsewhere")
        else:
            go_on(source, random.Random(f"new {seed}"))
        wanted = views(source)
        for number in itertools.count(step=1 if kind == "growing" else 3):
            left[0] = 10**9
            with interruptible(left) as target:
                takeback.copy(first, target)
                left[0] = number
                try:
                    takeback.copy(source, target)
                    break
                except Interrupted:
                    left[0] = 10**9
                assert_sound(target)
                takeback.copy(source, target)
                assert views(target) == wanted
                assert_sound(target)
    assert number > 3


_KILLED = """
import sys, takeback
from takeback.client.store import Store
from takeback.clock import SystemClock
from takeback.storage.sqlite import SqliteBackend
from takeback.testing.faults import FaultyVFS
vfs = FaultyVFS()
backend = SqliteBackend(sys.argv[2], vfs=vfs.name, sync=vfs.sync)
vfs.arm(int(sys.argv[3]), "kill")
with Store(backend, clock=SystemClock()) as target:
    takeback.copy(sys.argv[1], target)
"""


def test_killed_again_and_again_it_gets_there(
    tmp_path: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    """Killed at any call to the disk, again and again: what can be seen is whole, and it gets there in the end."""
    source, deaths, rng = tmp_path / "a.db", 0, random.Random(f"kills {seed}")
    with takeback.open(source, durability="relaxed") as store:
        _small(rich(store), random.Random(f"killed {seed}"))
        wanted = views(store)
    for number in range(counts(2, 40)):
        target = tmp_path / f"{number}.db"
        for last in (30, 60, 120, 150, *(rng.randrange(20, 300) for _ in range(1 if number else 3))):
            script = [sys.executable, "-c", _KILLED, str(source), str(target), str(last)]
            died = subprocess.run(script, check=False).returncode
            assert died in (0, -signal.SIGKILL)
            deaths += died != 0
            with takeback.open(target) as store:
                assert_sound(store)
                assert_whole(store, wanted)
        takeback.copy(source, target)
        with takeback.open(target) as store:
            assert views(store) == wanted
            assert_sound(store)
    tally("kills of copies", deaths)
    assert deaths >= counts(6, 160)


def test_content_that_was_begun_is_gone_on_with(tmp_path: Path) -> None:
    source, left = memory(), [10**9]
    source.create_session("a").user("see", attachments=[random.Random(1).randbytes(6_000_000)])
    with interruptible(left) as target:
        left[0] = 4
        with pytest.raises(Interrupted):
            takeback.copy(source, target)
        chunks = target._read(lambda tx: tx.one("SELECT count(*) FROM chunk"))[0]
        assert 0 < chunks < 6
        left[0] = 1000
        takeback.copy(source, target)
        assert target._read(lambda tx: tx.one("SELECT count(*) FROM chunk")) == (6,)
        assert 1000 - left[0] < 6 + 6, "chunks that were there are not written again"
        assert_same(source, target)


# ---------------------------------------------------------------------- stores in use


def test_sessions_that_go_on_meanwhile_come_out_as_of_one_moment(tmp_path: Path, seed: int) -> None:
    with OPENERS["file"](tmp_path / "a.db") as source, OPENERS["file"](tmp_path / "b.db") as target:
        grow(source, random.Random(f"before {seed}"), 40)
        sessions = [source.create_session(f"busy {number}", agent="a") for number in range(3)]

        def write(number: int) -> None:
            rng, session = random.Random(f"writer {seed} {number}"), sessions[number]
            for _ in range(200):
                time.sleep(0.002)
                try:
                    rng.choice(_ACTIONS)(session.refresh(), rng)
                    if rng.random() < 0.03:
                        session.fork(rng.randrange(session.head.seq + 1), as_session=True).user("forked")
                except takeback.Error:
                    continue

        writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for writer in writers:
            writer.start()
        try:
            for _ in range(4):
                takeback.copy(source, target)
                assert_sound(target)
                for session in target.iter_sessions(archived=None):
                    assert len(session.messages()) == session.message_count
        finally:
            for writer in writers:
                writer.join()
        takeback.copy(source, target)
        assert_same(source, target)


def test_the_destination_may_be_in_use(tmp_path: Path) -> None:
    stop, source = threading.Event(), rich(memory())
    with OPENERS["file"](tmp_path / "b.db") as target:
        own = target.create_session("own", agent="coder")

        def write() -> None:
            for number in itertools.count():
                if stop.is_set():
                    return
                own.user(f"said meanwhile {number}")
                target.create_session(f"made meanwhile {number}", agent="passing").user("x")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            takeback.copy(source, target)
        finally:
            stop.set()
            writer.join()
        assert_sound(target)
        assert_whole(source, views(source))
        for session in source.iter_sessions(archived=None):
            assert list(target.get_session(session.id).entries()) == list(session.entries())


def _at(phase: str, step: Callable[[], Any]) -> Callable[[Copying], None]:
    """Do something when a copy comes to a phase."""
    waiting = [step]

    def progress(told: Copying) -> None:
        if told.phase == phase and waiting:
            waiting.pop()()

    return progress


def test_nobody_sees_a_session_before_it_is_whole() -> None:
    source, target, seen = rich(memory()), memory(), []

    def look() -> None:
        for scope in SCOPES:
            handle = target.scoped(scope)
            seen.extend([*handle.list_sessions(archived=None), *handle.list_sessions(trash=True)])
            seen.extend(operation for operation in handle.operations() if operation.session_id)
        for session in source.iter_sessions(archived=None):
            assert target.find_session(session.id) is None
            assert target.find_session(session.key) is None
            with pytest.raises(NotFound):
                target.restore_session(session.id)
            assert target.purge_session(session.id).sessions == ()
            with pytest.raises(NotFound):
                target.resolve(session.id[:20])
        assert_sound(target)

    takeback.copy(source, target, progress=_at("sessions", look))
    assert seen == []
    assert_same(source, target)


def test_what_is_purged_in_the_source_meanwhile_is_erased_from_the_copy() -> None:
    source, target = rich(memory()), memory()

    def purge() -> None:
        source.purge_session("child")
        source.purge_session(source.get_session("talk", agent="coder"))
        source.purge_session("forked")

    takeback.copy(source, target, progress=_at("sessions", purge))
    assert_same(source, target)
    texts = target._read(lambda tx: tx.all("SELECT body FROM entry"))
    assert not any(b"from the parent" in (body or b"") for (body,) in texts)
    assert any(b"question 1" in (body or b"") for (body,) in texts), "what a fork reads is kept"
    assert target._read(lambda tx: tx.one("SELECT count(*) FROM session WHERE key LIKE 'copying:%'")) == (0,)


def test_a_fork_of_a_session_that_goes_on_meanwhile_brings_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = memory(), memory()
    talk = source.create_session("talk")
    talk.user("one")
    fork = source.create_session("placeholder")
    takeback.copy(source, target)
    talk.append(*({"role": "user", "content": str(number)} for number in range(9)))
    talk.fork(7, as_session=True, name="fork").user("on")
    talk.rename("late")
    fork.user("changed first")
    takeback.copy(source, target)
    assert_same(source, target)


# ---------------------------------------------------------------------- damage


def test_damage_of_the_source_is_named_and_nothing_of_it_is_seen(tmp_path: Path) -> None:
    """Whatever is damaged, a copy that says nothing has everything; one that is refused leaves a sound store."""
    refused = 0
    for name in DAMAGES:
        path, _ = damaged(tmp_path, name)
        with memory() as target:
            error = _refusal(path, target)
            report = target.verify()
            assert not report, f"{name}: {report}"
            if error is not None:
                refused += 1
                assert error.what, name
                assert any(word in str(error).lower() for word in ("repair", "salvage", "backup")), str(error)
    assert refused > len(DAMAGES) // 2


def _refusal(path: Path, target: Store) -> Corrupt | None:
    try:
        takeback.copy(path, target)
    except Corrupt as error:
        return error
    return None


def test_a_byte_that_changes_on_the_way_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from takeback.records import write as putting
    from takeback.records.stream import EntriesRecord

    insert = putting._insert

    def spoil(tx: Any, page: EntriesRecord, first: int) -> None:
        rows = [row._replace(body=(row.body or b"").replace(b"question 3", b"question 8")) for row in page.rows]
        insert(tx, page._replace(rows=rows), first)

    source, target = rich(memory()), memory()
    monkeypatch.setattr(putting, "_insert", spoil)
    with pytest.raises(Corrupt, match=r"entry \w+-5 "):
        takeback.copy(source, target)
    assert target.find_session("talk") is None


_MEMORY = """
import re, sys, takeback
done = takeback.copy(sys.argv[1], sys.argv[2])
print(done.bytes, int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from Linux's /proc")
def test_memory_follows_the_page_not_the_store(tmp_path: Path) -> None:
    rng = random.Random(1)
    with takeback.open(tmp_path / "a.db", durability="relaxed") as store:
        session = store.create_session("large")
        for _ in range(2):
            session.user("see", attachments=[rng.randbytes(50_000_000)])
        for _ in range(25):
            session.append(*({"role": "user", "content": rng.randbytes(20_000).hex()} for _ in range(100)))
    script = [sys.executable, "-c", _MEMORY, str(tmp_path / "a.db"), str(tmp_path / "b.db")]
    size, peak = map(int, subprocess.run(script, check=True, capture_output=True, text=True).stdout.split())
    assert size > 190_000_000
    assert peak < 130, f"{peak} MB"
