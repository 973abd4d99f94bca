"""Values leave the process: as dicts, pickles, copies and what msgspec writes, and come back equal.

Every public class is a value, a handle or an error; a new one that is neither here nor there fails.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import pickle
import subprocess
import sys
import types
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

import takeback
from takeback import Attachment, Capture, Hit, Hits, Invalid, Message, Page, Repair, Resolved, Spawned, Written
from takeback.context.value import RepairNote
from takeback.model import Bound, Portable

pytestmark = [pytest.mark.trial("T50"), pytest.mark.feature("C3")]

PUBLIC = [getattr(takeback, name) for name in takeback.__all__ if inspect.isclass(getattr(takeback, name))]
HANDLES = [cls for cls in PUBLIC if issubclass(cls, Bound)]
CARRIERS = [Resolved, Spawned]  # they hold a handle: a dict shows it, and nothing makes it again
VALUES = [cls for cls in PUBLIC if not issubclass(cls, Bound | BaseException) and cls not in CARRIERS]
# msgspec cannot tell which class an item is of, and knows a subclass of str as text alone; ``from_dict`` can.
MIXED = [Page, Hits, Written, Repair]
TEXTS = ["", "plain", "zwölf € \u200d", "\ud800 half", "a\nb\0c", '{"$bytes": "x"}']
ANY = [None, True, 0.5, float("nan"), -1, 2**70, "t", b"\xff\0", [1, [2]], {"$float": "x"}, {"a": {"b": [b"c"]}}]


def _samples(hint: Any, depth: int = 0) -> list[Any]:
    """Make a few values of a declared type."""
    if hint in (Any, object):
        return ANY
    if hint in _PLAIN:
        return _PLAIN[hint]
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, types.UnionType):
        return [each for one in inner for each in _samples(one, depth)]
    if kind is tuple and inner[1:] != (...,):
        return [tuple(_samples(one, depth)[-1] for one in inner)]
    if kind in (tuple, list):
        return [kind(), kind(() if depth > 1 else _samples(inner[0], depth + 1))]
    if kind is dict:
        return [{}, {f"k{at}": each for at, each in enumerate(_samples(inner[1], depth + 1))}]
    if isinstance(hint, TypeVar):
        return [None]
    return _values(kind or hint, depth + 1)


_PLAIN: dict[Any, list[Any]] = {
    str: TEXTS,
    int: [0, 1, 1_767_225_600_123],
    float: [0.0, 1.5],
    bool: [False, True],
    bytes: [b"", b"\0\xff text"],
    type(None): [None],
    datetime: [datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)],
}


def _values(cls: type, depth: int = 0) -> list[Any]:
    if cls in _MADE:
        return _MADE[cls]()
    fields = getattr(cls, "__struct_fields__", None) or cls._fields  # type: ignore[attr-defined]
    hints = get_type_hints(cls)
    columns = {name: _samples(hints[name], depth) for name in fields if not name.startswith("_")}
    most = 2 if depth > 1 else max(map(len, columns.values()))
    return [cls(**{name: given[at % len(given)] for name, given in columns.items()}) for at in range(most)]


def _messages() -> list[Message]:
    with takeback.open(":memory:") as store:
        s = store.create_session("s")
        s.user("text")
        s.assistant("", id="own", model="m", usage={"input_tokens": 3, "output_tokens": 1}, duration=0.25)
        s.user([{"type": "text", "text": "part"}], metadata={"b": b"\xff", "n": float("inf")}, raw=b"\xffno json")
        s.user("with", attachments=[b"bytes", {"url": "https://example.org/x.png"}])
        s.append({"role": "user", "content": "\ud800", "own": [1]})
        use = {"type": "tool_use", "id": "t1", "name": "ls", "input": {"p": "."}}
        s.append({"role": "assistant", "content": [{"type": "text", "text": "I look"}, use]})
        result = {"type": "tool_result", "tool_use_id": "t1", "content": "a b", "is_error": False}
        s.append({"role": "user", "content": [result]})
        long = "a text that is long enough to be found in the value"
        s.append(takeback.Native({"in": {"side": long}}, role="user", text=long, created_at=_PLAIN[datetime][0]))
        inner = {"m": {"role": "user", "content": [{"type": "text", "text": "inside"}]}}
        s.append(takeback.Native(inner, role="user", form="anthropic", pointer="/m", origin="harness"))
        with s.tool("count", {"n": 1}) as running:
            running.result({"n": 2})
        return [*s.messages(), Message("branch", 9, 1, 0, None)]


_MADE: dict[type, Callable[[], list[Any]]] = {
    Message: _messages,
    Written: lambda: [Written((*_messages()[:2], _values(takeback.Custom)[0]), 7, "main"), Written((), 0, "")],
    Page: lambda: [Page([], None), Page(["a", 1, None], "next", ("broken",))],
    Hits: lambda: [Hits([], None), Hits(_values(Hit), "next", exact=False, notes=("said",))],
    Repair: lambda: [Repair(each) for each in _values(RepairNote)],
    Capture: lambda: [Capture(), Capture("turns", largest_file=1, ignore=("*.o",))],
}


def _there_and_back(value: Any) -> list[Any]:
    cls = type(value)
    return [
        cls.from_dict(json.loads(json.dumps(value.to_dict()))),
        pickle.loads(pickle.dumps(value)),
        copy.copy(value),
        copy.deepcopy(value),
    ]


def _is_like(a: Any, b: Any) -> bool:
    """Whether two values are equal; a NaN, which equals nothing, is compared by the dict."""
    return (a == b or "nan" in repr(a.to_dict())) and a.to_dict() == b.to_dict() and type(a) is type(b)


@pytest.mark.parametrize("cls", VALUES, ids=lambda cls: cls.__name__)
def test_every_value_leaves_the_process_and_comes_back_equal(cls: type) -> None:
    samples = _values(cls)
    assert samples
    for value in samples:
        plain = value.to_dict()
        assert json.loads(json.dumps(plain, allow_nan=False)) == plain, "plain JSON data"
        for other in _there_and_back(value):
            assert _is_like(value, other), (value, other)
            assert value != other or _hash(value) == _hash(other)


def _hash(value: Any) -> int | None:
    try:
        return hash(value)
    except TypeError:  # it holds a dict or a list
        return None


@pytest.mark.parametrize("cls", [cls for cls in VALUES if cls not in MIXED], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("form", [msgspec.json, msgspec.msgpack], ids=["json", "msgpack"])
def test_msgspec_writes_and_reads_every_value(cls: type, form: Any) -> None:
    for value in _values(cls):
        if _is_beyond_msgspec(value):
            continue
        assert _is_like(value, form.decode(form.encode(value), type=cls))


def _is_beyond_msgspec(value: Any) -> bool:
    """Whether a value holds what JSON and msgpack have no form for; ``to_dict`` escapes it."""
    text = json.dumps(value.to_dict())
    keeps_bytes = isinstance(value, Message | takeback.Entry | takeback.FileState)
    marks = ['"$str"'] if keeps_bytes else ['"$str"', '"$bytes"', '"$float"', '"$map"', str(2**70)]
    return any(mark in text for mark in marks)


def test_every_public_class_is_a_value_a_handle_or_an_error() -> None:
    for cls in VALUES:
        for name in ("to_dict", "from_dict"):
            assert callable(getattr(cls, name, None)), f"{cls.__name__} has no {name}: derive it from model.Portable"
    for cls in HANDLES:
        assert not issubclass(cls, Portable), cls
    assert takeback.Session in HANDLES
    assert takeback.AsyncSession in HANDLES
    assert takeback.Store in HANDLES
    assert takeback.Agent in HANDLES


def test_a_message_that_left_the_process_says_everything_elsewhere(tmp_path: Path) -> None:
    """In a process of its own, where nothing of this package has been loaded before."""
    messages = _messages()
    (tmp_path / "pickled").write_bytes(pickle.dumps(messages))
    code = "import json, pickle; print(json.dumps([m.to_dict() for m in pickle.load(open('pickled', 'rb'))]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [each.to_dict() for each in messages]


def test_an_attachment_that_left_its_store_says_what_it_is_and_where_to_read_it(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        session = store.create_session("s")
        message = session.user("see", attachments=[{"data": b"chart", "name": "chart.png"}])
        left = pickle.loads(pickle.dumps(message))
        assert left.attachments == message.attachments
        assert left.attachments[0].name == "chart.png"
        with pytest.raises(takeback.Unsupported, match="left the store"):
            left.attachments[0].read()
        assert copy.deepcopy(message).attachments[0].read() == b"chart", "a copy in this process still reads"
        # Where the content is, the attachment is known by its hash, from whatever dict it came.
        again = session.user("again", attachments=[Attachment.from_dict(message.attachments[0].to_dict())])
        assert again.attachments[0].read() == b"chart"
        assert session.append(left)[0].attachments[0].read() == b"chart"
    with takeback.open(tmp_path / "other.db") as store, pytest.raises(takeback.NotFound):
        store.create_session().user("x", attachments=[left.attachments[0]])


def test_an_attachment_read_by_tasks_leaves_the_process_too(tmp_path: Path) -> None:
    async def go() -> None:
        async with takeback.aopen(tmp_path / "s.db") as store:
            session = await store.create_session("s")
            message = await session.user("see", attachments=[b"chart"])
            assert await message.attachments[0].read() == b"chart"
            left = pickle.loads(pickle.dumps(message))
            assert left == message
            assert left.attachments[0].to_dict() == message.attachments[0].to_dict()
            with pytest.raises(TypeError, match="bound to an open store"):
                pickle.dumps(message.attachments[0])

    asyncio.run(go())


@pytest.mark.parametrize(
    ("cls", "given", "said"),
    [
        (takeback.Task, "no dict", "not from str"),
        (takeback.Task, {}, "'description', which is missing"),
        (takeback.Task, {"description": "x", "more": 1}, "no field 'more'"),
        (takeback.Task, {"description": 3}, "Task.description: Expected `str`"),
        (takeback.Note, {"seq": 1, "text": "t", "task": None, "created_at": "yesterday"}, "Note.created_at must be"),
        (takeback.Note, {"seq": 1, "text": "t", "task": None, "created_at": "2026-01-01T00:00:00"}, "with its zone"),
        (takeback.Report, {"problems": [3], "checked": 1}, "not from int"),
        (takeback.ToolCall, {"id": "a", "name": "b", "arguments": {"$bytes": "!"}}, "damaged"),
        (takeback.Message, {"seq": 1}, "'branch', which is missing"),
        (takeback.Capture, {"mode": "sometimes"}, "capture must be"),
    ],
)
def test_a_dict_that_is_no_value_is_refused_with_the_reason(cls: Any, given: Any, said: str) -> None:
    with pytest.raises(Invalid, match=said.replace("(", r"\(")):
        cls.from_dict(given)


def test_a_page_knows_its_items_again_by_their_class() -> None:
    page = Page([takeback.Task("one"), takeback.Task("two", "completed", "t2")], "next")
    plain = page.to_dict()
    assert plain["items"][1] == {"description": "two", "status": "completed", "id": "t2"}
    assert Page.from_dict(plain, takeback.Task) == page
    assert Page.from_dict(plain).items[0] == plain["items"][0]
    assert Page.from_dict(plain, takeback.Task) != Page(page.items, None)


def test_handles_say_that_they_stay_and_what_to_pass(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "s.db") as store:
        session = store.create_session("s", workspace=tmp_path)
        handles = [store, store.create_agent("a"), session, session.state, store.workspace(tmp_path), session.tool("t")]
        for handle in (*handles, store.spawn("task")):
            for leave in (pickle.dumps, copy.deepcopy):
                with pytest.raises(TypeError, match=r"bound to an open store.*pass its id"):
                    leave(handle)
        shown = store.spawn("another").to_dict()
        assert shown["session"]["id"] == store.get_session(shown["session_key"]).id
        assert store.resolve("s").to_dict()["session"] == session.to_dict()
        assert json.dumps([session.to_dict(), store.get_agent("a").to_dict()])
