"""A Markdown document: headings are ours alone, tools as short as is wanted, secrets hidden."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from takeback import Session, Store, Task
from takeback.exporters import markdown

pytestmark = pytest.mark.feature("F9")


@pytest.fixture
def work(store: Store) -> Session:
    session = store.create_session(title="Paint the boat")
    session.user("# forged\n\n```\n## forged too\n\n<script>alert(1)</script>")
    session.set_tasks([Task("# forged", "completed")])
    session.set_plan("Forged\n===\n# forged")
    session.append({"role": "assistant", "content": "Looking.", "tool_calls": [{"id": "a", "name": "bash"}]})
    session.tool_result("a", "x" * 9000)
    with session.tool("edit", {"path": "hull.py"}) as running:
        running.result("ok")
    return session


def document(session: Session, **how: object) -> str:
    return "".join(markdown.pieces(session, **how))  # type: ignore[arg-type]


def test_headings_are_ours_alone(work: Session) -> None:
    tokens = MarkdownIt("commonmark").parse(document(work))
    headings = [tokens[at + 1].content for at, each in enumerate(tokens) if each.type == "heading_open"]
    assert headings[:4] == ["Paint the boat", "Plan", "Tasks", "Conversation"]
    assert not [each for each in headings if "orged" in each]
    assert not [each for each in tokens if each.type.startswith("html")]


def test_it_is_the_walkthrough_when_nothing_is_hidden(work: Session) -> None:
    assert document(work, clean=str) == work.render_walkthrough()


def test_tools_are_short_full_or_left_out(work: Session) -> None:
    assert "... and 5,000 more characters" in document(work)
    assert "x" * 9000 in document(work, tools="full")
    none = document(work, tools="none")
    assert "xxx" not in none
    assert "bash" not in none
    assert "Looking." in none
    assert 'Calls edit:\n\n```\n{"path":"hull.py"}\n```' in document(work)


def test_secrets_are_hidden_unless_they_are_wanted(store: Store) -> None:
    secret = "ghp_" + "a1B2" * 9
    session = store.create_session(title=f"with {secret}")
    session.user(f"my token is {secret}")
    session.set_tasks([Task(f"use {secret}")])
    session.note(secret)
    assert secret[4:] not in document(session)
    assert "ghp_[GitHub token hidden]" in document(session)
    assert document(session, clean=str).count(secret[4:]) >= 2


def test_a_document_up_to_a_point(work: Session) -> None:
    assert "Looking." not in document(work, at=1)
