"""The contract: one write, native and custom entries, and points on any branch."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from takeback import Conflict, Custom, Invalid, Message, Native, NotFound, Session, Store, Task
from takeback.testing.contract.base import Contract, said

THEN = datetime(2024, 2, 29, 12, 0, 0, 123_000, tzinfo=UTC)
LONG = "a sentence that is long enough to be worth finding again, and again"


def user(text: str, **fields: Any) -> dict[str, Any]:
    """Return a user message."""
    return {"role": "user", "content": text, **fields}


class Writes(Contract):
    """Everything that belongs together in one step."""

    @pytest.mark.feature("C6")
    def test_one_write_stores_everything_at_once(self, store: Store, session: Session) -> None:
        before = session.revision
        done = session.write(
            user("hello", id="m1"),
            Custom("lg.checkpoint", {"v": 1}, id="cp1"),
            state={"step": 1, "gone": 2},
            tasks=["look", Task("mend", "in_progress")],
            docs={("app", "config"): {"a": 1}, (("users", "ann"), "x"): b"\0bytes"},
        )
        assert [type(each) for each in done.entries] == [Message, Custom]
        assert (done.revision, done.branch) == (before + 1, "main")
        assert session.revision == done.revision
        assert session.state.items() == {"step": 1, "gone": 2}
        assert [task.description for task in session.tasks()] == ["look", "mend"]
        assert store.docs("app").get("config").value == {"a": 1}
        assert store.docs(("users", "ann")).get("x").value == b"\0bytes"
        changes = [change for change in store.events() if change.kind == "entries"]
        assert len(changes) == 1
        session.write(state={"step": 2}, state_delete=["gone"])
        assert session.state.items() == {"step": 2}
        assert session.refresh().task_count == 2

    @pytest.mark.feature("C6")
    def test_going_back_to_the_last_item_of_a_write_keeps_its_state(self, session: Session) -> None:
        session.write(user("hello"), state={"step": 1})
        first = session.head
        done = session.write(user("go on"), Custom("lg.checkpoint", 2, id="cp"), state={"step": 2}, tasks=["t"])
        assert session.head.seq == done.entries[-1].seq
        session.write(user("more"), Custom("lg.checkpoint", 3), state={"step": 3}, tasks=[])
        session.rewind(done.entries[-1])
        assert (session.state.items(), session.task_count) == ({"step": 2}, 1)
        session.rewind(first)
        assert session.state.items() == {"step": 1}, "a state beside a new turn belongs to that turn"
        session.rewind(0)
        assert session.state.items() == {}

    @pytest.mark.feature("C6")
    def test_a_write_that_fails_leaves_nothing(self, store: Store, session: Session) -> None:
        session.user("first", id="m1")
        before = session.revision
        with pytest.raises(Conflict):
            session.write(user("again", id="m1"), Custom("k", 1), state={"a": 1}, tasks=["t"], docs={("app", "k"): 1})
        assert (session.refresh().revision, session.state.items(), session.tasks()) == (before, {}, [])
        assert store.docs("app").find("k") is None
        assert len(session.customs()) == 0
        with pytest.raises(Conflict) as error:
            session.write(user("late"), docs={("app", "k"): 1}, expected_revision=before - 1)
        assert (error.value.expected, error.value.found) == (before - 1, before)

    @pytest.mark.feature("C6")
    def test_a_retry_of_a_write_stores_nothing_twice(self, store: Store, session: Session) -> None:
        def write(value: int = 1, text: str = "hello") -> Any:
            return session.write(
                user(text), Custom("k", value), state={"n": value}, docs={("app", "k"): value}, idempotency_key="w1"
            )

        first = write()
        again = write()
        assert [each.id for each in again.entries] == [each.id for each in first.entries]
        assert again.revision == first.revision
        assert store.docs("app").get("k").version == 1
        others: tuple[Any, ...] = ({"value": 2}, {"text": "other"})
        for other in others:
            with pytest.raises(Conflict):
                write(**other)
        session.rewind(0)
        assert write().entries[0].id != first.entries[0].id, "taken back, so it is written again"
        session.write(docs={("app", "alone"): 1}, idempotency_key="w2")
        session.write(docs={("app", "alone"): 1}, idempotency_key="w2")
        assert store.docs("app").get("alone").version == 1

    @pytest.mark.feature("F2")
    @pytest.mark.parametrize("move", [True, False])
    def test_writing_at_a_point_opens_a_branch_there(self, session: Session, move: bool) -> None:
        first = session.user("a")
        session.user("b")
        session.state.set("n", 1)
        done = session.write(user("c"), at=first, move=move, state={"n": 2}, tasks=["t"])
        assert done.branch != "main"
        assert done.entries[0].seq == first.seq + 1
        if move:
            assert (said(session), session.state.items(), session.task_count) == (["a", "c"], {"n": 2}, 1)
            session.undo()
        assert (said(session), session.state.items(), session.refresh().task_count) == (["a", "b"], {"n": 1}, 0)
        assert [each.text for each in session.messages(at=done.branch)] == ["a", "c"]
        session.switch(done.branch)
        assert (session.state.items(), session.task_count) == ({"n": 2}, 1)

    @pytest.mark.feature("F2")
    def test_writing_at_the_tip_is_a_plain_append(self, store: Store, session: Session) -> None:
        session.user("a")
        tips: list[Callable[[], Any]] = [
            lambda: session.messages()[-1],
            lambda: session.head,
            lambda: "main",
            lambda: session.head.seq,
        ]
        for tip in tips:
            for move in (True, False):
                session.write(user("more"), at=tip(), move=move)
        assert len(session.branches()) == 1
        assert [each.kind for each in store.operations()] == []

    @pytest.mark.feature("F2")
    @pytest.mark.trial("T60")
    def test_a_branch_that_was_left_is_continued_without_moving_the_head(self, session: Session) -> None:
        session.user("a")
        left = session.user("b")
        session.rewind(1)
        session.user("c")
        here = session.head
        places: tuple[Any, ...] = (left, "main", session.branches()[0])
        for number, at in enumerate(places):
            done = session.write(user(f"d{number}"), at=at, move=False)
            assert (done.branch, done.entries[0].seq) == ("main", 3 + number)
        assert session.refresh().head == here
        assert said(session) == ["a", "c"]
        assert [each.text for each in session.messages(at="main")] == ["a", "b", "d0", "d1", "d2"]
        session.write(user("e"), at="main")
        assert said(session) == ["a", "b", "d0", "d1", "d2", "e"]
        assert len(session.branches()) == 2
        session.undo()
        assert said(session) == ["a", "c"]

    @pytest.mark.feature("C6")
    def test_existing_items_are_passed_over(self, session: Session) -> None:
        first = session.append(user("a", id="1"), user("b", id="2"))
        session.rewind(1)
        again = session.append(user("a", id="1"), user("b", id="2"), user("c", id="3"), existing="skip")
        assert [each.id for each in again] == ["1", "2", "3"]
        assert again[:2] == first
        assert said(session) == ["a", "c"]
        with pytest.raises(Conflict, match="different content"):
            session.append(user("other", id="2"), existing="skip")
        revision = session.revision
        done = session.write(Custom("k", 1, id="x"), user("c", id="3"), existing="skip", state={"s": 1})
        assert [each.seq for each in done.entries] == [4, 2], "the change of state comes before it"
        assert done.revision == revision + 1
        assert session.append(Custom("k", 1, id="x"), existing="skip")[0].seq == 4
        with pytest.raises(Invalid):
            session.append(user("x"), existing="ignore")

    @pytest.mark.feature("C6")
    def test_a_retry_returns_what_was_passed_over_too(self, session: Session) -> None:
        session.user("a", id="1")
        for _ in range(2):
            done = session.write(
                user("a", id="1"),
                user("b", id="2"),
                Custom("k", 1),
                existing="skip",
                idempotency_key="w",
                state={"n": 1},
            )
            assert [each.seq for each in done.entries] == [1, 2, 4]
            again = session.append(user("a", id="1"), existing="skip", idempotency_key="x")
            assert [each.id for each in again] == ["1"]

    @pytest.mark.feature("C6")
    @pytest.mark.parametrize(
        "item",
        [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "r"}]},
            {"role": "tool", "tool_call_id": "c1", "content": "r"},
            {"role": "user", "parts": [{"text": "x"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
        ],
    )
    def test_items_in_a_providers_form_are_passed_over_by_their_id(self, session: Session, item: Any) -> None:
        for _ in range(2):
            assert session.append({**item, "id": "mine"}, existing="skip")[0].id == "mine"
        assert session.message_count == 1

    @pytest.mark.feature("F2")
    @pytest.mark.trial("T60")
    def test_a_fork_knows_every_branch_that_it_reads(self, session: Session) -> None:
        root = session.user("root", id="r")
        session.append(Custom("k", 1, id="c1"), user("two", id="m2"), Custom("k", 2, id="c2"))
        fork = session.fork(as_session=True)
        fork.write(user("other way"), at=root)
        assert [each.id for each in fork.customs(all_branches=True)] == ["c1", "c2"]
        assert [each.id for each in fork.customs(all_branches=True, newest=True)] == ["c2", "c1"]
        assert fork.append(user("two", id="m2"), existing="skip")[0].seq == 3
        assert said(fork) == ["root", "other way"]

    @pytest.mark.feature("C6")
    @pytest.mark.parametrize(
        "wrong",
        [
            {"docs": {"app": 1}},
            {"docs": {("app",): 1}},
            {"docs": {("", "k"): 1}},
            {"state": {"": 1}},
            {"state": {"a": 1}, "state_delete": ["a"]},
            {"state_delete": "a"},
            {"tasks": "do"},
            {"move": 1},
            {"expected_revision": "1"},
            {"idempotency_key": ""},
            {"at": 1.5},
        ],
    )
    def test_bad_arguments_are_refused_before_anything_is_written(self, session: Session, wrong: Any) -> None:
        session.user("a")
        revision = session.revision
        with pytest.raises(Invalid):
            session.write(user("b"), **wrong)
        assert session.refresh().revision == revision


class Natives(Contract):
    """Items of other programs, verbatim."""

    @pytest.mark.feature("C2")
    @pytest.mark.trial("T68")
    def test_any_shape_is_kept_verbatim_and_its_text_once(self, store: Store, session: Session) -> None:
        value = {"type": "weird", "uuid": "u1", "inner": {"parts": [{"text": LONG}, {"text": LONG[::-1]}]}}
        both = f"{LONG}\n{LONG[::-1]}"
        made = session.append(
            Native(value, role="assistant", text=LONG, id="u1", model="m", metadata={"k": 1}),
            Native(json.dumps(value).encode(), role="assistant", text=both),
            Native(b"not JSON at all", role="user", text=LONG),
            Native([1, 2], role="user"),
        )
        assert [each.text for each in made] == [LONG, both, LONG, ""]
        assert (made[0].id, made[0].model, made[0].metadata) == ("u1", "m", {"k": 1})
        assert json.loads(made[0].raw) == value
        assert made[2].raw == b"not JSON at all"
        for message in session.messages():
            assert (message.text, message.raw) == (made[message.seq - 1].text, made[message.seq - 1].raw)
        for message in session.messages()[:2]:
            assert LONG.encode() not in (message.data or b"")
        spoken = session.context("anthropic").messages
        assert LONG in json.dumps(spoken)

    @pytest.mark.feature("C2")
    @pytest.mark.trial("T68")
    def test_text_given_beside_raw_bytes_is_stored_once(self, session: Session) -> None:
        raw = json.dumps({"message": {"content": LONG}}).encode()
        for made in (
            session.user(LONG, raw=raw),
            session.append({"role": "assistant", "content": LONG, "raw": raw})[0],
        ):
            assert (made.text, made.content, made.raw) == (LONG, LONG, raw)
            assert LONG.encode() not in (made.data or b"")
        assert said(session) == [LONG, LONG]
        copied = session.append(session.messages()[0])[0]
        assert (copied.text, copied.raw) == (LONG, raw)

    @pytest.mark.feature("C2")
    def test_the_providers_object_inside_is_what_contexts_send(self, session: Session) -> None:
        call = {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "."}}
        answer = {"role": "assistant", "content": [{"type": "text", "text": "looking"}, call], "model": "claude"}
        result = {"type": "tool_result", "tool_use_id": "t1", "content": "a b"}
        line = {"uuid": "1", "type": "assistant", "message": answer, "cwd": "/x"}
        session.user("go")
        made = session.append(
            Native(line, role="assistant", form="anthropic", pointer="/message", id="1"),
            Native({"m": {"role": "user", "content": [result]}}, role="user", form="anthropic", pointer="/m"),
        )
        assert (made[0].text, made[0].model, made[0].tool_calls[0].name) == ("looking", "claude", "ls")
        assert made[1].tool_results[0].call_id == "t1"
        assert session.turn_count == 1
        assert session.pending_calls() == []
        sent = session.context("anthropic")
        assert sent.messages[1]["content"][1] == call
        assert sent.messages[2]["content"][0]["tool_use_id"] == "t1"
        assert not sent.repairs
        assert session.context("openai-chat").messages[1]["tool_calls"][0]["id"] == "t1"

    @pytest.mark.feature("C2")
    def test_calls_and_results_of_an_unknown_shape_are_said_beside_it(self, session: Session) -> None:
        session.user("go")
        call = {"id": "c1", "name": "run", "arguments": {"x": 1}}
        session.append(Native({"odd": 1}, role="assistant", text="well", calls=[call]))
        assert [each.name for each in session.pending_calls()] == ["run"]
        session.append(Native({"odd": 2}, role="tool", results=[{"call_id": "c1", "content": "done"}]))
        assert session.pending_calls() == []
        assert session.context("openai-chat").messages[-1]["content"] == "done"

    @pytest.mark.feature("C2")
    @pytest.mark.parametrize(
        "wrong",
        [
            Native({}, role="user", form="nobody"),
            Native({"a": 1}, role="user", form="anthropic", pointer="/message"),
            Native({"a": 1}, role="user", pointer="/a"),
            Native({"role": "user", "content": "x"}, role="user", form="anthropic", text="x"),
            Native({}, role="user", origin="robot"),
            Native({}, role="user", created_at=datetime(2024, 1, 1)),
            Native({}, role="user", id=""),
            Native(float("nan"), role="user"),
            Native({"a": b"bytes"}, role="user"),
            Native({1: 2}, role="user"),
            Native({}, role="user", metadata=5),  # type: ignore[arg-type]
            Native({}, role="user", calls=5),  # type: ignore[arg-type]
            Native({}, role="user", text=5),  # type: ignore[arg-type]
            Native({"a": {}}, role="user", form="anthropic", pointer="a"),
            Native({"a": [{}]}, role="user", form="anthropic", pointer="/a/00"),
            Native({}, role="user", created_at=datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))),
        ],
    )
    def test_what_cannot_be_kept_is_refused(self, session: Session, wrong: Native) -> None:
        with pytest.raises(Invalid):
            session.append(wrong)
        assert session.message_count == 0

    @pytest.mark.feature("C2")
    def test_an_entry_has_the_time_it_happened_beside_the_time_it_was_stored(self, session: Session) -> None:
        items = [
            Native({"a": 1}, role="user", created_at=THEN),
            Custom("line", 1, created_at=THEN),
            {"role": "assistant", "content": "b", "created_at": THEN},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t", "content": ""}],
                "created_at": THEN,
            },
        ]
        made = [*session.append(*items), session.user("c", created_at=THEN)]
        stored = [*session.messages(), *session.customs()]
        for each in (*made, *stored):
            assert each.created_at == THEN
            assert abs(each.stored_at - datetime.now(UTC)) < timedelta(days=1)
        assert [entry.created_at for entry in session.entries()] == [THEN] * 5
        assert session.refresh().last_message_at == THEN
        now = session.user("now")
        assert now.created_at == now.stored_at

    @pytest.mark.feature("C2")
    def test_only_a_person_opens_a_turn(self, session: Session) -> None:
        session.user("<environment>", origin="harness")
        assert (session.turn_count, session.title) == (0, None)
        session.user("fix it", origin="person")
        session.append({"role": "user", "content": "done", "origin": "notification"})
        session.append(Native({}, role="user", text="x", origin="harness"))
        blocks = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]
        session.append({"role": "user", "content": blocks, "origin": "harness"})
        assert (session.turn_count, session.title) == (1, "fix it")
        assert [each.origin for each in session.messages()] == [
            "harness",
            "person",
            "notification",
            "harness",
            "harness",
        ]
        with pytest.raises(Invalid, match="origin"):
            session.user("x", origin="alien")


class Customs(Contract):
    """Entries of foreign kinds."""

    @pytest.mark.feature("C2")
    def test_a_custom_entry_is_no_message(self, store: Store, session: Session) -> None:
        session.user("a")
        made = session.append(Custom("lg.checkpoint", {"channel": [1, 2.5, None]}, id="cp", text="words"))[0]
        assert (made.seq, made.turn, made.kind, made.data) == (2, 1, "lg.checkpoint", {"channel": [1, 2.5, None]})
        assert session.custom("cp") == made
        assert said(session) == ["a"]
        assert (session.message_count, session.turn_count, session.stats().messages) == (1, 1, 1)
        assert len(session.context("anthropic").messages) == 1
        assert [entry.kind for entry in session.entries()] == ["message", "custom:lg.checkpoint"]
        with pytest.raises(NotFound):
            session.message("cp")
        with pytest.raises(NotFound):
            session.custom("nothing")
        with pytest.raises(Conflict):
            session.append(Custom("other", 1, id="cp"))
        session.append(Custom("message", {"role": "user", "content": "not ours"}), Custom("state", 1))
        assert (said(session), session.state.items()) == (["a"], {})

    @pytest.mark.feature("C2")
    def test_a_custom_entry_may_open_a_turn(self, session: Session) -> None:
        session.append(Custom("run", {}, opens_turn=True))
        session.assistant("b")
        assert (session.turn_count, session.messages()[0].turn, session.message_count) == (1, 1, 1)

    @pytest.mark.feature("C2")
    def test_custom_entries_are_found_by_kind_and_id_in_pages(self, session: Session) -> None:
        for number in range(7):
            session.append(
                user(f"{number}"), Custom("a", number, id=f"x/{number}"), Custom("b", number, id=f"y/{number}")
            )
        session.rewind(session.custom("y/3"))
        session.append(Custom("a", 70, id="x/70"))

        def pages(**wanted: Any) -> list[Any]:
            found, cursor = list[Any](), None
            while True:
                page = session.customs(limit=2, cursor=cursor, **wanted)
                found += [each.data for each in page]
                cursor = page.cursor
                if cursor is None:
                    return found

        assert pages(kind="a") == [0, 1, 2, 3, 70]
        assert pages(kind="a", newest=True) == [70, 3, 2, 1, 0]
        assert pages(kind="b") == [0, 1, 2, 3]
        assert pages() == [0, 0, 1, 1, 2, 2, 3, 3, 70]
        assert pages(id_prefix="x/") == [0, 1, 2, 3, 70]
        assert pages(id_prefix="x/", kind="b") == []
        assert pages(id_prefix="x/7") == [70]
        session.append(Custom("odd", "last", id="z\U0010ffff\U0010ffff!"), Custom("odd", "next", id="{"))
        assert pages(id_prefix="z") == pages(id_prefix="z\U0010ffff") == ["last"]
        assert pages(kind="a", all_branches=True) == [0, 1, 2, 3, 4, 5, 6, 70]
        assert pages(kind="a", all_branches=True, newest=True) == [70, 6, 5, 4, 3, 2, 1, 0]
        assert pages(kind="none") == []
        with pytest.raises(Invalid):
            session.customs(cursor="nonsense")

    @pytest.mark.feature("C2")
    @pytest.mark.feature("F7")
    def test_a_custom_entry_goes_back_with_a_rewind(self, session: Session) -> None:
        session.user("a")
        session.append(Custom("k", 1, id="one"))
        session.rewind(1)
        assert len(session.customs()) == 0
        session.undo()
        assert session.custom("one").data == 1

    @pytest.mark.feature("C2")
    def test_contents_that_a_custom_entry_needs_are_kept(self, store: Store, session: Session) -> None:
        data = bytes(range(256)) * 1000
        made = store.put_content(data)
        session.append(Custom("k", {"value": made}, contents=[made], id="c"))
        assert store.get_content(session.custom("c").contents[0]) == data
        with pytest.raises((Conflict, NotFound)):
            session.append(Custom("k", 1, contents=["0" * 64]))
        with pytest.raises(Invalid):
            session.append(Custom("k", 1, contents=["short"]))
        big = session.append(Custom("k", {"text": "x" * 200_000}, id="big"))[0]
        assert session.custom("big") == big

    @pytest.mark.feature("C2")
    @pytest.mark.parametrize("wrong", [Custom("", 1), Custom("a\nb", 1), Custom("k" * 201, 1), Custom("k", object())])
    def test_a_custom_entry_that_cannot_be_kept_is_refused(self, session: Session, wrong: Custom) -> None:
        with pytest.raises(Invalid):
            session.append(wrong)

    @pytest.mark.feature("C6")
    def test_entries_are_found_by_id_in_every_session(self, store: Store, session: Session) -> None:
        session.append(user("a", id="shared"), Custom("k", 1, id="only"))
        fork = session.fork(as_session=True)
        early = session.fork(0, as_session=True)
        other = store.create_session("other")
        other.append(user("b", id="shared"))
        gone = store.create_session("gone")
        gone.append(user("c", id="shared"))
        store.delete_session(gone.id)
        found: Any = store.find_entries("shared")
        assert [(each.id, entry.text) for each, entry in found] == [
            (session.id, "a"),
            (fork.id, "a"),
            (other.id, "b"),
        ]
        assert early.id not in {each.id for each, _ in found}
        first = store.find_entries("shared", limit=1)
        second = store.find_entries("shared", limit=1, cursor=first.cursor)
        assert [entry for _, entry in (*first, *second)] == [entry for _, entry in found]
        rest = store.find_entries("shared", limit=1, cursor=second.cursor)
        assert (len(rest), rest.cursor) == (0, None), "the one in the trash"
        assert isinstance(store.find_entries("only")[0][1], Custom)
        assert len(store.find_entries("nobody")) == 0
        with pytest.raises(Invalid):
            store.find_entries("x", cursor="y")


class AnyBranch(Contract):
    """Points on branches that were left."""

    @pytest.mark.feature("F2")
    @pytest.mark.trial("T54")
    @pytest.mark.trial("T60")
    def test_points_are_found_on_every_branch(self, store: Store, session: Session) -> None:
        session.user("a")
        left = session.user("b")
        session.state.set("n", 1)
        version = session.state.version()
        session.set_tasks(["t"])
        session.rewind(1)
        session.user("c")
        session.state.set("n", 2)
        assert [each.text for each in session.messages(at=left)] == ["a", "b"]
        assert [each.text for each in session.messages(at="main")] == ["a", "b"]
        assert [each.text for each in session.iter_messages(at=left)] == ["a", "b"]
        assert session.stats(at=left).messages == 2
        assert session.state.at(version) == {"n": 1}
        assert session.context("anthropic", at=left).messages[-1]["content"]
        assert session.fork(left, name="again").head_seq == left.seq
        forked = session.fork("main", as_session=True)
        assert said(forked) == ["a", "b"]
        with pytest.raises(NotFound):
            session.messages(at="nothing")
        with pytest.raises(NotFound):
            session.state.at(99)
        session.rewind(left)
        assert said(session) == ["a", "b"]
        session.undo()
        assert said(session) == ["a", "c"]
        session.rewind("main")
        assert (said(session), session.state.items()) == (["a", "b"], {"n": 1})
        stranger = store.create_session("stranger")
        foreign = stranger.user("x")
        with pytest.raises(NotFound):
            session.messages(at=foreign)

    @pytest.mark.feature("F2")
    @pytest.mark.trial("T60")
    def test_a_fork_finds_what_it_left_of_the_session_it_came_from(self, session: Session) -> None:
        session.user("a")
        shared = session.user("b")
        fork = session.fork(as_session=True)
        fork.rewind(1)
        fork.user("c")
        assert [each.text for each in fork.messages(at=shared)] == ["a", "b"]
        fork.rewind(shared)
        assert said(fork) == ["a", "b"]

    @pytest.mark.feature("F2")
    @pytest.mark.trial("T54")
    def test_a_checkpoint_wins_over_a_branch_of_its_name(self, session: Session) -> None:
        session.user("a")
        session.checkpoint("main")
        session.user("b")
        assert [each.text for each in session.messages(at="main")] == ["a"]
