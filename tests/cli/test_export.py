"""export and import: lines that come back, documents to read, files written whole or not at all."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from _terminal import Terminal
from _world import World

import takeback

pytestmark = pytest.mark.feature("F9")

KEY = "sk-ant-api03-" + "a1B2" * 12


def _elsewhere(work: World) -> str:
    return str(work.url.with_name("other.db"))


def _id(work: World, name: str) -> str:
    with work.open() as store:
        return next(each.id for each in store.iter_sessions(archived=None) if each.name == name)


# ---------------------------------------------------------------------- lines


def test_a_session_goes_into_another_store_and_gives_the_same_lines_there(work: World) -> None:
    lines = work.ok("export", "fix-retry").out
    assert json.loads(lines.splitlines()[0]) == {"type": "header", "format": "takeback", "version": 1}
    Path("a.jsonl").write_text(lines)
    ran = work.ok("import", "a.jsonl", "--store", _elsewhere(work))
    assert ran.out.startswith("1 session, 12 entries, 1 agent, ")
    assert work.ok("export", _id(work, "fix-retry"), "--store", _elsewhere(work)).out == lines
    again = work.ok("import", "a.jsonl", "--store", _elsewhere(work))
    assert again.out.startswith("nothing copied in ")
    shown = [work.ok("show", _id(work, "fix-retry"), *at).out for at in ((), ("--store", _elsewhere(work)))]
    assert shown[0].replace(f"  workspace {work.project}\n", "") == shown[1], "a path of a file is nobody's workspace"
    assert work.ok("verify", "--store", _elsewhere(work)).out.endswith("no problems\n")


def test_files_of_the_workspace_travel(work: World) -> None:
    work.ok("export", "fix-retry", "-o", "a.jsonl")
    work.ok("import", "a.jsonl", "--store", _elsewhere(work))
    ran = work.process("cat", "fix-retry:fixed", "--store", _elsewhere(work), "--", "pool.py")
    assert ran.stdout == "retry(5)\n"


def test_a_pipe_from_one_store_into_another(work: World) -> None:
    out = work.process("export", "oauth", text=False)
    assert (out.returncode, out.stderr) == (0, b"")
    ran = work.process("import", "-", "--store", _elsewhere(work), input=out.stdout, text=False)
    assert ran.stdout.startswith(b"1 session, 7 entries"), ran.stderr


def test_all_of_a_workspace_and_of_the_store(work: World) -> None:
    assert work.ok("export", "--here", "-o", "here.jsonl").out == "here.jsonl: 2 sessions, 50 lines\n"
    assert work.ok("export", "--all", "-o", "all.jsonl", "--json").document["sessions"] == 3
    assert work.run("export", "oauth", "--all").code == 2
    assert work.run("-C", "/", "export", "--here").code == 4


def test_sub_agents_come_along_unless_they_are_not_wanted(work: World) -> None:
    with work.open() as store:
        oauth = store.get_session("oauth", agent="coder", workspace=work.project)
        store.create_session(kind="subagent", parent=oauth, label="helper", agent="coder").user("help")
    assert work.ok("export", "oauth", "-o", "a", "--json").document["sessions"] == 2
    assert work.ok("export", "oauth", "-o", "a", "--json", "--no-subagents").document["sessions"] == 1


def test_a_file_is_for_its_owner_and_written_whole_or_not_at_all(work: World) -> None:
    Path("a.jsonl").write_text("before")
    work.ok("export", "oauth", "-o", "a.jsonl")
    assert stat.S_IMODE(os.stat("a.jsonl").st_mode) == 0o600
    whole = Path("a.jsonl").read_bytes()
    data = bytearray(work.url.read_bytes())
    data[data.index(b"Step 2 is done")] ^= 1
    work.url.write_bytes(data)
    assert work.run("export", "oauth", "-o", "a.jsonl").code == 7
    assert Path("a.jsonl").read_bytes() == whole
    assert sorted(each.name for each in work.project.iterdir() if "jsonl" in each.name) == ["a.jsonl"]
    assert work.run("export", "oauth", "-o", "no/such/folder/a.jsonl").code == 1


def test_lines_that_likely_hold_secrets_say_so_on_stderr(work: World) -> None:
    assert work.ok("export", "oauth").err == ""
    work.ok("say", "-s", "oauth", f"use {KEY}")
    ran = work.ok("export", "oauth")
    assert KEY in ran.out
    assert ran.err == "It probably contains secrets (1 Anthropic key): check it before you share it.\n"


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-lock", "-open", "-ballast", "-journal"])
def test_the_store_itself_is_never_written_over(work: World, suffix: str) -> None:
    own = Path(f"{work.url}{suffix}")
    before = own.read_bytes() if own.exists() else None
    link, other = Path("link.jsonl"), Path("same.jsonl")
    link.symlink_to(own)
    names = [str(own), "link.jsonl", os.path.relpath(own)]
    if before is not None:
        os.link(own, other)
        names.append("same.jsonl")
    for name in names:
        for form in ((), ("--html",)):
            ran = work.run("export", "oauth", "-o", name, *form)
            assert (ran.code, "belongs to the store itself" in ran.err) == (5, True)
    assert (own.read_bytes() if own.exists() else None) == before
    other.unlink(missing_ok=True)
    assert work.ok("verify", "--store", f"sqlite:///{work.url}").out.endswith("no problems\n")
    assert work.run("export", "oauth", "-o", str(own), "--store", f"sqlite:///{work.url}").code == 5


def test_a_link_stays_and_the_file_behind_it_is_replaced(work: World) -> None:
    Path("real.jsonl").write_text("old")
    Path("link.jsonl").symlink_to("real.jsonl")
    Path("new.jsonl").symlink_to("made.jsonl")
    for link in ("link.jsonl", "new.jsonl"):
        work.ok("export", "oauth", "-o", link)
        assert Path(link).is_symlink()
        assert Path(link).read_text().startswith('{"type":"header"')
    assert not [each for each in os.listdir() if each.endswith(".part")]


def test_what_is_no_file_is_written_through(work: World) -> None:
    lines = work.ok("export", "oauth").out
    os.mkfifo("pipe")
    reader = subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE, text=True)
    ran = work.process("export", "oauth", "-o", "pipe")
    assert (ran.returncode, reader.communicate(timeout=30)[0]) == (0, lines)
    assert stat.S_ISFIFO(os.stat("pipe").st_mode)
    assert work.process("export", "oauth", "-o", "/dev/null").returncode == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert work.process("export", "oauth", "-o", "/dev/stdout").stdout == lines
    Path("both").write_text("before\n")
    with open("both", "a") as out:
        command = [sys.executable, "-m", "takeback", "export", "oauth", "-o", "/dev/stderr"]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=out, timeout=60, check=True)
    assert Path("both").read_text() == f"before\n{lines}"
    Path("folder").mkdir()
    ran = work.run("export", "oauth", "-o", "folder")
    assert (ran.code, ran.err) == (5, "takeback: 'folder' is a directory; name a file in it\n")


@pytest.mark.parametrize("which", ["--all", "--here"])
def test_damaged_sessions_are_named(work: World, which: str) -> None:
    damaged = _id(work, "oauth")
    with work.open() as store:
        store._backend._connection.execute("UPDATE session SET title = 'x' WHERE name = 'oauth'")  # type: ignore[attr-defined]
    ran = work.run("export", which, "-o", "a.jsonl")
    said = f"takeback: session {damaged} is damaged and was left out; run: takeback verify\n"
    assert (ran.code, ran.err) == (7, said)
    assert work.ok("import", "a.jsonl", "--json", "--store", _elsewhere(work)).document["imported"]
    with work.open() as store:
        store._backend._connection.execute("UPDATE session SET title = 'x'")  # type: ignore[attr-defined]
    ran = work.run("export", which, "-o", "b.jsonl")
    assert (ran.code, said in ran.err, Path("b.jsonl").exists()) == (7, True, False)


def test_documents_of_what_was_done(work: World) -> None:
    document = work.ok("export", "oauth", "-o", "a.jsonl", "--json").document
    assert (document["path"], document["format"], document["entries"]) == ("a.jsonl", "jsonl", 7)
    document = work.ok("import", "a.jsonl", "--json", "--store", _elsewhere(work)).document
    assert document["new"]["entries"] == 7
    assert work.ok("import", "a.jsonl", "-q").out == f"{_id(work, 'oauth')}\n"
    assert work.run("export", "oauth", "--json").code == 2
    assert work.run("export", "oauth:1").code == 2


def test_a_terminal_only_shows_what_is_in_it(work: World) -> None:
    work.ok("say", "-s", "oauth", "a \x9b31m b \u202e c")
    terminal = Terminal("export", "oauth", "--no-pager")
    assert terminal.end() == 0
    assert "\\x9b31m" in terminal.seen
    assert "\x9b" not in terminal.seen


# ---------------------------------------------------------------------- import


def test_a_dry_run_judges_the_file_and_makes_no_store(work: World) -> None:
    work.ok("export", "oauth", "-o", "a.jsonl")
    ran = work.ok("import", "a.jsonl", "-n", "--store", _elsewhere(work))
    assert ran.err == "Dry run: the file is valid and contains 1 session; nothing was changed.\n"
    assert not Path(_elsewhere(work)).exists()


def test_a_file_that_is_cut_off_or_none_of_ours_is_refused(work: World) -> None:
    work.ok("export", "oauth", "-o", "a.jsonl")
    data = Path("a.jsonl").read_bytes()
    Path("cut.jsonl").write_bytes(data[: len(data) // 2])
    ran = work.run("import", "cut.jsonl", "--store", _elsewhere(work))
    assert ran.code == 7
    assert ran.err.startswith("takeback: line ")
    assert ran.err.endswith("; nothing was imported\n")
    Path("other.txt").write_text("hello\n")
    assert work.run("import", "other.txt", "--store", _elsewhere(work)).code == 2
    assert work.run("import", "nosuch.jsonl").code == 4
    with takeback.open(_elsewhere(work)) as store:
        assert not store.list_sessions()


@pytest.mark.trial("T1")
def test_a_path_in_a_file_is_no_workspace_here_unless_one_is_named(work: World) -> None:
    work.ok("export", "--here", "-o", "a.jsonl")
    work.ok("import", "a.jsonl", "--store", _elsewhere(work))
    listed = work.ok("ls", "--json", "--store", _elsewhere(work)).document
    assert listed["sessions"] == []
    Path("checkout").mkdir()
    other = str(work.url.with_name("third.db"))
    work.ok("import", "a.jsonl", "--workspace", "checkout", "--store", other)
    assert len(work.ok("-C", "checkout", "ls", "--json", "--store", other).document["sessions"]) == 2


@pytest.mark.trial("T1")
def test_a_name_that_is_taken_gets_a_number_and_that_is_said(work: World) -> None:
    work.ok("export", "oauth", "-o", "a.jsonl")
    with takeback.open(_elsewhere(work)) as store:
        store.create_session("oauth", agent="coder")
    ran = work.ok("import", "a.jsonl", "-n", "--store", _elsewhere(work))
    assert f"Session {_id(work, 'oauth')} would be named 'oauth (2)' here, because its name is taken.\n" in ran.err
    ran = work.ok("import", "a.jsonl", "--json", "--store", _elsewhere(work))
    assert ran.document["renamed"] == {_id(work, "oauth"): "oauth (2)"}
    assert work.ok("import", "a.jsonl", "--store", _elsewhere(work)).err == ""


def test_what_was_changed_in_both_is_a_conflict(work: World) -> None:
    work.ok("export", "oauth", "-o", "a.jsonl")
    work.ok("import", "a.jsonl", "--store", _elsewhere(work))
    work.ok("say", "-s", _id(work, "oauth"), "there", "--store", _elsewhere(work))
    work.ok("say", "-s", "oauth", "here")
    work.ok("export", "oauth", "-o", "a.jsonl")
    ran = work.run("import", "a.jsonl", "--store", _elsewhere(work))
    assert ran.code == 5
    assert "was changed in both stores" in ran.err


# ---------------------------------------------------------------------- documents


def test_markdown_and_html_with_secrets_hidden(work: World) -> None:
    work.ok("say", "-s", "oauth", f"use {KEY}")
    for form in ("--md", "--html"):
        out = work.ok("export", "oauth", form).out
        assert "Step 3 is done." in out
        assert KEY not in out
        assert KEY in work.ok("export", "oauth", form, "--secrets").out
    assert work.ok("export", "oauth", "--html", "-o", "a.html").out.startswith("a.html: ")
    assert Path("a.html").read_text().startswith("<!doctype html>")
    assert work.ok("export", "oauth", "--md", "-o", "a.md", "--json").document["format"] == "markdown"


def test_secrets_in_what_tools_were_given_and_gave_are_hidden(work: World) -> None:
    with work.open() as store, store.session("oauth", agent="coder", workspace=work.project) as s:
        s.user("look")
        with s.tool("bash", {"script": f"set -e\n{KEY}\nDB_PASSWORD=correcthorse\n"}) as running:
            running.result({"stdout": f"a\t{KEY}\nb"})
    for form in ("--md", "--html"):
        out = work.ok("export", "oauth", form, "--tools", "full").out
        assert (KEY[8:] in out, "correcthorse" in out, "set -e" in out) == (False, False, True)
    assert "(2 Anthropic keys, 1 password)" in work.ok("export", "oauth").err


def test_a_document_up_to_a_point_or_of_a_branch(work: World) -> None:
    assert "step 2" not in work.ok("export", "oauth:1", "--md").out
    work.ok("fork", "fix-retry:1", "--name", "aside")
    assert "Now make it fast" not in work.ok("export", "fix-retry/aside", "--html").out
    assert work.run("export", "--all", "--md").code == 2


def test_a_document_on_a_terminal_is_only_shown(work: World) -> None:
    terminal = Terminal("export", "fix-retry", "--md", "--no-pager")
    assert terminal.end() == 0
    assert "Much \\u001b[31mfaster." in terminal.seen


def test_stdin_that_is_no_text_is_read_as_bytes(work: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class Source:
        buffer = io.BytesIO(b"\xff\xfe")

    monkeypatch.setattr(sys, "stdin", Source())
    assert work.run("import", "-").code == 2
