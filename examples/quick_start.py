"""My agent should survive a crash, and I want to take back what it did: the quick start.

The model follows a script (_scripted.py); with your own key, write ``client = anthropic.Anthropic()`` instead.
"""

import tempfile

from _scripted import anthropic_client

import takeback

MODEL = "claude-sonnet-5-5"
SCRIPT = [
    ["Let me run it first.", ("run_tests", {"path": "tests/test_retry.py"})],
    ["It raced on the pool. I have rewritten the pool as a queue, in 14 files."],
]


def run(name: str, arguments: dict) -> str:
    return f"{name} {arguments['path']}: 1 of 20 runs failed"


with tempfile.TemporaryDirectory() as folder, anthropic_client(SCRIPT) as client:
    with (
        takeback.open(f"{folder}/work.db") as store,
        store.session("fix-retry", agent="coder", workspace=folder) as s,
    ):
        s.user("Fix the flaky test")
        reply = client.messages.create(**s.context("anthropic", model=MODEL).request(), max_tokens=1024)
        s.append(reply)  # the provider's object, stored verbatim
        for call in s.pending_calls():
            with s.tool(call) as running:  # its start is durable before the tool runs
                running.result(run(call.name, call.arguments))
        before = s.checkpoint("before refactor")

        reply = client.messages.create(**s.context("anthropic", model=MODEL).request(), max_tokens=1024)
        s.append(reply)

        rewind = s.preview_rewind(before)
        print(rewind)  # what would happen
        rewind.apply()
        print("rewound to: ", s.messages(limit=1)[0])
        s.undo()
        print("undone, now:", s.messages(limit=1)[0])

    with takeback.open(f"{folder}/work.db") as store:  # another day, another process
        s = store.session("fix-retry", agent="coder", workspace=folder)
        print(s)
        for message in s.messages():
            print(f"  {message.role:9} {message.text}")
