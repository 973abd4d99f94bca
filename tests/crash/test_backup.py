"""R24: a backup that is taken while four others write is a beginning of what each of them wrote, and whole."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import _postgres
import takeback

from . import _harness

pytestmark = [pytest.mark.slow, pytest.mark.promise("R24"), pytest.mark.feature("F10")]

_WRITERS = 4


def _write(url: str, name: str, told: dict[str, int], stop: threading.Event) -> None:
    with takeback.open(url) as store:
        session = store.session(name)
        while not stop.wait(0.005):  # however fast the disk is, a backup is soon through
            session.user(str(told[name] + 1))
            told[name] += 1


def _numbers(store: takeback.Store, name: str) -> list[int]:
    found = store.find_session(name)
    return [] if found is None else [int(each.text) for each in found.iter_messages()]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_backup_while_others_write(
    tmp_path: Path, engine: str, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    url = str(tmp_path / "a.db") if engine == "sqlite" else _postgres.app_url(tmp_path)
    told, stop = {f"w{number}": 0 for number in range(_WRITERS)}, threading.Event()
    with takeback.open(url) as store:
        writers = [threading.Thread(target=_write, args=(url, name, told, stop)) for name in told]
        for each in writers:
            each.start()
        try:
            for number in range(counts(20, 200) if engine == "sqlite" else counts(5, 50)):
                before, file = dict(told), tmp_path / f"{number}.db"
                report = store.backup(file)
                assert not report, str(report)
                with takeback.open(file, read_only=True) as copy:
                    for name, least in before.items():
                        found = _numbers(copy, name)
                        assert found == [*range(1, len(found) + 1)]
                        assert len(found) >= least, "what was acknowledged before is in it"
                tally("R24 backups while others write", 1)
        finally:
            stop.set()
            for each in writers:
                each.join()


def _fill(path: str) -> None:
    with takeback.open(path) as store:
        session = store.session("s")
        for _ in range(20):
            session.append(*({"role": "user", "content": "x" * 300} for _ in range(200)))


def _back_up(path: str, target: str) -> str:
    with takeback.open(path, read_only=True) as store:
        return str(store.backup(target))


def _verified(path: str) -> bool:
    with takeback.open(path, read_only=True) as store:
        return not store.verify()


def test_a_backup_that_is_killed_leaves_no_half_file_and_the_next_one_works(
    tmp_path: Path, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    url, target = str(tmp_path / "a.db"), tmp_path / "copy.db"
    _harness.Child(_fill, url).result()
    began = time.monotonic()
    _harness.Child(_back_up, url, str(tmp_path / "first.db")).result()
    takes, number = time.monotonic() - began, counts(12, 100)
    for each in range(number):
        child = _harness.Child(_back_up, url, str(target))
        time.sleep(takes * each / number)
        child.kill()
        if target.exists():  # it was through
            assert _harness.Child(_verified, str(target)).result()
            for suffix in ("", "-wal", "-shm", "-lock", "-open"):
                Path(f"{target}{suffix}").unlink(missing_ok=True)
        tally("R24 backups killed", 1)
    assert "no problems" in _harness.Child(_back_up, url, str(target)).result()
    assert {each for each in os.listdir(tmp_path) if each.startswith("copy")} == {"copy.db"}


def test_a_backup_whose_maker_died_right_after_it_got_its_name_opens(tmp_path: Path) -> None:
    """It has two names then, and the other one is nobody's any more."""
    url, target, folder = str(tmp_path / "a.db"), tmp_path / "copy.db", tmp_path / ".takeback-backup-abc"
    _harness.Child(_fill, url).result()
    _harness.Child(_back_up, url, str(target)).result()
    folder.mkdir()
    os.link(target, folder / "store.db")
    assert _harness.Child(_verified, str(target)).result()
    assert not folder.exists()
    os.link(target, tmp_path / "other.db")
    with pytest.raises(_harness.ChildFailed, match="several names"):
        _harness.Child(_verified, str(target)).result()


def test_two_backups_into_one_file_give_one_whole_file(
    tmp_path: Path, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    url, target = str(tmp_path / "a.db"), tmp_path / "copy.db"
    _harness.Child(_fill, url).result()
    for number in range(counts(6, 60)):
        first = _harness.Child(_outcome, url, str(target))
        time.sleep(0.05 * number)
        second = _harness.Child(_outcome, url, str(target))
        assert sorted([first.result(), second.result()]) == ["Conflict", "whole"]
        assert _harness.Child(_verified, str(target)).result()
        for each in tmp_path.glob("copy.db*"):
            each.unlink()
        tally("R24 two backups at once", 1)
    assert not [*tmp_path.glob(".takeback-backup-*")]


def _outcome(path: str, target: str) -> str:
    try:
        return "whole" if "no problems" in _back_up(path, target) else "damaged"
    except takeback.Conflict:
        return "Conflict"
