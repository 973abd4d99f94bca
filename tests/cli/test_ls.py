"""``ls``: what is there, and what is not shown and why."""

import json

import pytest
from _terminal import Terminal
from _world import HOUR, ID, World

pytestmark = pytest.mark.feature("F10")


def test_the_sessions_of_this_workspace_are_listed_last_changed_first(work: World) -> None:
    ran = work.ok("ls")
    assert ran.lines == [
        "  ID       AGE  AGENT  WORKSPACE  BRANCH  TURNS  TOKENS  TITLE",
        "  #######  23h  coder  pay        main        2     42k  Fix the flaky retry test",
        "  #######  1d   coder  pay        main        3     12k  Add OAuth, step 1",
    ]
    assert ran.err == "2 of 3 (this workspace; -a for all)\n"


def test_all_of_them_with_a(work: World) -> None:
    ran = work.ok("ls", "-a")
    assert [line.split()[-2:] for line in ran.lines[1:]] == [["retry", "test"], ["Refund", "triage"], ["step", "1"]]
    assert ran.err == "3 of 3 (all workspaces)\n"


def test_a_directory_below_the_workspace_belongs_to_it(work: World) -> None:
    (work.project / "src" / "deep").mkdir(parents=True)
    assert work.ok("-C", "src/deep", "ls").lines == work.ok("ls").lines


def test_ids_only_and_fields_and_json(work: World) -> None:
    ids = work.ok("ls", "-q").out.split()
    assert [len(each) for each in ids] == [25, 25]
    assert work.ok("ls", "--fields", "id,turn_count,name").out.splitlines() == [
        f"{ids[0]}\t2\tfix-retry",
        f"{ids[1]}\t3\toauth",
    ]
    document = work.ok("ls", "--json").document
    assert document["workspace"] == str(work.project)
    assert [(each["id"], each["branch"], each["tokens"]) for each in document["sessions"]] == [
        (ids[0], "main", 42_100),
        (ids[1], "main", 12_300),
    ]
    lines = [json.loads(line) for line in work.ok("ls", "--jsonl", "--fields", "id").out.splitlines()]
    assert lines == [{"id": each} for each in ids]


def test_a_field_that_is_not_there_is_a_slip(work: World) -> None:
    ran = work.run("ls", "--fields", "nmae")
    assert ran.code == 2
    assert "no such field: 'nmae'; choose from: id, key, name" in ran.err


def test_filters(work: World) -> None:
    assert work.ok("ls", "-a", "--agent", "triage", "--fields", "name").out == "refunds\n"
    assert work.ok("ls", "--since", "25h", "--fields", "name").out == "fix-retry\n"
    assert work.ok("ls", "--limit", "1", "--fields", "name").out == "fix-retry\n"
    assert "--limit for more" in work.ok("ls", "--limit", "1").err
    assert work.run("ls", "--since", "yesterday").code == 2
    assert work.run("ls", "--status", "dead").code == 2


def test_an_empty_list_says_which_filter_hid_how_many(work: World) -> None:
    ran = work.ok("ls", "--agent", "triage")
    assert ran.out == ""
    assert ran.err == f"No matching sessions in {work.project}: --agent hides 2. Show them: takeback ls\n"
    ran = work.ok("ls", "--agent", "nobody", "--tag", "none")
    assert "the filters together hide 2" in ran.err


def test_elsewhere_it_says_how_many_there_are(work: World) -> None:
    ran = work.ok("-C", "/", "ls")
    assert (ran.out, ran.err) == ("", "No sessions in / yet; 3 elsewhere. Show them: takeback ls -a\n")


def test_without_a_store_none_is_made(world: World) -> None:
    ran = world.ok("ls")
    assert ran.out == ""
    assert ran.err == f"No sessions: there is no store at {world.url} yet. Start one: takeback new NAME\n"
    assert world.ok("ls", "--json").document["sessions"] == []
    assert not world.url.exists()


def test_one_that_was_cut_off_is_marked_with_what_to_do(work: World) -> None:
    with work.open() as store:
        work.clock.ms += HOUR
        s = store.session("cut", workspace=work.project)
        s.user("Begin")
        try:
            with s:
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
    row = work.ok("ls").lines[1]
    assert row.startswith("⚠ ")
    assert row.endswith("interrupted at turn 1: takeback resume #######")


@pytest.mark.parametrize(("columns", "title"), [(80, "Fix flaky retry t..."), (130, "Fix flaky retry test i...")])
def test_a_terminal_cuts_titles_and_never_what_to_do(world: World, columns: int, title: str) -> None:
    with world.open() as store:
        s = store.session(
            "cut", agent="coder", workspace=world.project, title="Fix flaky retry test in the connection pool"
        )
        s.user("Begin")
        with pytest.raises(KeyboardInterrupt), s:
            raise KeyboardInterrupt
        world.clock.ms -= HOUR
        store.create_session("plain", agent="coder", workspace=world.project, title="x" * 200)
    terminal = Terminal("ls", env={"NO_COLOR": "1"}, columns=columns)
    assert terminal.end() == 0
    rows = [ID.sub("#######", line) for line in terminal.seen.splitlines()]
    cut = next(row for row in rows if row.startswith("⚠"))
    assert cut.endswith(f"{title}  interrupted at turn 1: takeback resume #######")
    plain = next(row for row in rows if "xxx" in row)
    assert (len(plain), plain[-4:]) == (columns, "x...")


def test_one_that_runs_is_marked(work: World) -> None:
    with work.open() as store, store.session("oauth", agent="coder", workspace=work.project):
        assert [line[:1] for line in work.ok("ls").lines[1:]] == ["●", " "]
