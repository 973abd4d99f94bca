"""Hostile ids, names, queries and paths are data or ``Invalid``; nothing happens outside the store (R20)."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import _postgres
import takeback
from takeback import Session, Store
from takeback.testing import awaited
from takeback.testing.elsewhere import session_elsewhere

HOSTILE = [
    *["", " ", ".", "..", "../../etc/passwd", "/etc/passwd", "a/b", "a\\b", "C:\\x", "~", "~root", "$HOME", "`id`"],
    *[
        "; rm -rf /",
        "'",
        '"',
        "''",
        "' OR '1'='1",
        "'; DROP TABLE session; --",
        "1; SELECT 1",
        "%",
        "_",
        "%%",
        "*",
        "?",
    ],
    *["a:b", "agent:x:main", "agent:a:subagent:1:main", "@", "@-1", "x:12", "x:12^", "x:e3", "REF/branch", "#", "a b"],
    *["\0", "a\0b", "\n", "\r\n", "\t", "\x1b[31m", "\x1b]0;x\x07", "\u202e", "\u200b", "\ufeff", "\u2028", "\ud800"],
    *[
        "ä",
        "a\u0308",
        "日本語",
        "🦊",
        "x" * 300,
        "x" * 100_000,
        "null",
        "None",
        "true",
        "0",
        "-1",
        "1e9",
        "NaN",
        "{}",
        "[]",
    ],
    *["$.a", "a.b", "MATCH", "NEAR(a b)", '"a" AND "b"', "LIKE", "\\", "file:x?mode=rw", "CON", "nul", "-rf", "--help"],
]

CALLS: dict[str, Callable[[Store, Session, Any], Any]] = {
    "create_session": lambda store, session, text: store.create_session(text),
    "agent": lambda store, session, text: store.create_session(agent=text),
    "workspace": lambda store, session, text: store.create_session(workspace=text),
    "title": lambda store, session, text: store.create_session(title=text),
    "kind": lambda store, session, text: store.create_session(kind=text),
    "get_session": lambda store, session, text: store.get_session(text),
    "find_session": lambda store, session, text: store.find_session(text),
    "delete_session": lambda store, session, text: store.delete_session(text),
    "restore_session": lambda store, session, text: store.restore_session(text),
    "list_sessions": lambda store, session, text: store.list_sessions(cursor=text),
    "events": lambda store, session, text: list(store.events(after=text)),
    "scoped": lambda store, session, text: store.scoped(text).create_session("x").user("y"),
    "role": lambda store, session, text: session.append({"role": text, "content": "x"}),
    "content": lambda store, session, text: session.user(text),
    "message id": lambda store, session, text: session.user("x", id=text),
    "model": lambda store, session, text: session.user("x", model=text, parent_id=text),
    "metadata": lambda store, session, text: session.user("x", metadata={text: text}),
    "extra": lambda store, session, text: session.append({"role": "user", text: text}),
    "idempotency_key": lambda store, session, text: session.user("x", idempotency_key=text),
    "message": lambda store, session, text: session.message(text),
    "fork": lambda store, session, text: session.fork(name=text),
    "switch": lambda store, session, text: session.switch(text),
    "undo": lambda store, session, text: session.undo(text),
}


OPENERS: dict[str, Callable[[Path], Any]] = {
    "file": lambda place: takeback.open(place / "s.db", durability="relaxed"),
    "awaited file": lambda place: awaited.open(place / "s.db", durability="relaxed"),
    "memory": lambda place: takeback.open(":memory:"),
    "postgres": lambda place: takeback.open(_postgres.app_url("hostile"), scope=str(place)),  # a scope is cheap to make
    "awaited postgres": lambda place: awaited.open(_postgres.app_url("hostile"), scope=str(place)),
}


@pytest.fixture(params=OPENERS)
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    (tmp_path / "inside").mkdir()
    with OPENERS[request.param](tmp_path / "inside") as store:
        yield store


@pytest.mark.promise("R20")
@pytest.mark.feature("D1", "C5")
@pytest.mark.parametrize("call", CALLS)
def test_hostile_text_is_data_or_refused(store: Store, tmp_path: Path, call: str) -> None:
    assert len(set(HOSTILE)) >= 60
    session = store.create_session("victim", agent="tester")
    session.user("kept")
    for text in HOSTILE:
        with contextlib.suppress(takeback.Invalid, takeback.NotFound, takeback.Conflict):
            CALLS[call](store, session, text)
    assert session.messages()[0].text == "kept"
    assert not store.verify(), str(store.verify())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["inside"]
    assert {p.name.removeprefix("s.db") for p in (tmp_path / "inside").iterdir()} <= {
        *["", "-wal", "-shm", "-open", "-lock", "-ballast"]
    }


@pytest.mark.promise("R20")
@pytest.mark.feature("C6", "E6")
def test_every_backend_gives_the_same_answer_to_hostile_text(tmp_path: Path) -> None:
    answers = []
    for url in (tmp_path / "s.db", _postgres.app_url(tmp_path)):
        with takeback.open(url) as store:
            session = store.create_session("victim", agent="tester")
            answers.append([(call, text, _answer(store, session, call, text)) for call in CALLS for text in HOSTILE])
    assert answers[0] == answers[1]


def _answer(store: Store, session: Session, call: str, text: str) -> Any:
    try:
        CALLS[call](store, session, text)
    except takeback.Error as error:
        return type(error).__name__
    return "done"


@pytest.mark.promise("R20")
@pytest.mark.feature("C5")
def test_hostile_text_comes_back_as_it_was(store: Store) -> None:
    session = store.create_session()
    for text in HOSTILE:
        session.user(text, metadata={"k": text})
        message = session.messages(limit=1)[0]
        assert (message.text, message.metadata) == (text, {"k": text})
        try:
            name = session_elsewhere(store, text, workspace=text).name
        except takeback.Invalid:
            continue
        found = store.find_session(text, workspace=text)
        assert found is not None
        assert found.name == name == text


@pytest.mark.promise("R20")
@pytest.mark.feature("C5")
@pytest.mark.parametrize("wrong", [None, 5, b"x", [], {}, object(), True, 1.5])
def test_things_that_are_no_text_are_refused(store: Store, wrong: Any) -> None:
    session = store.create_session("victim")
    calls = [
        lambda: store.get_session(wrong),
        lambda: store.find_session(wrong),
        lambda: store.create_session(agent=wrong),
        lambda: session.message(wrong),
        lambda: session.switch(wrong),
        lambda: session.append({"role": wrong}),
    ]
    for call in calls:
        with pytest.raises(takeback.Invalid):
            call()
    for number in ("5", -1, 1.5, True, 2**70):
        with pytest.raises(takeback.Invalid):
            session.messages(limit=number)  # type: ignore[arg-type]
        with pytest.raises(takeback.NotFound if number == "5" else takeback.Invalid):
            session.stats(at=number)  # type: ignore[arg-type]


@pytest.mark.feature("C5")
@pytest.mark.parametrize(
    "usage",
    [
        *[5, "x", {"nosuch": 1}, {"cost": float("nan")}, {"cost": -1}, {"cost": "1"}],
        *[{"input_tokens": -1}, {"input_tokens": 1.5}, {"input_tokens": 2**60}, {"input_tokens": True}],
    ],
)
def test_usage_that_is_no_usage_is_refused(store: Store, usage: Any) -> None:
    session = store.create_session()
    with pytest.raises(takeback.Invalid):
        session.user("x", usage=usage)
    assert session.refresh().message_count == 0


@pytest.mark.feature("C5")
@pytest.mark.parametrize("duration", [-1, float("inf"), float("nan"), "5", True, 1e12])
def test_a_duration_that_is_none_is_refused(store: Store, duration: Any) -> None:
    session = store.create_session()
    with pytest.raises(takeback.Invalid):
        session.user("x", duration=duration)


@pytest.mark.feature("C5")
def test_every_error_says_what_to_do() -> None:
    public = [getattr(takeback, name) for name in takeback.__all__]
    errors = [each for each in public if isinstance(each, type) and issubclass(each, takeback.Error)]
    assert len({error.code for error in errors}) == len(errors) == 13
    for error in errors:
        assert str(error()) == error.__doc__
        assert len(str(error())) > 40


@pytest.mark.feature("C5")
@pytest.mark.parametrize(
    "fields", [{"model": 5}, {"parent_id": []}, {"id": 5}, {"id": ""}, {"raw": "text"}, {"metadata": []}]
)
def test_a_field_of_the_wrong_type_is_refused_before_it_is_stored(store: Store, fields: dict[str, Any]) -> None:
    session = store.create_session()
    with pytest.raises(takeback.Invalid):
        session.user("x", **fields)
    with pytest.raises(takeback.Invalid):
        session.append({"role": "user", **fields})
    assert session.messages() == []
