"""Putting files back never writes outside the workspace, whatever somebody swaps meanwhile; no setuid, no chown."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from test_apply import Things, read

import takeback
from takeback.files.disk import _syscalls

pytestmark = [pytest.mark.slow, pytest.mark.feature("F1"), pytest.mark.promise("R20")]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "w"
    made.mkdir()
    return made


@pytest.fixture
def session(tmp_path: Path, root: Path) -> Iterator[takeback.Session]:
    fill(root, "then")
    store = takeback.open(tmp_path / "s.db", durability="relaxed")
    with store, store.session("one", workspace=root) as made:
        made.user("first")
        made.checkpoint("then")
        with made.tool("shell"):
            fill(root, "now")
        made.checkpoint("now")
        yield made


def fill(root: Path, what: str) -> None:
    """Put files of the same names into the workspace, or outside of it."""
    for folder in ("sub", "sub/deep"):
        (root / folder).mkdir(exist_ok=True)
        for number in range(4):
            (root / folder / f"over{number}").write_text(what)
            (root / folder / f"{what}{number}").write_text(what)
            (root / folder / f"mode{number}").write_text("same")
            (root / folder / f"mode{number}").chmod(0o600 if what == "now" else 0o644)
        for path in [each for each in (root / folder).iterdir() if each.is_symlink()]:
            path.unlink()
        (root / folder / "link").symlink_to(what)
        for other in {"then", "now", "outside"} - {what}:
            for path in (root / folder).glob(f"{other}[0-9]"):
                path.unlink()


class Swapper(threading.Thread):
    """Swaps a directory for a link to one outside, and back, as fast as it can."""

    def __init__(self, folder: Path, outside: Path, rng: random.Random) -> None:
        super().__init__()
        self._folder, self._outside, self._rng = folder, outside, rng
        self._aside, self._over = folder.with_name(folder.name + " aside"), threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            self._folder.rename(self._aside)
            self._folder.symlink_to(self._outside)
            self._over.wait(self._rng.choice((0, 0.0003, 0.002)))
            self._folder.unlink()
            self._aside.rename(self._folder)
            self._over.wait(self._rng.choice((0, 0.0003, 0.002)))

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def test_a_parent_that_is_swapped_for_a_link_leads_nowhere(
    session: takeback.Session, root: Path, tmp_path: Path, seed: int, tally: Callable[..., int]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    fill(outside, "outside")
    before, told = stats(outside), {"done": 0, "refused": 0}
    for number in range(200):
        rng = random.Random(f"escape {seed} {number}")
        folder, there = rng.choice((("sub", "sub"), ("sub/deep", "sub/deep"), ("sub", "")))
        planned = session.preview_rewind(rng.choice(("then", "now")))
        with Swapper(root / folder, outside / there, rng):
            try:
                planned.apply()
                told["done"] += 1
            except takeback.Error:
                told["refused"] += 1
        assert stats(outside) == before, f"round {number}"
        session.preview_rewind("then")  # puts right what could not be
    assert min(told.values()) > 0, told
    tally("escape rounds", 200)


def stats(root: Path) -> Things:
    """Return what a directory holds, with the times at which anything was last changed."""
    found = read(root)
    return {path: (*thing, os.lstat(os.fsencode(root) + b"/" + path).st_ctime_ns) for path, thing in found.items()}


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_written_through(
    session: takeback.Session, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("outside")
    with session.tool("shell"):
        (root / "sub/over0").unlink()
        (root / "sub/over0").symlink_to(outside)
    session.rewind("then")
    assert outside.read_text() == "outside"
    assert not (root / "sub/over0").is_symlink()
    assert (root / "sub/over0").read_text() == "then"


def test_setuid_setgid_and_sticky_are_not_put_back(session: takeback.Session, root: Path) -> None:
    with session.tool("shell"):
        (root / "sub/over0").chmod(0o6755)
        (root / "sub/deep").chmod(0o1755)
    session.checkpoint("with setuid")
    with session.tool("shell"):
        (root / "sub/over0").write_text("changed")
        (root / "sub/over0").chmod(0o644)
        (root / "sub/deep").chmod(0o755)
    session.rewind("with setuid")
    assert (root / "sub/over0").stat().st_mode & 0o7777 == 0o755
    assert (root / "sub/deep").stat().st_mode & 0o7777 == 0o755


def test_the_owner_of_a_file_is_never_set(
    session: takeback.Session, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("chown", "lchown", "fchown"):
        monkeypatch.setattr(os, name, lambda *_, **__: pytest.fail("an owner was set"))
    session.rewind("then")
    session.undo()
    assert not any("chown" in name for name in vars(_syscalls))


@pytest.mark.needs_root
def test_a_file_of_somebody_else_comes_back_as_ones_own(session: takeback.Session, root: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to give a file away")
    os.chown(root / "sub/now0", 12345, 12345)
    session.checkpoint("given away")
    with session.tool("shell"):
        (root / "sub/now0").unlink()
    session.rewind("given away")
    assert (root / "sub/now0").stat().st_uid == 0
