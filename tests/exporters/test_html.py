"""One HTML file: complete in itself, nothing that was said becomes part of the page, links lead to places in it."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from takeback import Session, Store, Task
from takeback.exporters import html
from takeback.testing.elsewhere import session_elsewhere

pytestmark = pytest.mark.feature("F9")

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAYAAACNMs+9AAAAFUlEQVR42mNk+M9Qz0AEYBxVSF+FABJADveWkH6oAAAAAElFTkSuQmCC"
)
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</style><script>alert(1)</script>",
    "</title></head><body onload=alert(1)>",
    "</details></section></main><iframe src='https://example.org'></iframe>",
    "[click](javascript:alert(1)) <a href='javascript:alert(1)'>x</a>",
    "' onmouseover='alert(1)",
    '" style="background:url(https://example.org/x)"',
    "<!-- --><base href='https://example.org/'>",
    "```\n</code></pre><script>alert(1)</script>\n```\n`<b>bold</b>`",
    "&lt;script&gt; &#x3c;script&#x3e; <svg/onload=alert(1)>",
    "\x00\x07\x1b[31mred\x9b31m \u202egnp.exe\u2066 \ufeff\u200b\ud800",
    "<meta http-equiv=refresh content='0;url=https://example.org'>",
]


class Page(HTMLParser):
    """Reads a page as a browser's parser would: elements with their attributes, and the text between them."""

    VOID = ("meta", "img")

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, "every element is closed, in order"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data

    def all(self, name: str) -> list[str]:
        """Return the values of an attribute."""
        return [attributes[name] or "" for _, attributes in self.elements if name in attributes]


TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "footer", "nav", "section", "article"),
    *("h1", "h2", "h3", "p", "div", "span", "b", "time", "ul", "ol", "li", "a", "details", "summary", "pre", "code"),
    "img",
}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "open", "value", "alt", "src"}


def page_of(session: Session, **how: Any) -> tuple[str, Page]:
    text = "".join(html.pieces(session, **how))
    return text, Page(text)


def assert_alone(page: Page) -> None:
    """Nothing is fetched from elsewhere, nothing runs, and all that is there is ours."""
    assert {tag for tag, _ in page.elements} <= TAGS
    assert {name for _, attributes in page.elements for name in attributes} <= ATTRIBUTES
    assert all(each.startswith("#") for each in page.all("href"))
    assert {each[1:] for each in page.all("href")} <= {*page.all("id")}, "every link leads to a place of the page"
    assert all(re.match(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$", each) for each in page.all("src"))
    policies = [each for tag, each in page.elements if tag == "meta" and "http-equiv" in each]
    assert [each["http-equiv"] for each in policies] == ["Content-Security-Policy"]
    assert "default-src 'none'" in (policies[0]["content"] or "")
    assert "script-src" not in (policies[0]["content"] or "")
    assert "unsafe" not in (policies[0]["content"] or "")


@pytest.fixture
def work(store: Store) -> Session:
    session = session_elsewhere(store, title="Paint the boat", model="m-1", workspace="/harbour/boat")
    session.user("paint it `green`\n\n```python\nx = 1 < 2\n```\nplease")
    session.set_plan("1. sand\n2. paint")
    session.set_tasks([Task("sand", "completed"), Task("paint", "in_progress"), Task("sail", "failed")])
    session.append({"role": "assistant", "content": "Looking.", "tool_calls": [{"id": "a", "name": "bash"}]})
    session.tool_result("a", "x" * 9000)
    with session.tool("edit", {"path": "hull.py"}) as running:
        running.error("no such file")
    session.checkpoint("before paint", description="all sanded")
    session.record_file("hull.py", "written")
    session.note("green is out")
    session.user("go on", attachments=[PNG])
    session.fork(2, name="blue instead")
    store.create_session(kind="subagent", parent=session, label="painter").user("paint")
    return session


def test_a_page_shows_all_of_a_session(work: Session) -> None:
    text, page = page_of(work)
    assert_alone(page)
    for part in (
        *("Paint the boat", work.id, "/harbour/boat", "completed sand", "in progress paint", "failed sail"),
        *("1. sand\n2. paint", "written hull.py", "before paint (all sanded)", "green is out", "blue instead"),
        *("painter, active", "Turn 1", "Turn 2", "x = 1 < 2", "bash ok", "edit failed", "no such file", "hull.py"),
        "... and 5,000 more characters",
    ):
        assert part in page.text, part
    assert "<code>green</code>" in text
    assert text.count("<details>") == 2, "a call and what it gave are one"
    assert ("a", {"href": "#turn-2"}) in page.elements


def test_no_style_but_its_own_is_allowed(work: Session) -> None:
    text, _ = page_of(work)
    style = re.search("<style>(.*)</style>", text, re.S)
    assert style is not None
    wanted = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{wanted}'" in text
    assert "prefers-color-scheme:dark" in style[1]
    assert "url(" not in style[1]
    assert "@import" not in style[1]


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_nothing_that_was_said_becomes_part_of_the_page(store: Store, hostile: str) -> None:
    name = hostile.encode("utf-8", "replace").decode().replace("\0", "").strip()[:200]
    session = session_elsewhere(
        store, name, agent="a", title=name, model=hostile, prompt=hostile, workspace="/w/" + name
    )
    session.user(hostile, attachments=[PNG])
    session.append(
        {"role": "assistant", "content": hostile, "tool_calls": [{"id": "a", "name": name, "arguments": hostile}]}
    )
    session.tool_result("a", hostile)
    session.append({"role": name, "content": hostile, "model": hostile})
    session.set_plan(hostile)
    session.set_walkthrough(hostile)
    session.set_tasks([Task(hostile)])
    session.note(hostile)
    session.record_file("f/" + name, name)
    session.checkpoint(name, description=name)
    session.fork(1, name=name)
    store.create_session(kind="subagent", parent=session, label=name)
    text, page = page_of(session, tools="full", clean=str)
    assert_alone(page)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]", text)
    text.encode()


def test_tools_are_short_full_or_left_out(work: Session) -> None:
    assert "x" * 9000 in page_of(work, tools="full")[1].text
    text, page = page_of(work, tools="none")
    assert "xxxx" not in page.text
    assert "bash" not in page.text
    assert "<details>" not in text


def test_secrets_are_hidden_unless_they_are_wanted(store: Store) -> None:
    secret = "sk-ant-api03-" + "a1B2" * 12
    session = store.create_session(title=f"with {secret}"[:70])
    session.user(f"my key is {secret}")
    session.append(
        {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "name": "b", "arguments": {"k": secret}}]}
    )
    session.tool_result("a", {"out": secret})
    session.set_plan(secret)
    session.note(secret)
    assert secret[12:] not in page_of(session)[0]
    assert page_of(session, clean=str)[0].count(secret) >= 4


def test_a_picture_is_shown_if_its_bytes_are_one(store: Store) -> None:
    session = store.create_session()
    session.user("see", attachments=[{"data": PNG, "type": "image", "name": "a.png", "mime_type": "image/png"}])
    evil = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"
    session.user("see", attachments=[{"data": evil, "type": "image", "name": "b.png", "mime_type": "image/png"}])
    _, page = page_of(session)
    assert_alone(page)
    assert len(page.all("src")) == 1
    assert "attached: b.png" in page.text


def test_a_page_up_to_a_point_and_of_another_branch(work: Session) -> None:
    _, page = page_of(work, at=1)
    assert "Turn 1" in page.text
    assert "Looking." not in page.text
    branch = next(each for each in work.branches() if each.name == "blue instead")
    assert "go on" not in page_of(work, at=branch)[1].text


def test_an_empty_session_has_one_too(store: Store) -> None:
    _, page = page_of(store.create_session())
    assert_alone(page)
    assert "No messages yet." in page.text
