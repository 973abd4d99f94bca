"""The contract: agents, and the state of agents and sessions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from takeback import Agent, Conflict, Invalid, NotFound, Session, Store

from .base import Contract, said

_VALUES: list[Any] = [
    None,
    True,
    5,
    -0.5,
    "text",
    b"\0bytes",
    [1, [2]],
    {"a": {"b": None}},
    2**70,
    "\ud800",
    float("inf"),
]


class Agents(Contract):
    """Agents: fields, versions, state, deletion."""

    @pytest.fixture
    def agent(self, store: Store) -> Agent:
        """Return an agent with all its fields."""
        return store.create_agent("coder", name="Coder", type="code", capabilities=["edit"], config={"t": 1})

    @pytest.mark.feature("E1")
    def test_an_agent_has_its_fields(self, store: Store, agent: Agent) -> None:
        found = store.get_agent("coder")
        assert (found.id, found.name, found.type, found.version) == ("coder", "Coder", "code", 1)
        assert (found.capabilities, found.config, found.metadata, found.system_prompt) == (
            ("edit",),
            {"t": 1},
            {},
            None,
        )
        assert found.created_at == found.modified_at
        assert found.to_dict()["id"] == "coder"

    @pytest.mark.feature("E1")
    def test_an_update_is_a_new_version_and_can_be_undone(self, store: Store, agent: Agent) -> None:
        changed = store.update_agent("coder", name="Better", metadata={"x": 1})
        assert (changed.version, changed.name, changed.type) == (2, "Better", "code")
        store.undo()
        back = store.get_agent("coder")
        assert (back.version, back.name, back.metadata) == (3, "Coder", {})
        store.redo()
        assert store.get_agent("coder").name == "Better"

    @pytest.mark.feature("E1")
    @pytest.mark.promise("R10")
    def test_a_lost_race_over_an_agent_is_told(self, store: Store, agent: Agent) -> None:
        store.update_agent("coder", name="a", expected_version=1)
        with pytest.raises(Conflict) as lost:
            store.update_agent("coder", name="b", expected_version=1)
        assert (lost.value.expected, lost.value.found) == (1, 2)

    @pytest.mark.feature("E1", "C5")
    def test_what_is_no_agent_is_told(self, store: Store, agent: Agent) -> None:
        with pytest.raises(Conflict):
            store.create_agent("coder")
        with pytest.raises(NotFound):
            store.get_agent("nosuch")
        assert store.find_agent("nosuch") is None
        with pytest.raises(TypeError):
            store.update_agent("coder", nosuch=1)
        with pytest.raises(Invalid):
            store.update_agent("coder", capabilities="edit")
        assert store.get_agent("coder").version == 1

    @pytest.mark.feature("E1")
    @pytest.mark.defect("S4-23")
    def test_a_session_always_has_its_agent(self, store: Store) -> None:
        store.create_session(agent="new one")
        assert store.get_agent("new one").version == 1
        assert [s.agent_id for s in store.get_agent("new one").sessions()] == ["new one"]

    @pytest.mark.feature("E1")
    def test_agents_are_listed_in_pages(self, store: Store) -> None:
        ids = sorted(f"a{n:02}" for n in range(12))
        for agent_id in reversed(ids):
            store.create_agent(agent_id)
        seen, cursor = list[str](), None
        while True:
            page = store.list_agents(limit=5, cursor=cursor)
            seen += [agent.id for agent in page]
            cursor = page.cursor
            if cursor is None:
                break
        assert seen == ids

    @pytest.mark.feature("E7")
    def test_deleting_an_agent_takes_its_sessions_along_and_back(self, store: Store, agent: Agent) -> None:
        mine = [store.create_session(agent="coder"), store.main_session("coder")]
        mine[0].user("kept")
        other = store.create_session(agent="other")
        assert store.delete_agent("coder") is not None
        assert [s.id for s in store.list_sessions()] == [other.id]
        assert store.find_agent("coder") is None
        assert store.delete_agent("coder") is None
        assert store.delete_agent("never existed") is None
        store.undo()
        assert {s.id for s in store.list_sessions()} == {other.id, *(s.id for s in mine)}
        assert said(store.get_session(mine[0].id)) == ["kept"]
        assert store.get_agent("coder").name == "Coder"

    @pytest.mark.feature("E7")
    def test_an_id_that_was_deleted_can_be_used_again(self, store: Store, agent: Agent) -> None:
        store.delete_agent("coder")
        assert store.create_agent("coder").version == 1
        with pytest.raises(Conflict):
            store.undo()


class States(Contract):
    """State: typed values, versions, history, compare-and-set; the same on agents and sessions."""

    @pytest.fixture(params=["agent", "session"])
    def holder(self, request: pytest.FixtureRequest, store: Store) -> Any:
        """Return something that has a state: an agent or a session."""
        return store.create_agent("a") if request.param == "agent" else store.create_session("s")

    @pytest.mark.feature("E1")
    def test_every_kind_of_value_comes_back(self, holder: Any) -> None:
        state = holder.state
        for number, value in enumerate(_VALUES):
            state.set(f"k{number}", value)
        assert state.items() == {f"k{number}": value for number, value in enumerate(_VALUES)}
        assert state.get("k4") == "text"
        assert state.get("nosuch") is None
        assert state.get("nosuch", 7) == 7

    @pytest.mark.feature("E1")
    def test_unknown_types_are_refused_and_nothing_is_written(self, holder: Any) -> None:
        holder.state.set("a", 1)
        for wrong in (object(), {1, 2}, {1: 2}, lambda: None, 2**5000):
            with pytest.raises(Invalid):
                holder.state.set("b", wrong)
        for key in ("", "x" * 2000, None, 5, "\0"):
            with pytest.raises(Invalid):
                holder.state.set(key, 1)
        assert holder.state.items() == {"a": 1}
        assert holder.state.version() == 2

    @pytest.mark.feature("E1")
    def test_versions_count_from_one_and_can_be_read_again(self, holder: Any) -> None:
        state = holder.state
        assert state.version() == 1
        assert state.set("a", 1) == 2
        assert state.update({"a": 2, "b": 3}) == 3
        assert state.delete("a", "nosuch") == 4
        assert [state.at(version) for version in (1, 2, 3, 4)] == [{}, {"a": 1}, {"a": 2, "b": 3}, {"b": 3}]
        for version in (5, 99):
            with pytest.raises(NotFound):
                state.at(version)
        with pytest.raises(Invalid):
            state.at(0)

    @pytest.mark.feature("E1")
    @pytest.mark.promise("R10")
    def test_compare_and_set_tells_the_loser(self, holder: Any) -> None:
        state = holder.state
        version = state.set("n", 0)
        state.set("n", 1, expected_version=version)
        with pytest.raises(Conflict) as lost:
            state.set("n", 2, expected_version=version)
        assert (lost.value.expected, lost.value.found) == (version, version + 1)
        assert state.get("n") == 1

    @pytest.mark.feature("E1", "D9")
    @pytest.mark.promise("R10")
    def test_counting_with_compare_and_set_from_many_threads_loses_nothing(self, holder: Any) -> None:
        holder.state.set("n", 0)

        def count(_: int) -> int:
            conflicts = 0
            for _ in range(5):
                while True:
                    version = holder.state.version()
                    number = holder.state.at(version)["n"]
                    try:
                        holder.state.set("n", number + 1, expected_version=version)
                        break
                    except Conflict:
                        conflicts += 1
            return conflicts

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(count, range(4)))
        assert holder.state.get("n") == 20

    @pytest.mark.feature("A2", "E1")
    def test_a_retry_of_a_state_change_is_one_change(self, holder: Any) -> None:
        first = holder.state.set("a", 1, idempotency_key="k")
        assert holder.state.set("a", 1, idempotency_key="k") == first
        assert holder.state.version() == first
        with pytest.raises(Conflict):
            holder.state.set("a", 2, idempotency_key="k")

    @pytest.mark.feature("E1", "F1")
    def test_a_rewind_takes_back_session_state_and_leaves_agent_state(self, store: Store, session: Session) -> None:
        agent = store.get_agent("main")
        session.state.set("a", 1)
        agent.state.set("a", 1)
        point = session.checkpoint("here")
        session.state.update({"a": 2, "b": 3})
        agent.state.set("a", 2)
        version = session.state.version()
        session.rewind(point)
        assert session.state.items() == {"a": 1}
        assert agent.state.get("a") == 2
        session.state.set("c", 4)
        assert session.state.version() > version, "one number never names two contents"
        session.undo()
        assert session.state.items() == {"a": 2, "b": 3}

    @pytest.mark.feature("F2")
    def test_a_large_state_grows_by_what_changes(self, store: Store, session: Session) -> None:
        session.state.update({f"key {n}": "x" * 100 for n in range(500)})
        sizes = []
        for n in range(300):
            session.state.set(f"key {n}", n)
            (entry,) = session.entries(after=session.head.seq - 1)
            sizes.append(len(entry.body or b""))
        assert sorted(sizes)[len(sizes) // 2] < 20_000
        assert session.state.items() == {f"key {n}": n if n < 300 else "x" * 100 for n in range(500)}
