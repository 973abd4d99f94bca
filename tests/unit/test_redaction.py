"""Redaction on disk: not a byte of what was erased is left in the files, and the store can be repaired and copied."""

from pathlib import Path

import pytest

import takeback
from takeback import Store

pytestmark = [pytest.mark.feature("F12", "F5")]

SECRET = "canary-4711-" + "0123456789abcdef" * 3
LARGE = SECRET * 8000  # stored in a blob


def fill(store: Store) -> list[str]:
    """Store the secret in every place that a message has, between others; return the ids of those that have it."""
    session = store.create_session("work")
    session.user(f"{SECRET} first", id="first", metadata={"why": SECRET})
    session.rename(None)
    session.user("second")
    session.append({"role": "user", "content": [{"type": "text", "text": SECRET}], "id": "verbatim"})
    session.user(LARGE, id="large", attachments=[SECRET.encode() + bytes(range(256))])
    session.assistant("answer", id="answer", idempotency_key="key")
    call = {"type": "tool_use", "id": "call", "name": "look", "input": {"at": SECRET}}
    session.append({"role": "assistant", "content": [call]})
    asked = session.messages(limit=1)[0].id
    session.ask_approval("call", SECRET)
    session.answer_approval("call", True, note=SECRET)
    with session.tool(session.pending_calls()[0]) as running:
        running.result(SECRET)
    stream = session.stream(id="streamed")
    for number in range(0, len(SECRET), 4):
        stream.write(SECRET[number : number + 4])
    stream.finish()
    return ["first", session.messages()[2].id, "large", asked, "streamed"]


def in_files(place: Path) -> list[str]:
    """Return the files below a directory that hold the secret."""
    return [path.name for path in place.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_no_byte_is_left_on_disk(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        wanted = fill(store)
    assert in_files(tmp_path), "or nothing is shown"
    with takeback.open(tmp_path / "s.db") as store:
        session = store.get_session("work")
        assert session.title != "redacted"
        session.redact(*wanted, dry_run=False)
        assert session.title == "second"
        assert not (report := store.verify()), str(report)
    assert in_files(tmp_path) == []


def test_a_redacted_store_is_repaired_copied_and_backed_up(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        wanted = fill(store)
        session = store.get_session("work")
        session.redact(*wanted, dry_run=False)
        before = [*session.entries()]
        repaired, made = store.repair(tmp_path / "repaired.db"), store.backup(tmp_path / "backup.db")
        assert not repaired.lost, str(repaired)
        assert not made
        takeback.copy(store, str(tmp_path / "copy.db"))
    for name in ("repaired", "backup", "copy"):
        with takeback.open(tmp_path / f"{name}.db") as store:
            assert not (report := store.verify()), f"{name}: {report}"
            assert [*store.get_session("work").entries()] == before, name
    assert in_files(tmp_path) == []
