"""Damage that no row's own check shows: rows that are lost, and pages in another's place."""

from collections.abc import Callable
from contextlib import suppress
from itertools import combinations, product
from pathlib import Path

import apsw
import pytest

import takeback
from takeback import Corrupt, Store

pytestmark = [pytest.mark.feature("F5"), pytest.mark.promise("R11")]
_PAGE = 4096


@pytest.fixture
def damaged(tmp_path: Path) -> Callable[..., Store]:
    """Return what makes a store, lets a statement damage its file, and opens it again."""

    def made(*statements: str) -> Store:
        path = tmp_path / "s.db"
        with takeback.open(path) as store:
            for number in range(3):
                session = store.create_session(f"talk {number}", tags=["x"])
                session.user("hello", idempotency_key=f"key {number}")
                for text in ("one", "two", "three"):
                    session.send(text)
                session.receive(limit=1)
        connection = apsw.Connection(str(path))
        for each in statements:
            connection.execute(each)
        connection.close()
        return takeback.open(path)

    return made


def test_a_message_that_is_lost_before_one_that_waits_is_noticed(damaged: Callable[..., Store]) -> None:
    with damaged("DELETE FROM inbox WHERE n = 2") as store, pytest.raises(Corrupt, match="sent is missing"):
        store.get_session("talk 0").inbox()


def test_received_messages_need_not_be_read(damaged: Callable[..., Store]) -> None:
    with damaged() as store:
        assert [each.text for each in store.get_session("talk 0").inbox()] == ["two", "three"]


def test_a_list_by_tag_is_never_shorter_for_a_lost_session(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        for number in range(3):
            store.create_session(f"talk {number}", tags=["x"]).user("hello")
        assert len(store.list_sessions(tag="x")) == 3
        # Past the references to it, as a page that was never written would do.
        store._backend._connection.pragma("foreign_keys", False)  # type: ignore[attr-defined]
        store._backend.write(lambda tx: tx.run("DELETE FROM session WHERE name = 'talk 1'"))
        with pytest.raises(Corrupt, match="a session is missing"):
            store.list_sessions(tag="x")


def test_an_index_with_another_trees_page_is_found_by_verify(tmp_path: Path) -> None:
    """SQLite's own check counts the entries of whole indexes only; a partial one hid the rows of a table."""
    path = tmp_path / "s.db"
    with takeback.open(path) as store:
        store.create_session("talk").user("hello", idempotency_key="key")
    connection = apsw.Connection(str(path))
    roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_schema").fetchall())
    connection.close()
    one, two = ((roots[name] - 1) * _PAGE for name in ("idempotency", "lease_held"))
    data = bytearray(path.read_bytes())
    data[one : one + _PAGE], data[two : two + _PAGE] = data[two : two + _PAGE], data[one : one + _PAGE]
    path.write_bytes(data)
    with takeback.open(path) as store:
        assert "lease_held" in str(store.verify().problems)


def test_totals_are_those_of_the_entry_that_was_asked_for(tmp_path: Path) -> None:
    """Where pages of one table change places, a range may begin too early, at another entry."""
    path = tmp_path / "s.db"
    with takeback.open(path) as store:
        for name in ("one", "two"):
            session = store.create_session(name)
            session.append(*({"role": "user", "content": "x" * 600} for _ in range(20)))
            session.rewind(9)
            session.user("another way")
        right = store.stats().messages
    connection = apsw.Connection(str(path))
    sql = "SELECT pageno FROM dbstat WHERE name = 'entry' AND pagetype = 'leaf' ORDER BY pageno"
    leaves = [(page - 1) * _PAGE for (page,) in connection.execute(sql)]
    connection.close()
    whole, wrong = path.read_bytes(), list[str]()
    for one, two in combinations(leaves, 2):
        data = bytearray(whole)
        data[one : one + _PAGE], data[two : two + _PAGE] = whole[two : two + _PAGE], whole[one : one + _PAGE]
        for each in tmp_path.glob("s.db*"):
            each.unlink()
        path.write_bytes(data)
        with suppress(Corrupt), takeback.open(path) as store:
            with suppress(Corrupt):
                wrong += [f"{one} {two} stats"] * (store.stats().messages != right)
            for name, seq in product(("one", "two"), range(1, 10)):
                with suppress(Corrupt):
                    if (found := store.get_session(name).stats(seq).messages) != seq:
                        wrong.append(f"{one} {two} {name} {seq}: {found}")
    assert not wrong
