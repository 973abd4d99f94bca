"""What tools read off the handles: signatures, docstrings and types, of the blocking classes and of their twins."""

from __future__ import annotations

import inspect
import pydoc
import typing
from typing import Any
from unittest.mock import create_autospec

import pytest

import takeback
from takeback import AsyncSession, Message, Session

pytestmark = [pytest.mark.trial("T51"), pytest.mark.feature("C3", "E6")]

HANDLES = [getattr(takeback, name) for name in takeback.__all__ if hasattr(takeback, f"Async{name}")]
TWINS = [getattr(takeback, f"Async{cls.__name__}") for cls in HANDLES]
FIELDS: dict[str, Any] = {
    "id": None,
    "usage": None,
    "model": None,
    "duration": None,
    "attachments": (),
    "parent_id": None,
    "metadata": None,
    "raw": None,
    "idempotency_key": None,
}


@pytest.mark.parametrize("cls", [Session, AsyncSession])
@pytest.mark.parametrize("name", ["user", "assistant", "system"])
def test_what_a_message_takes_is_in_the_signature(cls: type, name: str) -> None:
    method = getattr(cls, name)
    parameters = inspect.signature(method).parameters
    assert list(parameters)[:2] == ["self", "content"]
    assert parameters["content"].default is inspect.Parameter.empty
    by_name = {each.name: each.default for each in parameters.values() if each.kind is each.KEYWORD_ONLY}
    assert FIELDS.items() <= by_name.items()
    assert len(by_name) == len(parameters) - 2, "every other parameter is given by name"
    assert typing.get_type_hints(method)["return"] is Message


@pytest.mark.parametrize("cls", [Session, AsyncSession])
def test_append_says_what_it_takes_and_returns(cls: type) -> None:
    method = cls.append  # type: ignore[attr-defined]
    parameters = inspect.signature(method).parameters
    assert parameters["items"].kind is inspect.Parameter.VAR_POSITIONAL
    assert {"expected_revision", "idempotency_key"} <= parameters.keys()
    assert typing.get_origin(typing.get_type_hints(method)["return"]) is list
    assert "durable when this returns" in pydoc.plain(pydoc.render_doc(method))


@pytest.mark.parametrize("cls", [*HANDLES, *TWINS], ids=lambda cls: cls.__name__)
def test_every_method_of_a_handle_is_a_function_with_a_signature_and_a_docstring(cls: type) -> None:
    for name in dir(cls):
        value = inspect.getattr_static(cls, name)
        if not name.startswith("_") and callable(value):
            assert inspect.isfunction(value), name
            assert inspect.signature(value).return_annotation is not inspect.Signature.empty, name
            assert inspect.getdoc(value), name
            assert f"{name}(self" in pydoc.plain(pydoc.render_doc(value)), name


@pytest.mark.parametrize("cls", HANDLES, ids=lambda cls: cls.__name__)
def test_a_twin_takes_what_the_blocking_method_takes(cls: type) -> None:
    twin = getattr(takeback, f"Async{cls.__name__}")
    for name, value in inspect.getmembers(cls, inspect.isfunction):
        if name.startswith("_"):
            continue
        here = [(p.name, p.kind, p.default) for p in inspect.signature(value).parameters.values()]
        there = [(p.name, p.kind, p.default) for p in inspect.signature(getattr(twin, name)).parameters.values()]
        assert here == there, name


@pytest.mark.parametrize("cls", [Session, AsyncSession])
def test_a_stand_in_made_from_the_class_checks_its_calls(cls: type) -> None:
    stand_in: Any = create_autospec(cls, instance=True)
    for name in ("user", "assistant", "system"):
        said = getattr(stand_in, name)("hello", model="m", usage={"input_tokens": 1})
        if inspect.isawaitable(said):
            said.close()  # type: ignore[attr-defined]
        with pytest.raises(TypeError, match="mdoel"):
            getattr(stand_in, name)("hello", mdoel="m")
        with pytest.raises(TypeError):
            getattr(stand_in, name)()
    with pytest.raises(TypeError, match="expected"):
        stand_in.append({"role": "user", "content": "x"}, expected=3)
