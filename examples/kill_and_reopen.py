"""Kill an agent in the middle of its work and reopen its store: everything acknowledged is there.

A child process plays an agent: it appends messages and, after each call has returned, writes the number to a side
file. After a moment it is killed with kill -9.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import takeback

AGENT = """
import os, sys, takeback
store = takeback.open(sys.argv[1])
session = store.find_session("fix-retry") or store.create_session("fix-retry", agent="main")
acknowledged = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
while True:
    number = session.message_count + 1
    session.user(f"message {number}")
    os.write(acknowledged, f"message {number}\\n".encode())
"""


def run_and_kill(store: Path, acknowledged: Path, seconds: float) -> None:
    """Start the agent, let it write for a while, then kill it without warning."""
    agent = subprocess.Popen([sys.executable, "-c", AGENT, str(store), str(acknowledged)])
    before = acknowledged.stat().st_size if acknowledged.exists() else 0
    while not acknowledged.exists() or acknowledged.stat().st_size == before:
        if agent.poll() is not None:
            raise SystemExit("the agent exited by itself; run make test to see why")
        time.sleep(0.005)
    time.sleep(seconds)
    agent.send_signal(signal.SIGKILL)
    agent.wait()


def main() -> int:
    """Kill three times; compare what was acknowledged with what is there."""
    with tempfile.TemporaryDirectory() as folder:
        path, acknowledged = Path(folder, "work.db"), Path(folder, "acknowledged")
        for round_number in range(1, 4):
            print(f"$ python agent.py work.db      # killed with kill -9 midway, round {round_number}")
            run_and_kill(path, acknowledged, random.uniform(0.2, 0.5))
            told = acknowledged.read_text().splitlines()
            with takeback.open(path) as store:
                session = store.find_session("fix-retry")
                assert session is not None
                found = [message.text for message in session.iter_messages()]
                report = store.verify()
            lost = len(set(told) - set(found))
            extra = len(found) - len(told)
            print(f"  acknowledged {len(told)}, found {len(found)}, lost {lost}, not yet acknowledged {extra}")
            print(f"  verify: {report}")
            in_order = found == [f"message {number}" for number in range(1, len(found) + 1)]
            if lost or report or not in_order:
                print("  this is a bug: please report it", file=sys.stderr)
                return 1
        print("\nTaking something back:")
        with takeback.open(path) as store:
            session = store.find_session("fix-retry")
            assert session is not None
            print(f"  >>> session.rewind(3)\n  {session.rewind(3)}")
            print(f"  >>> session.user('another way')\n  {session.user('another way')}")
            print(f"  >>> session.branches()\n  {session.branches()}")
            print(f"  >>> session.undo()\n  {session.undo()}")
            print(f"  >>> session\n  {session}")
            print(f"  {os.path.getsize(path) + os.path.getsize(f'{path}-wal')} bytes on disk while open")
    print("\nEverything that was acknowledged survived. Next: make test")
    return 0


if __name__ == "__main__":
    sys.exit(main())
