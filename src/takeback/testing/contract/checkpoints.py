"""The contract: checkpoints of agents with all their sessions, restoring them, and automatic ones."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from takeback import Agent, Busy, Conflict, Corrupt, Invalid, LeaseLost, NotFound, Session, StorageFull, Store
from takeback.ops import agent_checkpoints, blobs
from takeback.storage.base import Tx
from takeback.tables.agents import PIN, PinRow

from .base import PATIENCE, Contract, blocking, die, eventually, said


def pins(store: Store, checkpoint_id: str) -> int:
    """Count a checkpoint's own pins."""
    inner = blocking(getattr(store, "_inner", store))

    def look(tx: Tx) -> int:
        row = agent_checkpoints.find(tx, inner.scope, checkpoint_id)
        assert row is not None
        return len(PIN.all(tx, "WHERE scope = ? AND checkpoint = ?", (row.scope, row.acid)))

    return int(inner._read(look))


def leave_behind(store: Store, data: bytes) -> None:
    """Store content that nothing needs, dated long ago."""
    packed = blobs.Packed(blobs.hash_of(data), len(data), blobs.pack(data))
    blocking(getattr(store, "_inner", store))._write(lambda tx: blobs.put_many(tx, "", [packed], now_ms=1))


def failed(store: Store) -> BaseException | None:
    """Return the error of the last automatic checkpoint."""
    return store.auto_checkpoint_error


class AgentCheckpoints(Contract):
    """Checkpoints of an agent."""

    @pytest.fixture
    def coder(self, store: Store) -> Agent:
        """Return an agent with a state and two sessions."""
        agent = store.create_agent("coder", name="Coder", config={"b": 1, "a": 2})
        agent.state.update({"goal": "ship", "count": 1})
        for name in ("one", "two"):
            store.create_session(name, agent="coder").user(f"first of {name}")
        store.create_session("other", agent="somebody else").user("not of this agent")
        return agent.refresh()

    @pytest.mark.feature("E4")
    def test_a_checkpoint_of_an_agent_is_found_again(self, store: Store, coder: Agent) -> None:
        made = store.checkpoint_agent(coder, "before", description="why")
        assert (made.name, made.description, made.type, made.agent_id) == ("before", "why", "manual", "coder")
        assert (made.session_id, made.state_version) == (None, coder.version)
        assert len(made.checksum) == 64
        assert 0 < made.size_bytes < 2000
        assert "agent 'coder'" in repr(made)
        assert store.get_checkpoint(made.id) == made
        plain = store.checkpoint_agent("coder", type="pre-operation")
        assert plain.name == plain.id
        assert store.list_checkpoints(coder) == store.list_checkpoints("coder") == [made, plain]
        session = store.get_session("one")
        point = session.checkpoint("point")
        assert store.list_checkpoints(session) == store.list_checkpoints(session.id) == [point]
        assert store.get_checkpoint(point.id) == point
        for call in (store.list_checkpoints, store.get_checkpoint, store.checkpoint_agent, store.restore_checkpoint):
            with pytest.raises(NotFound):
                call("nosuch")
        with pytest.raises(Invalid):
            store.checkpoint_agent(coder, type="nosuch")
        with pytest.raises(Invalid):
            store.restore_checkpoint(point)
        assert store.stats().checkpoints == 3

    @pytest.mark.feature("E4")
    def test_a_description_that_no_engine_can_keep_is_refused(self, store: Store, coder: Agent) -> None:
        for text in ("half of a pair \ud800", "a NUL \0"):
            with pytest.raises(Invalid):
                store.checkpoint_agent(coder, description=text)
            with pytest.raises(Invalid):
                store.get_session("one", agent="coder").checkpoint(description=text)

    @pytest.mark.feature("E4")
    def test_a_retry_makes_no_second_checkpoint(self, store: Store, coder: Agent) -> None:
        made = store.checkpoint_agent(coder, "x", idempotency_key="k")
        store.get_session("one").user("more")
        assert store.checkpoint_agent(coder, "x", idempotency_key="k") == made
        with pytest.raises(Conflict):
            store.checkpoint_agent(coder, "y", idempotency_key="k")
        store.delete_checkpoint(made)
        with pytest.raises(NotFound):
            store.checkpoint_agent(coder, "x", idempotency_key="k")

    @pytest.mark.feature("E4")
    def test_only_what_changed_is_pinned(self, store: Store, coder: Agent) -> None:
        first = store.checkpoint_agent(coder)
        assert pins(store, first.id) == 2
        same = store.checkpoint_agent(coder)
        assert (pins(store, same.id), same.checksum) == (0, first.checksum)
        store.get_session("one").user("again")
        store.get_session("two").rename("only a title")
        store.get_session("other").user("more")
        third = store.checkpoint_agent(coder)
        assert (pins(store, third.id), third.checksum != first.checksum) == (1, True)
        store.get_session("one").user("the newest session goes on")
        assert pins(store, store.checkpoint_agent(coder).id) == 1
        store.delete_session("two")
        assert pins(store, store.checkpoint_agent(coder).id) == 1
        coder.state.set("count", 2)
        last = store.checkpoint_agent(coder)
        assert (pins(store, last.id), last.state_version) == (0, coder.refresh().version)

    @pytest.mark.feature("E5")
    def test_restoring_brings_everything_back(self, store: Store, coder: Agent) -> None:
        one, two = store.get_session("one"), store.get_session("two")
        two.state.set("k", 1)
        gone = store.create_session("gone", agent="coder")
        main = store.main_session("coder")
        before = store.checkpoint_agent(coder, "before")
        one.user("second of one")
        two.rewind(0)
        two.user("another beginning")
        two.state.set("k", 2)
        store.delete_session(gone)
        later = store.create_session("later", agent="coder")
        later.user("late")
        main.user("was empty")
        cron = store.cron_session("coder", "nightly")
        cron.user("a new job")
        coder.state.update({"goal": "rest", "more": True})
        store.update_agent(coder, name="Other")
        restored = store.restore_checkpoint(before)
        assert (restored.id, restored.name, restored.state.items()) == ("coder", "Coder", {"goal": "ship", "count": 1})
        assert restored.version > coder.refresh().version - 1
        assert said(one.refresh()) == ["first of one"]
        assert (said(two.refresh()), two.state.get("k")) == (["first of two"], 1)
        assert not gone.refresh().deleted
        assert later.refresh().deleted
        assert (said(main.refresh()), said(cron.refresh()), main.deleted, cron.deleted) == ([], [], False, False)
        assert said(store.get_session("other")) == ["not of this agent"]
        recovery = store.list_checkpoints(coder)[-1]
        assert (recovery.name, recovery.type) == ("Before restoring before", "recovery")
        one.user("goes on")
        assert said(one) == ["first of one", "goes on"]

    @pytest.mark.feature("E5", "F7")
    def test_a_restore_is_one_operation_that_can_be_undone(self, store: Store, coder: Agent) -> None:
        one, two = store.get_session("one"), store.get_session("two")
        before = store.checkpoint_agent(coder)
        one.user("second")
        store.delete_session(two)
        later = store.create_session("later", agent="coder")
        coder.state.set("count", 5)
        store.update_agent(coder, name="Other")
        store.restore_checkpoint(before.id)
        done = store.operations(limit=1)[0]
        assert (done.kind, done.agent_id, done.session_id) == ("restore", "coder", None)
        store.undo()
        assert said(one.refresh()) == ["first of one", "second"]
        assert (two.refresh().deleted, later.refresh().deleted) == (True, False)
        assert (coder.refresh().name, coder.state.get("count")) == ("Other", 5)
        one.user("third")
        assert said(one) == ["first of one", "second", "third"]
        store.redo()
        assert said(one.refresh()) == ["first of one"]
        assert (two.refresh().deleted, later.refresh().deleted) == (False, True)
        assert (coder.refresh().name, coder.state.get("count")) == ("Coder", 1)
        store.undo(done)
        assert said(one.refresh())[-1] == "third"

    @pytest.mark.feature("E5")
    def test_any_checkpoint_can_be_restored_in_any_order(self, store: Store, coder: Agent) -> None:
        one, made = store.get_session("one"), []
        for number in range(5):
            made.append((store.checkpoint_agent(coder, f"c{number}"), said(one)))
            one.user(f"m{number}")
        for number in (2, 4, 0, 3, 1):
            checkpoint, texts = made[number]
            store.restore_checkpoint(checkpoint)
            assert said(one.refresh()) == texts
        for checkpoint in [each for each in store.list_checkpoints(coder) if each.type == "recovery"]:
            store.restore_checkpoint(checkpoint)
        store.restore_checkpoint(made[4][0])
        assert said(one.refresh()) == made[4][1]

    @pytest.mark.feature("E5")
    def test_restoring_what_is_there_changes_nothing(self, store: Store, coder: Agent) -> None:
        made = store.checkpoint_agent(coder)
        count, version = len(store.operations()), coder.version
        assert store.restore_checkpoint(made).version == version
        assert len(store.operations()) == count
        assert store.list_checkpoints(coder) == [made]

    @pytest.mark.feature("E5")
    def test_a_session_that_somebody_runs_is_not_pulled_away(self, store: Store, coder: Agent, tmp_path: Path) -> None:
        before = store.checkpoint_agent(coder)
        one = store.session("one", agent="coder")
        one.user("mine")
        store.restore_checkpoint(before)
        assert said(one.refresh()) == ["first of one"], "what this store runs itself is its own to move"
        one.user("goes on")
        one.release()
        if not store.capabilities.persistent:
            return
        with self.open(tmp_path) as elsewhere:
            theirs = elsewhere.session("one", agent="coder")
            theirs.user("theirs")
            with pytest.raises(Busy) as busy:
                store.restore_checkpoint(before)
            assert "take_over" in str(busy.value)
            assert said(one.refresh())[-1] == "theirs", "nothing was changed"
            store.restore_checkpoint(before, take_over=True)
            assert said(one.refresh()) == ["first of one"]
            with pytest.raises(LeaseLost):
                theirs.user("too late")
            theirs.release()

    @pytest.mark.feature("E5")
    def test_a_session_whose_holder_is_gone_can_be_restored(self, store: Store, coder: Agent) -> None:
        before = store.checkpoint_agent(coder)
        one = store.session("one", agent="coder")
        one.user("half done")
        die(getattr(one, "_inner", one))
        store.restore_checkpoint(before)
        assert said(store.get_session("one")) == ["first of one"]

    @pytest.mark.feature("E4", "E5")
    def test_damage_is_found_before_anything_is_changed(self, store: Store, coder: Agent) -> None:
        first = store.checkpoint_agent(coder)
        one = store.get_session("one")
        one.user("second")
        later = store.checkpoint_agent(coder)
        one.user("third")
        inner = blocking(getattr(store, "_inner", store))
        row = inner._read(lambda tx: agent_checkpoints.find(tx, "", first.id))
        where = "WHERE scope = '' AND checkpoint = ? AND seq = 1 ORDER BY session"
        whole = inner._read(lambda tx: PIN.one(tx, where, (row.acid,)))
        forged = whole._replace(seq=0, hash=bytes(32))
        for bad in (forged, None):

            def plant(tx: Tx, bad: PinRow | None = bad) -> None:
                PIN.delete(tx, whole.scope, whole.session, whole.checkpoint)
                if bad is not None:
                    PIN.put(tx, bad)

            inner._write(plant)
            for checkpoint in (first, *([] if whole.session == one_number(inner, one) else [later])):
                with pytest.raises(Corrupt):
                    store.restore_checkpoint(checkpoint)
            assert said(one.refresh()) == ["first of one", "second", "third"]
            assert {each.kind for each in store.verify().problems} == {"checkpoint"}
            assert len(store.list_checkpoints(coder)) == 2, "no recovery checkpoint for what was not done"
        inner._write(lambda tx: PIN.put(tx, whole))

    @pytest.mark.feature("E8")
    def test_a_deleted_checkpoint_leaves_later_ones_whole(self, store: Store, coder: Agent) -> None:
        one, two = store.get_session("one"), store.get_session("two")
        made = [store.checkpoint_agent(coder, "c0")]
        for number in range(1, 4):
            one.user(f"m{number}")
            made.append(store.checkpoint_agent(coder, f"c{number}"))
        two.user("at the end")
        texts = said(one)
        store.delete_checkpoint(made[0])
        store.delete_checkpoint(made[2].id)
        store.delete_checkpoint(made[2].id)
        store.delete_checkpoint("nosuch")
        left = store.list_checkpoints(coder)
        assert [(each.id, each.checksum) for each in left] == [(each.id, each.checksum) for each in (made[1], made[3])]
        for checkpoint, length in ((made[1], 2), (made[3], 4)):
            store.restore_checkpoint(checkpoint)
            assert said(one.refresh()) == texts[:length]
            assert said(two.refresh()) == ["first of two"]
        point = one.checkpoint("point", idempotency_key="k")
        store.delete_checkpoint(point)
        assert one.checkpoints() == []
        other = one.checkpoint("point")
        assert one.checkpoint("point", idempotency_key="k") != other

    @pytest.mark.feature("E4", "F11")
    def test_a_purged_session_leaves_the_others_restorable(self, store: Store, coder: Agent) -> None:
        one, two = store.get_session("one"), store.get_session("two")
        first = store.checkpoint_agent(coder)
        one.user("second")
        two.user("second")
        second = store.checkpoint_agent(coder)
        store.purge_session(two)
        assert not store.verify()
        one.user("third")
        for checkpoint, length in ((second, 2), (first, 1)):
            store.restore_checkpoint(checkpoint)
            assert len(said(one.refresh())) == length
        store.undo()

    @pytest.mark.feature("E9")
    def test_deleting_an_agent_takes_a_checkpoint_first(self, store: Store, coder: Agent) -> None:
        one = store.get_session("one")
        store.delete_agent(coder)
        (made,) = store.list_checkpoints("coder")
        assert (made.type, made.name) == ("pre-operation", "Before deleting coder")
        restored = store.restore_checkpoint(made)
        assert restored.state.items() == {"goal": "ship", "count": 1}
        assert not one.refresh().deleted
        assert store.get_agent("coder").name == "Coder"
        store.undo()
        assert store.find_agent("coder") is None
        again = store.create_agent("coder")
        assert store.list_checkpoints("coder") == []
        with pytest.raises(Conflict):
            store.restore_checkpoint(made)
        manual = store.checkpoint_agent(again)
        store.delete_agent(again)
        assert store.list_checkpoints(again) == [manual], "one that shows the agent as it is serves"

    @pytest.mark.feature("E9", "F12")
    def test_pruning_takes_a_checkpoint_first(self, store: Store, coder: Agent) -> None:
        store.create_agent("idle")
        gone = store.create_session("gone", agent="gone")
        store.delete_session(gone)
        store.delete_agent("gone")
        served = store.checkpoint_agent("somebody else")
        elsewhere = store.scoped("elsewhere")
        elsewhere.create_session("one", agent="coder").user("of another scope")
        assert not store.prune(dry_run=False, spare_seconds=0).blobs
        assert store.list_checkpoints(coder) == [], "nothing was erased"
        for number in range(2):
            leave_behind(store, b"%d" % number)
            assert store.prune(spare_seconds=0).blobs == 1
            assert len(store.list_checkpoints(coder)) == (number > 0), "not before a dry run"
            assert store.prune(dry_run=False, spare_seconds=0).blobs == 1
            (made,) = store.list_checkpoints(coder)
            assert (made.type, made.name, made.stats.messages) == ("pre-operation", "Before pruning", 2)
        assert store.list_checkpoints("somebody else") == [served], "one that shows the agent as it is serves"
        assert [len(elsewhere.list_checkpoints("coder")), len(store.list_checkpoints("idle"))] == [0, 0]
        store.get_session("one").user("later")
        store.restore_checkpoint(made)
        assert said(store.get_session("one")) == ["first of one"]

    @pytest.mark.feature("E9", "F12", "C5")
    def test_pruning_goes_on_where_no_checkpoint_can_be_taken(
        self, store: Store, coder: Agent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        create, failing, taken = agent_checkpoints.create_before, dict[str, Exception](), list[str]()

        def create_before(tx: Tx, agent: Any, *given: Any, **options: Any) -> None:
            create(tx, agent, *given, **options)
            if agent.id in failing:
                raise failing[agent.id]
            taken.append(agent.id)

        monkeypatch.setattr(agent_checkpoints, "create_before", create_before)
        for error, others in ((Corrupt("damaged"), ["somebody else"]), (StorageFull(), [])):
            leave_behind(store, str(error).encode())
            failing["coder"] = error
            with pytest.warns(RuntimeWarning, match="no checkpoint of agent 'coder' was taken"):
                assert store.prune(dry_run=False, spare_seconds=0).blobs == 1
            assert store.list_checkpoints(coder) == []
            assert [taken.pop() for _ in others] == others, "a full disk has no place for the next one either"
            assert not taken
        assert not store.prune(spare_seconds=0).blobs

    @pytest.mark.feature("E4")
    def test_checkpoints_of_scopes_are_apart(self, store: Store, coder: Agent) -> None:
        made, other = store.checkpoint_agent(coder), store.scoped("other")
        for call in (other.get_checkpoint, other.restore_checkpoint):
            with pytest.raises(NotFound):
                call(made.id)
        with pytest.raises(NotFound):
            other.list_checkpoints(coder)
        other.delete_checkpoint(made)
        assert store.list_checkpoints(coder) == [made]


def one_number(inner: Store, session: Session) -> int:
    """Return the local number of a session."""
    return int(blocking(getattr(session, "_inner", session))._seen.sid)


class AutoCheckpoints(Contract):
    """Automatic checkpoints."""

    @pytest.fixture
    def talk(self, store: Store) -> Session:
        """Return a session of an agent."""
        return store.create_session("talk", agent="coder")

    @pytest.mark.feature("E9")
    def test_the_first_is_taken_at_once_and_then_only_when_something_changed(self, store: Store, talk: Session) -> None:
        talk.user("a")
        store.start_auto_checkpoint("coder", interval=0.05)
        (first,) = store.list_checkpoints("coder")
        assert first.type == "automatic"
        assert first.name == f"Auto checkpoint {first.created_at:%Y-%m-%d %H:%M:%S} UTC"
        time.sleep(0.3)
        assert store.list_checkpoints("coder") == [first], "nothing changed"
        talk.user("b")
        assert eventually(lambda: len(store.list_checkpoints("coder")) == 2)
        store.stop_auto_checkpoint()
        talk.user("c")
        time.sleep(0.2)
        assert len(store.list_checkpoints("coder")) == 2
        store.stop_auto_checkpoint()
        assert store.auto_checkpoint_error is None

    @pytest.mark.feature("E8", "E9")
    def test_only_the_newest_automatic_ones_are_kept(self, store: Store, talk: Session) -> None:
        named, texts = list[str](), dict[str, list[str]]()
        for number in range(8):
            talk.user(f"m{number}")
            kind = ("manual", "recovery", "pre-operation")[number % 3] if number % 2 else "automatic"
            made = store.checkpoint_agent("coder", type=kind)
            named += [made.id] if number % 2 else []
            texts[made.id] = said(talk)
        talk.user("last")
        store.start_auto_checkpoint(["coder"], interval=300, keep=2)
        store.stop_auto_checkpoint()
        left = store.list_checkpoints("coder")
        assert [each.id for each in left if each.type != "automatic"] == named
        assert [each.type for each in left].count("automatic") == 2
        for checkpoint in left[:-1]:
            store.restore_checkpoint(checkpoint)
            assert said(talk.refresh()) == texts[checkpoint.id]

    @pytest.mark.feature("E8")
    def test_pruning_does_not_move_the_many_pins_of_the_first(self, store: Store, talk: Session) -> None:
        for number in range(20):
            store.create_session(f"s{number}", agent="coder").user("x")
        for number in range(5):
            talk.user(f"m{number}")
            store.start_auto_checkpoint("coder", keep=2)
            if number >= 2:
                assert [pins(store, each.id) for each in store.list_checkpoints("coder")] == [21, 1]
        texts = said(talk)
        talk.user("more")
        store.restore_checkpoint(store.list_checkpoints("coder")[0])
        assert said(talk.refresh()) == texts[:-1]

    @pytest.mark.feature("E9")
    def test_starting_again_replaces_it_and_stopping_does_not_wait(self, store: Store, talk: Session) -> None:
        other = store.create_agent("other")
        store.start_auto_checkpoint(["coder", other], interval=300)
        assert len(store.list_checkpoints(other)) == 1
        store.start_auto_checkpoint(other, interval=0.05)
        talk.user("not looked at any more")
        time.sleep(0.2)
        assert len(store.list_checkpoints("coder")) == 1
        store.start_auto_checkpoint(other, interval=24 * 3600)
        store.stop_auto_checkpoint()
        wrong: tuple[Any, ...] = ([], 7, "")
        for agents in wrong:
            with pytest.raises(Invalid):
                store.start_auto_checkpoint(agents)
        options: tuple[dict[str, Any], ...] = ({"interval": 0}, {"interval": -1}, {"keep": 0})
        for each in options:
            with pytest.raises(Invalid):
                store.start_auto_checkpoint("coder", **each)
        with pytest.raises(NotFound):
            store.start_auto_checkpoint("nosuch")

    @pytest.mark.feature("E9")
    def test_a_failure_is_reported_and_the_next_round_tries_again(self, store: Store, talk: Session) -> None:
        talk.user("a")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            store.start_auto_checkpoint("coder", interval=0.05)
            store.delete_agent("coder")
            eventually(lambda: failed(store))
            assert isinstance(failed(store), NotFound)
            time.sleep(0.2)
        assert len([each for each in told if "automatic checkpoint" in str(each.message)]) == 1
        store.undo()
        assert eventually(lambda: failed(store) is None)
        store.stop_auto_checkpoint()

    @pytest.mark.feature("E9")
    def test_closing_the_store_stops_it(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            store.create_session("work", agent="coder").user("a")
            store.start_auto_checkpoint("coder", interval=0.01)
            inner = blocking(getattr(store, "_inner", store))
            thread = inner._auto._thread
        thread.join(PATIENCE)
        assert not thread.is_alive()
