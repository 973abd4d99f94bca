"""Objects of SDKs and of people give their data, whole and in order; what is no data is refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec
import pydantic
import pytest

from takeback import Invalid
from takeback import providers as forms


class Answer(pydantic.BaseModel):
    size: int
    unit: str = "cm"


class Point(msgspec.Struct):
    x: int
    label: Any = None


@dataclass
class Pair:
    left: Any
    right: bytes = b"\xff"


class OldObject:
    def to_dict(self) -> dict[str, Any]:
        return {"inner": Point(1)}


@pytest.mark.feature("C2")
@pytest.mark.parametrize(
    ("item", "wanted"),
    [
        (Answer(size=5), {"size": 5, "unit": "cm"}),
        (Point(1, Answer(size=5)), {"x": 1, "label": {"size": 5, "unit": "cm"}}),
        (Pair(Point(1)), {"left": {"x": 1, "label": None}, "right": b"\xff"}),
        (MappingProxyType({"b": Point(1), "a": 1}), {"b": {"x": 1, "label": None}, "a": 1}),
        (OldObject(), {"inner": {"x": 1, "label": None}}),
        ((1, Answer(size=5)), [1, {"size": 5, "unit": "cm"}]),
    ],
    ids=lambda given: type(given).__name__,
)
def test_objects_give_their_data(item: object, wanted: object) -> None:
    data = forms.plain({"of": [item]})["of"][0]
    assert data == wanted
    if isinstance(item, Mapping):
        assert list(data) == list(item)


class Broken:
    def to_dict(self) -> dict[str, Any]:
        raise KeyError("broken")


@pytest.mark.feature("C2")
@pytest.mark.parametrize("item", [object(), Answer, {"a": {1, 2}}, Broken(), iter([1]), Pair(object())])
def test_what_is_no_data_is_refused_with_its_type(item: object) -> None:
    with pytest.raises(Invalid, match=r"object|Answer|set|Broken|list_iterator"):
        forms.plain(item)


@pytest.mark.feature("C2")
def test_endless_data_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    pair = Pair(None)
    pair.left = pair
    for item in (endless, pair):
        with pytest.raises(Invalid, match="deep"):
            forms.plain(item)
