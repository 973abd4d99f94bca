"""Who is said to have changed a file when several are at work, and what a copy of a store keeps of files."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from _folders import look, run, shell

import takeback
from takeback import Capture
from takeback.files import snapshots
from takeback.files.disk.scan import Limits, Scanner
from takeback.files.workspaces import CapturedDirectory
from takeback.ops import blobs
from takeback.storage.base import Tx

pytestmark = [pytest.mark.feature("F1", "A4")]


def test_what_a_call_did_while_another_began_is_not_somebody_elses(tmp_path: Path, work: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
        session.user("go")
        before = look(work)
        first = session.tool("first", id="c1")
        with session._place()._lock:  # type: ignore[union-attr]
            thread = threading.Thread(target=first.__enter__)
            thread.start()
            time.sleep(0.3)  # it wants to look, and waits
            second = session.tool("second", id="c2").__enter__()
            (work / "made").write_text("by the second")
        thread.join()
        second.result("ok")
        first.result("ok")
        assert session.preview_rewind(1).kept == ()
        session.rewind(1)
        assert look(work) == before


def test_what_a_call_did_while_another_was_looking_is_not_somebody_elses(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
        session.user("go")
        before, looking, wrote = look(work), threading.Event(), threading.Event()
        first, second = session.tool("first", id="c1"), session.tool("second", id="c2")
        real_start, real_scan = session._start_call, Scanner.scan

        def start(call_id: str, *more: Any) -> Any:
            if call_id == "c2":  # it has looked; before its start is stored the first one begins to look
                begin.set()
                looking.wait(60)
            return real_start(call_id, *more)

        def slowly(self: Scanner, *args: Any, **how: Any) -> Any:
            if threading.current_thread() is threading.main_thread() and not wrote.is_set():
                looking.set()
                wrote.wait(60)
            return real_scan(self, *args, **how)

        def work_on() -> None:
            second.__enter__()
            (work / "made").write_text("by the second")
            wrote.set()

        begin = threading.Event()
        monkeypatch.setattr(session, "_start_call", start)
        monkeypatch.setattr(Scanner, "scan", slowly)
        thread = threading.Thread(target=work_on)
        thread.start()
        begin.wait(60)
        first.__enter__()
        thread.join()
        second.result("ok")
        first.result("ok")
        assert session.preview_rewind(1).kept == ()
        session.rewind(1)
        assert look(work) == before


def test_calls_of_one_turn_that_run_in_turn_are_told_apart(tmp_path: Path, work: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
        session.user("go")
        session.append(
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": f"c{number}", "name": "bash", "arguments": {}} for number in range(3)],
            }
        )
        for call in session.pending_calls():
            with session.tool(call) as running:
                (work / call.id).write_text("x")
                running.result("ok")
        assert {each.path: each.call_id for each in session.files()} == {
            f"c{number}": f"c{number}" for number in range(3)
        }


def test_awaited_calls_at_once_are_all_taken_back(tmp_path: Path, work: Path) -> None:
    before = look(work)

    async def tool(session: Any, number: int, ready: asyncio.Barrier) -> None:
        async with session.tool("bash", id=f"c{number}") as running:
            await ready.wait()
            (work / f"f{number}").write_text("x")
            await ready.wait()
            await running.result("ok")

    async def main() -> None:
        async with takeback.aopen(tmp_path / "s.db") as store:
            session = await store.session("s", workspace=work)
            async with session:
                await session.user("go")
                ready = asyncio.Barrier(4)
                await asyncio.gather(*(tool(session, number, ready) for number in range(4)))
                assert {each.path for each in await session.files()} == {f"f{number}" for number in range(4)}
                preview = await session.preview_rewind(1)
                assert preview.kept == ()
                await preview.apply()
                assert look(work) == before
                await session.undo()
                assert len(look(work)) == 5

    asyncio.run(main())


def test_a_checkpoint_does_not_make_a_persons_edit_the_agents(tmp_path: Path, work: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
        session.user("go")
        run(session, work, "echo agent > made")
        shell(work, "echo mine > a.txt")
        session.checkpoint("every five minutes", type="automatic")
        preview = session.preview_rewind(1)
        assert preview.kept == ("a.txt",)
        preview.apply()
        assert (work / "a.txt").read_text() == "mine\n"


def test_rules_of_one_session_are_not_those_of_another(tmp_path: Path, work: Path) -> None:
    (work / "x.tmp").write_text("t")
    with takeback.open(tmp_path / "s.db") as store:
        with store.session("s", workspace=work, capture=Capture(ignore=("*.tmp",))) as session:
            session.user("go")
            assert "x.tmp" in " ".join(session.checkpoint("c").not_captured)
        with store.session("t", workspace=work) as session:
            session.user("go")
            assert session.file_at("x.tmp", session.checkpoint("c")) == b"t"
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
        session.user("more")
        assert session.file_at("x.tmp", session.checkpoint("c")) == b"t"


def test_what_a_new_session_leaves_out_is_left_out_whatever_others_captured(tmp_path: Path, work: Path) -> None:
    (work / "secret.env").write_text("KEY")
    with takeback.open(tmp_path / "s.db") as store:
        with store.session("s", workspace=work) as session:
            session.user("go")
        with store.session("t", workspace=work, capture=Capture(ignore=("*.env",))) as session:
            session.user("go")
            assert "secret.env" in " ".join(session.checkpoint("c").not_captured)


def test_a_copy_of_a_store_keeps_the_files_of_its_sessions(tmp_path: Path, work: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
        session.user("go")
        session.checkpoint("c")
        run(session, work, "echo two > a.txt")
        session.snapshot_file("a.txt")
        name = session.id
    takeback.copy(tmp_path / "s.db", tmp_path / "copy.db")
    with takeback.open(tmp_path / "copy.db") as store:
        assert not store.verify()
        store.prune(dry_run=False, spare_seconds=0)
        copied = store.get_session(name)
        assert copied.file_at("a.txt", "c") == b"one\n"
        copied.rewind("c")
        assert (work / "a.txt").read_text() == "one\n"
        assert not store.verify()


def test_what_is_remembered_is_not_counted_on_after_its_contents_were_swept_out(tmp_path: Path, work: Path) -> None:
    aside = tmp_path / "aside"
    (work / "folder").mkdir()
    (work / "folder" / "b.txt").write_text("in a folder\n")
    (work / "later.txt").write_text("later\n")
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
        session.checkpoint("c")
        assert asked_for_all(store, work) == [], "nothing was swept out: nothing is asked for"
        (work / "folder").rename(aside)
        session.checkpoint("d")
        other = tmp_path / "other"
        other.mkdir()
        with store.session("t", workspace=other) as second:
            (other / "x").write_text("x" * 100)
            second.checkpoint("c")
        store.purge_session(second)
        assert asked_for_all(store, work) != [], "once after a sweep"
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
        (work / "more").write_text("more")
        session.checkpoint("e")
        assert asked_for_all(store, work) == []
        for name in ("a.txt", "later.txt"):  # as after damage and repair: nothing is there that was remembered
            _lose(store, (work / name).read_bytes())
        _lose(store, b"in a folder\n")
        aside.rename(work / "folder")
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
        point = session.checkpoint("f")
        for name, content in (("a.txt", b"one\n"), ("later.txt", b"later\n"), ("folder/b.txt", b"in a folder\n")):
            assert session.file_at(name, point) == content
        assert not store.verify()


def asked_for_all(store: takeback.Store, work: Path) -> list[bytes]:
    """Return the contents that a new handle on a workspace asks for before it counts on what is remembered."""
    asked: list[bytes] = []

    class Asking(CapturedDirectory):
        def _all_there(self, scanner: Scanner) -> bool:
            asked.extend(scanner.digests())
            return super()._all_there(scanner)

    Asking(store._runner, str(work), Limits(), ()).glance()
    return asked


def _lose(store: takeback.Store, content: bytes) -> None:
    """Sweep out a content that is needed."""

    def op(tx: Tx) -> None:
        snapshots.count_sweep(tx, "")
        assert blobs.drop(tx, "", hashlib.sha256(content).hexdigest())

    store._write(op)
