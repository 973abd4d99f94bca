"""What holds for every verb: streams, exit codes, colour, control characters, refs, start-up."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from _schema import FOLDER
from _world import World

import takeback.cli
from takeback.cli.app import VERBS

pytestmark = pytest.mark.feature("F10")


def test_results_go_to_stdout_and_all_else_to_stderr(work: World) -> None:
    ran = work.process("ls", "-a")
    assert (ran.returncode, len(ran.stdout.splitlines()), len(ran.stderr.splitlines())) == (0, 4, 1)


def test_a_pipe_gets_no_colour_unless_it_is_asked_for(work: World) -> None:
    assert "\x1b" not in work.ok("ls").out
    assert "\x1b[36m" in work.ok("ls", "--color", "always").out
    assert "\x1b" not in work.ok("ls", "--color", "never").out


def test_a_reader_that_leaves_early_is_no_error(work: World) -> None:
    command = f"'{sys.executable}' -m takeback ls --json | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["{", "0"]
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        (">&-", 1, "takeback: cannot write: Bad file descriptor. Check the destination"),
        (">/dev/null 2>&-", 0, ""),
        (">&- 2>&- <&-", 1, ""),
    ],
)
def test_a_stream_that_is_closed_is_told_or_missed_and_no_crash(
    work: World, redirected: str, code: int, said: str
) -> None:
    command = f"'{sys.executable}' -m takeback ls -a {redirected}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1:]) == (code, [said] if said else [])


def test_a_store_that_is_not_there_is_named_without_steering_the_terminal(world: World) -> None:
    assert "/no\\x1b[2J.db" in world.ok("--store", f"{world.project}/no\x1b[2J.db", "ls").err


def test_control_characters_are_shown_never_obeyed(work: World) -> None:
    with work.open() as store:
        store.create_session("bad\x1b]0;x\x07", workspace=work.project, title="evil \x1b[2J\u202etitle")
    out = work.ok("ls").out
    assert "evil \\x1b[2J\\u202etitle" in out
    assert "\x1b" not in out
    assert "\x1b" not in work.ok("ls", "--json").out


def test_a_verb_that_is_not_there(work: World) -> None:
    ran = work.run("lss")
    assert (ran.code, ran.err) == (2, "takeback: no such verb: 'lss'; did you mean ls?\nTry: takeback --help\n")


def test_a_wrong_flag_is_usage(work: World) -> None:
    ran = work.run("ls", "--nosuch")
    assert ran.code == 2
    assert ran.err.endswith("Try: takeback ls --help\n")


def test_nothing_at_all_shows_the_help(world: World) -> None:
    ran = world.run()
    assert ran.code == 2
    assert "Verbs:" in ran.err


def test_flags_work_before_and_behind_the_verb(work: World) -> None:
    assert work.ok("-q", "ls").out == work.ok("ls", "-q").out
    assert work.ok("--json", "ls").out == work.ok("ls", "--json").out
    assert work.ok("-n", "rename", "oauth", "Other").err.startswith("Dry run: ")
    work.ok("-y", "rewind", "fix-retry:1")
    elsewhere = str(work.url.with_name("other.db"))
    assert elsewhere in work.ok("--store", str(work.url), "ls", "--store", elsewhere).err


def test_a_dry_run_of_what_knows_none_is_usage(work: World) -> None:
    for flag in ("-n", "-y"):
        ran = work.run(flag, "export", "oauth", "-o", "out.jsonl")
        assert (ran.code, f"{flag} is for verbs that change something" in ran.err) == (2, True), ran.err
    assert not (work.project / "out.jsonl").exists()


def test_a_damaged_store_is_exit_7(world: World) -> None:
    world.url.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 32)
    ran = world.run("ls")
    assert ran.code == 7
    assert ran.err.startswith("takeback: ")


def test_every_verb_explains_itself_and_every_hint_names_a_verb(world: World) -> None:
    assert [*VERBS]
    for verb in VERBS:
        assert f"Usage: takeback {verb} " in world.ok(verb, "--help").out
    folder = Path(takeback.cli.__file__).parent
    text = "".join(path.read_text("utf-8") for path in folder.rglob("*.py"))
    named = set(re.findall(r"(?:: |with: |[Rr]un |; |``)takeback ([a-z]+)", text))
    assert named <= {*VERBS}, named - {*VERBS}


def test_every_document_has_a_schema_and_every_schema_a_document() -> None:
    folder = Path(takeback.cli.__file__).parent
    text = "".join(path.read_text("utf-8") for path in folder.rglob("*.py"))
    used = set(re.findall(r"""out\.(?:one|items)\(\s*"(\w+)\"""", text))
    assert used == {path.stem for path in FOLDER.glob("*.json")}


def test_what_the_system_refuses_is_a_sentence(work: World) -> None:
    (work.project / "plain").write_text("x")
    for arguments, code, said in (
        (("export", "-o", "."), 5, "'.' is a directory; name a file in it"),
        (("export", "-o", "no/such/x"), 1, "cannot write 'no/such/x': No such file or directory. Check the path"),
        (("mirror", "plain/x"), 1, "plain/x': Not a directory. Part of the path is not a directory"),
    ):
        ran = work.run(*arguments)
        assert (ran.code, said in ran.err) == (code, True), ran.err
        assert "Errno" not in ran.err


def test_settings_that_cannot_be_written_are_a_sentence(work: World) -> None:
    (work.project / ".claude").write_text("no directory")
    ran = work.run("hook", "claude-code", "--install")
    assert ran.code == 1
    assert "settings.json': Not a directory. Part of the path is not a directory" in ran.err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no device that is full")
@pytest.mark.parametrize("verb", [["ls"], ["export", "--all"], ["log"]])
def test_a_full_disk_behind_stdout_is_a_sentence(work: World, verb: list[str]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "takeback", *verb]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 1
    said = "takeback: cannot write: No space left on device. Free some space, or choose another place\n"
    assert done.stderr.endswith(said)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", [["ls", "-a"], ["log"], ["new"]])
def test_a_directory_or_kind_of_store_that_is_not_there_is_usage(work: World, verb: list[str]) -> None:
    for flags in (["-C", "nosuch"], ["--store", "bogus://x"]):
        ran = work.run(*flags, *verb)
        assert (ran.code, "nosuch" in ran.err or "bogus" in ran.err) == (2, True), ran


@pytest.mark.parametrize("verb", ["undo", "redo", "log", "show"])
def test_where_there_is_no_store_every_verb_says_so(world: World, verb: str) -> None:
    ran = world.run("--store", "../none.db", verb)
    place = world.project.parent / "none.db"
    assert ran.err == f"takeback: there is no store at {place} yet. Create one: takeback new\n"
    assert ran.code == 4


@pytest.mark.parametrize("verb", ["ls", "log", "show"])
def test_flags_that_contradict_each_other_are_usage(work: World, verb: str) -> None:
    for other in ("--jsonl", "-q"):
        ran = work.run("--json", verb, other)
        assert (ran.code, ran.out) == (2, "")
        assert f"--json and {other} exclude each other" in ran.err


def test_two_forms_of_an_export_contradict_each_other(work: World) -> None:
    ran = work.run("export", "oauth", "--md", "--html")
    assert (ran.code, ran.out) == (2, "")
    assert "--md and --html exclude each other" in ran.err


def test_a_flag_is_no_path_to_overwrite(work: World) -> None:
    ran = work.run("rewind", "fixed", "--overwrite", "-y")
    assert ran.code == 2
    assert "--overwrite needs a path, not '-y'" in ran.err


def test_a_file_that_is_no_store_says_so(work: World) -> None:
    (work.project / "empty.db").touch()
    (work.project / "text").write_text("root:x:0:0\n" * 200)
    empty, text = work.run("--store", "empty.db", "ls"), work.run("--store", "text", "ls")
    assert "empty.db' is an empty file and holds no store yet; takeback new starts one" in empty.err
    assert "this file is not a store, or its header is damaged" in text.err
    assert (empty.code, text.code) == (1, 7)
