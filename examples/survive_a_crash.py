"""My agent was killed in the middle of an answer, while a tool ran: where did it stop, and may the tool run again?

The next process finds out. The part of the answer that had arrived is there. The tool's outcome is unknown, so nothing
runs it again automatically; here it may be retried, because the build service recognises a request by its key.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import takeback

CALL = {"type": "tool_use", "id": "call_1", "name": "build", "input": {"version": 7}}


def agent(folder: str, dies: bool) -> None:
    with takeback.open(f"{folder}/work.db") as store, store.session("release", agent="builder") as s:
        if s.stopped_at is not None:
            print(f"  the last run was interrupted in turn {s.stopped_at}, {s.crashes} in a row")
        for message in s.messages():
            if message.status == "interrupted":
                print(f"  partial answer: {message.text!r}")
        if not s.resumed:
            s.user("Build version 7 and say what is new")
            s.append({"role": "assistant", "content": [CALL]})
        for call in s.pending_calls():
            print(f"  {call.name} is {call.status}, attempts so far: {call.attempts}", flush=True)
            with s.retry(call) as running:  # raises after three attempts
                with Path(folder, "service").open("a") as requests:
                    requests.write(f"{call.idempotency_key}\n")
                if dies:
                    with s.stream() as answer:
                        answer.write("It builds. New is a fas")
                        answer.flush()  # or wait 0.2 seconds
                        os.kill(os.getpid(), signal.SIGKILL)
                running.result("built")
        print(f"  the model reads: {s.context('anthropic').messages[-1]['content']}")
        with s.stream(model="some-model") as answer:
            for piece in ("New is a ", "faster ", "parser."):
                answer.write(piece)
        s.complete("version 7 is built")
    print(f"  {answer.message.text if answer.message else ''} {s.status}: {s.result}")


if len(sys.argv) > 1:
    agent(sys.argv[1], dies=True)
else:
    with tempfile.TemporaryDirectory() as folder:
        print("first process:", flush=True)
        print(f"  ended with {subprocess.run([sys.executable, __file__, folder]).returncode}\nsecond process:")
        agent(folder, dies=False)
        keys = Path(folder, "service").read_text().split()
        print(f"the service got {len(keys)} requests for {len(set(keys))} build")
