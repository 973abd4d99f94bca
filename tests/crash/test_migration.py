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
from takeback.testing.faults import MODES, FaultyVFS, Mode

from . import _harness, _newer
from ._harness import Child, ChildDied, copy_store, in_child, told

pytestmark = [pytest.mark.promise("R22"), pytest.mark.feature("C5")]


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Takeback that knows two schemas more."""
    return _newer.make(tmp_path_factory.mktemp("package"))


def _make(path: Path) -> Any:
    with takeback.open(path) as store:
        session = store.create_session("old")
        session.append(*({"role": "user", "content": f"message {number}"} for number in range(60)))
        session.rewind(40)
        session.user("another way")
        return _harness.picture(store)


def _look(path: Path) -> Any:
    """Open a store, without faults, and give what it holds."""
    import takeback

    with takeback.open(path) as store:
        report = store.verify()
        assert not report, str(report)
        return _harness.picture(store)


def _look_as(newer: Path, path: Path) -> Any:
    _newer.become(newer)
    return _look(path)


def _made(path: Path) -> Any:
    """Return the version of a store and its schema: the tables with their columns, and the indexes."""
    connection = apsw.Connection(os.fspath(path))
    version = connection.execute("SELECT max(version) FROM migration").get
    tables = """SELECT t.type, t.name, coalesce(c.name, '') FROM sqlite_schema t LEFT JOIN pragma_table_info(t.name) c
    ON t.type = 'table' ORDER BY 1, 2, 3"""
    schema = [list(row) for row in connection.execute(tables)]
    connection.close()
    return [version, schema]


def _all_of(path: Path) -> Any:
    return [_look(path), _made(path)]


def _open_with_a_fault(path: Path, number: int, mode: Mode) -> bool:
    """Open a store, so make or migrate it, while the n-th call fails; say whether there was such a call."""
    from takeback.client.store import Store
    from takeback.clock import SystemClock
    from takeback.errors import Error
    from takeback.storage.sqlite import SqliteBackend

    vfs = FaultyVFS()
    vfs.arm(number, mode)
    try:
        backend = SqliteBackend(os.fspath(path), vfs=vfs.name, sync=vfs.sync)
        store = Store(backend, clock=SystemClock(), url=os.fspath(path))
    except Error:
        assert vfs.fired, "it failed without a fault"
        return True
    happened = bool(vfs.fired)
    store.close()
    return happened


def _at_every_call(newer: Path, mode: Mode, template: Path | None, place: Path, held: Any, step: int = 1) -> int:
    """Let the calls of an opening fail, one after another until none is left to fail; give how many there were.

    Each time the store is opened again without faults: it holds what it held, and is of the newest version.
    """
    _newer.become(newer)
    reference = place / "new" / "a.db"
    expected = [held, in_child(_all_of, reference)[1]]
    assert expected[1][0] == _newer.LATEST
    for number in range(1, 2000, step):
        path = place / f"{number}" / "a.db" if template is None else copy_store(template, place / "trial")
        with told(call=number, mode=mode):
            happened = _fails(path, number, mode)
            assert in_child(_all_of, path) == expected
            assert _harness.files_beside(path) == _harness.AFTER_A_CLEAN_CLOSE
        if not happened:
            return number // step
    raise AssertionError("a migration that never ends")


def _fails(path: Path, number: int, mode: Mode) -> bool:
    try:
        return bool(in_child(_open_with_a_fault, path, number, mode))
    except ChildDied:
        assert mode == "kill"
        return True


@pytest.mark.slow
def test_a_kill_at_any_write_of_a_migration_loses_nothing(
    tmp_path: Path, newer: Path, tally: Callable[..., int]
) -> None:
    template = tmp_path / "template" / "a.db"
    held = in_child(_make, template)
    points = in_child(_at_every_call, newer, "kill", template, tmp_path, held, timeout=600)
    assert points > 20
    tally("R22 kills in a migration", points)


@pytest.mark.slow
def test_a_kill_at_any_write_of_the_first_open_leaves_a_place_that_opens(
    tmp_path: Path, newer: Path, tally: Callable[..., int], counts: Callable[[int, int], int]
) -> None:
    step = counts(3, 1)
    points = in_child(_at_every_call, newer, "kill", None, tmp_path, [], step, timeout=600)
    assert points > 50 // step
    tally("R22 kills in a migration", points)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_failing_disk_at_any_call_of_a_migration_loses_nothing(
    tmp_path: Path, newer: Path, tally: Callable[..., int], mode: Mode
) -> None:
    template = tmp_path / "template" / "a.db"
    held = in_child(_make, template)
    points = in_child(_at_every_call, newer, mode, template, tmp_path, held, timeout=600)
    assert points > 20
    tally("R22 faults in a migration", points)


@pytest.mark.slow
def test_many_processes_migrate_a_store_at_once(tmp_path: Path, newer: Path) -> None:
    path, barrier = tmp_path / "a" / "a.db", _harness.Barrier()
    held = in_child(_make, path)

    def work() -> Any:
        _newer.become(newer)
        barrier.wait()
        return _look(path)

    children = [Child(work) for _ in range(8)]
    barrier.open()
    for child in children:
        assert child.result() == held
    assert in_child(_made, path)[0] == _newer.LATEST


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


def test_an_older_takeback_refuses_what_a_newer_one_migrated(tmp_path: Path, newer: Path) -> None:
    path = tmp_path / "a.db"
    held = in_child(_make, path)
    assert in_child(_look_as, newer, path) == held
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
        return _look(path)

    assert [session["name"] for session in in_child(work)] == ["first"]
