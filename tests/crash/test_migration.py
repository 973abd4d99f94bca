"""R22: opening old, new and foreign files. A migration is done or not done, whenever the process dies."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import takeback
from takeback.storage import migrate
from takeback.testing.faults import MODES, FaultyVFS, Mode

from . import _harness
from ._harness import Child, ChildDied, copy_store, in_child, open_through, told

pytestmark = [pytest.mark.promise("R22"), pytest.mark.feature("C5")]

# Two schemas that are still to come: one adds, one rebuilds a table.
_NEXT = [
    """ALTER TABLE session ADD COLUMN colour TEXT;
    CREATE TABLE later (a INTEGER PRIMARY KEY, b TEXT) STRICT;
    INSERT INTO later SELECT key, kind FROM entry;""",
    """CREATE TABLE later2 (a INTEGER PRIMARY KEY, c TEXT) STRICT;
    INSERT INTO later2 SELECT a, b || '!' FROM later;
    DROP TABLE later;
    ALTER TABLE later2 RENAME TO later;
    CREATE INDEX later_c ON later (c);""",
]


def _become_the_next_version() -> None:
    """Make this process, a child, a Takeback that knows two schemas more."""
    known = migrate.load()
    more = [migrate.Migration(len(known) + number, f"next{number}", sql) for number, sql in enumerate(_NEXT, 1)]
    migrate.load = lambda: [*known, *more]  # type: ignore[assignment]


def _make(path: Path) -> Any:
    with takeback.open(path) as store:
        session = store.create_session("old")
        session.append(*({"role": "user", "content": f"message {number}"} for number in range(60)))
        session.rewind(40)
        session.user("another way")
        return _harness.picture(store)


def _look(path: Path, *, upgrade: bool) -> Any:
    """Open a store, without faults, and give what it holds."""
    if upgrade:
        _become_the_next_version()
    with takeback.open(path) as store:
        report = store.verify()
        assert not report, str(report)
        return _harness.picture(store)


def _version(path: Path) -> int:
    connection = apsw.Connection(os.fspath(path))
    found = connection.execute("SELECT max(version) FROM migration").get
    connection.close()
    return int(found)


def _open_with_a_fault(path: Path, number: int, mode: Mode) -> bool:
    """Migrate while the n-th call fails; say whether there was such a call."""
    _become_the_next_version()
    vfs = FaultyVFS()
    vfs.arm(number, mode)
    try:
        store = open_through(vfs, path)
    except takeback.Error:
        assert vfs.fired, "it failed without a fault"
        return True
    happened = bool(vfs.fired)
    store.close()
    return happened


def _go_through_all(run: Callable[[int], bool]) -> int:
    """Call ``run`` with 1, 2, 3 ... until it says that there was nothing left to fail; give the count."""
    for number in range(1, 2000):
        if not run(number):
            return number - 1
    raise AssertionError("a migration that never ends")


def _opens_and_dies(path: Path, number: int) -> bool:
    try:
        return bool(in_child(_open_with_a_fault, path, number, "kill"))
    except ChildDied:
        return True


@pytest.mark.slow
def test_a_kill_at_any_write_of_a_migration_loses_nothing(tmp_path: Path, tally: Callable[..., int]) -> None:
    template = tmp_path / "template" / "a.db"
    held = in_child(_make, template)
    latest = len(migrate.load())

    def run(number: int) -> bool:
        path = copy_store(template, tmp_path / "trial")
        with told(call=number):
            died = _opens_and_dies(path, number)
            assert in_child(_look_upgraded, path) == held
            assert in_child(_version, path) == latest + len(_NEXT)
            assert _harness.files_beside(path) == _harness.AFTER_A_CLEAN_CLOSE
        return died

    points = _go_through_all(run)
    assert points > 20
    tally("R22 kills in a migration", points)


def _look_upgraded(path: Path) -> Any:
    return _look(path, upgrade=True)


@pytest.mark.slow
def test_a_kill_at_any_write_of_the_first_open_leaves_a_place_that_opens(
    tmp_path: Path, tally: Callable[..., int]
) -> None:
    def run(number: int) -> bool:
        path = tmp_path / f"{number}" / "a.db"
        with told(call=number):
            died = _opens_and_dies(path, number)
            assert in_child(_look_upgraded, path) == []
            assert _harness.files_beside(path) == _harness.AFTER_A_CLEAN_CLOSE
        return died

    points = _go_through_all(run)
    assert points > 50
    tally("R22 kills in a migration", points)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_failing_disk_at_any_call_of_a_migration_loses_nothing(
    tmp_path: Path, tally: Callable[..., int], mode: Mode
) -> None:
    template = tmp_path / "template" / "a.db"
    held = in_child(_make, template)

    def run(number: int) -> bool:
        path = copy_store(template, tmp_path / "trial")
        with told(call=number, mode=mode):
            happened = bool(in_child(_open_with_a_fault, path, number, mode))
            assert in_child(_look_upgraded, path) == held
        return happened

    points = _go_through_all(run)
    assert points > 20
    tally("R22 faults in a migration", points)


@pytest.mark.slow
def test_many_processes_migrate_a_store_at_once(tmp_path: Path) -> None:
    path, barrier = tmp_path / "a" / "a.db", _harness.Barrier()
    held = in_child(_make, path)

    def work() -> Any:
        barrier.wait()
        return _look(path, upgrade=True)

    children = [Child(work) for _ in range(8)]
    barrier.open()
    for child in children:
        assert child.result() == held
    assert in_child(_version, path) == len(migrate.load()) + len(_NEXT)


# ---------------------------------------------------------------------- files that are not ours to change


def _bytes(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _refusal(path: Path, *, read_only: bool = False) -> str:
    try:
        takeback.open(path, read_only=read_only).close()
    except takeback.Error as error:
        return f"{error.code}: {error}"
    return "opened"


def test_a_newer_schema_is_refused_clearly_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"

    def make() -> None:
        _make(path)
        connection = apsw.Connection(os.fspath(path))
        connection.execute("INSERT INTO migration VALUES (999, 'far ahead', 0, 0)")
        connection.close()

    in_child(make)
    before = _bytes(path)
    for read_only in (False, True):
        said = in_child(lambda read_only=read_only: _refusal(path, read_only=read_only))
        assert said.startswith("schema_too_new: "), said
        assert "999" in said
        assert "pip install --upgrade takeback" in said
        assert _bytes(path) == before


def test_an_older_takeback_refuses_what_a_newer_one_migrated(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    in_child(_make, path)
    in_child(_look_upgraded, path)
    before = _bytes(path)
    assert in_child(_refusal, path).startswith("schema_too_new: ")
    assert _bytes(path) == before


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_the_database_of_another_program_is_refused_and_left_alone(tmp_path: Path, journal: str) -> None:
    path = tmp_path / "a.db"
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("CREATE TABLE theirs (a)")
        connection.execute("INSERT INTO theirs VALUES (1)")
    connection.close()
    before = _bytes(path)
    assert in_child(_refusal, path).startswith("invalid: ")
    assert _bytes(path) == before
    assert in_child(lambda: _refusal(path, read_only=True)).startswith("invalid: ")
    assert _bytes(path) == before
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == (journal,)
        assert connection.execute("SELECT * FROM theirs").fetchall() == [(1,)]
    connection.close()


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_text("Dear diary, " * 1000)
    before = _bytes(path)
    assert in_child(_refusal, path).split(":")[0] in ("corrupt", "invalid")
    assert _bytes(path) == before


def test_a_file_of_no_length_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch()

    def work() -> Any:
        with takeback.open(path) as store:
            store.create_session("first").user("hello")
        return _look(path, upgrade=False)

    assert [session["name"] for session in in_child(work)] == ["first"]
