"""Store.export and Store.load: one session or several out of a store and into another, from Python."""

from __future__ import annotations

import asyncio
import io
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from _made import resealed

import _postgres
import takeback
from takeback import (
    BackendError,
    Conflict,
    Copying,
    Corrupt,
    Exported,
    Invalid,
    Loaded,
    NotFound,
    Session,
    Store,
    Unsupported,
)
from takeback.exporters import files

pytestmark = [pytest.mark.feature("F9"), pytest.mark.trial("T14")]

KEY = "sk-ant-api03-" + "a1B2" * 12


@pytest.fixture
def talk(store: Store) -> Session:
    """A session with a sub-agent."""
    talk = store.create_session("talk", agent="coder")
    talk.user("hello", attachments=[b"attached"])
    talk.assistant("hi")
    with talk.tool("bash", {"command": "ls"}) as running:
        running.result("a long listing")
    talk.spawn("help", label="helper").session.user("on it")
    return talk.refresh()


def ids(store: Store) -> set[str]:
    return {each.id for each in store.iter_sessions(archived=None)}


# ---------------------------------------------------------------------- out


@pytest.mark.parametrize("engine", ["memory", "file", "postgres"])
def test_a_session_goes_from_one_store_into_another(tmp_path: Path, engine: str) -> None:
    urls: dict[str, Any] = {"memory": ":memory:", "file": tmp_path / "a.db"}
    with (
        takeback.open(urls.get(engine) or _postgres.url(tmp_path), scope="anna") as source,
        takeback.open(":memory:") as target,
    ):
        talk = source.create_session("talk")
        talk.user("hello", attachments=[b"attached"])
        done = source.export(talk, tmp_path / "talk.jsonl")
        loaded = target.load(tmp_path / "talk.jsonl")
        assert (loaded.sessions, loaded.new) == ((talk.id,), (talk.id,))
        there = target.get_session(talk.id)
        assert [*there.entries()] == [*talk.entries()]
        assert there.messages()[0].attachments[0].read() == b"attached"
        assert target.export(there, tmp_path / "again.jsonl").bytes == done.bytes
        assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "talk.jsonl").read_bytes()
        assert not target.verify()


def test_what_an_export_says(store: Store, talk: Session, tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    done = store.export(talk, path)
    lines = path.read_bytes().splitlines()
    entries = sum(line.startswith(b'{"type":"entry"') for line in lines)
    assert done == Exported(str(path), "jsonl", 2, entries, len(lines), path.stat().st_size, {})
    assert str(done) == f"{path}: 2 sessions, {len(lines)} lines"
    assert repr(done) == f"<Exported jsonl {done}>"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(AttributeError):
        done.path = "elsewhere"  # type: ignore[misc]


def test_handles_and_ids_one_or_several(store: Store, talk: Session, tmp_path: Path) -> None:
    other = store.create_session("other")
    for given, count in (
        (talk, 2),
        (talk.id, 2),
        ([talk], 2),
        ((talk.id, other, other.id), 3),
        (store.list_sessions(), 3),
        (store.iter_sessions(), 3),
    ):
        assert store.export(given, tmp_path / "x").sessions == count  # type: ignore[arg-type]
    assert store.export(talk, tmp_path / "x", subagents=False).sessions == 1


def test_an_open_file_is_written_and_read_where_it_stands(store: Store, talk: Session) -> None:
    out = io.BytesIO()
    out.write(b"before\n")
    done = store.export(talk, out)
    assert (done.path, done.bytes) == (None, len(out.getvalue()) - len(b"before\n"))
    assert not out.closed
    out.seek(len(b"before\n"))
    with takeback.open(":memory:") as target:
        assert target.load(out).sessions == (talk.id, *({*ids(store)} - {talk.id}))
        assert not out.closed


def test_a_file_is_there_whole_or_not_at_all(store: Store, talk: Session, tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text("before")

    def stop(far: Copying) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError):
        store.export(talk, path, progress=stop)
    with pytest.raises(NotFound, match="there is no session 'nosuch'"):
        store.export(["nosuch", talk], path)
    with pytest.raises(NotFound):
        store.export("nosuch", path, format="html")
    assert (path.read_text(), os.listdir(tmp_path)) == ("before", ["talk.jsonl"])


def test_progress_says_how_far_it_is(store: Store, talk: Session) -> None:
    heard, read = list[Copying](), list[int]()
    out = io.BytesIO()
    done = store.export(talk, out, progress=heard.append)
    assert (heard[-1].sessions, heard[-1].sessions_total, heard[-1].entries) == (2, 2, done.entries)
    out.seek(0)
    with takeback.open(":memory:") as target:
        target.load(out, progress=read.append)
    assert read == sorted(read)
    assert 0 < read[-1] < (done.lines or 0)


# ---------------------------------------------------------------------- documents


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_a_document_of_one_session(store: Store, talk: Session, tmp_path: Path, form: str) -> None:
    done = store.export(talk, tmp_path / "x", format=form, tools="full")
    text = (tmp_path / "x").read_text()
    assert ("hello" in text, "a long listing" in text) == (True, True)
    assert (done.format, done.sessions, done.entries, done.lines) == (form, 1, None, None)
    assert done.bytes == len(text.encode())
    assert str(done) == f"{tmp_path / 'x'}: 1 session, {done.bytes:,} bytes"
    out = io.BytesIO()
    store.export(talk.id, out, format=form, tools="none", at=1)
    assert ("hello" in out.getvalue().decode(), "hi</" in out.getvalue().decode()) == (True, False)
    assert "a long listing" not in out.getvalue().decode()


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_likely_secrets_are_masked_or_kept_and_counted(store: Store, talk: Session, form: str) -> None:
    talk.user(f"use {KEY}")
    for how, shown in (("mask", False), ("keep", True)):
        out = io.BytesIO()
        done = store.export(talk, out, format=form, secrets=how)
        assert (KEY in out.getvalue().decode()) is shown
        assert [*done.secrets] == ["Anthropic key"]
        assert "; likely secrets: " in str(done)


def test_lines_lose_nothing_so_likely_secrets_are_counted(store: Store, talk: Session) -> None:
    talk.user(f"use {KEY}")
    for how in ("mask", "keep"):
        out = io.BytesIO()
        done = store.export(talk, out, secrets=how)
        assert KEY.encode() in out.getvalue()
        assert done.secrets == {"Anthropic key": 1}
        assert str(done).endswith("lines; likely secrets: 1 Anthropic key")


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("given", "how", "error", "says"),
    [
        ([], {}, Invalid, "no session was given"),
        (7, {}, Invalid, "sessions must be a list"),
        ([7], {}, Invalid, "session id must be a string"),
        ("", {}, Invalid, "session id must have"),
        (None, {"format": "atif"}, Unsupported, "not supported yet"),
        (None, {"format": "pdf"}, Invalid, "format must be jsonl, markdown or html, not 'pdf'"),
        (None, {"format": None}, Invalid, "format must be"),
        (None, {"format": ["jsonl"]}, Invalid, "format must be"),
        (None, {"tools": "some"}, Invalid, "tools must be full, short or none"),
        (None, {"secrets": True}, Invalid, "secrets must be mask or keep"),
        (None, {"subagents": "yes"}, Invalid, "subagents must be True or False"),
        (None, {"at": 1}, Invalid, "only for markdown and html"),
        (["a", "b"], {"format": "html"}, Invalid, "a document holds one session, not 2"),
    ],
)
def test_an_export_that_makes_no_sense_is_refused(
    store: Store, talk: Session, tmp_path: Path, given: Any, how: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        store.export(talk if given is None else given, tmp_path / "x", **how)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("place", [None, 7, b"bytes", "", "a\0b", io.StringIO(), object()])
def test_what_is_no_place_is_refused(store: Store, talk: Session, place: Any) -> None:
    with pytest.raises(Invalid):
        store.export(talk, place)
    with pytest.raises(Invalid):
        store.load(place)


def test_a_file_that_is_closed_or_opened_for_text_is_refused(store: Store, talk: Session, tmp_path: Path) -> None:
    with open(tmp_path / "x", "w") as text, pytest.raises(Invalid, match="mode 'wb'"):
        store.export(talk, text)  # type: ignore[arg-type]
    closed = io.BytesIO()
    closed.close()
    with pytest.raises(Invalid, match="closed"):
        store.export(talk, closed)
    with open(tmp_path / "x") as text, pytest.raises(Invalid, match="mode 'rb'"):
        store.load(text)  # type: ignore[arg-type]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "a.db") as store:
        talk = store.create_session()
        for own in ("a.db", "a.db-wal", "a.db-lock"):
            with pytest.raises(Conflict, match="belongs to the store itself"):
                store.export(talk, tmp_path / own)
        with pytest.raises(Conflict, match="is a directory"):
            store.export(talk, tmp_path)
        with pytest.raises(BackendError, match=r"cannot write .*Check the path"):
            store.export(talk, tmp_path / "no" / "such")


def test_a_session_of_another_scope_is_not_found(store: Store, talk: Session, tmp_path: Path) -> None:
    for form in ("jsonl", "html"):
        with pytest.raises(NotFound):
            store.scoped("anna").export(talk, tmp_path / "x", format=form)
    assert not os.listdir(tmp_path)


# ---------------------------------------------------------------------- in


def test_what_loading_says(store: Store, talk: Session, tmp_path: Path) -> None:
    store.export(talk, tmp_path / "x")
    with takeback.open(":memory:") as target:
        judged = target.load(tmp_path / "x", dry_run=True)
        assert judged == Loaded(judged.sessions, judged.sessions, None, {}, True)
        assert str(judged) == "2 sessions, 2 new; dry run: nothing was changed"
        assert not ids(target)
        loaded = target.load(str(tmp_path / "x"))
        assert {*loaded.sessions} == {*loaded.new} == ids(store)
        assert loaded.copied is not None
        assert (loaded.copied.sessions, loaded.dry_run) == (2, False)
        assert str(loaded).startswith("2 sessions, 2 new: 2 sessions, ")
        assert repr(loaded) == f"<Loaded {loaded}>"
        again = target.load(tmp_path / "x")
        assert (again.new, str(again).startswith("2 sessions, 0 new: nothing copied")) == ((), True)


def test_it_is_loaded_into_the_scope_of_the_handle(store: Store, talk: Session, tmp_path: Path) -> None:
    store.export(talk, tmp_path / "x")
    with takeback.open(":memory:") as target:
        target.scoped("anna").load(tmp_path / "x")
        assert target.scopes() == ["anna"]


def test_a_file_that_is_not_there_or_not_ours(store: Store, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"there is no file .*; Store\.export writes one"):
        store.load(tmp_path / "nosuch")
    (tmp_path / "other").write_text("hello\n")
    with pytest.raises(Invalid, match="not a file that takeback export wrote"):
        store.load(tmp_path / "other")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match=r"session\.json"):
        store.load(tmp_path / "empty")
    for wrong in (7, b"x"):
        with pytest.raises(Invalid):
            store.load(tmp_path / "other", workspace=wrong)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="dry_run must be True or False"):
        store.load(tmp_path / "other", dry_run=1)  # type: ignore[arg-type]


@pytest.mark.promise("R27")
def test_a_file_that_is_cut_off_or_forged_leaves_nothing(store: Store, talk: Session, tmp_path: Path) -> None:
    path = tmp_path / "x"
    store.export(talk, path)
    whole, out = path.read_bytes(), [json.loads(each) for each in path.read_bytes().splitlines()][:-1]
    next(each for each in out if each["type"] == "entry")["body"]["content"] = "never said"
    details = [dict(each) for each in out]
    next(each for each in details if each["type"] == "session")["detail"] = [1]
    with takeback.open(":memory:") as target:
        for data in (whole[: len(whole) // 2], whole[:-1] + b"x\n", resealed(out), resealed(details)):
            path.write_bytes(data)
            with pytest.raises(Corrupt, match="nothing was imported"):
                target.load(path)
        assert not [*target.events()]
        assert target.scopes() == []


@pytest.mark.promise("R27")
def test_a_mirror_of_which_one_folder_is_wrong_leaves_nothing(store: Store, talk: Session, tmp_path: Path) -> None:
    from takeback.exporters.mirror import Mirror

    with Mirror(store, tmp_path) as mirror:
        mirror.update()
    last = sorted((tmp_path / "sessions").iterdir())[-1] / "session.json"
    said = json.loads(last.read_text())
    said["messages"][0]["body"] = {"role": "assistant", "content": "", "tool_calls": [7]}
    last.write_text(json.dumps(said))
    with takeback.open(":memory:") as target:
        with pytest.raises(Corrupt):
            target.load(tmp_path)
        assert target.scopes() == []


def test_a_store_that_is_only_read_loads_nothing(store: Store, talk: Session, tmp_path: Path) -> None:
    store.export(talk, tmp_path / "x")
    takeback.open(tmp_path / "a.db").close()
    with takeback.open(tmp_path / "a.db", read_only=True) as target:
        with pytest.raises(Unsupported, match="read-only"):
            target.load(tmp_path / "x")
        assert target.load(tmp_path / "x", dry_run=True).new


def test_a_pipe_is_written_through(store: Store, talk: Session, tmp_path: Path) -> None:
    assert store.export(talk, "/dev/null").sessions == 2
    assert files.is_stream("/dev/null")


# ---------------------------------------------------------------------- awaited


def test_tasks_export_and_load_as_well(tmp_path: Path) -> None:
    async def main() -> None:
        async with takeback.aopen(tmp_path / "a.db") as source, takeback.aopen(":memory:") as target:
            talk = await source.create_session("talk")
            await talk.user("hello")
            assert await source.scopes() == [""]
            for given in (talk, [talk], await source.list_sessions()):
                done = await source.export(given, tmp_path / "x")
                assert done.sessions == 1
            loaded = await target.load(tmp_path / "x")
            assert loaded.new == (talk.id,)
            assert (await target.get_session(talk.id)).came_from is None

    asyncio.run(main())
