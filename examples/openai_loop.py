"""My support agent is killed in the middle of a refund: restarted, it must finish, and nobody is paid twice.

A loop for OpenAI's chat completions: several calls in one answer, one tool that fails, and a process that is killed
inside a tool. The store knows which call was running; sent again with the same key, it is the same refund.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from _scripted import openai_client

import takeback

MODEL = "gpt-6.1-terra"
SCRIPT = [
    [("find_order", {"number": 7}), ("find_customer", {"name": "Anna"})],
    ["The order is hers.", ("refund", {"order": 7, "cents": 1900}), ("send_mail", {"to": "Anna"})],
    ["She has no address, so I'll leave a notice.", ("leave_notice", {"text": "We refunded 19.00."})],
    ["Refunded 19.00 to Anna and left a notice in her account."],
]
NAMES = ("find_order", "find_customer", "refund", "send_mail", "leave_notice")
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in NAMES]


def run(call: takeback.ToolCall, bank: Path, dies: bool) -> dict:
    if call.name == "send_mail":
        raise LookupError("Anna has no mail address")
    if call.name == "refund":
        with bank.open("a") as payments:  # a real service takes the key in a header
            payments.write(f"{call.idempotency_key} {call.arguments['cents']}\n")
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
    return {"ok": True, **call.arguments}


def agent(folder: str, dies: bool) -> None:
    with (
        openai_client(SCRIPT) as client,
        takeback.open(f"{folder}/support.db") as store,
        store.session("ticket-4711", agent="support") as s,
    ):
        if s.message_count == 0:
            s.user("I want my money back for order 7. Anna")
        while s.pending_calls() or s.needs_reply():
            for call in s.pending_calls():
                print(f"  {call.name} {call.arguments} was {call.status}", flush=True)
                again = call.status == "unknown"  # it was started, but its outcome is not known
                with s.retry(call) if again else s.tool(call) as running:
                    try:
                        running.result(run(call, Path(folder, "bank"), dies))
                    except LookupError as error:
                        running.error(error)  # the model reads it; the loop continues
            context = s.context("openai-chat", model=MODEL)
            s.append(client.chat.completions.create(**context.request(), tools=TOOLS))
        print(" ", s.messages(limit=1)[0].text)


if len(sys.argv) > 1:
    agent(sys.argv[1], dies=True)
else:
    with tempfile.TemporaryDirectory() as folder:
        print("first process:", flush=True)
        child = subprocess.run([sys.executable, __file__, folder])
        print(f"  ended with {child.returncode}\nsecond process:")
        agent(folder, dies=False)
        requests = Path(folder, "bank").read_text().splitlines()
        print(f"the bank got {len(requests)} requests for {len(set(requests))} refund")
