"""resume, stats, agents, tail, verify, repair, migrate, completion."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest
from _world import World

import takeback
from takeback import Usage

pytestmark = pytest.mark.feature("F10")


# ---------------------------------------------------------------------- resume


def test_resume_says_where_it_stopped_and_what_is_open(work: World) -> None:
    with work.open() as store:
        s = store.session("fix-retry", agent="coder", workspace=work.project)
        s.user("Go on")
        s.append({"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "bash", "arguments": {}}]})
        try:
            with s:
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
    lines = work.ok("resume").lines
    assert "  interrupted in turn 3" in lines
    assert "  open call bash (not started)" in lines
    assert "  open task: Find the race" in lines
    assert [each for each in lines if each.startswith("  last ")][-1] == "  last user: Go on"
    assert lines[-1] == "  continue: takeback resume ####### --exec 'your-agent'"
    document = work.ok("resume", "--json").document
    assert (document["session"]["status"], len(document["open_calls"])) == ("interrupted", 1)
    assert "  not running; last closed cleanly 1d ago" in work.ok("resume", "oauth").lines


def test_resume_hands_the_session_to_a_program(work: World) -> None:
    script = work.project.parent / "agent.py"
    said = "os.environ['TAKEBACK_SESSION'], os.environ['TAKEBACK_STORE'], os.getcwd()"
    script.write_text(f"import os\nprint({said})\nraise SystemExit(9)\n")
    command = f'"{sys.executable}" "{script}"'
    ran = work.process("-C", str(work.project), "resume", "oauth", "--exec", command, cwd="/")
    session_id = work.ok("ls", "--fields", "id,name").out.split()[2]
    assert (ran.returncode, ran.stdout.split()) == (9, [session_id, str(work.url), str(work.project)])
    assert work.run("resume", "oauth", "--exec", "no-such-program-here").code == 127
    assert work.run("resume", "oauth", "--exec", "'").code == 2


# ---------------------------------------------------------------------- stats, agents


def test_stats_of_a_session_a_workspace_and_the_store(work: World) -> None:
    assert work.ok("stats", "oauth").lines[0] == "path      6 messages, 3 turns, 0 tool calls, 12,300 tokens, 0s"
    assert work.ok("stats").lines[:4] == [
        "sessions  2",
        "messages  12 in 5 turns",
        "tools     2 calls",
        "tokens    53,000 in, 1,400 out, on all branches",
    ]
    assert work.ok("stats", "-a", "--json").document["sessions"] == 3


def test_what_was_spent_does_not_go_back(work: World) -> None:
    work.ok("rewind", "fixed", "--conversation", "-y")
    document = work.ok("stats", "fix-retry", "--json").document
    assert (document["path"]["output_tokens"], document["spent"]["output_tokens"]) == (500, 1100)


@pytest.mark.parametrize(
    ("by", "keys"), [("agent", ["coder", "triage"]), ("model", ["", "some-model"]), ("tool", ["bash"])]
)
def test_stats_counted_apart(work: World, by: str, keys: list[str]) -> None:
    counts = work.ok("stats", "-a", "--by", by, "--json").document["counts"]
    assert [each["id"] for each in counts] == keys
    assert work.ok("stats", "--by", by).lines[0].startswith(by.upper())


def test_stats_by_day(work: World) -> None:
    counts = work.ok("stats", "-a", "--by", "day", "--json").document["counts"]
    assert sum(each["messages"] for each in counts) == 13
    assert [each["id"] for each in counts] == sorted(each["id"] for each in counts)


def _said(model: str) -> dict[str, object]:
    """Return an answer as an SDK gives it: with a model and a usage, without a cost."""
    usage = {"input_tokens": 1000, "output_tokens": 10}
    return {"role": "assistant", "model": model, "content": [{"type": "text", "text": "yes"}], "usage": usage}


@pytest.mark.trial("T52")
def test_money_counts_every_branch_once_and_is_priced_when_it_is_shown(world: World) -> None:
    with world.open() as store:
        s = store.create_session("money", agent="a", workspace=world.project)
        s.user("Is it right?")
        s.append(_said("claude-sonnet-4-5"))
        s.rewind(1)
        s.append(_said("claude-sonnet-4-5"))
        for number in range(3):
            s.append(_said(f"odd\x1b[2J-{min(number, 1)}"))
        s.assistant("paid", model="mine", usage=Usage(5, 1, cost=2.0))
    price = takeback.priced(Usage(1000, 10), "claude-sonnet-4-5").cost
    for by, key, cost in (("model", "claude-sonnet-4-5", 2 * price), ("agent", "a", 2 + 2 * price)):
        ran = world.ok("stats", "--by", by, "--json").document
        found = {each["id"]: each for each in ran["counts"]}
        assert (found[key]["cost"], found[key]["priced"]) == (pytest.approx(cost), 2)
    assert found["a"]["unpriced"] == {"odd\x1b[2J-0": 1, "odd\x1b[2J-1": 2}
    assert found["a"]["messages"] == 7
    shown = world.ok("stats", "--by", "model")
    assert "2 messages of model odd\\x1b[2J-1 have no known price." in shown.err
    assert "1 message of model odd\\x1b[2J-0 has no known price." in shown.err
    whole = world.ok("stats", "money", "--json").document
    assert whole["spent"]["cost"] == pytest.approx(2 + 2 * price)
    assert sum(whole["unpriced"].values()) == 3
    assert "cost      $2.0" in world.ok("stats").out


@pytest.mark.trial("T52")
def test_days_are_those_of_the_reader_and_of_utc_for_programs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with world.open() as store:
        s = store.create_session("late", workspace=world.project)
        at = datetime(2026, 1, 31, 23, 30, tzinfo=UTC)
        s.write(takeback.Native({"content": "x"}, role="user", text="x", created_at=at))
    monkeypatch.setenv("TZ", "UTC-3")
    time.tzset()
    try:
        assert world.ok("stats", "--by", "day").lines[1].split()[0] == "2026-02-01"
        assert world.ok("stats", "--by", "day", "--utc").lines[1].split()[0] == "2026-01-31"
        assert world.ok("stats", "--by", "day", "--json").document["counts"][0]["id"] == "2026-01-31"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_agents(work: World) -> None:
    assert work.ok("agents").lines == [
        "ID      SESSIONS  ACTIVE  VERSION  CHANGED",
        "coder          2       2        1  1d",
        "triage         1       1        1  1d",
    ]
    assert work.ok("agents", "-q").out.split() == ["coder", "triage"]
    assert work.ok("agents", "--json").document["agents"][0]["sessions"] == 2


# ---------------------------------------------------------------------- tail


def test_tail_shows_the_last_messages(work: World) -> None:
    assert work.ok("tail", "oauth", "-n", "1").lines == ["", "-- turn 3, 1d ago", "assistant", "  Step 3 is done."]
    assert len(work.ok("tail", "oauth", "--jsonl").out.splitlines()) == 6
    assert len(work.ok("tail", "oauth", "-n", "2", "--json").document["messages"]) == 2


def test_tail_follows_until_ctrl_c(work: World) -> None:
    command = [sys.executable, "-m", "takeback", "tail", "oauth", "-f", "-n", "1", "--jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["text"] == "Step 3 is done."
        with work.open() as store:
            s = store.get_session("oauth")
            s.user("Live one")
            s.assistant("Live two")
        assert [json.loads(process.stdout.readline())["text"] for _ in range(2)] == ["Live one", "Live two"]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")


# ---------------------------------------------------------------------- health


def test_a_sound_store_is_verified(work: World) -> None:
    ran = work.ok("verify")
    assert ran.out.endswith(" records checked, no problems\n")
    assert work.ok("verify", "--json").document["problems"] == []


def test_damage_is_exit_7_and_repair_makes_a_copy(work: World) -> None:
    data = bytearray(work.url.read_bytes())
    at = data.index(b"Step 2 is done")
    data[at : at + 4] = b"XXXX"  # more than one bit: that could be put right
    work.url.write_bytes(data)
    ran = work.run("verify")
    assert ran.code == 7
    assert ran.err == "Make a copy without the damaged parts: takeback repair\n"
    assert work.run("show", "oauth").code == 7
    assert work.ok("repair", "-n").err.startswith("Dry run: would make a copy without ")
    copy = work.url.with_name("copy.db")
    document = work.ok("repair", "--to", str(copy), "--json").document
    assert (document["path"], bool(document["lost"]), document["problems"]) == (str(copy), True, 0)
    assert work.ok("verify", "--store", str(copy)).out.endswith("no problems\n")
    assert work.run("repair", "--to", str(copy)).code == 5


def test_a_store_that_is_not_there_cannot_be_verified(world: World) -> None:
    assert world.run("verify").code == 4
    assert world.run("migrate", "--check").code == 4


def test_migrate_says_what_there_is_to_do(work: World) -> None:
    assert work.ok("migrate", "--check").out == f"{work.url} is up to date\n"
    assert work.ok("migrate").out.startswith(f"{work.url} is at version ")
    assert work.ok("migrate", "--check", "--json").document["current"] is True


# ---------------------------------------------------------------------- completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_for_each_shell(world: World, shell: str) -> None:
    assert "_TAKEBACK_COMPLETE" in world.ok("completion", shell).out


TYPED = [
    ("sho", ["show"]),
    ("show fi", ["fix-retry"]),
    ("say -s fi", ["fix-retry"]),
    ("rewind fix-retry:", ["fix-retry:fixed"]),
    ("switch fix-retry/", ["fix-retry/main"]),
    ("show nosuch/", []),
    ("ls --st", ["--status", "--store"]),
    ("ls --status inter", ["interrupted"]),
]


@pytest.mark.parametrize(("typed", "found"), TYPED)
def test_completion_knows_verbs_names_branches_and_checkpoints(work: World, typed: str, found: list[str]) -> None:
    assert sorted(value for _, value in asked(work, "bash", typed)) == found


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_told_the_same(work: World, shell: str) -> None:
    assert asked(work, shell, "rewind fix-retry:") == [("plain", "fix-retry:fixed")]
    assert asked(work, shell, "mirror a") == [("dir", "a")]


@pytest.mark.parametrize("typed", ["import ", "export -o ", "cat oauth:1 -- "])
def test_files_are_completed_where_files_are_taken(work: World, typed: str) -> None:
    assert asked(work, "bash", f"{typed}a") == [("file", "a")]


@pytest.mark.parametrize("typed", ["mirror ", "-C ", "ls -C ", "fork --into "])
def test_directories_are_completed_where_directories_are_taken(work: World, typed: str) -> None:
    assert asked(work, "bash", f"{typed}a") == [("dir", "a")]


def asked(work: World, shell: str, typed: str) -> list[tuple[str, str]]:
    """Ask as the script of a shell does; give kinds and values."""
    words = ["takeback", *typed.split(" ")]
    line = {"COMP_LINE": " ".join(words), "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    if shell == "fish":
        line["COMP_CWORD"] = words[-1]
    ran = work.process(env={**os.environ, "_TAKEBACK_COMPLETE": f"{shell}_complete", **line})
    said = [each for each in ran.stdout.splitlines() if each]
    if shell == "zsh":  # three lines for each: kind, value, help
        return [*zip(said[::3], said[1::3], strict=False)]
    pairs = [each.partition(",") for each in said]
    return [(kind, value.partition("\t")[0]) for kind, _, value in pairs]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize(
    ("typed", "inserted"),
    [
        ("rewind fix-retry:", ["fixed"]),  # bash keeps what stands before the colon
        ("rewind :fi", ["fixed"]),
        ("show fi", ["fix-retry"]),
        ("switch fix-retry/tr", ["fix-retry/try\\ it"]),
        ("ls --status=inter", ["interrupted"]),
    ],
)
def test_what_bash_puts_into_the_line(work: World, typed: str, inserted: list[str]) -> None:
    work.ok("fork", "fixed", "--name", "try it")
    script = work.project.parent / "script"
    script.write_text(work.ok("completion", "bash").out)
    program = work.project.parent / "takeback"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m takeback "$@"\n')
    program.chmod(0o755)
    commands = f"""
        . {script}
        COMP_WORDBREAKS=$' \\t\\n"\\'><=;|&(:' COMP_LINE='takeback {typed}' COMP_POINT={len(f"takeback {typed}")}
        _takeback_completion {program}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "--norc", "-c", commands], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (inserted, "")


# ---------------------------------------------------------------------- how busy and too new are told


def test_exit_codes_of_errors() -> None:
    from takeback.shell.failures import code_of

    codes = {
        takeback.NotFound: 4,
        takeback.Ambiguous: 4,
        takeback.Conflict: 5,
        takeback.Busy: 6,
        takeback.LeaseLost: 6,
        takeback.Corrupt: 7,
        takeback.Invalid: 2,
        takeback.StorageFull: 1,
        takeback.SchemaTooNew: 1,
    }
    assert {kind: code_of(kind()) for kind in codes} == codes


def test_times_in_lists_and_details() -> None:
    from takeback.shell import times

    now = times.now()
    spans = {0: "now", 42: "42s", 300: "5m", 6 * 3600: "6h", 30 * 3600: "1d", 20 * 86400: "2w", 800 * 86400: "2y"}
    assert [times.age(now - times.timedelta(seconds=span + 0.2)) for span in spans] == [*spans.values()]
    assert times.rfc3339(now).endswith("Z")  # type: ignore[union-attr]
    assert abs((now - times.parse_since("2w")).total_seconds() - 14 * 86400) < 60


@pytest.mark.trial("T3")
@pytest.mark.parametrize(
    "arguments",
    [
        ("migrate",),
        ("migrate", "--check"),
        ("migrate", "--check", "--json"),
        ("ls",),
        ("status", "--json"),
        ("doctor", "--json"),
        ("verify",),
        ("show",),
        ("export",),
    ],
    ids=" ".join,
)
def test_no_verb_prints_the_password_of_a_store(world: World, arguments: tuple[str, ...]) -> None:
    nowhere = "postgresql://me:s3cret@127.0.0.1:1/none?connect_timeout=1&sslpassword=s3cret"
    ran = world.run(*arguments, "--store", nowhere)
    assert ran.code != 0
    assert "s3cret" not in ran.out + ran.err
