"""An empty search, explained: what hid everything, and a command that finds something. No advice that was not tried."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from ..search import query, terms
from .frame import Frame

if TYPE_CHECKING:
    from .verbs.searching import TypedSearch

_SHORT, _MOST = 2, 1000
Finding = Callable[[str], "str | None"]  # the command of another query, if that finds something
NOWHERE = "the trash is not searched"


def explained(frame: Frame, asked: TypedSearch) -> str:
    """Explain an empty result: where was searched, with which filters, and the command that does find something."""
    if (reason := no_sessions(frame) or _unused(frame, asked)) is not None:
        return f"Nothing found: {reason}"
    flags = f" with {' '.join(asked.filters)}" if asked.filters else ""
    if (elsewhere := _elsewhere(asked)) is not None:
        where = f" in {asked.place}" if asked.place is not None else ""
        return f"Nothing found{where}{flags}. {elsewhere}"
    if not asked.query.wanted:
        where = "" if asked.is_of_one_session else " in any session"
        return f"Nothing found{where}{flags} ({NOWHERE})."
    advice = spelling(asked.text, lambda other: asked.finding(other, filtered=False))
    return f"Nothing found in any session ({NOWHERE}). {advice}".rstrip()


def no_sessions(frame: Frame) -> str | None:
    """Return why there is nothing to search in, and what to do; None if there is something."""
    if frame.reading is not None and frame.missing is not None:
        return f"there is no store at {frame.missing} yet. Start one: takeback new NAME"
    if frame.count()[0]:
        return None
    if frame.reading.list_sessions(trash=True, limit=1):
        return "all sessions are in the trash, which is not searched. Show them: takeback ls -a --trash"
    return "the store has no sessions yet. Start one: takeback new NAME"


def _elsewhere(asked: TypedSearch) -> str | None:
    """Search where was not searched, and return the command that finds something there."""
    if asked.place is not None and (command := asked.finding(here=False)):
        return f"Other workspaces have it: {command}"
    if not asked.branches and (command := asked.finding(branches=True)):
        return f"A branch that was left has it: {command}"
    if not asked.narrows or not asked.query.wanted:
        return None
    if command := asked.finding(filtered=False):
        return f"Without these filters there is something: {command}"
    if not asked.branches and (command := asked.finding(filtered=False, branches=True)):
        return f"Without these filters a branch that was left has it: {command}"
    return None


# ---------------------------------------------------------------------- names that nothing has


def _unused(frame: Frame, asked: TypedSearch) -> str | None:
    """Return which agent or tool of the filters does not exist, and what is near; None if all do."""
    agent = asked.agent
    if agent is not None and not frame.reading.list_sessions(agent=agent, archived=None, limit=1):
        known = {each.agent_id for each in frame.reading.list_sessions(archived=None, limit=_MOST)}
        return f"no session belongs to an agent {agent!r}{_near(agent, known)}"
    for tool in asked.tools:
        if not frame.reading.search("", tool=tool, branches=True, limit=1):
            calls = frame.reading.search("", kinds=("call", "result"), branches=True, limit=_MOST)
            return f"no tool {tool!r} was used{_near(tool, {hit.tool for hit in calls if hit.tool})}"
    return None


def _near(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else ""


# ---------------------------------------------------------------------- words that nothing has


def spelling(text: str, finding: Finding) -> str:
    """Advise on the words of a query that finds nothing anywhere."""
    runs = [run for piece in query.parse(text).pieces for run in terms.runs(piece.text)]
    if '"' in text and len(runs) > 1 and (command := finding(" ".join(runs))):
        return f"The words by themselves find something: {command}"
    words = [run for run in runs if terms.is_word(run)]
    if not words:
        return ""
    longest = max(words, key=len)
    if len(longest) <= _SHORT:
        command = finding(f"{longest}*")
        return f"Short words match only whole words. {f'Try: {command}' if command else ''}".rstrip()
    if (command := _by_a_part(longest, finding)) is not None:
        return f"Check the spelling, or try a part of the word: {command}"
    return "Check the spelling."


def _by_a_part(word: str, finding: Finding) -> str | None:
    """Return the command that finds something with the beginning of a word, as long as there is one."""
    part = word[:-2]
    while len(part) > _SHORT:
        if command := finding(part):
            return command
        part = part[: len(part) * 2 // 3]
    return None
