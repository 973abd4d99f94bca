"""The contract: statistics of an agent's checkpoints, which are the sums over its visible sessions at that instant."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from takeback import Conflict, Corrupt, Session, Stats, Store, Usage
from takeback.ops import agent_checkpoints, agent_totals
from takeback.storage.base import Tx
from takeback.tables.agents import AGENT_CHECKPOINT
from takeback.tables.entries import ENTRY

from .base import Contract, blocking

_AGENT = "coder"
_COUNTS = ("messages", "turns", "tool_calls", "tool_failures")


def inner_of(store: Store) -> Any:
    """Return the blocking store."""
    return blocking(getattr(store, "_inner", store))


def added_up(store: Store) -> dict[str, Any]:
    """Add up the visible sessions of the agent, one by one."""
    found = [session.stats() for session in store.iter_sessions(agent=_AGENT, archived=None)]
    return {
        **{name: sum(getattr(each, name) for each in found) for name in _COUNTS},
        "usage": sum((each.usage for each in found), Usage()),
        "duration": sum(round(each.duration * 1000) for each in found) / 1000,
    }


def shown(stats: Stats) -> dict[str, Any]:
    """Return the sums in statistics."""
    return {name: getattr(stats, name) for name in (*_COUNTS, "usage", "duration")}


def without_totals(store: Store, checkpoint_id: str) -> None:
    """Remove the totals from a checkpoint, as if they could not be carried forward."""

    def cut(tx: Tx) -> None:
        row = agent_checkpoints.find(tx, "", checkpoint_id)
        assert row is not None
        AGENT_CHECKPOINT.update(tx, row, row._replace(checksum=row.checksum[:72]))

    inner_of(store)._write(cut)


def talk(session: Session, number: int = 1) -> None:
    """Add some of everything that is counted to a session."""
    session.user(f"question {number}")
    usage = {"input_tokens": 10 * number, "output_tokens": number, "cost": 0.25}
    session.assistant(f"answer {number}", usage=usage)
    with pytest.raises(KeyError), session.tool("fails"):
        raise KeyError(number)
    with session.tool("works") as run:
        run.result("done")


class CheckpointStats(Contract):
    """Statistics of checkpoints of an agent."""

    @pytest.mark.feature("B1", "E4")
    def test_they_are_the_sums_over_its_visible_sessions(self, store: Store) -> None:
        agent = store.create_agent(_AGENT)
        assert shown(store.checkpoint_agent(agent).stats) == added_up(store), "nothing yet"
        one, two = store.create_session("one", agent=_AGENT), store.create_session("two", agent=_AGENT)
        talk(one)
        talk(two, 7)
        store.create_session("other", agent="somebody else").user("is not counted")
        first = store.checkpoint_agent(agent)
        assert (first.stats.messages, first.stats.turns, first.stats.tool_calls) == (8, 2, 4)
        assert (first.stats.tool_failures, first.stats.usage) == (2, Usage(80, 8, cost=0.5))
        assert first.stats.started_at == agent.created_at
        assert shown(first.stats) == added_up(store)
        one.rewind(1)
        one.user("instead")
        store.create_session("three", agent=_AGENT).user("late")
        second = store.checkpoint_agent(agent)
        assert (second.stats.messages, second.stats.usage) == (7, Usage(70, 7, cost=0.25))
        store.delete_session(two)
        third = store.checkpoint_agent(agent)
        assert (third.stats.messages, third.stats.usage) == (3, Usage())
        store.restore_session(two)
        assert store.checkpoint_agent(agent).stats == second.stats
        assert [each.stats for each in store.list_checkpoints(agent)[1:4]] == [first.stats, second.stats, third.stats]
        store.restore_checkpoint(first)
        assert store.checkpoint_agent(agent).stats == first.stats
        store.delete_agent(agent)
        kept = store.list_checkpoints(agent)
        assert kept[-1].stats == first.stats
        store.restore_checkpoint(kept[2])
        assert added_up(store) == shown(second.stats)

    @pytest.mark.feature("E4", "E8", "F11")
    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test_they_are_right_after_whatever_was_done(self, store: Store, seed: int) -> None:
        rng, texts = random.Random(f"statistics {seed}"), dict[str, dict[str, Any]]()
        store.create_agent(_AGENT)
        names = iter(range(1000))

        def some() -> Session:
            found = [*store.iter_sessions(agent=_AGENT, archived=None)]
            return rng.choice(found) if found else store.create_session(f"s{next(names)}", agent=_AGENT)

        def purge() -> None:
            store.purge_session(some())
            for each in store.list_checkpoints(_AGENT):  # it is taken out of all of them: they are compared anew
                texts[each.id] = shown(each.stats)

        def delete() -> None:
            if texts:
                gone = rng.choice([*texts])
                store.delete_checkpoint(gone)
                del texts[gone]

        def restore() -> None:
            if texts:
                wanted = rng.choice([*texts])
                store.restore_checkpoint(wanted)
                assert added_up(store) == texts[wanted]

        def undo() -> None:
            with contextlib.suppress(Conflict):  # nothing to undo
                store.undo()

        def fork() -> None:
            some().fork(None, as_session=True, name=f"f{next(names)}")

        actions: list[Callable[[], object]] = [
            lambda: talk(some(), rng.randrange(1, 9)),
            lambda: talk(store.create_session(f"s{next(names)}", agent=_AGENT), rng.randrange(1, 9)),
            lambda: some().rewind(0),
            lambda: store.delete_session(some()),
            lambda: inner_of(store).start_auto_checkpoint(_AGENT, keep=2),
            *(purge, delete, restore, fork, undo),
        ]
        for step in range(40):
            rng.choice(actions)()
            inner_of(store).stop_auto_checkpoint()
            made = store.checkpoint_agent(_AGENT, type=rng.choice(["manual", "automatic"]))
            assert shown(made.stats) == added_up(store), step
            texts[made.id] = added_up(store)
            if rng.random() < 0.1:
                without_totals(store, made.id)
            there = {each.id: shown(each.stats) for each in store.list_checkpoints(_AGENT)}
            texts = {each: text for each, text in texts.items() if each in there}
            assert {each: there[each] for each in texts} == texts, step

    @pytest.mark.feature("E4")
    def test_only_what_changed_is_looked_at(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        sessions = [store.create_session(f"s{number}", agent=_AGENT) for number in range(12)]
        for session in sessions:
            session.user("x")
        store.checkpoint_agent(_AGENT)
        sessions[3].user("more")
        store.delete_session(sessions[5])
        points, looked = list[Any](), list[int]()
        at_each, changed = agent_totals.at_each, agent_checkpoints.changed

        def point(tx: Tx, pins: Any) -> Any:
            points.extend(pins)
            return at_each(tx, pins)

        def look(*given: Any) -> Any:
            rows = changed(*given)
            looked.append(len(rows))
            return rows

        monkeypatch.setattr(agent_totals, "at_each", point)
        monkeypatch.setattr(agent_checkpoints, "changed", look)
        made = store.checkpoint_agent(_AGENT)
        assert (len(points), looked, made.stats.messages) == (2, [2], 12), "the old places of the two that changed"
        assert store.get_checkpoint(made.id).stats == made.stats
        assert len(points) == 2, "to show it, nothing is added up"

    @pytest.mark.feature("E4")
    def test_where_they_were_not_written_down_they_are_added_up(self, store: Store) -> None:
        one, two = store.create_session("one", agent=_AGENT), store.create_session("two", agent=_AGENT)
        talk(one)
        two.user("x")
        first = store.checkpoint_agent(_AGENT)
        two.user("y")
        without_totals(store, first.id)
        again = store.get_checkpoint(first.id)
        assert (again.stats, again.checksum) == (first.stats, first.checksum)
        second = store.checkpoint_agent(_AGENT)
        assert second.stats.messages == first.stats.messages + 1
        without_totals(store, second.id)
        store.delete_checkpoint(first)
        assert store.list_checkpoints(_AGENT) == [store.get_checkpoint(second.id)]
        assert store.get_checkpoint(second.id).stats == second.stats
        store.purge_session(two)
        assert store.get_checkpoint(second.id).stats.messages == 4
        assert not store.verify()

    @pytest.mark.feature("E4", "F5")
    def test_an_entry_that_is_damaged_costs_no_later_checkpoint(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, two = store.create_session("one", agent=_AGENT), store.create_session("two", agent=_AGENT)
        one.user("x")
        two.user("y")
        first = store.checkpoint_agent(_AGENT)
        one.user("z")

        with monkeypatch.context() as patched:
            patched.setattr(ENTRY, "is_sound", lambda stored: False)  # every entry is damaged
            second = store.checkpoint_agent(_AGENT)
            assert second.stats.messages == 3
            assert store.get_checkpoint(first.id) == first, "what was written down needs no entry"
            without_totals(store, first.id)
            with pytest.raises(Corrupt):
                store.get_checkpoint(first.id)
        assert store.get_checkpoint(first.id).stats == first.stats
        assert not store.verify()
