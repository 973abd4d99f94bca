"""Scopes are apart: by every call of the API on every engine, and on PostgreSQL by the server itself (F13).

A test of every call needs a case for every call: a public method without one fails ``test_every_call_has_a_case``.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import io
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MemberDescriptorType, SimpleNamespace
from typing import Any

import pytest

import _postgres
import takeback
from takeback import Attachment, Conflict, Error, Invalid, NotFound, Purged, Session, Store
from takeback.client.agent import Agent
from takeback.client.streams import Stream
from takeback.client.tools import ToolRun
from takeback.ops.streams import Piece
from takeback.tables import search

pytestmark = pytest.mark.feature("F13", "C6")

ONE, TWO = "acme", "rival"  # whose data is to be kept, and who asks for it
SCOPED = (
    *("agent", "agent_version", "session", "detail", "branch", "entry", "session_tag", "link", "lost", "checkpoint"),
    *("session_meta",),
    *("idempotency", "operation", "blob", "chunk", "feed", "lease", "stream", "delta", "inbox"),
    *("seen", "journal", "agent_checkpoint", "pin", "workspace", "scan", "touched", "document"),
)
ON_SERVER = (*SCOPED, *search.NAMES)  # a file's search index lies beside it
EMPTY = {"lost", "journal", "search_gram"}  # what nothing of the things below fills
WITHOUT_SCOPE = {"epoch", "meta", "migration"}  # of the store itself: nobody's data


# ---------------------------------------------------------------------- every call of the API


def _methods(kind: type) -> set[str]:
    """Return what can be called; fields and values are what a call gave before."""
    found = {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}
    fields = property | MemberDescriptorType
    called = [name for name, each in found.items() if hasattr(each, "__get__") and not isinstance(each, fields)]
    return {f"{kind.__name__}.{name}" for name in called}


def refused(*calls: Callable[[], Any], by: type[Exception] = NotFound) -> None:
    """Each call says that there is no such thing."""
    for call in calls:
        with pytest.raises(by):
            _whole(call())


def _whole(answer: Any) -> None:
    if isinstance(answer, Iterator):
        list(answer)


def absent(*found: Any) -> None:
    """Nothing is found: None, or nothing in it."""
    for each in found:
        assert each is None or not list(each)


def nothing_done(call: Callable[[], Any]) -> None:
    """There is nothing to take back, whatever was done elsewhere."""
    with pytest.raises(takeback.Conflict, match="there is nothing to"):
        call()


class Things:
    """What one scope has: every kind of thing that a call could be given."""

    def __init__(self, store: Store, place: Path) -> None:
        self.store, self.place = store, place
        self.agent = store.create_agent("boss", name="The boss", config={"secret": 1}, idempotency_key="make agent")
        self.agent.state.set("secret", "agent state", idempotency_key="set")
        store.update_agent("boss", type="planner", idempotency_key="update")
        self.parent = store.create_session("parent", agent="boss")
        self.session = store.create_session(
            *("plan",), agent="boss", workspace=str(place), tags=["hot"], label="helper", parent=self.parent,
            prompt="secret", metadata={"secret": 1}, idempotency_key="make session",
        )  # fmt: skip
        session = self.session
        self.data = b"secret bytes" * 1000
        session.user("secret", id="m1", idempotency_key="say", attachments=[self.data])
        session.assistant("x" * 200_000)
        calls = [{"id": f"c{number}", "name": "look", "arguments": {}} for number in (1, 2)]
        session.append({"role": "assistant", "content": "", "tool_calls": calls})
        session.tool_result("c1", "found", idempotency_key="result")
        self.call = session.pending_calls()[0]
        session.ask_approval(self.call, "secret question")
        self.stream = session.stream()
        self.stream.write("secret answer")
        self.stream.flush()
        store._keeper.forget(self.stream)  # closing the store would seal it
        self.parent.send("secret message")
        store.session("held", agent="boss").release()
        self.child = self.parent.spawn("secret task", label="child").session
        self.message, self.reply = session.messages(limit=2, after=0)
        self.attachment = self.message.attachments[0]
        session.set_tasks(["secret task"])
        session.set_plan("secret plan")
        session.append(takeback.Custom("secret.kind", "secret", id="custom"))
        self.note = session.note("secret note", task=0)
        session.record_file("/secret", "write")
        session.state.set("secret", "session state")
        self.checkpoint = session.checkpoint("cp", idempotency_key="cp")
        self.whole = store.checkpoint_agent("boss", "all of it", idempotency_key="whole")
        self.branch = session.fork(name="side")
        self.operation = session.rename("secret title", idempotency_key="rename")
        self.undone = session.undo()
        self.fork = session.fork(as_session=True, name="fork")
        with store.create_session("files", agent="boss", workspace=place) as working, working.tool("write"):
            (place / "secret file").write_text(f"the secret of {store.scope}")
        store.docs("notes").put("secret", {"of": store.scope}, idempotency_key="document")
        self.kept = store.docs("notes").put("large", self.data * 10)
        self.scan = next(iter(store.workspace(place).timeline()))
        self.preview = session.preview_rewind(1)
        self.main, self.cron = store.main_session("boss"), store.cron_session("boss", "nightly")
        self.directory = store.directory_session(place, agent="boss")
        self.trashed = store.create_session("trashed", agent="boss")
        store.delete_session(self.trashed)
        self.feed = [change.cursor for change in store.events()]
        self.hits = store.search("secret")
        self.page, self.agents = store.list_sessions(limit=1).cursor, "boss"
        self.operations = store.operations(limit=1).cursor
        self.sessions = [
            self.session,
            self.parent,
            self.child,
            self.main,
            self.cron,
            self.directory,
            self.trashed,
            self.fork,
        ]
        self.ids = {each.id for each in self.sessions}
        self.names = [*self.ids, *(each.key for each in self.sessions), "plan", "parent", "fork", "trashed"]


def _search_cases() -> dict[str, Callable[[Any], None]]:
    def search(x: Any) -> None:
        absent(x.c.search("secret", branches=True), x.c.search("secre"), x.c.search("secret", agent="boss"))
        assert not {hit.session_id for hit in x.b.search("secret", limit=1000)} & {hit.session_id for hit in x.a.hits}
        refused(lambda: x.c.search("secret", session=x.a.session), lambda: x.b.search("secret", session=x.a.session.id))

    def rebuild(x: Any) -> None:
        x.b.rebuild_search()
        assert {hit.ref for hit in x.a.store.search("secret")} == {hit.ref for hit in x.a.hits} != set()

    def check(x: Any) -> None:
        x.c.search("secret")  # so that nothing is left to add
        assert not x.c.check_search()

    return {"Store.search": search, "Store.rebuild_search": rebuild, "Store.check_search": check}


def _store_cases() -> dict[str, Callable[[Any], None]]:
    def prune(x: Any) -> None:
        x.b.prune(dry_run=False, spare_seconds=0)
        assert x.a.attachment.read() == x.a.data

    def agents_of_two(x: Any) -> None:
        found = x.b.create_agent("boss", idempotency_key="make agent")
        assert (found.config, found.state.items(), found.version) == ({}, {}, 1)

    def sessions_of_two(x: Any) -> None:
        for made in (
            x.b.session("plan", agent="boss", workspace=str(x.a.place)),
            x.b.create_session("parent", agent="boss", idempotency_key="make session"),
        ):
            assert made.id not in x.a.ids
            absent(made.messages(), made.checkpoints(), made.tasks(), made.state.items())
        refused(lambda: x.b.session("new", parent=x.a.session), lambda: x.b.create_session(parent=x.a.session.id))

    def fixed(call: Callable[[Store], Session]) -> Callable[[Any], None]:
        def case(x: Any) -> None:
            made = call(x.b)
            assert made.id not in x.a.ids
            absent(made.messages())

        return case

    def lists(x: Any) -> None:
        for call in (x.b.list_sessions, x.b.iter_sessions):
            for filters in ({"label": "helper"}, {"tag": "hot"}, {"trash": True}, {"archived": True}, {"pinned": True}):
                absent(call(**filters))
            for filters in ({}, {"agent": "boss"}, {"workspace": str(x.a.place)}, {"cursor": x.a.page}):
                assert not {each.id for each in call(**filters)} & x.a.ids
            refused(lambda: call(parent=x.a.parent), lambda: call(parent=x.a.parent.id))  # noqa: B023

    def refs(x: Any) -> None:
        for name in ("plan:cp", "plan/side", "plan:1", f"{x.a.session.id}:e1", *x.a.names, x.a.session.id[:20]):
            refused(lambda: x.c.resolve(name))  # noqa: B023
        refused(lambda: x.c.resolve("@"), lambda: x.c.resolve("@", str(x.a.place)))
        newest = ["@", *(f"@-{number}" for number in range(1, len(x.b.list_sessions(limit=1000))))]
        assert not {x.b.resolve(each).session.id for each in newest} & x.a.ids

    def events(x: Any) -> None:
        for after in (None, *x.a.feed[::10]):
            assert not {change.session_id for change in x.b.events(after)} & x.a.ids

    def follow(x: Any) -> None:
        changed = x.b.create_session()
        for after in (None, x.a.feed[0], x.a.feed[-1]):
            seen = set()
            for change in x.b.follow(after):
                seen.add(change.session_id)
                if change.session_id == changed.id:
                    break
            assert not seen & x.a.ids

    def undo(x: Any) -> None:
        refused(lambda: x.b.undo(x.a.operation), lambda: x.b.undo(x.a.operation.id), lambda: x.b.undo(x.a.undone))
        refused(x.b.scoped(TWO).undo, by=Conflict)

    def operations(x: Any) -> None:
        ours = {each.id for each in x.a.store.operations(limit=1000)}
        for cursor in (None, x.a.operations):
            assert not {each.id for each in x.b.operations(cursor=cursor)} & ours

    def repair(x: Any) -> None:
        refused(lambda: x.b.repair(x.a.place / "copy.db"), by=takeback.Unsupported) if x.server else None

    def backup(x: Any) -> None:
        refused(lambda: x.b.backup(x.a.place / "backup.db"), by=Invalid)
        assert not (x.a.place / "backup.db").exists()

    def export(x: Any) -> None:
        for form in ("jsonl", "markdown", "html"):
            for each in x.a.sessions:
                refused(
                    lambda: x.b.export(each, x.a.place / "out", format=form),  # noqa: B023
                    lambda: x.c.export(each.id, x.a.place / "out", format=form),  # noqa: B023
                )
        assert not (x.a.place / "out").exists()

    def load(x: Any) -> None:
        out = io.BytesIO()
        x.a.store.export(x.a.fork, out)
        out.seek(0)
        assert x.a.fork.id in x.b.scoped("third").load(out).new

    def close(x: Any) -> None:
        x.b.scoped(TWO).close()
        assert x.a.session.messages(limit=1)

    def stats(x: Any) -> None:
        empty = x.b.scoped("nobody").stats()
        assert (empty.agents, empty.sessions, empty.entries, empty.blobs, empty.checkpoints, empty.branches) == (0,) * 6

    def whole(x: Any) -> tuple[Any, ...]:
        return x.a.whole, x.a.whole.id, x.a.checkpoint, x.a.checkpoint.id

    def checkpoint_agent(x: Any) -> None:
        refused(lambda: x.c.checkpoint_agent("boss"), lambda: x.c.checkpoint_agent(x.a.agent, idempotency_key="whole"))
        x.b.create_session(agent="helper")
        made = x.b.checkpoint_agent("helper", idempotency_key="whole")
        assert [each.id for each in x.b.list_checkpoints("helper")][-1:] == [made.id] != [x.a.whole.id]

    def save(x: Any) -> None:
        refused(lambda: x.b.save_session(x.forged))

    return {
        "create_agent": agents_of_two,
        "update_agent": lambda x: refused(
            lambda: x.c.update_agent("boss", type="x"),
            lambda: x.c.update_agent(x.a.agent, type="x", idempotency_key="update"),
        ),
        "save_agent": lambda x: refused(
            lambda: x.c.save_agent("boss", type="x", expected_version=x.a.agent.version),
            lambda: x.c.save_agent(x.a.agent, state={"secret": 1}, expected_version=x.a.agent.version),
            by=Conflict,
        ),
        "get_operation": lambda x: refused(
            lambda: x.b.get_operation(x.a.operation.id), lambda: x.b.get_operation(x.a.undone.id)
        ),
        "get_agent": lambda x: refused(lambda: x.c.get_agent("boss")),
        "find_agent": lambda x: absent(x.c.find_agent("boss")),
        "list_agents": lambda x: absent(x.c.list_agents(), x.c.list_agents(cursor="a")),
        "delete_agent": lambda x: absent(x.c.delete_agent("boss"), x.c.delete_agent(x.a.agent)),
        "session": sessions_of_two,
        "create_session": sessions_of_two,
        "spawn": lambda x: refused(
            lambda: x.b.spawn("x", parent=x.a.session), lambda: x.b.spawn("x", parent=x.a.parent.id)
        ),
        "main_session": fixed(lambda b: b.main_session("boss")),
        "cron_session": fixed(lambda b: b.cron_session("boss", "nightly")),
        "directory_session": lambda x: fixed(lambda b: b.directory_session(x.a.place, agent="boss"))(x),
        "get_or_create_session": lambda x: fixed(lambda b: b.get_or_create_session(x.a.place))(x),
        "save_session": save,
        "get_session": lambda x: [refused(lambda: x.c.get_session(name)) for name in x.a.names],  # noqa: B023
        "find_session": lambda x: [absent(x.c.find_session(name)) for name in x.a.names],
        "resolve": refs,
        "list_sessions": lists,
        "iter_sessions": lists,
        "delete_session": lambda x: [absent(x.c.delete_session(each)) for each in (*x.a.names, *x.a.sessions)],
        "restore_session": lambda x: refused(
            lambda: x.c.restore_session(x.a.trashed), lambda: x.c.restore_session(x.a.trashed.id)
        ),
        "purge_session": lambda x: [
            _same(x.c.purge_session(each, include_forks=True), Purged()) for each in (*x.a.names, *x.a.sessions)
        ],
        "checkpoint_agent": checkpoint_agent,
        "restore_checkpoint": lambda x: [refused(lambda: x.c.restore_checkpoint(each)) for each in whole(x)],  # noqa: B023
        "list_checkpoints": lambda x: refused(
            lambda: x.c.list_checkpoints("boss"),
            lambda: x.c.list_checkpoints(x.a.agent),
            lambda: x.c.list_checkpoints(x.a.session),
            lambda: x.c.list_checkpoints(x.a.session.id),
        ),
        "get_checkpoint": lambda x: refused(
            lambda: x.c.get_checkpoint(x.a.whole.id), lambda: x.c.get_checkpoint(x.a.checkpoint.id)
        ),
        "delete_checkpoint": lambda x: [absent(x.c.delete_checkpoint(each)) for each in whole(x)],
        "start_auto_checkpoint": lambda x: refused(
            lambda: x.c.start_auto_checkpoint("boss"), lambda: x.c.start_auto_checkpoint([x.a.agent])
        ),
        "stop_auto_checkpoint": lambda x: absent(x.c.stop_auto_checkpoint()),
        "scoped": lambda x: absent(x.b.scoped("third").list_sessions(), x.b.scoped("third").list_agents()),
        "operations": operations,
        "undo": undo,
        "redo": lambda x: refused(x.b.scoped(TWO).redo, by=Conflict),
        "events": events,
        "follow": follow,
        "stats": stats,
        "spending": lambda x: [absent(x.c.spending(by)) for by in ("model", "day", "agent", "tool")],
        "verify": lambda x: _same(x.b.verify().problems, ()),
        "prune": prune,
        "repair": repair,
        "backup": backup,
        "scopes": lambda x: refused(x.b.scopes, x.c.scopes, by=Invalid),
        "export": export,
        "load": load,
        "close": close,
    }


def _same(found: Any, wanted: Any) -> None:
    assert found == wanted


def _session_cases() -> dict[str, Callable[[Any], None]]:
    """Calls on a session of two with what is one's, and on a handle that stands for a session of one."""
    point = lambda x: (x.a.checkpoint, x.a.checkpoint.id, "cp", x.a.message)  # noqa: E731

    def foreign(call: Callable[[Session], Any], own: Callable[[Any], None] | None = None) -> Callable[[Any], None]:
        def case(x: Any) -> None:
            refused(lambda: call(x.forged))
            if own is not None:
                own(x)

        return case

    def points(call: Callable[[Session, Any], Any]) -> Callable[[Any], None]:
        return foreign(lambda s: call(s, 0), lambda x: [refused(lambda: call(x.s, each)) for each in point(x)])  # noqa: B023

    def speak(x: Any) -> None:
        for number, key in enumerate(("say", "result", "make session", "rename", "cp")):
            assert x.s.user(f"mine {number}", idempotency_key=key).text == f"mine {number}"
        x.s.user("mine", id="m1")
        refused(lambda: x.s.user("reply", parent_id=x.a.reply.id))
        refused(lambda: x.s.user("x", attachments=[{"hash": x.a.attachment.hash}]))
        refused(lambda: x.s.user("x", attachments=[x.b._attachment(x.a.attachment.to_dict())]))

    def write(x: Any) -> None:
        refused(lambda: x.s.write(takeback.Custom("k", 1, contents=[x.a.attachment.hash])), by=Conflict)
        refused(lambda: x.s.write({"role": "user", "content": "x"}, at=x.a.message))
        mine = x.s.write({"role": "user", "content": "of two", "id": "m1"}, existing="skip", idempotency_key="say")
        assert mine.entries[0].text == "of two"
        x.s.write(docs={("notes", "secret"): "two's"})
        assert x.a.store.docs("notes").get("secret").value == {"of": ONE}

    def attach(x: Any) -> None:
        message = x.s.user("the same bytes", attachments=[x.a.data])
        assert message.attachments[0].hash == x.a.attachment.hash
        copied = x.s.append(x.a.message)[0]  # whoever holds the message may say it again elsewhere
        assert copied.attachments[0].read() == x.a.data
        x.b.purge_session(x.s.id)
        assert x.a.attachment.read() == x.a.data

    def tool(x: Any) -> None:
        refused(lambda: x.s.tool(x.a.call).__enter__(), lambda: x.forged.tool(x.a.call).__enter__())
        refused(lambda: x.forged.tool("look", id="c2").__enter__())

    empty: tuple[str, ...] = (
        *("messages", "iter_messages", "entries", "turns", "tool_calls", "pending_calls", "tasks", "notes", "files"),
        *("checkpoints", "operations", "get_plan", "get_walkthrough"),
    )
    cases = {name: _empty(name) for name in empty}
    return cases | {
        "user": foreign(lambda s: s.user("x"), speak),
        "assistant": foreign(lambda s: s.assistant("x"), attach),
        "system": foreign(lambda s: s.system("x")),
        "write": foreign(
            lambda s: s.write({"role": "user", "content": "x"}, state={"a": 1}, docs={("notes", "secret"): 1}), write
        ),
        "custom": foreign(lambda s: s.custom("custom"), lambda x: refused(lambda: x.s.custom("custom"))),
        "customs": foreign(lambda s: s.customs(), lambda x: absent(x.s.customs(all_branches=True))),
        "needs_reply": foreign(lambda s: s.needs_reply()),
        "redact": foreign(
            lambda s: s.redact("m1", dry_run=False), lambda x: refused(lambda: x.s.redact(x.a.reply.id, dry_run=False))
        ),
        "append": foreign(lambda s: s.append({"role": "user", "content": "x"}, {"role": "user", "content": "y"})),
        "replace_tail": foreign(lambda s: s.replace_tail(1, [{"role": "user", "content": "x"}], s.revision)),
        "pop": foreign(lambda s: s.pop(idempotency_key="say")),
        "clear": foreign(lambda s: s.clear()),
        "compact": foreign(lambda s: s.compact(1, "x"), lambda x: refused(lambda: x.s.compact("cp", "x"))),
        "tool": tool,
        "tool_call": foreign(lambda s: s.tool_call("c1"), lambda x: refused(lambda: x.s.tool_call("c1"))),
        "tool_result": foreign(
            lambda s: s.tool_result("c2", "x"),
            lambda x: refused(lambda: x.s.tool_result(x.a.call, "x"), lambda: x.s.tool_result("c2", "x")),
        ),
        "set_tasks": foreign(lambda s: s.set_tasks(["x"])),
        "add_task": foreign(lambda s: s.add_task("x")),
        "update_task": foreign(
            lambda s: s.update_task(0, "completed"),
            lambda x: refused(lambda: x.s.update_task(0, "completed"), by=Invalid),
        ),
        "set_plan": foreign(lambda s: s.set_plan("x")),
        "set_walkthrough": foreign(lambda s: s.set_walkthrough("x")),
        "note": foreign(
            lambda s: s.note("x", task=0), lambda x: refused(lambda: x.s.note("x", task=x.a.note.task), by=Invalid)
        ),
        "record_file": foreign(lambda s: s.record_file("/x", "write")),
        "add_build_attempt": foreign(lambda s: s.add_build_attempt()),
        "checkpoint": foreign(lambda s: s.checkpoint("cp", idempotency_key="cp")),
        "get_checkpoint": foreign(
            lambda s: s.get_checkpoint("cp"),
            lambda x: refused(lambda: x.s.get_checkpoint("cp"), lambda: x.s.get_checkpoint(x.a.checkpoint.id)),
        ),
        "preview_rewind": points(lambda s, at: s.preview_rewind(at)),
        "preview_undo": foreign(lambda s: s.preview_undo(), lambda x: refused(lambda: x.s.preview_undo(x.a.operation))),
        "preview_redo": foreign(lambda s: s.preview_redo()),
        "diff": points(lambda s, at: s.diff(at)),
        "compare": points(lambda s, at: s.compare(at)),
        "file_at": lambda x: refused(lambda: x.forged.file_at("a", 1), lambda: x.s.file_at("a", 1), by=Error),
        "snapshot_file": lambda x: refused(lambda: x.forged.snapshot_file("a"), by=Error),
        "file_diff": lambda x: refused(lambda: x.forged.file_diff("a"), by=Error),
        "file_diffs": _empty("file_diffs"),
        "capture_files": foreign(lambda s: s.capture_files()),
        "rewind_pending": foreign(lambda s: s.rewind_pending()),
        "forget_files": foreign(lambda s: s.forget_files(), lambda x: x.s.forget_files()),
        "rewind": points(lambda s, at: s.rewind(at)),
        "fork": points(lambda s, at: s.fork(at, as_session=at == "cp")),
        "stats": points(lambda s, at: s.stats(at)),
        "undo": foreign(
            lambda s: s.undo(),
            lambda x: refused(lambda: x.s.undo(x.a.operation), lambda: x.s.undo(x.a.operation.id, idempotency_key="k")),
        ),
        "redo": foreign(lambda s: s.redo()),
        "branches": foreign(lambda s: s.branches(), lambda x: _same([each.name for each in x.s.branches()], ["main"])),
        "switch": foreign(
            lambda s: s.switch("main"),
            lambda x: [refused(lambda: x.s.switch(each)) for each in (x.a.branch, x.a.branch.id, "side")],  # noqa: B023
        ),
        "preview_switch": foreign(
            lambda s: s.preview_switch("main"),
            lambda x: [refused(lambda: x.s.preview_switch(each)) for each in (x.a.branch, "side")],  # noqa: B023
        ),
        "context": points(lambda s, at: s.context("anthropic", at=at)),
        "summary": foreign(lambda s: s.summary(), lambda x: _same(x.s.summary(), "# Untitled session\n")),
        "render_walkthrough": foreign(
            lambda s: s.render_walkthrough(), lambda x: _same("Nothing was said" in x.s.render_walkthrough(), True)
        ),
        "compaction": foreign(lambda s: s.compaction(), lambda x: _same(x.s.compaction(), None)),
        "uncompact": foreign(lambda s: s.uncompact(), lambda x: refused(lambda: x.s.uncompact())),
        "message": foreign(
            lambda s: s.message("m1"), lambda x: refused(lambda: x.t.message("m1"), lambda: x.t.message(x.a.reply.id))
        ),
        "rename": foreign(lambda s: s.rename("x")),
        "tag": foreign(lambda s: s.tag("x")),
        "untag": foreign(lambda s: s.untag("hot")),
        "archive": foreign(lambda s: s.archive()),
        "unarchive": foreign(lambda s: s.unarchive()),
        "pin": foreign(lambda s: s.pin()),
        "unpin": foreign(lambda s: s.unpin()),
        "set_metadata": foreign(lambda s: s.set_metadata({"x": 1})),
        "refresh": foreign(lambda s: s.refresh()),
        "to_dict": lambda x: _same(x.s.to_dict()["id"], x.s.id),
        "stream": foreign(lambda s: s.stream()),
        "retry": lambda x: refused(
            lambda: x.s.retry(x.a.call).__enter__(), lambda: x.forged.retry(x.a.call).__enter__()
        ),
        "resolve_call": foreign(
            lambda s: s.resolve_call("c2", "x"), lambda x: refused(lambda: x.s.resolve_call(x.a.call, "x"))
        ),
        "complete": foreign(lambda s: s.complete("x")),
        "fail": foreign(lambda s: s.fail("x")),
        "stop": foreign(lambda s: s.stop()),
        "timeout": foreign(lambda s: s.timeout()),
        "reopen": foreign(lambda s: s.reopen()),
        "release": lambda x: absent(x.forged.release()),
        "runtime": lambda x: _same(x.s.runtime() >= 0, True),
        "spawn": foreign(lambda s: s.spawn("x"), lambda x: refused(lambda: x.s.spawn("x", call_id="c2"))),
        "children": foreign(lambda s: s.children(), lambda x: absent(x.s.children())),
        "tree": foreign(lambda s: s.tree(), lambda x: absent(x.s.tree().children)),
        "wait": foreign(
            lambda s: s.wait(timeout=0),
            lambda x: refused(lambda: x.s.wait(x.a.child, timeout=0), lambda: x.s.wait("helper", timeout=0)),
        ),
        "send": foreign(lambda s: s.send("x")),
        "receive": foreign(lambda s: s.receive(), lambda x: absent(x.s.receive())),
        "inbox": foreign(lambda s: s.inbox(), lambda x: absent(x.s.inbox())),
        "ask_approval": foreign(
            lambda s: s.ask_approval("c2"),
            lambda x: refused(lambda: x.s.ask_approval(x.a.call), lambda: x.s.ask_approval("c2")),
        ),
        "answer_approval": foreign(
            lambda s: s.answer_approval("c2", True), lambda x: refused(lambda: x.s.answer_approval(x.a.call, True))
        ),
        "approvals": foreign(lambda s: s.approvals(), lambda x: absent(x.s.approvals())),
    }


def _empty(name: str) -> Callable[[Any], None]:
    def case(x: Any) -> None:
        absent(getattr(x.t, name)())
        refused(getattr(x.forged, name))

    return case


def _state_cases(handle: str) -> dict[str, Callable[[Any], None]]:
    calls: dict[str, Callable[[Any], Any]] = {
        "get": lambda state: state.get("secret"),
        "items": lambda state: state.items(),
        "read": lambda state: state.read(),
        "version": lambda state: state.version(),
        "at": lambda state: state.at(1),
        "set": lambda state: state.set("secret", 1, idempotency_key="set"),
        "update": lambda state: state.update({"secret": 1}),
        "delete": lambda state: state.delete("secret"),
    }
    return {name: lambda x, call=call: refused(lambda: call(getattr(x, handle).state)) for name, call in calls.items()}  # type: ignore[misc]


def _other_cases() -> dict[str, Callable[[Any], None]]:
    def run(x: Any) -> ToolRun:
        found = ToolRun(x.forged, "c2", "look", {})
        found._call = x.a.call
        return found

    def stream(x: Any) -> Stream:
        found = Stream(x.forged, x.a.stream._row, 0.2, 1)
        found._said, found._size = [Piece("text", "forged")], 1
        return found

    streams: dict[str, Callable[[Stream], Any]] = {
        "write": lambda s: s.write("x"),
        "flush": lambda s: s.flush(),
        "finish": lambda s: s.finish(),
        "cancel": lambda s: s.cancel(),
    }

    def apply(x: Any) -> None:
        x.a.preview._session = x.forged
        refused(x.a.preview.apply, lambda: x.forged.preview_rewind(1))

    def put(x: Any) -> None:
        made = x.b.docs("notes").put("secret", "two's", idempotency_key="document")
        assert (x.b.docs("notes").get("secret"), made.value) == (made, "two's")
        assert x.a.store.docs("notes").get("secret").value == {"of": ONE}

    return {
        "Store.waiting": lambda x: absent(x.c.waiting()),
        "Store.find_entries": lambda x: absent(x.c.find_entries("m1"), x.c.find_entries("custom")),
        "Attachment.from_dict": lambda x: refused(
            lambda: Attachment.from_dict(x.a.attachment.to_dict()).read(), by=takeback.Unsupported
        ),
        "Store.docs": lambda x: absent(x.c.docs("notes").list()),
        "Store.put_content": lambda x: refused(lambda: x.c.get_content(x.b.put_content(b"of two"))),
        "Store.get_content": lambda x: refused(lambda: x.c.get_content(x.a.attachment.hash)),
        "Documents.get": lambda x: refused(lambda: x.c.docs("notes").get("secret")),
        "Documents.find": lambda x: absent(x.c.docs("notes").find("secret"), x.c.docs("notes").find("large")),
        "Documents.put": put,
        "Documents.delete": lambda x: _same(x.c.docs("notes").delete("large"), False),
        "Documents.list": lambda x: absent(
            x.c.docs("notes").list(), x.c.docs("notes").list("s"), x.c.docs("notes").list(cursor="large")
        ),
        "Agent.sessions": lambda x: absent(x.forged_agent.sessions()),
        "Agent.active_sessions": lambda x: absent(x.forged_agent.active_sessions()),
        "Agent.refresh": lambda x: refused(x.forged_agent.refresh),
        "Agent.to_dict": lambda x: _same(x.forged_agent.to_dict()["id"], "boss"),
        "ToolRun.result": lambda x: refused(lambda: run(x).result("x")),
        "ToolRun.error": lambda x: refused(lambda: run(x).error("x")),
        "ToolRun.write": lambda x: refused(lambda: run(x).write("x")),
        "Rewind.apply": apply,
        "Rewind.diff": lambda x: _same(x.a.preview.diff(), ""),
        "Rewind.left_alone": lambda x: _same(list(x.a.preview.left_alone()), list(x.a.preview.left_alone())),
        "Store.workspace": lambda x: absent(x.b.workspace(x.a.place).timeline()),
        "Workspace.timeline": lambda x: absent(x.b.workspace(x.a.place).timeline()),
        "Workspace.preview_rewind": lambda x: refused(lambda: x.b.workspace(x.a.place).preview_rewind(x.a.scan)),
        "Workspace.preview_undo": lambda x: nothing_done(x.b.workspace(x.a.place).preview_undo),
        "Workspace.preview_redo": lambda x: nothing_done(x.b.workspace(x.a.place).preview_redo),
        **{f"Stream.{name}": (lambda x, call=call: refused(lambda: call(stream(x)))) for name, call in streams.items()},
        "Attachment.open": lambda x: refused(lambda: x.b._attachment(x.a.attachment.to_dict()).open().read()),
        "Attachment.read": lambda x: refused(x.b._attachment(x.a.attachment.to_dict()).read),
        "Attachment.to_dict": lambda x: _same(x.b._attachment(x.a.attachment.to_dict()), x.a.attachment),
    }


CASES: dict[str, Callable[[Any], None]] = {
    **{f"Store.{name}": case for name, case in _store_cases().items()},
    **{f"Session.{name}": case for name, case in _session_cases().items()},
    **{f"AgentState.{name}": case for name, case in _state_cases("forged_agent").items()},
    **{f"SessionState.{name}": case for name, case in _state_cases("forged").items()},
    **_search_cases(),
    **_other_cases(),
}
KINDS = (
    Store,
    Session,
    takeback.Agent,
    takeback.AgentState,
    takeback.SessionState,
    ToolRun,
    takeback.Rewind,
    takeback.Workspace,
    Attachment,
    Stream,
    takeback.Documents,
)


def test_every_call_has_a_case() -> None:
    assert set(CASES) == set().union(*map(_methods, KINDS))


def rows_of(schema: str, scope: str) -> dict[str, list[str]]:
    """Return every row of a scope on the server, as a superuser sees it."""
    whole = " UNION ALL ".join(
        f"""SELECT '{table}', t::text FROM "{schema}".{table} t WHERE scope = '{scope}'""" for table in ON_SERVER
    )
    found: dict[str, list[str]] = {table: [] for table in ON_SERVER}
    for table, row in _postgres.execute(f"{whole} ORDER BY 1, 2"):
        found[table].append(row)
    return found


class World(SimpleNamespace):
    """A store with things of one scope, and what two has to try with."""

    def __init__(self, store: Store, url: str, place: Path) -> None:
        one, two = store.scoped(ONE), store.scoped(TWO)
        self.server = store.capabilities.name == "postgresql"
        self.whole, self.place, self.url = store, place, url
        self.a = Things(one, place)
        self.b, self.c = two, store.scoped("newcomer")  # c never makes anything
        self.forged = Session(two, self.a.session._seen, self.a.session._doc)
        self.forged_agent = Agent(self.c, self.a.agent._seen)

    def fresh(self) -> None:
        """Return two a session with a message, and an empty one."""
        self.s, self.t = self.b.create_session(), self.b.create_session()
        self.forged._seen = self.a.session._seen

    def rows(self) -> dict[str, list[Any]]:
        """Return every row of one, whoever may see it."""
        if self.server:
            return rows_of(_postgres.schema_of(self.place), ONE)
        every = self.whole._backend.scoped(None)
        return {
            table: every.read(lambda tx: tx.all(f"SELECT * FROM {table} WHERE scope = ? ORDER BY 1, 2, 3", (ONE,)))  # noqa: B023
            for table in SCOPED
        }


@pytest.fixture(scope="module", params=["file", "memory", "postgres", "superuser"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A store of each engine; a superuser sees through row security, so there only the statements keep scopes apart."""
    place = tmp_path_factory.mktemp("isolation")
    urls: dict[str, Callable[[], str]] = {
        "file": lambda: str(place / "store.db"),
        "memory": lambda: ":memory:",
        "postgres": lambda: _postgres.app_url(place),
        "superuser": lambda: _postgres.app_url(place).replace(_postgres.APP, "postgres", 1),
    }
    url = urls[request.param]()
    with takeback.open(url) as store:
        assert store.capabilities.isolation == ("row security" if request.param == "postgres" else "queries")
        yield World(store, url, place)
        assert not (report := store.verify()), str(report)


def test_what_is_to_be_kept_is_in_every_table(world: World) -> None:
    found = world.rows()
    assert {table for table, rows in found.items() if not rows} == EMPTY & found.keys()


@pytest.mark.parametrize("call", CASES)
def test_no_call_reaches_into_another_scope(world: World, call: str) -> None:
    world.fresh()
    before = world.rows()
    CASES[call](world)
    assert world.rows() == before


def test_a_handle_of_another_scope_is_not_found(world: World) -> None:
    refused(lambda: world.b.session(world.a.session), lambda: world.b.save_session(world.a.session))


def test_equal_content_of_two_scopes_is_stored_twice(world: World) -> None:
    data = b"the same for both" * 50
    stores = [world.whole.scoped(name) for name in ("twin 1", "twin 2")]
    for store in stores:
        store.create_session("x").user("y", attachments=[data])
    assert [store.stats().blobs for store in stores] == [1, 1]
    stores[0].purge_session("x")
    assert [store.stats().blobs for store in stores] == [0, 1]
    assert stores[1].get_session("x").messages()[0].attachments[0].read() == data


# ---------------------------------------------------------------------- row security itself


class Tables:
    """The tables of a store on a server with rows of two scopes and of the default one, and connections to try with."""

    def __init__(self, place: Path) -> None:
        self.url, self.schema = _postgres.app_url(place), _postgres.schema_of(place)
        with takeback.open(self.url) as store:
            for scope in ("", ONE, TWO):
                Things(store.scoped(scope), place)
        self.samples = {
            (table, scope): _postgres.execute(
                f'SELECT to_jsonb(t)::text, t.ctid::text FROM "{self.schema}".{table} t WHERE scope = %s LIMIT 1', scope
            )[0]
            for table in ON_SERVER
            for scope in ("", ONE, TWO)
            if table not in EMPTY
        }

    def connect(self, user: str, said: str | None = None) -> Any:
        """Connect as a role that says whose data it wants, for the whole connection."""
        import psycopg

        dsn = _postgres.server().dsn(_postgres.DATABASE, user)
        connection = psycopg.connect(dsn, autocommit=True, options=f"-c search_path={self.schema}")
        if said is not None:
            connection.execute("SELECT set_config('takeback.scope', %s, false)", (said,))
        return connection

    def scopes(self, user: str, said: str | None) -> dict[str, set[str]]:
        """Return whose rows can be seen, per table."""
        with self.connect(user, said) as connection:
            return {table: {row[0] for row in connection.execute(f"SELECT scope FROM {table}")} for table in ON_SERVER}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables(tmp_path_factory.mktemp("rows"))


def test_every_table_with_a_scope_has_the_policy_forced(tables: Tables) -> None:
    found = _postgres.execute(
        """SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity,
        EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'scope' AND a.attnotnull)
        FROM pg_class c WHERE c.relnamespace = %s::regnamespace AND c.relkind IN ('r', 'p')""",
        f'"{tables.schema}"',
    )
    assert {name for name, _, scoped in found if scoped} == set(ON_SERVER)
    assert {name for name, _, scoped in found if not scoped} == WITHOUT_SCOPE
    assert {name for name, forced, _ in found if forced} == set(ON_SERVER)
    policies = _postgres.execute(
        """SELECT tablename, policyname, permissive, roles::text, cmd, qual, with_check FROM pg_policies
        WHERE schemaname = %s""",
        tables.schema,
    )
    own = ("own_scope", "PERMISSIVE", "{public}", "ALL", f"(scope = {tables.schema}.own_scope())", None)
    said_all = "(current_setting('takeback.scope'::text, true) = '*'::text)"
    every = ("every_scope", "PERMISSIVE", f"{{{_postgres.OWNER}}}", "SELECT", said_all, None)
    assert {row[0]: row[1:] for row in policies if row[4] == "ALL"} == dict.fromkeys(ON_SERVER, own)
    assert {row[0]: row[1:] for row in policies if row[4] != "ALL"} == dict.fromkeys(ON_SERVER, every)


def test_no_view_or_function_sees_through_row_security(tables: Tables) -> None:
    schema = f'"{tables.schema}"'
    kinds = "SELECT relkind::text FROM pg_class WHERE relnamespace = %s::regnamespace"
    assert {row[0] for row in _postgres.execute(kinds, schema)} <= {"r", "i", "S", "t"}
    definer = "SELECT proname FROM pg_proc WHERE pronamespace = %s::regnamespace AND prosecdef"
    assert _postgres.execute(definer, schema) == []


NOBODY = [None, "", "*", "x", "S", " ", f"x{ONE}", "s" + ONE.upper(), f"s{ONE} ", f"s{ONE}\n", "snobody", "%", "s%"]


@pytest.mark.parametrize("said", NOBODY)
@pytest.mark.parametrize("user", [_postgres.APP, _postgres.OWNER])
def test_a_role_that_names_no_scope_sees_and_changes_nothing(tables: Tables, user: str, said: str | None) -> None:
    if user == _postgres.OWNER and said == "*":
        assert all(
            {"", ONE, TWO} <= scopes for table, scopes in tables.scopes(user, said).items() if table not in EMPTY
        )
    else:
        assert not any(tables.scopes(user, said).values())
    _cannot_write(tables, user, said, ("", ONE, TWO))


@pytest.mark.trial("T12")
def test_a_run_time_role_that_may_run_any_sql_chooses_its_scope(tables: Tables) -> None:
    """What the guide says: row security guards against forgotten filters, not against whoever runs SQL of their own."""
    assert tables.scopes(_postgres.APP, f"s{TWO}")["session"] == {TWO}
    assert tables.scopes(_postgres.APP, f"s{ONE}")["session"] == {ONE}


@pytest.mark.parametrize("user", [_postgres.APP, _postgres.OWNER])
@pytest.mark.parametrize("mine", ["", TWO])
def test_a_role_sees_and_changes_its_scope_only(tables: Tables, user: str, mine: str) -> None:
    import psycopg

    seen = tables.scopes(user, f"s{mine}")
    assert {table: scopes for table, scopes in seen.items() if table not in EMPTY} == {
        table: {mine} for table in ON_SERVER if table not in EMPTY
    }
    _cannot_write(tables, user, f"s{mine}", tuple({"", ONE, TWO} - {mine}))
    with tables.connect(user, f"s{mine}") as connection, connection.transaction(force_rollback=True):
        for table in set(ON_SERVER) - EMPTY:  # no row of ours becomes another's
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(f"UPDATE {table} SET scope = %s", (ONE,))


def _cannot_write(tables: Tables, user: str, said: str | None, scopes: tuple[str, ...]) -> None:
    import psycopg

    denied = psycopg.errors.InsufficientPrivilege
    with tables.connect(user, said) as connection, connection.transaction(force_rollback=True):
        for (table, scope), (row, place) in tables.samples.items():
            if scope not in scopes:
                continue
            where = f"WHERE scope = %s OR ctid = '{place}'::tid"
            for sql in (f"SELECT 1 FROM {table} {where}", f"SELECT 1 FROM {table} {where} FOR UPDATE"):
                found = connection.execute(sql, (scope,)).fetchall()
                assert not found or (said == "*" and "FOR UPDATE" not in sql)
            for sql in (f"UPDATE {table} SET scope = scope {where}", f"DELETE FROM {table} {where}"):
                assert connection.execute(sql, (scope,)).rowcount == 0
            insert = f"INSERT INTO {table} SELECT * FROM jsonb_populate_record(NULL::{table}, %s::jsonb)"
            for sql in (insert, f"{insert} ON CONFLICT DO NOTHING"):
                with pytest.raises(denied), connection.transaction():
                    connection.execute(sql, (row,))


def test_a_run_time_role_cannot_change_what_belongs_to_the_store(tables: Tables) -> None:
    import psycopg

    with tables.connect(_postgres.APP, f"s{TWO}") as connection:
        for sql in (
            *(f"DELETE FROM {table}" for table in WITHOUT_SCOPE),
            *("UPDATE epoch SET cluster = 'x'", "UPDATE meta SET name = 'x'", "UPDATE migration SET version = 99"),
            *(f"TRUNCATE {table} CASCADE" for table in ON_SERVER),
            *(f"ALTER TABLE {table} DISABLE ROW LEVEL SECURITY" for table in ON_SERVER),
            *("DROP POLICY own_scope ON entry", "CREATE TABLE own (a int)", "DROP TABLE lost", "SET ROLE postgres"),
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(sql)


def test_what_a_transaction_said_ends_with_it(tables: Tables) -> None:
    """One connection, used in turn for all that the store does: nothing of a scope stays on it."""
    with takeback.open(f"{tables.url}&pool_size=1") as store:
        one = store.scoped(ONE)
        session = one.create_session()

        def conflict() -> None:
            with pytest.raises(Conflict):
                session.append({"role": "user", "content": "x"}, expected_revision=10**6)
            with pytest.raises(Conflict):
                one.create_session("parent", agent="boss")

        for use in (
            *(lambda: session.messages(), lambda: session.user("first"), lambda: session.user("known")),
            *(lambda: session.user("generic", id="g"), lambda: session.append({"role": "user"}, {"role": "user"})),
            *(conflict, lambda: one.delete_session(session), lambda: list(one.events()), one.verify, one.stats),
        ):
            use()
            with store._backend._pool.taken(time.monotonic() + 10) as connection:  # type: ignore[attr-defined]
                said = connection.execute("SELECT current_setting('takeback.scope', true)").fetchone()
                seen = connection.execute(f'SELECT count(*) FROM "{tables.schema}".entry').fetchone()
            assert (said[0] or "", seen[0]) == ("", 0)


# ---------------------------------------------------------------------- what a scope costs, what verify covers


@pytest.mark.parametrize("engine", ["file", "postgres"])
def test_ten_thousand_scopes_cost_no_traffic_and_leave_nothing(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = _postgres.app_url(tmp_path) if engine == "postgres" else str(tmp_path / "a.db")
    with takeback.open(url) as store:
        _forbid_traffic(monkeypatch)
        handles = [store.scoped(f"tenant {number}") for number in range(10_000)]
        assert handles[-1].scoped("other").scope == "other"
        dead = weakref.ref(handles[5000])
        del handles
        gc.collect()
        assert dead() is None
        monkeypatch.undo()
        assert store.scoped("tenant 1").create_session("x").user("y").seq == 1


@pytest.mark.parametrize("engine", ["file", "postgres"])
def test_ten_thousand_awaited_scopes_cost_no_traffic(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = _postgres.app_url(tmp_path) if engine == "postgres" else str(tmp_path / "a.db")

    async def use() -> None:
        async with takeback.aopen(url) as store:
            _forbid_traffic(monkeypatch)
            for number in range(10_000):
                store.scoped(f"tenant {number}")
            monkeypatch.undo()
            assert [each async for each in store.scoped("tenant 1").iter_sessions()] == []

    asyncio.run(use())


def _forbid_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    from takeback.storage.postgres.pool import Pool
    from takeback.storage.sqlite import SqliteBackend

    def forbidden(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a scope was looked up")

    for kind, name in ((Pool, "take"), (Pool, "apart"), (SqliteBackend, "read"), (SqliteBackend, "write")):
        monkeypatch.setattr(kind, name, forbidden)


def test_verify_covers_its_scope_for_a_run_time_role_and_all_for_the_owner(tmp_path: Path) -> None:
    app, owner = _postgres.app_url(tmp_path), _postgres.url(tmp_path)
    with takeback.open(app) as store:
        for scope in (ONE, TWO):
            store.scoped(scope).create_session("x").user("y")
        assert not store.verify()
        _postgres.execute(
            f'UPDATE "{_postgres.schema_of(tmp_path)}".entry SET body = %s WHERE scope = %s', b"changed", ONE
        )
        assert not store.verify()
        assert not store.scoped(TWO).verify()
        found = store.scoped(ONE).verify().problems  # of the entry, and of the session whose head it is
        (problem,) = (each for each in found if each.where.startswith("entry "))
        checked = store.scoped(TWO).verify().checked
    with takeback.open(owner) as store:
        assert store.verify().problems == store.scoped(TWO).verify().problems
        assert problem in store.verify().problems
        assert store.verify().checked > checked
