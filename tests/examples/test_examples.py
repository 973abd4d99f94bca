"""Every example runs as a user would run it, says what it should, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import _postgres

FOLDER = Path(__file__).parents[2] / "examples"
ALL = sorted(path.stem for path in FOLDER.glob("[!_]*.py"))
EXAMPLES = [name for name in ALL if not name.startswith("streaming_")]  # those need a provider: test_streaming.py
SLOW = {
    "anthropic_loop",
    "fleet_on_postgres",
    "kill_and_reopen",
    "openai_loop",
    "parallel_workers",
    "quick_start",
    "quick_start_async",
    "shared_directory",
    "sub_agents",
    "survive_a_crash",
}

# Patterns that must be found in the output, in this order.
SAYS = {
    "anthropic_loop": [
        "killed before deploy",
        "second process:\n  deploy failed: only people may deploy",
        "Fixed: take",
        "deploy +failed +PermissionError: only people may deploy",
        "10 messages, .*5 tool calls, 1 failed",
    ],
    "async_many_agents": ["50 agents, 10 cancelled, 40 finished", " 0 lost", "each: True", "verify: no problems"],
    "attachments": [
        "sales.csv 957,590 B> text/csv",
        "chart.png 1,032 B> image/png",
        "62,000 lines read back, same content: True",
        "picture back: True",
        "5 attachments, 3 contents stored",
        "passed on, still 3",
    ],
    "branch_and_compare": [
        "Continuing with queue:",
        "A queue in place of the list.",
        r"\[<Branch main 0..3>, <Branch lock 3..6>, <Branch queue\* 3..7>\]",
        "path:  6 messages, .*2,680 tokens",
        "spent: +8 messages, .*5,060 tokens",
        "Retry three times",
    ],
    "chat_with_memory": [
        "You started with: 'Hello, I am Anna'",
        "Who are you?",
        "You are Anna.",
        r"u-1 .*\{'name': 'Anna'\}",
        r"u-2 .*\{\}",
        r"without a scope: \[\]",
    ],
    "cron_job": [
        "10:00  2 new after issue 0",
        "10:10  0 new after issue 2",
        "10:20  the machine went down",
        r"10:30, once more  another run is in progress: process \d+ on ",
        "10:30  2 new after issue 2, after ConnectionError: the machine went down",
        r"agent:watcher:cron:new-issues: \{'seen': 4\}",
        "(?:  New issue: .*\n){4}$",
    ],
    "fleet_on_postgres": [
        "80 messages from 4 processes, followed 80, each worker's in order: True",
        "another customer finds: None, 0 sessions",
        "kept apart by: row security; verify: .*no problems",
    ],
    "idempotent_retry": [
        "reply lost, trying again",
        r"\[<Message 1 user 'Two bicycles, please'>, <Message 2 assistant 'Noted.'>\]",
        r"\{'bicycles': 2\}",
        r"\[<Task \S+ pending 'Pack two bicycles'>\]",
        "the same message again: True",
        "conflict: .*order-7 line 1",
    ],
    "kill_and_reopen": ["(?s:lost 0.*?){3}", "Everything that was acknowledged survived"],
    "openai_loop": [
        "refund .* was pending\n  ended with -9",
        "second process:\n  refund .* was (?:running|unknown)\n",
        "Refunded 19.00 to Anna and left a notice",
        "the bank got 2 requests for 1 refund",
    ],
    "own_history": [
        "search_history: .*no longer «takes» «its» «lock»",
        'file_history: .*"by": "bash of session ',
        'preview_rewind: .*"pool.py", "action": "overwrite"',
        "apply_rewind: 1 file changed",
        "\nwith lock: free.pop",
    ],
    "parallel_workers": [
        "100 reports, 100 distinct",
        "(?:  worker .: 25, in order\n){4}",
        "shared counter: 100",
        "verify: .*no problems",
        "store: 2 agents, 5 sessions, 200 messages",
    ],
    "quick_start": [
        "^Rewind ",
        "rewound to: .* tool 'run_tests",
        "undone, now: .* assistant 'It raced",
        "user +Fix the flaky test\n  assistant +Let me run it first.\n  tool +run_tests .*\n  assistant +It raced",
    ],
    "rewind_files": [
        "^Rewind from turn 2 .*\n  in .*/project\n  conversation  removes 3 messages in 1 turn, from 'Then",
        r"files +M api.py +\(changed by bash in turn 2\)\n",
        r"A notes.md .*\n +D old/ .*\n +D old/notes.md .*\n +M pool.py .*\n +m run.sh .*\n +A tests/test_pool.py ",
        "kept +! yours.py changed from outside, left alone",
        r"-retry\(0\)\n\+retry\(3\)\n",
        "<Operation rewind: .*7 paths in the workspace>",
        r"still different: \['yours.py'\]; last message: It needs more retries.",
        "undone: everything is broken again, last message: Cleaned up.",
        "redone after reopening, last message: It needs more retries.",
        r"also in the store: b'# pool.py\\nretry\(3\)\\n'",
    ],
    "shared_directory": [
        "create +README.md by bash of session 'docs'",
        "create +notes.txt by someone outside",
        "delete +README.md by bash of session 'fix'",
        "M pool.py +.changed by bash in turn 2; back to how bash of session 'docs' left it",
        "kept +! notes.txt changed from outside",
        "3 moments restored and undone",
    ],
    "sub_agents": [
        "sub-agent 'tests' was started\nsub-agent 'notes' was started",
        r"tests: completed with \{'part': 'tests', 'messages': 3\}\n",
        r"notes: completed with \{'part': 'notes', 'messages': 3\}\n",
        "0 calls open",
        r"Make version 7 ready \(boss\) active, 1040 tokens, .*\n  tests \(worker\) completed, 520 tokens, ",
        r"  notes \(worker\) completed, 520 tokens, ",
    ],
    "survive_a_crash": [
        "build is pending, attempts so far: 0\n  ended with -9",
        "interrupted in turn 1, 1 in a row",
        "partial answer: 'It builds. New is a fas'",
        "build is unknown, attempts so far: 1",
        "cut off. Go on from there",
        "New is a faster parser. completed: version 7 is built",
        "the service got 2 requests for 1 build",
    ],
    "todo_agent": [
        "at the checkpoint: 1 of 3 done; plan: Endpoint first",
        "an hour later: 1 of 4 done; plan: Rewrite",
        "after the rewind: 1 of 3 done; plan: Endpoint first",
        r"Write the page +pending\n",
        r"files: api/login.py \(created\)\n",
        "after the undo: plan: Rewrite.* 4 tasks",
        "after the redo: plan: Endpoint.* 3 tasks",
    ],
    "undo_everything": [
        r"listed: +\[\]\nin the trash: \[<Session .*'Flaky'",
        "delete +into the trash.*\n  rewind .*\n  tag .*\n  rename ",
        "out of the trash.* 1 messages, .*deleted False",
        r"2 messages, tags \(\)",
        r"2 messages, tags \('urgent', 'tests'\)",
        r"<Session .*'Fix the flaky test'",
        "Permanently: 1 session",
        "undo: there is no operation",
        r"left: \[\] \[\] \[\]",
    ],
    "usage_report": [
        "fix-retry +133,000 +14,000 +1.015 +0.750",
        "coder +142,000 +16,100 +1.021",
        "support +9,003 +180 +0.003",
        "all +151,003 +16,280 +1.024",
        "fix-retry as it stands: 4 messages, .*46,600 tokens",
    ],
    "within_the_window": [
        r"362 messages in the log; the largest request had 3,\d\d\d tokens of 4,000",
        r"9\d% of what was sent was in the cache; the prefix changed \d times",
        "pinned: Never touch the generated files",
        "left out: left out messages 2 to",
        r"## Tasks \(1 of 2 completed\)",
    ],
}
SAYS["quick_start_async"] = SAYS["quick_start"]


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in EXAMPLES])
def test_the_example_runs_says_what_it_should_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    temporary, home = tmp_path / "temporary", tmp_path / "home"
    temporary.mkdir()
    home.mkdir()
    given = {"DATABASE_URL": _postgres.new_database(name)} if name.endswith("_on_postgres") else {}
    done = subprocess.run(
        [sys.executable, "-W", "always", FOLDER / f"{name}.py"],
        cwd=home,
        env={**os.environ, "TMPDIR": str(temporary), "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", **given},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    place = 0
    for pattern in SAYS[name]:
        found = re.compile(pattern).search(done.stdout, place)
        assert found, f"{pattern!r} is not in what is left of the output:\n{done.stdout[place:]}"
        place = found.end()
    assert [*temporary.iterdir(), *home.iterdir()] == []


def test_every_example_is_expected_to_say_something_and_is_in_the_table() -> None:
    assert sorted(SAYS) == EXAMPLES
    table = (FOLDER / "README.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| \[(\w+)\.py\]\(\1\.py\) \|", table, re.M)) == ALL


@pytest.mark.parametrize("name", ALL)
def test_an_example_begins_with_the_readers_problem_and_stays_short(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text("utf-8")
    assert text.startswith('"""')
    assert len(text.splitlines()) <= 85
