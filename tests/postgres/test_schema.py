"""The store in a database: where it is, who may make it, who may use it, and that its rows are the same as anywhere."""

from __future__ import annotations

import contextlib
import random
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import _racers
import msgspec
import pytest
from _racers import COUNT, Racers, in_threads, won
from psycopg.pq import TransactionStatus

import _postgres
import takeback
from takeback import Conflict, Invalid, NotFound, SchemaTooNew, Store, Unsupported, ids
from takeback.model.entry import Numbers
from takeback.ops import chain, entries
from takeback.storage.postgres import append
from takeback.storage.postgres import schema as schemas
from takeback.storage.postgres.address import Address
from takeback.storage.postgres.backend import PostgresTx
from takeback.tables import schema as tables
from takeback.tables import search
from takeback.tables.branches import BRANCH
from takeback.tables.entries import ENTRY
from takeback.tables.history import FEED, OPERATION
from takeback.tables.sessions import SESSION
from takeback.tables.store import MIGRATION, MigrationRow
from takeback.tables.table import row_check
from takeback.testing.clock import ManualClock
from takeback.testing.elsewhere import session_elsewhere

pytestmark = pytest.mark.feature("C6", "E6")

RELATIONS = """SELECT relkind::text || ' ' || relname FROM pg_class WHERE relnamespace = to_regnamespace(%s)
UNION ALL SELECT 'f ' || oid::regprocedure::text FROM pg_proc WHERE pronamespace = to_regnamespace(%s) ORDER BY 1"""


def relations(schema: str) -> list[str]:
    """Return what a schema holds."""
    name = f'"{schema}"'
    return [row[0] for row in _postgres.execute(RELATIONS, name, name)]


def dsn(**options: Any) -> str:
    found: str = _postgres.server().dsn(_postgres.DATABASE, _postgres.OWNER, **options)
    return found


def as_owner(schema: str, *statements: str) -> None:
    """Run statements as the owner in a schema of its own."""
    _postgres.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}" AUTHORIZATION {_postgres.OWNER}')
    script = [f"SET ROLE {_postgres.OWNER}", f'SET search_path = "{schema}"', *statements]
    _postgres.execute("; ".join(script))


# ---------------------------------------------------------------------- where it is


@pytest.mark.parametrize("name", ["Mixed_Case", "_", "s" + "x" * 62, "select", "a1"])
def test_a_schema_may_have_any_plain_name(name: str) -> None:
    before = relations("public")
    with takeback.open(dsn(schema=name)) as store:
        session = store.session("x", hold=False)
        assert [session.user("plain").seq, session.user("id", id="m").seq] == [1, 2]
        change = next(iter(store.follow()))
        assert change.agent_id == "main"
        assert not store.verify()
    assert "r entry" in relations(name)
    assert relations("public") == before
    _postgres.execute(f'DROP SCHEMA "{name}" CASCADE')


def test_stores_of_one_database_do_not_see_each_other(tmp_path: Path) -> None:
    one, two = (_postgres.url(tmp_path / name) for name in ("one", "two"))
    with takeback.open(one) as first, takeback.open(two) as second:
        session = first.create_session("x", agent="a", idempotency_key="k")
        session.user("y", idempotency_key="k")
        absent = [second.find_session("x"), second.find_session(session.id), second.find_agent("a")]
        assert absent == [None] * 3
        assert list(second.events()) == []
        assert second.create_session("x", agent="a", idempotency_key="k").id != session.id
        assert second.get_session("x").messages() == []
        assert (first.stats().entries, second.stats().entries) == (1, 0)
        assert first.stats().total_bytes > second.stats().total_bytes > 0


@pytest.mark.parametrize(
    "options",
    [
        *("schema=a-b", "schema=", "schema=" + "x" * 64, "schema=a%22b", "schema=1a", "schema=a.b", "schema=%C3%A4"),
        *("pool_size=0", "pool_size=x", "pool_size=-1", "pool_size=", "pool_size=1e400"),
        *("call_timeout=0", "call_timeout=-1", "call_timeout=nan", "call_timeout=inf", "call_timeout=1s"),
        *("connect_timeout=abc", "bogus=1", "host", "schema=a#b"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: str) -> None:
    with pytest.raises(Invalid):
        takeback.open(f"{dsn()}?{options}")


@pytest.mark.parametrize("options", ["sslmode=bogus", "port=99999", "keepalives_idle=abc", "options=-c%20nosuch=1"])
def test_an_option_that_libpq_refuses_is_not_tried_again(options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tries, connect = list[float](), Address.connect
    monkeypatch.setattr(Address, "connect", lambda self, seconds: (tries.append(seconds), connect(self, seconds))[1])
    with pytest.raises(takeback.Error):
        takeback.open(f"{dsn()}?{options}&call_timeout=60")
    assert len(tries) <= 1


def test_a_url_means_what_libpq_says(tmp_path: Path) -> None:
    """Unix sockets, spaces in options, an at sign in a password, and an encoding that is not ours to choose."""
    server, schema = _postgres.server(), _postgres.schema_of(tmp_path)
    place = f"{_postgres.OWNER}:p@ss+w%20rd@{server.host}:{server.port}/{_postgres.DATABASE}"
    urls = [
        f"postgresql://{place}?schema={schema}&options=-c%20statement_timeout%3D54321&client_encoding=LATIN1",
        f"postgres+psycopg://{place}?schema={schema}&options=-c%20statement_timeout%3D54321",
    ]
    if server.controllable:
        socket = server.socket_dsn(_postgres.DATABASE, _postgres.OWNER, schema=schema)
        urls.append(f"{socket}&options=-c%20statement_timeout%3D54321")
    for url in urls:
        with takeback.open(url) as store:
            assert store.session("日本語 ü", hold=False).user("日本語").text == "日本語"
            with store._backend._pool.taken(time.monotonic() + 10) as connection:  # type: ignore[attr-defined]
                assert connection.execute("SHOW statement_timeout").fetchone() == ("54321ms",)
            assert [each.name for each in store.list_sessions()] == ["日本語 ü"]


def test_a_server_that_is_not_there_is_said_soon(tmp_path: Path) -> None:
    from takeback.testing.proxy import free_port

    with pytest.raises(takeback.BackendError, match="cannot be reached"):
        takeback.open(f"postgresql://u@127.0.0.1:{free_port()}/db?connect_timeout=2&call_timeout=86400")


@pytest.mark.parametrize("url", ["postgresql://u:p@[::1/db", "postgres://["])
def test_a_url_that_is_none_is_said_to_be_none(url: str) -> None:
    for call in (takeback.open, takeback.migrate):
        with pytest.raises(Invalid, match="cannot be parsed"):
            call(url)


def test_a_file_may_be_called_like_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with takeback.open("postgresql") as store:
        assert store.capabilities.name == "sqlite"


# ---------------------------------------------------------------------- secrets


SECRET = "hunter2secret"


def _secret_urls() -> list[str]:
    server = _postgres.server()
    host = f"{server.host}:{server.port}"
    return [
        f"postgresql://u:{SECRET}@127.0.0.1:1/db?call_timeout=0.5",
        f"postgresql://u:{SECRET}@{host}/nosuch",
        f"postgresql://{host}/nosuch?user=nosuch&password={SECRET}",
        f"postgresql://u:{SECRET}@{host}/db?schema=a-b",
        f"postgresql://u:{SECRET}@{host}/db?bogus=1",
        f"postgresql://u:a@{SECRET}@{host}/db",
        f"postgresql://u:%ZZ{SECRET}@{host}/db",
        f"postgresql://u:?{SECRET}@{host}/db",
        f"postgresql://u:#{SECRET}@{host}/db",
        f"postgresql://u:{SECRET}@{host}/db?sslmode=bogus&sslpassword={SECRET}",
        f"postgresql://u:{SECRET}@{host}x/db",
    ]


@pytest.mark.parametrize("number", range(11))
def test_no_error_shows_a_password(number: int) -> None:
    with pytest.raises(takeback.Error) as told:
        takeback.open(_secret_urls()[number])
    shown = "".join(traceback.format_exception(told.value))
    shown = "\n".join(line for line in shown.splitlines() if "takeback.open(" not in line)
    assert SECRET not in shown


def test_no_store_shows_its_password(tmp_path: Path) -> None:
    server = _postgres.server()
    place = f"{server.host}:{server.port}/{_postgres.DATABASE}?schema={_postgres.schema_of(tmp_path)}"
    for url in (
        f"postgresql://{_postgres.OWNER}:{SECRET}@{place}",
        f"postgresql://{place}&user={_postgres.OWNER}&password={SECRET}",
    ):
        with takeback.open(url) as store:
            session, agent = store.session("x", hold=False), store.get_agent("main")
            shown = [repr(store), str(store), store.url, store._repr_html_(), repr(store.capabilities), repr(session)]
            shown += [repr(agent), repr(store.scoped("y")), repr(store._backend), str(store.verify())]
            assert SECRET not in "".join(shown)


def test_no_store_shows_the_password_of_its_key(tmp_path: Path) -> None:
    with takeback.open(f"{_postgres.url(tmp_path)}&sslpassword={SECRET}") as store:
        assert SECRET not in repr(store)


# ---------------------------------------------------------------------- who makes it, who uses it


def test_a_run_time_role_needs_no_right_to_make_anything(tmp_path: Path) -> None:
    import psycopg

    schema = _postgres.schema_of(tmp_path)
    version = takeback.migrate(_postgres.url(tmp_path), grant_to=_postgres.APP)
    assert version >= 1
    app = _postgres.url(tmp_path, user=_postgres.APP)
    made = relations(schema)
    with takeback.open(app) as store:
        session = store.session("x", agent="a", hold=False)
        session.user("y", attachments=[b"z" * 1000])
        session.checkpoint("cp")
        session.rewind(0)
        store.purge_session(session)
        assert not store.verify()
    assert takeback.migrate(app) == version  # there is nothing to do
    assert relations(schema) == made
    with psycopg.connect(_postgres.server().dsn(_postgres.DATABASE, _postgres.APP), autocommit=True) as connection:
        for sql in (
            f'CREATE TABLE "{schema}".mine (a int)',
            f'CREATE FUNCTION "{schema}".mine() RETURNS int LANGUAGE sql AS $$SELECT 1$$',
            f'ALTER TABLE "{schema}".entry ADD mine int',
            f'DROP TABLE "{schema}".entry',
            f'DROP SCHEMA "{schema}" CASCADE',
            "CREATE SCHEMA mine",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(sql)


def test_a_role_with_an_odd_name_is_only_a_name(tmp_path: Path) -> None:
    role = 'Odd "role"; DROP'
    quoted = '"' + role.replace('"', '""') + '"'
    _postgres.execute(f"CREATE ROLE {quoted} LOGIN")
    try:
        takeback.migrate(_postgres.url(tmp_path), grant_to=role)
        with takeback.open(_postgres.url(tmp_path, user=role)) as store:
            assert store.session("x", hold=False).user("y").seq == 1
    finally:
        _postgres.execute(f"DROP OWNED BY {quoted}; DROP ROLE {quoted}")
    with pytest.raises(Invalid, match="no such role"):
        takeback.migrate(_postgres.url(tmp_path), grant_to="no such role")


def test_a_role_that_may_not_make_the_tables_is_told_to_migrate(tmp_path: Path) -> None:
    app = _postgres.url(tmp_path, user=_postgres.APP)
    for call in (takeback.open, takeback.migrate):
        with pytest.raises(Unsupported, match=r"takeback\.migrate"):
            call(app)
    assert relations(_postgres.schema_of(tmp_path)) == []
    takeback.migrate(_postgres.url(tmp_path))  # without a word of who may use it
    with pytest.raises(Unsupported, match=rf"takeback\.migrate\(url, grant_to='{_postgres.APP}'\)"):
        takeback.open(app)
    takeback.migrate(_postgres.url(tmp_path), grant_to=_postgres.APP)
    takeback.open(app).close()


def test_migrating_again_changes_nothing(tmp_path: Path) -> None:
    url, schema = _postgres.url(tmp_path), _postgres.schema_of(tmp_path)
    version = takeback.migrate(url, grant_to=_postgres.APP)
    with takeback.open(url) as store:
        store.session("x", hold=False).user("y")
    made, records = relations(schema), _postgres.execute(f'SELECT * FROM "{schema}".migration')
    assert [takeback.migrate(url), takeback.migrate(url, grant_to=_postgres.APP)] == [version, version]
    assert (relations(schema), _postgres.execute(f'SELECT * FROM "{schema}".migration')) == (made, records)
    with takeback.open(url) as store:
        assert store.session("x", hold=False).message_count == 1


def test_one_of_many_threads_migrates(tmp_path: Path) -> None:
    url = _postgres.url(tmp_path)
    found = won(in_threads([lambda: takeback.migrate(url, grant_to=_postgres.APP)] * 6))
    assert len(found) == 6
    assert len(set(found)) == 1


@pytest.mark.promise("R7")
def test_eight_processes_make_a_new_store_at_once(tmp_path: Path) -> None:
    _postgres.server()
    racers = Racers()
    try:
        for turn in range(3):
            place = tmp_path / str(turn)
            assert racers.run(_racers.open_new, _postgres.url(place)) == ["hello"] * COUNT
            assert _postgres.execute(f'SELECT count(*) FROM "{_postgres.schema_of(place)}".migration') == [(1,)]
            with takeback.open(_postgres.url(place)) as store:
                assert {each.name for each in store.list_sessions()} == {f"of {number}" for number in range(COUNT)}
                assert not (report := store.verify()), str(report)
    finally:
        racers.close()


@pytest.mark.promise("R22")
def test_a_newer_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    url, schema = _postgres.url(tmp_path), _postgres.schema_of(tmp_path)
    takeback.migrate(url)
    newer = MIGRATION.seal(MigrationRow(99, "future", 1))
    _postgres.execute(f'INSERT INTO "{schema}".migration ({MIGRATION.columns}) VALUES (%s, %s, %s, %s)', *newer)
    made = relations(schema)
    for call in (takeback.open, takeback.migrate, lambda url: takeback.open(url, read_only=True)):
        with pytest.raises(SchemaTooNew, match="99"):
            call(url)
    assert relations(schema) == made


FOREIGN = {
    "a table": "CREATE TABLE session (a int); INSERT INTO session VALUES (1)",
    "a view": "CREATE VIEW agent AS SELECT 1 AS a",
    "a sequence": "CREATE SEQUENCE agent_number",
    "a type": "CREATE TYPE detail AS (a int)",
    "an index": "CREATE TABLE users (a int); CREATE INDEX session_key ON users (a)",
}
FOREIGN_RECORDS = {
    "a table of migrations": "CREATE TABLE migration (id int, name text); INSERT INTO migration VALUES (1, 'x')",
    "an empty table of migrations": "CREATE TABLE migration (version text)",
    "migrations with names": "CREATE TABLE migration (version text); INSERT INTO migration VALUES ('2024_x')",
    "migrations with numbers": "CREATE TABLE migration (version int); INSERT INTO migration VALUES (1)",
    "a function": "CREATE FUNCTION current_epoch() RETURNS int LANGUAGE sql AS $$SELECT 1$$",
}


@pytest.mark.parametrize(
    "what",
    [*FOREIGN, *FOREIGN_RECORDS],
)
def test_a_schema_of_another_program_is_refused_and_left_alone(tmp_path: Path, what: str) -> None:
    schema = _postgres.schema_of(tmp_path)
    as_owner(schema, (FOREIGN | FOREIGN_RECORDS)[what])
    before = relations(schema)
    try:
        for call in (takeback.open, takeback.migrate):
            with pytest.raises(Invalid, match="another"):
                call(_postgres.url(tmp_path))
    finally:
        assert relations(schema) == before


def test_a_server_without_crc32_runs_the_operation_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append, "SINCE", 10**6)  # no server is that new
    used = _count_uses(monkeypatch)
    with takeback.open(_postgres.app_url(tmp_path)) as store:
        session = store.session("x", hold=False)
        assert [session.user(f"{number}").seq for number in range(3)] == [1, 2, 3]
        assert not store.verify()
    assert not used


# ---------------------------------------------------------------------- reading only


def test_a_store_that_is_only_read_is_not_made(tmp_path: Path) -> None:
    for user in (_postgres.OWNER, _postgres.APP):
        with pytest.raises(NotFound):
            takeback.open(_postgres.url(tmp_path, user=user), read_only=True)
    assert relations(_postgres.schema_of(tmp_path)) == []


def test_a_store_that_is_only_read_needs_no_right_to_write(tmp_path: Path) -> None:
    """A role that may only select can read everything; every write is refused before the server is asked."""
    schema, reader = _postgres.schema_of(tmp_path), "takeback_reader"
    with takeback.open(_postgres.url(tmp_path)) as store:
        session = store.session("x", agent="a", hold=False)
        session.user("y", attachments=[b"z" * 1000])
        session.checkpoint("cp")
    _postgres.execute(f"CREATE ROLE {reader} LOGIN")
    try:
        _postgres.execute(f'GRANT USAGE ON SCHEMA "{schema}" TO {reader}')
        _postgres.execute(f'GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO {reader}')
        with takeback.open(_postgres.url(tmp_path, user=reader), read_only=True) as store:
            assert store.capabilities.read_only
            seen = store.get_session("x")
            assert seen.messages()[0].attachments[0].read() == b"z" * 1000
            assert [change.kind for change in _until(store, None, 4)] == ["agent", "session", "entries", "checkpoint"]
            assert not store.verify()
            for write in (
                *(
                    lambda: seen.user("z"),
                    lambda: seen.user("z", id="m"),
                    lambda: seen.rename("t"),
                    store.create_session,
                ),
                *(
                    lambda: store.delete_session("x"),
                    lambda: store.purge_session("x"),
                    lambda: store.session("new", hold=False),
                ),
                *(lambda: store.delete_agent("a"), lambda: store.get_agent("a").state.set("k", 1), store.undo),
            ):
                with pytest.raises(Unsupported):
                    write()
            assert store.session("x", agent="a", hold=False).id == session.id  # looking needs no write
    finally:
        _postgres.execute(f"DROP OWNED BY {reader}; DROP ROLE {reader}")


# ---------------------------------------------------------------------- order of text


NAMES = [
    *("a", "B", "b", "A", "ä", "Ä", "Z", "z", "é", "e", "E", "ß", "ss", "_", "1", "10", "2", "I", "ı", "İ", "i"),
    *("日本", "🦊", "a b", "ab", "a-b", "a_b", "aB", "Ab", "~", "a\u0308", "ﬀ", "ff", "\u00a0", "x\u200b", "x"),
]


def test_text_is_compared_byte_by_byte(tmp_path: Path) -> None:
    """Every column of text and every index over one says so itself, whatever the database's own order is."""
    schema = f'"{_postgres.schema_of(tmp_path)}"'
    takeback.migrate(_postgres.url(tmp_path))
    others = _postgres.execute(
        """SELECT c.relname, a.attname, l.collname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        JOIN pg_collation l ON l.oid = a.attcollation WHERE c.relnamespace = %s::regnamespace AND l.collname <> 'C'""",
        schema,
    )
    assert others == []


def _foreign_order() -> str | None:
    """Make a database whose own order is not that of bytes, where the server can; give its name."""
    import psycopg

    server, name = _postgres.server(), "takeback_en_us"
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone():
            return name
        for order in ("LOCALE_PROVIDER icu ICU_LOCALE 'en-US'", "LOCALE 'en_US.utf8'", "LOCALE 'en_US.UTF-8'"):
            with contextlib.suppress(psycopg.Error):
                connection.execute(
                    f"CREATE DATABASE {name} OWNER {_postgres.OWNER} TEMPLATE template0 ENCODING 'UTF8' {order}"
                )
                return name
    return None


@pytest.fixture(params=["bytes", "en_US"])
def any_order(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store in a database with that order of text."""
    if request.param == "bytes":
        return _postgres.app_url(tmp_path)
    database = _foreign_order()
    if database is None:
        pytest.skip(f"{_postgres.NOT_PROVEN}: this server knows no order of text but that of bytes")
    found: str = _postgres.server().dsn(database, _postgres.OWNER, schema=_postgres.schema_of(tmp_path))
    return found


def test_names_are_in_the_same_order_as_on_sqlite(any_order: str) -> None:
    found = []
    for url in (":memory:", any_order):
        with takeback.open(url) as store:
            for name in NAMES:
                store.create_agent(name)
                store.create_session(name, agent=name, tags=[name])
            listed = [agent.id for agent in store.list_agents(limit=1000)]
            page = store.list_agents(limit=7)
            paged = [agent.id for agent in page]
            while page.cursor is not None:
                page = store.list_agents(limit=7, cursor=page.cursor)
                paged += [agent.id for agent in page]
            assert paged == listed
            tagged = [[session.name for session in store.list_sessions(tag=name)] for name in NAMES]
            named = [store.get_session(name).name for name in NAMES]
            session = store.get_session("a")
            for name in NAMES:
                session.append({"role": "assistant", "content": "", "tool_calls": [{"id": name, "name": "f"}]})
            calls = [call.id for call in session.pending_calls()]
            found.append((listed, tagged, named, calls, [store.resolve(name).session.name for name in NAMES]))
            assert not store.verify()
    assert found[0] == found[1]
    assert found[0][0] == sorted(NAMES, key=str.encode)
    assert found[0][2] == NAMES


# ---------------------------------------------------------------------- the same rows


def _history(store: Store, clock: ManualClock) -> None:
    """Do the same things at the same times: what a session of every kind of append comes to."""
    rng = random.Random(7)
    session = store.create_session("history")
    edges = [0, 1, 31, 32, 127, 128, 255, 256, 32_767, 32_768, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1, 2**32]
    times = [*edges, *(-edge - 1 for edge in edges), 2**53, 1_700_000_000_000]
    for number, now in enumerate(times):
        clock.ms = now
        text = "x" * edges[number % 10]
        usage = {"input_tokens": edges[number % len(edges)], "output_tokens": number, "cost": number / 7}
        session.user(text, usage=usage, duration=number / 3)
        raw = rng.randbytes(edges[number % 12])
        session.assistant("ü" * edges[(number + 3) % 8], model="m" * (1 + number), raw=raw if number else None)
        session.user(f"{number}", idempotency_key=f"{number} {'k' * edges[number % 8]}")
        call = {"id": "c" * (1 + number), "name": "look", "arguments": {"n": number}}
        session.append({"role": "user", "content": text}, {"role": "assistant", "content": "", "tool_calls": [call]})
        if number % 4 == 0:
            session.append({"role": "tool", "content": "found", "tool_call_id": call["id"]})
        if number % 3 == 0:
            odd = [{**call, "id": f'{number} "\\{{}},NULL ü'}, {**call, "id": "NULL"}]
            session.append({"role": "assistant", "content": "", "tool_calls": odd})
            for each in odd:
                session.append({"role": "tool", "content": "found", "tool_call_id": each["id"]})
        if number % 5 == 0:
            session.user("with an id", id=f"m{number}")
            session.set_plan(f"plan {number}")
        if number % 7 == 6:
            session.rewind(session.head.seq - 2)


# Positions differ, and what names them; all else is the same byte by byte.
LOCAL = {SESSION: ("updated", "chk"), FEED: ("pos", "chk"), OPERATION: ("id", "oid", "chk")}
COMPARED = {
    table.name: ", ".join(name for name in table.stored if name not in LOCAL.get(table, ()))
    for table in tables.TABLES
    if not table.local
}


@pytest.mark.parametrize("scope", ["", "ü" * 20 + "日" * 90], ids=["no scope", "a long scope"])
def test_rows_are_the_same_however_they_were_appended(
    tmp_path: Path, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same ids, salts and times give the same rows: from SQLite, from appends in one statement, and from the others."""
    stored = dict[str, Any]()
    with monkeypatch.context() as patch:
        patch.setattr(PostgresTx, "quick", None)
        stored["several statements"] = _replayed(monkeypatch, _postgres.app_url(tmp_path / "slow"), scope)
    with monkeypatch.context() as patch:
        used = _count_uses(patch)
        stored["one statement"] = _replayed(monkeypatch, _postgres.app_url(tmp_path / "quick"), scope)
    assert used["append_known"] > 60
    assert used["with calls"] > 20
    with monkeypatch.context() as patch:
        _lose_every_race(patch)
        used = _count_uses(patch)
        stored["one statement, in turn"] = _replayed(monkeypatch, _postgres.app_url(tmp_path / "turns"), scope)
    assert used["append_known"] > 60
    expected = _replayed(monkeypatch, str(tmp_path / "a.db"), scope)
    assert len(expected["entry"]) > 150
    for way, found in stored.items():
        for table, rows in expected.items():
            assert found[table] == rows, f"{table}, appended by {way}"


@pytest.mark.parametrize("user", [_postgres.APP, ""], ids=["row security", "a superuser"])
def test_checks_are_right_however_long_a_position_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    """The server computes two checks with the position that it gives, which is packed in as few bytes as it needs."""
    _postgres.app_url(tmp_path)
    used, count, schema = _count_uses(monkeypatch), 0, _postgres.schema_of(tmp_path)
    place = _postgres.url(tmp_path, user=user) if user else _postgres.server().dsn(_postgres.DATABASE, schema=schema)
    with takeback.open(place, clock=ManualClock()) as store:
        assert (store.capabilities.isolation == "row security") == bool(user)
        session = store.create_session("x", title="t")
        for first in (126, 254, 65_534, 2**32 - 2):
            _postgres.execute(f"SELECT setval('\"{schema}\".feed_number', {first - 1})")
            session.user("a new rank begins")
            before = used["append_known"]
            for number in range(3):
                session.user(f"{number}", idempotency_key=f"{first} {number}")
            count += used["append_known"] - before
            assert session._seen.updated >= first + 2
        assert not (report := store.verify()), str(report)
    assert count == 12


def _lose_every_race(patch: pytest.MonkeyPatch) -> None:
    """Refuse what was computed from a row that was only seen: each append locks the row and computes it from there."""
    inner = PostgresTx.append_known

    def refused(tx: PostgresTx, wanted: Any) -> Any:
        locked = tx._connection.info.transaction_status == TransactionStatus.INTRANS
        return inner(tx, wanted) if locked else None

    patch.setattr(PostgresTx, "append_known", refused)


def test_a_turn_without_an_append_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes its turn and finds the session finished, in the trash or at another revision leaves it at once."""
    ends = list[bool]()
    inner = PostgresTx.end_turn
    monkeypatch.setattr(PostgresTx, "end_turn", lambda tx: ends.append(inner(tx) is None))
    url = _postgres.app_url(tmp_path)
    with takeback.open(url) as one, takeback.open(url, lock_timeout=5) as two:
        for change in (
            lambda session: session.complete(),
            lambda session: two.delete_session(session),
            lambda session: session.rewind(1),
        ):
            session = one.create_session(title="t")
            session.user("first")
            theirs = two.get_session(session.id)
            theirs.user("second")
            change(theirs)
            with pytest.raises(Conflict):
                session.append({"role": "user", "content": "third"}, expected_revision=session.revision)
            two.restore_session(session.id)
            assert theirs.note("nobody holds it").text == "nobody holds it"
        assert not one.verify()
    assert len(ends) == 3


def _count_uses(patch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often an append was one statement."""
    used = Counter[str]()

    inner = PostgresTx.append_known

    def counted(tx: PostgresTx, wanted: Any) -> Any:
        found = inner(tx, wanted)
        used["append_known"] += found is not None
        used["with calls"] += bool(found and wanted.entry.chain.calls)
        return found

    patch.setattr(PostgresTx, "append_known", counted)
    return used


def _replayed(monkeypatch: pytest.MonkeyPatch, url: str, scope: str) -> Any:
    clock = ManualClock()
    with takeback.open(url, scope=scope, clock=clock) as store, monkeypatch.context() as patch:
        patch.setattr(ids.os, "urandom", random.Random(1).randbytes)
        patch.setattr(entries, "new_salt", lambda: b"0123456789abcdef")
        _history(store, clock)
        assert not (report := store.verify()), str(report)
        return {
            table: store._read(lambda tx: tx.all(f"SELECT {columns} FROM {table} ORDER BY {columns}"))  # noqa: B023
            for table, columns in COMPARED.items()
        }


def test_hashes_and_checks_are_those_of_the_specification(tmp_path: Path) -> None:
    """Computed here from the stored columns, entry by entry, as SPEC.md says."""
    clock = ManualClock()
    with takeback.open(_postgres.app_url(tmp_path), clock=clock) as store:
        _history(store, clock)
        rows = store._read(lambda tx: tx.all(f"{ENTRY.select} ORDER BY key"))
        trees = {row.bid: row for row in store._read(lambda tx: BRANCH.all(tx, ""))}
        heads = store._read(lambda tx: SESSION.all(tx, ""))
    hashes: dict[int, bytes] = {}
    for *columns, check in rows:
        assert check == row_check(columns)
        _, key, kind, at_ms, turns, _, body, raw, _, rest = columns
        late_ms, *numbers, calls, salt, body_hash, entry_hash = msgspec.msgpack.decode(rest)
        assert (late_ms, body_hash, numbers[1]) == (0, None, turns)
        branch, seq = trees[key >> 32], key & entries.MAX_SEQ
        assert bool(calls) == (numbers[-2] == seq)
        before = entries.key_of(branch.bid if seq > branch.fork_seq + 1 else branch.parent or 0, seq - 1)
        previous = hashes[before] if seq > 1 else chain.GENESIS
        header = chain.header(branch.uid, seq, kind, at_ms, at_ms + late_ms, Numbers(*numbers))
        assert entry_hash == chain.entry_hash(previous, header, chain.body_hash(salt, body, raw))
        hashes[key] = entry_hash
    for session in heads:
        assert session.hash == hashes[entries.key_of(session.branch, session.seq)]


# ---------------------------------------------------------------------- what an append costs the server


APPENDS, SIZE = 1000, 500
UPDATED = """SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'session'"""


@pytest.mark.promise("P12")
@pytest.mark.parametrize("sessions", [1, 50])
def test_an_append_updates_its_session_in_place_and_logs_little(sessions: int) -> None:
    """In a database of its own: a transaction that somebody has open elsewhere in it would keep old rows alive."""
    url, costs = _postgres.new_database(f"takeback_in_place_{sessions}"), []
    with takeback.open(url, clock=ManualClock()) as store:  # a rank is written once a minute
        made = [store.create_session(f"s{number}", title="t") for number in range(sessions)]
        _postgres.execute("CHECKPOINT")  # whoever writes to a page first behind one logs it whole
        for _ in range(4):
            before = _wal()
            for number in range(APPENDS):
                made[number % sessions].user(f"{number:<{SIZE}}")
            costs.append((_wal() - before) / APPENDS)
    updates, in_place = _await_updates(url, len(costs) * APPENDS)
    assert in_place >= 0.95 * updates, f"{in_place:,} of {updates:,}"
    assert min(costs[1:]) <= 1400, costs  # others may log something meanwhile


def _wal() -> int:
    return int(_postgres.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")[0][0])


def _await_updates(url: str, count: int) -> tuple[int, int]:
    """Wait for the statistics of so many updates; those that are left come when a connection ends."""
    import psycopg

    deadline = time.monotonic() + 120
    with psycopg.connect(url, autocommit=True) as connection:
        while (found := connection.execute(UPDATED).fetchone()) is None or found[0] < count:
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
    return found  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- tables that are divided by scope


STORE = [table.name for table in tables.TABLES if not table.local]
DIVIDED = [*STORE, *search.NAMES]
PARTS = 3
UNIQUE = """SELECT c.relname, array_agg(a.attname::text ORDER BY a.attnum) FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_attribute a ON a.attrelid = i.indexrelid
WHERE i.indisunique AND c.relnamespace = %s::regnamespace AND c.relkind = 'i' GROUP BY 1"""


def test_every_unique_index_begins_with_the_scope(tmp_path: Path) -> None:
    takeback.migrate(_postgres.url(tmp_path))
    found = dict(_postgres.execute(UNIQUE, f'"{_postgres.schema_of(tmp_path)}"'))
    assert {name for name, columns in found.items() if columns[0] != "scope"} == {
        *("meta_pkey", "migration_pkey", "epoch_pkey")
    }
    assert len(found) > len(DIVIDED)


def test_every_table_can_be_divided_by_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables as they are described, keys and references included, in parts; a store on them works like any."""
    whole, beside, own_file = tables.postgres(), search.postgres(), schemas._own_file
    monkeypatch.setattr(tables, "postgres", lambda: _divided(whole, STORE))
    monkeypatch.setattr(search, "postgres", lambda: _divided(beside, search.NAMES))
    # How full a page is filled is said of each part.
    said = re.compile(r"ALTER TABLE (\w+) SET \(fillfactor = (\d+)\);")
    assert len(said.findall(own_file("store.sql"))) == 3
    parts = "".join(rf"ALTER TABLE \1_{part} SET (fillfactor = \2);" for part in range(PARTS))
    monkeypatch.setattr(schemas, "_own_file", lambda name: said.sub(parts, own_file(name)))
    url, schema = _postgres.app_url(tmp_path), _postgres.schema_of(tmp_path)
    count = "SELECT relkind::text, count(*) FROM pg_class WHERE relnamespace = %s::regnamespace GROUP BY 1"
    kinds = dict(_postgres.execute(count, f'"{schema}"'))
    assert (kinds["p"], kinds["r"]) == (len(DIVIDED), PARTS * len(DIVIDED) + 3)
    used, scopes = _count_uses(monkeypatch), [f"tenant {number}" for number in range(10)]
    with takeback.open(url) as store:
        for scope in scopes:
            _live(store.scoped(scope))
            assert not (report := store.scoped(scope).verify()), str(report)
            assert [session.name for session in store.scoped(scope).list_sessions()] == ["b", "a"]
            assert [hit.kind for hit in store.scoped(scope).search("another way")] == ["message"]
        assert used["append_known"] >= len(scopes)
    with takeback.open(_postgres.url(tmp_path)) as owner:
        assert not (report := owner.verify()), str(report)
    filled = [_postgres.execute(f'SELECT count(*) FROM "{schema}".session_{part}')[0][0] for part in range(PARTS)]
    assert min(filled) > 0
    assert sum(filled) == 3 * len(scopes)


def _divided(sql: str, names: Sequence[str]) -> str:
    """Write the tables of a scope as parted ones, with their parts."""
    for name in names:
        begin = sql.index(f"CREATE TABLE {name} (")
        end = sql.index("\n);", begin) + 2
        parts = "".join(
            f"\nCREATE TABLE {name}_{part} PARTITION OF {name} FOR VALUES WITH (MODULUS {PARTS}, REMAINDER {part});"
            for part in range(PARTS)
        )
        sql = f"{sql[:end]} PARTITION BY HASH (scope);{parts}{sql[end + 1 :]}"
    return sql


def _live(store: Store) -> None:
    """Use every table of a scope once."""
    one = store.create_session("a", agent="x", tags=["red"], idempotency_key="k")
    one.user("hello", attachments=[b"z" * 1000], id="m", idempotency_key="k")
    one.user("again")
    one.checkpoint("here")
    one.rewind(1)
    one.user("another way")
    one.send("a message")
    with one.stream() as stream:
        stream.write("an answer")
    store.checkpoint_agent("x", "all")
    two, gone = store.create_session("b", agent="x"), store.create_session("c", agent="x")
    two.user("x" * 200_000)
    gone.user("y", attachments=[b"z" * 2000])
    store.purge_session(gone)


# ---------------------------------------------------------------------- another life of the cluster


def _move_to_another_cluster(schema: str) -> None:
    """Let a store look as if its dump came from a cluster whose numbers of transactions were far higher."""
    for table in ("feed", "session", "agent"):
        _postgres.execute(f'UPDATE "{schema}".{table} SET xid = xid + 1000000000')
    _postgres.execute(f"""UPDATE "{schema}".epoch SET cluster = 'another/1'""")


@pytest.mark.parametrize("role", ["owner", "app"])
def test_a_follower_goes_on_in_a_restored_store(tmp_path: Path, role: str) -> None:
    app, schema = _postgres.app_url(tmp_path), _postgres.schema_of(tmp_path)
    url = app if role == "app" else _postgres.url(tmp_path)
    with takeback.open(url) as store:
        session = store.session("x", hold=False)
        for number in range(3):
            session.user(str(number))
        seen = _until(store, None, 5)
        old, half = [(change.kind, change.last_seq) for change in seen], seen[2].cursor
    for life in range(2, 4):
        _move_to_another_cluster(schema)
        with takeback.open(url) as store:
            session = store.get_session("x")
            assert [(change.kind, change.last_seq) for change in store.events()] == old
            session.user("plain")
            session.user("id", id=f"m{life}")
            old += [("entries", session.head.seq - 1), ("entries", session.head.seq)]
            seen = _until(store, None, len(old))
            assert [(change.kind, change.last_seq) for change in seen] == old
            cursors = [change.cursor for change in seen]
            assert len(set(cursors)) == len(cursors)
        with takeback.open(url) as store:
            assert _postgres.execute(f'SELECT max(epoch) FROM "{schema}".epoch') == [(life,)]
            later = [change.last_seq for change in store.events(cursors[-2])]
            assert later == [session.head.seq]
    with takeback.open(url) as store:
        cursor = [change.cursor for change in store.events()][2]
        assert [(change.kind, change.last_seq) for change in store.events(cursor)] == old[3:]
        assert half != cursor  # the rows were given other numbers here, which a real dump does not do
        assert not store.verify()


def _until(store: Store, after: str | None, count: int) -> list[Any]:
    """Read the feed until it has so many changes: a transaction of somebody else may hold the last ones back."""
    deadline = time.monotonic() + 120
    while len(found := list(store.events(after))) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_a_restored_store_that_is_only_read_shows_all_changes(tmp_path: Path) -> None:
    url = _postgres.app_url(tmp_path)
    with takeback.open(url) as store:
        store.session("x", hold=False).user("y")
        count = len(list(store.events()))
    _move_to_another_cluster(_postgres.schema_of(tmp_path))
    with takeback.open(url, read_only=True) as store:
        assert len(list(store.events())) == count


def test_only_another_life_begins_an_epoch(tmp_path: Path) -> None:
    url, schema = _postgres.app_url(tmp_path), _postgres.schema_of(tmp_path)
    for _ in range(3):
        with takeback.open(url) as store:
            won(in_threads([lambda: store.create_session().user("x")] * 4))
    assert _postgres.execute(f'SELECT count(*) FROM "{schema}".epoch') == [(1,)]
    _move_to_another_cluster(schema)
    won(in_threads([lambda: takeback.open(url).close()] * 6))
    assert _postgres.execute(f'SELECT count(*) FROM "{schema}".epoch') == [(2,)]


# ---------------------------------------------------------------------- what does not fit


@cache
def _long(length: int) -> str:
    """Text that cannot be compressed, of letters that take three bytes each."""
    return "".join(random.Random(length).choices([chr(number) for number in range(0x4E00, 0x9F00)], k=length))


LONG: dict[str, Callable[[Store, str], Any]] = {
    "name": lambda store, text: store.create_session(text).name,
    "agent": lambda store, text: store.create_session(agent=text).agent_id,
    "workspace": lambda store, text: session_elsewhere(store, "x", workspace=f"/{text}").workspace,
    "label": lambda store, text: store.create_session(label=text).label,
    "title": lambda store, text: store.create_session(title=text).title,
    "tag": lambda store, text: store.create_session(tags=[text]).tags,
    "cron": lambda store, text: store.cron_session("a", text).message_count,
    "key": lambda store, text: store.create_session(idempotency_key=text).message_count,
    "message key": lambda store, text: store.session("s", hold=False).user("x", idempotency_key=text).text,
    "message id": lambda store, text: store.session("s", hold=False).user("x", id=text).id,
    "call id": lambda store, text: _call(store, text),
    "checkpoint": lambda store, text: store.session("s", hold=False).checkpoint(text).name,
    "branch": lambda store, text: store.session("s", hold=False).fork(name=text).name,
    "create_agent": lambda store, text: store.create_agent(text).id,
    "state": lambda store, text: store.session("s", hold=False).state.set(text, text),
    "scope": lambda store, text: store.scoped(text).session("s", hold=False).user("x").text,
    "find": lambda store, text: getattr(store.find_session(f"?{text}"), "name", None),
    "operation": lambda store, text: store.session("s", hold=False).rename(text, idempotency_key=text).kind,
}


def _call(store: Store, text: str) -> Any:
    call = {"id": text, "name": "look", "arguments": {}}
    return (
        store.session("s", hold=False)
        .append({"role": "assistant", "content": "", "tool_calls": [call]})[0]
        .tool_calls[0]
        .id
    )


@pytest.mark.promise("R19")
def test_text_that_is_too_long_for_an_index_is_refused_and_nothing_else(tmp_path: Path) -> None:
    """About 2,600 bytes fit; what is longer is told, and what fits is as on SQLite."""
    with takeback.open(":memory:") as file, takeback.open(_postgres.app_url(tmp_path)) as server:
        refused = set[str]()
        for what, call in LONG.items():
            for text in (_long(10), _long(500), _long(999), _long(1001), "x" * 1000):
                mine, theirs = (_answer(call, store, text) for store in (file, server))
                if theirs != mine:
                    assert theirs == "Invalid: too long", what
                    assert len(text.encode()) > 2600, what
                    refused.add(what)
        assert refused >= {"name", "agent", "label", "message id", "scope", "create_agent"}
        assert not refused & {"title", "tag", "state", "find"}
        assert not (report := server.verify()), str(report)


def _answer(call: Callable[[Store, str], Any], store: Store, text: str) -> Any:
    try:
        return call(store, text)
    except Invalid as error:
        return "Invalid: too long" if "too long for PostgreSQL" in str(error) else "Invalid"
    except Conflict:
        return "Conflict"


@pytest.fixture(scope="module", autouse=True)
def _forget_databases() -> Iterator[None]:
    yield
    found = _postgres._started()
    if not isinstance(found, str):
        found.drop_database("takeback_en_us")
