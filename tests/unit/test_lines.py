"""A store as lines: whatever sessions hold comes back from them as it was, and gives the same lines again."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from _copied import OPENERS, SCOPES, assert_sound, go_on, is_empty, memory, rich, session_view
from _damages import DAMAGES, damaged
from test_verify import grow

import takeback
from takeback import Store
from takeback.exporters import jsonl
from takeback.importers import jsonl as importing

pytestmark = pytest.mark.feature("F9")


def exported(store: Store) -> bytes:
    """Export every session that can be listed."""
    out = io.BytesIO()
    jsonl.write(store, [each.id for each in store.iter_sessions(archived=None)], out)
    return out.getvalue()


def imported(store: Store, data: bytes) -> importing.Imported:
    """Import what was exported."""
    return importing.read(store, io.BytesIO(data))


def assert_back(source: Store, target: Store) -> None:
    """Export, import into an empty store, and compare everything that can be seen, and the lines."""
    data = exported(source)
    imported(target, data)
    assert_sound(target)
    wanted = [each.id for each in source.iter_sessions(archived=None)]
    assert [each.id for each in target.iter_sessions(archived=None)] == wanted, "in the order of listings"
    for session_id in wanted:
        assert session_view(target.get_session(session_id)) == session_view(source.get_session(session_id))
    assert exported(target) == data
    done = imported(target, data).copied
    assert done is not None
    assert is_empty(done), "importing twice changes nothing"


@pytest.mark.parametrize(("one", "two"), [("memory", "file"), ("postgres", "memory"), ("file", "postgres")])
def test_some_of_everything_comes_back(tmp_path: Path, one: str, two: str) -> None:
    with OPENERS[one](tmp_path / "a.db") as source, OPENERS[two](tmp_path / "b.db") as target:
        assert_back(rich(source), target)


def test_sessions_of_all_kinds_come_back(seed: int, counts: Callable[[int, int], int]) -> None:
    for number in range(counts(12, 300)):
        rng = random.Random(f"lines {seed} {number}")
        with memory() as source, memory() as target:
            grow(source, rng, rng.randrange(80))
            assert_back(source, target)


def test_what_was_added_since_comes_with_the_next_file(seed: int) -> None:
    rng = random.Random(f"later {seed}")
    with memory() as source, memory() as target:
        grow(source, rng, 40)
        grow(source.scoped("anna"), rng, 5)
        imported(target, exported(source))
        go_on(source, rng)
        imported(target, exported(source))
        for session in source.iter_sessions(archived=None):
            assert session_view(target.get_session(session.id)) == session_view(session)
        assert_sound(target)


def test_a_file_names_no_scope_and_goes_into_any() -> None:
    with memory() as source, memory() as target:
        rich(source)
        for scope, other in zip(SCOPES, ("bert", "carl"), strict=True):
            imported(target.scoped(other), exported(source.scoped(scope)))
        found = [len(target.scoped(other).list_sessions(archived=None)) for other in ("bert", "carl")]
        assert found == [len(source.scoped(scope).list_sessions(archived=None)) for scope in SCOPES]
        assert not target.list_sessions()
        assert_sound(target)


def test_what_a_repair_recorded_as_lost_comes_back(tmp_path: Path) -> None:
    for name in [name for name in DAMAGES if name.startswith(("entry", "blob", "branch", "operation"))]:
        path, _ = damaged(tmp_path, name)
        with takeback.open(path) as store:
            repaired = store.repair(tmp_path / f"{path.stem} {len(list(tmp_path.iterdir()))}.db").path
        with takeback.open(repaired) as source, memory() as target:
            data = exported(source)
            imported(target, data)
            assert_sound(target)
            for session in source.iter_sessions(archived=None):
                assert list(session.entries()) == list(target.get_session(session.id).entries()), name


def test_idempotency_keys_come_back() -> None:
    with memory() as source, memory() as target:
        rich(source)
        imported(target, exported(source))
        talk = target.get_session("talk", agent="coder")
        count = talk.message_count
        assert talk.user("with a key", idempotency_key="once").text == "with a key"
        assert talk.refresh().message_count in (count, count + 1)  # off the path by a rewind it is stored anew
        made = target.create_session(
            "talk", agent="coder", tags=["a", "b"], metadata={"m": 1}, prompt="Do it", idempotency_key="talk"
        )
        assert made.id == talk.id
