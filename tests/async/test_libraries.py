"""The awaitable API under trio, under anyio on either library, and in a store that a constructor made."""

from __future__ import annotations

import asyncio
import gc
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio

import takeback

pytestmark = [pytest.mark.trial("T62"), pytest.mark.feature("D9", "C3")]

Body = Callable[[], Coroutine[Any, Any, Any]]
LIBRARIES = ["asyncio", "trio"]


def _run(library: str, body: Body) -> Any:
    return asyncio.run(body()) if library == "asyncio" else trio.run(body)


def _no_threads_are_left() -> None:
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("takeback"):
            thread.join(60)
            assert not thread.is_alive(), thread.name


# ---------------------------------------------------------------------- cancelling


def test_tasks_of_trio_that_are_cancelled_store_every_acknowledged_message_once_in_order(
    tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    told: dict[str, int] = {}
    tried: set[str] = set()

    async def go() -> list[str]:
        async with takeback.aopen(tmp_path / "s.db") as store:
            session = await store.create_session("shared")
            scopes = [trio.CancelScope() for _ in range(24)]

            async def speak(task: int) -> None:
                with scopes[task]:
                    for n in range(12):
                        text = f"{task}:{n}"
                        tried.add(text)
                        told[text] = (await session.user(text, attachments=[b"x"] if n == 5 else ())).seq

            async with trio.open_nursery() as nursery:
                for n in range(24):
                    nursery.start_soon(speak, n)
                for scope in rng.sample(scopes, 10):
                    await trio.sleep(rng.random() * 0.01)
                    scope.cancel()
            assert any(scope.cancelled_caught for scope in scopes)
            texts = [message.text async for message in session.iter_messages()]
            assert not await store.verify()
            return texts

    texts = trio.run(go)
    assert max(Counter(texts).values()) == 1
    assert told.keys() <= set(texts) <= tried
    assert all(texts[seq - 1] == text for text, seq in told.items())
    _no_threads_are_left()


@pytest.mark.parametrize("attached", [(), (b"y" * 300_000,)], ids=["plain", "prepared"])
def test_a_write_whose_scope_was_cancelled_before_it_is_stored_all_the_same(tmp_path: Path, attached: Any) -> None:
    async def go() -> None:
        async with takeback.aopen(tmp_path / "s.db") as store:
            session = await store.create_session("s")
            with trio.CancelScope() as scope:
                scope.cancel()
                await session.user("handed over", attachments=attached)
            assert scope.cancelled_caught
            with takeback.open(tmp_path / "s.db") as other:
                follow = other.follow()
                while not other.get_session("s").messages():
                    next(follow)
            assert [message.text for message in await session.messages()] == ["handed over"]

    trio.run(go)


@pytest.mark.parametrize("backend", LIBRARIES)
def test_a_cancelled_block_leaves_the_session_interrupted_and_free(tmp_path: Path, backend: str) -> None:
    """A scope of anyio cancels again and again until its block is left, on both libraries."""

    async def go() -> None:
        async with takeback.aopen(tmp_path / "s.db") as store:
            with anyio.CancelScope() as scope:
                async with store.session("s") as s, s.tool("work") as running, s.stream() as answer:
                    await answer.write("half an ans")
                    await running.write("output")
                    scope.cancel()
                    await anyio.sleep(60)
            assert scope.cancelled_caught
            assert (await store.get_session("s")).status == "interrupted"
            again = await store.session("s")  # at once: the block was left only when the lease was free
            assert again.resumed
            assert again.stopped_at is not None
            assert [each.status for each in await again.messages() if each.role == "assistant"][-1] == "cancelled"
            assert (await again.tool_calls())[-1].status == "unknown"

    anyio.run(go, backend=backend)
    with takeback.open(tmp_path / "s.db") as store:
        assert not store.verify()
    _no_threads_are_left()


@pytest.mark.parametrize("backend", LIBRARIES)
def test_a_store_is_closed_even_if_its_block_was_cancelled(tmp_path: Path, backend: str) -> None:
    kept = list[takeback.AsyncSession]()

    async def go() -> None:
        with anyio.CancelScope() as scope:
            async with takeback.aopen(tmp_path / "s.db") as store:
                kept.append(await store.session("s"))
                scope.cancel()
                await anyio.sleep(60)

    anyio.run(go, backend=backend)
    with takeback.open(tmp_path / "s.db") as store:
        assert store.get_session("s").holder is None
    _no_threads_are_left()


@pytest.mark.parametrize("backend", LIBRARIES)
def test_waiting_for_others_and_following_end_with_their_scope(tmp_path: Path, backend: str) -> None:
    async def go() -> None:
        async with takeback.aopen(tmp_path / "s.db") as store:
            session = await store.create_session("s")
            with anyio.move_on_after(0.05) as scope:
                await session.receive(wait=600)
            assert scope.cancelled_caught
            with anyio.move_on_after(0.05) as scope:
                async for _ in store.follow():
                    pass
            assert scope.cancelled_caught
            await session.user("one")
            kinds = list[str]()
            async with aclosing(store.follow()) as changes:  # type: ignore[type-var]
                async for change in changes:
                    kinds.append(change.kind)
                    break
            assert kinds
            await anyio.to_thread.run_sync(_no_waiting_threads_are_left)

    anyio.run(go, backend=backend)
    _no_threads_are_left()


def _no_waiting_threads_are_left() -> None:
    gc.collect()
    for thread in threading.enumerate():
        if thread.name in ("takeback-wait", "takeback-follow"):
            thread.join(60)
            assert not thread.is_alive(), thread.name


# ---------------------------------------------------------------------- iterators


@pytest.mark.parametrize("library", LIBRARIES)
def test_iterators_are_read_in_pages_and_may_be_left_at_any_point(tmp_path: Path, library: str) -> None:
    async def go() -> None:
        async with takeback.aopen(tmp_path / "s.db") as store:
            session = await store.create_session("s")
            await session.append(*({"role": "user", "content": str(n)} for n in range(600)))
            assert [m.text async for m in session.iter_messages()] == [str(n) for n in range(600)]
            async for message in session.iter_messages():
                if message.text == "300":
                    break
            stream = session.iter_messages()
            assert (await anext(stream)).text == "0"
            await stream.aclose()  # type: ignore[attr-defined]
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            changes = store.follow()
            await changes.aclose()  # type: ignore[attr-defined]
            with pytest.raises(StopAsyncIteration):
                await anext(changes)
            found = await session.user("x", attachments=[b"z" * 3_000_000])
            pieces = [piece async for piece in found.attachments[0].open()]
            assert (len(pieces), sum(map(len, pieces))) == (3, 3_000_000)
            assert [s.name async for s in store.iter_sessions()] == ["s"]

    _run(library, go)


# ---------------------------------------------------------------------- a store without a block


class Framework:
    """Holds a store from its constructor on, which is no coroutine."""

    def __init__(self, path: Path) -> None:
        self.store = takeback.aopen(path)

    async def answer(self, text: str) -> str:
        session = await self.store.session("s", hold=False)
        return (await session.user(text)).text


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_constructor_may_make_a_store_and_the_first_call_opens_it(tmp_path: Path, library: str) -> None:
    async def go() -> None:
        framework = Framework(tmp_path / "s.db")
        assert not (tmp_path / "s.db").exists()
        assert repr(framework.store) == "<AsyncStore, not open yet>"
        for look in (lambda: framework.store.url, lambda: framework.store.scoped("a"), lambda: framework.store.scope):
            with pytest.raises(takeback.Closed, match=r"not open yet.*await the store first"):
                look()
        async with anyio.create_task_group() as group:  # many first calls at once open it once
            for n in range(10):
                group.start_soon(framework.answer, str(n))
        assert framework.store.url.endswith("s.db")
        session = await framework.store.get_session("s")
        assert sorted(message.text for message in await session.messages()) == sorted(map(str, range(10)))
        assert await framework.store is framework.store
        await framework.store.close()
        with pytest.raises(takeback.Closed):
            await framework.answer("late")

    anyio.run(go, backend=library)
    _no_threads_are_left()


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_store_that_was_never_used_is_closed_and_stays_closed(tmp_path: Path, library: str) -> None:
    async def go() -> None:
        store = takeback.aopen(tmp_path / "s.db")
        await store.close()
        await store.close()
        with pytest.raises(takeback.Closed):
            await store.list_sessions()
        with pytest.raises(takeback.Closed):
            await store

    _run(library, go)
    assert not (tmp_path / "s.db").exists()
    _no_threads_are_left()


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_store_that_did_not_open_can_be_tried_again(tmp_path: Path, library: str) -> None:
    async def go() -> None:
        store = takeback.aopen(tmp_path / "folder" / "s.db")
        (tmp_path / "folder").write_text("in the way")
        for call in (lambda: store.list_sessions(), lambda: store.__aenter__()):
            with pytest.raises(takeback.Error):
                await call()
        (tmp_path / "folder").unlink()
        (tmp_path / "folder").mkdir()
        assert len(await store.list_sessions()) == 0
        await store.close()

    _run(library, go)
    _no_threads_are_left()


def test_opening_that_was_cancelled_leaves_nothing_open_and_can_be_tried_again(tmp_path: Path) -> None:
    async def go() -> None:
        store = takeback.aopen(tmp_path / "s.db")
        with trio.CancelScope() as scope:
            scope.cancel()
            await store
        assert scope.cancelled_caught
        async with store:
            await store.create_session("s")

    trio.run(go)
    _no_threads_are_left()


# ---------------------------------------------------------------------- loops


def test_one_store_serves_asyncio_and_trio_at_the_same_time(tmp_path: Path) -> None:
    store = takeback.aopen(tmp_path / "s.db")

    async def make() -> takeback.AsyncSession:
        return await (await store).create_session("s")

    session = trio.run(make)

    def write(library: str) -> None:
        async def go() -> None:
            async with anyio.create_task_group() as group:
                for n in range(20):
                    group.start_soon(session.user, f"{library}:{n}")

        anyio.run(go, backend=library)

    threads = [threading.Thread(target=write, args=(library,)) for library in (*LIBRARIES, *LIBRARIES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()

    async def end() -> int:
        async with store:
            return len(await session.messages())

    assert asyncio.run(end()) == 80


def test_a_task_of_trio_inside_a_loop_of_asyncio_is_one_of_trio(tmp_path: Path) -> None:
    """A guest run: both loops run in this thread, and each task belongs to one of them."""

    async def guest() -> str:
        async with takeback.aopen(tmp_path / "s.db") as store:
            with trio.move_on_after(60):
                return (await (await store.create_session("s")).user("from the guest")).text

    async def host() -> str:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        trio.lowlevel.start_guest_run(
            guest,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=lambda outcome: done.set_result(outcome.unwrap()),
        )
        async with takeback.aopen(tmp_path / "own.db") as store:
            await store.create_session("s")
        return await done

    assert asyncio.run(host()) == "from the guest"


def test_without_an_event_loop_the_error_says_so() -> None:
    coroutine = takeback.aopen(":memory:").list_sessions()
    with pytest.raises(RuntimeError, match="needs an event loop of asyncio or trio"):
        coroutine.send(None)


def test_trio_is_never_loaded_for_a_task_of_asyncio(tmp_path: Path) -> None:
    code = """
import asyncio, sys, takeback
async def go():
    async with takeback.aopen("s.db") as store:
        await (await store.create_session()).user("x")
asyncio.run(go())
assert not {"trio", "anyio", "sniffio"} & {*sys.modules}
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
