"""My agent runs under asyncio: the quick start with ``await``, ``async with`` and ``async for``.

The model follows a script (_scripted.py); with your own key, write ``client = anthropic.AsyncAnthropic()`` instead.
"""

import asyncio
import tempfile

from _scripted import async_anthropic_client

import takeback

MODEL = "claude-sonnet-5-5"
SCRIPT = [
    ["Let me run it first.", ("run_tests", {"path": "tests/test_retry.py"})],
    ["It raced on the pool. I have rewritten the pool as a queue, in 14 files."],
]


async def run(name: str, arguments: dict) -> str:
    await asyncio.sleep(0.01)
    return f"{name} {arguments['path']}: 1 of 20 runs failed"


async def main(path: str) -> None:
    async with (
        async_anthropic_client(SCRIPT) as client,
        takeback.aopen(path) as store,
        store.session("fix-retry", agent="coder") as s,
    ):
        await s.user("Fix the flaky test")
        context = await s.context("anthropic", model=MODEL)
        await s.append(await client.messages.create(**context.request(), max_tokens=1024))
        for call in await s.pending_calls():
            async with s.tool(call) as running:  # its start is durable before the tool runs
                await running.result(await run(call.name, call.arguments))
        before = await s.checkpoint("before refactor")

        context = await s.context("anthropic", model=MODEL)
        await s.append(await client.messages.create(**context.request(), max_tokens=1024))

        rewind = await s.preview_rewind(before)
        print(rewind)  # what would happen
        await rewind.apply()
        print("rewound to: ", (await s.messages(limit=1))[0])
        await s.undo()
        print("undone, now:", (await s.messages(limit=1))[0])

    async with takeback.aopen(path) as store:  # another day, another process
        s = await store.session("fix-retry", agent="coder")
        print(s)
        async for message in s.iter_messages():
            print(f"  {message.role:9} {message.text}")


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(f"{folder}/work.db"))
