"""Many writers at once on PostgreSQL: nothing is lost, nothing is doubled, a lost race is told, nobody waits for ever.

Writes run as READ COMMITTED and are kept apart by locks. So each test is about a way in which that could fail: a row
that was read before it was locked, two that are locked in two orders, a look that comes too early.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import _racers
import pytest
from _racers import COUNT, Racers, in_threads, won

import _postgres
import takeback
from takeback import Conflict, NotFound, Session, Store
from takeback.ops import agents, moves
from takeback.storage.postgres.schema import lock_key

pytestmark = pytest.mark.feature("D9", "C6")


@pytest.fixture(scope="module")
def racers() -> Iterator[Racers]:
    _postgres.server()
    racers = Racers()
    yield racers
    racers.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return _postgres.app_url(tmp_path)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An open store; afterwards it is verified, and no two transactions may have waited for each other."""
    before = _deadlocks()
    with takeback.open(f"{url}&pool_size=20") as store:
        yield store
        assert not (report := store.verify()), str(report)
    assert _deadlocks() == before, "transactions took locks in different orders"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store for tests that need nothing but a scope of their own."""
    place = tmp_path_factory.mktemp("shared")
    with takeback.open(f"{_postgres.app_url(place)}&pool_size=20&application_name=shared") as store:
        yield store
    with takeback.open(_postgres.url(place)) as owner:  # sees all scopes
        assert not (report := owner.verify()), str(report)


@pytest.fixture
def view(whole: Store, tmp_path: Path) -> Store:
    """A scope that nobody has used."""
    return whole.scoped(str(tmp_path))


def _deadlocks() -> int:
    """Count deadlocks; who was in one tells of it when its connection ends."""
    connected = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'takeback'"
    deadline = time.monotonic() + 2
    while _postgres.execute(connected)[0][0] and time.monotonic() < deadline:
        time.sleep(0.02)
    found = _postgres.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = %s", _postgres.DATABASE)
    return int(found[0][0])


@contextlib.contextmanager
def stores(url: str, count: int = COUNT) -> Iterator[list[Store]]:
    """As many stores as writers, each with its own connections."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(takeback.open(url)) for _ in range(count)]


def texts(session: Session) -> list[str]:
    return [message.text for message in session.messages(tools=False)]


def said_by_writers(found: list[str]) -> list[str]:
    return [text for text in found if ":" in text]


def rows(tmp_path: Path, sql: str, *args: Any) -> list[Any]:
    return _postgres.execute(sql.replace("{}", f'"{_postgres.schema_of(tmp_path)}"'), *args)


# ---------------------------------------------------------------------- many writers, one session


@pytest.mark.slow
@pytest.mark.promise("R6")
def test_threads_and_processes_append_to_one_session(
    store: Store, url: str, racers: Racers, seed: int, counts: Callable[[int, int], int]
) -> None:
    """Plain appends and all others on one session: each writer's words are there once, in their order, without gaps."""
    session = store.create_session("shared")
    mine, calls = list[Any](), counts(12, 300)
    with stores(url) as others:
        works = [
            partial(_racers.write_on, other.get_session(session.id), f"t{number}", calls, moves=False, seed=seed)
            for number, other in enumerate(others)
        ]
        threads = threading.Thread(target=lambda: mine.extend(in_threads(works)))
        threads.start()
        theirs = racers.run(_racers.write, url, [session.id], calls, False, seed)
        threads.join()
    written = won(mine) + theirs
    assert [entry.seq for entry in session.entries()] == list(range(1, session.refresh().head.seq + 1))
    found = said_by_writers(texts(session))
    assert len(written) == 2 * COUNT
    for said in written:
        name = said[0].partition(":")[0]
        assert [text for text in found if text.startswith(f"{name}:")] == said
    assert len(found) == sum(map(len, written))
    assert session.message_count == len(session.messages())
    assert session.task_count == len(session.tasks())
    assert session.build_attempts == session.refresh().build_attempts


@pytest.mark.slow
@pytest.mark.promise("R6")
def test_heads_that_many_writers_move_lose_nothing(
    store: Store, url: str, racers: Racers, tmp_path: Path, seed: int, counts: Callable[[int, int], int]
) -> None:
    """Rewind, undo, redo, pop and switch between all the rest, on two sessions: every word is on one branch, once."""
    ids = [store.create_session(f"s{number}").id for number in range(2)]
    written = [text for said in racers.run(_racers.write, url, ids, counts(12, 300), True, seed) for text in said]
    stored = rows(tmp_path, "SELECT convert_from(body, 'UTF8') FROM {}.entry WHERE body IS NOT NULL")
    found = Counter(text for (body,) in stored for text in written if f'"content":"{text}"' in body)
    assert found == Counter(written)
    for session_id in ids:
        session = store.get_session(session_id)
        assert [entry.seq for entry in session.entries()] == list(range(1, session.head.seq + 1))
        assert len({branch.name for branch in session.branches()}) == len(session.branches())


def test_verify_finds_nothing_wrong_while_others_write(store: Store, url: str, seed: int) -> None:
    sessions, ended = [store.create_session(f"s{number}") for number in range(3)], threading.Event()
    works = [
        partial(_racers.write_on, session, f"w{number}", 15, moves=number > 0, seed=seed)
        for number, session in enumerate(sessions)
    ]
    won(in_threads([partial(_verify, url, ended), partial(_end_after, ended, works)]))


def _verify(url: str, ended: threading.Event) -> None:
    with takeback.open(url) as store:
        while True:
            last = ended.is_set()
            assert not (report := store.verify()), str(report)
            if last:
                return


# ---------------------------------------------------------------------- one of many


ONLY_ONE = ("session", "main_session", "cron_session", "directory_session", "keyed agent", "keyed session")
FIRST = ("create_session", "create_agent", "label")


@pytest.mark.promise("R8")
@pytest.mark.parametrize("what", [*ONLY_ONE, *FIRST])
def test_eight_processes_make_one(store: Store, url: str, racers: Racers, tmp_path: Path, what: str) -> None:
    """Whoever asks gets the same one, or is told that it is there: exactly one was made in each round."""
    rounds = 4
    store.create_session("parent")
    found = list(zip(*racers.run(_racers.make, url, what, rounds, str(tmp_path)), strict=True))
    for ids in found:
        assert len(ids) == COUNT
        assert len(set(ids) - {"conflict"}) == 1
        assert ids.count("conflict") == (0 if what in ONLY_ONE else COUNT - 1)
    agents = Counter(row[0] for row in rows(tmp_path, "SELECT id FROM {}.agent WHERE hidden = 0"))
    assert set(agents.values()) == {1}


def test_an_id_of_a_message_is_given_once(store: Store, url: str) -> None:
    session = store.create_session()
    with stores(url, 4) as others:
        for turn in range(4):
            works = [partial(other.get_session(session.id).user, "x", id=f"m{turn}") for other in others]
            assert len(won(in_threads(works))) == 1
    assert session.refresh().message_count == 4


def test_a_title_is_made_of_the_message_that_came_first(store: Store, url: str) -> None:
    with stores(url, 4) as others:
        for _ in range(5):
            session = store.create_session()
            handles = [other.get_session(session.id) for other in others]
            won(in_threads([partial(handle.user, f"words of {n}") for n, handle in enumerate(handles)]))
            assert session.refresh().title == session.messages()[0].text


def test_a_name_stays_unique_while_sessions_leave_and_return(store: Store, url: str, tmp_path: Path) -> None:
    """Delete and restore free and take a name while others create it: two visible sessions never share one."""
    store.create_session("name")

    def come_and_go(other: Store, rng: random.Random) -> None:
        for _ in range(12):
            with contextlib.suppress(Conflict, NotFound):
                match rng.randrange(4):
                    case 0:
                        other.create_session("name")
                    case 1:
                        other.delete_session("name")
                    case 2:
                        other.restore_session(
                            rng.choice(other.list_sessions(trash=True)) if rng.random() < 0.9 else "x"
                        )
                    case _:
                        other.undo()

    with stores(url, 5) as others:
        won(
            in_threads([partial(come_and_go, other, random.Random(n)) for n, other in enumerate(others)]),
            lost=IndexError,
        )
    names = Counter(session.name for session in store.iter_sessions())
    assert set(names.values()) <= {1}


# ---------------------------------------------------------------------- retries


def _keyed(session: Session) -> dict[str, Callable[[], Any]]:
    """Calls that are made again with their key; each says what it made."""
    call = {"id": "c", "name": "look", "arguments": {}}
    session.append({"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [call]})

    def handle() -> Session:
        return session._store.get_session(session.id)

    return {
        "plain": lambda: handle().user("x", idempotency_key="plain").id,
        "seen": lambda: session.user("y", idempotency_key="seen").id,
        "batch": lambda: [m.id for m in handle().append({"role": "user"}, {"role": "user"}, idempotency_key="batch")],
        "with an id": lambda: handle().user("x", id="mid", idempotency_key="with an id").id,
        "attachment": lambda: handle().user("x", attachments=[b"z" * 99], idempotency_key="attachment").id,
        "result": lambda: handle().tool_result("c", "found", idempotency_key="result").id,
        "rename": lambda: handle().rename("title", idempotency_key="rename").id,
        "checkpoint": lambda: handle().checkpoint("cp", idempotency_key="checkpoint").id,
        "state": lambda: handle().state.set("k", 1, idempotency_key="state"),
        "task": lambda: handle().add_task("t", idempotency_key="task").id,
        "fork": lambda: handle().fork(as_session=True, idempotency_key="fork").id,
        "branch": lambda: handle().fork(idempotency_key="branch").id,
        "agent state": lambda: session._store.get_agent("main").state.set("k", 1, idempotency_key="agent state"),
        "update": lambda: session._store.update_agent("main", name="n", idempotency_key="update").version,
        "pop": lambda: (handle().pop(idempotency_key="pop") or _nothing()).id,
    }


def _nothing() -> Any:
    raise AssertionError("nothing was taken off")


KEYED = (
    *("plain", "seen", "batch", "with an id", "attachment", "result", "rename", "checkpoint", "state", "task", "fork"),
    *("branch", "agent state", "update", "pop"),
)


@pytest.mark.promise("R8")
@pytest.mark.feature("A2")
@pytest.mark.parametrize("what", KEYED)
def test_a_call_that_eight_make_with_one_key_is_done_once(view: Store, what: str) -> None:
    session = view.create_session()
    call = _keyed(session)[what]
    found = won(in_threads([call] * COUNT))
    assert len(found) == COUNT
    assert len({str(each) for each in found}) == 1
    assert str(call()) == str(found[0])


def test_every_kind_of_keyed_call_is_tried(view: Store) -> None:
    assert set(_keyed(view.create_session())) == set(KEYED)


# ---------------------------------------------------------------------- lost races are told


@pytest.mark.slow
@pytest.mark.promise("R10")
@pytest.mark.parametrize("of", ["agent", "session"])
def test_no_update_of_a_state_is_lost(store: Store, url: str, racers: Racers, of: str) -> None:
    store.create_agent("counter").state.set("n", 0)
    session = store.create_session("counter")
    session.state.set("n", 0)
    lost = racers.run(_racers.count_up, url, of, 10)
    state: Any = store.get_agent("counter").state if of == "agent" else session.state
    version, items = state.read()
    assert items == {"n": 10 * COUNT}
    assert sum(lost) > 0, "nobody was in anybody's way: nothing was tried"
    assert version == 2 + 10 * COUNT


@pytest.mark.promise("R10")
def test_of_those_who_expect_one_revision_exactly_one_wins(store: Store, url: str) -> None:
    session = store.create_session()
    session.user("first")
    message = {"role": "user", "content": "x"}
    # Each call is prepared before all run at once: a preview that is made after somebody won sees what that one did.
    calls: dict[str, Callable[[Session, int], Callable[[], Any]]] = {
        "plain": lambda s, seen: partial(s.append, message, expected_revision=seen),
        "several": lambda s, seen: partial(s.append, message, message, expected_revision=seen),
        "with an id": lambda s, seen: partial(s.append, {**message, "id": f"m{seen}"}, expected_revision=seen),
        "replace": lambda s, seen: partial(s.replace_tail, s.head.seq, [message], seen),
        "rewind": lambda s, seen: s.preview_rewind(s.head.seq - 1).apply,
        "mixed": lambda s, seen: next(ways)(s, seen),
    }
    ways = itertools.cycle([call for name, call in calls.items() if name not in ("mixed", "rewind")])
    with stores(url, 4) as others:
        for call in calls.values():
            for _ in range(3):
                seen = session.refresh().revision
                handles = [other.get_session(session.id) for other in others]
                found = in_threads([call(handle, seen) for handle in handles])
                assert len(won(found)) == 1
                assert session.refresh().revision > seen
                session.user("next")


@pytest.mark.promise("R10")
def test_a_rewind_that_was_looked_at_is_applied_once(store: Store, url: str) -> None:
    session = store.create_session()
    with stores(url, 4) as others:
        for _ in range(4):
            session.append(*[{"role": "user", "content": "x"}] * 3)
            previews = [other.get_session(session.id).preview_rewind(session.head.seq - 2) for other in others]
            assert len(won(in_threads([preview.apply for preview in previews]))) == 1


def test_a_tool_call_is_answered_once(store: Store, url: str) -> None:
    session = store.create_session()
    with stores(url, 4) as others:
        for turn in range(4):
            call = {"id": f"c{turn}", "name": "look", "arguments": {}}
            session.append({"role": "assistant", "content": "", "tool_calls": [call]})
            works = [partial(other.get_session(session.id).tool_result, f"c{turn}", "x") for other in others]
            assert len(won(in_threads(works))) == 1
    assert not session.pending_calls()
    assert [call.status for call in session.tool_calls()] == ["completed"] * 4


def test_a_tool_call_is_started_once(store: Store, url: str) -> None:
    session = store.create_session()
    call = {"id": "c", "name": "look", "arguments": {}}
    session.append({"role": "assistant", "content": "", "tool_calls": [call]})
    with stores(url, 4) as others:
        runs = [other.get_session(session.id).tool("look", id="c") for other in others]
        won(in_threads([run.__enter__ for run in runs]))
    assert [entry.kind for entry in session.entries()].count("call") == 1


# ---------------------------------------------------------------------- what was seen before it changed


MEANWHILE: dict[str, Callable[[Store, Session], Any]] = {
    "nothing": lambda store, session: None,
    "append": lambda store, session: session.user("theirs"),
    "generic append": lambda store, session: session.user("theirs", id="t"),
    "rename": lambda store, session: session.rename("theirs"),
    "no title": lambda store, session: session.rename(None),
    "archive": lambda store, session: session.archive(),
    "task": lambda store, session: session.add_task("theirs"),
    "state": lambda store, session: session.state.set("k", 1),
    "checkpoint": lambda store, session: session.checkpoint("cp"),
    "rewind": lambda store, session: session.rewind(1),
    "rewind and append": lambda store, session: (session.rewind(1), session.user("theirs")),
    "rewind and undo": lambda store, session: (session.rewind(1), session.undo()),
    "pop": lambda store, session: session.pop(),
    "clear": lambda store, session: session.clear(),
    "fork": lambda store, session: session.fork(name="side"),
    "switch": lambda store, session: (session.fork(1, name="side"), session.switch("side")),
    "replace": lambda store, session: session.replace_tail(
        2, [{"role": "user", "content": "theirs"}], session.revision
    ),
    "delete": lambda store, session: store.delete_session(session),
    "delete and restore": lambda store, session: (store.delete_session(session), store.restore_session(session)),
    "delete the agent": lambda store, session: store.delete_agent("main"),
    "purge": lambda store, session: store.purge_session(session),
    "move the directory": lambda store, session: session.set_metadata({"x": 1}),
}
THEN: dict[str, Callable[[Session], Any]] = {
    "plain": lambda session: session.user("mine").seq,
    "keyed": lambda session: session.user("mine", idempotency_key="k").seq,
    "several": lambda session: [m.seq for m in session.append({"role": "user", "content": "mine"}, {"role": "user"})],
    "revision": lambda session: (
        session.append({"role": "user", "content": "m"}, expected_revision=session.revision)[0].seq
    ),
}


@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_a_session_that_was_seen_before_it_changed_is_as_on_sqlite(view: Store, meanwhile: str) -> None:
    """An append is computed from what its handle saw last: whatever another handle did since, it must be noticed."""
    with takeback.open(":memory:") as file:
        for then in THEN:
            assert _stale(view, meanwhile, then) == _stale(file, meanwhile, then), then


def _stale(store: Store, meanwhile: str, then: str) -> Any:
    session = store.create_session()
    session.user("first")
    session.user("second")
    MEANWHILE[meanwhile](store, store.get_session(session.id))
    try:
        answer = THEN[then](session)
    except takeback.Error as error:
        answer = type(error).__name__
    try:
        session.refresh()
        branches = [(branch.name, branch.fork_seq, branch.head_seq, branch.is_head) for branch in session.branches()]
        seen = [texts(session), branches, session.revision, session.title, session.deleted, session.message_count]
    except NotFound:
        seen = []
    return answer, seen


# ---------------------------------------------------------------------- erasing while others write


@pytest.mark.slow
def test_purges_forks_and_uploads_at_once_lose_nothing_that_is_kept(
    store: Store, url: str, racers: Racers, tmp_path: Path, seed: int, counts: Callable[[int, int], int]
) -> None:
    """Sessions that share content are purged, forked, deleted with their agent and restored while others link it."""
    written = racers.run(_racers.keep_and_erase, url, counts(12, 200), seed)
    for number, said in enumerate(written):
        kept = store.get_session(f"kept {number}")
        assert texts(kept) == said
        for message in kept.messages():
            assert message.attachments[0].read().startswith(b"content ")
    orphans = """SELECT count(*) FROM {}.session s WHERE hidden = 0
    AND NOT EXISTS (SELECT 1 FROM {}.agent a WHERE a.id = s.agent AND a.hidden = 0)"""
    assert rows(tmp_path, orphans) == [(0,)]
    unused = "SELECT count(*) FROM {}.chunk c WHERE NOT EXISTS (SELECT 1 FROM {}.blob b WHERE b.blob_id = c.blob_id)"
    assert rows(tmp_path, unused) == [(0,)]


def test_a_purged_session_takes_no_late_append(store: Store, url: str, tmp_path: Path) -> None:
    with stores(url, 3) as others:
        for _ in range(6):
            session = store.create_session()
            session.user("first")
            handles = [other.get_session(session.id) for other in others]
            works: list[Callable[[], Any]] = [partial(store.purge_session, session.id)]
            works += [
                partial(_append_until_gone, handle, generic) for handle, generic in zip(handles, (0, 0, 1), strict=True)
            ]
            won(in_threads(works))
    assert rows(tmp_path, "SELECT count(*) FROM {}.entry") == [(0,)]


def _append_until_gone(session: Session, generic: int) -> None:
    for number in range(1000):
        try:
            session.user("late", **({"id": f"{id(session)} {number}"} if generic else {}))  # type: ignore[typeddict-item]
        except NotFound:
            return
    raise AssertionError("it was never purged")


def test_no_session_is_visible_without_its_agent(store: Store, url: str, tmp_path: Path) -> None:
    def come_and_go(other: Store, number: int) -> None:
        for turn in range(6):
            with contextlib.suppress(Conflict, NotFound):
                (other.delete_agent if number == 0 else other.create_session)(
                    *(() if number else ("x",)), **({"agent": "x"} if number else {})
                )
                if turn % 3 == 2 and number == 1:
                    other.undo()

    with stores(url, 4) as others:
        won(in_threads([partial(come_and_go, other, number) for number, other in enumerate(others)]))
    visible = rows(tmp_path, "SELECT count(*) FROM {}.session WHERE hidden = 0 AND agent = 'x'")[0][0]
    agents = rows(tmp_path, "SELECT count(*) FROM {}.agent WHERE hidden = 0 AND id = 'x'")[0][0]
    assert agents == 1 or visible == 0


# ---------------------------------------------------------------------- held before they commit


CONTENT = b"shared by two sessions " * 1000
INSIDE: dict[str, Callable[[Store], Any]] = {
    "link": lambda store: store.get_session("b").user("y", attachments=[CONTENT]),
    "create": lambda store: store.create_session("new", agent="x"),
    "fork": lambda store: store.get_session("a").fork(as_session=True, name="fork"),
    "fork of the fork": lambda store: store.get_session("child").fork(as_session=True, name="fork"),
    "agent state": lambda store: store.get_agent("x").state.set("k", 1),
    "return": lambda store: store.list_sessions(trash=True)[0].undo(),
    "sub-agent": lambda store: store.create_session("sub", agent="x", parent=store.get_session("a")),
}
ACROSS: dict[str, Callable[[Store], Any]] = {
    "purge": lambda store: store.purge_session("a"),
    "purge the fork": lambda store: store.purge_session("child"),
    "delete the agent": lambda store: store.delete_agent("x"),
    "restore": lambda store: store.restore_session(store.list_sessions(trash=True)[0]),
}


@pytest.mark.parametrize("held", ["inside", "across"])
@pytest.mark.parametrize("across", ACROSS)
def test_what_reaches_across_sessions_is_alone(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, across: str, held: str
) -> None:
    """A call that looks at several sessions waits for each that is about to commit, and each of them for it."""
    with stores(url, 2) as (slow, fast):
        for number, inside in enumerate(INSIDE):
            scope = f"{held} {across} {number}"
            _fill(slow.scoped(scope))
            first, second = (INSIDE[inside], ACROSS[across])[:: 1 if held == "inside" else -1]
            found = _overlap(monkeypatch, slow, partial(first, slow.scoped(scope)), partial(second, fast.scoped(scope)))
            won(found, lost=(Conflict, NotFound))  # type: ignore[arg-type]
            _check_whole(fast.scoped(scope), inside)
    with takeback.open(_postgres.url(tmp_path)) as owner:  # sees all scopes
        assert not (report := owner.verify()), str(report)


def _fill(store: Store) -> None:
    """Make two sessions of two agents that share content, a fork, and a session in the trash."""
    one = store.create_session("a", agent="x")
    one.user("x", attachments=[CONTENT])
    one.fork(as_session=True, name="child").user("on the fork")
    store.create_session("b", agent="y")
    store.delete_session(store.create_session("gone", agent="x"))


def _overlap(
    monkeypatch: pytest.MonkeyPatch, slow: Store, first: Callable[[], Any], second: Callable[[], Any]
) -> list[Any]:
    """Hold one call before its commit until another one waits for it; one that does not wait is an error."""
    reached, release, ended = threading.Event(), threading.Event(), threading.Event()
    with monkeypatch.context() as patch:
        _before_commit(patch, slow, lambda: (reached.set(), release.wait(30)))

        def follow() -> Any:
            assert reached.wait(30)
            try:
                return second()
            finally:
                ended.set()

        def watch() -> None:
            assert reached.wait(30)
            try:
                while not _is_waited_for():
                    assert not ended.is_set(), "it did not wait"
                    time.sleep(0.002)
            finally:
                release.set()

        return in_threads([first, follow, watch])


def _before_commit(patch: pytest.MonkeyPatch, store: Store, do: Callable[[], Any]) -> None:
    """Do something before the next commit of a store."""
    from takeback.storage.postgres.backend import PostgresTx

    commit, done = PostgresTx.commit, list[bool]()

    def pause(tx: PostgresTx) -> None:
        if tx._begin is not None and tx._store._pool is store._backend._pool and not done:  # type: ignore[attr-defined]
            done.append(True)
            tx.one("SELECT 1")  # waits until the statements before it were run
            do()
        commit(tx)

    patch.setattr(PostgresTx, "commit", pause)


def _is_waited_for() -> bool:
    found: bool = _postgres.execute("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)")[0][0]
    return found


def _check_whole(store: Store, what: str) -> None:
    for session in store.iter_sessions():
        assert store.find_agent(session.agent_id) is not None, what
        for message in session.messages():
            assert all(each.read() == CONTENT for each in message.attachments), what


# ---------------------------------------------------------------------- locks in two orders


def test_names_and_parents_in_two_orders_do_not_wait_for_each_other(store: Store) -> None:
    """A name that is taken by the parent of another call, and the other way round: each took 1 s to be untangled."""
    one, two = store.create_session("one"), store.create_session("two")

    def make(name: str, parent: Session) -> None:
        for _ in range(10):
            with contextlib.suppress(Conflict):
                store.create_session(name, parent=parent)

    works = [partial(make, "one", two), partial(make, "two", one)]
    won(in_threads(works * 3))


def test_forks_and_their_origin_do_not_wait_for_each_other(store: Store, url: str, seed: int) -> None:
    """Taking back a fork touches both sessions, from the older to the younger one; so does nothing the other way."""
    origin = store.create_session("origin")
    origin.user("x")
    fork = origin.fork(as_session=True)

    def work(session: Session, rng: random.Random) -> None:
        for _ in range(10):
            with contextlib.suppress(Conflict, NotFound):
                rng.choice([session.undo, session.redo, partial(session.user, "y"), partial(session.rename, "t")])()

    with stores(url, 4) as others:
        handles = [other.get_session((origin, fork)[n % 2].id) for n, other in enumerate(others)]
        won(in_threads([partial(work, handle, random.Random(seed + n)) for n, handle in enumerate(handles)]))


def test_a_slow_write_holds_up_only_its_own_session(store: Store) -> None:
    """While one transaction holds a session, plain and other writes to the rest of the scope go on."""
    slow, other = store.create_session("slow"), store.create_session("other")
    other.user("x")
    held, release = threading.Event(), threading.Event()
    holder = threading.Thread(target=_hold, args=(store, slow.id, held, release))
    holder.start()
    assert held.wait(30)
    try:
        waiting = threading.Thread(target=slow.user, args=("behind",))
        waiting.start()
        assert other.user("y").seq == 2
        assert other.user("z", id="z").seq == 3
        other.rename("t")
        store.create_session("third", agent="new")
        assert texts(slow) == []
        assert waiting.is_alive()
    finally:
        release.set()
        holder.join(30)
    waiting.join(30)
    assert (slow.refresh().title, texts(slow)) == ("held", ["behind"])


def _hold(store: Store, session_id: str, held: threading.Event, release: threading.Event) -> None:
    """Rename a session in a transaction that stays open."""

    def op(tx: Any) -> None:
        moves.change(tx, store.scope, session_id, "rename", {"title": "held"}, now_ms=1)
        tx.one("SELECT 1")  # waits until the statements before it were run
        held.set()
        release.wait(30)

    store._write(op)


# ---------------------------------------------------------------------- running again


def test_a_transaction_that_runs_again_decides_again(store: Store, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a result answers is decided anew when the first try was rolled back and somebody else answered meanwhile."""
    session = store.create_session()
    calls = [{"id": f"c{number}", "name": "look", "arguments": {}} for number in (1, 2)]
    session.append({"role": "assistant", "content": "", "tool_calls": calls})
    answer = {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"r": 1}}}]}
    with takeback.open(url) as other:
        theirs = other.get_session(session.id)
        _fail_once(monkeypatch, store, lambda: theirs.append(answer))
        session.append(answer)
    assert [call.status for call in session.tool_calls()] == ["completed", "completed"]


def _fail_once(patch: pytest.MonkeyPatch, store: Store, between: Callable[[], Any]) -> None:
    """Let the next commit of a store fail as if others were in the way, and something happen before the next try."""
    import psycopg

    from takeback.storage.postgres.backend import PostgresTx

    commit, failed = PostgresTx.commit, list[bool]()

    def fail(tx: PostgresTx) -> None:
        if failed or tx._begin is None or tx._store._pool is not store._backend._pool:  # type: ignore[attr-defined]
            return commit(tx)
        failed.append(True)
        tx.give_up()
        between()
        raise psycopg.errors.SerializationFailure("somebody was in the way")

    patch.setattr(PostgresTx, "commit", fail)


# ---------------------------------------------------------------------- the feed


SCOPES = ("", "tenant")


# Whoever changes a session or an agent has it locked when its position is given out, so positions show the true order.
OUT_OF_ORDER = """SELECT * FROM (SELECT scope, session, branch, epoch, xid, pos, lag(pos) OVER (
PARTITION BY scope, session, CASE WHEN session = 0 THEN branch END ORDER BY epoch, xid, pos) AS before
FROM {}.feed) AS changes WHERE before > pos"""


@pytest.mark.slow
def test_a_follower_misses_and_repeats_nothing(
    store: Store, url: str, tmp_path: Path, seed: int, counts: Callable[[int, int], int]
) -> None:
    """Transactions of any length, some rolled back, in two scopes: what a reader sees piece by piece is the whole."""
    ended = threading.Event()
    views = [store.scoped(scope) for scope in SCOPES]
    followed = in_threads(
        [
            *(partial(_follow, view, ended) for view in views),
            partial(_end_after, ended, [partial(_change, url, number, seed, counts(20, 500)) for number in range(6)]),
        ]
    )[: len(SCOPES)]
    for view, seen in zip(views, won(followed), strict=True):
        whole = [(change.cursor, change.kind, change.session_id, change.last_seq) for change in view.events()]
        assert seen == whole
        assert len({cursor for cursor, *_ in whole}) == len(whole)
        assert len(whole) > 40
    assert rows(tmp_path, OUT_OF_ORDER) == []


def _end_after(ended: threading.Event, works: list[Callable[[], Any]]) -> None:
    try:
        won(in_threads(works))
    finally:
        ended.set()


def _follow(store: Store, ended: threading.Event) -> list[Any]:
    """Read the feed by its cursor, over and over."""
    seen, cursor = list[Any](), None
    while True:
        last = ended.is_set()
        if last:
            time.sleep(0.2)  # transactions that are none of ours may have begun before the last change
        for change in store.events(cursor):
            seen.append((change.cursor, change.kind, change.session_id, change.last_seq))
            cursor = change.cursor
        if last:
            return seen
        time.sleep(0.002)


def _change(url: str, number: int, seed: int, turns: int) -> None:
    rng = random.Random(f"{seed} {number}")
    with takeback.open(url) as store:
        views = [store.scoped(scope) for scope in SCOPES]
        sessions = [view.session(f"s{number % 3}", hold=False) for view in views]
        for turn in range(turns):
            at = rng.randrange(2)
            view, session = views[at], sessions[at]
            match rng.randrange(6):
                case 0 | 1:
                    session.user(f"{number} {turn}")
                case 2:
                    session.user(f"{number} {turn}", id=f"{number} {turn}")
                case 3:
                    session.state.set(str(number), turn)
                case 4:
                    view.create_agent(f"{number} {turn}")
                    view.get_agent("main").state.set(str(number), turn)
                case _:
                    _hold_open(view, session.id, rng.uniform(0, 0.05), fail=rng.random() < 0.4)


class _Regret(Exception):
    """A transaction is rolled back."""


def _hold_open(store: Store, session_id: str, seconds: float, *, fail: bool) -> None:
    """Change something in a transaction that stays open after it wrote to the feed, and may be rolled back."""

    def op(tx: Any) -> None:
        moves.change(tx, store.scope, session_id, "rename", {"title": new}, now_ms=1)
        tx.one("SELECT 1")
        time.sleep(seconds)
        if fail:
            raise _Regret

    new = f"{seconds} {fail}"
    with contextlib.suppress(_Regret):
        store._write(op)


def test_a_change_is_not_shown_before_those_that_may_come_before_it(store: Store, url: str) -> None:
    """A transaction that wrote to the feed and stays open holds back what was committed since, then all is in order."""
    one, two = store.create_session("one"), store.create_session("two")
    start = _events(store, None, 3)[-1].cursor
    held, release = threading.Event(), threading.Event()
    holder = threading.Thread(target=_hold, args=(store, one.id, held, release))
    holder.start()
    assert held.wait(30)
    two.user("later")
    early = [change.session_id for change in store.events(start)]
    release.set()
    holder.join(30)
    assert early == []
    assert [change.session_id for change in _events(store, start, 2)] == [one.id, two.id]


def _events(store: Store, after: str | None, count: int) -> list[Any]:
    """Read the feed until it has so many changes: a transaction of somebody else may hold the last ones back."""
    deadline = time.monotonic() + 120
    while len(found := list(store.events(after))) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_the_changes_of_one_session_are_in_their_order(store: Store, url: str, tmp_path: Path) -> None:
    """A transaction that began before another one and wrote to the session after it comes after it in the feed."""
    session = store.create_session()
    session.user("first")
    key = lock_key(f"scope:{_postgres.schema_of(tmp_path)}:")
    import psycopg

    with psycopg.connect(_postgres.server().dsn(_postgres.DATABASE)) as blocker, stores(url, 1) as (other,):
        blocker.execute("SELECT pg_advisory_xact_lock(%s)", (key,))
        waiting = threading.Thread(target=partial(other.get_session(session.id).user, "third", id="third"))
        waiting.start()
        _wait_for_locks(1)
        session.user("second")
        blocker.rollback()
        waiting.join(30)
    assert texts(session) == ["first", "second", "third"]
    found = [change.last_seq for change in _events(store, None, 5) if change.kind == "entries"]
    assert found == [1, 2, 3]


@pytest.mark.parametrize("what", ["agent", "new agent", "session", "new session"])
def test_a_change_of_an_older_transaction_is_behind_what_it_found(
    store: Store, tmp_path: Path, what: str, life: Callable[[], None]
) -> None:
    """A transaction with a low number that comes late: also to what one with a higher number has only just made."""
    agent, session = store.create_agent("a"), store.create_session("s", agent="a")
    life()
    began, go = threading.Event(), threading.Event()
    name = {"agent": agent.id, "session": session.id}.get(what, "")

    def late(tx: Any) -> None:
        tx.one("SELECT 1")
        began.set()
        assert go.wait(30)
        if what.endswith("agent"):
            agents.change_state(tx, "", name, put={"late": 1}, drop=(), expected_version=None, now_ms=1)
        else:
            moves.change(tx, "", name, "rename", {"title": "late"}, now_ms=1)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store._write, late)
        assert began.wait(30)
        match what:
            case "agent":
                agent.state.set("soon", 1)
            case "session":
                session.rename("soon")
            case "new agent":
                name = store.create_agent("b").id
            case _:
                name = store.create_session("t", agent="a").id
        go.set()
        waiting.result(30)
    sql = "SELECT xid, pos FROM {}.feed WHERE epoch = (SELECT max(epoch) FROM {}.feed) ORDER BY pos DESC LIMIT 2"
    (last, _), (first, _) = rows(tmp_path, sql)
    assert last == first, "the older one counts with the number of the change that it came behind"
    assert rows(tmp_path, OUT_OF_ORDER) == []


@pytest.fixture(params=["one life", "another life"])
def life(request: pytest.FixtureRequest, tmp_path: Path, url: str) -> Callable[[], None]:
    """Let the cluster begin another life, as behind a restored dump; numbers of the old one were far higher."""

    def begin() -> None:
        for table in ("feed", "session", "agent"):
            rows(tmp_path, f"UPDATE {{}}.{table} SET xid = xid + 1000000000")
        rows(tmp_path, "UPDATE {}.epoch SET cluster = 'another/1'")
        takeback.open(url).close()

    return begin if request.param == "another life" else lambda: None


def _wait_for_locks(count: int) -> None:
    """Wait until somebody waits for an advisory lock."""
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    deadline = time.monotonic() + 120
    while _postgres.execute(waiting)[0][0] < count and time.monotonic() < deadline:
        time.sleep(0.01)
