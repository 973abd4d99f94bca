"""The walkthrough of a session: complete, dated, and what was said in it formats nothing."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import takeback
from takeback import Store, Task
from takeback.testing.clock import ManualClock
from takeback.testing.elsewhere import session_elsewhere

from .test_summary import HOSTILE

pytestmark = pytest.mark.feature("A10")


@pytest.mark.defect("S0-19")
def test_a_walkthrough_tells_all(tmp_path: Path) -> None:
    clock = ManualClock(int(datetime(2026, 3, 1, 9, 30, tzinfo=UTC).timestamp() * 1000))
    with takeback.open(":memory:", clock=clock) as store:
        session = session_elsewhere(
            store, title="Paint the boat", model="m-1", provider="anthropic", workspace="/harbour/boat"
        )
        session.user("paint it green")
        session.set_plan("1. sand\n2. paint")
        session.set_tasks([Task("sand *gently*", "completed"), Task("paint", "in_progress"), Task("sail", "failed")])
        session.checkpoint("before paint", description="all sanded")
        clock.ms += 86_400_000
        call = {"id": "a", "name": "bash", "arguments": {"cmd": "ls"}}
        session.append({"role": "assistant", "content": "looking", "tool_calls": [call], "model": "m-2"})
        session.append({"role": "tool", "tool_call_id": "a", "content": "x" * 5000})
        session.record_file("hull.py", "written", call="a")
        session.record_file("old.py", "deleted")
        session.note("green is out", task=1)
        session.set_walkthrough("I sanded, then I painted.")
        found = session.render_walkthrough()
        assert session.get_walkthrough() == "I sanded, then I painted."
    assert found.startswith("# Paint the boat\n\n- Session: " + session.id)
    for part in (
        "- Created: 2026-03-01 09:30:00 UTC",
        "- Model: m\\-1 (anthropic)",
        "- Workspace: /harbour/boat",
        "- Statistics: 3 messages, 1 turn, 1 tool call,",
        "## Plan\n\n```\n1. sand\n2. paint\n```",
        "1. [x] sand \\*gently\\* (completed)\n2. [ ] paint (in progress)\n3. [ ] sail (failed)",
        "## Files (1 written, 1 deleted)\n\n- written: hull.py\n- deleted: old.py",
        "## Checkpoints\n\n- 2026-03-01 09:30:00 UTC, turn 1, entry 3, manual: before paint: all sanded",
        "## Notes\n\n- 2026-03-02 09:30:00 UTC: green is out",
        "as the agent wrote it\n\n```\nI sanded, then I painted.\n```",
        "### 1. user, 2026-03-01 09:30:00 UTC\n\n```\npaint it green\n```",
        'assistant (m\\-2), 2026-03-02 09:30:00 UTC\n\n```\nlooking\n```\n\nCalls bash:\n\n```\n{"cmd":"ls"}\n```',
        "Result of bash:\n\n```\nxxxx",
        "... and 1,000 more characters\n```",
    ):
        assert part in found, part


def test_an_empty_session_has_one_too(store: Store) -> None:
    assert "Nothing was said yet." in store.create_session().render_walkthrough()


@pytest.mark.defect("S0-20")
@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_what_was_said_formats_nothing(store: Store, hostile: str) -> None:
    """Rendered by a real Markdown reader, headings, items and tags are ours alone."""
    odd = f"{hostile}\n````\n# forged\n~~~\n<b>bold</b>\n- item\n[a]: http://x\n|a|b|\n|-|-|\n".encode(
        "utf-8", "replace"
    )
    text = odd.decode().replace("\0", " ")
    session = session_elsewhere(
        store, title=text[:900], workspace="/w/" + text[:900], model=text.strip()[:90], provider="p`<i>"
    )
    session.set_plan(text)
    session.set_tasks([Task(text)])
    session.record_file("f/" + text, "<i>`")
    session.note(text)
    session.checkpoint(text.strip()[:100], description=text)
    call = {"id": "a", "name": text.strip()[:60], "arguments": {"x": text}}
    session.append({"role": "assistant", "content": text, "tool_calls": [call]})
    session.append({"role": "tool", "tool_call_id": "a", "content": text})
    session.append({"role": text.strip()[:60], "content": text})
    page = MarkdownIt("commonmark").enable("table").render(session.render_walkthrough())
    headings = re.findall(r"<h\d>(.*?)</h\d>", page)
    assert [each for each in headings if not re.match(r"\d+\. ", each)][1:] == [
        "Plan", "Tasks", headings[3], "Checkpoints", "Notes", "Conversation"
    ]  # fmt: skip
    assert headings[3].startswith("Files (1 ")
    assert not re.search(r"<(b|i|script|a|table|em|strong)[ >]", page)
    assert page.count("<li>") == 6 + 1 + 1 + 1 + 1


def test_what_a_user_says_beside_a_result_is_the_users_alone(store: Store) -> None:
    """In summary and walkthrough: what a tool read somewhere must not be the user's word."""
    session = store.create_session()
    session.user("go")
    session.append({"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "1. x", "input": {}}]})
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "FROM THE WEB"}
    session.append({"role": "user", "content": [result, {"type": "text", "text": "STOP"}]})
    session.append({"role": "assistant", "content": [{"type": "tool_use", "id": "t2", "name": "y", "input": {}}]})
    session.append({"role": "user", "content": [{**result, "tool_use_id": "t2"}]})
    assert "user: STOP" in session.summary()
    assert "WEB" not in session.summary()
    found = session.render_walkthrough()
    assert "\n```\nSTOP\n```\n" in found
    assert "Result of a tool:\n\n```\nFROM THE WEB\n```" in found


def test_links_and_invisible_letters_do_nothing(store: Store) -> None:
    session = store.create_session(title="see https://evil.example www.evil.com a@b.co $x$")
    session.user("abc\u202edef\u200bghi\U000e0041\tend")
    found = session.render_walkthrough()
    assert found.startswith("# see https\\://evil.example www\\.evil.com a\\@b.co \\$x\\$\n")
    assert "abc\\u202edef\\u200bghi\\ue0041\tend" in found
