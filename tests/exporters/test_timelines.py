"""A timeline from a file tells whose changes were whose, and is never that of a directory here."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from _made import lines_of

import takeback
from _forged import _sealed
from takeback import Corrupt, Invalid, Session, Store
from takeback.records import lines

pytestmark = [pytest.mark.promise("R27"), pytest.mark.trial("T1"), pytest.mark.feature("F9")]

Lines = list[Any]
replace = msgspec.structs.replace


@pytest.fixture
def work(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    (made / "shared").write_text("0")
    return made.resolve()


def change(session: Session, work: Path, **files: str) -> None:
    with session, session.tool("write"):
        for name, text in files.items():
            (work / name).write_text(text)


@pytest.fixture
def filled(store: Store, work: Path) -> Store:
    """Two sessions in one directory; a call of the second was open when the first one's ended."""
    one, two = (store.create_session(name, workspace=work) for name in ("one", "two"))
    change(one, work, own="1")
    with two, two.tool("write", {"path": "theirs"}), one, one.tool("write", {"path": "own"}):
        (work / "own").write_text("2")
        (work / "theirs").write_text("1")
        (work / "both").write_text("1")
    return store


def seen(store: Store, work: Path) -> list[Any]:
    return [*store.workspace(work).timeline(limit=100)]


def load(store: Store, data: bytes) -> Any:
    return store.load(io.BytesIO(data))


def parsed(data: bytes) -> Lines:
    return [lines.decode(line) for line in data.splitlines(keepends=True)][:-1]


def test_a_loaded_timeline_is_of_no_directory_and_gives_the_same_file_again(filled: Store, work: Path) -> None:
    data = lines_of(filled)
    with takeback.open(":memory:") as target:
        load(target, data)
        assert seen(target, work) == []
        assert lines_of(target) == data
        load(target, data)
        assert lines_of(target) == data
        assert not target.verify()
        assert [each.path for each in target.get_session("one").files()] == ["own"]


def test_a_file_names_no_machine_and_only_its_own_sessions(filled: Store, work: Path) -> None:
    one, two = filled.get_session("one"), filled.get_session("two")
    row = filled._read(lambda tx: tx.one("SELECT machine, identity FROM workspace"))
    data = lines_of(filled, one)
    assert not any(each.encode() in data for each in row if each)
    assert two.id.encode() not in data
    scans = [line for line in parsed(data) if isinstance(line, lines.ScanLine)]
    assert {scan.session for scan in scans} == {one.id}
    named = {name for scan in scans for _, who in scan.authors for name, _ in who}
    assert named == {one.id, None}, "a session that is not in the file has no name"


def test_a_file_adds_nothing_to_a_timeline_that_is_known_at_first_hand(filled: Store, work: Path) -> None:
    """Whoever was sent an export knows the ids in it, and could write one that goes on with them."""
    found = parsed(lines_of(filled))
    (place,) = (line for line in found if isinstance(line, lines.WorkspaceLine))
    last = next(line for line in reversed(found) if isinstance(line, lines.ScanLine))
    at = found.index(last) + 1
    forged = replace(last, n=place.tip + 1, touched=(({"$text": "forged"}, 0, "create"),))
    found[at:at] = [forged]
    found[found.index(place)] = replace(place, tip=place.tip + 1, path=str(work))
    before, plan = seen(filled, work), str(filled.get_session("one").preview_rewind(0))
    load(filled, _sealed(found))
    assert (seen(filled, work), str(filled.get_session("one").preview_rewind(0))) == (before, plan)
    assert not filled.verify()


def test_the_timeline_itself_takes_the_place_of_one_from_a_file(filled: Store, work: Path) -> None:
    with takeback.open(":memory:") as target:
        load(target, lines_of(filled, filled.get_session("one")))
        takeback.copy(filled, target)
        assert seen(target, work) == seen(filled, work)
        assert not target.verify()


def scan(found: Lines, **values: Any) -> Lines:
    """Change the last scan."""
    last = next(line for line in reversed(found) if isinstance(line, lines.ScanLine))
    return [replace(line, **values) if line is last else line for line in found]


def place(found: Lines, **values: Any) -> Lines:
    return [replace(line, **values) if isinstance(line, lines.WorkspaceLine) else line for line in found]


def touched(path: Any, author: Any = 0, action: Any = "create") -> Callable[[Lines], Lines]:
    return lambda found: scan(found, touched=((path, author, action),))


def swapped(found: Lines) -> Lines:
    """Let the scans stand before their workspace."""
    scans = [line for line in found if isinstance(line, lines.ScanLine)]
    rest = [line for line in found if not isinstance(line, lines.ScanLine)]
    at = next(at for at, line in enumerate(rest) if isinstance(line, lines.WorkspaceLine))
    return [*rest[:at], *scans, *rest[at:]]


FORGED: dict[str, Callable[[Lines], Lines]] = {
    "a path above the directory": touched({"$text": "../x"}),
    "an absolute path": touched({"$text": "/etc/passwd"}),
    "a path of a repository": touched({"$text": "a/.git/config"}),
    "a path without a name": touched({"$text": ""}),
    "a path with a NUL": touched({"$text": "a\0b"}),
    "a path that is a number": touched({"$base64": 5}),
    "an author who is not there": touched({"$text": "x"}, author=7),
    "an author before the first one": touched({"$text": "x"}, author=-1),
    "an action that is none": touched({"$text": "x"}, action="run"),
    "authors that are no list": lambda found: scan(found, authors="x"),
    "authors that are numbers": lambda found: scan(found, authors=((1, ()),)),
    "an author of no kind": lambda found: scan(found, authors=(("anybody", ()),), touched=()),
    "nobody who changed anything": lambda found: scan(found, authors=(), touched=()),
    "a scan behind the last one": lambda found: scan(found, n=99),
    "a scan before the first one": lambda found: scan(found, n=0),
    "a scan with a number that none has": lambda found: scan(found, n=1 << 60),
    "a scan that goes back to a later one": lambda found: scan(found, as_of=50),
    "a scan of another workspace": lambda found: scan(found, workspace="0" * 25),
    "a scan whose files are not there": lambda found: scan(found, root="0" * 64),
    "scans before their workspace": swapped,
    "a workspace without an id": lambda found: place(found, id="../../x"),
    "a workspace with a huge number of scans": lambda found: place(found, tip=1 << 60),
    "a workspace whose path moves the cursor": lambda found: place(found, path="\x1b[2J"),
    "a workspace twice": lambda found: [
        each for line in found for each in ([line, line] if isinstance(line, lines.WorkspaceLine) else [line])
    ],
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_timeline_is_refused_and_nothing_is_imported(filled: Store, name: str) -> None:
    made = _sealed(FORGED[name](parsed(lines_of(filled))))
    with takeback.open(":memory:") as target:
        with pytest.raises((Invalid, Corrupt)):
            load(target, made)
        assert not list(target.iter_sessions())
        assert target._read(lambda tx: tx.one("SELECT count(*) FROM workspace")) == (0,)
