"""My agent meets the same bug a second time and starts from nothing: it should find what it did, and take it back.

The model gets the store as tools. In its second session it searches the first one, sees who broke the file, previews
a rewind of that file, and applies it: it could not without the preview.
"""

import json
import tempfile
from pathlib import Path

from _scripted import Reply, anthropic_client

import takeback

MODEL = "claude-sonnet-5-5"


BACK = {"point": "first:1^", "paths": ["pool.py"]}
SCRIPT: list[Reply] = [
    ["Have I seen this before?", ("search_history", {"query": "takes its lock"})],
    ["I have. Who changed the file?", ("file_history", {"path": "pool.py"})],
    ["It was me. What would taking it back do?", ("preview_rewind", BACK)],
    ["Only pool.py.", ("apply_rewind", BACK)],
    ["pool.py is as it was before I broke it."],
]


def agent(store: takeback.Store, place: Path) -> None:
    tools = takeback.tools.bind(store, allow=("rewind",), workspace=place)
    with anthropic_client(SCRIPT) as client, store.session("second", workspace=place) as s:
        s.user("The pool has no lock again. What happened?")
        while s.needs_reply():
            request = s.context("anthropic", model=MODEL).request(tools=tools.anthropic())
            reply = client.messages.create(**request, max_tokens=1024)
            print(s.append(reply)[0].text)
            for call in s.pending_calls():
                with s.tool(call) as running:
                    answer = tools.call(call.name, call.arguments)
                    if answer.is_error:
                        running.error(answer.text)
                    else:
                        running.result(answer.text)
                if call.name == "preview_rewind" and answer.data:  # a real model reads this in the answer
                    SCRIPT[3] = ["Only pool.py.", ("apply_rewind", {**BACK, "digest": answer.data["digest"]})]
                print(f"  {call.name}: {said(answer)}")


def said(answer: takeback.tools.ToolReply) -> str:
    """Show the part of an answer that matters here."""
    if answer.data is None:
        return answer.text
    for field in ("hits", "changes", "files"):
        if field in answer.data:
            first = answer.data[field][0]
            shown = {name: first[name] for name in ("snippet", "path", "action", "by") if name in first}
            return json.dumps(shown, ensure_ascii=False)
    return f"{answer.data['files_changed']} file changed"


with tempfile.TemporaryDirectory() as folder, takeback.open(f"{folder}/work.db") as store:
    place = Path(folder, "pool")
    place.mkdir()
    (place / "pool.py").write_text("with lock: free.pop()\n")
    with store.session("first", workspace=place) as s:
        s.user("Make the pool faster, it waits for its lock")
        with s.tool("bash", {"command": "sed -i s/lock/nothing/ pool.py"}):
            (place / "pool.py").write_text("with nothing: free.pop()\n")
        s.assistant("The pool no longer takes its lock.")
    agent(store, place)
    print((place / "pool.py").read_text(), end="")
