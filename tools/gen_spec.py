"""Fill the generated parts of docs/SPEC.md: schema, statements, test vectors. ``--check`` only compares.

The specification shows what really runs, because it is generated from it: the schema from the table descriptors, the
statements by running each operation once in a traced store.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from _fresh import every_file_is_fresh
from takeback.client.session import Session
from takeback.client.store import Store
from takeback.model.entry import GENESIS, Numbers
from takeback.ops import chain
from takeback.storage.memory import MemoryBackend
from takeback.storage.wrap import Traced
from takeback.tables import schema as tables

ROOT = Path(__file__).resolve().parent.parent
SPEC = ROOT / "docs" / "SPEC.md"
_CALL = {"id": "call-1", "name": "bash", "arguments": {"command": "ls"}}


class Ticking:
    """A clock whose readings always differ, so that every run changes the same columns."""

    def __init__(self) -> None:
        self._now = 1_700_000_000_000

    def now_ms(self) -> int:
        """Return the next millisecond."""
        self._now += 1
        return self._now


class Story:
    """A store in which each operation runs once, and the statements that it runs."""

    def __init__(self, folder: str) -> None:
        self._seen: list[str] = []
        backend = Traced(MemoryBackend(), lambda sql, _: self._seen.append(sql))
        self.store = Store(backend, clock=Ticking())
        self.store.create_agent("coder")
        self.workspace = Path(folder)
        self.workspace.joinpath("notes.txt").write_text("one\n")

    def session(self, **fields: object) -> Session:
        """Start a session with a few messages."""
        session: Session = self.store.create_session(agent="coder", **fields)  # type: ignore[arg-type]
        session.append({"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"})
        return session

    def statements(self, what: Callable[[], object]) -> list[str]:
        """Return the distinct statements that a call runs, in order."""
        self._seen.clear()
        what()
        return list(dict.fromkeys(self._seen))


def told(story: Story) -> dict[str, list[str]]:
    """Run every operation once; return its statements by title."""
    store, traced = story.store, story.statements
    session, other = story.session(name="work", tags=["red"], workspace=story.workspace), story.session()
    agent = store.get_agent("coder")
    found = {
        "create an agent, and a version of its state": traced(
            lambda: store.create_agent("scout").state.set("colour", "red")
        ),
        "create a session": traced(lambda: store.create_session(agent="coder", name="fresh", tags=["blue"])),
        "append": traced(lambda: session.user("more", idempotency_key="k1")),
        "append tool calls, start one, answer it": traced(lambda: _call(session)),
        "read the end of a session": traced(lambda: session.messages(limit=2)),
        "checkpoint": traced(lambda: session.checkpoint("before")),
        "rewind, and undo it": traced(lambda: (session.rewind(2, files=False), session.undo())),
        "rewind and go on: a branch is opened, and later reads cross it": traced(lambda: _fork(session)),
        "list sessions: all, by an agent, by a tag": traced(
            lambda: (store.list_sessions(), store.list_sessions(agent="coder"), store.list_sessions(tag="red"))
        ),
        "tag, delete and restore": traced(
            lambda: (session.tag("green"), store.delete_session(other), store.restore_session(other))
        ),
        "checkpoint of an agent, and restoring it": traced(
            lambda: store.restore_checkpoint(store.checkpoint_agent(agent.id, "all"))
        ),
        "run a session: take it, stream an answer, give it back": traced(lambda: _run(story)),
        "send to a session, and receive": traced(lambda: (other.send("news"), other.receive())),
        "scan a workspace, and take its files back": traced(lambda: _files(story)),
        "store and read an attachment": traced(lambda: _attach(session)),
        "follow the feed": traced(lambda: list(store.events())),
        "purge": traced(lambda: store.purge_session(other)),
    }
    store.close()
    return found


def _call(session: Session) -> None:
    session.append({"role": "assistant", "content": "", "tool_calls": [_CALL]})
    with session.tool("bash", {"command": "ls"}, id="call-1") as run:
        run.result("notes.txt")


def _fork(session: Session) -> None:
    session.rewind(3, files=False)
    session.user("another way")
    session.messages(limit=4)


def _run(story: Story) -> None:
    with story.store.session("live", agent="coder") as session:
        session.user("go")
        with session.stream() as stream:
            stream.write("well")
            stream.finish()


def _files(story: Story) -> None:
    with story.store.session("files", agent="coder", workspace=story.workspace) as session:
        session.user("change it")
        with session.tool("bash", {"command": "echo"}) as run:
            story.workspace.joinpath("notes.txt").write_text("two\n")
            run.result("done")
        session.rewind(1)


def _attach(session: Session) -> None:
    message = session.user("look", attachments=[{"data": b"x" * 70_000, "name": "x.bin"}])
    message.attachments[0].read()


def schema() -> str:
    """Return the schema as one code block."""
    return f"```sql\n{tables.sqlite().strip()}\n```"


def statements() -> str:
    """Return the statements of each operation."""
    with tempfile.TemporaryDirectory() as folder, every_file_is_fresh():
        found = told(Story(folder))
    parts = []
    for title, texts in found.items():
        sql = ";\n".join(re.sub(r"\s*\n\s*", "\n  ", text) for text in texts)
        parts.append(f"**{title[0].upper()}{title[1:]}**\n\n```sql\n{sql};\n```")
    return "\n\n".join(parts)


def vectors() -> str:
    """Compute the table of test vectors."""
    rows, previous, salt, now = [], GENESIS, bytes(range(16)), 1_700_000_000_000
    second = Numbers(2, 1, 1, 0, 7, 5, 3, 1, 2, 12_500_000, 1500, 0, 2, 2)
    given = [
        (b'{"role":"user","content":"hello"}', None, 1, (now, now), Numbers(messages=1, turns=1)),
        (b"{}", b'{"b": 1, "a": "\xc3\xa4"}', 2, (-1, now + 500), second),
    ]
    for body, raw, seq, times, numbers in given:
        content = chain.body_hash(salt, body, raw)
        head = chain.header("0123456789abcdefghjkmnpqr", seq, "message", *times, numbers)
        previous = chain.entry_hash(previous, head, content)
        shown = "none" if raw is None else f"`{raw.decode()}`"
        rows.append(f"| `{body.decode()}` | {shown} | `{content.hex()}` | `{previous.hex()}` |")
    return "\n".join(["| body | raw | body_hash | entry_hash |", "|---|---|---|---|", *rows])


def fill(text: str) -> str:
    """Replace the text after each marker."""
    for marker, content in (("vectors", vectors()), ("schema", schema()), ("statements", statements())):
        begin, end = f"<!-- {marker} -->", f"<!-- end of {marker} -->"
        block = f"{begin}\n\n{content}\n\n{end}"
        pattern = re.escape(begin) + r"(?:\n.*?" + re.escape(end) + ")?"
        text = re.sub(pattern, lambda _, block=block: block, text, count=1, flags=re.S)
    return text


def main() -> int:
    """Write the page, or compare it."""
    old = SPEC.read_text("utf-8")
    new = fill(old)
    if "--check" in sys.argv:
        if old != new:
            print("docs/SPEC.md is out of date: run python tools/gen_spec.py", file=sys.stderr)
        return int(old != new)
    SPEC.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
