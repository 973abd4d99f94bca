"""Every verb's output, word for word, as it was last agreed on: ``snapshots/VERB.txt``.

Each file holds commands and what they gave, on a store that all of them share. Ids, times and the places of this
machine are normalised. After a change that is meant, look at what ``TAKEBACK_SNAPSHOTS=write`` makes of the files.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from _world import ID, World

from takeback.cli.app import VERBS

pytestmark = pytest.mark.feature("F10", "A9")

FOLDER = Path(__file__).parent / "snapshots"
WRITE = os.environ.get("TAKEBACK_SNAPSHOTS") == "write"
# What is asked of each verb; a command that starts with a dash of its own is a wrong use.
COMMANDS: dict[str, list[str]] = {
    "status": ["status", "status --json"],
    "ls": ["ls", "ls -a", "ls --status error", "ls --fields name,turn_count", "ls --limit 0", "ls oauth", "ls nosuch"],
    "show": ["show oauth", "show --turns 2 --tools full", "show --md", "show nosuch", "show oauth:9"],
    "search": [
        *("search step", "search -a refund --explain", "search --in tool,task retry find", "search nosuch --since 2w"),
        *("search --limit 1 step -- -faster", "search --in messages step", "search", "search step -lock"),
    ],
    "tail": ["tail -n 2", "tail -n x"],
    "log": ["log"],
    "checkpoints": ["checkpoints", "checkpoints oauth"],
    "tree": ["tree"],
    "stats": ["stats", "stats oauth", "stats --by tool"],
    "agents": ["agents"],
    "diff": ["diff :1", "diff :1 --stat", "diff :fixed oauth:1"],
    "compare": ["compare :1", "compare"],
    "cat": ["cat :1 -- pool.py", "cat :1 -- nosuch"],
    "new": ["new nightly --agent coder", "new nightly --agent coder", "new -n other"],
    "say": ["say -s oauth Go on", "say -s oauth"],
    "task": ["task", "task -s oauth First", "task --set 9 --status completed"],
    "plan": ["plan", "plan Be quick", "plan"],
    "note": ["note It races", "note"],
    "state": ["state", "state key 1", "state key", "state nosuch"],
    "resume": ["resume", "resume oauth"],
    "checkpoint": ["checkpoint here", "checkpoint -n"],
    "timeline": ["timeline", "timeline --path new.py", "timeline --path nosuch", "timeline --since soon"],
    "rewind": [
        *("rewind :1 -n", "rewind :1", "rewind :1 -y", "rewind", "rewind :99"),
        *("rewind fix-retry:fixed -n -- pool.py", "rewind --at 2020-01-31", "rewind --at soon", "rewind :1 pool.py"),
    ],
    "fork": ["fork :1 --name try", "fork :1 --name try", "fork -n"],
    "switch": ["switch nosuch", "switch main -n"],
    "waiting": ["waiting"],
    "approve": ["approve", "approve nosuch"],
    "deny": ["deny oauth"],
    "undo": ["undo", "rename oauth Another", "undo", "undo -n", "undo oauth"],
    "redo": ["redo", "rename oauth Another", "undo", "redo", "redo nosuch"],
    "ops": ["ops", "ops --json"],
    "import": ["import nosuch", "export oauth -o a.jsonl", "import a.jsonl -n", "import a.jsonl", "import pool.py"],
    "export": [
        "export oauth --md -o a.md",
        "export oauth -o a.html --html",
        "export --here -o a.jsonl",
        "export oauth --json",
    ],
    "mirror": ["mirror -n out", "mirror out", "rm oauth", "mirror out", "mirror pool.py"],
    "run": ["run", "run -n -- make"],
    "guard": ["guard nosuch", "guard --settle x"],
    "hook": ["hook", "hook nosuch"],
    "mcp": ["mcp --port 3", "mcp --allow everything", "mcp --allow state,rewnd"],
    "rename": ["rename oauth Another", "rename oauth Again -n"],
    "tag": ["tag oauth a b"],
    "untag": ["untag oauth nosuch"],
    "pin": ["pin oauth", "ls"],
    "unpin": ["unpin oauth"],
    "archive": ["archive oauth", "ls"],
    "unarchive": ["unarchive oauth"],
    "rm": ["rm oauth -n", "rm oauth", "ls", "rm oauth"],
    "restore": ["restore oauth", "rm oauth", "restore oauth"],
    "purge": ["purge oauth", "purge oauth -y"],
    "prune": ["prune"],
    "demo": ["demo --store x.db"],
    "doctor": ["doctor -q"],
    "verify": ["verify"],
    "repair": ["repair -n"],
    "backup": ["backup -n ../copy.db"],
    "migrate": ["migrate --check"],
    "completion": ["completion powershell"],
}


def test_every_verb_has_its_snapshot() -> None:
    assert set(COMMANDS) == set(VERBS)
    assert {each.stem for each in FOLDER.glob("*.txt")} == set(VERBS)


@pytest.mark.parametrize("verb", COMMANDS)
def test_the_output_is_what_was_agreed_on(work: World, verb: str) -> None:
    parts = []
    for command in COMMANDS[verb]:
        ran = work.run(*command.split())
        parts.append(f"$ takeback {command}\n{_shown(work, ran.out, '')}{_shown(work, ran.err, '! ')}= {ran.code}\n")
    found, file = "\n".join(parts), FOLDER / f"{verb}.txt"
    if WRITE:
        FOLDER.mkdir(exist_ok=True)
        file.write_text(found, "utf-8")
    assert found == file.read_text("utf-8")


def _shown(work: World, text: str, mark: str) -> str:
    """Write what a command gave, each line behind a mark, without what differs from run to run."""
    for pattern, instead in (
        (re.escape(str(work.project.parent)), "<folder>"),
        (r'"(total_bytes|bytes)": \d+|[\d.]+ MB', "<size>"),
        (ID.pattern, "<id>"),
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+Z| [+-]\d{4}|)", "<time>"),
        (r"in \d+\.\d+ s", "in <seconds>"),
        (r"\b\d+h \d+m\b", "<hours>"),
        (r"[\d,]+ bytes", "<size>"),
        (r"--cursor \S+", "--cursor <cursor>"),
        (r'"(checksum|hash)": "[0-9a-f]+"', r'"\1": "<hash>"'),
        (r"\b\d+[smhd] ago\b|\bnow\b", "<ago>"),
        (r"(<id>) +(\d+[smhd]|<ago>) ", r"\1  <age> "),
    ):
        text = re.sub(pattern, instead, text)
    return "".join(f"{mark}{line}\n" for line in text.splitlines())
