"""Lines whose hashes all fit and that say what no store has said: refused, each with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from _made import lines_of, read_into

import takeback
from _forged import _chained, _sealed
from takeback import Corrupt, Error, Invalid, Store
from takeback.records import lines

pytestmark = [pytest.mark.promise("R27"), pytest.mark.trial("T1")]

Lines = list[Any]
replace = msgspec.structs.replace


@pytest.fixture
def export(store: Store) -> Lines:
    talk = store.create_session("talk", agent="coder", title="T", tags=["a", "b"], metadata={"m": 1}, prompt="p")
    talk.user("hello")
    talk.set_tasks(["one"])
    talk.rename("Other")
    talk.user("end")
    talk.rewind(2)
    return [lines.decode(line) for line in lines_of(store, talk).splitlines(keepends=True)][:-1]


def changed(found: Lines, form: Any, **values: Any) -> Lines:
    """Return the lines with other values in those of one form."""
    made = [replace(line, **values) if isinstance(line, form) else line for line in found]
    assert made != found
    return made


THINGS: dict[str, Any] = {
    "a head that is a number": {"head": 5},
    "a head without a place": {"head": ["x"]},
    "a title that is a number": {"title": 5},
    "tags that are a number": {"tags": 5},
    "a mark without meaning": {"archived": 7},
    "a session that is purged": {"hidden": 2},
    "files that are a number": {"files": 3},
    "sub-agents nowhere": {"below": {"x": [1]}},
    "what nobody changes": {"zzz": 1},
}
FORGED: dict[str, Callable[[Lines], Lines]] = {
    **{
        f"an operation on {name}": lambda found, said=said: changed(found, lines.OperationLine, before=said, after=said)
        for name, said in THINGS.items()
    },
    "a time that no date can be": lambda found: changed(found, lines.SessionLine, created_ms=1 << 60),
    "an operation in a time that no date can be": lambda found: changed(found, lines.OperationLine, at_ms=1 << 60),
    "metadata that are a number": lambda found: changed(found, lines.SessionLine, detail={"metadata": 5}),
    "an agent whose prompt is a list": lambda found: changed(found, lines.AgentLine, fields={"system_prompt": [1]}),
    "tags without separators": lambda found: changed(found, lines.SessionLine, tags="abc"),
    "a name that moves the cursor": lambda found: changed(found, lines.SessionLine, name="\x1b[2J"),
    "a key of another form": lambda found: changed(found, lines.SessionLine, key="mine"),
    "a branch that is neither shown nor hidden": lambda found: changed(found, lines.BranchLine, hidden=9),
    "a state of work that leads in a circle": lambda found: [
        replace(line, body=None, salt=None, lost=("content", 5), totals=replace(line.totals, work_seq=2))
        if isinstance(line, lines.EntryLine)
        else line
        for line in found
    ],
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_value_is_refused_and_nothing_is_imported(export: Lines, name: str) -> None:
    with takeback.open(":memory:") as target:
        mine = target.create_session("mine")
        mine.user("here before")
        try:
            data = _sealed(_chained(FORGED[name](export)))
        except (msgspec.MsgspecError, ValueError):
            data = _sealed(FORGED[name](export))
        with pytest.raises((Corrupt, Invalid)) as caught:
            read_into(target, data)
        assert isinstance(caught.value, Error)
        assert [session.id for session in target.iter_sessions(archived=None)] == [mine.id]
        assert not target.verify()
