"""A program that spawned a sub-agent and was killed gets the same one again, and goes on with it."""

import subprocess
import sys
from pathlib import Path

import pytest

import takeback

# Spawns a sub-agent, begins its work, and is killed while it holds both sessions.
KILLED = """
import os, signal, sys
import takeback
store = takeback.open(sys.argv[1])
boss = store.session("boss")
key = sys.argv[2] or None
with boss.spawn("dig", label="digger", idempotency_key=key).session as child:
    child.user("begun")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.trial("T56")
@pytest.mark.feature("A4", "A5")
@pytest.mark.parametrize("key", ["dig once", ""])
def test_a_killed_spawner_goes_on_with_the_same_sub_agent(tmp_path: Path, key: str) -> None:
    url = str(tmp_path / "store.db")
    died = subprocess.run([sys.executable, "-c", KILLED, url, key], capture_output=True, check=False)
    assert died.returncode == -9, died.stderr
    with takeback.open(url) as store, store.session("boss") as boss:
        if key:
            child = boss.spawn("dig", label="digger", idempotency_key=key, wait=60).session
        else:
            with pytest.raises(takeback.Conflict, match=r"children\(\) finds it by its label.*idempotency_key"):
                boss.spawn("dig", label="digger")
            (child,) = (each for each in boss.children() if each.label == "digger")
        with child:
            assert (child.resumed, [message.text for message in child.messages()]) == (True, ["begun"])
            child.complete("dug")
        assert [(each.label, each.result) for each in boss.children()] == [("digger", "dug")]
        assert not store.verify()
