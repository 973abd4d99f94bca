"""The index of a SQLite store is a file of its own: in the way of nothing, lost without loss, and erased when asked."""

from __future__ import annotations

import os
import random
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import takeback
from takeback import Store
from takeback.storage.beside import SIDES, SUFFIX

WRITERS = 4
CANARY = "xylophonecanary"
WORDS = ("lostword", "newword")


def _side(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with takeback.open(path) as store:
        yield store


def _filled(store: Store, count: int = 40) -> None:
    session = store.create_session("filled")
    for number in range(count):
        session.user(f"the marmot number{number} of many")


def _all(store: Store, word: str = "marmot") -> int:
    return len(store.search(word, kinds=["message"], limit=1000))


@pytest.mark.feature("E10")
def test_the_file_is_private_and_beside_the_store(store: Store, path: Path) -> None:
    assert not _side(path).exists(), "a store that nobody searched has no index"
    _filled(store)
    before = store.stats().total_bytes
    assert _all(store) == 40
    assert stat.S_IMODE(_side(path).stat().st_mode) == 0o600
    assert store.stats().total_bytes > before


@pytest.mark.feature("E10")
def test_a_write_touches_no_index(store: Store, path: Path) -> None:
    _filled(store, 3)
    _all(store)
    before = [os.stat(f"{_side(path)}{each}").st_mtime_ns for each in SIDES if os.path.exists(f"{_side(path)}{each}")]
    _filled_more(store)
    after = [os.stat(f"{_side(path)}{each}").st_mtime_ns for each in SIDES if os.path.exists(f"{_side(path)}{each}")]
    assert before == after
    assert _all(store) == 4


def _filled_more(store: Store) -> None:
    store.get_session("filled").user("one more marmot")


# Each damages the file of the index in one way; run by another process, as a person or a failing disk would.
DAMAGES = {
    "deleted": "os.unlink(path)",
    "deleted with its log": "[os.unlink(path + s) for s in ('', '-wal', '-shm') if os.path.exists(path + s)]",
    "emptied": "open(path, 'wb').close()",
    "overwritten": "open(path, 'wb').write(b'not a database' * 1000)",
    "its middle overwritten": "f = open(path, 'r+b'); f.seek(size // 2); f.write(os.urandom(size // 3))",
    "its header overwritten": "f = open(path, 'r+b'); f.write(os.urandom(100))",
    "cut short": "os.truncate(path, size // 2)",
    "replaced by a directory of another store": "os.unlink(path); shutil.copy(other, path)",
}
SHADOWS = ("found_data", "found_idx", "found_docsize", "found_config", "part_data", "part_idx", "word", "search_doc")
SHADOWS = (*SHADOWS, "search_place", "search_session", "search_state", "search_branch")


def _damage(what: str, path: Path, other: Path) -> None:
    code = f"import os, shutil, sys\npath, other = sys.argv[1:]\nsize = os.path.getsize(path)\n{what}"
    subprocess.run([sys.executable, "-c", code, str(path), str(other)], check=True, timeout=60)


@pytest.mark.feature("E10")
@pytest.mark.promise("R23")
@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_file_stops_nothing(path: Path, tmp_path: Path, how: str) -> None:
    """Appends go on, ``check_search`` says what is wrong, and the next search finds everything."""
    other = tmp_path / "other.db"
    with takeback.open(other) as elsewhere:
        _filled(elsewhere, 5)
        _all(elsewhere)
    with takeback.open(path) as store:
        _filled(store)
        assert _all(store) == 40
    _damage(DAMAGES[how], _side(path), _side(other))
    with takeback.open(path) as store:
        _filled_more(store)
        assert store.check_search() or not _side(path).exists()
        assert _all(store) == 41
        assert not store.check_search()
        assert not store.verify()


@pytest.mark.feature("E10")
@pytest.mark.promise("R23")
@pytest.mark.parametrize("table", SHADOWS)
def test_a_damaged_table_stops_nothing(path: Path, table: str) -> None:
    how = "DROP TABLE {}" if len(table) % 2 else "DELETE FROM {}"
    with takeback.open(path) as store:
        _filled(store)
        assert _all(store) == 40
    code = "import apsw, sys\nc = apsw.Connection(sys.argv[1])\nc.execute(sys.argv[2])\nc.close()"
    subprocess.run([sys.executable, "-c", code, str(_side(path)), how.format(table)], check=True, timeout=60)
    with takeback.open(path) as store:
        _filled_more(store)
        said = store.check_search()
        assert said, "the damage is found"
        assert "takeback search --rebuild" in said.problems[0].fix
        store.rebuild_search()
        assert _all(store) == 41
        assert not store.check_search()


@pytest.mark.feature("E10")
@pytest.mark.promise("R23")
def test_the_file_vanishes_again_and_again_while_others_append(store: Store, path: Path, tmp_path: Path) -> None:
    """No append fails, and every search that begins after an append finds it."""
    failed = list[BaseException]()

    def append(name: str) -> None:
        try:
            session = store.create_session(name)
            for number in range(40):
                session.user(f"the marmot {name} {number}")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=append, args=(f"writer{n}",)) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    ways = [DAMAGES[name] for name in ("deleted", "overwritten", "its middle overwritten", "cut short")]
    dice = random.Random(1)
    own = store.create_session("mine")
    for number in range(12):
        own.user(f"searched marmot {number}")
        assert len(store.search("searched", session=own, kinds=["message"], limit=100)) == number + 1
        _damage(dice.choice(ways), _side(path), tmp_path)
    for thread in threads:
        thread.join()
    assert not failed
    assert _all(store) == WRITERS * 40 + 12


@pytest.mark.feature("E10", "E7")
def test_after_a_purge_the_words_are_in_no_file(path: Path) -> None:
    with takeback.open(path) as store:
        _filled(store)
        session = store.create_session("secret", title=f"about {CANARY}title")
        session.user(f"{CANARY} and {CANARY}plain in C:\\{CANARY}path")
        session.append({"role": "user", "content": f"{CANARY}redacted", "id": "r"})
        session.set_plan(f"{CANARY}plan")
        fork = session.fork(as_session=True, name="fork")
        assert store.search(CANARY)
        session.redact("r", dry_run=False)
        assert not store.search(f"{CANARY}redacted", branches=True)
        assert not _leaks(_side(path), f"{CANARY}redacted")
        store.purge_session(session, include_forks=True)
        assert not store.search(CANARY, branches=True)
        assert not _leaks(_side(path), CANARY), "while the store is open"
        assert fork.id not in {hit.session_id for hit in store.search("plan")}
        assert not store.check_search()
    assert not _leaks(path, CANARY)


def _leaks(path: Path, word: str) -> list[str]:
    """Return the files whose names begin so and that hold a word, or the most of it."""
    # Another process must read them: if this one closed a file that it has open, SQLite's locks would be lost.
    code = "import pathlib, sys\nword, *files = sys.argv[1:]\n"
    code += "print(*(each for each in files if word.encode() in pathlib.Path(each).read_bytes()))"
    found = [str(each) for each in path.parent.iterdir() if each.name.startswith(path.name)]
    done = subprocess.run([sys.executable, "-c", code, word[4:], *found], check=True, capture_output=True, timeout=60)
    return done.stdout.decode().split()


@pytest.mark.feature("E10")
def test_an_erasure_that_was_cut_off_is_made_up_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from takeback.search.searcher import Searcher

    def cut_off(self: Searcher, ids: object) -> None:
        raise takeback.Error("killed here")

    with takeback.open(path) as store:
        store.create_session("secret").user(CANARY)
        assert store.search(CANARY)
        with monkeypatch.context() as patch:
            patch.setattr(Searcher, "forget_erased", cut_off)
            store.purge_session("secret")
        assert "behind" in store.check_search().problems[0].what
        assert not store.search("anything")
        assert not _leaks(_side(path), CANARY)


@pytest.mark.feature("E10")
def test_a_store_that_is_only_read_gets_a_temporary_index(path: Path, tmp_path: Path) -> None:
    with takeback.open(path) as store:
        _filled(store, 10)
    with takeback.open(path, read_only=True) as store:
        assert _all(store) == 10
        assert not store.check_search()
    assert not _side(path).exists()
    with takeback.open(path) as store:
        assert _all(store) == 10
        _filled_more(store)
    content = _side(path).read_bytes()
    with takeback.open(path, read_only=True) as store:
        assert _all(store) == 11, "it begins with what the file has"
    assert _side(path).read_bytes() == content


@pytest.mark.feature("E10")
def test_an_older_copy_of_the_store_gets_an_index_of_its_own(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with takeback.open(path) as store:
        _filled(store, 5)
        store.backup(copy)
        store.get_session("filled").user("the lost marmot")
        assert _all(store) == 6
    for each in tmp_path.iterdir():
        if each.name.startswith(path.name) and not each.name.startswith(_side(path).name):
            each.unlink()
    copy.rename(path)
    for side in ("-lock", "-open", "-ballast"):
        (tmp_path / f"copy.db{side}").unlink(missing_ok=True)
    with takeback.open(path) as store:
        store.get_session("filled").user("another marmot")
        assert _all(store) == 6
        assert not store.search("lost", branches=True)


@pytest.mark.feature("E10")
def test_several_processes_search_and_append_at_once(path: Path) -> None:
    """Each finds its own words right after it said them, and in the end everybody finds everything."""
    code = """
import sys, takeback
path, name = sys.argv[1:]
with takeback.open(path) as store:
    session = store.create_session(name)
    for number in range(25):
        session.user(f"the marmot {name}x{number}")
        assert len(store.search(f"{name}x{number}", kinds=["message"])) == 1, number
"""
    with takeback.open(path) as store:
        workers = [subprocess.Popen([sys.executable, "-c", code, str(path), f"w{n}"]) for n in range(3)]
        assert [worker.wait(120) for worker in workers] == [0, 0, 0]
        assert _all(store) == 75
        assert not store.check_search()


@pytest.mark.feature("E10")
@pytest.mark.promise("R23")
def test_a_kill_in_the_middle_of_indexing_costs_nothing(path: Path) -> None:
    """The killed process had a large backlog; the next search goes on where it was."""
    code = """
import sys, takeback
from takeback.search import feeding
feeding.ENTRIES = 20
with takeback.open(sys.argv[1]) as store:
    store.search("marmot", progress=lambda done, total: print(done, flush=True))
"""
    with takeback.open(path) as store:
        session = store.create_session("filled")
        session.append(*({"role": "user", "content": f"the marmot {number}"} for number in range(400)))
    dice = random.Random(2)
    for _ in range(5):
        worker = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
        assert worker.stdout is not None
        for _ in range(dice.randrange(1, 5)):
            worker.stdout.readline()
        worker.send_signal(signal.SIGKILL)
        worker.wait(60)
        worker.stdout.close()
    with takeback.open(path) as store:
        assert _all(store) == 400
        assert not store.check_search()


@pytest.mark.feature("E10")
def test_a_damaged_entry_costs_only_itself(path: Path) -> None:
    with takeback.open(path) as store:
        _filled(store, 10)
    change = "UPDATE entry SET at_ms = at_ms + 1 WHERE key & 4294967295 = 4"
    code = f"import apsw, sys\nc = apsw.Connection(sys.argv[1])\nc.execute({change!r})"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)
    with takeback.open(path) as store:
        assert _all(store) == 9


@pytest.mark.feature("E10", "E7")
def test_what_was_kept_for_a_fork_is_erased_with_the_fork(path: Path) -> None:
    with takeback.open(path) as store:
        session = store.create_session("first", title="harmless")
        session.user(f"{CANARY} first")
        session.rename("harmless")
        fork = session.fork(as_session=True, name="second")
        assert store.search(CANARY)
        store.purge_session(session)
        assert [hit.session_id for hit in store.search(CANARY, kinds=["message"])] == [fork.id]
        store.purge_session(fork)
        assert not _leaks(_side(path), CANARY)


@pytest.mark.feature("E10")
def test_a_closed_store_opens_nothing_again(path: Path) -> None:
    store = takeback.open(path)
    _filled(store, 2)
    assert _all(store) == 2
    store.close()
    with pytest.raises(takeback.Closed):
        store.search("marmot")
    for memory in (takeback.open(":memory:"),):
        memory.create_session("x").user("marmot")
        assert memory.search("marmot")
        memory.close()
        with pytest.raises(takeback.Closed):
            memory.search("marmot")


@pytest.mark.feature("E10")
def test_a_fork_that_was_undone_is_not_searched(store: Store) -> None:
    session = store.create_session("forked")
    session.user("the first marmot")
    operation = session.fork(name="aside")
    assert _all(store) == 1
    store.undo()
    assert len(store.search("marmot", branches=True, kinds=["message"])) == 1
    assert operation is not None


@pytest.mark.feature("E10", "E7")
def test_what_a_reader_keeps_in_the_log_is_erased_by_the_next_search(path: Path) -> None:
    code = "import apsw, sys\nc = apsw.Connection(sys.argv[1])\nc.execute('BEGIN')\n"
    code += "c.execute('SELECT count(*) FROM search_doc').fetchall()\nprint(1, flush=True)\nsys.stdin.read()"
    with takeback.open(path) as store:
        session = store.create_session("secret")
        session.append({"role": "user", "content": CANARY, "id": "r"})
        assert store.search(CANARY)
        reading = [sys.executable, "-c", code, str(_side(path))]
        with subprocess.Popen(reading, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
            assert reader.stdout is not None
            reader.stdout.readline()
            session.redact("r", dry_run=False)
            assert not store.search(CANARY, branches=True)
        store.search("anything")
        assert not _leaks(_side(path), CANARY)


@pytest.mark.feature("E10")
@pytest.mark.promise("R23")
def test_an_index_that_vanishes_between_filling_and_asking_is_filled_again(store: Store, path: Path) -> None:
    _filled(store, 5)
    left = 3

    def vanish(done: int, total: int | None) -> None:
        nonlocal left
        left -= 1
        for side in SIDES if left >= 0 else ():
            if os.path.exists(f"{_side(path)}{side}"):
                os.unlink(f"{_side(path)}{side}")

    assert len(store.search("marmot", kinds=["message"], progress=vanish)) == 5
    assert left < 0


@pytest.mark.feature("E10")
def test_a_directory_in_the_place_of_the_index_is_left_alone(store: Store, path: Path) -> None:
    _side(path).mkdir()
    _filled(store, 5)
    assert _all(store) == 5
    assert _side(path).is_dir()


def _labelled(store: Store, word: str) -> None:
    """Append, then do what changes nothing that the index has."""
    store.get_session("filled").user(word)
    store.get_session("filled").checkpoint("done")


def _created(store: Store, word: str) -> None:
    store.create_session(title=word)


def _renamed(store: Store, word: str) -> None:
    store.get_session("filled").rename(word)
    store.get_session("filled").checkpoint("done")


def _noted_elsewhere(store: Store, word: str) -> None:
    store.scoped("another").create_session("there", title="there").user(word)
    store.get_session("filled").checkpoint("done")


@pytest.mark.feature("E10")
@pytest.mark.promise("R23")
@pytest.mark.parametrize("change", [_labelled, _created, _renamed, _noted_elsewhere])
def test_a_future_that_was_lost_is_not_found(path: Path, tmp_path: Path, change: Callable[[Store, str], None]) -> None:
    """A backup is restored over the store, the index stays, and the same kinds of changes follow."""
    copy = tmp_path / "copy.db"
    with takeback.open(path) as store:
        _filled(store, 3)
        assert _all(store) == 3
        store.backup(copy)
        change(store, "lostword")
        for own in (store, store.scoped("another")):
            own.search("lostword")
    for each in tmp_path.iterdir():
        if each.name.startswith(path.name) and not each.name.startswith(_side(path).name):
            each.unlink()
    copy.rename(path)
    with takeback.open(path) as store:
        change(store, "newword")
        found = {word: sum(len(own.search(word)) for own in (store, store.scoped("another"))) for word in WORDS}
        assert found == {"lostword": 0, "newword": 1}
        assert not store.check_search()


@pytest.mark.feature("E10")
def test_a_purge_does_not_make_the_index_another_one(path: Path) -> None:
    """What tells histories apart may be erased: then it tells nothing, and the index is not made anew."""
    with takeback.open(path) as store:
        _filled(store, 3)
        store.create_session("last").user("hello")
        store.get_session("last").rename("another title")
        assert _all(store) == 3
    inode = _side(path).stat().st_ino
    with takeback.open(path) as store:
        store.purge_session("last")
    with takeback.open(path) as store:
        assert not store.search("hello")
        assert _all(store) == 3
        assert not store.check_search()
    assert _side(path).stat().st_ino == inode


@pytest.mark.feature("E10")
@pytest.mark.promise("R23")
def test_a_write_that_is_refused_is_no_damage(path: Path) -> None:
    """A quota or a limit on the size of files: the error says so, and what the index has is kept."""
    with takeback.open(path) as store:
        _filled(store, 20)
        assert _all(store) == 20
    inode = _side(path).stat().st_ino
    code = """
import resource, signal, sys, takeback
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with takeback.open(sys.argv[1]) as store:
    store.get_session("filled").append(*({"role": "user", "content": f"marmot {n} " * 50} for n in range(400)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, -1))
    for _ in range(2):
        try:
            store.search("marmot")
        except takeback.Error as error:
            print(error.code)
"""
    run = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, timeout=60)
    assert run.stdout.split() == [b"backend", b"backend"]
    assert _side(path).stat().st_ino == inode
    with takeback.open(path) as store:
        assert _all(store) == 420
        assert not store.check_search()
