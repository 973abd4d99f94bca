"""A few conversations and what exactly is sent for them, byte for byte: ``golden/<name>.<provider>.json``.

A change of these bytes costs every user the provider's cache, so it must be seen. Where it is meant, write them anew
and read the difference: ``TAKEBACK_GOLDEN=write pytest tests/context/test_golden.py``; in CI that is refused.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from takeback import Session

from ._checks import ALL, context_of, dumped
from ._teller import PDF, PNG, SIGNED

pytestmark = pytest.mark.feature("F3")
FOLDER = Path(__file__).parent / "golden"


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def call(id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "arguments": arguments}


def result(id: str, content: Any, *, success: bool = True) -> dict[str, Any]:
    return {"role": "tool", "tool_results": [{"call_id": id, "content": content, "success": success}]}


CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "small talk": [said("system", "Be brief."), said("user", "Hello."), said("assistant", "Hello to you.")],
    "parallel calls": [
        said("user", "How deep are the two wells?"),
        said("assistant", "", tool_calls=[call("c1", "measure", well="old"), call("c2", "measure", well="new")]),
        result("c2", {"metres": 12.5}),
        result("c1", "the rope broke", success=False),
        said("assistant", "The new one is 12.5 m deep; at the old one the rope broke."),
    ],
    "crash in a call": [
        said("user", "Sweep the yard."),
        said("assistant", "I begin.", tool_calls=[call("c1", "sweep", where="yard")]),
    ],
    "crash in an answer": [said("user", "Tell me a tale."), said("assistant", "There was a", status="interrupted")],
    "user in between": [
        said("user", "Count the sheep."),
        said("assistant", "", tool_calls=[call("c1", "count")]),
        said("user", "And the goats!"),
        result("c1", "41"),
        said("assistant", "41 sheep; now the goats."),
    ],
    "thinking of anthropic": [
        said("user", [{"type": "text", "text": "Is it ripe?", "cache_control": {"type": "ephemeral"}}]),
        said(
            "assistant",
            [
                {"type": "thinking", "thinking": "It looks red.", "signature": SIGNED},
                {"type": "text", "text": "I taste it."},
                {"type": "tool_use", "id": "toolu_1", "name": "taste", "input": {"what": "plum"}},
            ],
        ),
        said("user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sweet"}]),
    ],
    "reasoning of openai": [
        said("user", "Is it ripe?"),
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SIGNED},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "taste",
            "arguments": '{"what": "plum"}',
            "status": "completed",
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "sweet"},
    ],
    "pictures and papers": [
        said(
            "user",
            "What is on these?",
            attachments=[
                {"name": "map.png", "data": base64.b64decode(PNG)},
                {"name": "note.txt", "data": b"Bread, salt."},
            ],
        ),
        {
            "role": "user",
            "parts": [
                {"inlineData": {"mimeType": "application/pdf", "data": PDF}},
                {"inlineData": {"mimeType": "video/mp4", "data": PDF}},
            ],
        },
        said("assistant", "A list of things to buy."),
    ],
}


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("provider", ALL)
def test_the_bytes_stay_what_they_are(session: Session, name: str, provider: str) -> None:
    for message in CONVERSATIONS[name]:
        session.append(message)
    context = context_of(session, provider)
    shown = {"repairs": context.repairs, "request": context.request()}
    found = json.dumps(json.loads(dumped(shown)), ensure_ascii=False, indent=1).encode() + b"\n"
    path = FOLDER / f"{name.replace(' ', '_')}.{provider}.json"
    if os.environ.get("TAKEBACK_GOLDEN") == "write":
        if os.environ.get("CI"):
            pytest.fail("golden files are not written in CI")
        FOLDER.mkdir(exist_ok=True)
        path.write_bytes(found)
    assert path.read_bytes() == found


def test_every_golden_file_belongs_to_a_conversation() -> None:
    expected = {f"{name.replace(' ', '_')}.{provider}.json" for name in CONVERSATIONS for provider in ALL}
    assert {path.name for path in FOLDER.iterdir()} == expected
