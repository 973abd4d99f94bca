"""Tasks: many at once, some cancelled, on several event loops and in several processes."""

import asyncio
import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import takeback

pytestmark = pytest.mark.feature("D9", "C3")


@pytest.mark.slow
@pytest.mark.parametrize("place", ["file", "memory"])
def test_64_tasks_with_some_cancelled_store_every_acknowledged_message_once_in_order(
    tmp_path: Path, place: str, seed: int
) -> None:
    """Who was told "done" is there once; who was cancelled is there once or not at all; each task's own order holds."""
    rng = random.Random(seed)
    told: dict[str, int] = {}
    tried: set[str] = set()

    async def speak(session: takeback.AsyncSession, task: int) -> None:
        for n in range(20):
            text = f"{task}:{n}"
            tried.add(text)
            told[text] = (await session.user(text)).seq

    async def go() -> list[str]:
        url = tmp_path / "s.db" if place == "file" else ":memory:"
        async with takeback.aopen(url) as store:
            session = await store.create_session("shared")
            tasks = [asyncio.create_task(speak(session, n)) for n in range(64)]
            for task in rng.sample(tasks, 24):
                await asyncio.sleep(rng.random() * 0.01)
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(d is None or isinstance(d, asyncio.CancelledError) for d in done)
            assert any(isinstance(d, asyncio.CancelledError) for d in done)
            texts = [message.text async for message in session.iter_messages()]
            assert not await store.verify()
            return texts

    texts = asyncio.run(go())
    assert max(Counter(texts).values()) == 1
    assert told.keys() <= set(texts) <= tried
    assert all(texts[seq - 1] == text for text, seq in told.items())
    for task in range(64):
        mine = [int(text.split(":")[1]) for text in texts if text.startswith(f"{task}:")]
        assert mine == list(range(len(mine)))


def test_one_task_that_fails_does_not_harm_the_others(tmp_path: Path) -> None:
    async def go() -> None:
        async with takeback.aopen(tmp_path / "s.db") as store:
            session = await store.create_session()

            async def speak(n: int) -> bool:
                try:
                    await session.append(
                        {"role": "user", "content": str(n)}, expected_revision=None if n % 3 else 10**6
                    )
                except takeback.Conflict:
                    return False
                return True

            stored = await asyncio.gather(*(speak(n) for n in range(90)))
            assert stored == [n % 3 != 0 for n in range(90)]
            assert sorted(int(m.text) for m in await session.messages()) == [n for n in range(90) if n % 3]

    asyncio.run(go())


def test_a_cancelled_call_finishes_and_the_store_goes_on(tmp_path: Path) -> None:
    async def go() -> None:
        async with takeback.aopen(tmp_path / "s.db") as store:
            session = await store.create_session("s")
            for call in (
                lambda: session.user("x", attachments=[b"y" * 3_000_000]),
                lambda: session.set_plan("p"),
                lambda: session.messages(),
            ):
                task = asyncio.ensure_future(call())
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await session.user("last")
            # The cancelled call finishes in its own time, on a busy machine after this one.
            assert "last" in [message.text for message in await session.messages()]
            assert not await store.verify()

    asyncio.run(go())


def test_one_store_serves_several_event_loops_at_once(tmp_path: Path) -> None:
    store_loop = asyncio.new_event_loop()
    store = store_loop.run_until_complete(_open(tmp_path / "s.db"))
    session = store_loop.run_until_complete(_create(store))

    def write(writer: int) -> None:
        async def go() -> None:
            await asyncio.gather(*(session.user(f"{writer}:{n}") for n in range(20)))

        asyncio.run(go())

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert len(store_loop.run_until_complete(session.messages())) == 80
    store_loop.run_until_complete(store.close())
    store_loop.close()


async def _open(path: Path) -> takeback.AsyncStore:
    return await takeback.aopen(path)


async def _create(store: takeback.AsyncStore) -> takeback.AsyncSession:
    return await store.create_session()


def test_a_closed_store_says_so_and_an_iterator_may_be_left_early(tmp_path: Path) -> None:
    async def go() -> None:
        store = await takeback.aopen(tmp_path / "s.db")
        session = await store.create_session()
        await session.append(*({"role": "user", "content": str(n)} for n in range(600)))
        stream = session.iter_messages()
        assert [(await anext(stream)).text for _ in range(3)] == ["0", "1", "2"]
        await stream.aclose()  # type: ignore[attr-defined]
        await store.scoped("other").close()
        await session.user("still open")
        await store.close()
        await store.close()
        for call in (session.user, session.set_plan):
            with pytest.raises(takeback.Closed):
                await call("x")

    asyncio.run(go())


def test_a_task_group_with_an_error_leaves_what_was_acknowledged(tmp_path: Path) -> None:
    told = []

    async def go() -> None:
        async with takeback.aopen(tmp_path / "s.db") as store:
            session = await store.create_session("s")

            async def speak(n: int) -> None:
                told.append((await session.user(str(n))).seq)
                if n == 7:
                    raise RuntimeError("planted")

            async def all_of_them() -> None:
                async with asyncio.TaskGroup() as group:
                    for n in range(30):
                        group.create_task(speak(n))

            with pytest.raises(ExceptionGroup):
                await all_of_them()

    asyncio.run(go())
    with takeback.open(tmp_path / "s.db") as store:
        assert set(told) <= {m.seq for m in store.get_session("s").messages()}


_ASK = """
import sys, os, asyncio, takeback
async def go():
    async with takeback.aopen(sys.argv[1]) as store:
        sys.stdin.readline()
        found = await asyncio.gather(
            store.session("shared", hold=False), store.main_session("x"), store.cron_session("x", "j"),
            store.directory_session(os.path.dirname(sys.argv[1])), store.session("shared", hold=False))
        print(*[session.id for session in found])
asyncio.run(go())
"""


@pytest.mark.slow
@pytest.mark.feature("C1", "D4")
@pytest.mark.defect("S2-2", "S3-3")
def test_eight_processes_ask_at_once_and_one_session_of_each_is_made(tmp_path: Path) -> None:
    for number in range(3):
        path = tmp_path / f"{number}.db"
        asking = [
            subprocess.Popen(
                [sys.executable, "-c", _ASK, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(8)
        ]
        for process in asking:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = {process.communicate(timeout=60)[0].strip() for process in asking}
        assert len(answers) == 1
        ids = answers.pop().split()
        assert len(ids) == 5
        assert len(set(ids)) == 4
        with takeback.open(path) as store:
            assert len(store.list_sessions()) == 4
            assert not store.verify()


_RACE = """
import sys, takeback
with takeback.open(sys.argv[1]) as store:
    state, session, met = store.get_agent("a").state, store.get_session("s"), False
    for n in range(int(sys.argv[3])):
        while True:
            version = state.version()
            if not met:  # both have read the same version before either writes: one of them must lose
                print("read", flush=True)
                met = bool(sys.stdin.readline())
            try:
                state.set("n", state.at(version)["n"] + 1, expected_version=version)
                break
            except takeback.Conflict:
                print("conflict")
        while True:
            session.refresh()
            try:
                session.append({"role": "user", "content": f"{sys.argv[2]}:{n}"}, expected_revision=session.revision)
                break
            except takeback.Conflict:
                print("conflict")
"""


@pytest.mark.slow
@pytest.mark.promise("R10")
@pytest.mark.feature("E1")
def test_two_processes_racing_500_rounds_lose_nothing_and_every_lost_race_is_told(tmp_path: Path) -> None:
    path, rounds = tmp_path / "s.db", 250
    with takeback.open(path) as store:
        store.create_agent("a").state.set("n", 0)
        store.create_session("s")
        racing = [
            subprocess.Popen(
                [sys.executable, "-c", _RACE, str(path), str(n), str(rounds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for n in range(2)
        ]
        assert [process.stdout and process.stdout.readline() for process in racing] == ["read\n", "read\n"]
        for process in racing:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=200)[0] for process in racing]
        assert [process.returncode for process in racing] == [0, 0]
        assert store.get_agent("a").state.get("n") == 2 * rounds
        assert store.get_agent("a").version == 2 * rounds + 2
        texts = [m.text for m in store.get_session("s").messages()]
        assert sorted(texts) == sorted(f"{w}:{n}" for w in range(2) for n in range(rounds))
        assert store.get_session("s").revision == 2 * rounds
        assert not store.verify()
    assert sum(output.count("conflict") for output in outputs) > 0, "the race never happened"


def test_a_batch_of_tasks_that_fails_does_not_harm_threads_of_the_same_commit(tmp_path: Path) -> None:
    """An operation that fails with any error after writing fails alone, whoever shares its transaction."""

    class Broken:
        unprepared = False

        def prepare(self) -> None: ...

        def run(self, tx: Any) -> None:
            tx.run("UPDATE session SET title = 'broken'")
            raise KeyError("planted")

        def finish(self, done: Any) -> None: ...

    async def go() -> None:
        async with takeback.aopen(tmp_path / "s.db") as store:
            session = await store.create_session("s")
            sync, told = session._sync, list[str]()

            def write() -> None:
                for n in range(60):
                    told.append(sync.user(f"thread {n}").text)

            async def bad() -> None:
                with pytest.raises(KeyError):
                    await store._portal.write(store._sync._backend, Broken())

            thread = threading.Thread(target=write)
            thread.start()
            for n in range(20):
                await asyncio.gather(*(session.user(f"task {n}.{i}") for i in range(4)), bad(), bad())
            await asyncio.to_thread(thread.join)
            texts = [message.text for message in await session.messages()]
            assert sorted(texts) == sorted([*told, *(f"task {n}.{i}" for n in range(20) for i in range(4))])
            assert (await session.refresh()).title != "broken"
            assert not await store.verify()

    asyncio.run(go())


def test_a_store_that_does_not_open_leaves_no_threads(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"no database" * 1000)

    async def go() -> None:
        for _ in range(5):
            with pytest.raises(takeback.Error):
                await takeback.aopen(tmp_path / "s.db")

    asyncio.run(go())
    for thread in threading.enumerate():
        if thread.name.startswith("takeback"):
            thread.join(60)
            assert not thread.is_alive()
