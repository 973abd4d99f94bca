"""R11: any flipped bit is found. No answer is wrong and none is shorter than it should be without an error.

A prepared store is damaged in one place: a bit of any of its files, a file cut off, two pages swapped. A child
then opens it and asks everything the API can tell, question by question. Each answer must be the right one or a
``takeback.Error``; and whenever the damage touched a stored row, ``verify`` or opening must have said so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

import takeback
from takeback.tables import schema
from takeback.testing.elsewhere import session_elsewhere

from ._harness import ChildDied, ChildFailed, compose, in_child

pytestmark = [pytest.mark.slow, pytest.mark.promise("R11"), pytest.mark.feature("F5")]

_PAGE = 4096
_FRAME = 24 + _PAGE
_FILES = ("", "-wal", "-lock", "-open", "-ballast")
_SCOPES = ("", "other")
_TABLES = tuple(schema.BY_NAME)
_WITH_ROWID = tuple(table.name for table in schema.TABLES if table.number or table.name == "chunk")


# ---------------------------------------------------------------------- the stores that are damaged


def _first_part(store: takeback.Store, place: Path) -> None:
    """Sessions, branches, operations, keys, a spilled message: some of everything."""
    talk = session_elsewhere(store, "talk", title="A talk", workspace="w")
    for call, size in enumerate((10, 500, 3000, 40, 900), 1):
        talk.user(compose("talk", call, [size])[0], id=f"user-{call}")
        talk.assistant("yes", model="m", usage={"input_tokens": call, "output_tokens": 2, "cost": 0.25}, raw=b"\0raw")
    talk.append(*({"role": "user", "content": text} for text in compose("batch", 1, [200] * 30)), idempotency_key="k")
    talk.fork(5, name="aside")
    talk.rewind(20)
    talk.user("another way")
    talk.switch("aside")
    talk.user("on the side")
    talk.switch("main")
    worker = store.create_agent("worker", name="W", config={"a": [1, 2]})
    worker.state.update({"n": 1, "b": b"bytes"})
    worker.state.set("n", 2)
    work = store.create_session("work", agent="worker", prompt="Do it", tags=["x", "y"], metadata={"m": 1})
    work.set_tasks(["one", "two", "three"])
    for index, status in enumerate(("completed", "failed")):
        work.update_task(index, status)
        work.state.set(f"k{index}", "v" * 50)
        work.note(f"why {index}", task=index)
        work.record_file(f"f{index}.py", "created")
        work.checkpoint(f"point {index}")
    for number in range(6):
        with work.tool("bash", {"n": number}, id=f"call-{number}") as run:
            run.result(f"result {number}")
    work.set_plan("the plan")
    work.append({"role": "assistant", "content": [{"type": "tool_use", "id": "open", "name": "t", "input": {}}]})
    work.user("see", attachments=[b"attached bytes"])
    work.fork(4, as_session=True, name="forked").user("elsewhere")
    large = store.create_session("large", agent="other agent")
    large.user(compose("large", 1, [120_000])[0])
    large.user("small")
    for number in range(12):
        store.create_session(f"one of many {number}", tags=["x", f"t{number % 3}"]).user(f"hello {number}")
    store.get_session("one of many 4").pin()
    store.get_session("one of many 5").archive()
    for number in range(4):
        helper = store.create_session(agent="worker", kind="subagent", parent=work, label=f"helper {number}")
        helper.user("from above")
    gone = store.create_session("gone")
    gone.user("to the trash")
    store.delete_session(gone.id)
    _under_way(store)
    _timeline(store, place)
    for number in range(3):
        store.checkpoint_agent("main", f"all {number}", description="of the agent")
        store.get_session("one of many 3").user(f"again {number}")
    store.checkpoint_agent("worker", type="automatic")
    other = store.scoped("other").create_session("elsewhere")
    other.append(*({"role": "user", "content": text} for text in compose("elsewhere", 1, [300] * 10)))


def _timeline(store: takeback.Store, place: Path) -> None:
    """Two sessions that change the files of one directory, and a rewind of these files."""
    place.mkdir()
    one, two = (store.create_session(f"files {number}", workspace=place) for number in (1, 2))
    for number in range(8):
        session = (one, two)[number % 2]
        with session, session.tool("write"):
            for name in range(number + 3):
                (place / f"file {name}").write_text(f"{number}")
    (place / "file 0").write_text("by hand")
    first = [*store.workspace(place).timeline(limit=100)][-1]
    store.workspace(place).preview_rewind(first, paths=["file 1"]).apply()


def _under_way(store: takeback.Store) -> None:
    """Leases, an answer that nobody finished, messages that wait and one that was received."""
    for number in range(3):
        with store.session(f"run {number}") as run:
            run.user("go")
            for text in compose(f"sent {number}", 1, [30, 300, 800]):
                run.send(text)
            run.receive(limit=1)
            stream = run.stream(model="m")
            for text in compose(f"stream {number}", 1, [20, 400, 900]):
                stream.write(text)
                stream.flush()
            store._keeper.forget(stream)  # closing the store would seal it


def _second_part(store: takeback.Store) -> None:
    """More of it, for the log."""
    talk = store.find_session("talk", workspace="w")
    assert talk is not None
    for call in range(1, 13):
        talk.user(compose("later", call, [100 * call])[0])
    talk.rewind(30)
    talk.undo()
    talk.rewind(25)
    talk.user("a third way", idempotency_key="once")
    store.create_session("late").append(*({"role": "user", "content": t} for t in compose("late", 1, [400] * 15)))
    store.scoped("other").create_session("late elsewhere").user("hello")


def _make_closed(path: Path) -> None:
    with takeback.open(path) as store:
        _first_part(store, path.with_name("work"))
        _second_part(store)


def _make_killed(path: Path) -> None:
    """Half of it in the file, half of it in the log of a process that was killed."""
    with takeback.open(path) as store:
        _first_part(store, path.with_name("work"))
    _second_part(takeback.open(path))
    os.kill(os.getpid(), signal.SIGKILL)


def _make_young(path: Path) -> None:
    """Everything in the log: the store was never closed."""
    store = takeback.open(path)
    _first_part(store, path.with_name("work"))
    _second_part(store)
    os.kill(os.getpid(), signal.SIGKILL)


def _make_recycled(path: Path) -> None:
    """A log that was folded into the file and begun again: frames of its earlier life lie behind the new ones."""
    store = takeback.open(path)
    _first_part(store, path.with_name("work"))
    other = apsw.Connection(os.fspath(path))
    other.pragma("schema_version")
    frames, folded = other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    assert frames == folded > 0
    other.close()
    _second_part(store)
    os.kill(os.getpid(), signal.SIGKILL)


_MAKERS = {"closed": _make_closed, "killed": _make_killed, "young": _make_young, "recycled": _make_recycled}


class Template(NamedTuple):
    """A healthy store as bytes, and what is true about it."""

    name: str
    files: dict[str, bytes]
    answers: dict[str, Any]
    rows: str
    ids: dict[str, list[str]]
    trees: dict[str, list[int]]


def _template(name: str, make: Callable[[Path], None], place: Path) -> Template:
    path = place / name / "a.db"
    try:
        in_child(make, path)
    except ChildDied:
        assert make is not _make_closed
    files = {suffix: _read(Path(f"{path}{suffix}")) for suffix in _FILES}
    ids = in_child(_known_ids, path)
    answers, problems, rows = in_child(_examine, path, ids)
    assert not problems
    assert not [question for question, (kind, _) in answers.items() if kind == "error"]
    trees = in_child(_trees, path, len(files[""]) // _PAGE)
    return Template(name, files, answers, rows, ids, trees)


def _known_ids(path: Path) -> dict[str, list[str]]:
    """Return the ids of all sessions, those in the trash too, by scope."""
    with takeback.open(path) as store:
        changes = {scope: list(store.scoped(scope).events()) for scope in _SCOPES}
        known = {scope: [each.session_id for each in found if each.session_id] for scope, found in changes.items()}
    return {scope: sorted(set(ids)) for scope, ids in known.items()}


def _trees(path: Path, pages: int) -> dict[str, list[int]]:
    """Return the pages of each table and index that lie in the file."""
    connection, found = apsw.Connection(os.fspath(path)), dict[str, list[int]]()
    for name, page in connection.execute("SELECT name, pageno FROM dbstat ORDER BY name, pageno"):
        if page <= pages:
            found.setdefault(name, []).append(page)
    connection.close()
    return found


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


# ---------------------------------------------------------------------- asking everything


def _questions(store: takeback.Store, ids: list[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Return every question the API answers about a scope, by name; sessions by the ids that are known."""
    scope = store.scope
    yield f"{scope} list", lambda: [_session(each) for each in _whole(store.list_sessions(limit=1000))]
    yield f"{scope} agents", lambda: [_agent(each) for each in store.list_agents()]
    for agent in ("main", "worker") if scope == "" else ("main",):
        yield f"{scope} checkpoints of {agent}", lambda a=agent: [_plain(each) for each in store.list_checkpoints(a)]
    yield f"{scope} operations", lambda: [_plain(each) for each in store.operations()]
    for name, wanted in _FILTERS.items():
        yield f"{scope} list by {name}", lambda w=wanted: [each.id for each in _whole(store.list_sessions(**w))]
    yield f"{scope} list below", lambda: [each.id for each in _whole(store.list_sessions(parent=_work(store)))]
    yield f"{scope} pages", lambda: [each.id for each in _all_pages(store)]
    yield f"{scope} events", lambda: [_plain(change) for change in store.events()]
    yield f"{scope} stats", lambda: _plain(store.stats())[:-1]
    for session_id in ids:
        yield from _session_questions(store, session_id)
    for name, agent, workspace in (("talk", "main", "w"), ("large", "other agent", None), ("late", "main", None)):
        yield f"{scope} find {name}", lambda n=name, a=agent, w=workspace: _found(store, n, a, w)


_FILTERS: dict[str, dict[str, Any]] = {
    "tag x": {"tag": "x"},
    "tag t1": {"tag": "t1"},
    "agent": {"agent": "worker"},
    "kind": {"kinds": "subagent"},
    "status": {"status": "active"},
    "label": {"label": "helper 2"},
    "workspace": {"workspace": "w"},
    "pinned": {"pinned": True},
    "archived": {"archived": True},
    "trash": {"trash": True},
    "created": {"order": "created"},
}


def _work(store: takeback.Store) -> takeback.Session | None:
    return store.find_session("work", agent="worker")


def _session_questions(store: takeback.Store, session_id: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    def get() -> takeback.Session:
        return store.get_session(session_id)

    yield f"{session_id} fields", lambda: _session(get())
    yield f"{session_id} timeline", lambda: _timeline_of(store, get().workspace)
    yield f"{session_id} messages", lambda: [_message(each) for each in get().iter_messages()]
    yield f"{session_id} last", lambda: [_message(each) for each in get().messages(limit=3)]
    yield f"{session_id} entries", lambda: [_plain(each) for each in get().entries()]
    yield f"{session_id} branches", lambda: [_plain(each) for each in get().branches()]
    yield f"{session_id} operations", lambda: [_plain(each) for each in get().operations()]
    yield f"{session_id} tasks", lambda: [_plain(each) for each in get().tasks()]
    yield f"{session_id} work", lambda: [repr(get().notes()), repr(get().files()), get().get_plan()]
    yield f"{session_id} state", lambda: [repr(get().state.items()), get().state.version()]
    yield f"{session_id} calls", lambda: [repr(_calls(get())), len(get().pending_calls())]
    yield f"{session_id} checkpoints", lambda: [_plain(each) for each in get().checkpoints()]
    yield f"{session_id} inbox", lambda: [_plain(each) for each in get().inbox()]
    yield f"{session_id} attached", lambda: [_attached(each) for each in get().messages(limit=3)]
    for at in (None, 0, 1, 7, 24):
        yield f"{session_id} stats {at}", lambda at=at: _stats(get(), at)
    yield f"{session_id} by id", lambda: _by_id(get())


def _timeline_of(store: takeback.Store, place: str | None) -> Any:
    return None if place is None else [_plain(scan) for scan in store.workspace(place).timeline(limit=100)]


def _stats(session: takeback.Session, at: int | None) -> Any:
    return _plain(session.stats(at)) if at is None or at <= session.head.seq else None


def _by_id(session: takeback.Session) -> Any:
    wanted = [f"user-{number}" for number in range(1, 6)] if session.name == "talk" else []
    return [_message(session.message(each)) for each in wanted]


def _whole(page: takeback.Page[takeback.Session]) -> takeback.Page[takeback.Session]:
    """Return a page that names no damaged session; one that does is an answer with an error in it."""
    if page.damaged:
        raise takeback.Corrupt(f"{len(page.damaged)} sessions are damaged")
    return page


def _agent(agent: takeback.Agent) -> Any:
    return [repr(agent.to_dict()), repr(agent.state.items()), repr(agent.state.at(1))]


def _calls(session: takeback.Session) -> Any:
    return [(call.id, call.name, call.arguments, call.status, call.result) for call in session.tool_calls()]


def _attached(message: takeback.Message) -> Any:
    return [attachment.read().hex() for attachment in message.attachments]


def _found(store: takeback.Store, name: str, agent: str, workspace: str | None) -> Any:
    session = store.find_session(name, agent=agent, workspace=workspace)
    return None if session is None else session.id


def _all_pages(store: takeback.Store) -> Iterator[takeback.Session]:
    cursor = None
    while True:
        page = store.list_sessions(limit=3, cursor=cursor)
        yield from _whole(page)
        cursor = page.cursor
        if cursor is None:
            return


def _session(session: takeback.Session) -> Any:
    place = [session.id, session.name, session.title, session.agent_id, session.kind, session.workspace]
    rest = [session.key, session.tags, session.prompt, session.metadata, session.task_count, session.completed_count]
    return [*place, *rest, list(session.head), session.revision, session.message_count, session.turn_count]


def _message(message: takeback.Message) -> Any:
    raw = None if message.raw is None else message.raw.hex()
    return [message.id, message.seq, message.turn, message.at_ms, message.role, message.text, raw]


def _plain(value: Any) -> Any:
    return [repr(getattr(value, name)) for name in value.__struct_fields__]


def _ask(question: Callable[[], Any]) -> tuple[str, Any]:
    """Return the answer's digest, or the error's name; anything but a ``takeback.Error`` is a failure."""
    try:
        return "answer", hashlib.sha256(json.dumps(question()).encode()).hexdigest()
    except takeback.Error as error:
        return "error", type(error).__name__


def _examine(path: Path, ids: dict[str, list[str]]) -> tuple[dict[str, Any], list[str], str]:
    """Open a store, ask everything, verify it; then read its rows without Takeback."""
    with takeback.open(path) as store:
        answers = {}
        for scope in _SCOPES:
            for name, question in _questions(store.scoped(scope), ids[scope]):
                answers[name] = _ask(question)
        try:
            problems = [str(problem) for problem in store.verify().problems]
        except takeback.Error as error:
            problems = [f"verify raised {error!r}"]
    return answers, problems, _rows(path)


def _rows(path: Path) -> str:
    """Return a digest of every row of every table, read by table scans that no index can mislead."""
    connection = apsw.Connection(os.fspath(path))
    digest = hashlib.sha256()
    try:
        for table in _TABLES:
            order = " NOT INDEXED" if table in _WITH_ROWID else ""
            for row in connection.execute(f"SELECT * FROM {table}{order}"):
                digest.update(repr(row).encode())
    except (apsw.Error, UnicodeDecodeError) as error:
        return f"unreadable: {error}"
    finally:
        connection.close()
    return digest.hexdigest()


# ---------------------------------------------------------------------- damaging


# The files as they are afterwards, and words for it; and how the n-th one is chosen: for which store, and what.
Damage = tuple[dict[str, bytes], str]
Choose = Callable[[int], tuple[int, Damage]]


def _flip(files: dict[str, bytes], suffix: str, place: int, bit: int) -> Damage:
    data = bytearray(files[suffix] or b"\0")
    data[place] ^= 1 << bit
    where = f"page {place // _PAGE + 1}" if suffix == "" else f"frame {(place - 32) // _FRAME + 1}"
    return {**files, suffix: bytes(data)}, f"bit {bit} of byte {place} of {suffix or 'the file'} ({where})"


def _random_flip(template: Template, rng: random.Random) -> Damage:
    main, log = (15, 0) if template.name == "closed" else (7, 8)
    suffix = rng.choices(_FILES, (main, log, 1, 0.5, 0.5))[0]
    length, bit = len(template.files[suffix]) or 1, rng.randrange(8)
    if suffix == "" and rng.random() < 0.7:
        return _flip(template.files, "", _in_some_tree(template, rng), bit)
    if suffix == "-wal" and rng.random() < 0.95:
        length = _used(template.files[suffix])
    return _flip(template.files, suffix, rng.randrange(length), bit)


def _in_some_tree(template: Template, rng: random.Random) -> int:
    """Choose a byte in use, each table and index with the same chance, however small it is."""
    return _in_tree(template, rng.choice(sorted(template.trees)), rng)


def _in_tree(template: Template, tree: str, rng: random.Random) -> int:
    page = rng.choice(template.trees[tree])
    start, data = (page - 1) * _PAGE, template.files[""]
    used = [at for at in range(start, start + _PAGE) if data[at]] or [start]
    return min(start + _PAGE - 1, rng.choice(used) + rng.choice((0, 0, 1)))


def _used(log: bytes) -> int:
    """Return the length of a log without the zeros behind its last frame."""
    return len(log.rstrip(b"\0"))


def _cut_off(template: Template, rng: random.Random) -> Damage:
    suffix = rng.choice(("", "-wal")) if template.files["-wal"] else ""
    data = template.files[suffix]
    end = _used(data) if suffix else len(data)
    size = rng.choice((0, rng.randrange(200), rng.randrange(end), rng.randrange(end) // _PAGE * _PAGE, end - 1))
    return {**template.files, suffix: data[:size]}, f"{suffix or 'the file'} cut off at {size} of {len(data)}"


def _swap(template: Template, rng: random.Random) -> Damage:
    pages = range(1, len(template.files[""]) // _PAGE + 1)
    if len(pages) < 2:
        return _random_flip(template, rng)
    one, two = rng.sample(pages, 2)
    return _swapped(template.files, one, two), f"pages {one} and {two} swapped"


def _swapped(files: dict[str, bytes], one: int, two: int) -> dict[str, bytes]:
    data = files[""]
    pages = [data[at : at + _PAGE] for at in range(0, len(data), _PAGE)]
    pages[one - 1], pages[two - 1] = pages[two - 1], pages[one - 1]
    return {**files, "": b"".join(pages)}


def _damage(templates: list[Template], seed: int, number: int) -> tuple[int, Damage]:
    """Choose a store, by its number, and what happens to it: the same for the same seed and number."""
    rng, which = random.Random(f"damage {seed} {number}"), number % len(templates)
    kind = rng.choices((_random_flip, _cut_off, _swap), (80, 10, 10))[0]
    return which, kind(templates[which], rng)


# ---------------------------------------------------------------------- judging


_PATIENCE = 10


class _Endless(BaseException):
    """Raised in a call that does not come to an end."""


@contextlib.contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def give_up(number: int, frame: object) -> None:
        raise _Endless

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def _where(error: BaseException) -> str:
    """Name the functions that an exception came through, this file's first."""
    return " > ".join(frame.name for frame in traceback.extract_tb(error.__traceback__)[2:7])


def _put(place: Path, files: dict[str, bytes]) -> Path:
    """Lay out the files of a store, and none but these; give its path."""
    path = place / "a.db"
    for suffix in (*_FILES, "-shm", "-journal"):
        target = Path(f"{path}{suffix}")
        if files.get(suffix) or suffix == "":
            target.write_bytes(files[suffix])
        else:
            target.unlink(missing_ok=True)
    return path


def _judge(template: Template, files: dict[str, bytes], place: Path) -> tuple[str, str]:
    """Open and ask a damaged store; give what became of it, and what is wrong with that."""
    path = _put(place, files)
    try:
        with _time_limit(_PATIENCE):
            answers, problems, rows = _examine(path, template.ids)
    except takeback.Error as error:
        return f"{type(error).__name__} at opening", ""
    except _Endless as error:
        return "ENDLESS", f"still busy after {_PATIENCE} s in {_where(error)}"
    except Exception as error:
        return "RAW ERROR", f"a raw {error!r:.300}"
    wrong = [name for name, (kind, value) in answers.items() if kind == "answer" and value != template.answers[name][1]]
    if wrong:
        return "WRONG ANSWERS", f"wrong answers to {_named(wrong)}; verify: {problems[:2]}"
    errors = {value for kind, value in answers.values() if kind == "error"}
    if not problems and errors:
        return "VERIFY BLIND", f"answers raised {sorted(errors)}, but verify finds nothing"
    if not problems and rows != template.rows:
        return "VERIFY BLIND", f"stored rows changed, but verify finds nothing ({rows[:80]})"
    if errors:
        return f"{' and '.join(sorted(errors))} when asked", ""
    return ("found by verify alone" if problems else "harmless"), ""


def _named(names: list[str]) -> str:
    """Shorten the questions: the kind is what matters."""
    return ", ".join(sorted({name.split(" ", 1)[1] for name in names}))


def _judge_some(
    templates: list[Template], place: Path, numbers: range, damage: Choose, progress: Path
) -> list[tuple[str, str]]:
    """Judge several damages in one child; note each before it begins, in case the process dies of it."""
    (place / "trial").mkdir(exist_ok=True)
    found = []
    for number in numbers:
        which, (files, what) = damage(number)
        name = f"{number}, {templates[which].name}, {what}"
        progress.write_text(name)
        outcome, wrong = _judge(templates[which], files, place / "trial")
        if wrong and len(list(place.glob("kept *"))) < 20:
            shutil.copytree(place / "trial", place / f"kept {number}", dirs_exist_ok=True)
        found.append((outcome, wrong and f"trial {name}: {wrong}"))
    return found


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> list[Template]:
    """A store that was closed, and three that were killed with commits in the log."""
    place = tmp_path_factory.mktemp("templates")
    return [_template(name, make, place) for name, make in _MAKERS.items()]


def _try_all(
    templates: list[Template], place: Path, seed: int, trials: int, damage: Choose, tally: Callable[..., int]
) -> None:
    """Judge that many damages, some per child; fail with a summary of what was not found."""
    outcomes, wrong = Counter[str](), list[str]()
    for first in range(0, trials, 25):
        numbers = range(first, min(first + 25, trials))
        progress = place / "progress"
        try:
            found = in_child(_judge_some, templates, place, numbers, damage, progress, timeout=290)
        except (ChildDied, ChildFailed) as error:
            raise AssertionError(f"seed {seed}, trial {progress.read_text()}: {error}") from error
        outcomes.update(outcome for outcome, _ in found)
        wrong += [text for _, text in found if text]
    tally("R11 damages", trials)
    for outcome, number in outcomes.items():
        tally(f"R11 {outcome}", number)
    if wrong:
        kinds = "\n".join(f"{number} times: {what}" for what, number in Counter(map(_kind, wrong)).most_common())
        (place / "wrong").write_text("\n".join(wrong))
        few = "\n".join([*wrong[:12], f"all of them: {place / 'wrong'}"])
        pytest.fail(f"seed {seed}: {len(wrong)} of {trials} damages were not found\n{kinds}\n\n{few}")


def _kind(wrong: str) -> str:
    return wrong.split(": ", 1)[1].split(";")[0][:120]


def test_no_damage_gives_a_wrong_or_shorter_answer(
    tmp_path: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int], templates: list[Template]
) -> None:
    """Random bits of every file, files cut off, pages swapped; of stores that were closed and that were killed."""
    trials = counts(300, 20_000)
    _try_all(templates, tmp_path, seed, trials, lambda number: _damage(templates, seed, number), tally)


_INDEXES = [index.name for table in schema.TABLES for index in table.indexes if index.engine in ("", "sqlite")]
_TREES = [*_TABLES, *_INDEXES, "sqlite_autoindex_chunk_1", "sqlite_schema"]


@pytest.mark.parametrize("tree", _TREES)
def test_a_flipped_bit_of_a_table_or_index_misleads_nobody(
    tmp_path: Path,
    seed: int,
    counts: Callable[[int, int], int],
    tally: Callable[..., int],
    templates: list[Template],
    tree: str,
) -> None:
    """Each table and index alone, so that the small ones are hit as well."""
    closed = templates[0]

    def damage(number: int) -> tuple[int, Damage]:
        rng = random.Random(f"{tree} {seed} {number}")
        return 0, _flip(closed.files, "", _in_tree(closed, tree, rng), rng.randrange(8))

    _try_all(templates, tmp_path, seed, counts(5, 500), damage, tally)


def test_every_table_and_index_is_tried(templates: list[Template]) -> None:
    assert set(templates[0].trees) == set(_TREES)


# ---------------------------------------------------------------------- losses as a whole


def _refused(place: Path, files: dict[str, bytes]) -> str:
    """Put a store in place, try to open it, and say how that was refused."""
    _put(place, files)
    try:
        with takeback.open(place / "a.db") as store:
            return f"opened with {len(store.list_sessions())} sessions"
    except takeback.Error as error:
        return error.code


@pytest.mark.parametrize("name", _MAKERS)
def test_a_store_whose_file_lost_all_its_bytes_is_not_taken_for_a_new_one(
    tmp_path: Path, templates: list[Template], name: str
) -> None:
    template = next(each for each in templates if each.name == name)
    assert in_child(_refused, tmp_path, {**template.files, "": b""}) == "corrupt"
    assert _read(tmp_path / "a.db-wal") == template.files["-wal"], "the log was thrown away"


@pytest.mark.parametrize("length", [0, 31, 32, 100, 4000])
def test_a_young_store_whose_log_lost_all_its_commits_is_not_taken_for_a_new_one(
    tmp_path: Path, templates: list[Template], length: int
) -> None:
    """Before the first checkpoint everything is in the log, the name of the store too."""
    young = next(each for each in templates if each.name == "young")
    assert in_child(_refused, tmp_path, {**young.files, "-wal": young.files["-wal"][:length]}) == "corrupt"


def test_the_log_of_a_file_that_is_gone_is_not_thrown_away(tmp_path: Path, templates: list[Template]) -> None:
    """SQLite deletes a log whose database does not exist: acknowledged commits may be in it."""

    def work(files: dict[str, bytes]) -> str:
        _put(tmp_path, files)
        (tmp_path / "a.db").unlink()
        try:
            takeback.open(tmp_path / "a.db").close()
        except takeback.Error as error:
            return error.code
        return "opened"

    killed = next(each for each in templates if each.name == "killed")
    in_child(work, killed.files)
    assert _read(tmp_path / "a.db-wal") == killed.files["-wal"], "the log was thrown away"


@pytest.mark.parametrize("table", ["session", "branch", "operation", "blob", "feed", "chunk"])
def test_verify_ends_when_a_page_has_changed_places_with_one_of_entries(
    tmp_path: Path, templates: list[Template], table: str
) -> None:
    """Keys that do not grow must not send it round and round."""

    def work(files: dict[str, bytes]) -> str:
        _put(tmp_path, files)
        try:
            with _time_limit(3), takeback.open(tmp_path / "a.db") as store:
                return "problems" if store.verify() else "blind"
        except takeback.Error:
            return "problems"
        except _Endless as error:
            return f"endless in {_where(error)}"

    closed = templates[0]
    leaves = [closed.trees["entry"][0], *closed.trees["entry"][-5:-2]]
    found = [in_child(work, _swapped(closed.files, closed.trees[table][0], leaf)) for leaf in leaves]
    assert found == ["problems"] * len(leaves)


def test_paging_through_a_listing_ends_whatever_the_index_says(tmp_path: Path, templates: list[Template]) -> None:
    """A cursor that does not come closer to the end must be an error."""

    def work(places: list[tuple[int, int]]) -> list[str]:
        found = []
        for place, bit in places:
            _put(tmp_path, _flip(closed.files, "", place, bit)[0])
            try:
                with _time_limit(3), takeback.open(tmp_path / "a.db") as store:
                    list(_all_pages(store))
            except takeback.Error:
                continue
            except _Endless:
                found.append(f"bit {bit} of byte {place}")
        return found

    closed = templates[0]
    start = (closed.trees["session_rank"][0] - 1) * _PAGE
    cells = [start + at for at in range(8, 8 + 2 * 20)]
    assert in_child(work, [(place, bit) for place in cells[1::2] for bit in (3, 4, 5, 6)]) == []


def test_a_damaged_turn_count_is_not_believed(tmp_path: Path, templates: list[Template]) -> None:
    """Neither told by stats nor taken over by a rewind, which would give it a valid check."""

    def work(files: dict[str, bytes], session_id: str) -> list[str]:
        _put(tmp_path, files)
        connection = apsw.Connection(os.fspath(tmp_path / "a.db"))
        connection.execute("UPDATE entry SET turns = turns + 64 WHERE key & 0xffffffff = 5")
        connection.close()
        with takeback.open(tmp_path / "a.db") as store:
            session = store.get_session(session_id)
            return [_ask(lambda: session.stats(5).turns)[0], _ask(lambda: session.rewind(5).kind)[0]]

    closed = templates[0]
    talk = next(each for each in closed.ids[""] if f"{each} by id" in closed.answers and _is_talk(closed, each))
    assert in_child(work, closed.files, talk) == ["error", "error"]


def _is_talk(template: Template, session_id: str) -> bool:
    """The talk is the only session with messages that have ids of their own."""
    nothing = hashlib.sha256(b"[]").hexdigest()
    return bool(template.answers[f"{session_id} by id"][1] != nothing)
