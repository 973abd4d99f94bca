"""My agent dies between two tool calls; restarted, it must finish them and continue, not start over.

A typical loop for Anthropic's Messages API: several turns, two calls in one answer, a tool that fails. Everything it
knows is in the store, so it needs no code for resuming.
"""

import tempfile

from _scripted import anthropic_client

import takeback

MODEL = "claude-sonnet-5-5"
FILES = {"pool.py": "def take(): return free.pop()", "retry.py": "def retry(): ..."}
SCRIPT = [
    ["I'll read both files.", ("read_file", {"path": "pool.py"}), ("read_file", {"path": "retry.py"})],
    ["take() needs a lock.", ("write_file", {"path": "pool.py", "text": "with lock: ..."}), ("deploy", {})],
    ["I'm not allowed to deploy. I'll just run the tests.", ("run_tests", {})],
    ["Fixed: take() holds a lock, 20 of 20 runs pass. Please deploy it yourself."],
]
NAMES = ("read_file", "write_file", "deploy", "run_tests")
TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in NAMES]


def run(name: str, path: str = "", text: str = "") -> str:
    if name == "deploy":
        raise PermissionError("only people may deploy")
    if name == "write_file":
        FILES[path] = text
    return FILES[path] if path else "20 of 20 runs passed"


def agent(path: str, dies_before: str | None = None) -> None:
    with anthropic_client(SCRIPT) as client, takeback.open(path) as store, store.session("fix-retry") as s:
        if s.message_count == 0:
            s.user("Fix the flaky test")
        while True:
            for call in s.pending_calls():  # from the answer just stored, or from before the crash
                if call.name == dies_before:
                    raise SystemExit(f"killed before {call.name}")
                try:
                    with s.tool(call) as running:
                        running.result(run(call.name, **call.arguments))
                except Exception as error:  # stored as the call's result, so the model will read it
                    print(f"  {call.name} failed: {error}")
            if not s.needs_reply():
                return
            context = s.context("anthropic", model=MODEL)
            reply = client.messages.create(**context.request(), tools=TOOLS, max_tokens=1024)
            print(f"  {s.append(reply)[0].text}")


with tempfile.TemporaryDirectory() as folder:
    print("first process:")
    try:
        agent(f"{folder}/work.db", dies_before="deploy")
    except SystemExit as error:
        print(f"  {error}")
    print("second process:")
    agent(f"{folder}/work.db")
    with takeback.open(f"{folder}/work.db") as store:
        s = store.get_session("fix-retry")
        print(*(f"{call.name:10} {call.status:9} {call.result}" for call in s.tool_calls()), sep="\n")
        print(s.stats())
