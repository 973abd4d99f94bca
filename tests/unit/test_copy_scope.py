"""Copying through a handle of one scope stays in that scope; through one without a scope all of them come over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _copied import OPENERS, assert_same, assert_sound, is_empty, memory, rich, view

import _postgres
import takeback
from takeback import Copying, Invalid, Store, Unsupported

pytestmark = pytest.mark.feature("F9", "F13")

SCOPED_TABLES = (
    *("agent", "agent_version", "session", "detail", "branch", "entry", "session_tag", "link", "checkpoint"),
    *("session_meta",),
    *("idempotency", "operation", "blob", "chunk", "feed", "agent_checkpoint", "pin"),
)
ENGINES = ["file", "postgres"]


def _shared(store: Store) -> Store:
    """Let three scopes have some of everything, much of it under the same names."""
    for scope in ("anna", "bob"):
        _fill(store.scoped(scope), scope)
    return rich(store)


def _fill(own: Store, scope: str) -> None:
    own.create_agent("coder", name=scope, idempotency_key="agent")
    own.get_agent("coder").state.set("whose", scope)
    more = {"whose": scope}
    talk = own.create_session("mine", agent="coder", tags=[scope], metadata=more, idempotency_key="mine")
    talk.user(f"said by {scope}", attachments=[b"the same for all", scope.encode() * 100], idempotency_key="once")
    talk.checkpoint("here")
    talk.rename(f"title of {scope}")
    talk.fork(1, as_session=True, name=f"fork of {scope}").user("on")
    own.create_session(kind="subagent", parent=talk, label="helper", agent="coder").user("help")
    own.delete_session(own.create_session(f"trash of {scope}", agent="coder"))
    own.purge_session(own.create_session(f"purged by {scope}", agent="coder"))
    own.checkpoint_agent("coder", "all of it")


@pytest.fixture(params=ENGINES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with OPENERS[request.param](tmp_path / "source.db") as opened:
        yield _shared(opened)


def _scopes_of_rows(store: Store) -> dict[str, set[str]]:
    """Return for each table the scopes that its rows are of."""
    every = store._backend.scoped(None)

    def look(tx: Any) -> dict[str, set[str]]:
        return {table: {scope for (scope,) in tx.all(f"SELECT DISTINCT scope FROM {table}")} for table in SCOPED_TABLES}

    return every.read(look)


@pytest.mark.trial("T13")
def test_a_handle_of_one_scope_copies_that_scope_alone(source: Store, tmp_path: Path) -> None:
    anna = source.scoped("anna")
    done = takeback.copy(anna, tmp_path / "x.db")
    with takeback.open(tmp_path / "x.db") as target:
        rows = _scopes_of_rows(target)
        assert {scope for scopes in rows.values() for scope in scopes} == {"anna"}
        assert [table for table, scopes in rows.items() if not scopes] == [], "of each table something came over"
        assert view(target.scoped("anna")) == view(anna)
        assert target.scopes() == ["anna"]
        assert_sound(target)
    found = anna.stats()
    assert (done.agents, done.blobs, done.left_out) == (found.agents, found.blobs, ())
    assert done.sessions == found.sessions + 2, "with the one in the trash, and what a purge left"


@pytest.mark.trial("T13")
def test_idempotency_keys_and_agent_checkpoints_are_those_of_the_scope(source: Store, tmp_path: Path) -> None:
    anna = source.scoped("anna")
    takeback.copy(anna, tmp_path / "x.db")
    with takeback.open(tmp_path / "x.db", scope="anna") as target:
        assert target.list_checkpoints("coder") == anna.list_checkpoints("coder")
        more = {"whose": "anna"}
        again = target.create_session("mine", agent="coder", tags=["anna"], metadata=more, idempotency_key="mine")
        assert again.id == anna.get_session("mine").id
    with takeback.open(tmp_path / "x.db") as target:
        assert not [*target.iter_sessions(archived=None), *target.scoped("bob").iter_sessions(archived=None)]
        made = target.create_session("own", idempotency_key="talk")
        assert made.name == "own", "a key of the default scope did not come over"


@pytest.mark.trial("T13")
def test_progress_counts_what_is_in_the_scope(source: Store, tmp_path: Path) -> None:
    heard = list[Copying]()
    done = takeback.copy(source.scoped("anna"), tmp_path / "x.db", progress=heard.append)
    last = heard[-1]
    assert (last.sessions, last.entries) == (last.sessions_total, last.entries_total) == (done.sessions, done.entries)
    assert last.bytes_total == len(b"the same for all") + len(b"anna" * 100) + len(b"attached " * 9)


@pytest.mark.trial("T13")
def test_copying_a_scope_again_brings_nothing_and_later_what_is_new(source: Store, tmp_path: Path) -> None:
    anna = source.scoped("anna")
    takeback.copy(anna, tmp_path / "x.db")
    again = takeback.copy(anna, tmp_path / "x.db")
    assert is_empty(again)
    assert again.already.agents == anna.stats().agents
    source.scoped("bob").get_session("mine").user("more of bob")
    anna.get_session("mine").user("more of anna")
    assert takeback.copy(anna, tmp_path / "x.db").entries == 1


@pytest.mark.trial("T13")
def test_a_handle_without_a_scope_copies_all_scopes(source: Store, tmp_path: Path) -> None:
    takeback.copy(source, tmp_path / "x.db")
    with takeback.open(tmp_path / "x.db") as target:
        assert target.scopes() == ["", "anna", "bob"]
        assert_same(source, target)
        assert view(target.scoped("bob")) == view(source.scoped("bob"))


@pytest.mark.trial("T13")
def test_damage_of_another_scope_is_none_of_this_one(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "a.db") as source:
        _shared(source)
        for table, column in (("agent", "modified_ms"), ("operation", "at_ms"), ("blob", "created_ms")):
            source._backend._connection.execute(  # type: ignore[attr-defined]
                f"UPDATE {table} SET {column} = {column} + 1 WHERE scope = 'bob'"
            )
        with pytest.raises(takeback.Corrupt):
            takeback.copy(source.scoped("bob"), tmp_path / "b.db")
        with memory() as target:
            takeback.copy(source.scoped("anna"), target)
            assert view(target.scoped("anna")) == view(source.scoped("anna"))


@pytest.mark.trial("T13")
def test_the_run_time_role_of_a_server_copies_its_scope(tmp_path: Path) -> None:
    with takeback.open(_postgres.app_url(tmp_path)) as source, memory() as target:
        _shared(source)
        takeback.copy(source.scoped("anna"), target)
        assert target.scopes() == ["anna"]
        assert view(target.scoped("anna")) == view(source.scoped("anna"))


# ---------------------------------------------------------------------- which scopes there are


@pytest.mark.trial("T14")
@pytest.mark.parametrize("engine", ["file", "memory", "postgres"])
def test_scopes_are_listed_in_order_once_they_hold_something(tmp_path: Path, engine: str) -> None:
    with OPENERS[engine](tmp_path / "a.db") as store:
        assert store.scopes() == []
        store.scoped("zoe").list_sessions()
        assert store.scopes() == [], "looking makes none"
        for scope in ("zoe", "Émile", "anna", None):
            store.scoped(scope).create_session()
        store.scoped("only an agent").create_agent("coder")
        assert store.scopes() == ["", "anna", "only an agent", "zoe", "Émile"]
        store.scoped("anna").purge_session(store.scoped("anna").list_sessions()[0])
        assert "anna" in store.scopes(), "its agent is still there"


@pytest.mark.trial("T14")
def test_a_handle_of_one_scope_is_told_of_no_other(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "a.db", scope="anna") as store, pytest.raises(Invalid, match="without a scope"):
        store.scopes()


@pytest.mark.trial("T14")
def test_a_role_that_sees_one_scope_at_a_time_cannot_list_them(tmp_path: Path) -> None:
    with takeback.open(_postgres.app_url(tmp_path)) as store:
        store.create_session()
        with pytest.raises(Unsupported, match="as the owner of the tables") as refused:
            store.scopes()
        assert refused.value.capability == "all_scopes"
        assert not store.capabilities.all_scopes
    with takeback.open(_postgres.url(tmp_path)) as owner:
        assert (owner.scopes(), owner.capabilities.all_scopes) == ([""], True)
