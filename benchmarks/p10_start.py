"""P10: what a process costs that does one thing: a verb from the shell, an event of a hook, one append by a script.

Each arm is a process of its own, from its start to its end; its processor time counts, for that is what it costs a
machine that does other things too. The limit is a bare Python that does nothing. Takeback is the program as people
start it, on a store with 1,000 sessions, one of which holds 200 messages. The peers have no program for the shell;
theirs is the shortest script that loads them, opens a new store and lists what is in it. Arms take turns in random
order; the fastest run of each is judged, for what makes a run slower is never the program.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import takeback

from . import messages
from .common import ROOT, Settings, median, say, show_ratio, show_time
from .report import Check, Section, Table

LOOK, MOST = 5.0, 7.0  # times the limit: for ls, show and search, and for everything else
SESSIONS, MESSAGES = 1000, 200
LIMIT = "limit: python -c pass"
_SLOW_EVERY = 5  # rounds
_APPEND = """import takeback
with takeback.open("../script.db") as store:
    (store.find_session("one") or store.create_session("one")).user("hello")"""
_PEERS = {
    "agno SqliteDb": (
        "agno.db.sqlite",
        "from agno.db.sqlite import SqliteDb; SqliteDb(db_file='agno.db').get_sessions(limit=50)",
    ),
    "LangGraph SqliteSaver": (
        "langgraph.checkpoint.sqlite",
        """from langgraph.checkpoint.sqlite import SqliteSaver
with SqliteSaver.from_conn_string('langgraph.db') as saver: list(saver.list(None, limit=50))""",
    ),
    "OpenAI Agents SQLiteSession": (
        "agents",
        """import asyncio; from agents import SQLiteSession
asyncio.run(SQLiteSession('s', 'agents.db').get_items(limit=50))""",
    ),
    "Google ADK SqliteSessionService": (
        "google.adk.sessions",
        """import asyncio; from google.adk.sessions.sqlite_session_service import SqliteSessionService
asyncio.run(SqliteSessionService('adk.db').list_sessions(app_name='a', user_id='u'))""",
    ),
}


class Arm(NamedTuple):
    """A process: its command, what it must reach, and what it is given on stdin."""

    command: list[str]
    most: float | None = None
    given: str = ""


def run(settings: Settings) -> Section:
    """Fill the store, then start every arm again and again."""
    directory = settings.directory("p10")
    _fill(directory, settings.seed)
    arms, found = _arms(directory), dict[str, list[float]]()
    for name, arm in arms.items():
        if _seconds(arm, directory / "work") is None:  # also compiles what it loads
            say(f"p10: {name} does not run here and is left out")
        else:
            found[name] = []
    for number in range(settings.pick(60, 15)):
        for name in settings.rng.sample([*found], len(found)):
            if name in _PEERS and number % _SLOW_EVERY:
                continue
            found[name].append(_seconds(arms[name], directory / "work") or 0.0)
    for name, taken in found.items():
        ratio = min(taken) / min(found[LIMIT])
        say(f"p10: {name}: {show_time(min(taken))}, {show_ratio(ratio)} times")
    return _section(arms, found)


def _fill(directory: Path, seed: int) -> None:
    said, work = messages.take(MESSAGES, seed), directory / "work"
    work.mkdir()
    with takeback.open(directory / "store.db", durability="relaxed") as store:
        for number in range(SESSIONS - 1):
            store.create_session(f"session {number}", workspace=work).append(*said[:2])
        store.create_session("long", workspace=work).append(*said)


def _arms(directory: Path) -> dict[str, Arm]:
    program = [sys.executable, "-m", "takeback", "--store", "../store.db"]
    event = {"session_id": "bench", "cwd": str(directory / "work"), "transcript_path": ""}
    event |= {"hook_event_name": "UserPromptSubmit", "prompt": "Fix it"}
    arms = {
        LIMIT: Arm([sys.executable, "-c", "pass"]),
        f"Takeback: ls, 50 of {SESSIONS:,}": Arm([*program, "ls"], LOOK),
        f"Takeback: show, {MESSAGES} messages": Arm([*program, "show", "long"], LOOK),
        f"Takeback: search, {SESSIONS:,} hits": Arm([*program, "search", "session"], LOOK),
    }
    for verb in ("log long", "stats long", "tree long", "status", "say long hello", "rename long title"):
        arms[f"Takeback: {verb.partition(' ')[0]}"] = Arm([*program, *verb.split()], MOST)
    arms["Takeback: an event of a hook"] = Arm([*program, "hook", "claude-code"], MOST, json.dumps(event))
    arms["Takeback: import, open, append, close"] = Arm([sys.executable, "-c", _APPEND], MOST)
    known = {name: script for name, (module, script) in _PEERS.items() if _is_installed(module)}
    return arms | {name: Arm([sys.executable, "-c", script]) for name, script in known.items()}


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def _seconds(arm: Arm, directory: Path) -> float | None:
    """Return the processor time of a process; None if it failed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    quiet = subprocess.DEVNULL
    started = subprocess.Popen(
        arm.command, cwd=directory, env=environment, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet
    )
    assert started.stdin is not None
    started.stdin.write(arm.given.encode())
    started.stdin.close()
    _, status, used = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime if started.returncode == 0 else None


def _section(arms: dict[str, Arm], found: dict[str, list[float]]) -> Section:
    text = (
        "**What does it cost to start a process for one thing?** Each cell is the processor time of a whole process and"
        f" its ratio to a bare Python. Must reach: at most {LOOK:g} times a bare Python for `ls`, `show` and `search`,"
        f" at most {MOST:g} for everything else, the fastest run of each. Peers have no program of their own: theirs is"
        " a script that loads them and lists an empty store."
    )
    table, checks = Table(text, ("program", "fastest", "median")), list[Check]()
    for name, taken in found.items():
        ratio, middle = min(taken) / min(found[LIMIT]), median(taken) / median(found[LIMIT])
        cells = (
            f"{show_time(min(taken))} ({show_ratio(ratio)})",
            f"{show_time(median(taken))} ({show_ratio(middle)})",
        )
        most = arms[name].most
        if most is None:
            table.add(name, *cells)
            continue
        must = f"at most {most:g}"
        table.add(name, *cells, must=must, reached=ratio <= most)
        checks.append(
            Check(f"from the start: {name.partition(': ')[2]}", f"{show_ratio(ratio)} times", must, ratio <= most)
        )
    return Section("Starting a process", [table], checks)
