"""R12: repair works on a copy, loses only damaged records, and says which."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from _damages import DAMAGES, build, damaged, plant_some, records_of, rot, rows_of  # noqa: F401
from test_verify import grow

import takeback
from takeback import Conflict, Invalid
from takeback.tables import schema

pytestmark = [pytest.mark.promise("R12"), pytest.mark.feature("F5")]


# The kind of record that the rows of a table go into; those of others are made again by any store.
KINDS = {
    "agent": "agent",
    "agent_version": "version",
    "session": "session",
    "detail": "session",
    "branch": "branch",
    "entry": "entry",
    "lost": "entry",
    "blob": "blob",
    "chunk": "chunk",
    "checkpoint": "checkpoint",
    "operation": "operation",
    "idempotency": "key",
    "workspace": "workspace",
    "document": "document",
    **dict.fromkeys(("scan", "touched"), "scan"),
    "agent_checkpoint": "agentpoint",
    "pin": "agentpoint",
    **dict.fromkeys(("lease", "stream", "delta", "inbox", "journal"), ""),
}


def _difference(before: dict[str, Counter[Any]], after: dict[str, Counter[Any]]) -> dict[str, int]:
    """Return in how many records of each kind two stores differ, replaced ones counted once."""
    found = {}
    for kind in before.keys() | after.keys():
        one, two = before.get(kind, Counter()), after.get(kind, Counter())
        found[kind] = max((one - two).total(), (two - one).total())
    return {kind: number for kind, number in found.items() if number}


def _allowed(costs: dict[str, int]) -> dict[str, int]:
    """Return how many records of each kind may differ, from how many rows of each table may."""
    found = dict[str, int]()
    for table, number in costs.items():
        if table in KINDS:
            kind = KINDS[table] or table
            found[kind] = max(number, found.get(kind, 0))
    return found


@pytest.mark.parametrize("name", DAMAGES)
def test_repair_loses_only_what_is_damaged(tmp_path: Path, name: str) -> None:
    """The copy verifies, has every other row as it was, and whatever it has not is named."""
    path, before = damaged(tmp_path, name)
    planted = rows_of(path)
    with takeback.open(path) as store:
        done = store.repair()
    assert not done.report, str(done)
    assert rows_of(path) == planted, "the store itself was changed"
    costs, lost = _allowed(DAMAGES[name][2]), _difference(before, records_of(Path(done.path)))
    assert lost.keys() <= costs.keys(), (lost, str(done))
    assert all(lost[kind] <= costs[kind] for kind in lost), (lost, str(done))
    assert bool(done.lost) >= bool(lost), "something is missing and nothing was said"
    assert done.lost or done.rebuilt


def test_whatever_is_damaged_the_copy_is_sound(tmp_path: Path, seed: int, counts: Callable[[int, int], int]) -> None:
    """Values, rows and several of them at once, by chance; the copy can be read and written."""
    for number in range(counts(60, 2000)):
        rng, path = random.Random(f"repair {seed} {number}"), tmp_path / str(number) / "a.db"
        path.parent.mkdir()
        with takeback.open(path, durability="relaxed") as store:
            grow(store, rng, rng.randrange(10, 50))
        for beside in path.parent.glob("a.db-*"):
            beside.unlink()
        planted = plant_some(path, rng)
        with takeback.open(path) as store:
            found, done = store.verify(), store.repair()
        about = f"seed {seed}, store {number}, {planted}: {done}"
        assert not done.report, about
        assert bool(found) or not (done.lost or done.rebuilt), f"a sound store was changed: {about}"
        with takeback.open(done.path) as copy:
            for session in copy.iter_sessions(archived=None):
                session.messages()
                with copy.session(session, take_over=True):
                    session.receive()
                    session.user("and on")
            list(copy.events())
            assert not copy.verify(), about


def test_a_healthy_store_is_copied_as_it_is(tmp_path: Path) -> None:
    path = build(tmp_path / "a.db")
    with takeback.open(path) as store:
        done = store.repair()
    assert (done.lost, done.rebuilt, bool(done.report)) == ((), 0, False)
    assert done.path == f"{path}.repaired"
    assert records_of(Path(done.path)) == records_of(path)
    assert os.stat(done.path).st_mode & 0o777 == 0o600


def test_a_lost_message_keeps_its_place_and_says_so(tmp_path: Path) -> None:
    path, _ = damaged(tmp_path, "entry missing in the middle")
    with takeback.open(path) as store:
        done = store.repair(tmp_path / "copy.db")
    (lost,) = done.lost
    assert lost.kind == "entry"
    assert lost.where.endswith("-7")
    with takeback.open(done.path) as copy:
        talk = copy.get_session("talk")
        messages = talk.messages()
        assert [message.seq for message in messages if message.body.status == "redacted"] == [7]
        assert messages[7].text == "answer 4"
        talk.user("it goes on")
        assert not copy.verify()


def test_a_repaired_store_can_be_damaged_and_repaired_again(tmp_path: Path) -> None:
    path, _ = damaged(tmp_path, "entry missing in the middle")
    with takeback.open(path) as store:
        first = store.repair()
    database = apsw.Connection(first.path)
    database.execute("UPDATE lost SET what = 'nothing'")
    database.execute("DELETE FROM entry WHERE key = (1 << 32 | 3)")
    database.close()
    with takeback.open(first.path) as store:
        assert {problem.kind for problem in store.verify().problems} >= {"lost", "missing"}
        second = store.repair()
    assert not second.report, str(second)


_NUMBERED = ("session", "branch", "agent", "feed", "operation")


def _far_away(path: Path, table: str, far: int) -> takeback.Repaired:
    """Move the last row of a table far behind the others, and repair it."""
    key = schema.BY_NAME[table].number
    database = apsw.Connection(str(path))
    database.execute(f"UPDATE {table} SET {key} = {key} + {far} WHERE {key} = (SELECT max({key}) FROM {table})")
    database.close()
    with takeback.open(path) as store:
        assert store.verify()
        done = store.repair()
    assert not done.report, str(done)
    return done


@pytest.mark.parametrize("far", [3000, 3000 << 30])
@pytest.mark.parametrize("table", _NUMBERED)
def test_a_number_that_was_never_given_out_does_not_take_for_ever(tmp_path: Path, table: str, far: int) -> None:
    done = _far_away(build(tmp_path / "a.db"), table, far)
    assert done.rebuilt if table == "feed" else done.lost  # the feed is made again from what it tells of


@pytest.mark.parametrize("table", _NUMBERED)
def test_a_number_with_one_bit_flipped_is_flipped_back(tmp_path: Path, table: str) -> None:
    path = build(tmp_path / "a.db")
    before = records_of(path)
    done = _far_away(path, table, 1 << 40)
    assert (done.lost, records_of(Path(done.path))) == ((), before)


def test_who_followed_the_store_begins_again_with_the_copy(tmp_path: Path) -> None:
    """The copy has a feed of its own: a cursor of the store is told, not taken for a place in it."""
    path = build(tmp_path / "a.db")
    with takeback.open(path) as store:
        cursor = [change.cursor for change in store.events()][20]
        assert list(store.events(cursor))
        done = store.repair()
    with takeback.open(done.path) as copy:
        with pytest.raises(Invalid, match="begin again"):
            list(copy.events(cursor))
        assert list(copy.events())


def test_the_copy_goes_nowhere_that_is_taken(tmp_path: Path) -> None:
    path = build(tmp_path / "a.db")
    (tmp_path / "taken").write_text("precious")
    with takeback.open(path) as store:
        for target in (path, tmp_path / "taken"):
            with pytest.raises(Conflict):
                store.repair(target)
    assert (tmp_path / "taken").read_text() == "precious"


def test_a_store_in_memory_needs_to_be_told_where(tmp_path: Path) -> None:
    with takeback.open(":memory:") as store:
        store.session("a").user("hello")
        with pytest.raises(Invalid):
            store.repair()
        done = store.repair(tmp_path / "b.db")
    with takeback.open(done.path) as copy:
        assert [message.text for message in copy.get_session("a").messages()] == ["hello"]


def test_a_read_only_store_can_be_repaired(tmp_path: Path) -> None:
    path, _ = damaged(tmp_path, "content of an entry changed")
    with takeback.open(path, read_only=True) as store:
        assert not store.repair().report


def test_a_repair_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build(tmp_path / "a.db")

    def fail(tx: object, *, now_ms: int) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("takeback.client.repairing.mend", fail)
    with takeback.open(path) as store, pytest.raises(RuntimeError):
        store.repair()
    assert not list(tmp_path.glob("*.repaired*"))


def _leaves(path: Path, table: str) -> list[int]:
    database = apsw.Connection(str(path))
    asked = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY pageno"
    found = [page for (page,) in database.execute(asked, (table,))]
    database.close()
    return found


@pytest.mark.parametrize("pages", [1, 3])
def test_pages_that_cannot_be_read_cost_their_rows_alone(tmp_path: Path, pages: int) -> None:
    """The file itself is damaged: what lies before, between and behind the bad pages is copied."""
    path = tmp_path / "a.db"
    with takeback.open(path, durability="relaxed") as store:
        session = store.create_session("long")
        for number in range(600):
            session.user(f"message {number} " + "x" * 100)
    leaves = _leaves(path, "entry")[2:-2]
    chosen = random.Random(1).sample(leaves, pages)
    with path.open("r+b") as file:
        for page in chosen:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)
    with takeback.open(path) as store:
        assert store.verify()
        done = store.repair()
    assert not done.report, str(done)
    with takeback.open(done.path) as copy:
        kept = [message for message in copy.get_session("long").messages() if message.data is not None]
    assert all(message.text.startswith(f"message {message.seq - 1} ") for message in kept)
    lost = [problem for problem in done.lost if problem.kind == "entry"]
    assert len(kept) + len(lost) == 600
    assert len(lost) <= 25 * pages
