"""P10: how long it takes from the shell to look at what is there: to list sessions and to read one.

Each arm is a process of its own, from its start to its end. The limit is a bare Python that does nothing. Takeback is
the program as people start it, on a store with 1,000 sessions, one of which holds 200 messages. The peers have no
program for the shell; theirs is the shortest script that loads them, opens a new store and lists what is in it. Arms
take turns in random order; the fastest run of each is judged, for what makes a run slower is never the program.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter

import takeback

from . import messages
from .common import ROOT, Settings, median, say, show_ratio, show_time
from .report import Check, Section, Table

MOST = 6.0
SESSIONS, MESSAGES = 1000, 200
LIMIT = "limit: python -c pass"
_SLOW_EVERY = 5  # rounds
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


def run(settings: Settings) -> Section:
    """Fill the store, then start every arm again and again."""
    directory = settings.directory("p10")
    _fill(directory, settings.seed)
    arms, found = _arms(), dict[str, list[float]]()
    for name, command in arms.items():
        if _seconds(command, directory) is None:  # also compiles what it loads
            say(f"p10: {name} does not run here and is left out")
        else:
            found[name] = []
    for number in range(settings.pick(60, 15)):
        for name in settings.rng.sample([*found], len(found)):
            if name in _PEERS and number % _SLOW_EVERY:
                continue
            found[name].append(_seconds(arms[name], directory) or 0.0)
    for name, taken in found.items():
        ratio = min(taken) / min(found[LIMIT])
        say(f"p10: {name}: {show_time(min(taken))}, {show_ratio(ratio)} times")
    return _section(found)


def _fill(directory: Path, seed: int) -> None:
    said = messages.take(MESSAGES, seed)
    with takeback.open(directory / "store.db", durability="relaxed") as store:
        for number in range(SESSIONS - 1):
            store.create_session(f"session {number}", workspace=directory).append(*said[:2])
        store.create_session("long", workspace=directory).append(*said)


def _arms() -> dict[str, list[str]]:
    program = [sys.executable, "-m", "takeback", "--store", "store.db"]
    arms = {
        LIMIT: [sys.executable, "-c", "pass"],
        f"Takeback: ls, 50 of {SESSIONS:,}": [*program, "ls"],
        f"Takeback: show, {MESSAGES} messages": [*program, "show", "long"],
    }
    known = {name: script for name, (module, script) in _PEERS.items() if _is_installed(module)}
    return arms | {name: [sys.executable, "-c", script] for name, script in known.items()}


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def _seconds(command: list[str], directory: Path) -> float | None:
    """Return how long a process took; None if it failed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    started = perf_counter()
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, check=False)
    return perf_counter() - started if done.returncode == 0 else None


def _section(found: dict[str, list[float]]) -> Section:
    text = (
        "**How long does it take from the shell to see what is there?** Each cell is the time of a whole process and"
        f" its ratio to a bare Python. Must reach: at most {MOST:g} times a bare Python, the fastest run of each. Peers"
        " have no program of their own: theirs is a script that loads them and lists an empty store."
    )
    table, checks = Table(text, ("program", "fastest", "median")), list[Check]()
    for name, taken in found.items():
        ratio, middle = min(taken) / min(found[LIMIT]), median(taken) / median(found[LIMIT])
        cells = (
            f"{show_time(min(taken))} ({show_ratio(ratio)})",
            f"{show_time(median(taken))} ({show_ratio(middle)})",
        )
        if not name.startswith("Takeback"):
            table.add(name, *cells)
            continue
        must = f"at most {MOST:g}"
        table.add(name, *cells, must=must, reached=ratio <= MOST)
        checks.append(
            Check(f"from the shell: {name.partition(': ')[2]}", f"{show_ratio(ratio)} times", must, ratio <= MOST)
        )
    return Section("Starting from the shell", [table], checks)
