"""Documents in a file of lines: as they were, never in the place of others, and refused where they cannot be."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from _made import read_into

import takeback
from _forged import _sealed
from takeback import Corrupt, Error, Invalid, Store
from takeback.records import lines

Lines = list[Any]
LARGE = {"text": "y" * 100_000}


def exported(store: Store, *, documents: bool = True) -> bytes:
    out = io.BytesIO()
    store.export(list(store.iter_sessions()), out, documents=documents)
    return out.getvalue()


def filled(store: Store) -> Store:
    store.create_session("talk").user("hello")
    docs = store.docs(("users", "ann"))
    docs.put("small", {"a": [1, None], "b": float("inf")})
    docs.put("small", {"a": [1, b"bytes"]})
    docs.put("bytes", b'{"$text": 1}', ttl=1000)
    docs.put("null", None)
    docs.put("large", LARGE)
    docs.put("gone", 1)
    docs.delete("gone")
    return store


@pytest.mark.feature("F9")
def test_an_export_brings_documents_if_asked(store: Store) -> None:
    wanted = list(filled(store).docs(("users", "ann")).list())
    with takeback.open(":memory:") as target:
        assert read_into(target, exported(store)).copied is not None
        assert list(target.docs(("users", "ann")).list()) == wanted
        assert not target.verify()
        assert target.docs(("users", "ann")).put("gone", 1).version == 1, "what is gone stays behind"
    with takeback.open(":memory:") as target:
        read_into(target, exported(store, documents=False))
        assert len(target.docs(("users", "ann")).list()) == 0
    with pytest.raises(Invalid, match="jsonl"):
        store.export(next(store.iter_sessions()), io.BytesIO(), format="markdown", documents=True)


@pytest.mark.feature("F9")
@pytest.mark.promise("R27")
def test_a_file_never_takes_the_place_of_a_document(store: Store) -> None:
    data = exported(filled(store))
    with takeback.open(":memory:") as target:
        docs = target.docs(("users", "ann"))
        docs.put("small", "mine")
        done = read_into(target, data).copied
        assert done is not None
        assert [each for each in done.left_out if "'small'" in each]
        assert docs.get("small").value == "mine"
        assert docs.get("large").value == LARGE
        again = read_into(target, data).copied
        assert (again.documents, again.already.documents) == (0, 3) if again else False
        store.docs(("users", "ann")).put("large", "longer ago")
        assert [each for each in read_into(target, exported(store)).copied.left_out if "'large'" in each]  # type: ignore[union-attr]
        assert docs.get("large").value == LARGE
        assert not target.verify()


def changed(found: Lines, **values: Any) -> Lines:
    """Return the lines with other values in that of the first document."""
    at = next(number for number, line in enumerate(found) if isinstance(line, lines.DocumentLine))
    return [*found[:at], msgspec.structs.replace(found[at], **values), *found[at + 1 :]]


FORGED: dict[str, Callable[[Lines], Lines]] = {
    "an empty key": lambda found: changed(found, key=""),
    "a key that is too long": lambda found: changed(found, key="k" * 1001),
    "a key with a NUL": lambda found: changed(found, key="a\0b"),
    "an empty namespace": lambda found: changed(found, namespace=""),
    "an empty part of a namespace": lambda found: changed(found, namespace="a\x1f\x1fb"),
    "version 0": lambda found: changed(found, version=0),
    "a mark without meaning": lambda found: changed(found, hidden=3),
    "gone, with a value": lambda found: changed(found, hidden=1),
    "no value": lambda found: changed(found, value=None),
    "a value that is no JSON": lambda found: changed(found, value={"$text": "{"}),
    "an escape that is unknown": lambda found: changed(found, value={"$pickle": "x"}),
    "a value longer than a row": lambda found: changed(found, value="z" * 70_000),
    "a form that is unknown": lambda found: changed(found, form="pickle"),
    "content that is not there": lambda found: changed(found, value=None, hash="0" * 64),
    "a time that no date can be": lambda found: changed(found, created_ms=1 << 60),
    "the same document twice": lambda found: [
        *found,
        next(line for line in found if isinstance(line, lines.DocumentLine)),
    ],
    "a large value that is no JSON": lambda found: [
        msgspec.structs.replace(line, form="json") if getattr(line, "key", "") == "large bytes" else line
        for line in found
    ],
}


@pytest.mark.promise("R27")
@pytest.mark.parametrize("name", FORGED)
def test_a_forged_document_is_refused_and_nothing_is_imported(store: Store, name: str) -> None:
    filled(store).docs("n").put("large bytes", b"\xff" * 100_000)
    found = [lines.decode(line) for line in exported(store).splitlines(keepends=True)][:-1]
    forged = FORGED[name](found)
    assert forged != found
    with takeback.open(":memory:") as target:
        target.docs("n").put("mine", 1)
        with pytest.raises((Corrupt, Invalid)) as caught:
            read_into(target, _sealed(forged))
        assert isinstance(caught.value, Error)
        assert [each.key for each in target.docs("n").list()] == ["mine"]
        assert len(target.docs(("users", "ann")).list()) == 0
        assert target.stats().sessions == 0
        assert not target.verify()
