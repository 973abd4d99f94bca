"""What the list says of each tool is true: what only reads changes nothing, what may be repeated changes no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from _client import Agent, everything, serving
from _samples import READING, Arguments, writing

import takeback
from takeback.tools import EFFECTS
from takeback.tools.table import TOOLS

pytestmark = pytest.mark.feature("E12", "F10")

REPEATS = [name for name, row in TOOLS.items() if row.repeats]


def files(place: Path) -> dict[str, tuple[str, int]]:
    """Read a directory, with the times of its files."""
    return {each.name: (each.read_text(), each.stat().st_mtime_ns) for each in place.iterdir()}


def with_digest(agent: Agent, tool: str, arguments: Arguments) -> Arguments:
    """Look first, where a tool takes two calls."""
    if tool == "apply_rewind":
        return {**arguments, "digest": agent.ask("preview_rewind", **arguments)["digest"]}
    if "digest" in agent.tools[tool].input_schema["properties"]:
        return {**arguments, "digest": agent.ask(tool, **arguments)["digest"]}
    return arguments


def test_what_only_reads_leaves_the_store_and_the_files_as_they_were(worked: takeback.Store, place: Path) -> None:
    with serving(worked, *EFFECTS, place=place) as agent:
        assert {*READING} == {name for name, each in agent.tools.items() if each.annotations.read_only_hint}
        before, files_before = everything(worked), files(place)
        for tool, arguments in READING.items():
            agent.ask(tool, **arguments)
            assert (tool, everything(worked), files(place)) == (tool, before, files_before)


@pytest.mark.parametrize("tool", REPEATS)
def test_what_may_be_repeated_changes_nothing_more(worked: takeback.Store, place: Path, tool: str) -> None:
    wanted = writing(worked)[tool]
    with serving(worked, *EFFECTS, place=place) as agent:
        assert agent.tools[tool].annotations.idempotent_hint
        before = everything(worked)
        arguments = with_digest(agent, tool, wanted)
        assert everything(worked) == before  # looking at what would happen is no change
        agent.ask(tool, **arguments)
        once = everything(worked), files(place)
        assert once[0] != before
        agent.call(tool, arguments)
        assert (everything(worked), files(place)) == once


def test_what_may_not_be_repeated_says_so(worked: takeback.Store, place: Path) -> None:
    with serving(worked, *EFFECTS, place=place) as agent:
        for tool, arguments in writing(worked).items():
            if tool not in REPEATS:
                assert not agent.tools[tool].annotations.idempotent_hint
                agent.ask(tool, **arguments)


def test_what_is_not_destructive_only_adds(worked: takeback.Store, place: Path) -> None:
    with serving(worked, *EFFECTS, place=place) as agent:
        for tool, arguments in writing(worked).items():
            if agent.tools[tool].annotations.destructive_hint:
                continue
            before, files_before = counted(worked), files(place)
            agent.ask(tool, **arguments)
            after = counted(worked)
            assert all(after[what] >= number for what, number in before.items())
            assert files(place) == files_before


def counted(store: takeback.Store) -> dict[str, int]:
    """Count what could be taken away: each session's entries, branches and checkpoints, and the agents' checkpoints."""
    found = {f"checkpoints of {each.id}": len(store.list_checkpoints(each)) for each in store.list_agents()}
    for each in store.iter_sessions(archived=None):
        sizes = len([*each.entries()]), len(each.branches()), len(each.checkpoints())
        found |= {f"{number} of {each.id}": size for number, size in enumerate(sizes)}
    return found
