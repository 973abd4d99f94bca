"""A purge erases a session from the timelines of its directories; nobody else is blamed for what it changed."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest
from _copied import assert_sound
from test_copy_timelines import change, seen

import takeback
from takeback import Session, Store
from takeback.ops import blobs
from takeback.tables import schema
from takeback.tables.content import CHUNK

pytestmark = [pytest.mark.feature("F14"), pytest.mark.feature("F1")]

CANARY, CONTENT = "canary-in-a-name", "canary in a content"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    (made / "kept").write_text("0")
    return made.resolve()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


def session(store: Store, name: str, work: Path) -> Session:
    return store.create_session(name, workspace=work)


def found_in(path: Path, *texts: str) -> set[str]:
    """Return the tables of a closed store in which one of some texts is left, in contents too."""
    database, tables = apsw.Connection(str(path)), set[str]()
    for table in schema.TABLES:
        for stored in database.execute(table.select):
            row = table.checked(stored)
            data = blobs.unpack(row) if table is CHUNK else repr(stored).encode()  # type: ignore[arg-type]
            if any(text.encode() in data for text in texts):
                tables.add(table.name)
    database.close()
    return tables


def test_nothing_of_a_purged_session_is_left_in_any_row(path: Path, work: Path) -> None:
    """Its scans, those that found its work for nobody, moves of files, and what is remembered for the next scan."""
    with takeback.open(path) as store:
        purged, other = session(store, "purged", work), session(store, "other", work)
        change(other, work, theirs="1")
        with purged:
            purged.user("go")
            with purged.tool("write", id=f"call {CANARY}"):
                (work / CANARY).write_text(CONTENT)
        place = store.workspace(work)
        with purged, purged.tool("write", id="again"):
            (work / CANARY).write_text(f"{CONTENT} again")
            place.preview_rewind(seen(store, work)[0]).apply()  # it is scanned for nobody first
        place.preview_rewind(seen(store, work)[-1], paths=[CANARY]).apply()
        assert not (work / CANARY).exists()
    before = found_in(path, CANARY, CONTENT)
    assert before >= {"touched", "scan", "operation", "chunk", "entry"}, before
    with takeback.open(path) as store:
        store.purge_session("purged")
        assert_sound(store)
        assert [scan.session_id for scan in seen(store, work)].count(other.id) == 2
    assert found_in(path, CANARY, CONTENT) == set()


def test_the_newest_scan_goes_with_its_session_and_the_next_one_starts_anew(path: Path, work: Path) -> None:
    """What is on disk can be captured again, but not whose it was: nobody who scans next is blamed for it."""
    with takeback.open(path) as store:
        other, purged = session(store, "other", work), session(store, "purged", work)
        change(other, work, theirs="1")
        change(purged, work, gone=CONTENT, kept="by the purged one")
        store.purge_session(purged)
        assert_sound(store)
        assert found_in_store(store, CONTENT) == 0
        change(other, work, theirs="2")
        assert_sound(store)
        rewind = other.preview_rewind(0)
        assert {each.path for each in rewind.files} == {"theirs"}
        assert rewind.unclear.keys() == {"gone", "kept"}
        assert (rewind.kept, rewind.others) == ((), ())
        rewind.apply()
        assert {each.name for each in work.iterdir()} == {"gone", "kept"}


def found_in_store(store: Store, text: str) -> int:
    """Count the contents of an open store that hold a text."""
    chunks = store._read(lambda tx: CHUNK.all(tx, "WHERE scope = ?", ("",)))
    return sum(text.encode() in blobs.unpack(each) for each in chunks)


def test_what_another_session_saw_stays_with_it(path: Path, work: Path) -> None:
    """It found the purged session's work, and its own snapshots hold that: only who made it is forgotten."""
    with takeback.open(path) as store:
        purged, other = session(store, "purged", work), session(store, "other", work)
        change(purged, work, gone=CONTENT)
        change(other, work, theirs="1")
        point = other.refresh().head.seq
        change(other, work, theirs="2")
        (work / "gone").unlink()
        store.purge_session(purged)
        assert_sound(store)
        assert "gone" not in {each.path for scan in seen(store, work) for each in scan.changes}
        rewind = other.preview_rewind(point, overwrite=["gone"])
        rewind.apply()
        assert (work / "gone").read_text() == CONTENT
        assert (work / "theirs").read_text() == "1"


def test_a_call_of_a_purged_session_that_was_owed_is_nobody_elses(path: Path, work: Path) -> None:
    """It ended while nothing could be scanned; what it left is found after the purge, and is not the other's."""
    with takeback.open(path) as store:
        other, purged = session(store, "other", work), session(store, "purged", work)
        change(other, work, theirs="1")
        with purged, purged.tool("write"):
            (work / "gone").write_text("1")
            work.rename(work.with_name("away"))
        work.with_name("away").rename(work)
        store.purge_session(purged)
        change(other, work, theirs="2")
        assert_sound(store)
        rewind = other.preview_rewind(0)
        assert {each.path for each in rewind.files} == {"theirs"}
        assert "gone" in {*rewind.kept, *rewind.others, *rewind.unclear}


def test_a_purge_of_many_files_at_once_leaves_none_of_their_names(path: Path, work: Path) -> None:
    with takeback.open(path, durability="relaxed") as store:
        other, purged = session(store, "other", work), session(store, "purged", work)
        change(other, work, theirs="1")
        change(purged, work, **{f"{CANARY} {number}": "" for number in range(2100)})
        store.workspace(work).preview_rewind(seen(store, work)[-1], paths=[f"{CANARY} 7"]).apply()
        for each in work.glob("canary*"):
            each.unlink()
        store.purge_session(purged)
        assert_sound(store)
        assert other.preview_rewind(0).files
    assert found_in(path, CANARY) == set()


def test_unreferenced_contents_are_those_that_no_scan_names(path: Path, work: Path) -> None:
    """Of a timeline that nobody's session names any more, every step can still be gone back to."""
    with takeback.open(path) as store:
        change(session(store, "one", work), work, kept="1", more="1")
        first = seen(store, work)[-1]
        place = store.workspace(work)
        (work / "kept").write_text("by hand")
        place.preview_rewind(first, paths=["more"]).apply()  # the scan before it is of no session
        (by_hand,) = [scan for scan in seen(store, work) if scan.session_id is None and not scan.operation]
        (work / "kept").write_text("later")
        store.prune("unreferenced", dry_run=False, spare_seconds=0)
        assert_sound(store)
        place.preview_rewind(by_hand, paths=["kept"]).apply()
        assert (work / "kept").read_text() == "by hand"
