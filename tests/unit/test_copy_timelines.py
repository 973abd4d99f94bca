"""Timelines go wherever their store goes: who changed what is the same in a copy, on another engine, after a repair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from _copied import OPENERS, Interrupted, assert_sound, interruptible, memory, small_pages
from _damages import rot  # noqa: F401

import takeback
from takeback import Copying, Session, Store

pytestmark = [pytest.mark.feature("C6"), pytest.mark.feature("F14"), pytest.mark.promise("R12")]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    (made / "shared").write_text("0")
    return made.resolve()


def change(session: Session, work: Path, **files: str) -> None:
    """Let a tool of a session write files."""
    with session, session.tool("write"):
        for name, text in files.items():
            (work / name).write_text(text)


def fill(store: Store, work: Path) -> tuple[Session, Session]:
    """Let two sessions and a person change files; the first session took something back."""
    mine, other = (store.create_session(name, workspace=work) for name in ("mine", "other"))
    for session in (mine, other):
        session.user("go")
    change(mine, work, own="1", shared="mine")
    change(other, work, theirs="1", shared="theirs")
    (work / "person").write_text("1")
    change(mine, work, own="2", late="1")
    store.workspace(work).preview_rewind((mine, 3), paths=["late"]).apply()
    return mine.refresh(), other.refresh()


def seen(store: Store, work: Path) -> list[Any]:
    """Return the timeline of a directory, as callers see it."""
    return [*store.workspace(work).timeline(limit=100)]


def plan(store: Store) -> tuple[Any, ...]:
    """Return what going back would do: nothing but the timeline tells whose each path is."""
    rewind = store.get_session("mine").preview_rewind(0)
    return rewind.files, rewind.kept, rewind.others, rewind.other_sessions, rewind.unclear


@pytest.mark.parametrize("engine", ["file", "postgres"])
def test_a_timeline_is_the_same_in_a_copy_on_any_engine_and_back(tmp_path: Path, work: Path, engine: str) -> None:
    with memory() as source, OPENERS[engine](tmp_path / "a.db") as middle, memory() as back:
        fill(source, work)
        wanted = seen(source, work), plan(source)
        assert {change.kind for scan in wanted[0] for change in scan.changes} == {"calls", "outside", "restore"}
        for one, two in ((source, middle), (middle, back)):
            takeback.copy(one, two)
            assert (seen(two, work), plan(two)) == wanted
            assert_sound(two)
            takeback.copy(one, two)
            assert seen(two, work) == wanted[0]
        operation = next(each for each in back.operations() if each.session_id is None)
        back.undo(operation.id)
        assert (work / "late").read_text() == "1"


def test_a_timeline_is_the_same_after_a_repair(tmp_path: Path, work: Path) -> None:
    with takeback.open(tmp_path / "a.db") as source:
        fill(source, work)
        wanted, done = (seen(source, work), plan(source)), source.repair()
    assert not done.lost
    with takeback.open(done.path) as copy:
        assert (seen(copy, work), plan(copy)) == wanted


def test_what_is_new_in_a_timeline_follows(work: Path) -> None:
    with memory() as source, memory() as target:
        _, other = fill(source, work)
        takeback.copy(source, target)
        change(other, work, theirs="2", own="taken")
        takeback.copy(source, target)
        assert (seen(target, work), plan(target)) == (seen(source, work), plan(source))
        assert target.get_session("mine").preview_rewind(0).others == ("own", "shared", "theirs")
        assert_sound(target)


def test_interrupted_before_any_write_it_never_says_more_than_it_knows_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, work: Path
) -> None:
    small_pages(monkeypatch, 2)
    left = [10**9]
    with memory() as source:
        fill(source, work)
        wanted, steps = seen(source, work), set[int]()
        number = 0
        while True:
            with interruptible(left) as target:
                left[0] = number
                try:
                    takeback.copy(source, target)
                    break
                except Interrupted:
                    left[0] = 10**9
                assert_sound(target)
                found = seen(target, work)
                told = {scan.id: {each.path for each in scan.changes} for scan in found}
                assert told.items() <= {scan.id: {each.path for each in scan.changes} for scan in wanted}.items()
                steps.add(len(found))
                takeback.copy(source, target)
                assert seen(target, work) == wanted
                assert_sound(target)
            left[0], number = 10**9, number + 1
        assert {0, len(wanted)} < steps, "scans come one after another"


def test_who_changed_what_a_missing_scan_found_is_unclear(work: Path) -> None:
    """A copy of one session has the scans that were made for it; nobody else's change is taken for its own."""
    with memory() as source, memory() as target:
        mine, _ = fill(source, work)
        takeback.copy(source, target, sessions=[mine])
        assert [scan.session_id for scan in seen(target, work)] == [mine.id] * 4
        rewind = target.get_session("mine").preview_rewind(0)
        assert {each.path for each in rewind.files} == {"own"}
        assert rewind.kept == ("person",)
        assert rewind.unclear.keys() == {"shared", "theirs"}
        assert_sound(target)
        change(target.get_session("mine"), work, own="3")
        newest, before = seen(target, work)[:2]
        assert [each.path for each in newest.changes] == ["own"]
        assert before.changes == (), "what others had done by then is not known"
        assert target.get_session("mine").preview_rewind(0).unclear.keys() == {"shared", "theirs"}


def test_a_change_between_two_of_a_session_is_kept_though_nobody_knows_whose_it_is(work: Path) -> None:
    with memory() as source, memory() as target:
        mine, _ = fill(source, work)
        change(mine, work, shared="mine again")
        takeback.copy(source, target, sessions=[mine])
        rewind = target.get_session("mine").preview_rewind(0)
        assert {each.path for each in rewind.files} == {"own", "shared"}
        rewind.apply()
        assert (work / "shared").read_text() == "theirs"


def test_the_scans_that_are_missing_come_with_the_rest(work: Path) -> None:
    with memory() as source, memory() as target:
        mine, _ = fill(source, work)
        takeback.copy(source, target, sessions=[mine])
        takeback.copy(source, target)
        assert (seen(target, work), plan(target)) == (seen(source, work), plan(source))
        assert_sound(target)


def test_a_timeline_that_went_on_in_both_stores_stays_as_it_is_in_each(work: Path) -> None:
    with memory() as source, memory() as target:
        _, other = fill(source, work)
        takeback.copy(source, target)
        change(target.create_session("third", workspace=work), work, third="1")
        change(other, work, theirs="2")
        before = seen(target, work)
        done = takeback.copy(source, target)
        assert any("the timeline of" in each and "stays as it is" in each for each in done.left_out), done
        assert seen(target, work) == before
        assert_sound(target)


def test_a_directory_that_the_destination_knows_keeps_its_own_timeline(work: Path) -> None:
    with memory() as source, memory() as target:
        change(target.create_session("third", workspace=work), work, third="1")
        before = seen(target, work)
        fill(source, work)
        for _ in range(2):
            done = takeback.copy(source, target)
            assert seen(target, work) == before
            assert_sound(target)
        assert not done.left_out, "said once, when it came"
        rewind = target.get_session("mine").preview_rewind(0)
        assert not rewind.files, "its files were captured by another timeline"
        assert [each.path for each in target.get_session("mine").files()] == [
            each.path for each in source.get_session("mine").files()
        ]


def test_what_is_purged_in_the_source_meanwhile_is_erased_from_the_timeline_of_the_copy(work: Path) -> None:
    with memory() as source, memory() as target:
        _, other = fill(source, work)

        def purge(progress: Copying) -> None:
            if progress.phase == "sessions" and source.find_session("other") is not None:
                source.purge_session(other)

        takeback.copy(source, target, progress=purge)
        assert [scan.purged for scan in seen(target, work)] == [scan.purged for scan in seen(source, work)]
        assert any(scan.purged for scan in seen(target, work))
        assert "theirs" not in {each.path for scan in seen(target, work) for each in scan.changes}
        assert_sound(target)
