"""A coding agent that follows a script: no model, no key, no network. Everything it knows is in the store.

``agent PROMPT`` starts a turn, ``agent`` continues one that was interrupted, ``agent --request`` shows the next request
to the provider and checks it against the rules of five providers. ``takeback demo`` copies this file; read it, run it,
change it: the loop is that of a real agent, with ``REPLIES`` in place of the model.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from typing import Any, NamedTuple

import takeback
from takeback.testing import validators

TIDY = """rm test_pool.py; mv notes.md old.md; chmod 600 run.sh
: > api.py; echo 'retry(0)' >> pool.py"""


class Reply(NamedTuple):
    """What the model says, and the command it asks to run."""

    text: str
    command: str | None = None


REPLIES = [
    Reply("I'll run the tests first.", "sh run.sh"),
    Reply("It never retries.", "echo 'retry(3)' > pool.py"),
    Reply("Fixed: it retries three times."),
    Reply("Tidying up.", TIDY),
    Reply("Cleaned up: everything is in its place now."),
]
OVER = Reply("My script ends here.")

# What the model says while the tests run. The stream stalls in the middle: time enough for a kill -9.
MEANWHILE = ("While they run: ", "the pool ", "gives up ", "after the fi")
QUIET_SECONDS, REST = 30.0, "rst try."


def main(arguments: list[str]) -> int:
    """Run the agent in the current directory."""
    wanted = os.environ.get("TAKEBACK_SESSION")
    with takeback.open() as store:
        s = store.get_session(wanted) if wanted else store.session("fix-retry", agent="coder", workspace=".")
        with s:
            if arguments == ["--request"]:
                return show_request(s)
            if arguments:
                s.user(" ".join(arguments))
                tell("user", " ".join(arguments))
            work(s)
    return 0


def work(s: takeback.Session) -> None:
    """Run open calls and ask the model, until it asks for nothing more."""
    while True:
        for call in s.pending_calls():
            use(s, call)
        reply = next_reply(s)
        if reply.command is None:
            answer(s, reply.text)
            return
        call_id = f"toolu_{s.message_count}"
        ask = {"type": "tool_use", "id": call_id, "name": "bash", "input": {"command": reply.command}}
        content = [{"type": "text", "text": reply.text}, ask]
        s.append({"role": "assistant", "model": "scripted", "content": content})
        tell("assistant", reply.text)


def next_reply(s: takeback.Session) -> Reply:
    """Return the next reply of the script; an interrupted answer does not count."""
    said = sum(each.role == "assistant" and each.status == "complete" for each in s.messages())
    return REPLIES[said] if said < len(REPLIES) else OVER


def use(s: takeback.Session, call: takeback.ToolCall) -> None:
    """Run a command as a tool: Takeback learns when it starts and how it ends, never which files it touches."""
    again = call.status == "unknown"  # the process that started it died
    command = call.arguments["command"]
    tell("bash", command + (" # retry" if again else ""))
    with s.retry(call) if again else s.tool(call) as running:
        child = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if command == REPLIES[0].command and not again:
            talk(s)
        said, _ = child.communicate()
        running.result(said)
    tell("", said.strip() or "(no output)")


def talk(s: takeback.Session) -> None:
    """Stream an answer while a tool runs; every piece is on disk before it is shown."""
    with s.stream(model="scripted") as stream:
        for number, piece in enumerate(MEANWHILE):
            stream.write(piece)
            stream.flush()
            tell("assistant", piece, end="") if number == 0 else print(piece, end="", flush=True)
        time.sleep(QUIET_SECONDS)
        stream.write(REST)
    print(REST, flush=True)


def answer(s: takeback.Session, text: str) -> None:
    """Stream the final answer of a turn, word by word."""
    with s.stream(model="scripted") as stream:
        for word in text.split(" "):
            stream.write(f"{word} " if not text.endswith(word) else word)
            time.sleep(0.2)
    tell("assistant", text)


def tell(who: str, text: str, *, end: str = "\n") -> None:
    """Print what happens."""
    print(f"{who:<11}" + text.replace("\n", "\n" + " " * 11), end=end, flush=True)


# ---------------------------------------------------------------------- the request


def show_request(s: takeback.Session) -> int:
    """Print the shortened request and the validators' verdict; return 1 if a provider would reject it."""
    for message in s.context("anthropic").messages:
        for number, block in enumerate(blocks(message["content"])):
            who = message["role"] if number == 0 else ""
            print(f"  {who:<10} {block['type']:<12} {shortened(block)}")
    refused = 0
    for provider in validators.PROVIDERS:
        problems = validators.problems(provider, s.context(provider).request(), sdk=False)
        refused += len(problems)
        for each in problems:
            print(f"{provider} would reject it: {each}")
    if not refused:
        print(f"valid for {', '.join(validators.PROVIDERS)}")
    return int(refused > 0)


def blocks(content: Any) -> list[dict[str, Any]]:
    """Return the blocks of a message."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def shortened(block: dict[str, Any]) -> str:
    """Shorten a block to one line."""
    said = block.get("text") or block.get("input") or block.get("content")
    text = " ".join((said if isinstance(said, str) else json.dumps(said)).split())
    return text if len(text) <= 53 else text[:50] + "..."


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))
    sys.exit(130)
