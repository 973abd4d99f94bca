"""My agent streams its answers and runs tools; killed at any moment and started again, it must go on where it stopped.

With the Gemini API of Google: set GEMINI_API_KEY, and kill it whenever you like.

    python streaming_gemini.py Note that the milk is sour, unless I did already
"""

import json
import sys
from pathlib import Path

from google import genai

import takeback

MODEL = "gemini-3.8-flash"
NOTES = Path("notes.txt")
ADD = {"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]}
TOOLS = [
    {
        "function_declarations": [
            {"name": "read_notes", "description": "Read all notes."},
            {"name": "add_note", "description": "Add a line to the notes.", "parameters_json_schema": ADD},
        ]
    }
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


def answer(s: takeback.Session, client: genai.Client) -> None:
    request = s.context("gemini", model=MODEL).request(tools=TOOLS)
    chunks = []
    with s.stream(model=MODEL) as said:
        for chunk in client.models.generate_content_stream(**request):
            chunks.append(chunk)
            for part in chunk.parts or ():
                if part.text:
                    said.write(part.text, "thinking" if part.thought else "text")
                    print("" if part.thought else part.text, end="", flush=True)
                if part.function_call:
                    said.write(json.dumps(part.function_call.args), "tool_input")
        said.finish(chunks)  # all of them: each has only its own part of the answer
    print()


with genai.Client() as client, takeback.open() as store, store.session("notes", workspace=".") as s:
    if s.stopped_at:
        print(f"(resuming turn {s.stopped_at}, which was interrupted)")
    run_tools(s)
    if not s.needs_reply():  # else finish first what was asked before
        s.user(" ".join(sys.argv[1:]) or input("> "))
    while s.needs_reply():
        answer(s, client)
        run_tools(s)
    print(s.stats())
