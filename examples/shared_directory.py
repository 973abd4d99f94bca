"""Two agents and you work in one directory. Something broke: who did what, and back to any moment of the last hour."""

import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import takeback

scratch = tempfile.TemporaryDirectory()
project, url = Path(scratch.name, "shop"), Path(scratch.name, "work.db")

AGENT = """
import subprocess, sys, takeback
url, name, project, *commands = sys.argv[1:]
with takeback.open(url) as store, store.session(name, workspace=project) as session:
    session.user(f"Do your part, {name}")
    for command in commands:
        with session.tool("bash", {"command": command}) as call:
            call.result(subprocess.run(command, shell=True, cwd=project, capture_output=True, text=True).stdout)
"""


def agent(name: str, *commands: str) -> None:
    """Run an agent in a process of its own: what it does is a list of shell commands."""
    subprocess.run([sys.executable, "-c", AGENT, url, name, project, *commands], check=True)


def files() -> dict[str, str]:
    """Return the files as they are."""
    return {path.name: path.read_text() for path in project.iterdir()}


moments: dict[datetime, dict[str, str]] = {}


def note() -> None:
    """Remember what the directory holds at this moment."""
    time.sleep(0.01)
    moments[datetime.now(UTC)] = files()
    time.sleep(0.01)


project.mkdir()
Path(project, "pool.py").write_text("size = 5\n")
with takeback.open(url) as store:
    agent("fix", "sed -i s/5/50/ pool.py")
    note()
    agent("docs", "echo '# Pool' > README.md", "sed -i s/size/count/ pool.py")
    note()
    Path(project, "notes.txt").write_text("an afternoon of mine\n")
    agent("fix", "rm README.md", "echo 'count = oops' > pool.py")
    note()

    here = store.workspace(project)
    for scan in reversed([*here.timeline()]):
        for change in scan.changes:
            print(f"{change.action:9} {change.path:9} by {change.by}")

    print("\nThe first agent, back to its beginning: what it would do and what it leaves alone")
    print(store.get_session("fix").preview_rewind(0))

    now = files()
    for moment, then in moments.items():
        plan = here.preview_rewind(moment)
        if not plan.is_empty:
            operation = plan.apply()
            assert files() == then
            store.undo(operation)
        assert files() == now
    print(f"\n{len(moments)} moments restored and undone, whoever changed what; still here: {sorted(now)}")
scratch.cleanup()
