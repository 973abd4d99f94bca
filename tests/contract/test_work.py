"""No statement costs more in a larger store: every call is made on a small store and on one many times as large.

Work is counted by the engine, so the bound holds on any machine: for each statement by its text, and for each call as a
whole, at most twice the work of the small store and a little. A statement whose plan scans a table, or that is run once
per row, fails with its text. On PostgreSQL the plans are those for the values that were given, and then those that the
server makes without knowing the values: it may choose either once a statement is prepared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import pytest

import _postgres
import takeback
from takeback.search import find, places
from takeback.testing.scale import Open, World, build
from takeback.testing.scale_calls import CALLS, Call, measure, named
from takeback.testing.work import Counter, PostgresBuffers, SqliteSteps, Work, explain

pytestmark = pytest.mark.promise("P17")

SMALL, LARGE, LARGE_ON_SERVER = 300, 3000, 1200
MESSAGES = 6
RANKED, TITLES, BLOCK = 200, 5, 1024  # of a search, in place of thousands of matches, dozens of titles
TIMES = 2
STEPS, BUFFERS, BUFFERS_WRITING = 100, 12, 48  # a row that finds no room in its page is entered into all indexes anew
GIVEN, GENERIC = "takeback_work", "takeback_work_generic"  # roles
GROWING = {call.name for call in CALLS if call.grows}
BARE_COUNT = re.compile(r"SELECT count\(\*\) FROM [\w.\"]+")

Found = dict[str, Work]


class Both(NamedTuple):
    """The work of every call in the small store and in the large one."""

    small: Found
    large: Found
    unit: str


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Both:
    place = tmp_path_factory.mktemp("work")
    small, large = (_on_file(place / f"{size}.db", size) for size in (SMALL, LARGE))
    return Both(small, large, SqliteSteps.unit)


def _on_file(path: Path, size: int) -> Found:
    world = build(lambda clock: takeback.open(path, clock=clock, durability="relaxed"), size, MESSAGES)
    with SqliteSteps() as counter:
        return _measured(world, counter, lambda clock: takeback.open(path, clock=clock), CALLS)


@pytest.fixture(scope="module")
def on_postgres() -> dict[str, Both]:
    """Fill both stores once; each of the roles makes its calls on copies."""
    server = _postgres.server()
    if not server.controllable:
        pytest.skip(f"{_postgres.NOT_PROVEN}: buffers are read from the log of a server that was started here")
    for role in (GIVEN, GENERIC):
        _postgres.execute(f"CREATE ROLE {role} LOGIN")
    explain(server, GIVEN)
    explain(server, GENERIC, plan_cache_mode="force_generic_plan")
    filled = {size: _filled(size) for size in (SMALL, LARGE_ON_SERVER)}
    counter, found = PostgresBuffers(server), dict[str, Both]()
    for role in (GIVEN, GENERIC):
        small, large = (_on_copy(counter, size, role, world) for size, world in filled.items())
        found[role] = Both(small, large, counter.unit)
    return found


def _filled(size: int) -> World:
    import psycopg

    url = _postgres.new_database(f"work_{size}")
    for role in (GIVEN, GENERIC):
        takeback.migrate(url, grant_to=role)
    world = build(lambda clock: takeback.open(url, clock=clock, durability="relaxed"), size, MESSAGES)
    with psycopg.connect(_postgres.server().dsn(f"work_{size}"), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")  # as the server does by itself within minutes
    return world


def _on_copy(counter: Counter, size: int, role: str, world: World) -> Found:
    # Only one role searches: filling an index takes longest of all.
    calls = [call for call in CALLS if role == GENERIC or call.trial != "P6"]
    copy = f"{role}_{size}"
    _postgres.execute(f"CREATE DATABASE {copy} TEMPLATE work_{size}")
    url = _postgres.server().dsn(copy, role)
    return _measured(deepcopy(world), counter, lambda clock: takeback.open(url, clock=clock), calls)


def _measured(world: World, counter: Counter, open_: Open, calls: Iterable[Call]) -> Found:
    """Measure with bounds so low that a common word reaches them in the small store too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find, "WINDOW", RANKED)
        patch.setattr(find, "TITLES", TITLES)
        patch.setattr(places, "BLOCK", BLOCK)
        return measure(world, counter, open_, calls)


SERVER = [pytest.param(name, marks=pytest.mark.slow) for name in ("postgresql", "postgresql-generic")]


@pytest.fixture(params=["sqlite", *SERVER])
def both(request: pytest.FixtureRequest) -> Both:
    return _found(request)


@pytest.fixture(params=["sqlite", SERVER[1]])
def searched(request: pytest.FixtureRequest) -> Both:
    return _found(request)


def _found(request: pytest.FixtureRequest) -> Both:
    if request.param == "sqlite":
        found: Both = request.getfixturevalue("on_sqlite")
    else:
        found = request.getfixturevalue("on_postgres")[GIVEN if request.param == "postgresql" else GENERIC]
    return found


def require_flat(both: Both, name: str) -> None:
    """Fail with the call and every statement that grew."""
    small, large = both.small[name], both.large[name]
    before, after = small.by_text(), large.by_text()
    grown = [sql for sql in after if after[sql] > TIMES * before.get(sql, 0) + _a_little(both.unit, sql)]
    if grown or large.total > TIMES * small.total + _a_little(both.unit, "WRITES"):
        said = [f"{before.get(sql, 0):,} -> {after[sql]:,} {both.unit}: {sql}" for sql in grown]
        counts = f"{len(small)} -> {len(large)} statements"
        what = f"{name}: {small.total:,} -> {large.total:,} {both.unit}, {counts}"
        pytest.fail("\n  ".join([what, *said]), pytrace=False)


def _a_little(unit: str, sql: str) -> int:
    if unit == SqliteSteps.unit:
        return STEPS
    return BUFFERS if sql.startswith(("SELECT", "WITH")) else BUFFERS_WRITING


@pytest.mark.trial("T83")
@pytest.mark.parametrize("name", named("T83"))
def test_reading_after_a_rewind_reads_two_ranges(both: Both, name: str) -> None:
    require_flat(both, name)


@pytest.mark.trial("T84")
@pytest.mark.parametrize("name", named("T84"))
def test_opening_looks_at_no_table(both: Both, name: str) -> None:
    require_flat(both, name)


@pytest.mark.trial("T85")
@pytest.mark.parametrize("name", named("T85"))
def test_names_prefixes_parents_and_labels_lead_straight_to_sessions(both: Both, name: str) -> None:
    require_flat(both, name)


@pytest.mark.trial("T86")
@pytest.mark.parametrize("name", named("T86"))
def test_listing_does_not_look_through_what_it_leaves_out(both: Both, name: str) -> None:
    require_flat(both, name)


@pytest.mark.trial("T87")
@pytest.mark.parametrize("name", named("T87"))
def test_stats_are_one_aggregate_per_table(both: Both, name: str) -> None:
    """A store that counted as it goes would make every append write the same row; so the count grows, by SQL alone."""
    small, large = both.small[name], both.large[name]
    assert len(large) <= len(small) + 3, "a statement for each session"


@pytest.mark.trial("T88")
@pytest.mark.parametrize("name", named("T88"))
def test_the_feed_is_read_where_the_cursor_is(both: Both, name: str) -> None:
    require_flat(both, name)


@pytest.mark.trial("T89")
@pytest.mark.parametrize("name", [name for name in named("T89") if name not in GROWING])
def test_a_checkpoint_of_an_agent_costs_what_changed(both: Both, name: str) -> None:
    require_flat(both, name)


@pytest.mark.trial("T90")
@pytest.mark.parametrize("name", named("T90"))
def test_purging_pruning_and_history_touch_their_own_rows(both: Both, name: str) -> None:
    if name in GROWING:
        assert len(both.large[name]) == len(both.small[name]), "a sweep reads tables, not row by row"
    else:
        require_flat(both, name)


@pytest.mark.promise("P6")
@pytest.mark.parametrize("name", named("P6"))
def test_a_search_costs_what_is_ranked(searched: Both, name: str) -> None:
    """What is ranked is bounded, so the bound is on the whole: which segments were joined differs with the size."""
    small, large = searched.small[name], searched.large[name]
    assert large.total <= TIMES * small.total + _a_little(searched.unit, "WRITES"), f"{name}: {small} -> {large}"
    if searched.unit == SqliteSteps.unit:
        require_flat(searched, name)


@pytest.mark.parametrize("name", named(""))
def test_everything_else_is_flat(both: Both, name: str) -> None:
    require_flat(both, name)


def test_every_call_was_counted(both: Both) -> None:
    works = [*both.small.items(), *both.large.items()]
    assert not [name for name, work in works if not work.total]
    assert any("INSERT INTO" in sql for sql in both.large["append with a key"].by_text())


def test_no_statement_counts_a_whole_table(both: Both) -> None:
    """SQLite counts a table in one step, so that steps would not show it."""
    works = [*both.small.values(), *both.large.values()]
    assert not [sql for work in works for sql in work.by_text() if BARE_COUNT.fullmatch(sql)]
