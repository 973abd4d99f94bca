"""Documents on disk and on the move: damage costs one document, copies agree, and a listing is an index range."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest
from _copied import OPENERS, assert_sound, is_empty, memory
from _damages import rot  # noqa: F401

import takeback
from takeback import Conflict, Corrupt, Document, Store
from takeback.ops import documents
from takeback.testing.clock import ManualClock

LARGE = b"x" * 100_000


def put_three(path: Path) -> None:
    with takeback.open(path, durability="relaxed") as store:
        docs = store.docs("n")
        docs.put("a", {"n": 1})
        docs.put("b", LARGE)
        docs.put("c", "third")


def change(path: Path, *statements: str) -> None:
    """Change the closed store as a disk would."""
    database = apsw.Connection(str(path))
    for sql in statements:
        database.execute(sql)
        assert database.changes() >= 1
    database.close()


DAMAGED = {
    "its row": ("a", "UPDATE document SET value = x'7b7d' WHERE did = 1"),
    "its blob is gone": ("b", "DELETE FROM chunk", "DELETE FROM blob"),
    "a chunk of its blob": ("b", "UPDATE chunk SET data = x'00'"),
}


@pytest.mark.promise("R11")
@pytest.mark.feature("F5")
@pytest.mark.parametrize("what", DAMAGED)
def test_damage_costs_one_document_and_names_it(tmp_path: Path, what: str) -> None:
    put_three(tmp_path / "a.db")
    key, *statements = DAMAGED[what]
    change(tmp_path / "a.db", *statements)
    others = [each for each in "abc" if each != key]
    with takeback.open(tmp_path / "a.db") as store:
        docs = store.docs("n")
        with pytest.raises(Corrupt) as caught:
            docs.get(key)
        assert caught.value.what == f"document '{key}' in 'n'"
        page = docs.list()
        assert ([each.key for each in page], page.damaged) == (others, (caught.value.what,))
        assert [docs.put(each, 1).version for each in others] == [2, 2]
        assert store.verify()
        repaired = store.repair()
        assert not repaired.report
        assert any(repr(key) in problem.where for problem in repaired.lost), str(repaired)
    with takeback.open(repaired.path) as copy:
        assert [each.key for each in copy.docs("n").list()] == others
        assert copy.docs("n").put(key, "again", expected_version=0).version == (2 if key == "b" else 1)
        assert_sound(copy)


@pytest.mark.promise("R11")
def test_a_damaged_document_does_not_hold_up_those_that_expire(tmp_path: Path) -> None:
    clock = ManualClock()
    with takeback.open(tmp_path / "a.db", clock=clock) as store:
        for key in "abc":
            store.docs("n").put(key, LARGE + key.encode(), ttl=1)
    change(tmp_path / "a.db", "UPDATE document SET version = 9 WHERE did = 1")
    clock.advance(10_000)
    with takeback.open(tmp_path / "a.db", clock=clock) as store:
        store.docs("n").put("d", 1)
        left = store._read(lambda tx: tx.all("SELECT did FROM document WHERE hash IS NOT NULL"))
        assert left == [(1,)]
        assert store.prune(dry_run=False, spare_seconds=0).blobs == 3


# ---------------------------------------------------------------------- copies


def value_of(store: Store, key: str = "k") -> Any:
    found = store.docs("n").find(key)
    return None if found is None else (found.version, found.value)


@pytest.mark.feature("C6")
@pytest.mark.parametrize("two", ["memory", "postgres"])
def test_a_copy_brings_documents_and_later_what_is_new(tmp_path: Path, two: str) -> None:
    with memory() as source, OPENERS[two](tmp_path / "b.db") as target:
        docs = source.docs("n")
        kept: list[Document] = [docs.put("k", 1), docs.put("large", LARGE), docs.put("timed", 1, ttl=1000)]
        docs.put("gone", 1)
        docs.delete("gone")
        source.scoped("anna").docs("n").put("k", "hers")
        assert takeback.copy(source, target).documents == 5
        assert list(target.docs("n").list()) == kept
        assert value_of(target.scoped("anna")) == (1, "hers")
        assert is_empty(takeback.copy(source, target))
        docs.put("k", 2)
        docs.delete("large")
        docs.put("gone", "back")
        done = takeback.copy(source, target)
        assert (done.documents, done.already.documents) == (3, 2)
        assert (value_of(target), value_of(target, "large"), value_of(target, "gone")) == ((2, 2), None, (2, "back"))
        changes = [(each.key, each.version) for each in target.events() if each.kind == "document"]
        assert changes[-4:] == [("k", 2), ("large", 1), ("large", 0), ("gone", 2)]
        assert target.docs("n").put("large", 1, expected_version=0).version == 2
        assert_sound(target)


@pytest.mark.promise("R10")
def test_what_was_put_in_both_stores_is_a_conflict_and_stays(tmp_path: Path) -> None:
    with memory() as source, memory() as target:
        for key in ("mine", "theirs", "both", "deleted"):
            source.docs("n").put(key, 1)
        takeback.copy(source, target)
        source.docs("n").put("mine", 2)
        target.docs("n").put("theirs", 2)
        source.docs("n").put("both", "here")
        target.docs("n").put("both", "there")
        target.docs("n").delete("deleted")
        source.docs("n").put("deleted", 2)
        source.create_session("comes over").user("hello")
        with pytest.raises(Conflict, match=r"document 'both' in 'n'.*1 conflict more: deleted"):
            takeback.copy(source, target)
        assert target.get_session("comes over").message_count == 1
        assert value_of(target, "mine") == (2, 2)
        assert value_of(target, "both") == (2, "there")
        assert value_of(target, "deleted") is None
        assert value_of(target, "theirs") == (2, 2)
        with memory() as unrelated:
            unrelated.docs("n").put("mine", "another")
            with pytest.raises(Conflict):
                takeback.copy(unrelated, source)
        assert value_of(source, "mine") == (2, 2)
        assert_sound(target)


@pytest.mark.feature("C6")
def test_a_document_may_go_on_in_either_store() -> None:
    with memory() as one, memory() as two:
        one.docs("n").put("k", "one")
        for number, (source, target) in enumerate([(one, two), (two, one), (one, two), (two, one)], 2):
            takeback.copy(source, target)
            target.docs("n").put("k", number)
            assert is_empty(takeback.copy(source, target)), "the destination has gone on"
            assert value_of(target) == (number, number)
        takeback.copy(one, two)
        assert value_of(one) == value_of(two) == (5, 5)
        two.docs("n").delete("k")
        takeback.copy(two, one)
        assert value_of(one) is None
        assert one.docs("n").put("k", 6).version == 6


@pytest.mark.feature("C6")
def test_what_expired_in_the_copy_gives_way_to_what_was_put_since(tmp_path: Path) -> None:
    clock = ManualClock()
    with takeback.open(":memory:", clock=clock) as source, takeback.open(":memory:", clock=clock) as target:
        source.docs("n").put("k", 1, ttl=1)
        takeback.copy(source, target)
        clock.advance(2000)
        target.docs("n").put("other", 1)
        assert target._read(lambda tx: tx.one("SELECT hidden FROM document WHERE key = 'k'")) == (2,)
        assert is_empty(takeback.copy(source, target))
        source.docs("n").put("k", 2)
        takeback.copy(source, target)
        assert value_of(target) == (2, 2)
        assert_sound(target)


@pytest.mark.feature("C6")
def test_a_delete_in_the_copy_is_not_undone_by_copying_again(tmp_path: Path) -> None:
    with memory() as source, memory() as target:
        source.docs("n").put("k", 1)
        takeback.copy(source, target)
        target.docs("n").delete("k")
        assert is_empty(takeback.copy(source, target))
        assert value_of(target) is None


@pytest.mark.feature("C6")
def test_chosen_sessions_bring_no_documents_and_a_scope_brings_its_own(tmp_path: Path) -> None:
    with memory() as source, memory() as chosen, memory() as scoped:
        session = source.create_session("talk")
        session.user("hello")
        source.docs("n").put("k", 1)
        source.scoped("anna").docs("n").put("k", "hers")
        takeback.copy(source, chosen, sessions=[session])
        assert value_of(chosen) is None
        takeback.copy(source.scoped("anna"), scoped)
        assert (value_of(scoped), value_of(scoped.scoped("anna"))) == (None, (1, "hers"))


@pytest.mark.feature("C6")
def test_a_backup_and_a_repair_carry_documents(tmp_path: Path) -> None:
    put_three(tmp_path / "a.db")
    with takeback.open(tmp_path / "a.db") as store:
        wanted = list(store.docs("n").list())
        store.docs("n").put("gone", 1)
        store.docs("n").delete("gone")
        assert not store.backup(tmp_path / "backup.db")
        change_later = store.repair()
    for path in (tmp_path / "backup.db", change_later.path):
        with takeback.open(path) as copy:
            assert list(copy.docs("n").list()) == wanted
            assert copy.docs("n").put("gone", 1).version == 2


@pytest.mark.feature("C6")
@pytest.mark.promise("R8")
def test_a_retry_in_a_copy_puts_nothing_twice() -> None:
    with memory() as source, memory() as target:
        first = source.docs("n").put("k", 1, idempotency_key="once")
        takeback.copy(source, target)
        assert target.docs("n").put("k", 1, idempotency_key="once") == first
        assert value_of(target) == (1, 1)


# ---------------------------------------------------------------------- cost


@pytest.mark.feature("C6")
@pytest.mark.parametrize("prefix", ["", "a", "\U0010ffff"])
def test_a_listing_is_a_range_of_an_index(prefix: str) -> None:
    with memory() as store:
        sql, args = documents._listed("", "n", prefix, None, 0, 10)
        plan = store._read(lambda tx: tx.all(f"EXPLAIN QUERY PLAN {sql}", args))
    said = " ".join(str(row[-1]) for row in plan)
    assert "document_live (scope=? AND namespace=? AND key>" in said
    assert "TEMP B-TREE" not in said


@pytest.mark.feature("C6")
def test_large_values_lie_in_blobs_and_small_ones_in_rows() -> None:
    with memory() as store:
        docs = store.docs("n")
        docs.put("at", b"x" * (64 << 10))
        docs.put("above", b"x" * ((64 << 10) + 1))
        where = store._read(lambda tx: tx.all("SELECT key, length(value), hash IS NULL FROM document ORDER BY did"))
    assert where == [("at", 64 << 10, 1), ("above", None, 0)]
