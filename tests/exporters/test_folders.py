"""A mirror: folders that people can read, of one moment each, kept up to date; nobody else's file is ever touched."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
import time
from pathlib import Path

import pytest

import takeback
from takeback import Busy, Corrupt, Invalid, Session, Store, Task
from takeback.exporters import mirror as mirrors
from takeback.exporters.mirror import MARK, Mirror, Mirrored
from takeback.importers import folder

pytestmark = pytest.mark.feature("A8")


@pytest.fixture
def work(store: Store) -> Session:
    session = store.create_session("boat", agent="painter", title="Paint the boat", tags=["sea"], metadata={"n": 1})
    session.user("paint it green")
    session.append({"role": "assistant", "content": "Looking.", "tool_calls": [{"id": "a", "name": "bash"}]})
    session.tool_result("a", "done")
    session.set_plan("# Plan\n\n1. sand")
    session.set_tasks(
        [
            Task("sand", "completed"),
            Task("paint", "in_progress"),
            Task("sail", "failed"),
            Task("wax", "skipped"),
            Task("rest"),
        ]
    )
    session.note("green is out\nblue is in", task=1)
    session.record_file("hull.py", "written")
    return session


def once(store: Store, base: Path, **how: str) -> Mirrored:
    with Mirror(store, base, **how) as made:
        return made.update()


def test_a_session_is_a_folder_that_people_can_read(store: Store, work: Session, tmp_path: Path) -> None:
    assert once(store, tmp_path) == Mirrored(written=(work.id,))
    place = tmp_path / "sessions" / work.id
    assert sorted(each.name for each in place.iterdir()) == sorted([*mirrors.NAMES, MARK])
    assert place.joinpath("tasks.md").read_text() == (
        "# Tasks\n\n- [x] sand\n- [/] paint\n- [-] sail\n- [~] wax\n- [ ] rest\n"
    )
    assert place.joinpath("implementation_plan.md").read_text() == "# Plan\n\n1. sand\n"
    assert "green is out\nblue is in" in place.joinpath("reasoning_log.md").read_text()
    assert ", task 2\n" in place.joinpath("reasoning_log.md").read_text()
    assert place.joinpath("walkthrough.md").read_text() == work.render_walkthrough()
    document = json.loads(place.joinpath("session.json").read_text())
    assert (document["title"], document["plan"], document["revision"]) == ("Paint the boat", "# Plan\n\n1. sand", 7)
    assert (document["build_attempts"], document["updated_at"] >= document["created_at"]) == (work.build_attempts, True)
    assert [each["text"] for each in document["messages"]] == ["paint it green", "Looking.", "done"]
    modes = {stat.S_IMODE(each.stat().st_mode) for each in place.iterdir()}
    assert (modes, stat.S_IMODE(place.stat().st_mode)) == ({0o600}, 0o700)


def test_what_is_as_it_should_be_is_not_written_again(store: Store, work: Session, tmp_path: Path) -> None:
    once(store, tmp_path)
    before = (tmp_path / "sessions" / work.id).stat().st_ino
    assert once(store, tmp_path) == Mirrored(same=(work.id,))
    assert (tmp_path / "sessions" / work.id).stat().st_ino == before
    work.user("more")
    assert once(store, tmp_path) == Mirrored(written=(work.id,))


def test_a_file_that_has_nothing_to_say_goes(store: Store, work: Session, tmp_path: Path) -> None:
    once(store, tmp_path)
    work.set_plan(None)
    work.set_tasks([])
    work.set_walkthrough("I painted.")
    once(store, tmp_path)
    place = tmp_path / "sessions" / work.id
    assert sorted(each.name for each in place.iterdir()) == sorted(
        [MARK, "reasoning_log.md", "session.json", "walkthrough.md"]
    )
    assert place.joinpath("walkthrough.md").read_text() == "I painted.\n"
    assert not [each for each in (tmp_path / "sessions").iterdir() if each.name.startswith(".takeback-staged")]


def test_a_session_that_is_gone_goes_from_the_mirror(store: Store, work: Session, tmp_path: Path) -> None:
    other = store.create_session("other")
    once(store, tmp_path)
    store.delete_session(work)
    assert once(store, tmp_path) == Mirrored(same=(other.id,), removed=(work.id,))
    assert not (tmp_path / "sessions" / work.id).exists()
    store.restore_session(work)
    assert once(store, tmp_path).written == (work.id,)
    store.purge_session(work)
    assert once(store, tmp_path).removed == (work.id,)


def test_only_sessions_of_a_workspace(store: Store, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    here = store.create_session("here", workspace=tmp_path / "here")
    store.create_session("elsewhere")
    assert once(store, tmp_path / "m", workspace=str(tmp_path / "here")).written == (here.id,)


def test_folders_of_another_workspace_stay_until_their_session_is_deleted(store: Store, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first, second = (store.create_session(name, workspace=tmp_path / name) for name in ("a", "b"))
    once(store, tmp_path / "m", workspace=str(tmp_path / "a"))
    assert once(store, tmp_path / "m", workspace=str(tmp_path / "b")) == Mirrored(written=(second.id,))
    assert (tmp_path / "m" / "sessions" / first.id / "session.json").exists()
    store.delete_session(first)
    assert once(store, tmp_path / "m", workspace=str(tmp_path / "b")).removed == (first.id,)


def test_what_another_store_mirrored_is_left_alone(store: Store, work: Session, tmp_path: Path) -> None:
    once(store, tmp_path)
    place = tmp_path / "sessions" / work.id
    with takeback.open(":memory:") as other:
        takeback.copy(store, other)
        own = other.create_session("own")
        assert once(other, tmp_path) == Mirrored(written=(own.id,), blocked=(str(place),))
        other.purge_session(work.id)
        assert once(other, tmp_path) == Mirrored(same=(own.id,))
    assert once(store, tmp_path) == Mirrored(same=(work.id,))
    store.purge_session(work)
    assert once(store.scoped("elsewhere"), tmp_path) == Mirrored(), "another scope is another store"
    assert once(store, tmp_path) == Mirrored(removed=(work.id,))


def test_a_session_that_the_store_never_had_keeps_its_folder(store: Store, work: Session, tmp_path: Path) -> None:
    """A backup from before it was made is the same store."""
    once(store, tmp_path)
    place, never = tmp_path / "sessions" / work.id, tmp_path / "sessions" / ("1" + "0" * 24)
    place.rename(never)
    assert once(store, tmp_path) == Mirrored(written=(work.id,))
    assert (never / "session.json").exists()


def test_a_message_that_cannot_be_read_keeps_the_folder(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        lost, whole = store.create_session("lost"), store.create_session("whole")
        lost.user("the last copy")
        once(store, tmp_path)
        store._backend._connection.execute("UPDATE entry SET chk = chk + 1 WHERE kind = 'message'")  # type: ignore[attr-defined]
    with takeback.open(tmp_path / "s.db") as store:
        assert once(store, tmp_path) == Mirrored(same=(whole.id,), damaged=(lost.id,))
    assert "the last copy" in (tmp_path / "sessions" / lost.id / "session.json").read_text()


# ---------------------------------------------------------------------- nobody else's


def test_somebody_elses_files_are_never_touched(store: Store, work: Session, tmp_path: Path) -> None:
    folder_ = tmp_path / "sessions"
    folder_.mkdir()
    mine, gone = folder_ / "mine", folder_ / ("1" + "0" * 24)  # the second has the form of an id, and no mark
    for each in (mine, gone):
        each.mkdir()
        each.joinpath("tasks.md").write_text("my own")
    once(store, tmp_path)
    assert [each.joinpath("tasks.md").read_text() for each in (mine, gone)] == ["my own"] * 2
    place = folder_ / work.id
    place.joinpath("my notes.txt").write_text("keep")
    place.joinpath("deep").mkdir()
    place.joinpath("deep", "x").write_text("keep")
    work.user("more")
    assert once(store, tmp_path).written == (work.id,)
    assert place.joinpath("my notes.txt").read_text() == "keep"
    assert place.joinpath("deep", "x").read_text() == "keep"
    store.delete_session(work)
    once(store, tmp_path)
    assert sorted(each.name for each in place.iterdir()) == ["deep", "my notes.txt"]


def test_a_folder_in_the_way_stays_and_is_named(store: Store, work: Session, tmp_path: Path) -> None:
    place = tmp_path / "sessions" / work.id
    place.mkdir(parents=True)
    place.joinpath("tasks.md").write_text("my own")
    assert once(store, tmp_path) == Mirrored(blocked=(str(place),))
    assert place.joinpath("tasks.md").read_text() == "my own"


def test_a_link_is_never_followed(store: Store, work: Session, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    elsewhere.joinpath(MARK).write_text("")
    elsewhere.joinpath("tasks.md").write_text("my own")
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / work.id).symlink_to(elsewhere)
    assert once(store, tmp_path).blocked
    store.delete_session(work)
    once(store, tmp_path)
    assert elsewhere.joinpath("tasks.md").read_text() == "my own"


def test_ids_never_become_paths_unchecked(store: Store, tmp_path: Path) -> None:
    with Mirror(store, tmp_path) as made:
        for name in ("../x", "/etc", "a" * 25 + "/", "", "."):
            with pytest.raises(Invalid):
                made._place(name)


def test_what_a_run_that_was_cut_off_left_is_removed(store: Store, work: Session, tmp_path: Path) -> None:
    staged = tmp_path / "sessions" / ".takeback-staged-0"
    staged.mkdir(parents=True)
    staged.joinpath("tasks.md").write_text("half")
    once(store, tmp_path)
    assert not staged.exists()


class _Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("step", ["_keep_others", "_clear", "rename 2", "rename 3"])
def test_what_is_somebody_elses_comes_back_after_a_kill(
    store: Store, work: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    once(store, tmp_path)
    place = tmp_path / "sessions" / work.id
    place.joinpath("my notes.txt").write_text("keep")
    work.user("more")
    with monkeypatch.context() as patch:
        _kill_at(step, patch)
        with pytest.raises(_Killed):
            once(store, tmp_path)
    if step == "_keep_others":
        place.joinpath("my notes.txt").write_text("written again meanwhile")
        once(store, tmp_path)
        assert place.joinpath("my notes.txt~").read_text() == "keep"
    else:
        once(store, tmp_path)
        assert place.joinpath("my notes.txt").read_text() == "keep"
    assert "more" in place.joinpath("session.json").read_text()
    assert [each.name for each in place.parent.iterdir()] == [work.id]


def _kill_at(step: str, patch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise _Killed

    if not step.startswith("rename"):
        patch.setattr(mirrors, step, killed)
        return
    rename, done = os.rename, list[str]()

    def counted(one: str, two: str) -> None:
        done.append(one)
        if len(done) == int(step.split()[1]):
            raise _Killed
        rename(one, two)

    def cannot(one: str, two: str) -> None:
        raise OSError(22, "not here")

    patch.setattr(mirrors, "_exchange", cannot)
    patch.setattr(mirrors.os, "rename", counted)


def test_what_is_in_the_way_of_what_comes_back_is_left(store: Store, work: Session, tmp_path: Path) -> None:
    staged = tmp_path / "sessions" / ".takeback-staged-0"
    staged.mkdir(parents=True)
    staged.joinpath("my notes.txt").write_text("keep")
    staged.joinpath(MARK).write_text(f"takeback.mirror/1 {work.id}\n")
    (tmp_path / "sessions" / work.id).write_text("a file in the way")
    once(store, tmp_path)
    assert staged.joinpath("my notes.txt").read_text() == "keep"
    (tmp_path / "sessions" / work.id).unlink()
    once(store, tmp_path)
    assert (tmp_path / "sessions" / work.id / "my notes.txt").read_text() == "keep"


def test_one_at_a_time(store: Store, tmp_path: Path) -> None:
    with Mirror(store, tmp_path), pytest.raises(Busy):
        Mirror(store, tmp_path)
    once(store, tmp_path)


def test_where_two_directories_cannot_be_swapped_at_once(
    store: Store, work: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(one: str, two: str) -> None:
        raise OSError(22, "not here")

    monkeypatch.setattr(mirrors, "_exchange", cannot)
    once(store, tmp_path)
    work.set_plan("another")
    once(store, tmp_path)
    assert (tmp_path / "sessions" / work.id / "implementation_plan.md").read_text() == "another\n"
    assert [each.name for each in (tmp_path / "sessions").iterdir()] == [work.id]


# ---------------------------------------------------------------------- at one moment


def _numbers(place: Path) -> set[str] | None:
    """Read all files of a folder through one look at it; None if it went away meanwhile."""
    try:
        look = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        found = set[str]()
        for name in mirrors.NAMES:
            with open(os.open(name, os.O_RDONLY, dir_fd=look), encoding="utf-8") as file:
                found |= {*re.findall(r"number (\d+)", file.read())}
        return found
    except FileNotFoundError:
        return None
    finally:
        os.close(look)


def _set_all(session: Session, number: int) -> None:
    """Let every file of the folder say the same number, and no other."""
    session.clear()
    session.set_plan(f"number {number}")
    session.set_tasks([f"number {number}"])
    session.set_walkthrough(f"number {number}")
    session.note(f"number {number}")


@pytest.mark.slow
def test_readers_never_see_a_mixture(store: Store, tmp_path: Path) -> None:
    session = store.create_session()
    mirror, stop, seen, faults = Mirror(store, tmp_path), threading.Event(), set[str](), list[set[str]]()
    place = tmp_path / "sessions" / session.id

    def read() -> None:
        while not stop.is_set():
            found = _numbers(place)
            if found is not None and len(found) != 1:
                faults.append(found)
            seen.update(found or ())

    _set_all(session, 0)
    mirror.update()
    readers = [threading.Thread(target=read) for _ in range(2)]
    for each in readers:
        each.start()
    try:
        for number in range(1, 120):
            _set_all(session, number)
            mirror.update()
            time.sleep(0.002)
    finally:
        stop.set()
        for each in readers:
            each.join()
        mirror.close()
    assert not faults
    assert len(seen) > 5


def test_a_folder_is_of_one_moment_of_the_store(tmp_path: Path) -> None:
    """While somebody writes, each folder that is made agrees with itself."""
    with takeback.open(tmp_path / "s.db", durability="relaxed") as store:
        session, stop = store.create_session(title="busy"), threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                session.user(f"message {number}")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            with Mirror(store, tmp_path / "m") as mirror:
                for _ in range(15):
                    mirror.update()
                    place = tmp_path / "m" / "sessions" / session.id
                    document = json.loads(place.joinpath("session.json").read_text())
                    count = len(document["messages"])
                    assert document["turn_count"] == count
                    assert place.joinpath("walkthrough.md").read_text().count("\n### ") == count
        finally:
            stop.set()
            writer.join()


# ---------------------------------------------------------------------- kept up to date


def test_it_is_kept_up_to_date(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store, takeback.open(tmp_path / "s.db") as watched:
        one, told = store.create_session("one"), list[Mirrored]()
        mirror = Mirror(watched, tmp_path)
        thread = threading.Thread(target=mirror.follow, args=(told.append,))
        thread.start()
        place = tmp_path / "sessions"
        try:
            _wait(lambda: (place / one.id / "session.json").exists())
            one.user("hello")
            one.set_plan("a plan")
            _wait(lambda: (place / one.id / "implementation_plan.md").exists())
            two = store.create_session("two")
            _wait(lambda: (place / two.id).exists())
            store.delete_session(two)
            _wait(lambda: not (place / two.id).exists())
            store.purge_session(one)
            _wait(lambda: not (place / one.id).exists())
        finally:
            watched.close()
            thread.join(60)
            mirror.close()
        assert not thread.is_alive()
        assert told[0] == Mirrored(written=(one.id,))


def _wait(done: object) -> None:
    end = time.monotonic() + 120
    while not done():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


# ---------------------------------------------------------------------- back again


def test_a_folder_can_be_imported_again(store: Store, work: Session, tmp_path: Path) -> None:
    odd = "half \ud800, \u202e and \x00"
    work.user(odd, metadata={"k": 1})
    work.append({"role": "assistant", "content": [{"type": "text", "text": "in a form"}], "stop_reason": "end_turn"})
    work.set_walkthrough(odd)
    work.note(odd)
    once(store, tmp_path)
    with takeback.open(":memory:") as other:
        (brought,) = folder.read(other, tmp_path).brought
        made = other.get_session(brought.session)
        assert (brought.mirrored, brought.new) == (work.id, True)
        assert (made.title, made.name, made.agent_id, made.tags) == ("Paint the boat", "boat", "painter", ("sea",))
        assert made.metadata == {"n": 1, "mirrored_from": work.id}
        assert [(each.role, each.text, each.raw) for each in made.messages()] == [
            (each.role, each.text, each.raw) for each in work.messages()
        ]
        assert [each.tool_calls[0].name for each in made.messages() if each.tool_calls] == ["bash"]
        assert made.tasks() == work.tasks()
        assert (made.get_plan(), made.get_walkthrough()) == (work.get_plan(), odd)
        assert [(each.text, each.task) for each in made.notes()] == [(each.text, each.task) for each in work.notes()]
        assert [(each.path, each.action) for each in made.files()] == [("hull.py", "written")]
        assert not other.verify()
        again = folder.read(other, tmp_path / "sessions" / work.id).brought
        assert [(each.session, each.new) for each in again] == [(made.id, False)]
        assert len(other.list_sessions()) == 1


def test_a_session_that_is_still_there_is_left_alone(store: Store, work: Session, tmp_path: Path) -> None:
    once(store, tmp_path)
    assert folder.read(store, tmp_path).brought == [folder.Brought(work.id, work.id, False)]
    assert len(store.list_sessions()) == 1


def test_a_session_that_has_the_id_for_its_name_is_another(store: Store, work: Session, tmp_path: Path) -> None:
    once(store, tmp_path)
    with takeback.open(":memory:") as other:
        named = [other.create_session(work.id, agent=agent) for agent in ("a", "b")]
        (brought,) = folder.read(other, tmp_path).brought
        assert brought.new
        assert brought.session not in [each.id for each in named]
        assert folder.read(other, tmp_path).brought == [brought._replace(new=False)]


def test_a_name_that_is_taken_gets_a_number(store: Store, work: Session, tmp_path: Path) -> None:
    once(store, tmp_path)
    with takeback.open(":memory:") as other:
        other.create_session("boat", agent="painter")
        (brought,) = folder.read(other, tmp_path).brought
        assert other.get_session(brought.session).name == brought.renamed == "boat (2)"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema":"takeback.mirror/1","id":"1000000000000000000000000","agent_id":5}',
        '{"schema":"takeback.mirror/1","id":"1000000000000000000000000","agent_id":"a","messages":[{"role":"user","created_at":"","body":{"$text":5}}]}',
        '{"schema":"takeback.mirror/1","id":"1000000000000000000000000","agent_id":"a","tasks":[{"description":"d","status":"nosuch"}]}',
        '{"schema":"takeback.mirror/1","id":"1000000000000000000000000","agent_id":"","messages":[]}',
        '{"schema":"takeback.mirror/1","id":"x","agent_id":"a"}',
        *(
            '{"schema":"takeback.mirror/1","id":"1000000000000000000000000","agent_id":"a","messages":'
            f'[{{"role":"user","created_at":"","body":{body}}}]}}'
            for body in (
                '{"role":"user","content":"x","attachments":"abc"}',
                '{"role":"user","content":"x","attachments":[5]}',
                '{"role":"user","content":"x","attachments":{"a":1}}',
                '{"role":"user","content":"x","metadata":[1,2]}',
                '{"role":"user","content":"x","metadata":"m"}',
                '{"role":[],"content":"x"}',
                '{"content":{"a":1},"tool_calls":7}',
                '{"role":"assistant","content":"","tool_calls":[7]}',
                '{"role":"assistant","content":"","usage":[7]}',
                '{"role":"tool","content":"","tool_results":"x"}',
            )
        ),
        '{"schema":"other","id":"1000000000000000000000000","agent_id":"a"}',
        '{"schema":' + "[" * 50_000,
    ],
)
def test_a_folder_that_is_not_true_is_refused(store: Store, tmp_path: Path, text: str) -> None:
    (tmp_path / "session.json").write_text(text)
    with pytest.raises((Corrupt, Invalid)):
        folder.read(store, tmp_path)
    assert not store.list_sessions()
