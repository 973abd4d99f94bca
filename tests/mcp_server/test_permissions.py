"""What was not allowed is not there: not listed, refused when it is called all the same, and without any effect."""

from __future__ import annotations

from pathlib import Path

import pytest
from _client import everything, serving
from _samples import READING, writing

import takeback
from takeback.tools import EFFECTS
from takeback.tools.table import TOOLS

pytestmark = pytest.mark.feature("E12", "F10")


def test_without_a_permission_nothing_can_be_changed(worked: takeback.Store, place: Path) -> None:
    wanted = writing(worked)
    before = everything(worked)
    with serving(worked, place=place) as agent:
        assert {*agent.tools} == {*READING}
        assert {*wanted} == {*TOOLS} - {*READING}
        for tool, arguments in wanted.items():
            digest = {"digest": "0" * 16} if tool == "apply_rewind" else {}
            said = agent.refused(tool, **arguments, **digest)
            assert f"{tool} failed (not_allowed)" in said
            assert f"takeback mcp --allow {TOOLS[tool].effect}" in said
            assert everything(worked) == before


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_permission_offers_just_its_tools(worked: takeback.Store, place: Path, effect: str) -> None:
    with serving(worked, effect, place=place) as agent:
        own = {name for name, row in TOOLS.items() if row.effect == effect}
        assert own
        assert {*agent.tools} == {*READING} | own
        for tool in {*TOOLS} - {*agent.tools}:
            assert "not_allowed" in agent.refused(tool)


def test_a_permission_never_comes_from_what_is_stored_or_from_arguments(worked: takeback.Store, place: Path) -> None:
    worked.save_agent("coder", state={"allow": [*EFFECTS]}, config={"allow": [*EFFECTS]})
    before = everything(worked)
    with serving(worked, place=place) as agent:
        for name in ("set_state", "SET_STATE", " set_state", "set_state\0", "tools/set_state", "__init__", "call"):
            agent.refused(name, session="fix-retry", values={"a": 1}, allow=[*EFFECTS])
    assert everything(worked) == before
