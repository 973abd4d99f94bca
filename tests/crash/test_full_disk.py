"""R5: a full disk. Writes raise ``StorageFull`` and lose nothing; reading, deleting and reopening still work."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import takeback
from takeback.ops import blobs

from . import _harness
from ._harness import in_child

pytestmark = [pytest.mark.slow, pytest.mark.needs_root, pytest.mark.promise("R5"), pytest.mark.feature("C5")]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 3 MB."""
    with _harness.tmpfs(tmp_path / "disk", "3m") as disk:
        yield disk


def _fill(session: takeback.Session, size: int = 3000) -> list[str]:
    """Append until the disk is full; return what was acknowledged."""
    said: list[str] = []
    for number in range(5000):
        text = f"{number} " + "x" * size
        try:
            session.user(text)
        except takeback.StorageFull:
            return said
        said.append(text)
    raise AssertionError("the disk never fills up")


def _texts(session: takeback.Session) -> list[str]:
    return [message.text for message in session.iter_messages()]


def test_a_full_disk_can_be_read_listed_cleaned_up_verified_and_reopened(small_disk: Path) -> None:
    def work(path: Path) -> None:
        with takeback.open(path) as store:
            doomed, session = store.create_session("doomed"), store.create_session("kept")
            doomed.user("rubbish")
            said = _fill(session)
            assert len(said) > 50
            with pytest.raises(takeback.StorageFull):
                session.user("y" * 3000)
            assert _texts(session) == said
            assert [each.name for each in store.list_sessions()] == ["kept", "doomed"]
            assert store.stats().sessions == 2
            assert not store.verify()
            assert store.delete_session(doomed.id) is not None
            assert [each.name for each in store.list_sessions()] == ["kept"]
        with takeback.open(path) as store:
            session = store.find_session("kept")
            assert session is not None
            assert _texts(session) == said
            assert not store.verify()
            assert [each.name for each in store.list_sessions()] == ["kept"]

    in_child(work, small_disk / "a.db")


@pytest.mark.feature("E9", "F12")
def test_pruning_a_full_disk_goes_on_without_a_checkpoint_before_it(small_disk: Path) -> None:
    def work(path: Path) -> None:
        with takeback.open(path) as store:
            session = store.create_session("kept", agent="coder")
            data = random.Random(1).randbytes(300_000)
            packed = blobs.Packed(blobs.hash_of(data), len(data), blobs.pack(data))
            store._write(lambda tx: blobs.put_many(tx, "", [packed], now_ms=1))
            said = _fill(session) + _fill(session, 1)
            with pytest.warns(RuntimeWarning, match="no checkpoint of agent 'coder' was taken"):
                assert store.prune(dry_run=False).blobs == 1
            assert store.list_checkpoints("coder") == []
            said += _fill(session)
            assert _texts(session) == said
            assert not store.verify()

    in_child(work, small_disk / "a.db")


def test_a_store_on_a_full_disk_opens_again(small_disk: Path) -> None:
    def work(path: Path) -> None:
        with takeback.open(path) as store:
            said = _fill(store.create_session("kept"))
        with takeback.open(path) as store:
            session = store.find_session("kept")
            assert session is not None
            assert _texts(session) == said
            assert not store.verify()
        with takeback.open(path, read_only=True) as store:
            assert not store.verify()

    in_child(work, small_disk / "a.db")


def test_a_store_that_was_killed_on_a_full_disk_opens_again(small_disk: Path, tmp_path: Path) -> None:
    def die(path: Path, acks: _harness.Acks) -> None:
        store, acknowledge = takeback.open(path), acks.writer()
        session = store.create_session("kept")
        for call in range(1, 5000):
            try:
                _harness.say(session, _harness.compose("w", call, [3000]))
            except takeback.StorageFull:
                break
            acknowledge("w", call)
        acknowledge("done", 1)
        while True:
            pass

    def look(path: Path, acks: _harness.Acks) -> None:
        with takeback.open(path) as store:
            session = store.find_session("kept")
            assert session is not None
            acked = acks.read()
            _harness.check_history(session.iter_messages(), {"w": acked["w"]})
            assert not store.verify()

    acks = _harness.Acks(tmp_path / "acks")
    child = _harness.Child(die, small_disk / "a.db", acks)
    while child.alive() and "done" not in acks.read():
        pass
    child.kill()
    in_child(look, small_disk / "a.db", acks)


def test_deleting_still_works_when_the_reserve_was_filled_up_too(small_disk: Path) -> None:
    """Deleting takes from the reserve; what it leaves of it must not go to appends, or the next deletion fails."""

    def work(path: Path) -> None:
        with takeback.open(path) as store:
            doomed = [store.create_session(f"doomed {number}") for number in range(4)]
            session = store.create_session("kept")
            for each in doomed:
                _fill(session)
                assert store.delete_session(each.id) is not None

    in_child(work, small_disk / "a.db")


def test_a_store_opens_on_a_full_disk_whose_reserve_is_gone(small_disk: Path) -> None:
    def fill_twice(path: Path) -> list[str]:
        with takeback.open(path) as store:
            doomed, session = store.create_session("doomed"), store.create_session("kept")
            said = _fill(session)
            store.delete_session(doomed.id)
            return said + _fill(session)

    def look(path: Path) -> list[str]:
        with takeback.open(path) as store:
            session = store.find_session("kept")
            assert session is not None
            return _texts(session)

    path = small_disk / "a.db"
    said = in_child(fill_twice, path)
    assert in_child(look, path) == said


_OPERATIONS: dict[str, Callable[[takeback.Store, takeback.Session], object]] = {
    "append": lambda store, session: session.user("z" * 500),
    "append many": lambda store, session: session.append(*[{"role": "user", "content": "z" * 500}] * 20),
    "a spilled message": lambda store, session: session.user(_harness.compose("spill", 1, [150_000])[0]),
    "create_session": lambda store, session: store.create_session(title="t" * 500),
    "fork": lambda store, session: session.fork(1),
    "rewind": lambda store, session: session.rewind(session.head.seq - 1),
    "undo": lambda store, session: session.undo(),
}


def _operate_until_full(path: Path, what: str) -> bool:
    """Fill the disk, then repeat one operation until it is refused; say whether it was. What returned must be there."""
    with takeback.open(path) as store:
        session = store.create_session("subject")
        session.append(*({"role": "user", "content": f"message {number}"} for number in range(400)))
        for seq in range(399, 339, -1):
            session.rewind(seq)
        store.create_session("witness").user("seen")
        _fill(store.create_session("filler"))
        done, full = 0, False
        while done < 50 and not full:
            before = _harness.picture(store), store.stats().sessions, store.stats().branches
            try:
                _OPERATIONS[what](store, session)
                done += 1
            except takeback.StorageFull:
                full = True
                assert (_harness.picture(store), store.stats().sessions, store.stats().branches) == before
        kept = _harness.picture(store)
        assert not store.verify()
    with takeback.open(path) as store:
        assert _harness.picture(store) == kept
        assert not store.verify()
    return full


def _operate_again(path: Path, what: str) -> None:
    with takeback.open(path) as store:
        session = store.find_session("subject")
        assert session is not None
        _OPERATIONS[what](store, session)
        session.user("space again")
        assert session.messages(limit=1)[0].text == "space again"
        assert not store.verify()


@pytest.mark.parametrize("what", _OPERATIONS)
def test_an_operation_on_a_full_disk_is_refused_or_done_and_works_when_space_returns(
    small_disk: Path, tally: Callable[..., int], what: str
) -> None:
    _harness.resize(small_disk, "4m")  # room for what there is to undo
    assert in_child(_operate_until_full, small_disk / "a.db", what), "the disk never became full"
    _harness.resize(small_disk, "12m")
    in_child(_operate_again, small_disk / "a.db", what)
    tally("R5 operations", 1)


def test_an_open_store_goes_on_when_space_returns(small_disk: Path) -> None:
    def work(path: Path) -> None:
        with takeback.open(path) as store:
            session = store.create_session()
            said = _fill(session)
            _harness.resize(path.parent, "12m")
            session.user("space again")
            session.append(*[{"role": "user", "content": text} for text in ("one", "two")])
            assert _texts(session) == [*said, "space again", "one", "two"]
            assert not store.verify()

    in_child(work, small_disk / "a.db")


def test_a_new_store_on_a_full_disk_is_storage_full_and_leaves_no_ruin(small_disk: Path) -> None:
    def work(path: Path) -> None:
        with (path.parent / "rubbish").open("wb", buffering=0) as file, pytest.raises(OSError):  # noqa: PT012
            while True:
                file.write(bytes(4096))
        with pytest.raises(takeback.StorageFull):
            takeback.open(path)
        (path.parent / "rubbish").unlink()
        with takeback.open(path) as store:
            store.create_session().user("now it fits")
            assert not store.verify()

    in_child(work, small_disk / "a.db")
