"""The contract: approvals, sub-agents below a session, messages between sessions."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from takeback import Conflict, Invalid, NotFound, Session, Store, Tree, Usage

from ..clock import ManualClock
from .base import PATIENCE, Contract, die, said

CALL = {"id": "c1", "name": "deploy", "arguments": {"to": "production"}}
ASKED = {"role": "assistant", "content": "", "tool_calls": [CALL]}


class Approvals(Contract):
    """A call waits for a person, who may answer from any process."""

    @pytest.mark.feature("F4")
    def test_a_question_is_asked_once_and_answered_from_elsewhere(self, store: Store) -> None:
        with store.session("job") as session:
            session.append(ASKED)
            asked = session.ask_approval("c1", "Really?")
            assert (asked.status, bool(asked), asked.question, asked.call.name) == (
                "waiting",
                False,
                "Really?",
                "deploy",
            )
            assert session.ask_approval("c1", "Other words?").question == "Really?"
            person = store.get_session("job")
            assert [(a.call.id, a.status) for a in person.approvals()] == [("c1", "waiting")]
            given = person.answer_approval("c1", True, by="ann", note="fine")
            assert (given.status, bool(given), given.by, given.note) == ("approved", True, "ann", "fine")
            now = session.ask_approval(session.pending_calls()[0])
            assert (now.status, now.by, now.answered_at is not None) == ("approved", "ann", True)
            with session.tool(session.pending_calls()[0]) as run:
                run.result("deployed")
            assert session.approvals() == []

    @pytest.mark.feature("F4")
    @pytest.mark.trial("T53")
    def test_what_waits_for_a_person_is_found_over_all_sessions(self, store: Store) -> None:
        sessions = [store.create_session(f"job {number}") for number in range(6)]
        for session in sessions:
            session.user("go")
            session.append(ASKED)
            session.ask_approval("c1", f"May {session.name}?")
        sessions[0].answer_approval("c1", True)
        sessions[1].rewind(1)
        store.delete_session(sessions[2].id)
        sessions[3].stop()
        found = store.waiting()
        assert [(session.name, asked.question) for session, asked in found] == [
            ("job 5", "May job 5?"),
            ("job 4", "May job 4?"),
        ]
        first = store.waiting(limit=1)
        second = store.waiting(limit=1, cursor=first.cursor)
        assert [asked.question for _, asked in (*first, *second)] == ["May job 5?", "May job 4?"]
        assert len(store.waiting(cursor=second.cursor)) == 0
        store.get_session(found[0][0].id).answer_approval(found[0][1].call, False)
        assert [session.name for session, _ in store.waiting()] == ["job 4"]
        sessions[1].undo()
        assert {session.name for session, _ in store.waiting()} == {"job 4", "job 1"}

    @pytest.mark.feature("F4")
    def test_a_no_is_a_no(self, session: Session) -> None:
        session.append(ASKED)
        session.ask_approval("c1")
        answer = session.answer_approval("c1", False, by="bob")
        assert (bool(answer), answer.status) == (False, "denied")
        with pytest.raises(Conflict):
            session.answer_approval("c1", True)
        assert [a.status for a in session.approvals()] == ["denied"]

    @pytest.mark.feature("F4")
    def test_what_nobody_asked_cannot_be_answered(self, session: Session) -> None:
        session.append(ASKED)
        with pytest.raises(NotFound):
            session.answer_approval("c1", True)
        with pytest.raises(NotFound):
            session.ask_approval("nosuch")
        session.ask_approval("c1")
        with pytest.raises(Invalid):
            session.answer_approval("c1", "yes")  # type: ignore[arg-type]
        session.tool_result("c1", "done")
        with pytest.raises(Conflict):
            session.ask_approval("c1")

    @pytest.mark.feature("F4")
    def test_whoever_waits_is_woken_by_the_answer(self, store: Store, told: None) -> None:
        with store.session("job") as session:
            session.append(ASKED)

            def answer() -> None:
                person = store.get_session("job")
                while not person.approvals():
                    time.sleep(0.01)
                time.sleep(0.1)
                person.answer_approval("c1", True, by="ann")

            thread = threading.Thread(target=answer)
            thread.start()
            found = session.ask_approval("c1", wait=PATIENCE)
            thread.join()
            assert (found.status, found.by) == ("approved", "ann")
            session.append({**ASKED, "tool_calls": [{**CALL, "id": "c2"}]})
            assert session.ask_approval("c2", wait=0.1).status == "waiting"

    @pytest.mark.feature("F4")
    def test_a_question_and_its_answer_survive_whoever_asked(self, store: Store) -> None:
        with store.session("job") as session:
            session.append(ASKED)
            session.ask_approval("c1", "Really?")
            die(session)
        assert store.get_session("job").answer_approval("c1", True).status == "approved"
        with store.session("job") as again:
            assert [(a.question, a.status) for a in again.approvals()] == [("Really?", "approved")]
            assert again.ask_approval("c1").status == "approved"
            assert [c.status for c in again.pending_calls()] == ["pending"], "it never ran"

    @pytest.mark.feature("F4", "F1")
    def test_a_rewind_takes_the_question_back(self, session: Session) -> None:
        session.append(ASKED)
        session.ask_approval("c1")
        session.answer_approval("c1", True)
        session.rewind(1)
        assert session.approvals() == []
        assert session.ask_approval("c1").status == "waiting"


class SubAgents(Contract):
    """Sub-agents: spawned, waited for, stopped and added up."""

    @pytest.mark.feature("D4")
    def test_an_agent_has_one_main_session_and_one_per_job(self, store: Store) -> None:
        found = list[tuple[str, str]]()

        def ask() -> None:
            found.append((store.main_session("coder").id, store.cron_session("coder", "every night").id))

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert (len(found), len(set(found))) == (6, 1)
        main, job = store.main_session("coder"), store.cron_session("coder", "every night")
        assert (main.kind, job.kind, main.id != job.id) == ("main", "cron", True)
        assert store.get_session(main.key).id == main.id
        assert store.main_session("writer").id != main.id
        with main, job:
            main.user("a")

    @pytest.mark.feature("D4")
    def test_a_sub_agent_is_a_session_below_its_parent(self, store: Store) -> None:
        parent = store.create_session("boss", agent="coder")
        spawned = parent.spawn("find the bug", label="finder", model="small", metadata={"x": 1})
        child = spawned.session
        assert (spawned.status, spawned.session_key, spawned.run_id) == ("accepted", child.key, child.run_id)
        assert "finder" in spawned.message
        assert (child.kind, child.parent_id, child.label, child.task) == (
            "subagent",
            parent.id,
            "finder",
            "find the bug",
        )
        assert (child.agent_id, child.model, child.metadata["x"]) == ("coder", "small", 1)
        assert child.key.startswith("agent:coder:")
        other = parent.spawn("write it down", agent="writer").session
        assert [c.id for c in parent.children()] == [child.id, other.id]
        assert other.agent_id == "writer"
        assert [s.id for s in store.list_sessions(label="finder")] == [child.id]
        with child:
            child.user("mine")

    @pytest.mark.feature("D4", "D3")
    def test_a_label_is_taken_once_below_a_parent(self, store: Store, session: Session) -> None:
        session.spawn("a", label="worker")
        with pytest.raises(Conflict):
            session.spawn("b", label="worker")
        store.create_session("other").spawn("c", label="worker")
        assert len(session.children()) == 1
        with pytest.raises(Invalid):
            session.spawn("  ")
        with pytest.raises(NotFound):
            store.spawn("a", parent="nosuch")

    @pytest.mark.feature("D4")
    def test_spawning_again_for_one_call_is_one_sub_agent(self, session: Session) -> None:
        session.append(ASKED)
        one = session.spawn("a", call_id="c1").session
        two = session.spawn("a", call_id=session.pending_calls()[0]).session
        assert (one.id, one.metadata["call_id"]) == (two.id, "c1")
        three = session.spawn("b", idempotency_key="k").session
        assert session.spawn("b", idempotency_key="k").session.id == three.id
        assert len(session.children()) == 2
        with pytest.raises(NotFound):
            session.spawn("c", call_id="nosuch")

    @pytest.mark.feature("D4")
    def test_a_parent_waits_for_results(self, store: Store, session: Session) -> None:
        children = [session.spawn(f"job {number}").session for number in range(3)]
        assert session.wait(timeout=0.05) == []

        def work() -> None:
            children[1].complete({"found": 1})
            children[0].fail("no luck")
            with children[2]:
                die(children[2])

        thread = threading.Timer(0.1, work)
        thread.start()
        done = session.wait(timeout=PATIENCE)
        thread.join()
        assert [s.id for s in done] == [c.id for c in children]
        assert [s.status for s in done] == ["error", "completed", "interrupted"]
        assert (done[0].error, done[1].result) == ("no luck", {"found": 1})
        assert [s.id for s in session.wait(children[1], timeout=0)] == [children[1].id]
        assert store.create_session().wait(timeout=0) == []

    @pytest.mark.feature("D4", "D8")
    @pytest.mark.parametrize("how", ["stopped", "timeout"])
    def test_a_whole_tree_is_ended_at_once(self, store: Store, how: str) -> None:
        top = store.create_session("top")
        left, right = top.spawn("left").session, top.spawn("right").session
        below = left.spawn("below").session
        right.complete("done before")
        beside = store.create_session("beside")
        (top.stop if how == "stopped" else top.timeout)(reason="enough")
        found = {s.id: (s.status, s.error) for s in store.list_sessions()}
        for each in (top, left, below):
            assert found[each.id] == (how, "enough")
        assert (found[right.id], found[beside.id]) == (("completed", None), ("active", None))
        with pytest.raises(Conflict):
            below.user("more")
        with pytest.raises(Conflict):
            left.spawn("more")
        below.reopen()
        below.user("more")

    @pytest.mark.feature("D4", "D8")
    def test_stop_can_leave_those_below(self, store: Store, session: Session) -> None:
        child = session.spawn("a").session
        session.stop(subtree=False)
        assert (session.status, store.get_session(child.id).status) == ("stopped", "active")

    @pytest.mark.feature("D4", "D8")
    def test_who_runs_a_session_that_is_stopped_can_say_no_more(self, store: Store) -> None:
        parent = store.create_session("boss")
        child = parent.spawn("dig").session
        with child:
            child.user("a")
            parent.stop()
            with pytest.raises(Conflict):
                child.user("b")
            child.note("I was stopped")
        assert (store.get_session(child.id).status, said(child)) == ("stopped", ["a"])

    @pytest.mark.feature("D4")
    def test_totals_count_everything_once(self, store: Store) -> None:
        top = store.create_session("top")
        top.user("a")
        top.assistant("b", usage=Usage(10, 1, cost=0.5))
        top.assistant("c", usage=Usage(100, 1))
        top.rewind(2)
        top.assistant("d", usage=Usage(1000, 1))
        child = top.spawn("child").session
        child.assistant("e", usage=Usage(10_000, 1))
        fork = child.fork(1, as_session=True)  # what it was forked with is not spent again
        fork.assistant("f", usage=Usage(100_000, 1))
        grandchild = child.spawn("grandchild").session
        grandchild.assistant("g", usage=Usage(1_000_000, 1, cost=0.25))
        trashed = top.spawn("trashed").session
        trashed.assistant("h", usage=Usage(10_000_000, 1))
        store.delete_session(trashed)
        tree = top.tree()
        assert tree.stats.usage == Usage(1110, 3, cost=0.5)
        assert [each.id for each in tree.children] == [child.id]
        assert tree.children[0].totals.usage == Usage(1_010_000, 2, cost=0.25)
        assert tree.totals.usage == Usage(11_011_110, 6, cost=0.75), "the one in the trash was spent as well"
        assert _input_tokens(tree) == tree.totals.usage.input_tokens - 10_000_000
        assert fork.tree().totals.usage == Usage(100_000, 1)
        assert (tree.totals.messages, tree.status) == (7, "active")

    @pytest.mark.feature("D4")
    def test_a_tree_is_for_people_too(self, tmp_path: Path) -> None:
        clock = ManualClock()
        with self.open(tmp_path, clock=clock) as store:
            top = store.create_session("top", agent="coder", title="Fix it")
            child = top.spawn("dig", label="digger").session
            child.spawn("deeper", label="mole", agent="helper").session.assistant("x", usage=Usage(1500, 0))
            clock.advance(2000)
            child.complete()
            lines = str(top.tree()).splitlines()
            assert [line.split(" (")[0] for line in lines] == ["Fix it", "  digger", "    mole"]
            assert "(helper) active, 1500 tokens" in lines[2], lines[2]
            assert "completed" in lines[1]


def _input_tokens(tree: Tree) -> int:
    """Add up by hand what a tree shows."""
    return tree.stats.usage.input_tokens + sum(map(_input_tokens, tree.children))


class Inboxes(Contract):
    """Messages between sessions: durable when sent, in order, each received exactly once."""

    @pytest.mark.feature("D7")
    def test_what_is_sent_waits_in_order_until_it_is_received(self, store: Store, session: Session) -> None:
        sender = store.create_session("sender")
        sent = [session.send(f"message {number}", sender=sender, metadata={"n": number}) for number in range(3)]
        assert [(s.number, s.text, s.sender, s.received) for s in sent] == [
            (number + 1, f"message {number}", sender.id, False) for number in range(3)
        ]
        other = store.get_session(session.id)
        assert [s.id for s in other.inbox()] == [s.id for s in sent]
        assert said(other) == [], "it is no message of the session before it was received"
        received = other.receive()
        assert [(m.role, m.text, m.seq) for m in received] == [("user", f"message {n}", n + 1) for n in range(3)]
        assert [m.metadata for m in received] == [
            {"n": n, "sent_id": sent[n].id, "sender": sender.id} for n in range(3)
        ]
        assert (session.receive(), session.inbox(), said(session)) == ([], [], [m.text for m in received])
        assert (session.refresh().turn_count, session.title) == (3, "message 0")

    @pytest.mark.feature("D7")
    def test_some_of_them_can_be_taken(self, session: Session) -> None:
        for number in range(5):
            session.send(str(number))
        assert [m.text for m in session.receive(2)] == ["0", "1"]
        assert [s.text for s in session.inbox()] == ["2", "3", "4"]
        session.user("in between")
        assert [m.text for m in session.receive()] == ["2", "3", "4"]
        with pytest.raises(Invalid):
            session.receive(0)

    @pytest.mark.feature("D7")
    def test_a_retry_of_sending_is_one_message(self, session: Session) -> None:
        first = session.send("pay", idempotency_key="k")
        assert session.send("pay", idempotency_key="k").id == first.id
        with pytest.raises(Conflict):
            session.send("pay more", idempotency_key="k")
        assert [m.text for m in session.receive()] == ["pay"]
        again = session.send("pay", idempotency_key="k")
        assert (again.id, again.received, again.text) == (first.id, True, None)
        assert session.receive() == []

    @pytest.mark.feature("D7")
    def test_finished_and_unknown_sessions_take_none(self, store: Store) -> None:
        session = store.create_session("job")
        session.send("before")
        session.complete()
        with pytest.raises(Conflict):
            session.send("a")
        with pytest.raises(NotFound):
            store.get_session("nosuch").send("a")
        session.reopen()
        session.send("after")
        assert [m.text for m in session.receive()] == ["before", "after"]
        handle = store.create_session("gone")
        store.purge_session("gone")
        with pytest.raises(NotFound):
            handle.send("a")
        trashed = store.create_session("trashed")
        store.delete_session(trashed)
        with pytest.raises(Conflict):
            trashed.send("a")
        for wrong in ("", "  ", "x" * (1 << 20 | 1), b"a"):
            with pytest.raises(Invalid):
                session.send(wrong)  # type: ignore[arg-type]

    @pytest.mark.feature("D7")
    def test_many_senders_and_receivers_lose_and_double_nothing(self, store: Store, session: Session) -> None:
        received, failures, sent = list[str](), list[BaseException](), list[str]()
        all_sent = threading.Event()

        def send(name: str) -> None:
            mine = store.get_session(session.id)
            for number in range(15):
                sent.append(mine.send(f"{name}:{number}").text or "")

        def receive() -> None:
            mine = store.get_session(session.id)
            try:
                while True:
                    last = all_sent.is_set()
                    found = mine.receive(limit=4, wait=0.05)
                    received.extend(message.text for message in found)
                    if last and not found:
                        return
            except BaseException as error:
                failures.append(error)

        senders = [threading.Thread(target=send, args=(name,)) for name in "abc"]
        receivers = [threading.Thread(target=receive) for _ in range(3)]
        for thread in (*senders, *receivers):
            thread.start()
        for thread in senders:
            thread.join(PATIENCE)
        all_sent.set()
        for thread in receivers:
            thread.join(PATIENCE)
        assert not failures, failures
        assert Counter(received) == Counter(sent) == Counter(said(session))
        assert len(sent) == 45
        for name in "abc":
            assert [t for t in said(session) if t[0] == name] == [f"{name}:{number}" for number in range(15)]

    @pytest.mark.feature("D7")
    def test_whoever_waits_is_woken_by_what_is_sent(self, store: Store, session: Session, told: None) -> None:
        for number in range(3):
            timer = threading.Timer(0.1, store.get_session(session.id).send, [str(number)])
            timer.start()
            (message,) = session.receive(wait=PATIENCE)
            timer.join()
            assert message.text == str(number)
        assert session.receive(wait=0.1) == []

    @pytest.mark.feature("D7")
    def test_what_was_received_and_then_rewound_is_not_given_again(self, session: Session) -> None:
        session.user("a")
        session.send("b")
        session.receive()
        session.rewind(1)
        assert (said(session), session.receive(), session.inbox()) == (["a"], [], [])
        session.undo()
        assert said(session) == ["a", "b"]

    @pytest.mark.feature("D7")
    def test_a_message_that_waits_outlives_a_holder_that_dies(self, store: Store) -> None:
        with store.session("job") as session:
            store.get_session("job").send("first")
            session.receive()
            store.get_session("job").send("second")
            die(session)
        store.get_session("job").send("third")
        with store.session("job") as again:
            assert [m.text for m in again.receive()] == ["second", "third"]
        assert said(again) == ["first", "second", "third"]

    @pytest.mark.feature("D7")
    def test_a_page_of_many_is_received_whole(self, session: Session) -> None:
        for number in range(205):
            session.send(str(number))
        texts = list[str]()
        while found := session.receive():
            texts += [m.text for m in found]
        assert texts == [str(number) for number in range(205)]
