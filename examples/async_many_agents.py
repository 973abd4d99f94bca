"""Fifty agents run in one event loop, and some are cancelled midway: what is in the store then?

Everything that was awaited is there. A write that was cancelled while it ran is stored completely or not at all, and
the other agents do not notice.
"""

import asyncio
import random
import tempfile

import takeback

AGENTS, STEPS = 50, 20


async def agent(store: takeback.AsyncStore, number: int, acknowledged: list[int], half: asyncio.Event) -> None:
    session = await store.create_session(f"agent-{number}", agent="crowd")
    await session.user(f"Count to {STEPS}")
    for step in range(1, STEPS + 1):
        await session.assistant(str(step))
        acknowledged[number] = step
        if step == STEPS // 2:
            half.set()


async def main(path: str) -> None:
    acknowledged, half = [0] * AGENTS, asyncio.Event()
    async with takeback.aopen(path) as store:
        tasks = [asyncio.create_task(agent(store, number, acknowledged, half)) for number in range(AGENTS)]
        victims = random.Random(3).sample(range(AGENTS), 10)
        await half.wait()
        for number in victims:
            tasks[number].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        cancelled = [n for n, result in enumerate(results) if isinstance(result, asyncio.CancelledError)]
        assert sorted(victims) == cancelled, results

    async with takeback.aopen(path) as store:
        lost = extra = finished = 0
        async for session in store.iter_sessions():
            number = int(session.name.removeprefix("agent-"))
            counted = [message.text async for message in session.iter_messages()][1:]
            assert counted == [str(step) for step in range(1, len(counted) + 1)], counted
            lost += max(0, acknowledged[number] - len(counted))
            extra += max(0, len(counted) - acknowledged[number])
            finished += len(counted) == STEPS
        print(f"{AGENTS} agents, {len(cancelled)} cancelled, {finished} finished")
        print(f"{sum(acknowledged)} answers acknowledged, {lost} lost")
        print(f"written, but cancelled before it was acknowledged: at most one each: {extra <= len(cancelled)}")
        print("verify:", "no problems" if not await store.verify() else "PROBLEMS")


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(f"{folder}/work.db"))
