"""Defects that systems like this one had, each shown to be absent here; docs/defects.md says what each one was."""

import contextlib
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

import takeback
from takeback import Store
from takeback.tables.sessions import SESSION
from takeback.testing.clock import ManualClock


def _break(tx: object) -> None:
    raise RuntimeError("planted in the middle of a write")


def plant(path: Path, sql: str, *values: Any) -> None:
    """Change a closed store behind its back."""
    connection = apsw.Connection(str(path))
    connection.execute(sql, values)
    connection.close()


@pytest.mark.feature("A9")
@pytest.mark.defect("S0-8", "S4-6")
def test_a_damaged_session_is_named_and_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with takeback.open(path) as store:
        made = [store.create_session(f"s{n}") for n in range(5)]
    plant(path, "UPDATE session SET title = 'forged' WHERE name = 's2'")
    forged = made[3]._seen._replace(turns=99)
    plant(path, "UPDATE session SET rest = ? WHERE name = 's3'", SESSION.rest_of(forged))
    with takeback.open(path) as store:
        page = store.list_sessions()
        assert [s.name for s in page] == ["s4", "s1", "s0"]
        assert set(page.damaged) == {made[2].id, made[3].id}
        assert "2 damaged" in repr(page)
        with pytest.raises(takeback.Corrupt):
            store.get_session(made[2].id)
        assert store.verify()


@pytest.mark.feature("A2")
@pytest.mark.defect("S0-4", "S4-2", "S2-1")
def test_two_handles_lose_nothing_of_each_other(takeback_store: Store) -> None:
    first = takeback_store.create_session("s")
    second = takeback_store.get_session("s")
    for n in range(10):
        (first if n % 2 else second).user(str(n))
    assert [m.text for m in first.messages()] == [m.text for m in second.messages()] == [str(n) for n in range(10)]


@pytest.mark.feature("E7")
@pytest.mark.defect("S4-3", "S3-9")
def test_an_append_does_not_bring_a_deleted_session_back(takeback_store: Store) -> None:
    session = takeback_store.create_session("s")
    takeback_store.delete_session(session.id)
    with pytest.raises(takeback.Conflict):
        session.user("x")
    takeback_store.purge_session(session.id)
    with pytest.raises(takeback.NotFound):
        session.user("x")
    assert list(takeback_store.list_sessions()) == []


@pytest.mark.feature("D10")
@pytest.mark.defect("S3-6")
def test_the_first_of_many_messages_is_never_dropped(takeback_store: Store) -> None:
    session = takeback_store.create_session()
    for n in range(250):
        session.user(str(n))
    assert [m.text for m in session.messages()][:2] == ["0", "1"]
    assert session.message_count == 250


@pytest.mark.feature("D6")
@pytest.mark.defect("S3-14")
def test_a_limit_counts_after_the_filter_and_tool_messages_name_their_tool(takeback_store: Store) -> None:
    session = takeback_store.create_session()
    for n in range(5):
        session.user(str(n))
        with session.tool("bash", {"n": n}) as run:
            run.result(n)
    assert [m.text for m in session.messages(limit=3, tools=False)] == ["2", "3", "4"]
    assert [m.tool_name for m in session.messages(limit=1)] == ["bash"]


@pytest.mark.feature("D1")
@pytest.mark.defect("S3-2", "S4-22", "S0-15", "S3-13")
def test_ids_are_unique_and_order_holds_whatever_the_clock_says(
    takeback_store: Store, takeback_clock: ManualClock
) -> None:
    takeback_clock.ms = -5
    made = [takeback_store.create_session() for _ in range(50)]
    takeback_clock.ms = -10_000
    made[7].user("x")
    assert len({session.id for session in made}) == 50
    assert takeback_store.list_sessions()[0].id == made[7].id
    listed = takeback_store.list_sessions(order="created", limit=100)
    assert [s.id for s in listed] == [s.id for s in reversed(made)]


@pytest.mark.feature("B1")
@pytest.mark.defect("S3-7", "S1-19")
def test_a_clock_that_steps_back_gives_no_negative_time(takeback_store: Store, takeback_clock: ManualClock) -> None:
    session = takeback_store.create_session()
    with session.tool("slow") as run:
        takeback_clock.advance(-(10**9))
        run.result("x")
    assert session.stats().duration >= 0
    for huge in (float("inf"), 1e300, -1, "5"):
        with pytest.raises(takeback.Invalid):
            session.user("x", duration=huge)  # type: ignore[arg-type]


@pytest.mark.feature("E1")
@pytest.mark.defect("S4-5", "S4-4", "S0-6", "S1-2")
@pytest.mark.parametrize("agent_id", ["x.json", "x.json.json", "../../x", "/etc/passwd", "CON", "a/b", "x" * 900, "."])
def test_an_id_is_data_and_never_a_path(tmp_path: Path, agent_id: str) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        store.create_agent(agent_id)
        assert [agent.id for agent in store.list_agents()] == [agent_id]
        assert store.delete_agent(agent_id) is not None
    assert {name.split("-")[0] for name in os.listdir(tmp_path)} == {"s.db"}


@pytest.mark.feature("B4")
@pytest.mark.defect("S4-8", "S4-9")
def test_a_checksum_does_not_depend_on_the_order_of_keys_or_on_reopening(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        session = store.create_session("s")
        for n in range(20):
            session.state.update({f"k{(n * 7 + i) % 9}": i for i in range(6)})
        made = session.checkpoint("c")
    for _ in range(3):
        with takeback.open(tmp_path / "s.db") as store:
            session = store.get_session("s")
            assert session.get_checkpoint("c") == made
            session.rewind("c")
            assert not store.verify()


@pytest.mark.feature("B4")
@pytest.mark.defect("S1-14", "S1-2")
def test_checkpoints_are_listed_in_the_order_they_were_made(takeback_store: Store) -> None:
    session = takeback_store.create_session()
    names = [f"cp-{n}" for n in (9, 10, 1, 100, 2)]
    for name in names:
        session.checkpoint(name)
    assert [c.name for c in session.checkpoints()] == names
    session.checkpoint("cp-10")
    assert len(session.checkpoints()) == 6, "a name that is used again overwrites nothing"


@pytest.mark.feature("B2")
@pytest.mark.defect("S1-15")
def test_prompts_answers_and_tool_calls_have_one_order(takeback_store: Store) -> None:
    session = takeback_store.create_session()
    session.user("a")
    with session.tool("t", 1) as run:
        session.assistant("meanwhile")
        run.result("r")
    session.user("b")
    kinds = [(entry.seq, entry.kind) for entry in session.entries()]
    assert kinds == [(1, "message"), (2, "call"), (3, "message"), (4, "tool"), (5, "message")]


@pytest.mark.feature("C2")
@pytest.mark.defect("S2-3", "S0-12")
def test_an_unknown_role_or_field_makes_nothing_unreadable(takeback_store: Store) -> None:
    session = takeback_store.create_session()
    session.append({"role": "Oracle", "content": "x", "novelty": {"deep": [None]}})
    session.append(
        {
            "role": "assistant",
            "content": [
                {"type": "hologram", "data": 1},
                {"type": "tool_use", "id": "a", "name": "b", "input": {}, "new": 1},
            ],
        }
    )
    first, second = session.messages()
    assert (first.role, first.extra) == ("Oracle", {"novelty": {"deep": [None]}})
    assert second.content[0] == {"type": "hologram", "data": 1}
    assert second.content[1]["new"] == 1


@pytest.mark.feature("D9")
@pytest.mark.defect("S3-15")
def test_a_thread_that_dies_poisons_nothing(takeback_store: Store) -> None:
    session = takeback_store.create_session()

    def die() -> None:
        session.user("before")
        with contextlib.suppress(RuntimeError):
            session._store._write(_break)

    thread = threading.Thread(target=die)
    thread.start()
    thread.join()
    session.user("after")
    assert [m.text for m in session.messages()] == ["before", "after"]


@pytest.mark.feature("E7")
@pytest.mark.defect("S4-20")
def test_deleting_an_agent_is_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with takeback.open(path) as store:
        made = [store.create_session(agent="a") for _ in range(5)]
    plant(path, "UPDATE session SET title = 'forged' WHERE sid = 4")
    with takeback.open(path) as store:
        with pytest.raises(takeback.Corrupt):
            store.delete_agent("a")
        assert store.find_agent("a") is not None
        assert len(store.list_sessions()) == 4
        assert store.list_sessions().damaged == (made[3].id,)


@pytest.mark.feature("D4")
@pytest.mark.defect("S3-10")
def test_a_main_session_can_be_used_for_ever(takeback_store: Store) -> None:
    main = takeback_store.main_session("a")
    main.user("x")
    takeback_store.delete_session(main)
    main.user("y")
    assert [m.text for m in takeback_store.main_session("a").messages()] == ["y"]


@pytest.mark.feature("E2")
@pytest.mark.defect("S4-27")
def test_archived_sessions_are_left_out_unless_asked_for(takeback_store: Store) -> None:
    takeback_store.create_session("a").archive()
    assert list(takeback_store.list_sessions()) == []
    assert [s.name for s in takeback_store.list_sessions(archived=True)] == ["a"]


@pytest.mark.feature("E11")
@pytest.mark.defect("S4-26")
def test_the_size_of_a_store_is_that_of_its_files(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        store.create_session().user("x" * 100_000)
        said = store.stats().total_bytes
        found = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert said == found


@pytest.mark.feature("C5")
@pytest.mark.defect("S2-6", "S4-25")
def test_absent_unreadable_and_damaged_are_different_answers(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        session = store.create_session("s")
        session.user("x")
        with pytest.raises(takeback.NotFound):
            store.get_session("nosuch")
    plant(tmp_path / "s.db", "UPDATE entry SET body = x'00'")
    with takeback.open(tmp_path / "s.db") as store, pytest.raises(takeback.Corrupt):
        store.get_session("s").messages()


@pytest.mark.feature("E3")
@pytest.mark.defect("S0-5", "S4-24")
def test_an_append_does_not_rewrite_what_is_there(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        session = store.create_session("long")
        session.user("big", attachments=[os.urandom(2_000_000)])
        session.append(*({"role": "user", "content": "x" * 500} for _ in range(2000)))
    with takeback.open(tmp_path / "s.db") as store:  # again: closing moved all of it out of the log
        session = store.get_session("long")
        for _ in range(10):  # by then the log has its full length
            session.user("x" * 500)
        wal = tmp_path / "s.db-wal"
        before = store.stats().total_bytes
        for _ in range(20):
            session.user("x" * 500)
        assert wal.exists()
        assert store.stats().total_bytes - before < 1_000_000


@pytest.mark.feature("C5")
def test_a_naive_time_is_refused(takeback_store: Store) -> None:
    with pytest.raises(takeback.Invalid):
        takeback_store.list_sessions(since=datetime(2026, 1, 1))
    assert list(takeback_store.list_sessions(since=datetime(2026, 1, 1, tzinfo=UTC))) == []
