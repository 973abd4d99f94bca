"""T6, P13: what opening a store reads does not grow with what the store holds, however its last user ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

import takeback
from takeback.storage.sqlite import SqliteBackend

from ._harness import ChildDied, in_child

pytestmark = [pytest.mark.trial("T6"), pytest.mark.promise("P13")]

_FEW, _MANY = 10, 3000


class _CountingVFS(apsw.VFS):
    """SQLite's own file access, which counts the reads of pages."""

    def __init__(self) -> None:
        self.name, self.reads = "takeback-counting", 0
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        vfs = self

        class File(apsw.VFSFile):
            def xRead(self, amount: int, offset: int) -> bytes:
                vfs.reads += 1
                return super().xRead(amount, offset)

        return File("", name, flags)


def _make(path: Path, sessions: int) -> None:
    with takeback.open(path, durability="relaxed") as store:
        store.create_session("talk").user("hello")
        for _ in range(sessions):
            store.create_session(tags=["a"])


def _close(path: Path) -> None:
    with takeback.open(path) as store:
        store.get_session("talk").user("again")


def _die(path: Path) -> None:
    store = takeback.open(path)
    store.get_session("talk").user("again")
    os.kill(os.getpid(), signal.SIGKILL)


_SCRIPT = "import sys, takeback; takeback.open(sys.argv[1]).get_session('talk').user('again')"


def _use(path: Path, end: str) -> None:
    """Use a store in a process that closes it, is killed, or ends as a script does that never closes anything."""
    if end == "ended":
        subprocess.run([sys.executable, "-c", _SCRIPT, path], check=True)
    elif end == "closed":
        in_child(_close, path)
    else:
        with pytest.raises(ChildDied):
            in_child(_die, path)


def _open(path: Path, read_only: bool) -> int:
    """Open and close a store; return how many pages that read."""
    vfs = _CountingVFS()
    backend = SqliteBackend(os.fspath(path), vfs=vfs.name, read_only=read_only)
    assert not backend.suspect
    backend.close()
    return vfs.reads


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two stores: one with few sessions, one with many."""
    made = [tmp_path_factory.mktemp(str(count)) / "a.db" for count in (_FEW, _MANY)]
    for path, count in zip(made, (_FEW, _MANY), strict=True):
        in_child(_make, path, count)
    return made


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("end", ["closed", "killed", "ended"])
def test_opening_reads_no_more_in_a_store_of_many_sessions(places: list[Path], end: str, read_only: bool) -> None:
    reads = list[int]()
    for path in places:
        _use(path, end)
        reads.append(in_child(_open, path, read_only))
    few, many = reads
    assert 0 < many <= 1.3 * few, reads


def test_a_store_that_others_changed_is_checked_once(places: list[Path]) -> None:
    """Its copy is another file; once it was found sound, even a kill costs no second check."""

    def is_suspect(path: Path) -> bool:
        backend = SqliteBackend(os.fspath(path), read_only=True)
        found = backend.suspect
        backend.close()
        return found

    few = places[0]
    assert not in_child(is_suspect, few)
    os.utime(few)
    assert in_child(is_suspect, few)
    _use(few, "killed")
    assert not in_child(is_suspect, few)


def test_a_merge_of_the_log_is_no_change_by_others(tmp_path: Path) -> None:
    """SQLite merges a long log by itself; a kill later leaves a file that looks as the merge left it."""

    def write() -> None:
        store = takeback.open(tmp_path / "a.db")
        session = store.create_session("talk")
        before = os.stat(tmp_path / "a.db")
        while os.stat(tmp_path / "a.db").st_mtime_ns == before.st_mtime_ns:
            session.append(*({"role": "user", "content": "x" * 3000} for _ in range(50)))
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ChildDied):
        in_child(write)
    assert in_child(_open, tmp_path / "a.db", False)
