"""What is not provably the index of the store is never written or removed, whatever it is called."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import takeback
from takeback.storage.beside import SUFFIX

pytestmark = pytest.mark.feature("E10")


def _side(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "notes"


def _searched(path: Path) -> None:
    """Do everything that may write to the index, or begin a new one."""
    with takeback.open(path) as store:
        store.create_session("x").user("hello marmot")
        store.create_session("y").user("hello marmot")
        assert len(store.search("marmot", kinds=["message"])) == 2
        store.rebuild_search()
        store.purge_session("y")
        assert len(store.search("marmot", kinds=["message"])) == 1
    with takeback.open(path, read_only=True) as store:
        assert len(store.search("marmot", kinds=["message"])) == 1


def _database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript("CREATE TABLE customer (name TEXT); INSERT INTO customer VALUES ('Ada')")
    connection.close()


def _store(path: Path) -> None:
    with takeback.open(path) as store:
        store.create_session("precious").user("precious words")


@pytest.mark.promise("R23")
@pytest.mark.parametrize("made", [_database, _store])
@pytest.mark.parametrize("linked", [False, True])
def test_another_database_is_left_alone(
    path: Path, caplog: pytest.LogCaptureFixture, made: Callable[[Path], None], linked: bool
) -> None:
    if linked:
        made(path.with_name("elsewhere"))
        _side(path).symlink_to(path.with_name("elsewhere"))
    else:
        made(_side(path))
    before = _side(path).read_bytes()
    with caplog.at_level(logging.WARNING, "takeback"):
        _searched(path)
    assert _side(path).read_bytes() == before
    assert _side(path).is_symlink() == linked
    assert not os.path.exists(f"{_side(path)}-wal")
    said = [each.getMessage() for each in caplog.records if "is not the search index" in each.getMessage()]
    assert len(said) == 1, "once, by the one that would have kept it"


@pytest.mark.promise("R23")
def test_a_store_of_that_name_stays_whole_while_it_is_open(path: Path) -> None:
    with takeback.open(_side(path)) as other:
        other.create_session("precious").user("precious words")
        _searched(path)
        other.create_session("more").user("more words")
        assert [each.name for each in other.list_sessions()] == ["more", "precious"]
        assert not other.verify()


def test_a_check_says_what_lies_there(path: Path) -> None:
    _database(_side(path))
    with takeback.open(path) as store:
        store.create_session("x").user("hello marmot")
        assert "is not the search index" in store.check_search().problems[0].what
        _side(path).unlink()
    with takeback.open(path) as store:
        assert store.search("marmot")
        assert not store.check_search()
        assert _side(path).exists()


@pytest.mark.parametrize("kind", ["link to nothing", "pipe"])
def test_what_is_no_plain_file_is_left_alone(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(_side(path))
    else:
        _side(path).symlink_to(path.with_name("nothing"))
    before = os.lstat(_side(path))
    _searched(path)
    assert os.lstat(_side(path)) == before
    assert not path.with_name("nothing").exists()


def test_a_file_that_may_be_anything_gets_another_name(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in (1, 2):
        _side(path).write_text(f"my thesis, part {number}")
        with takeback.open(path) as store, caplog.at_level(logging.WARNING, "takeback"):
            store.create_session(f"x{number}").user("hello marmot")
            assert len(store.search("marmot", kinds=["message"])) == number
            assert not store.check_search()
        _side(path).unlink()
        aside = path.with_name(f"{_side(path).name}.damaged-{number}")
        assert aside.read_text() == f"my thesis, part {number}"
        assert str(aside) in caplog.text


@pytest.mark.parametrize("lost", [16, 100, 1000])
def test_an_index_without_its_header_is_known_by_its_schema(path: Path, lost: int) -> None:
    """It is removed then, since what is purged later must not stay in a copy of it."""
    with takeback.open(path) as store:
        store.create_session("x").user("hello marmot")
        assert store.search("marmot")
    code = "import os, sys\nf = open(sys.argv[1], 'r+b')\nf.write(os.urandom(int(sys.argv[2])))"
    subprocess.run([sys.executable, "-c", code, str(_side(path)), str(lost)], check=True, timeout=60)
    with takeback.open(path) as store:
        assert store.check_search()
        assert store.search("marmot")
        assert not store.check_search()
    assert not list(path.parent.glob("*.damaged-*"))
