"""What only reads opens a store with half of the library: that must not show in what comes out."""

import inspect
import json
import os
import random
from typing import Any

import apsw
import click
import pytest
from _world import HOUR, World
from hypothesis import given, settings
from hypothesis import strategies as st

import takeback
from takeback.cli import app, outcome
from takeback.cli.frame import Frame
from takeback.cli.settings import Settings
from takeback.shell import documents
from takeback.storage.connection import SqliteTx

pytestmark = pytest.mark.feature("F10")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.text(st.characters()) | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(_JSON)
@settings(max_examples=600, deadline=None)
def test_a_value_is_written_as_json_writes_it(value: Any) -> None:
    assert documents.compact(value) == json.dumps(value, ensure_ascii=False, default=repr)


# ---------------------------------------------------------------------- stores

LOOKS = [
    ["ls"],
    ["ls", "-a"],
    ["ls", "-a", "--archived", "--json"],
    ["ls", "-a", "--jsonl"],
    ["ls", "-a", "-q"],
    ["ls", "-a", "--fields", "id,branch,branches,tokens,holder,status,stopped_at"],
    ["ls", "-a", "--trash"],
    ["ls", "-a", "--pinned", "--color", "always"],
    ["ls", "-a", "--status", "interrupted"],
    ["ls", "-a", "--status", "active", "--status", "completed"],
    ["ls", "-a", "--kind", "subagent"],
    ["ls", "--agent", "nobody"],
    ["ls", "-a", "--tag", "none", "--since", "1m"],
    ["ls", "-a", "--limit", "2"],
    ["-C", "/", "ls"],
    ["show"],
    ["show", "@-1", "--utc"],
    ["show", "oauth"],
    ["show", "oauth", "--json"],
    ["show", "oauth", "--md"],
    ["show", "oauth:2"],
    ["show", "oauth", "--turns", "2-"],
    ["show", "oauth", "--turns", "7"],
    ["show", "fix-retry", "--tools", "full"],
    ["show", "fix-retry:fixed", "--tools", "none"],
    ["show", "fix-retry/try", "--jsonl"],
    ["show", "gone"],
    ["show", "nosuch"],
    ["show", "1"],
    ["show", "given", "-q"],
]


@pytest.fixture
def worn(work: World) -> World:
    """A store with sessions in every state that a listing can show, but for one that runs."""
    with work.open() as store:
        retry = store.get_session("fix-retry")
        retry.fork(2, name="try")
        store.get_session("refunds").pin()
        store.create_session("old", agent="coder", workspace=work.project).archive()
        gone = store.create_session("gone", workspace=work.project)
        gone.user("Forget me")
        store.delete_session(gone)
        store.get_session("oauth").fork(as_session=True, name="oauth again")
        retry.spawn("look at the log", label="reader").session.complete("nothing there")
        store.create_session("tagged", workspace=work.project, tags=["ci", "\x1b[2J"]).complete()
        said = {"role": "assistant", "content": [{"type": "text", "text": "as Claude says it"}]}
        store.create_session("given", workspace=work.project).append({"role": "user", "content": "Go"}, said)
        work.clock.ms += HOUR
        cut = store.session("cut", workspace=work.project)
        cut.user("Begin")
        with pytest.raises(KeyboardInterrupt), cut:
            raise KeyboardInterrupt
    return work


def _read(arguments: list[str]) -> tuple[click.Command, dict[str, Any], Settings]:
    """Read a command line: the verb, what it is given, and the flags."""
    program, flags = app.make(), Settings()
    outer = program.make_context("takeback", [*arguments], obj=flags)
    name, verb, rest = program.resolve_command(outer, [*outer._protected_args, *outer.args])
    assert verb is not None
    return verb, verb.make_context(name, rest, parent=outer).params, flags


def _ways(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> list[tuple[int, str, str]]:
    """Run a command line as the program does, then on the part of the library that reads, and on all of it."""
    verb, values, flags = _read(arguments)
    function: Any = inspect.unwrap(verb.callback or print)

    def step(*, reads: bool) -> object:
        with Frame(flags, reads=reads) as frame:
            return function(frame, **values)

    found = list[tuple[int, str, str]]()
    for way in (
        lambda: app.run(arguments),
        lambda: outcome.run(lambda: step(reads=True), flags),
        lambda: outcome.run(lambda: step(reads=False), flags),
    ):
        capsys.readouterr()
        code = way()
        found.append((code, *capsys.readouterr()))
    return found


def _alike(capsys: pytest.CaptureFixture[str]) -> list[tuple[int, str, str]]:
    answers = []
    for arguments in LOOKS:
        first, *others = _ways(capsys, arguments)
        assert others == [first] * 2, arguments
        answers.append(first)
    return answers


def test_a_look_gives_the_same_bytes_on_either_half_of_the_library(
    worn: World, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = _alike(capsys)
    assert {code for code, _, _ in answers} == {0, 4}
    listed = answers[LOOKS.index(["ls", "-a"])][1]
    assert all(word in listed for word in ("interrupted at turn 1", "◆", "main(2)", "completed"))
    assert "in the trash: takeback restore" in answers[LOOKS.index(["ls", "-a", "--trash"])][1]
    assert "as Claude says it" in worn.ok("show", "given").out


def test_also_while_a_session_runs_and_an_answer_is_being_written(
    worn: World, capsys: pytest.CaptureFixture[str]
) -> None:
    with worn.open() as store, store.session("oauth", agent="coder", workspace=worn.project) as s:
        stream = s.stream()
        stream.write("half an ans")
        stream.flush()
        answers = _alike(capsys)
        assert "half an ans" in answers[LOOKS.index(["show", "oauth"])][1]
        assert "●" in answers[LOOKS.index(["ls"])][1]
        stream.finish()


def test_also_where_records_are_damaged(worn: World, capsys: pytest.CaptureFixture[str]) -> None:
    with worn.open() as store:
        message = store.get_session("oauth").messages()[2]
    other = apsw.Connection(str(worn.url))
    other.execute("UPDATE session SET title = 'another' WHERE name = 'tagged'")
    other.execute("UPDATE entry SET body = CAST(body || ' ' AS BLOB) WHERE key & 4294967295 = ?", (message.seq,))
    other.close()
    answers = _alike(capsys)
    assert "is damaged and was left out" in answers[LOOKS.index(["ls", "-a"])][2]
    assert answers[LOOKS.index(["show", "oauth"])][0] == 7


def test_also_in_an_empty_store_and_without_one(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no store at" in _alike(capsys)[0][2]
    world.open().close()
    assert "Start one" in _alike(capsys)[0][2]


def test_a_look_writes_nothing_and_leaves_no_lock(worn: World) -> None:
    before = worn.url.read_bytes()
    worn.ok("ls", "-a")
    worn.ok("show", "oauth")
    assert worn.url.read_bytes() == before
    with worn.open() as store:
        assert store.find_session("oauth") is not None


def test_below_a_directory_whose_name_is_no_text(work: World) -> None:
    os.mkdir(os.fsencode(work.project) + b"/\xff")
    below = os.path.join(work.project, "\udcff")
    assert work.ok("-C", below, "ls").lines == work.ok("ls").lines
    assert work.ok("-C", below, "show", "oauth").out == work.ok("show", "oauth").out


# ---------------------------------------------------------------------- reads


def test_a_page_costs_the_same_reads_however_long_it_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with world.open() as store:
        for number in range(60):
            s = store.create_session(f"n{number}", workspace=world.project)
            s.user("Begin")
    reads, real = list[str](), SqliteTx.all

    def counted(tx: SqliteTx, sql: str, args: Any = ()) -> list[Any]:
        reads.append(sql)
        return real(tx, sql, args)

    monkeypatch.setattr(SqliteTx, "all", counted)
    counts = []
    for way in ([], ["--json"]):
        for limit in ("5", "50"):
            reads.clear()
            world.ok("ls", "--limit", limit, *way)
            counts.append(len(reads))
    assert counts[0] == counts[1]
    assert counts[2] == counts[3]
    opening = 14  # the schema, the mark, an integrity check for each table
    assert max(counts) <= opening + 10


def test_short_ids_are_enough_and_no_longer_than_they_must_be(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    with world.open() as store:
        made = []
        for _ in range(120):
            world.clock.ms += rng.choice([0, 0, 1, 30, 500, 5000])
            made.append(store.create_session(workspace=world.project).id)
        named = store.create_session(made[7][:7], workspace=world.project)  # called like the beginning of another's id
        shorts = [line.split()[0] for line in world.ok("ls", "--limit", "500").out.splitlines()[1:]]
        everything = [each.id for each in store.list_sessions(limit=500)]
        assert len(shorts) == len(everything) == 121
        for short, whole in zip(shorts, everything, strict=True):
            assert whole.startswith(short)
            assert store.resolve(short).session.id == whole
            if len(short) > 7:
                shorter = short[:-1]
                assert shorter == named.name or sum(each.startswith(shorter) for each in everything) > 1


def test_a_store_that_is_read_by_threads_ends_in_order(worn: World) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from takeback.client.open_to_read import open_for_reading

    store = open_for_reading(str(worn.url))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: len(store.list_sessions(archived=None)), range(64)))
    assert set(found) == {found[0]}
    store.close()
    store.close()
    with pytest.raises(takeback.Closed):
        store.list_sessions()


def test_a_terminals_width_is_what_the_environment_says_then_what_the_terminal_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from takeback.cli.output import _terminal_size

    monkeypatch.setenv("COLUMNS", "97")
    monkeypatch.setenv("LINES", "none")
    assert _terminal_size() == (97, 24)  # what is captured here is no terminal
    monkeypatch.delenv("COLUMNS")
    assert _terminal_size() == (80, 24)
