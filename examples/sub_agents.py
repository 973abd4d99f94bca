"""My agent delegates parts of its work to others, in separate processes: I want every result, and who spent what.

The boss starts a sub-agent for each tool call of its model, and a process for each sub-agent. They communicate only
through the store: a message is received once, a worker's result comes back, and a worker that dies is noticed.
"""

import subprocess
import sys
import tempfile

import takeback

PARTS = {"tests": "Run the tests twenty times", "notes": "Write the release notes"}
ANSWER = {  # what the boss's model says
    "role": "assistant",
    "content": [
        {"type": "tool_use", "id": f"call_{n}", "name": "delegate", "input": {"label": label, "task": task}}
        for n, (label, task) in enumerate(PARTS.items())
    ],
}


def work(path: str, key: str) -> None:
    with takeback.open(path) as store, store.get_session(key) as s:
        s.user(s.task or "")
        for hint in s.receive(wait=10):  # wait for the boss's message
            s.assistant(f"{s.task}, {hint.text}: done", usage={"input_tokens": 500, "output_tokens": 20})
        s.complete({"part": s.label, "messages": s.message_count})


def main(path: str) -> None:
    with takeback.open(path) as store, store.session("release", agent="boss") as boss:
        boss.user("Make version 7 ready")
        boss.append(ANSWER)
        workers = []
        for call in boss.pending_calls():
            child = boss.spawn(call.arguments["task"], label=call.arguments["label"], agent="worker", call_id=call)
            print(child.message)
            workers.append(subprocess.Popen([sys.executable, __file__, path, child.session_key]))
        for session in boss.children():
            session.send("for version 7 only", sender=boss)
        for session in boss.wait(timeout=15):
            print(f"  {session.label}: {session.status} with {session.result}")
            boss.resolve_call(session.metadata["call_id"], session.result or session.error)
        print(f"{len(boss.pending_calls())} calls open")
        print(boss.tree())
        for worker in workers:
            worker.wait()


if len(sys.argv) > 1:
    work(*sys.argv[1:])
else:
    with tempfile.TemporaryDirectory() as folder:
        main(f"{folder}/work.db")
