"""Going back and forth: what is shown before it is done, what is asked, and that it can be taken back."""

import pytest
from _terminal import Terminal
from _world import Ran, World, use_tool

from _forged import CONTENT, Forged, a_file, planted, tree_of

pytestmark = pytest.mark.feature("F10")

PREVIEW = [
    'Rewind ####### "Fix the flaky retry test" from turn 2 to the end of turn 1, 23h ago',
    "  in            PROJECT",
    '  conversation  removes 1 turn (from "Now make it fast" on); still on branch main',
    "  work          tasks, plan, notes and state as they were then",
    "  files         D new.py +0 -1   (created by bash in turn 2)",
    "                M pool.py +1 -1   (changed by bash in turn 2)",
    "  kept          ! yours.txt changed from outside, left alone (--overwrite yours.txt deletes it)",
]


@pytest.fixture(autouse=True)
def _yours(work: World) -> None:
    (work.project / "yours.txt").write_text("mine\n")


def shown(world: World, ran: Ran) -> list[str]:
    """Return the lines of a plan; the directory is PROJECT."""
    return [line.replace(str(world.project), "PROJECT") for line in ran.lines]


def files(world: World) -> dict[str, str]:
    """Read the project."""
    return {path.name: path.read_text() for path in sorted(world.project.iterdir())}


BEFORE = {"new.py": "x\n", "pool.py": "broken\n", "yours.txt": "mine\n"}
AFTER = {"pool.py": "retry(5)\n", "yours.txt": "mine\n"}


# ---------------------------------------------------------------------- checkpoint


def test_a_checkpoint_is_made_and_named(work: World) -> None:
    ran = work.ok("checkpoint", "two", "-m", "before lunch")
    assert ran.lines == ["Checkpoint two at turn 2 of #######"]
    assert "Go back to it with: takeback rewind " in ran.err
    document = work.ok("checkpoint", "three", "-s", "oauth", "--json").document
    assert (document["name"], document["turn"]) == ("three", 3)
    assert work.ok("checkpoints", "fix-retry", "--fields", "name").out.split() == ["fixed", "two"]


@pytest.mark.trial("T11")
def test_a_dry_run_shows_the_name_of_a_checkpoint_escaped(work: World) -> None:
    ran = work.ok("checkpoint", "two\x1b[2J\u202e", "-n")
    assert "would save checkpoint two\\x1b[2J\\u202e at turn 2" in ran.err
    assert "\x1b" not in ran.err


def test_a_dry_run_makes_no_checkpoint(work: World) -> None:
    assert work.ok("checkpoint", "two", "-n").err.startswith("Dry run: would save checkpoint two at turn 2 of ")
    assert work.ok("checkpoints", "--fields", "name").out.split() == ["fixed"]


# ---------------------------------------------------------------------- rewind


@pytest.mark.parametrize("point", ["fix-retry:fixed", "@:fixed", ":fixed", "fixed"])
def test_a_dry_run_shows_the_plan_and_changes_nothing(work: World, point: str) -> None:
    ran = work.ok("rewind", point, "-n")
    assert (shown(work, ran), ran.err) == (PREVIEW, "Dry run: nothing was changed.\n")
    assert files(work) == BEFORE


def test_off_a_terminal_a_yes_is_needed(work: World) -> None:
    ran = work.run("rewind", "fixed")
    assert (ran.code, shown(work, ran)) == (5, PREVIEW)
    assert "no terminal to ask on; add --yes, or -n to preview it" in ran.err
    assert files(work) == BEFORE


def test_the_plan_names_the_session_that_also_changed_a_path_and_what_was_not_captured(work: World) -> None:
    (work.project / ".gitignore").write_text(".env\nbuild/\n")
    (work.project / ".env").write_text("x")
    for name in ("build/a", "build/b", "build/deep/c"):
        (work.project / name).parent.mkdir(parents=True, exist_ok=True)
        (work.project / name).touch()
    with work.open() as store:
        with store.session("fix-retry", agent="coder", workspace=work.project) as s:
            s.user("Go on")
            use_tool(s, "bash", lambda: (work.project / "api.py").write_text("mine\n"))
        with store.session("other", agent="coder", workspace=work.project) as other:
            other.user("Change it")
            use_tool(other, "bash", lambda: (work.project / "api.py").write_text("theirs\n"))
            lines = work.ok("rewind", "fix-retry:1", "-n").out.splitlines()
            document = work.ok("rewind", "fix-retry:1", "-n", "--json").document
    (others,) = [line for line in lines if line.startswith("  others")]
    assert others.startswith("  others        ! api.py changed later by bash of session 'other', left alone")
    assert f"--with {other.id}" in others
    for missed in (".env (ignored)", "build/ (ignored, 3 files)"):
        assert f"  not captured  {missed}; it does not come back" in lines
    assert {*document["stays"]} == {".env", "build"}
    work.ok("checkpoint", "later", "-s", "fix-retry")
    (work.project / "pool.py").unlink()
    lines = work.ok("rewind", "fix-retry:later", "-n").out.splitlines()
    for missed in (".env (ignored)", "build/ (ignored, 3 files)"):
        assert f"  not captured  {missed}; it does not come back" in lines
    assert (document["others"], document["other_sessions"]) == (["api.py"], {"api.py": other.id})


def test_with_yes_it_is_done_and_undone_and_redone(work: World) -> None:
    assert "Take it back with: takeback undo" in work.ok("rewind", "fixed", "-y").err
    assert files(work) == AFTER
    assert "Now make it fast" not in work.ok("show").out
    ran = work.run("undo")
    assert (ran.code, shown(work, ran)) == (
        5,
        [
            'Undo ####### "Fix the flaky retry test" from turn 1 to the end of turn 2',
            "  in            PROJECT",
            "  back          3 messages from another branch",
            "  work          tasks, plan, notes and state as they were then",
            "  files         A new.py +1 -0   (deleted by an earlier rewind)",
            "                M pool.py +1 -1   (changed by an earlier rewind)",
        ],
    )
    assert "Undone in " in work.ok("undo", "-y").err
    assert files(work) == BEFORE
    assert "Redone in " in work.ok("redo", "-y").err
    assert files(work) == AFTER
    assert work.ok("ops", "--fields", "kind").out.split() == ["redo", "undo", "rewind"]


def test_only_files_or_only_the_conversation(work: World) -> None:
    work.ok("rewind", "fixed", "--files", "-y")
    assert files(work) == AFTER
    assert "Now make it fast" in work.ok("show").out
    work.ok("undo", "-y")
    work.ok("rewind", "fixed", "--conversation", "-y")
    assert files(work) == BEFORE
    assert "Now make it fast" not in work.ok("show").out
    assert work.run("rewind", "fixed", "--files", "--conversation").code == 2


def test_your_own_edit_goes_back_only_when_it_is_named(work: World) -> None:
    work.ok("rewind", "fixed", "-y", "--overwrite", "yours.txt")
    assert files(work) == {"pool.py": "retry(5)\n"}
    assert work.run("rewind", "fixed", "-n", "--overwrite", "nosuch").code == 4


def test_a_rewind_for_programs(work: World) -> None:
    document = work.ok("rewind", "fixed", "-n", "--json").document
    assert (document["applied"], document["turns"], document["kept"]) == (False, 1, ["yours.txt"])
    assert [(each["path"], each["action"], each["removed"]) for each in document["files"]] == [
        ("new.py", "delete", 1),
        ("pool.py", "overwrite", 1),
    ]
    document = work.ok("rewind", "fixed", "-y", "--json").document
    assert document["operation"]["paths"] == ["new.py", "pool.py"]
    assert work.ok("rewind", "oauth:1", "-y", "-q").out.strip() == work.ok("ops", "-q", "--limit", "1").out.strip()


def test_nothing_to_rewind_is_no_error(work: World) -> None:
    assert work.ok("rewind", "oauth:3", "--conversation").lines[2] == "  nothing would change"


def test_without_a_point_off_a_terminal_one_must_be_named(work: World) -> None:
    ran = work.run("rewind")
    assert ran.code == 2
    assert "name a point: takeback rewind " in ran.err


def test_points_that_are_not_there(work: World) -> None:
    assert work.run("rewind", "fix-retry:9", "-n").code == 4
    assert work.run("rewind", "nosuch", "-n").code == 4
    assert work.run("rewind", "fix-retry:nosuch", "-n").code == 4


def test_a_session_that_runs_elsewhere_is_busy(work: World) -> None:
    with work.open() as store, store.session("fix-retry", agent="coder", workspace=work.project):
        ran = work.process("rewind", "fixed", "-y")
        assert ran.returncode == 6
        assert "or take it over (--take-over)" in ran.stderr
        assert work.process("rewind", "fixed", "-y", "--take-over").returncode == 0
    assert files(work) == AFTER


# ---------------------------------------------------------------------- the question


def test_a_terminal_is_asked(work: World) -> None:
    terminal = Terminal("rewind", "fixed")
    terminal.answer("Apply? [y]es [d]iff [n]o ", "d\n")
    terminal.wait_for("+retry(5)")
    assert "-broken" in terminal.seen
    terminal.answer("Apply? [y]es [d]iff [n]o ", "y\n")
    assert terminal.end() == 0
    assert "Rewound in " in terminal.seen
    assert files(work) == AFTER


def test_no_is_an_answer(work: World) -> None:
    terminal = Terminal("rewind", "fixed", env={"NO_COLOR": "1"})
    terminal.answer("Apply? ", "n\n")
    assert terminal.end() == 0
    assert "Nothing was changed." in terminal.seen
    assert "\x1b" not in terminal.seen
    assert files(work) == BEFORE


def test_a_terminal_gets_colours(work: World) -> None:
    terminal = Terminal("ls")
    assert terminal.end() == 0
    assert "\x1b[36m" in terminal.seen


def test_ctrl_c_at_the_question_changes_nothing(work: World) -> None:
    terminal = Terminal("rewind", "fixed")
    terminal.wait_for("Apply? ")
    terminal.interrupt()
    assert terminal.end() == 130
    assert files(work) == BEFORE


def test_without_a_point_a_terminal_shows_the_prompts(work: World) -> None:
    terminal = Terminal("rewind")
    terminal.wait_for("Now make it fast")
    terminal.answer("Go back to before which turn, or to which checkpoint? [1-2 or a name, Enter cancels] ", "2\n")
    terminal.answer("Apply? ", "y\n")
    assert terminal.end() == 0
    assert "from turn 2 to the end of turn 1" in terminal.seen
    assert files(work) == AFTER


@pytest.mark.trial("T39")
def test_a_checkpoint_is_a_point_to_pick(work: World) -> None:
    terminal = Terminal("rewind")
    terminal.wait_for("checkpoint: it works")
    terminal.answer("Enter cancels] ", "fixed\n")
    terminal.answer("Apply? ", "y\n")
    assert terminal.end() == 0
    assert files(work) == AFTER


def test_long_reading_goes_through_a_pager(work: World) -> None:
    with work.open() as store:
        s = store.get_session("oauth")
        for number in range(30):
            s.user(f"line {number}")
    pager = {"PAGER": "sed -e s/^/PAGED:/"}
    terminal = Terminal("show", "oauth", env=pager)
    assert terminal.end() == 0
    assert "PAGED:" in terminal.seen
    terminal = Terminal("show", "oauth", "--no-pager", env=pager)
    assert terminal.end() == 0
    assert "PAGED:" not in terminal.seen


# ---------------------------------------------------------------------- undo, redo


def test_nothing_to_undo_or_redo_is_a_conflict(work: World) -> None:
    for verb in ("undo", "redo"):
        ran = work.run(verb)
        assert (ran.code, ran.err) == (
            5,
            f"takeback: there is nothing to {verb} in this workspace; in any workspace: takeback {verb} --all\n",
        )


def test_an_operation_is_undone_by_its_id_and_workspaces_are_apart(work: World) -> None:
    with work.open() as store:
        store.get_session("fix-retry").rename("Other")
        store.get_session("refunds").rename("Elsewhere")
    assert work.ok("undo").lines[0].startswith("undo: ")
    assert work.ok("show", "fix-retry").lines[0] == "####### Fix the flaky retry test, named fix-retry"
    wanted = work.ok("ops", "--all", "--json").document["operations"][1]
    assert (wanted["kind"], wanted["undone"]) == ("rename", False)
    assert work.ok("undo", "--op", wanted["id"], "-n").err.startswith("Dry run: would undo rename")
    work.ok("undo", "--op", wanted["id"][:20])
    assert "Refund triage" in work.ok("show", "refunds").out
    assert work.run("undo", "--op", "zzz").code == 4
    assert work.run("undo", "--op", "1").code == 4
    work.ok("redo")
    assert "Other" in work.ok("show", "fix-retry").lines[0]


# ---------------------------------------------------------------------- branches


def test_fork_and_switch(work: World) -> None:
    ran = work.ok("fork", "fixed", "--name", "try-lock")
    assert ran.lines == ["Forked ####### at entry 6 into branch try-lock"]
    assert "Switch to it with: takeback switch " in ran.err
    assert work.ok("switch", "try-lock").lines == ["####### is now on try-lock, at turn 1"]
    assert "Now make it fast" not in work.ok("show", "fix-retry").out
    work.ok("undo")
    assert "Now make it fast" in work.ok("show", "fix-retry").out
    assert work.ok("switch", "fix-retry/try-lock", "-n").err.startswith("Dry run: would switch ")
    assert work.ok("switch", "fix-retry/try-lock", "--json").document["kind"] == "switch"
    assert work.ok("fork", "oauth:2", "--name", "b", "--json").document["fork_seq"] == 5


def test_switch_with_files_shows_its_plan(work: World) -> None:
    work.ok("fork", "fixed", "--name", "try-lock")
    ran = work.run("switch", "try-lock", "--files")
    assert ran.code == 5
    assert ran.lines[0] == 'Switch ####### "Fix the flaky retry test" from turn 2 to the end of turn 1'
    assert files(work) == BEFORE
    work.ok("switch", "try-lock", "--files", "-y")
    assert files(work) == AFTER


def test_a_fork_may_be_a_session_with_files_of_its_own(work: World) -> None:
    into = work.project.parent / "second"
    document = work.ok("fork", "fixed", "--name", "second way", "--into", str(into), "--json").document
    assert (document["name"], document["workspace"]) == ("second way", str(into))
    assert (into / "pool.py").read_text() == "retry(5)\n"
    assert work.ok("fork", "oauth", "--session").lines == ["Forked ####### into session #######"]
    assert work.ok("fork", "oauth", "-n").err.startswith("Dry run: would start a branch at the head of ")


def test_switch_without_a_branch_names_them(work: World) -> None:
    ran = work.run("switch", "oauth")
    assert ran.code == 2
    assert "the branches are main" in ran.err
    assert work.run("switch", "nosuch").code == 4


def test_a_switch_says_that_files_stay_and_when_nothing_moved(work: World) -> None:
    work.ok("fork", ":1", "--name", "try it")
    ran = work.ok("switch", "try it")
    assert "is now on try it, at turn 1" in ran.out
    short = work.ok("ls", "--fields", "id").out.split()[0][:7]
    assert "Files were not switched: 2 files differ from that branch. " in ran.err
    assert f"Switch them: takeback switch '{short}/try it' --files" in ran.err
    assert "Take it back with: takeback undo" in ran.err
    again = work.ok("switch", "try it")
    assert "is already on try it, at turn 1" in again.out
    assert "undo" not in again.err, "there is nothing of this to take back"
    work.ok("switch", "try it", "--files", "-y")
    assert (work.project / "pool.py").read_text() == "retry(5)\n"


def test_a_checkpoint_is_not_named_like_a_point(work: World) -> None:
    for name in ("12", "12^", "e340"):
        ran = work.run("checkpoint", name)
        assert (ran.code, "already names a turn or an entry" in ran.err) == (2, True)
    work.ok("checkpoint", "v12")


def test_only_a_rewind_offers_to_take_your_edit_back(work: World) -> None:
    (work.project / "my file").write_text("mine\n")
    (work.project / "pool.py").write_text("mine too\n")
    ran = work.ok("rewind", ":1", "-n")
    assert "pool.py changed from outside, left alone (--overwrite pool.py restores it)" in ran.out
    work.ok("rewind", ":1", "-y")
    (work.project / "new.py").write_text("mine as well\n")
    assert "--overwrite" not in work.ok("undo", "-n").out


def test_an_empty_name_of_a_store_is_refused(work: World) -> None:
    for verb in ("ls", "status"):
        ran = work.run("--store", "", verb)
        assert (ran.code, "--store is empty" in ran.err) == (2, True)


def test_a_bare_number_is_answered_with_the_point_that_was_meant(work: World) -> None:
    ran = work.run("rewind", "1", "-n")
    assert ran.code == 4
    assert ran.err.endswith("For a turn of the newest session here write :1\n")
    assert "takeback log shows them all" in work.run("switch", "oauth/nosuch").err


def test_a_dry_run_of_fork_and_switch_gives_no_document(work: World) -> None:
    for command in (("fork", ":1"), ("switch", "main")):
        ran = work.run(*command, "-n", "--jsonl")
        assert (ran.code, ran.out) == (0, "")
        assert ran.err.startswith("Dry run: would ")


def test_operations_name_branches_and_show_no_long_ids(work: World) -> None:
    work.ok("fork", ":1", "--name", "try-lock")
    work.ok("switch", "try-lock")
    work.ok("fork", "oauth:1", "--session")
    out = work.ok("ops").out
    assert "branch try-lock shown" in out
    assert "from branch main to try-lock" in out
    assert not any(len(word) > 20 for word in out.split())


def test_before_the_first_turn_is_said_so(work: World) -> None:
    assert "from turn 3 to before turn 1" in work.ok("rewind", "oauth:1^", "-n").out


# ---------------------------------------------------------------------- repositories


@pytest.mark.trial("T1")
@pytest.mark.promise("R27")
def test_a_repository_in_a_snapshot_has_a_line_of_its_own_and_is_not_written(work: World) -> None:
    forged = Forged(tree_of([a_file(b".git"), a_file(b"kept.txt")]), (CONTENT,))
    with work.open() as store, store.get_session("fix-retry") as s:
        s.capture_files()
        seq = planted(s, forged)
    ran = work.ok("rewind", f"fix-retry:e{seq}", "-n")
    assert "  not written   ! .git belongs to a repository: never written" in ran.lines
    document = work.ok("rewind", f"fix-retry:e{seq}", "-y", "--json").document
    assert document["not_written"] == [".git"]
    assert (work.project / "kept.txt").read_bytes() == CONTENT
    assert not (work.project / ".git").exists()
    told = work.process("fork", f"fix-retry:e{seq}", "--into", "../elsewhere", "--name", "other")
    assert told.returncode == 0, told.stderr
    assert "'.git' was not written into" in told.stderr
    assert sorted(path.name for path in (work.project.parent / "elsewhere").iterdir()) == ["kept.txt"]
