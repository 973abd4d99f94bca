"""R15: a rewind is all or nothing, files and store together, whenever the process dies and whatever call fails."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import takeback
from takeback import presence
from takeback.tables.files import JOURNAL

from . import _rewinds
from ._harness import ChildDied, in_child, open_through, told
from ._rewinds import CountingVFS, Steps, failing, killing, now, read, then

pytestmark = [pytest.mark.slow, pytest.mark.feature("F1"), pytest.mark.promise("R15")]

OLD, NEW = "old", "new"


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    """A place with a session that can be rewound, and a copy of it."""
    with _rewinds.places() as above:
        in_child(_rewinds.make, above / "place")
        assert read(above / "place" / "w") == now()
        shutil.copytree(above / "place", above / "template", symlinks=True)
        yield above / "template"


@pytest.fixture
def place(template: Path) -> Iterator[Path]:
    yield template.with_name("place")
    _rewinds.clear(template.with_name("place"))


# ---------------------------------------------------------------------- in children


def _rewind(place: Path, at: int) -> int:
    """Rewind and die at a step; without one give how many there are."""
    steps = Steps(killing(at))
    with open_through(CountingVFS(steps), place / "s.db") as store:
        session = store.get_session("one")
        with steps.watching():
            session.rewind("then")
    return steps.count


def _recover(place: Path, at: int, how: str) -> int:
    """Enter the session or look at its files, and die at a step of that."""
    steps = Steps(killing(at))
    with open_through(CountingVFS(steps), place / "s.db") as store, steps.watching():
        if how == "enter":
            with store.session("one", workspace=place / "w"):
                pass
        else:
            store.get_session("one").capture_files()
    return steps.count


def _look(place: Path, how: str | None = None) -> str:
    """Use the workspace, and say whether files and store are old or new; anything else is an error."""
    if how is not None:
        _recover(place, 0, how)
    with takeback.open(place / "s.db") as store:
        report = store.verify()
        assert not report, str(report)
        session = store.get_session("one")
        texts = [message.text for message in session.messages() if message.role == "user"]
        moved = [each.kind for each in session.operations() if each.kind == "rewind" and not each.undone]
    said = {(True, 0): OLD, (False, 1): NEW}[("second" in texts, len(moved))]
    wanted, found = now() if said == OLD else then(), read(place / "w")
    wrong = {path: found.get(path) for path in {*wanted, *found} if wanted.get(path) != found.get(path)}
    assert not wrong, f"the store is {said}, but {dict(sorted(wrong.items())[:10])}"
    return said


def _go_on(place: Path, said: str) -> None:
    """Take the rewind back or make it, and back and forth."""
    with takeback.open(place / "s.db") as store:
        session = store.get_session("one")
        for _ in range(2):
            if said == OLD:
                session.rewind("then")
                assert read(place / "w") == then()
            session.undo()
            assert read(place / "w") == now()
            session.redo()
            assert read(place / "w") == then()
            session.undo()
            said = OLD
        assert not store.verify()


def _killed(work: Callable[..., Any], *args: Any) -> Any:
    """Return the answer of a child that may be killed: None then."""
    try:
        return in_child(work, *args)
    except ChildDied:
        return None


# ---------------------------------------------------------------------- killed


def _spread(total: int, count: int, seed: int) -> list[int]:
    """Choose steps all over a run; each once if there are fewer than asked for."""
    if total <= count:
        return [*range(1, total + 1)]
    shift = random.Random(f"spread {seed}").random()
    return sorted({1 + int((number + shift) * total / count) % total for number in range(count)})


def test_a_rewind_killed_at_any_step_is_whole_or_never_was(
    template: Path,
    place: Path,
    seed: int,
    counts: Callable[[int, int], int],
    tally: Callable[..., int],
) -> None:
    _rewinds.copy(template, place)
    total = in_child(_rewind, place, 0)
    assert in_child(_look, place) == NEW
    ends = list[str]()
    for number, at in enumerate(_spread(total, counts(100, 2000), seed)):
        how = ("enter", "capture")[number % 2]
        with told(seed=seed, step=at, of=total, how=how):
            _rewinds.copy(template, place)
            assert _killed(_rewind, place, at) is None or at > total - 50, "the step never came"
            ends.append(in_child(_look, place, how))
            if number % 10 == 0:
                in_child(_go_on, place, ends[-1])
        tally("R15 kills", 1)
    assert {*ends} == {OLD, NEW}
    assert ends == sorted(ends, reverse=True), "once it counts it counts"


def test_a_recovery_killed_at_any_step_goes_on(
    template: Path, place: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    rng = random.Random(f"recovery {seed}")
    _rewinds.copy(template, place)
    total = in_child(_rewind, place, 0)
    for number in range(counts(20, 600)):
        at, how = rng.randrange(total // 3, total), rng.choice(("enter", "capture"))
        with told(seed=seed, step=at, of=total, how=how):
            _rewinds.copy(template, place)
            _killed(_rewind, place, at)
            for _ in range(rng.randrange(1, 4)):
                _killed(_recover, place, rng.randrange(1, 500), how)
            said = in_child(_look, place, how)
            if number % 10 == 0:
                in_child(_go_on, place, said)
        tally("R15 kills", 1)


# ---------------------------------------------------------------------- calls that fail


def _fail(place: Path, code: int, steps_at: list[int]) -> list[str]:
    """Fail one call of a rewind after the other, all in one process; give what it was told each time."""
    told_ = []
    with takeback.open(place / "s.db") as store:
        session = store.get_session("one")
        for at in steps_at:
            steps = Steps(failing(at, code))
            with steps.watching():
                try:
                    session.rewind("then")
                except takeback.Error as error:
                    told_.append(type(error).__name__)
                else:
                    told_.append("done")
            session.capture_files()  # which removes what could not be
            if told_[-1] == "done":
                assert steps.count >= at, "the call never came"
                assert read(place / "w") == then(), at
                session.undo()
            assert read(place / "w") == now(), at
        assert not store.verify()
        session.rewind("then")
        assert read(place / "w") == then()
    return told_


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES], ids=errno.errorcode.__getitem__)
def test_a_call_that_fails_leaves_everything_as_it_was(
    template: Path,
    place: Path,
    seed: int,
    counts: Callable[[int, int], int],
    tally: Callable[..., int],
    code: int,
) -> None:
    def count(place: Path) -> int:
        steps = Steps(killing(0))
        with takeback.open(place / "s.db") as store, steps.watching():
            store.get_session("one").rewind("then")
        return steps.count

    _rewinds.copy(template, place)
    chosen = _spread(in_child(count, place), counts(40, 700), seed + code)
    expected, found = "StorageFull" if code == errno.ENOSPC else "BackendError", set[str]()
    for first in range(0, len(chosen), 50):
        _rewinds.copy(template, place)
        with told(seed=seed, code=errno.errorcode[code], steps=chosen[first : first + 50]):
            said = in_child(_fail, place, code, chosen[first : first + 50])
            assert {*said} <= {expected, "done"}, said  # done: where only what was staged could not be removed
        found.update(said)
        tally("R15 calls that fail", len(said))
    assert found == {expected, "done"}


def _fail_for_good(place: Path, at: int) -> list[str]:
    """Let every call from one on fail, so that nothing can be taken back either; then the disk works again."""
    with takeback.open(place / "s.db") as store:
        session = store.get_session("one")
        with Steps(failing(at, errno.EIO, ever_after=True)).watching(), pytest.raises(takeback.Error):
            session.rewind("then")
        session.capture_files()
        return sorted({*read(place / "w").items()} ^ {*now().items()})[:10]


def test_what_could_not_be_taken_back_is_as_soon_as_the_disk_works_again(template: Path, place: Path) -> None:
    _rewinds.copy(template, place)
    assert in_child(_fail_for_good, place, 700) == []


def test_what_could_not_be_taken_back_is_by_the_next_process(template: Path, place: Path) -> None:
    def fail(place: Path) -> bool:
        with takeback.open(place / "s.db") as store:
            session = store.get_session("one")
            with Steps(failing(700, errno.EIO, ever_after=True)).watching(), pytest.raises(takeback.Error):
                session.rewind("then")
        return read(place / "w") == now()

    _rewinds.copy(template, place)
    assert not in_child(fail, place)
    in_child(_recover, place, 0, "capture")
    assert in_child(_look, place) == OLD


# ---------------------------------------------------------------------- other places


def _half_done(template: Path, place: Path) -> None:
    """Leave a rewind in its middle."""
    _rewinds.copy(template, place)
    total = in_child(_rewind, place, 0)
    _rewinds.copy(template, place)
    assert _killed(_rewind, place, total * 2 // 3) is None
    assert read(place / "w") not in (now(), then())


def _journals(place: Path) -> int:
    with apsw.Connection(os.fspath(place / "s.db")) as connection:
        return int(connection.execute("SELECT count(*) FROM journal").fetchone()[0])


def test_looking_at_a_rewind_that_was_cut_off_changes_nothing_and_says_so(template: Path, place: Path) -> None:
    """Law 9: what is pending is shown, and taken back by whoever writes next."""
    _half_done(template, place)
    before = read(place / "w")

    def look(place: Path, read_only: bool) -> list[str]:
        with takeback.open(place / "s.db", read_only=read_only) as store:
            session = store.get_session("one")
            preview = session.preview_rewind("then")
            pending = session.rewind_pending()
            assert pending is not None
            assert preview.pending == pending
            assert pending in str(preview)
            assert (preview.kept, session.recovered) == ((), None)
            assert preview.diff()
            assert session.diff("then")
            return [f"{each.action} {each.path}" for each in preview.files]

    said = in_child(look, place, True)
    assert said == in_child(look, place, False)
    for verb in (["status"], ["resume"], ["rewind", "one:then", "-n"]):
        command = [sys.executable, "-m", "takeback", *verb, "--store", place / "s.db", "-C", place / "w"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "interrupted half way" in shown, verb
    assert (read(place / "w"), in_child(_journals, place)) == (before, 1)

    def whole(place: Path) -> list[str]:
        with takeback.open(place / "s.db") as store:
            preview = store.get_session("one").preview_rewind("then")
            assert preview.pending is None
            return [f"{each.action} {each.path}" for each in preview.files]

    def go_on(place: Path) -> str:
        with takeback.open(place / "s.db") as store:
            session = store.get_session("one")
            session.preview_rewind("then").apply()
            assert session.rewind_pending() is None
            return str(session.recovered)

    assert "taken back" in in_child(go_on, place)
    assert in_child(_look, place) == NEW
    _rewinds.copy(template, place)
    assert said == in_child(whole, place), "what the preview says is what happens once it is taken back"


def test_a_path_that_is_neither_old_nor_new_is_kept_and_named(template: Path, place: Path) -> None:
    _half_done(template, place)
    (place / "w" / "over0").unlink(missing_ok=True)
    (place / "w" / "over0").write_text("a person's")

    def enter(place: Path) -> str:
        with takeback.open(place / "s.db") as store, store.session("one", workspace=place / "w") as session:
            return str(session.recovered)

    assert "over0" in in_child(enter, place)
    assert (place / "w" / "over0").read_text() == "a person's"
    assert {path: thing for path, thing in read(place / "w").items() if not path.startswith("over0")} == {
        path: thing for path, thing in now().items() if path != "over0"
    }


def test_a_workspace_that_is_gone_by_the_time_of_recovery_stops_nothing(template: Path, place: Path) -> None:
    _half_done(template, place)
    _rewinds.clear(place / "w")

    def work(place: Path) -> list[str]:
        with takeback.open(place / "s.db") as store, store.session("one", workspace=place / "w") as session:
            session.user("third")
            assert session.capture_error
            assert not store.verify()
            return [message.text for message in session.messages() if message.role == "user"]

    assert in_child(work, place) == ["first", "second", "third"]


def test_a_new_directory_in_place_of_the_workspace_is_left_as_it_is(template: Path, place: Path) -> None:
    _half_done(template, place)
    _rewinds.clear(place / "w")
    _rewinds.build(place / "w", {"mine": ("f", 0o644, "mine")})

    def work(place: Path) -> list[str]:
        with takeback.open(place / "s.db") as store, store.session("one", workspace=place / "w") as session:
            assert "different directory" in str(session.recovered)
            session.user("third")
            assert not store.verify()
            return [message.text for message in session.messages() if message.role == "user"]

    assert in_child(work, place) == ["first", "second", "third"]
    assert read(place / "w") == {"mine": ("f", 0o644, "mine")}
    assert in_child(_journals, place) == 0


def test_a_workspace_that_was_moved_and_back_is_put_right(template: Path, place: Path) -> None:
    _half_done(template, place)
    (place / "w").rename(place / "elsewhere")

    def work(place: Path) -> None:
        with takeback.open(place / "s.db") as store, store.session("one", workspace=place / "w") as session:
            assert session.capture_error

    in_child(work, place)
    (place / "elsewhere").rename(place / "w")
    in_child(_recover, place, 0, "enter")
    assert in_child(_look, place) == OLD


def test_a_directory_that_was_moved_is_put_right_where_it_is(tmp_path: Path) -> None:
    """The session of a directory follows it; what was begun in it does too."""

    def begin(place: Path) -> int:
        root = place / "w"
        _rewinds.build(root, then())
        with takeback.open(place / "s.db") as store, store.directory_session(root) as session:
            session.user("first")
            session.checkpoint("then")
            with session.tool("shell"):
                _rewinds.build_inside(root, now())
        steps = Steps(killing(900))
        with takeback.open(place / "s.db") as store, store.directory_session(root) as session, steps.watching():
            session.rewind("then")
        return steps.count

    assert _killed(begin, tmp_path) is None
    (tmp_path / "w").rename(tmp_path / "moved")

    def go_on(place: Path) -> None:
        with takeback.open(place / "s.db") as store, store.directory_session(place / "moved") as session:
            session.user("second")

    in_child(go_on, tmp_path)
    assert read(tmp_path / "moved") == now()


def _give_away(place: Path, at_ms: int | None) -> None:
    """Let the journal be that of a process on another machine."""
    with apsw.Connection(os.fspath(place / "s.db")) as connection:
        row = JOURNAL.checked(connection.execute(JOURNAL.select).get)
        holder = presence.Holder("x", "far", 1, "another machine", "1")
        row = row._replace(holder=presence.encode(holder), at_ms=row.at_ms if at_ms is None else at_ms)
        sql = "UPDATE journal SET holder = ?, at_ms = ?, chk = ?"
        connection.execute(sql, (row.holder, row.at_ms, JOURNAL.check(row)))


def test_a_rewind_under_way_on_another_machine_is_left_alone(template: Path, place: Path) -> None:
    _half_done(template, place)
    in_child(_give_away, place, None)
    before = read(place / "w")

    def work(place: Path) -> str | None:
        with takeback.open(place / "s.db") as store:
            session = store.get_session("one")
            with pytest.raises(takeback.Busy, match="far"):
                session.preview_rewind("then")
            with pytest.raises(takeback.Busy, match="far"):
                session.checkpoint("no")
            with store.session("one", workspace=place / "w") as session:
                session.user("goes on")
                return session.capture_error

    assert "far" in in_child(work, place)
    assert read(place / "w") == before
    assert in_child(_journals, place) == 1
