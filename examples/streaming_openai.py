"""My agent streams its answers and runs tools; killed at any moment and started again, it must go on where it stopped.

With the Responses API of OpenAI: set OPENAI_API_KEY, and kill it whenever you like.

    python streaming_openai.py Note that the milk is sour, unless I did already
"""

import sys
from pathlib import Path

import openai

import takeback

MODEL = "gpt-6.1-terra"
NOTES = Path("notes.txt")
NOTHING = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
A_LINE = {**NOTHING, "properties": {"line": {"type": "string"}}, "required": ["line"]}
TOOLS = [
    {"type": "function", "name": name, "description": what, "parameters": takes, "strict": True}
    for name, what, takes in (
        ("read_notes", "Read all notes.", NOTHING),
        ("add_note", "Add a line to the notes.", A_LINE),
    )
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


def answer(s: takeback.Session, client: openai.OpenAI) -> None:
    context = s.context("openai-responses", model=MODEL)
    request = context.request(tools=TOOLS, store=False, include=["reasoning.encrypted_content"])
    with s.stream(model=MODEL) as said, client.responses.create(**request, stream=True) as events:
        for event in events:
            if event.type == "response.output_text.delta":
                said.write(event.delta)
                print(event.delta, end="", flush=True)
            elif event.type == "response.reasoning_summary_text.delta":
                said.write(event.delta, "thinking")
            elif event.type == "response.function_call_arguments.delta":
                said.write(event.delta, "tool_input")
            elif event.type in ("response.completed", "response.incomplete"):
                said.finish(event.response)
        if said.message is None:  # the answer failed or was cut off; what arrived is kept as interrupted
            raise ConnectionError("the stream ended before the answer was complete")
    print()


with openai.OpenAI() as client, takeback.open() as store, store.session("notes", workspace=".") as s:
    if s.stopped_at:
        print(f"(resuming turn {s.stopped_at}, which was interrupted)")
    run_tools(s)
    if not s.needs_reply():  # else finish first what was asked before
        s.user(" ".join(sys.argv[1:]) or input("> "))
    while s.needs_reply():
        answer(s, client)
        run_tools(s)
    print(s.stats())
