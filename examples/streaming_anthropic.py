"""My agent streams its answers and runs tools; killed at any moment and started again, it must go on where it stopped.

With the Messages API of Anthropic: set ANTHROPIC_API_KEY, and kill it whenever you like.

    python streaming_anthropic.py Note that the milk is sour, unless I did already
"""

import sys
from pathlib import Path

import anthropic

import takeback

MODEL = "claude-sonnet-5-5"
NOTES = Path("notes.txt")
ADD = {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]}
TOOLS = [
    {"name": "read_notes", "description": "Read all notes.", "input_schema": {"type": "object"}},
    {"name": "add_note", "description": "Add a line to the notes.", "input_schema": ADD},
]


def read_notes() -> str:
    return NOTES.read_text() if NOTES.exists() else "There are no notes yet."


def add_note(line: str) -> str:
    with NOTES.open("a") as notes:
        notes.write(f"{line}\n")
    return "added"


RUN = {"read_notes": read_notes, "add_note": add_note}
MAY_REPEAT = {"read_notes"}


def run_tools(s: takeback.Session) -> None:
    for call in s.pending_calls():  # of the last answer, or left open by a run that died
        started = call.status == "unknown"  # it may or may not have taken effect
        if started and (call.name not in MAY_REPEAT or call.attempts >= 3):
            s.resolve_call(call, "interrupted: check whether it took effect before you repeat it", success=False)
            continue
        with s.retry(call) if started else s.tool(call) as running:
            try:
                running.result(RUN[call.name](**call.arguments))
            except Exception as error:  # the model reads it and goes on
                running.error(error)


def answer(s: takeback.Session, client: anthropic.Anthropic) -> None:
    request = s.context("anthropic", model=MODEL).request(tools=TOOLS, max_tokens=4096)
    with s.stream(model=MODEL) as said, client.messages.stream(**request) as events:
        for event in events:
            if event.type == "text":
                said.write(event.text)
                print(event.text, end="", flush=True)
            elif event.type == "thinking":
                said.write(event.thinking, "thinking")
            elif event.type == "input_json":
                said.write(event.partial_json, "tool_input")
        said.finish(events.get_final_message())
    print()


with anthropic.Anthropic() as client, takeback.open() as store, store.session("notes", workspace=".") as s:
    if s.stopped_at:
        print(f"(resuming turn {s.stopped_at}, which was interrupted)")
    run_tools(s)
    if not s.needs_reply():  # else finish first what was asked before
        s.user(" ".join(sys.argv[1:]) or input("> "))
    while s.needs_reply():
        answer(s, client)
        run_tools(s)
    print(s.stats())
