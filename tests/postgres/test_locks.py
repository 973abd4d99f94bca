"""Row locks by markers: with them two writers that meet on a row come one after another, without one an update is lost.

The writers are stepped: the first one stops behind its read, the second one runs until it is done or waits for the
first, and then the first goes on. So nothing here depends on time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import _locks
import _postgres
import takeback
from takeback import Store
from takeback.ops import agents, sessions, subagents
from takeback.records import agents as copied_agents
from takeback.records.stream import AgentRecord
from takeback.storage.base import LOCK, Tx
from takeback.storage.postgres.backend import PostgresTx
from takeback.tables.agents import AGENT, AgentRow
from takeback.tables.sessions import SESSION, SessionRow

pytestmark = pytest.mark.feature("D9", "C6")

_ROWS = (SESSION.select, AGENT.select)
_NAME = "locks"  # of the connections
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    url = _postgres.app_url(tmp_path_factory.mktemp("shared"))
    with takeback.open(f"{url}&application_name={_NAME}") as store:
        yield store


@pytest.fixture
def store(whole: Store, tmp_path: Path) -> Store:
    """A scope that nobody has used."""
    return whole.scoped(str(tmp_path))


def meet(first: Callable[[], Any], second: Callable[[], Any], behind: tuple[str, ...] = _ROWS) -> list[Any]:
    """Run two writes of which the first one has read its row when the second one begins; return what they return.

    ``behind`` is how the statement begins behind which the first one stops.
    """
    has_read, may_go_on, read = threading.Event(), threading.Event(), PostgresTx.all
    held: Future[Any]

    def stepped(tx: PostgresTx, sql: str, args: Sequence[Any] = ()) -> list[Any]:
        rows = read(tx, sql, args)
        is_write, is_first = tx._begin is not None, threading.current_thread().name.startswith("first")
        if is_write and is_first and sql.startswith(behind):
            has_read.set()
            assert may_go_on.wait(60)
        return rows

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1, "first") as one, ThreadPoolExecutor(1) as two:
        patch.setattr(PostgresTx, "all", stepped)
        try:
            held = one.submit(first)
            assert has_read.wait(60)
            other = two.submit(second)
            while not other.done() and not _postgres.execute(_WAITING, _NAME)[0][0]:
                time.sleep(0.005)
        finally:
            may_go_on.set()
        return [held.result(60), other.result(60)]


# ---------------------------------------------------------------------- each statement by itself


class Made(NamedTuple):
    """What a writer knows of the row that it wants."""

    session: SessionRow
    agent: AgentRow


def _by_name(tx: Tx, row: SessionRow) -> SessionRow | None:
    return sessions.find_by_name(tx, row.scope, agent=row.agent, workspace=row.workspace, name=row.name or "")


# Each statement with a marker: where its text is, and how it is read.
STATEMENTS: dict[tuple[Any, str], Callable[[Tx, Made], Any]] = {
    (SESSION, "_by_key_locked"): lambda tx, made: sessions.by_number(tx, made.session.scope, made.session.sid),
    (sessions, "BY_ID"): lambda tx, made: sessions.get(tx, made.session.scope, made.session.id),
    (sessions, "BY_NAME"): lambda tx, made: _by_name(tx, made.session),
    (sessions, "BY_KEY"): lambda tx, made: sessions.find_by_key(tx, made.session.scope, made.session.key),
    (sessions, "BY_LABEL"): lambda tx, made: sessions.find_by_label(tx, made.session.scope, 0, "label"),
    (sessions, "NAMED"): lambda tx, made: sessions.named(tx, made.session.scope, "name")[0],
    (sessions, "OF_AGENT"): lambda tx, made: sessions.of_agent(tx, made.session.scope, made.agent.id)[0],
    (sessions, "LOCK"): lambda tx, made: sessions.several(tx, made.session.scope, [made.session.id])[made.session.id],
    (AGENT, "_by_key_locked"): lambda tx, made: agents.by_number(tx, made.agent.scope, made.agent.aid),
    (agents, "BY_ID"): lambda tx, made: agents.get(tx, made.agent.scope, made.agent.id),
    (agents, "ANY_BY_ID"): lambda tx, made: agents.get_any(tx, made.agent.scope, made.agent.id),
    (copied_agents, "TWIN"): lambda tx, made: copied_agents.find_twin(tx, AgentRecord(made.agent, 0)),
}


def _called(statement: tuple[Any, str]) -> str:
    place, name = statement
    return f"{place.__name__ if isinstance(place, ModuleType) else place.name}.{name}"


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "unmarked"])
@pytest.mark.parametrize("statement", STATEMENTS, ids=_called)
def test_two_writers_that_meet_on_a_row_lose_nothing_only_with_the_marker(
    store: Store, statement: tuple[Any, str], marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both add one to a number of the row that a statement reads."""
    made, read = _made(store), STATEMENTS[statement]
    if not marked:
        monkeypatch.setattr(*statement, getattr(*statement).removesuffix(LOCK))
    wrong = _locks.watch(monkeypatch)
    before = store._read(partial(read, made=made))
    meet(partial(store._write, partial(_add_one, read, made)), partial(store._write, partial(_add_one, read, made)))
    after = store._read(partial(read, made=made))
    assert _number(after) - _number(before) == (2 if marked else 1)
    assert len(wrong) == (0 if marked else 2), "what the contract is watched by sees it too"


def _made(store: Store) -> Made:
    agent = store.create_agent("agent")
    session = store.create_session("name", agent="agent", label="label")
    return Made(session._seen, agent._seen)


def _number(row: SessionRow | AgentRow) -> int:
    return row.updated_ms if isinstance(row, SessionRow) else row.modified_ms


def _add_one(read: Callable[[Tx, Made], Any], made: Made, tx: Tx) -> None:
    row = read(tx, made)
    if isinstance(row, SessionRow):
        sessions.write(tx, row, updated_ms=row.updated_ms + 1)
    else:
        AGENT.update(tx, row, row._replace(modified_ms=row.modified_ms + 1))


def test_every_statement_with_a_marker_is_proven_here() -> None:
    texts = {
        (module, name)
        for module in (sessions, agents, copied_agents)
        for name, value in vars(module).items()
        if isinstance(value, str) and value.endswith(LOCK) and value != LOCK
    }
    assert texts < STATEMENTS.keys()


# ---------------------------------------------------------------------- operations that people call


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "unmarked"])
def test_two_tags_at_once_are_both_kept_only_with_the_marker(
    store: Store, marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = store.create_session()
    if not marked:
        monkeypatch.setattr(sessions, "BY_ID", sessions.BY_ID.removesuffix(LOCK))
    one, two = store.get_session(made.id), store.get_session(made.id)
    meet(partial(one.tag, "first"), partial(two.tag, "second"))
    assert set(made.refresh().tags) == ({"first", "second"} if marked else {"first"})


@pytest.mark.parametrize("marked", [True, False], ids=["marked", "unmarked"])
def test_two_changes_of_an_agent_at_once_run_once_each_with_the_marker(
    store: Store, marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost without it either: the key of a version is unique, and who comes second runs again."""
    made, runs = store.create_agent("agent"), list[str]()
    if not marked:
        monkeypatch.setattr(agents, "BY_ID", agents.BY_ID.removesuffix(LOCK))
    change = agents.change_state

    def counted(*args: Any, **named: Any) -> AgentRow:
        runs.append(threading.current_thread().name)
        return change(*args, **named)

    monkeypatch.setattr(agents, "change_state", counted)
    one, two = store.get_agent("agent"), store.get_agent("agent")
    meet(partial(one.state.set, "first", 1), partial(two.state.set, "second", 2))
    assert made.state.read() == (3, {"first": 1, "second": 2})
    assert len(runs) == (2 if marked else 3)


def test_taking_over_a_sub_agent_keeps_what_its_runner_appends_meanwhile(store: Store) -> None:
    """The rows of the tree are locked as they are read, so whoever appends meanwhile does so before or after."""
    with store.session("above") as session:
        session.user("go")
        point = session.checkpoint("here")
        child = store.session(session.spawn("do it").session)
        child.user("begun")

        def late() -> list[str]:
            with contextlib.suppress(takeback.Conflict, takeback.LeaseLost):  # the runner is told that it was too late
                return [child.user("late").text]
            return []

        _, kept = meet(partial(session.rewind, point, take_over=True), late, (f"{SESSION.select} {subagents.BELOW}",))
    assert [message.text for message in store.get_session(child.id).messages()] == ["begun", *kept]
    assert not (report := store.verify()), str(report)
