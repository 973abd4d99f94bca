"""The contract: documents by namespace and key, and contents by their hash."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from takeback import Conflict, Document, Invalid, NotFound, Session, Store
from takeback.testing.clock import ManualClock

from .base import Contract, said

_VALUES: list[Any] = [
    *(None, True, 0, -0.5, 2**70, float("inf"), "", "text", "\ud800", b"", b"\0\xff"),
    *([], [1, [2]], {}, {"a": {"b": None}}, {"$bytes": "no"}, {"with": b"bytes"}),
]
_LARGE = 3 << 20
# In the order of their bytes in UTF-8, which is that of their code points.
_KEYS = [
    *("%", "%a", "A", "A%", "A_", "Aa", "_", "a", "a b", "a%", "a/1", "a/10", "a/2", "a_", "ab", "a\u0301", "a\ud7ff"),
    *("a\ue000", "a\uffff", "a\U0001f600", "a\U0010ffff", "a\U0010ffffz", "\u00e1", "\U0010ffff"),
]


def keys(store: Store, namespace: Any, prefix: str = "") -> list[str]:
    """Return all keys with a prefix, read in pages of three."""
    found, cursor = list[str](), None
    while True:
        page = store.docs(namespace).list(prefix, limit=3, cursor=cursor)
        assert not page.damaged
        found += [each.key for each in page]
        cursor = page.cursor
        if cursor is None:
            return found


class StoredDocuments(Contract):
    """Documents: versions, races, time to live, listing."""

    @pytest.mark.feature("C6")
    def test_a_document_reads_as_it_was_put(self, store: Store) -> None:
        docs = store.docs("kept")
        for number, value in enumerate(_VALUES):
            assert docs.put(f"k{number}", value) == docs.get(f"k{number}")
            read = docs.get(f"k{number}")
            assert (read.value, type(read.value)) == (value, type(value))
            assert (read.namespace, read.key, read.version) == ("kept", f"k{number}", 1)
            assert (read.created_at, read.expires_at) == (read.updated_at, None)
        assert docs.put("tuple", (1, (2,))).value == [1, [2]]
        listed = {each.key: each.value for each in docs.list(limit=50)}
        assert listed == {f"k{number}": value for number, value in enumerate(_VALUES)} | {"tuple": [1, [2]]}

    @pytest.mark.feature("C6")
    def test_each_put_is_the_next_version_even_after_a_delete(self, store: Store) -> None:
        docs = store.docs("n")
        assert [docs.put("k", each).version for each in "abc"] == [1, 2, 3]
        assert docs.delete("k") is True
        assert docs.find("k") is None
        assert docs.delete("k") is False
        assert len(docs.list()) == 0
        with pytest.raises(NotFound):
            docs.get("k")
        again = docs.put("k", "d", expected_version=0)
        assert (again.version, again.value) == (4, "d")
        assert docs.put("other", 1).version == 1

    @pytest.mark.feature("C6")
    @pytest.mark.promise("R10")
    def test_a_lost_race_over_a_document_is_told(self, store: Store) -> None:
        docs = store.docs("n")
        assert docs.put("k", 1, expected_version=0).version == 1
        attempts: list[tuple[int, Any]] = [(0, docs.put), (2, docs.put), (7, docs.put)]
        for expected, put in attempts:
            with pytest.raises(Conflict) as lost:
                put("k", 2, expected_version=expected)
            assert (lost.value.expected, lost.value.found) == (expected, 1)
        with pytest.raises(Conflict) as lost:
            docs.delete("k", expected_version=2)
        assert (lost.value.expected, lost.value.found) == (2, 1)
        assert docs.get("k").value == 1
        assert docs.delete("k", expected_version=1) is True
        with pytest.raises(Conflict) as lost:
            docs.put("k", 2, expected_version=1)
        assert (lost.value.expected, lost.value.found) == (1, 0)
        assert docs.delete("k", expected_version=0) is False

    @pytest.mark.feature("D9")
    @pytest.mark.promise("R10")
    def test_of_many_writers_each_gets_a_version_of_its_own(self, store: Store) -> None:
        docs = store.docs("n")

        def create(number: int) -> bool:
            try:
                docs.put("first", number, expected_version=0)
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(create, range(8))) == 1
            versions = sorted(pool.map(lambda n: docs.put("k", n).version, range(24)))
        assert versions == list(range(1, 25))

    @pytest.mark.feature("C6")
    def test_a_retry_puts_nothing_twice(self, store: Store) -> None:
        docs = store.docs("n")
        first = docs.put("k", [1], ttl=60, expected_version=0, idempotency_key="a")
        assert docs.put("k", [1], ttl=60, expected_version=0, idempotency_key="a") == first
        assert docs.get("k").version == 1
        docs.put("k", [2])
        assert docs.put("k", [1], ttl=60, expected_version=0, idempotency_key="a") == first
        assert (docs.get("k").version, docs.get("k").value) == (2, [2])
        with pytest.raises(Conflict):
            docs.put("k", [3], idempotency_key="a")
        with pytest.raises(Conflict):
            docs.put("other", [1], ttl=60, expected_version=0, idempotency_key="a")
        assert docs.delete("k", idempotency_key="d") is True
        docs.put("k", [4])
        assert docs.delete("k", idempotency_key="d") is True
        assert docs.get("k").value == [4]

    @pytest.mark.feature("C6")
    def test_a_document_past_its_time_is_absent_everywhere(self, tmp_path: Path) -> None:
        clock = ManualClock()
        with self.open(tmp_path, clock=clock) as store:
            docs = store.docs("n")
            put = docs.put("k", "v", ttl=1.5)
            assert put.expires_at == put.created_at + timedelta(seconds=1.5)
            docs.put("stays", 1)
            docs.put("later", b"x" * _LARGE, ttl=timedelta(minutes=1))
            clock.advance(1499)
            assert docs.get("k") == put
            clock.advance(1)
            assert docs.find("k") is None
            assert keys(store, "n") == ["later", "stays"]
            assert docs.delete("k") is False
            with pytest.raises(Conflict):
                docs.put("k", 1, expected_version=1)
            seen = list(store.events())
            assert len(seen) == 3
            again = docs.put("k", "w", expected_version=0)
            assert (again.version, again.expires_at, again.created_at) == (2, None, again.updated_at)
            clock.advance(3600_000)
            assert keys(store, "n") == ["k", "stays"]
            assert store.prune(dry_run=True, spare_seconds=60).blobs == 1
            assert store.prune(dry_run=False, spare_seconds=60).blobs == 1
            assert keys(store, "n") == ["k", "stays"]
            assert docs.put("later", 1).version == 2
            assert not store.verify()

    @pytest.mark.feature("C6")
    def test_a_put_without_a_time_makes_a_document_stay(self, tmp_path: Path) -> None:
        clock = ManualClock()
        with self.open(tmp_path, clock=clock) as store:
            docs = store.docs("n")
            created = docs.put("k", 1, ttl=10)
            clock.advance(5000)
            stays = docs.put("k", 2)
            assert (stays.created_at, stays.updated_at) == (
                created.created_at,
                created.created_at + timedelta(seconds=5),
            )
            clock.advance(10_000)
            assert docs.get("k").value == 2

    @pytest.mark.feature("C6")
    def test_values_that_expired_are_cleared_by_later_puts(self, tmp_path: Path) -> None:
        clock = ManualClock()
        with self.open(tmp_path, clock=clock) as store:
            docs = store.docs("cache")
            for number in range(5):
                docs.put(f"k{number}", "secret of old", ttl=1)
            clock.advance(1000)
            inner = getattr(store, "_sync", store)
            sql = "SELECT count(*) FROM document WHERE value IS NOT NULL"
            assert inner._read(lambda tx: tx.one(sql)) == (5,)
            assert keys(store, "cache") == []
            assert inner._read(lambda tx: tx.one(sql)) == (5,)  # reading wrote nothing
            docs.put("new", 1)
            assert inner._read(lambda tx: tx.one(sql)) == (1,)
            assert docs.put("k0", 1).version == 2
            assert not store.verify()

    @pytest.mark.feature("C6")
    def test_a_prefix_lists_its_keys_in_one_order_on_every_engine(self, store: Store) -> None:
        docs = store.docs("n")
        for key in reversed(_KEYS):
            docs.put(key, key)
        store.docs("n%").put("a", 1)
        store.docs("m").put("a", 1)
        expected = sorted(_KEYS)
        assert keys(store, "n") == expected
        for prefix in ("a", "a/", "%", "_", "A", "a\ud7ff", "a\U0010ffff", "\U0010ffff", "nosuch"):
            assert keys(store, "n", prefix) == [key for key in expected if key.startswith(prefix)]

    @pytest.mark.feature("C6")
    def test_a_listing_goes_on_where_its_page_ended_whatever_changed(self, store: Store) -> None:
        docs = store.docs("n")
        for key in ("a", "c", "e", "g"):
            docs.put(key, key)
        page = docs.list(limit=2)
        assert ([each.key for each in page], page.cursor is None) == (["a", "c"], False)
        docs.delete("c")
        docs.put("b", 1)
        docs.put("d", 1)
        rest = docs.list(limit=10, cursor=page.cursor)
        assert ([each.key for each in rest], rest.cursor) == (["d", "e", "g"], None)
        with pytest.raises(Invalid):
            docs.list("x", cursor=page.cursor)

    @pytest.mark.feature("C6")
    def test_a_large_value_is_stored_in_pieces_and_a_page_stays_small(self, store: Store) -> None:
        docs = store.docs("n")
        for number in range(5):
            docs.put(f"k{number}", bytes([number]) * _LARGE)
        assert docs.get("k3").value == b"\3" * _LARGE
        first = docs.list(limit=5)
        assert ([each.key for each in first], first.cursor is None) == (["k0", "k1", "k2"], False)
        assert keys(store, "n") == [f"k{number}" for number in range(5)]
        text = {"text": "ä" * _LARGE}
        assert docs.put("json", text).value == text == docs.get("json").value

    @pytest.mark.feature("C6")
    def test_a_namespace_may_have_parts(self, store: Store) -> None:
        store.docs(("users", "ann", "notes")).put("k", 1)
        store.docs(["users", "ann"]).put("k", 2)
        store.docs("users/ann").put("k", 3)
        read = store.docs(("users", "ann", "notes")).get("k")
        assert (read.value, read.namespace) == (1, ("users", "ann", "notes"))
        assert store.docs(("users", "ann")).get("k").value == 2
        assert store.docs(("users/ann",)).get("k").value == 3
        assert store.docs(("users/ann",)).namespace == "users/ann"

    @pytest.mark.feature("C5")
    def test_what_is_no_document_is_refused(self, store: Store) -> None:
        docs = store.docs("n")
        for namespace in (
            "",
            (),
            ("a", ""),
            ("a", 1),
            7,
            None,
            "a\0b",
            "\ud800",
            "a\x1fb",
            "x" * 501,
            ("é" * 200, "é" * 51),
        ):
            with pytest.raises(Invalid):
                store.docs(namespace)  # type: ignore[arg-type]
        calls: list[Any] = [docs.get, docs.find, docs.delete, lambda key: docs.put(key, 1)]
        for call in calls:
            for key in ("", 7, None, "a\0b", "\ud800", "é" * 501):
                with pytest.raises(Invalid):
                    call(key)
        longest = "é" * 500
        assert docs.put(longest, 1) == docs.get(longest)
        for value in (object(), {1: 2}, {1, 2}, 1 << 5000):
            with pytest.raises(Invalid):
                docs.put("k", value)
        wrong: list[dict[str, Any]] = [{"ttl": 0}, {"ttl": -1}, {"ttl": "1"}, {"ttl": True}, {"ttl": timedelta(-1)}]
        for more in (*wrong, {"expected_version": -1}, {"expected_version": True}, {"expected_version": "1"}):
            with pytest.raises(Invalid):
                docs.put("k", 1, **more)
        for limits in (
            {"limit": 0},
            {"limit": True},
            {"cursor": 5},
            {"cursor": ""},
            {"prefix": None},
            {"prefix": "\0"},
        ):
            with pytest.raises(Invalid):
                docs.list(**limits)
        assert keys(store, "n") == [longest]

    @pytest.mark.feature("C6")
    def test_scopes_do_not_see_each_others_documents(self, store: Store) -> None:
        ours, theirs = store.scoped("ours"), store.scoped("theirs")
        ours.docs("n").put("k", b"x" * _LARGE)
        hash = sha256(b"x" * _LARGE).hexdigest()
        assert theirs.docs("n").find("k") is None
        assert keys(theirs, "n") == []
        with pytest.raises(NotFound):
            theirs.get_content(hash)
        theirs.docs("n").put("k", 2, expected_version=0)
        assert ours.docs("n").get("k").version == 1
        assert [change.key for change in ours.events()] == ["k"]
        if store.capabilities.all_scopes:
            assert store.scopes() == ["ours", "theirs"]

    @pytest.mark.feature("F7")
    def test_a_rewind_leaves_documents_alone(self, store: Store, session: Session) -> None:
        docs = store.docs("n")
        session.user("a")
        docs.put("k", 1)
        session.user("b")
        docs.put("k", 2)
        session.rewind(1)
        assert (docs.get("k").value, docs.get("k").version) == (2, 2)
        session.undo()
        assert docs.get("k").version == 2

    @pytest.mark.feature("C6")
    def test_changes_of_documents_are_in_the_feed(self, store: Store, session: Session) -> None:
        start = list(store.events())[-1].cursor
        docs = store.docs(("a", "b"))
        docs.put("k", 1)
        docs.put("k", 2)
        session.user("hello")
        docs.delete("k")
        docs.delete("k")
        with pytest.raises(Conflict):
            docs.put("k", 3, expected_version=7)
        told = [(each.kind, each.namespace, each.key, each.version) for each in store.events(start)]
        document = ("document", ("a", "b"), "k")
        assert told == [(*document, 1), (*document, 2), ("entries", "", "", 0), (*document, 0)]

    @pytest.mark.feature("C6")
    def test_documents_survive_the_store_being_closed(self, tmp_path: Path) -> None:
        with self.open(tmp_path) as store:
            if not store.capabilities.persistent:
                pytest.skip("nothing is left of a store in memory")
            put: list[Document] = [store.docs("n").put("small", {"a": 1}), store.docs("n").put("large", b"y" * _LARGE)]
            hash = store.put_content(b"content")
        with self.open(tmp_path) as store:
            assert sorted(put, key=lambda each: each.key) == list(store.docs("n").list())
            assert store.get_content(hash) == b"content"


class StoredContents(Contract):
    """Contents by their hash."""

    @pytest.mark.feature("C6")
    def test_content_is_stored_once_and_read_by_its_hash(self, store: Store) -> None:
        for data in (b"", b"x", b"z" * _LARGE):
            assert store.put_content(data) == store.put_content(data) == sha256(data).hexdigest()
            assert store.get_content(sha256(data).hexdigest()) == data
        assert store.stats().blobs == 3
        with pytest.raises(NotFound):
            store.get_content("0" * 64)
        for wrong in ("text", None, [1]):
            with pytest.raises(Invalid):
                store.put_content(wrong)  # type: ignore[arg-type]
        with pytest.raises(Invalid):
            store.get_content(b"0")  # type: ignore[arg-type]

    @pytest.mark.feature("F12")
    def test_content_that_nothing_links_is_spared_for_a_while(self, tmp_path: Path) -> None:
        clock = ManualClock()
        with self.open(tmp_path, clock=clock) as store:
            session = store.create_session("work")
            linked = b"l" * 100_000
            session.user("look", attachments=[linked])
            store.docs("n").put("k", b"d" * 100_000)
            store.docs("n").put("gone", b"g" * 100_000)
            store.docs("n").delete("gone")
            old, again = store.put_content(b"old"), store.put_content(b"again")
            clock.advance(3600_000)
            assert store.put_content(b"again") == again
            clock.advance(1)
            assert store.prune(dry_run=False).blobs == 2  # "old", and what the deleted document held
            for data in (b"again", linked, b"d" * 100_000):
                assert store.get_content(sha256(data).hexdigest()) == data
            for lost in (old, sha256(b"g" * 100_000).hexdigest()):
                with pytest.raises(NotFound):
                    store.get_content(lost)
            assert said(session) == ["look"]
            assert store.docs("n").get("k").value == b"d" * 100_000
            assert not store.verify()

    @pytest.mark.feature("F12")
    def test_a_purge_leaves_what_a_document_needs(self, store: Store, session: Session) -> None:
        data = b"shared" * 50_000
        session.user("look", attachments=[data])
        store.docs("n").put("k", data)
        store.purge_session(session.id)
        assert store.docs("n").get("k").value == data
