"""R30: one write is never torn. Whatever is killed, its messages, entries, state, tasks and documents are all there."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import _postgres
import takeback
from takeback import Custom

from ._harness import Acks, Child, in_child, told

pytestmark = [pytest.mark.slow, pytest.mark.promise("R30"), pytest.mark.feature("C6")]

_WRITER = "w"


def _make(place: str) -> str:
    with takeback.open(place) as store:
        return store.create_session("victim").id


def _last(acks: Acks) -> int:
    """Return the last step that was acknowledged; one that was stored just before a kill was not."""
    return max((number for _, number in acks.notes()), default=0)


def _step(session: takeback.Session, number: int, rng: random.Random) -> None:
    """Write one step; every now and then at an earlier point, on a new branch."""
    at = None
    if number > 3 and rng.random() < 0.2:
        at = session.customs(newest=True, limit=rng.randrange(1, 4))[-1]
    session.write(
        {"role": "user", "content": f"step {number}", "id": f"m{number}"},
        Custom("step", {"n": number, "more": "x" * rng.choice((*[0] * 7, 100_000))}, id=f"c{number}"),
        state={"n": number},
        tasks=[f"task {number}"],
        docs={("app", "n"): number, (("app", "big"), "n"): str(number) * rng.choice((*[1] * 7, 30_000))},
        at=at,
        idempotency_key=f"step {number}",
    )


def _check(store: takeback.Store, session: takeback.Session, acknowledged: int, *, counts: bool) -> int:
    """Compare every part of the last step, and count all steps; return its number."""
    newest = session.customs(newest=True, limit=1)
    number = newest[0].data["n"] if newest else 0
    said = session.messages(limit=1)
    document, other = store.docs("app").find("n"), store.docs(("app", "big")).find("n")
    parts = {
        "custom entries": _steps(session) if counts else number,
        "message": int(said[0].text.split()[1]) if said else 0,
        "state": session.state.get("n", 0),
        "tasks": int(session.tasks()[0].description.split()[1]) if session.tasks() else 0,
        "document": document.value if document else 0,
        "its version": document.version if document else 0,
        "the other": other.version if other else 0,
    }
    assert parts == dict.fromkeys(parts, number), f"a torn write: {parts}, the newest step is {number}"
    assert acknowledged <= number <= acknowledged + 1, f"step {number}, but {acknowledged} were acknowledged"
    return number


def _steps(session: takeback.Session) -> int:
    """Count the steps on all branches."""
    count, cursor = 0, None
    while True:
        page = session.customs("step", all_branches=True, limit=1000, cursor=cursor)
        count, cursor = count + len(page), page.cursor
        if cursor is None:
            return count


def _write_until_killed(place: str, session_id: str, acks: Acks, seed: str, verifies: bool) -> None:
    """Check what the last one left, and write step after step."""
    rng, acknowledge = random.Random(seed), acks.writer()
    with takeback.open(place) as store:
        session = store.get_session(session_id)
        number = _check(store, session, _last(acks), counts=verifies)
        if verifies:
            report = store.verify()
            assert not report, str(report)
        if number and rng.random() < 0.3:
            before = session.revision
            try:
                _step(session, number, rng)  # a retry; a step of other size is refused
            except takeback.Conflict:
                pass
            assert session.refresh().revision == before, "a retry wrote again"
        while True:
            number += 1
            _step(session, number, rng)
            acknowledge(_WRITER, number)


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_a_write_is_all_there_or_not_at_all_after_kill_9(
    tmp_path: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int], engine: str
) -> None:
    place = str(tmp_path / "store.db") if engine == "sqlite" else _postgres.url(tmp_path)
    rng, acks, kills = random.Random(f"torn {seed} {engine}"), Acks(tmp_path / "acks"), counts(100, 2500)
    session_id = in_child(_make, place)
    for round_ in range(kills):
        with told(seed=seed, round=round_):
            size = acks.size()
            child = Child(_write_until_killed, place, session_id, acks, f"{seed} {round_}", round_ % 25 == 24)
            while acks.size() == size and child.alive():
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.02))
            assert child.alive(), f"the writer ended by itself: {child.result()}"
            child.kill()
    tally("R30 kills", kills)
    tally("R30 acknowledged writes", _last(acks))
