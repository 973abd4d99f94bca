"""R11: only the damaged record is lost. Damage in the log or in the file costs what it hit, and verify names it."""

from __future__ import annotations

import os
import random
import signal
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import takeback

from . import _harness
from ._harness import ChildDied, compose, copy_store, in_child, told

pytestmark = [pytest.mark.promise("R11"), pytest.mark.feature("F5")]

_PAGE = 4096
_FRAME = 24 + _PAGE
_COUNT = 120


def _texts() -> list[str]:
    return compose("w", 1, [200 + number * 7 for number in range(_COUNT)])


def _make_closed(path: Path) -> str:
    with takeback.open(path) as store:
        session = store.create_session("a")
        for text in _texts():
            session.user(text)
        return session.id


def _make_killed(path: Path, note: Path) -> None:
    session = takeback.open(path).create_session("a")
    for text in _texts():
        session.user(text)
    note.write_text(session.id)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A store with everything in its log, and the id of its session."""
    place = tmp_path_factory.mktemp("killed")
    path, note = place / "store" / "a.db", place / "id"
    with pytest.raises(ChildDied):
        in_child(_make_killed, path, note)
    return path, note.read_text()


def _read_one_by_one(path: Path, session_id: str) -> tuple[list[int], list[str]]:
    """Read each message alone; give the seqs that cannot be read, and what verify says. Nothing may be wrong."""
    lost, texts = [], _texts()
    with takeback.open(path) as store:
        session = store.get_session(session_id)
        assert session.head.seq == _COUNT
        for seq, text in enumerate(texts, 1):
            try:
                found = session.messages(after=seq - 1, before=seq + 1)
            except takeback.Corrupt:
                lost.append(seq)
                continue
            assert [message.text for message in found] == [text], f"message {seq} is wrong"
        return lost, [str(problem) for problem in store.verify().problems]


def _flip(path: Path, place: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


def _last_copy_of(data: bytes, text: str) -> int:
    """Find where a message was last written: pages are written again until they are full."""
    place = data.rfind(text[:40].encode())
    assert place > 0
    return place + 20


def _table_of_contents(path: Path) -> list[int]:
    """Return the pages of SQLite's own table of tables."""
    connection = apsw.Connection(str(path))
    found = connection.execute("SELECT pageno FROM dbstat WHERE name = 'sqlite_schema'").fetchall()
    connection.close()
    return [page for (page,) in found]


def _page_at(log: Path, place: int) -> int:
    """Return the page of the frame that a place of the log is in the content of, 0 if it is in none."""
    frame, offset = divmod(place - 32, _FRAME)
    start = 32 + frame * _FRAME
    return int.from_bytes(log.read_bytes()[start : start + 4], "big") if offset >= 24 else 0


def _refusal(path: Path) -> str:
    try:
        takeback.open(path).close()
    except takeback.Corrupt as error:
        return str(error)
    return "opened"


@pytest.mark.parametrize("seq", [3, 17, 50])
def test_salvage_loses_only_the_damaged_message_and_verify_names_it(
    tmp_path: Path, killed: tuple[Path, str], seq: int
) -> None:
    template, session_id = killed
    path, copy = copy_store(template, tmp_path / "damaged"), tmp_path / "copy.db"
    log = Path(f"{path}-wal")
    _flip(log, _last_copy_of(log.read_bytes(), _texts()[seq - 1]), 3)
    before = log.read_bytes(), path.read_bytes()
    assert "salvage" in in_child(_refusal, path)
    assert in_child(takeback.salvage, path, copy) > 0
    assert (log.read_bytes(), path.read_bytes()) == before, "the original was changed"
    lost, problems = in_child(_read_one_by_one, copy, session_id)
    assert lost == [seq]
    assert len(problems) == 1
    assert f"-{seq}:" in problems[0]


@pytest.mark.slow
def test_salvage_never_gives_a_wrong_answer_and_loses_no_more_than_a_page(
    tmp_path: Path, killed: tuple[Path, str], seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    """Any bit of the first half of the log: header, frame headers and pages."""
    template, session_id = killed
    rng, total = random.Random(f"salvage {seed}"), 0
    used = len(Path(f"{template}-wal").read_bytes().rstrip(b"\0"))
    own = in_child(_table_of_contents, copy_store(template, tmp_path / "whole"))
    wrong = []
    for round_ in range(counts(30, 1000)):
        path, copy = copy_store(template, tmp_path / "damaged"), tmp_path / f"copy {round_}" / "a.db"
        copy.parent.mkdir()
        place = rng.randrange(used // 2) if round_ % 3 else _in_a_frame_header(rng, used // 2)
        _flip(Path(f"{path}-wal"), place, rng.randrange(8))
        where = (
            f"seed {seed}, round {round_}, byte {place} (frame {(place - 32) // _FRAME + 1}, +{(place - 32) % _FRAME})"
        )
        if in_child(_refusal, path) == "opened":
            wrong.append(f"{where}: it opens")
            continue
        try:
            in_child(takeback.salvage, path, copy)
            lost, problems = in_child(_read_one_by_one, copy, session_id)
        except AssertionError as error:
            # SQLite's table of contents is written once: damage to it makes the file unreadable, and is told.
            if "malformed" in str(error) and _page_at(Path(f"{path}-wal"), place) in own:
                continue
            wrong.append(f"{where}: {str(error).strip().splitlines()[-1]}")
            continue
        total += len(lost)
        if len(lost) > 12 or bool(lost) > bool(problems):
            wrong.append(f"{where}: lost {lost}, verify: {problems[:2]}")
    tally("R11 salvages", counts(30, 1000))
    tally("R11 messages lost by salvage", total)
    assert not wrong, "\n".join(wrong)


def test_a_page_number_that_became_zero_is_mended(tmp_path: Path, killed: tuple[Path, str]) -> None:
    """No page has that number, so there is nothing to compare its content with."""
    template, session_id = killed
    log = Path(f"{template}-wal").read_bytes().rstrip(b"\0")
    numbers = {place: int.from_bytes(log[place : place + 4]) for place in range(32, len(log) // 2, _FRAME)}
    place, page = next((place, page) for place, page in numbers.items() if page.bit_count() == 1 and page > 1)
    path, copy = copy_store(template, tmp_path / "damaged"), tmp_path / "copy" / "a.db"
    copy.parent.mkdir()
    bit = page.bit_length() - 1
    _flip(Path(f"{path}-wal"), place + 3 - bit // 8, bit % 8)
    in_child(takeback.salvage, path, copy)
    assert in_child(_read_one_by_one, copy, session_id) == [[], []]  # nothing lost, no problem


def _in_a_frame_header(rng: random.Random, end: int) -> int:
    """Choose a byte of a page number or commit mark: the rest of a frame's header is written anew."""
    return 32 + rng.randrange(end // _FRAME) * _FRAME + rng.randrange(8)


@pytest.mark.parametrize("seq", [1, 60, 120])
def test_a_flipped_bit_of_a_message_costs_that_message_alone(tmp_path: Path, seq: int) -> None:
    path = tmp_path / "a.db"
    session_id = in_child(_make_closed, path)
    _flip(path, _last_copy_of(path.read_bytes(), _texts()[seq - 1]), 5)
    lost, problems = in_child(_read_one_by_one, path, session_id)
    assert lost == [seq]
    assert len(problems) == 1
    assert f"-{seq}:" in problems[0]


# ---------------------------------------------------------------------- what must not be taken for damage


def _commits(log: bytes) -> list[int]:
    """Return the offset behind each commit of a log's current generation."""
    salts, found = log[16:24], []
    for offset in range(32, len(log) - _FRAME + 1, _FRAME):
        page, size = struct.unpack_from(">2I", log, offset)
        if log[offset + 8 : offset + 16] != salts or not page:
            break
        if size:
            found.append(offset + _FRAME)
    return found


def _torn(path: Path, session_id: str) -> Any:
    with takeback.open(path) as store:
        assert not store.verify()
        return len(store.get_session(session_id).messages())


@pytest.mark.slow
def test_a_torn_last_commit_that_was_never_acknowledged_is_dropped_without_fuss(
    tmp_path: Path, killed: tuple[Path, str], seed: int
) -> None:
    """What a crash leaves of a commit under way: any part of its frames, and a mark that does not count it."""
    template, session_id = killed
    rng = random.Random(f"torn {seed}")
    for round_ in range(20):
        path = copy_store(template, tmp_path / "torn")
        log, lock = Path(f"{path}-wal"), Path(f"{path}-lock")
        data = log.read_bytes()
        *_, before, last = _commits(data)
        cut = rng.randrange(before, last)
        log.write_bytes(data[:cut] + bytes(len(data) - cut) if rng.random() < 0.5 else data[:cut])
        lock.write_bytes(b"")
        with told(seed=seed, round=round_, cut=cut):
            assert in_child(_torn, path, session_id) == _COUNT - 1


def test_the_loss_of_an_acknowledged_last_commit_is_told(tmp_path: Path, killed: tuple[Path, str]) -> None:
    """The same with the mark in place: this commit had been acknowledged."""
    path = copy_store(killed[0], tmp_path / "cut")
    log = Path(f"{path}-wal")
    data = log.read_bytes()
    *_, before, _ = _commits(data)
    log.write_bytes(data[:before])
    assert "acknowledged" in in_child(_refusal, path)


def test_a_hole_that_relaxed_durability_leaves_is_no_damage(tmp_path: Path) -> None:
    """Without a sync per commit a power cut may leave later commits without an earlier one: the tail is lost."""

    def die(path: Path) -> None:
        with takeback.open(path) as store:
            store.create_session("a").user("safe")
        session = takeback.open(path, durability="relaxed").list_sessions()[0]
        for number in range(10):
            session.user(f"relaxed {number}")
        os.kill(os.getpid(), signal.SIGKILL)

    def look(path: Path) -> list[str]:
        with takeback.open(path) as store:
            assert not store.verify()
            return [message.text for message in store.list_sessions()[0].messages()]

    path = tmp_path / "a.db"
    with pytest.raises(ChildDied):
        in_child(die, path)
    log = Path(f"{path}-wal")
    data = bytearray(log.read_bytes())
    fifth, sixth = _commits(data)[4:6]
    data[fifth:sixth] = bytes(sixth - fifth)
    log.write_bytes(data)
    assert in_child(look, path) == ["safe", *(f"relaxed {number}" for number in range(5))]


@pytest.mark.parametrize("behind", [1, 2])
def test_a_hole_in_commits_that_nobody_was_told_of_is_no_damage(
    tmp_path: Path, killed: tuple[Path, str], behind: int
) -> None:
    """Commits are synced behind the lock, so several may be on their way at a power cut, and reach the disk in any
    order: an earlier one torn, later ones whole. None was acknowledged: the mark of the disk does not count them."""
    template, session_id = killed
    path, told_of = copy_store(template, tmp_path / "hole"), _COUNT - 1 - behind
    log, lock = Path(f"{path}-wal"), Path(f"{path}-lock")
    data = bytearray(log.read_bytes())
    ends = _commits(data)
    first, after = ends[-2 - behind], ends[-1 - behind]
    data[first:after] = bytes(after - first)
    log.write_bytes(data)
    store_id, position = struct.unpack_from(">16sq", lock.read_bytes())
    _write_mark(lock, store_id, position - 1 - behind)
    assert in_child(_torn, path, session_id) == told_of


def _write_mark(lock: Path, store_id: bytes, position: int) -> None:
    check = zlib.crc32(b"%d" % position, zlib.crc32(store_id))
    lock.write_bytes(struct.pack(">16sqI", store_id, position, check) + lock.read_bytes()[28:])


def test_salvage_refuses_to_write_over_anything(tmp_path: Path, killed: tuple[Path, str]) -> None:
    path, target = copy_store(killed[0], tmp_path / "store"), tmp_path / "there.db"
    target.write_text("precious")

    def work() -> str:
        try:
            takeback.salvage(path, target)
        except takeback.Error as error:
            return error.code
        return "written"

    assert in_child(work) == "conflict"
    assert target.read_text() == "precious"
    assert _harness.files_beside(target) == sorted(["", *_other_names(target)])


def _other_names(target: Path) -> list[str]:
    return [name for name in os.listdir(target.parent) if name != target.name]
