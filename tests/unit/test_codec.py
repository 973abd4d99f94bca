"""Every value comes back equal, or is refused before anything is stored (R19)."""

import math
from collections import OrderedDict
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import takeback
from takeback import Corrupt, Invalid, codec

TEXT = st.text(st.characters(codec=None, exclude_categories=()))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXT | st.binary(max_size=50)
KEYS = TEXT | st.sampled_from(["$str", "$float", "$bytes", "$map", "$", "$unknown"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20
)


def same(a: Any, b: Any) -> bool:
    """Equal, with NaN equal to NaN, -0.0 not to 0.0, and 1, 1.0 and True three different things."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.mark.promise("R19")
@pytest.mark.feature("C2")
@settings(max_examples=2000, deadline=None)
@example({"$map": []})
@example({"$str": "x", "other": 1})
@example([float("nan"), -0.0, 2**63, 2**64, -(2**63) - 1, 10**400, "\ud800", "\udc00\ud800", "\0", "\u2028", b"\xff"])
@given(VALUES)
def test_every_value_comes_back(value: Any) -> None:
    try:
        data = codec.encode(value)
    except Invalid:
        assert _has_huge_integer(value)
        return
    assert same(codec.decode(data), value)
    data.decode()  # always UTF-8


def _has_huge_integer(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_has_huge_integer, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and value.bit_length() > 4096


@pytest.mark.promise("R19")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=VALUES, text=TEXT, raw=st.none() | st.binary())
def test_every_message_comes_back_from_a_store(memory: takeback.Session, content: Any, text: str, raw: bytes) -> None:
    memory.append({"role": "user", "content": content, "raw": raw, "metadata": {"text": text, "deep": [content]}})
    message = memory.messages(limit=1)[0]
    assert message.raw == raw
    assert same(message.metadata, {"text": text, "deep": [content]})
    assert same(message.content, content)


@pytest.fixture(scope="module")
def memory() -> takeback.Session:
    return takeback.open(":memory:").create_session()


@pytest.mark.promise("R19")
@pytest.mark.slow
def test_ten_megabytes_of_anything_come_back(memory: takeback.Session) -> None:
    for text in ("x" * 10_000_000, "\0" * 10_000_000, "ä\ud800" * 2_000_000, '"\\' * 4_000_000):
        memory.user(text)
        assert memory.messages(limit=1)[0].text == text


@pytest.mark.feature("E6")
def test_equal_values_have_equal_canonical_bytes() -> None:
    assert codec.canonical({"b": 1, "a": [{"y": 1, "x": 2}]}) == codec.canonical({"a": [{"x": 2, "y": 1}], "b": 1})
    assert codec.encode({"b": 1, "a": 2}) == b'{"b":1,"a":2}'


@pytest.mark.feature("E1")
@pytest.mark.parametrize("bad", [object(), {1, 2}, {1: "a"}, {None: 1}, lambda: 0, 1j, Exception(), int, 2**5000, ...])
def test_what_is_no_data_is_refused(bad: Any) -> None:
    for value in (bad, [bad], {"a": {"b": bad}}):
        with pytest.raises(Invalid):
            codec.encode(value)


@pytest.mark.promise("R19")
def test_depth_is_bounded_and_kept_up_to_the_bound() -> None:
    def nested(depth: int, kind: type) -> Any:
        value: Any = 1
        for _ in range(depth):
            value = [value] if kind is list else {"k": value}
        return value

    for kind in (list, dict):
        assert codec.decode(codec.encode(nested(codec.MAX_DEPTH, kind))) == nested(codec.MAX_DEPTH, kind)
        for depth in (codec.MAX_DEPTH + 1, 100_000):
            with pytest.raises(Invalid):
                codec.encode(nested(depth, kind))


@pytest.mark.feature("E6")
def test_subclasses_of_plain_types_are_stored_as_plain() -> None:
    class Color(StrEnum):
        RED = "red"

    class Level(IntEnum):
        HIGH = 3

    value = OrderedDict(color=Color.RED, level=Level.HIGH, pair=(1, 2))
    assert codec.encode(value) == b'{"color":"red","level":3,"pair":[1,2]}'


@pytest.mark.feature("C5")
@pytest.mark.parametrize(
    "data",
    [
        *[b"", b"{", b"nan", b'"\xff"', b"[" * 100_000],
        *[b'{"$float":1}', b'{"$float":"x"}', b'{"$bytes":"*"}', b'{"$bytes":5}', b'{"$str":"!"}'],
        *[b'{"$map":[1]}', b'{"$map":[[[],1]]}', b'{"$import":"os"}'],
    ],
)
def test_damaged_bytes_are_corrupt_never_something_else(data: bytes) -> None:
    with pytest.raises(Corrupt):
        codec.decode(data)
