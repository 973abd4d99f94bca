"""What people report about rewinding with other tools, each as a test that it does not happen here.

Every docstring names the report. The workspaces are real directories, the changes are made by real shells.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest
from _folders import AUTHOR, Thing, look, run, shell

import takeback
from takeback import Corrupt, Session, Store

pytestmark = [pytest.mark.feature("F1", "B5")]
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / "a.txt").write_text("one\n")
    (root / "src" / "b.py").write_text("b = 1\n")
    (root / "keep.txt").write_text("keep\n")
    return root


def text(root: Path, path: str) -> str:
    return (root / path).read_text()


# ---------------------------------------------------------------------- shells


def test_files_that_a_shell_made_changed_or_deleted_come_back(session: Session, work: Path) -> None:
    """Of 96 edits by a shell none was tracked: https://github.com/anthropics/claude-code/issues/94657

    Also https://github.com/anthropics/claude-code/issues/87575, 14002 and 15403.
    """
    before = look(work)
    run(session, work, "echo made > made.txt; sed -i s/one/two/ a.txt; rm src/b.py; mkdir d2; mv keep.txt d2/")
    assert look(work) != before
    session.rewind(1)
    assert look(work) == before


def test_files_made_since_go_and_deleted_ones_come_back_over_many_points(session: Session, work: Path) -> None:
    """Created and deleted files are not handled: https://github.com/entireio/cli/pull/1408"""
    states: list[tuple[str, dict[bytes, Thing]]] = []
    for number in range(12):
        states.append((f"c{number}", look(work)))
        session.checkpoint(f"c{number}")
        session.user(f"turn {number}")
        run(
            session, work, f"echo {number} > f{number}; echo {number} >> a.txt; rm -f f{number - 2}; mkdir -p g{number}"
        )
    for name, state in reversed(states):
        session.rewind(name)
        assert look(work) == state, name
    for name, state in ((states[7]), (states[2]), (states[11])):
        session.rewind(name)
        assert look(work) == state, name


def test_hundreds_of_files_come_back_complete(session: Session, work: Path) -> None:
    """Restore deletes "virtually all files": https://github.com/google-gemini/gemini-cli/issues/13331"""
    for number in range(300):
        (work / f"m{number}").write_text(str(number))
    session.user("now they are there")
    before = look(work)
    run(session, work, "rm m*; for i in $(seq 300); do echo x > n$i; done; echo y > a.txt")
    done = session.rewind(session.messages()[1])
    assert look(work) == before
    assert len(done.paths) == 601


def test_many_files_come_back_together_or_not_at_all(
    session: Session, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others restore file by file, as far as it goes; no report is known, it was read in their code."""
    run(session, work, "for i in $(seq 50); do echo $i > n$i; done; echo two > a.txt; rm src/b.py")
    after, texts = look(work), len(session.messages())
    calls = 0
    for name in ("rename", "replace", "link", "unlink"):
        real = getattr(os, name)

        def failing(*args: object, _real: object = real, **kwargs: object) -> object:
            nonlocal calls
            calls += 1
            if calls == 20:
                raise OSError(5, "Input/output error")
            return _real(*args, **kwargs)  # type: ignore[operator]

        monkeypatch.setattr(os, name, failing)
    with pytest.raises(takeback.Error):
        session.rewind(1)
    monkeypatch.undo()
    assert calls >= 20, "the failure happened"
    assert (look(work), len(session.messages())) == (after, texts)
    session.rewind(1)
    assert text(work, "a.txt") == "one\n"


# ---------------------------------------------------------------------- the person's own work


def test_what_a_person_edits_before_between_and_after_turns_is_kept(session: Session, work: Path) -> None:
    """ "Lost 2 days" of edits: https://github.com/anomalyco/opencode/issues/26893

    Restore is irreversibly destructive: https://github.com/zed-industries/zed/issues/28676
    """
    shell(work, "echo mine-before >> keep.txt; echo n > before.txt")
    session.user("second")
    point = session.checkpoint("c")
    run(session, work, "echo two > a.txt; echo agent > made.txt")
    shell(work, "echo mine-between >> src/b.py; echo n > between.txt")
    session.user("third")
    run(session, work, "echo three > a.txt")
    shell(work, "echo mine-after >> made.txt; echo n > after.txt")
    preview = session.preview_rewind(point)
    assert {*preview.kept} == {"src/b.py", "between.txt", "made.txt", "after.txt"}
    preview.apply()
    assert text(work, "keep.txt") == "keep\nmine-before\n"
    assert text(work, "src/b.py") == "b = 1\nmine-between\n"
    assert text(work, "made.txt") == "agent\nmine-after\n"
    assert all((work / name).exists() for name in ("before.txt", "between.txt", "after.txt"))
    assert text(work, "a.txt") == "one\n"


def test_a_person_who_edits_what_the_agent_edits_loses_nothing(session: Session, work: Path) -> None:
    """A rewind that destroys the person's work: https://github.com/anthropics/claude-code/issues/64615"""
    run(session, work, "echo agent-1 >> a.txt")
    shell(work, "echo mine >> a.txt")
    session.user("second")
    middle = session.checkpoint("mine")
    run(session, work, "echo agent-2 >> a.txt")
    session.rewind(middle)
    assert text(work, "a.txt") == "one\nagent-1\nmine\n", "back to what the person had made of it"
    session.rewind(1)
    assert "mine" in text(work, "a.txt"), "kept, since going further would lose it"
    assert "a.txt" in session.preview_rewind(0).kept


def test_work_committed_by_the_person_meanwhile_stays(session: Session, work: Path) -> None:
    """Undo reverted 1,300 committed lines, weeks old: https://github.com/anomalyco/opencode/issues/10287

    A stale baseline of 25 days: https://github.com/anomalyco/opencode/issues/49732
    """
    run(session, work, "echo agent > made.txt")
    point = session.checkpoint("c")
    shell(work, "for i in $(seq 100); do echo line >> src/b.py; done; echo x > own.txt")
    session.user("weeks later")
    run(session, work, "echo two > a.txt")
    session.rewind(point)
    assert text(work, "src/b.py").count("line") == 100
    assert (work / "own.txt").exists()


def test_undo_of_a_turn_that_changed_nothing_changes_nothing(session: Session, work: Path) -> None:
    """Undo of a no-change turn corrupts the tree: https://github.com/anomalyco/opencode/issues/32529"""
    run(session, work, "echo two > a.txt")
    session.user("just talk")
    session.assistant("sure")
    before = look(work)
    preview = session.preview_rewind(session.messages()[-3])
    assert preview.files == ()
    preview.apply()
    assert look(work) == before
    session.undo()
    assert look(work) == before


def test_an_edited_file_is_restored_and_not_deleted(session: Session, work: Path) -> None:
    """Undo deletes edited files: https://github.com/anomalyco/opencode/issues/3148"""
    run(session, work, "printf 'new content' > a.txt")
    run(session, work, "printf 'newer content' > a.txt")
    session.rewind(session.messages()[1])
    assert text(work, "a.txt") == "new content"
    session.rewind(1)
    assert text(work, "a.txt") == "one\n"


def test_other_directories_are_never_touched(session: Session, work: Path, tmp_path: Path) -> None:
    """Revert touches other directories: https://github.com/anomalyco/opencode/issues/7775"""
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "x").write_text("x")
    (work / "out").symlink_to(beside)
    session.user("second")
    run(session, work, "echo changed > ../beside/x; echo new > ../beside/y; echo through > out/z; echo two > a.txt")
    there = look(beside)
    session.rewind(1)
    assert (look(beside), text(work, "a.txt")) == (there, "one\n")
    session.undo()
    assert look(beside) == there


def test_nothing_is_written_through_a_link_that_took_a_directorys_place(
    session: Session, work: Path, tmp_path: Path
) -> None:
    """A restore must not leave the workspace: https://github.com/anomalyco/opencode/issues/7775"""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b.py").write_text("not yours")
    before = look(work)
    run(session, work, f"rm -r src && ln -s {outside} src")
    session.rewind(1)
    assert (look(work), look(outside)) == (before, {b"b.py": ("file", 0o644, b"not yours")})


# ---------------------------------------------------------------------- others in the same directory


def test_another_sessions_changes_are_left_alone_and_named(store: Store, session: Session, work: Path) -> None:
    """Agents in one workspace undo each other's work; no tool looks: docs of Conductor only warn."""
    with store.session("other", workspace=work) as other:
        other.user("theirs")
        with session.tool("bash", {}) as mine:
            shell(work, "echo two > a.txt")
            run(other, work, "echo theirs > src/b.py; echo t > theirs.txt; rm keep.txt")
            mine.result("ok")
        preview = session.preview_rewind(1)
        assert {*preview.others} == {"src/b.py", "theirs.txt", "keep.txt"}
        assert all(name in str(preview) for name in preview.others)
        preview.apply()
        assert (text(work, "a.txt"), text(work, "src/b.py")) == ("one\n", "theirs\n")
        assert ((work / "theirs.txt").exists(), (work / "keep.txt").exists()) == (True, False)
        other.rewind(1)
        assert (text(work, "src/b.py"), text(work, "keep.txt")) == ("b = 1\n", "keep\n")


# ---------------------------------------------------------------------- taking it back


def test_undo_and_redo_after_a_restart(tmp_path: Path, work: Path) -> None:
    """One level only, and gone with the process: https://github.com/QwenLM/qwen-code/pull/4064"""
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
        session.user("first")
        before = look(work)
        run(session, work, "echo two > a.txt; rm src/b.py; chmod 700 src; ln -s a.txt l")
        after = look(work)
        session.rewind(1)
    for expected, move in ((after, "undo"), (before, "redo")) * 2:
        with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
            getattr(session, move)()
            assert look(work) == expected


def test_what_the_preview_says_is_what_happens(session: Session, work: Path) -> None:
    """What cannot be taken back must be shown first: https://github.com/zed-industries/zed/issues/28676"""
    (work / "gone").write_text("g")
    (work / "l").symlink_to("a.txt")
    (work / "x.sh").write_text("x")
    (work / "void").mkdir()
    session.user("second")
    point = session.checkpoint("c")
    run(session, work, "echo 2 > a.txt; rm gone; mkdir new; echo n > new/n; chmod 755 x.sh; ln -sfn src l; rmdir void")
    run(session, work, "rm x.sh; echo more >> a.txt; mv src/b.py new/b.py")
    shell(work, "echo own > own.txt; echo mine >> keep.txt")
    before = look(work)
    preview = session.preview_rewind(point)
    done = preview.apply()
    after = look(work)
    kinds: dict[str, str] = {}
    for path in {*before, *after}:
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        if new is None:
            kinds[path.decode()] = "rmdir" if old and old[0] == "dir" else "delete"
        elif new[0] == "link":
            kinds[path.decode()] = "link"
        elif old is None:
            kinds[path.decode()] = "mkdir" if new[0] == "dir" else "create"
        else:
            kinds[path.decode()] = "chmod" if old[0] == new[0] == "dir" or old[2] == new[2] else "overwrite"
    assert {each.path: each.action for each in preview.files} == kinds
    assert {*done.paths} == {*kinds}
    assert {*preview.kept} == {"own.txt", "keep.txt"}


def test_conversation_and_files_go_back_as_one(session: Session, work: Path) -> None:
    """Files went back and the model still remembers: https://github.com/anthropics/claude-code/issues/18771"""
    session.set_plan("old")
    point = session.checkpoint("c")
    session.user("second")
    session.set_plan("new")
    run(session, work, "echo two > a.txt")
    session.rewind(point)
    assert (text(work, "a.txt"), len(session.messages()), session.get_plan()) == ("one\n", 1, "old")
    session.undo()
    assert (text(work, "a.txt"), len(session.messages()), session.get_plan()) == ("two\n", 3, "new")


# ---------------------------------------------------------------------- git


def test_it_works_without_git(session: Session, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silently no file revert outside git: https://github.com/anomalyco/opencode/issues/2642 and 29520"""
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **kwargs: started.append(args) or 1 / 0)
    with session.tool("edit", {}) as call:
        (work / "a.txt").write_text("two\n")
        call.result("ok")
    session.rewind(1)
    session.undo()
    assert (started, text(work, "a.txt")) == ([], "two\n")


def records(root: Path) -> dict[bytes, tuple[Thing, int]]:
    """A repository's own records with the times they were written."""
    return {path: (thing, os.lstat(root / os.fsdecode(path)).st_mtime_ns) for path, thing in look(root).items()}


@needs_git
def test_the_users_repository_is_never_touched(session: Session, work: Path) -> None:
    """`reset --hard` dropped commits: https://github.com/cline/cline/issues/13550

    Index clobbered: https://github.com/openai/codex/issues/8214. HEAD, index, refs, reflog and status are the same
    bytes before and after, with staged, unstaged and untracked changes around.
    """
    shell(work, f"git {AUTHOR} init -q && git add -A && git {AUTHOR} commit -qm one && git branch other")
    shell(work, "echo staged > staged.txt && git add staged.txt && echo unstaged >> keep.txt && echo u > untracked.txt")
    session.user("second")
    point = session.checkpoint("c")
    shell(work, "git status --porcelain > /dev/null")
    state = subprocess.check_output(["git", "status", "--porcelain=v2"], cwd=work)
    repository = records(work / ".git")
    run(session, work, "echo two > a.txt; echo n > new; rm src/b.py")
    session.rewind(point)
    session.undo()
    session.redo()
    session.checkpoint("again")
    assert records(work / ".git") == repository
    assert subprocess.check_output(["git", "status", "--porcelain=v2"], cwd=work) == state
    assert not [name for name in os.listdir(work) if name.startswith(".takeback")], "nothing hidden is left"


@needs_git
def test_commits_made_by_a_tool_stay_and_only_files_go_back(session: Session, work: Path) -> None:
    """A commit made since must not be dropped: https://github.com/cline/cline/pull/13626"""
    shell(work, f"git {AUTHOR} init -q && git add -A && git {AUTHOR} commit -qm one")
    session.user("second")
    point = session.checkpoint("c")
    run(session, work, f"echo two > a.txt && git {AUTHOR} commit -qam two")
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=work)
    repository = records(work / ".git")
    session.rewind(point)
    assert text(work, "a.txt") == "one\n"
    assert subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=work) == head
    assert records(work / ".git").keys() == repository.keys()


# ---------------------------------------------------------------------- what shadow repositories get wrong


@needs_git
@pytest.mark.parametrize("commits", [False, True], ids=["without commits", "with commits"])
def test_files_of_a_nested_repository_are_restored(session: Session, work: Path, commits: bool) -> None:
    """Without commits `git add` fails: no snapshot; with them a gitlink: nothing inside is restored.

    Measured with a shadow repository made as Gemini CLI makes it.
    """
    script = f"mkdir inner && cd inner && git {AUTHOR} init -q && echo i > i.txt && echo k > k.txt"
    shell(work, script + (f" && git add -A && git {AUTHOR} commit -qm x" if commits else ""))
    session.user("second")
    before, repository = look(work, but=(b"inner/.git",)), records(work / "inner" / ".git")
    run(session, work, "echo changed > inner/i.txt; rm inner/k.txt; echo n > inner/new; echo two > a.txt")
    session.rewind(session.messages()[1])
    assert look(work, but=(b"inner/.git",)) == before
    assert records(work / "inner" / ".git") == repository


def test_ignored_files_are_untouched_and_named(session: Session, work: Path) -> None:
    """`.env` and `build/` are not restored and nobody is told: measured with a shadow repository."""
    (work / ".gitignore").write_text(".env\nbuild/\n*.log\n")
    (work / ".env").write_text("KEY=1")
    (work / "build").mkdir()
    (work / "build" / "o").write_text("o")
    session.user("second")
    point = session.checkpoint("c")
    assert all(any(name in each for each in point.not_captured) for name in (".env", "build/"))
    run(session, work, "echo KEY=2 > .env; echo p > build/p; rm build/o; echo l > x.log; echo two > a.txt")
    preview = session.preview_rewind(point)
    assert [each.path for each in preview.files] == ["a.txt"]
    assert all(any(name in each for each in preview.not_captured) for name in (".env", "build/", "x.log"))
    preview.apply()
    assert (text(work, ".env"), text(work, "build/p"), (work / "build" / "o").exists()) == ("KEY=2\n", "p\n", False)
    assert text(work, "x.log") == "l\n"


def test_an_empty_directory_and_private_modes_come_back(session: Session, work: Path) -> None:
    """An empty directory is not restored, 0600 comes back as 0644: measured with a shadow repository.

    It was made as Gemini CLI makes it.
    """
    (work / "void").mkdir(mode=0o750)
    (work / "key").write_text("k")
    (work / "key").chmod(0o600)
    session.user("second")
    before = look(work)
    run(session, work, "rmdir void; rm key; echo other > key; chmod 644 key")
    session.rewind(session.messages()[1])
    assert look(work) == before
    run(session, work, "rmdir void; rm key")
    session.rewind(session.messages()[1])
    assert look(work) == before


def test_a_hard_link_outside_is_not_written_through(session: Session, work: Path, tmp_path: Path) -> None:
    """A hard link becomes a separate file, or worse is written through: measured with a shadow repository."""
    run(session, work, "ln a.txt ../hard; echo two > a.txt")
    session.rewind(1)
    assert (text(work, "a.txt"), (tmp_path / "hard").read_text()) == ("one\n", "two\n")


@pytest.mark.parametrize("lost", ["root", "file"])
def test_a_snapshot_that_is_missing_is_an_error_and_deletes_nothing(tmp_path: Path, work: Path, lost: str) -> None:
    """A snapshot that failed counts as an empty one: https://github.com/google-gemini/gemini-cli/issues/13331

    The same for one that was swept out after seven days: a failing `ls-tree` there means "delete the file".
    """
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
        session.user("first")
        point = session.checkpoint("c")
        run(session, work, "echo two > a.txt; echo n > new; rm src/b.py")
        before = look(work)
        content = sha256(b"one\n").hexdigest() if lost == "file" else point.tree
        store._write(lambda tx: tx.run("UPDATE blob SET hash = ? WHERE hash = ?", ("0" * 64, content)))
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
        for move in (session.rewind, lambda point: session.preview_rewind(point).apply()):
            with pytest.raises(Corrupt):
                move("c")
            assert (look(work), len(session.messages())) == (before, 2)
        with pytest.raises(Corrupt):  # it was there: NotFound would say that it was not
            session.file_at("a.txt", "c")
        with pytest.raises(Corrupt):
            session.fork("c", as_session=True, into=tmp_path / "elsewhere")
        assert not (tmp_path / "elsewhere").exists()


def test_a_gitignore_that_goes_back_deletes_nothing(session: Session, work: Path) -> None:
    """The reverted `.gitignore` no longer protects, and `clean -fd` deletes: https://github.com/cline/cline/issues/14367"""
    session.user("second")
    point = session.checkpoint("c")
    run(session, work, "echo 'data/' > .gitignore; mkdir data; echo precious > data/p; echo s > secret.env")
    run(session, work, "echo '*.env' >> .gitignore; echo t > other.env")
    session.user("third")
    shell(work, "echo mine > data/mine; echo mine > mine.env")
    preview = session.preview_rewind(point)
    preview.apply()
    assert text(work, "data/p") == "precious\n", "never deleted: it was not captured, so not seen being created"
    assert text(work, "data/mine") == "mine\n"
    assert text(work, "mine.env") == "mine\n"
    assert text(work, "other.env") == "t\n"
    assert not (work / ".gitignore").exists()
    assert not (work / "secret.env").exists(), "it was seen being created"


def test_a_rule_that_hides_what_was_captured_hides_nothing(session: Session, work: Path) -> None:
    """An agent that writes `*` into .gitignore must not hide what it does next."""
    before = look(work)
    run(session, work, "echo '*' > .gitignore")
    run(session, work, "echo two > a.txt; rm src/b.py; echo n > new")
    preview = session.preview_rewind(1)
    assert all(any(name in each for each in preview.not_captured) for name in (".gitignore", "new"))
    preview.apply()
    assert look(work, but=(b".gitignore", b"new")) == before


def test_an_undo_after_a_restart_also_takes_back_what_a_rule_names_by_now(tmp_path: Path, work: Path) -> None:
    """What was captured once stays captured, also for the process that comes next."""
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
        session.user("first")
        run(session, work, "echo l > x.log")
        run(session, work, "echo '*.log' > .gitignore")
        point = session.checkpoint("c")
        run(session, work, "rm x.log")
        session.rewind(point)
        assert (work / "x.log").exists()
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=work) as session:
        session.undo()
        assert not (work / "x.log").exists()


def test_what_an_unchanged_workspace_costs(store: Store, session: Session, work: Path) -> None:
    """120 GB of checkpoints: https://github.com/cline/cline/issues/4388"""
    (work / "big").write_bytes(os.urandom(1 << 20))
    session.user("second")
    size = store.stats().total_bytes
    for number in range(20):
        run(session, work, "true")
        session.checkpoint(f"c{number}")
    assert store.stats().total_bytes - size < 200_000
