"""``search`` and ``ls TEXT``: what is found, how it is shown, and what an empty result says."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys

import pytest
from _terminal import Terminal
from _world import HOUR, ID, World, use_tool

import takeback

pytestmark = pytest.mark.feature("E10")


@pytest.fixture
def said(world: World) -> World:
    """Two sessions in the project that speak of a pool, and one elsewhere that does too."""
    with world.open() as store:
        with store.session("pool", agent="coder", workspace=world.project) as s:
            s.user("The connection pool leaks")
            use_tool(s, "bash", lambda: None, result="pool.py:12: release the lock")
            s.assistant("It forgets to release its lock. \x1b[2JFixed in src/pool.py.")
            s.set_tasks(["Test the pool"])
            s.note("The pool had no limit")
            s.record_file("src/pool.py", "edit")
        world.clock.ms += 2 * HOUR
        store.create_session("docs", agent="writer", workspace=world.project).user("Explain the lock in the guide")
        elsewhere = world.project.parent / "elsewhere"
        elsewhere.mkdir()
        store.create_session("other", agent="coder", workspace=elsewhere).user("A swimming pool for the office")
    return world


def _refs(world: World, *arguments: str) -> list[str]:
    """Return what was found: the entry or kind of each hit, with the name of its session."""
    found = world.run("search", "--json", *arguments)
    assert found.code in (0, 3), found.err
    with world.open() as store:
        return [
            f"{store.get_session(hit['session_id']).name} {hit['role'] if hit['kind'] == 'message' else hit['kind']}"
            for hit in json.loads(found.out)["hits"]
        ]


# ---------------------------------------------------------------------- what is found


def test_a_hit_says_where_when_who_and_what(said: World) -> None:
    ran = said.ok("search", "leaks", "connection")
    assert ran.lines == [
        "REF         AGE  WHAT   SESSION",
        "#######     1d   title  The connection pool leaks",
        "    The «connection» pool «leaks»",
        "#######:e2  1d   user   The connection pool leaks",
        "    The «connection» pool «leaks»",
    ]
    assert ran.err == "2 hits (this workspace; -a for all)\n"


def test_every_ref_of_a_hit_opens_there(said: World) -> None:
    refs = said.ok("search", "pool", "-q").out.split()
    assert len(refs) >= 6
    for ref in refs:
        said.ok("show", ref)
    entry = said.ok("search", "--in", "assistant", "forgets", "-q").out.strip()
    assert said.ok("show", entry, "--tools", "none").lines[-1].startswith("  It forgets to release its lock.")


def test_what_a_hit_found_is_shown_in_full(said: World) -> None:
    with said.open() as store, store.session(store.get_session("pool")) as s:
        s.note("the heron waits")
        s.set_plan("feed the heron")
        s.set_tasks(["find a heron"])
        with s.tool("bash", {"command": "cat birds"}) as run:
            run.result("\n".join([*(f"bird {number}" for number in range(200)), "a heron"]))
    refs = said.ok("search", "heron", "--fields", "ref", "--in", "note,plan,task,result").out.split()
    assert len(refs) == 4
    for ref in refs:
        shown = said.ok("show", ref).out.splitlines()
        assert any("heron" in each for each in shown[-2:]), "it comes last"


def test_work_is_shown_as_people_read_it(said: World) -> None:
    with said.open() as store, store.session(store.get_session("pool")) as s:
        s.set_plan("feed the heron\nthen rest")
        s.set_tasks([takeback.Task("find a heron", "completed")])
        s.note("the heron waits", task=0)
        with s.tool("bash", {"command": "cat heron"}):
            pass
        s.record_file("heron/notes.txt", "modified")
        s.append(takeback.Custom("sighting", {"x": 1}, text="a grey heron"))
        s.compact(1, "about a heron")
    shown = {
        each: said.ok("show", ref).lines[-2:]
        for ref, each in (
            line.split("\t") for line in said.ok("search", "heron", "--fields", "ref,kind").out.splitlines()
        )
    }
    assert shown == {
        "plan": ["  plan: feed the heron", "  then rest"],
        "task": [shown["task"][0], "  task 1 [completed] find a heron"],
        "note": [shown["note"][0], "  note on t1: the heron waits"],
        "call": [shown["call"][0], '  call bash {"command": "cat heron"}'],
        "file": [shown["file"][0], "  file modified heron/notes.txt"],
        "custom": [shown["custom"][0], "  a grey heron"],
        "summary": [shown["summary"][0], "  summary: about a heron"],
    }
    assert all(lines[0].startswith("entry ") for kind, lines in shown.items() if kind != "plan")


def test_an_attachment_is_named_by_the_hit_and_by_show(said: World) -> None:
    with said.open() as store:
        files = [{"data": b"x", "name": name, "type": "file"} for name in ("budget.pdf", "logs.txt")]
        store.get_session("docs").user("see these", attachments=files)
        store.get_session("docs").user("", attachments=[{"data": b"x", "type": "image"}])
    ran = said.ok("search", "budget")
    assert ran.lines[-1] == "    attached: «budget».pdf, logs.txt"
    ref = said.ok("search", "budget", "-q").out.strip()
    assert said.ok("show", ref).lines[-2:] == ["  see these", "  attached: budget.pdf, logs.txt"]
    assert "> attached: budget.pdf, logs.txt" in said.ok("show", "docs", "--md").lines
    assert "  attached: image without a name" in said.ok("show", "docs").lines


def test_this_workspace_is_searched_unless_all_are(said: World) -> None:
    assert "other user" not in _refs(said, "pool")
    assert "other user" in _refs(said, "-a", "pool")
    lines = said.ok("search", "-a", "swimming").lines
    assert lines[0].split() == ["REF", "AGE", "WHAT", "WORKSPACE", "SESSION"]
    assert lines[3].split()[2:4] == ["user", "elsewhere"]


def test_words_phrases_beginnings_alternatives_and_exclusions(said: World) -> None:
    assert _refs(said, "release", "lock") == ["pool assistant", "pool result"]
    assert _refs(said, '"the lock"') == ["docs title", "docs user", "pool result"]
    assert sorted(_refs(said, "swim*", "OR", "gui*", "-a")) == ["docs title", "docs user", "other title", "other user"]
    assert _refs(said, "lock", "--", "-release") == ["docs title", "docs user"]
    assert _refs(said, "lock", "--in", "message", "--", "-forgets", "-gui*") == []


@pytest.mark.parametrize(
    ("places", "found"),
    [
        ("user", ["pool user"]),
        ("assistant", ["pool assistant"]),
        ("user,assistant", ["pool assistant", "pool user"]),
        ("tool", ["pool result"]),
        ("task, note", ["pool note", "pool task"]),
        ("title", ["pool title"]),
        ("file", ["pool file"]),
        ("plan", []),
    ],
)
def test_parts_of_sessions(said: World, places: str, found: list[str]) -> None:
    assert sorted(_refs(said, "pool", "--in", places)) == found
    split = [each for name in places.split(",") for each in ("--in", name.strip())]
    assert sorted(_refs(said, "pool", *split)) == found


def test_a_part_that_is_not_there_is_usage_with_a_hint(said: World) -> None:
    for name, hint in (("tasks", "did you mean task?"), ("xyzzy", "choose from: user, assistant, system, tool, ")):
        ran = said.run("search", "pool", "--in", name)
        assert (ran.code, f"{name!r} is not a part of a session; {hint}" in ran.err) == (2, True), ran.err
    assert said.run("search", "pool", "--in", ",").code == 2


def test_the_other_filters(said: World) -> None:
    assert _refs(said, "pool", "--tool", "bash") == ["pool result"]
    assert _refs(said, "pool", "--path", "src/pool.py") != []
    assert _refs(said, "lock", "--agent", "writer", "--in", "message") == ["docs user"]
    assert {each.split()[0] for each in _refs(said, "lock", "--since", "29h")} == {"docs"}
    assert {each.split()[0] for each in _refs(said, "lock", "--until", "29h")} == {"pool"}
    assert {each.split()[0] for each in _refs(said, "pool", "--session", "other", "-C", "../elsewhere")} == {"other"}
    ran = said.run("search", "pool", "--session", "nosuch")
    assert (ran.code, ran.err.endswith("Try: takeback ls -a\n")) == (4, True)
    assert said.run("search", "pool", "--session", "pool:1").code == 2
    assert said.run("search", "pool", "--since", "whenever").code == 2


def test_a_session_is_found_wherever_it_belongs(said: World) -> None:
    with said.open() as store:
        other = store.get_session("other").id
    ran = said.ok("search", "pool", "--session", other, "--in", "user")
    assert ran.err == "1 hit (one session)\n"


def test_one_hit_per_session(said: World) -> None:
    assert len(_refs(said, "pool", "-a", "--sessions")) == 2
    assert {each.split()[0] for each in _refs(said, "lock", "--sessions")} == {"pool", "docs"}


def test_branches_that_were_left(said: World) -> None:
    said.ok("rewind", "pool:1^", "-y", "--conversation")
    assert _refs(said, "forgets") == []
    assert _refs(said, "forgets", "--branches") == ["pool assistant"]
    ref = said.ok("search", "forgets", "--branches", "-q").out.strip()
    assert re.fullmatch(rf"{ID.pattern}/main:e\d+", ref)
    assert "It forgets" in said.ok("show", ref).out


def test_a_score_explains_itself(said: World) -> None:
    lines = said.ok("search", "swimming", "-a", "--explain", "--in", "user").lines
    assert re.fullmatch(r"    score \d\.\d\d = times \d\.\d\d \+ kind \d\.\d\d \+ recent \d\.\d\d", lines[3])
    assert lines[3 - 1].strip() == "A «swimming» pool for the office"
    assert said.ok("search", "wimmin", "-a", "--explain", "--in", "user").lines[3].endswith("as a part of longer words")


# ---------------------------------------------------------------------- pages


def test_the_footer_has_the_command_of_the_next_page_and_it_runs(said: World) -> None:
    with said.open() as store:
        s = store.get_session("docs")
        for number in range(9):
            s.user(f"lock number {number}, it's fine")
    everything = said.ok("search", "lock", "--since", "3y", "-q", "--", "-leaks").out.split()
    found, command = list[str](), ["search", "lock", "--since", "3y", "--limit", "4", "--", "-leaks"]
    while True:
        found += said.ok("-q", *command).out.split()
        footer = said.ok(*command).err
        if "Next page: " not in footer:
            break
        command = [*shlex.split(footer.partition("Next page: takeback ")[2])]
    assert found == everything
    assert len(everything) > 10
    assert said.run("search", "other", "--cursor", command[command.index("--cursor") + 1]).code == 2


def test_the_next_page_of_filters_asks_the_same_question(said: World) -> None:
    flags = ["--in", "user,tool", "--in", "assistant", "--agent", "coder", "--until", "1h", "--limit", "1"]
    first = said.ok("-C", str(said.project), "search", "pool", *flags)
    again = shlex.split(first.err.partition("Next page: ")[2])
    assert again[:4] == ["takeback", "search", "-C", str(said.project)]
    assert said.ok(*again[1:]).out != first.out


# ---------------------------------------------------------------------- for programs


def test_documents_lines_and_fields(said: World) -> None:
    document = said.ok("search", "pool", "--json", "--limit", "2", "--explain").document
    assert (document["query"], document["workspace"], document["exact"]) == ("pool", str(said.project), True)
    assert len(document["hits"]) == 2
    assert document["cursor"] is not None
    assert document["hits"][0]["why"].keys() == {"words", "times", "kind", "recent"}
    lines = [json.loads(each) for each in said.ok("search", "pool", "--jsonl", "--limit", "2").out.splitlines()]
    assert [each["ref"] for each in lines] == [each["ref"] for each in document["hits"]]
    assert said.ok("search", "pool", "--fields", "kind", "--in", "note").out == "note\n"


def test_nothing_found_is_exit_3_and_names_the_command_that_finds_it(said: World) -> None:
    ran = said.run("search", "swimming")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == f"Nothing found in {said.project}. Other workspaces have it: takeback search -a swimming\n"
    ran = said.run("search", "lock", "--in", "plan", "--agent", "coder")
    assert ran.err == (
        f"Nothing found in {said.project} with --in plan --agent coder."
        " Without these filters there is something: takeback search lock\n"
    )
    for command in ("search -a swimming", "search lock"):
        assert said.ok(*command.split(), "-q").out
    nowhere = "Nothing found in any session (the trash is not searched)."
    ran = said.run("search", "-a", "it's nosuch-thing*")
    assert ran.err == f"{nowhere} Check the spelling.\n"
    assert said.run("search", "nosuch", "--in", "plan").err == f"{nowhere} Check the spelling.\n"
    ran = said.run("search", "--since", "2099-01-01")
    since = "with --since 2099-01-01T00:00:00Z"
    assert ran.err == f"Nothing found in any session {since} (the trash is not searched).\n"
    ran = said.run("search", "--since", "2099-01-01", "--session", "docs")
    assert ran.err == f"Nothing found {since} --session docs (the trash is not searched).\n"
    empty = said.run("search", "nosuch", "--json")
    assert (empty.code, json.loads(empty.out)["hits"]) == (3, [])
    assert said.run("search", "nosuch", "-q").err == ""


def test_what_only_a_branch_that_was_left_has_is_said(said: World) -> None:
    said.ok("say", "-s", "docs", "A wombat digs")
    said.ok("rewind", "docs:1", "-y")
    ran = said.run("search", "wombat")
    assert ran.err.endswith(". A branch that was left has it: takeback search --branches wombat\n")
    assert said.ok("search", "--branches", "wombat", "-q").out
    ran = said.run("search", "wombat", "--in", "plan")
    assert ran.err.endswith("Without these filters a branch that was left has it: takeback search --branches wombat\n")
    ran = said.run("search", "wombat", "--session", "docs")
    docs = shlex.split(ran.err.partition("has it: takeback ")[2])
    assert docs == ["search", "--session", "docs", "--branches", "wombat"]
    assert said.ok(*docs, "-q").out
    other = said.project.parent / "elsewhere"
    ran = said.run("search", "wombat", "-C", str(other))
    assert ran.err.endswith(f"takeback search -C {other} -a --branches wombat\n")


def test_a_word_that_is_nowhere_is_answered_with_a_part_of_it_that_is(said: World) -> None:
    ran = said.run("search", "connecshun")
    assert ran.err.endswith("Check the spelling, or try a part of the word: takeback search conne\n")
    assert said.ok("search", "conne", "-q").out
    ran = said.run("search", "swimmimg")
    assert ran.err.endswith(": takeback search -a swimmi\n"), "elsewhere if not here"
    ran = said.run("search", '"pool connection"')
    assert ran.err.endswith("The words by themselves find something: takeback search 'pool connection'\n")


def test_a_short_word_that_is_nowhere_is_answered_with_its_longer_form(said: World) -> None:
    ran = said.run("search", "po")
    assert ran.err.endswith("Short words match only whole words. Try: takeback search 'po*'\n")
    assert said.ok("search", "po*", "-q").out
    assert said.run("search", "zz").err.endswith("Short words match only whole words.\n")


def test_a_tool_or_an_agent_that_there_is_not_is_named(said: World) -> None:
    for command, reason in {
        "search --tool bahs": "no tool 'bahs' was used; did you mean bash?",
        "search pool --tool bash,kubectl": None,
        "search nosuch --tool kubectl": "no tool 'kubectl' was used",
        "search pool --agent codr": "no session belongs to an agent 'codr'; did you mean coder?",
        "search pool --agent zzz": "no session belongs to an agent 'zzz'",
    }.items():
        ran = said.run(*command.split())
        assert (ran.code, ran.err) == (3, f"Nothing found: {reason}\n") if reason else ran.code == 0, command


def test_an_empty_store_is_said_to_be_empty(world: World) -> None:
    with world.open() as store:
        store.create_agent("coder")
    new = "the store has no sessions yet. Start one: takeback new NAME"
    assert world.run("search", "pool").err == f"Nothing found: {new}\n"
    assert world.ok("ls", "pool").err == f"No session matches: {new}\n"
    with world.open() as store:
        store.delete_session(store.create_session("one", workspace=world.project))
    trash = "all sessions are in the trash, which is not searched. Show them: takeback ls -a --trash"
    assert world.run("search", "pool").err == f"Nothing found: {trash}\n"


def test_without_words_a_filter_lists_all_there_is(said: World) -> None:
    found = said.ok("search", "--path", "src/pool.py", "--fields", "ref").out
    assert found == said.ok("search", "--path", f"{said.project}/src/pool.py", "--fields", "ref").out
    ranked = said.ok("search", '"src/pool.py"', "--path", "src/pool.py", "--fields", "ref").out
    assert sorted(found.split()) == sorted(ranked.split()) != []
    assert said.ok("search", "--path", "src/pool.py", "--fields", "kind").out.split() == ["file", "message"]
    assert said.ok("search", "--in", "note", "--fields", "kind").out == "note\n"
    assert said.ok("search", "--tool", "BASH,other", "--fields", "tool").out.split() == ["bash", "bash"]
    assert said.ok("search", "--agent", "writer", "-q").out == said.ok("search", "--session", "docs", "-q").out != ""
    assert said.ok("search", "--since", "29h", "-q").out == said.ok("search", "--agent", "writer", "-q").out
    assert said.run("search", "--branches", "-a").code == 2


def test_the_input_of_a_tool_is_shown_where_only_its_name_was_asked_for(said: World) -> None:
    assert "    bash make" in said.ok("search", "--tool", "bash").lines
    assert "    «bash» make" in said.ok("search", "bash").lines


def test_a_command_line_that_was_pasted_is_searched_for(said: World) -> None:
    said.ok("say", "-s", "docs", "git push --force-with-lease, then rm -rf build")
    assert said.ok("search", "git push --force-with-lease", "-q").out
    ran = said.ok("search", "rm -rf build")
    assert "    git push --force-with-lease, then «rm -rf build»" in ran.lines
    assert ran.err.startswith('Note: no entry has these words without "rf"; these have the text as it stands.\n')
    assert said.ok("search", '"rm -rf" build', "-q").out


def test_what_a_dash_left_out_is_said_with_the_command_that_looks_for_it(said: World) -> None:
    said.ok("say", "-s", "docs", "the pool -lock flag")
    note = (
        'Note: entries with "lock" were left out because of the dash;'
        " to search for the text as it stands, put it in double quotes: "
    )
    for query in ("pool -lock", "leaks -lock"):
        ran = said.ok("search", "-a", query)
        assert ran.err.startswith(f"{note}takeback search -a '\"{query}\"'\n"), "also when there are hits"
    assert said.ok("search", '"pool -lock"', "--fields", "seq").out.split() == ["2"]
    assert said.ok("ls", "pool -lock").err.startswith(f"{note}takeback ls '\"pool -lock\"'\n")
    ran = said.ok("search", 'pool -lock -"the guide"')
    assert """left out because of the dash""" in ran.err
    assert ran.err.splitlines()[0].endswith("takeback search '\"pool -lock - the guide\"'")


def test_no_store_and_no_words(world: World) -> None:
    ran = world.run("search", "pool")
    assert ran.code == 3
    assert ran.err == f"Nothing found: there is no store at {world.url} yet. Start one: takeback new NAME\n"
    assert not world.url.exists()
    ran = world.run("search")
    assert (ran.code, ran.err.startswith("takeback: nothing to search for; name a word")) == (2, True)
    assert world.run("search", "--rebuild").code == 4


def test_a_word_to_leave_out_that_looks_like_a_flag_is_explained(said: World) -> None:
    ran = said.run("search", "pool", "-lock")
    assert ran.code == 2
    hint = "'-lock' is not a flag of search. To leave the word out, quote the query: takeback search 'pool -lock'."
    assert f"{hint} To search for the text as it stands: takeback search '\"pool -lock\"'\n" in ran.err
    assert said.ok("search", "pool -lock", "-q").out
    assert "For fewer hits: --limit 5" in said.run("search", "-n", "2", "pool").err


@pytest.mark.parametrize(
    ("typed", "said_of_it"),
    [
        ("search git push --force", "'--force' is not a flag of search. To search for it, quote the query: {}"),
        ("search -a git --limit 5 push --force -q", "'--force' is not a flag of search. To search for it, quote"),
        ("search push --force=now", "'--force=now' is not a flag of search. To search for it, quote the query: "),
        ("search --limt 5 pool", "'--limt' is not a flag of search; did you mean --limit? To search for it, quote"),
        ("search -rf pool", "'-rf' is not a flag of search. To search for the text as it stands: "),
        ("ls pool --locked", "'--locked' is not a flag of ls. To search for it, quote the query: takeback ls"),
        ("ls pool -lock", "'-lock' is not a flag of ls. To leave the word out, quote the query: takeback ls"),
        ("ls -l", "No such option '-l'."),
    ],
)
def test_a_flag_that_there_is_not_may_be_a_part_of_the_query(said: World, typed: str, said_of_it: str) -> None:
    ran = said.run(*typed.split())
    assert (ran.code, said_of_it.format("takeback search 'git push --force'") in ran.err) == (2, True), ran.err
    said.ok("say", "-s", "docs", "git push --force=now; git --locked -rf pool; --limt 5 pool -lock")
    for command in re.findall(r"takeback ((?:search|ls) (?:-- )?'.*?')", ran.err):
        assert said.ok(*shlex.split(command)).out, command


def test_notes_go_to_stderr_and_into_the_document(said: World) -> None:
    ran = said.ok("search", "leaks", "swimming", "-a")
    assert "Note: no entry has all of these words; these have some of them.\n" in ran.err
    assert said.ok("search", "leaks", "swimming", "-a", "--json").document["notes"] != []
    assert "Note: no entry has all of these words; these have some of them.\n" in said.ok("ls", "leaks guide").err


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "; name a word or a filter, as in: takeback search pool"),
        ("...", ": the query has no letters or digits"),
        ("€", ": the query has no letters or digits"),
        ("-pool", ": the query only says what to leave out"),
        ("NOT", ": AND and NOT are not words to look for; put them in double quotes"),
    ],
)
def test_a_query_with_nothing_in_it_is_usage_with_the_reason(said: World, query: str, reason: str) -> None:
    ran = said.run("search", "--", query)
    assert (ran.code, ran.out, ran.err) == (2, "", f"takeback: nothing to search for{reason}\n")
    if query:
        assert said.run("ls", "--", query).err == ran.err
    if query in ("", "-pool"):
        assert said.ok("search", "--agent", "writer", "--", query).out
    else:
        assert said.run("search", "--agent", "writer", "--", query).code == 2


def test_more_matches_than_are_ranked_at_once_are_said(said: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from takeback.search import find

    monkeypatch.setattr(find, "WINDOW", 2)
    ran = said.ok("search", "pool", "-q")
    assert "ranked among the newest matches" in ran.err
    assert said.ok("search", "pool", "--json").document["exact"] is False


# ---------------------------------------------------------------------- on a terminal


def test_control_characters_are_shown_never_obeyed(said: World) -> None:
    assert "\\x1b[2JFixed" in said.ok("search", "forgets").out
    assert "\x1b" not in said.ok("search", "forgets").out


def test_matches_are_coloured_on_a_terminal_and_marked_without_colour(said: World) -> None:
    assert (
        "The \x1b[1;33mpool\x1b[0m had no limit" in said.ok("search", "pool", "--in", "note", "--color", "always").out
    )
    terminal = Terminal("search", "pool", "--in", "note", "--no-pager")
    assert terminal.end() == 0
    assert "\x1b[1;33mpool\x1b[0m" in terminal.seen
    terminal = Terminal("search", "pool", "--in", "note", "--no-pager", env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    assert "«pool»" in terminal.seen


@pytest.mark.parametrize("columns", [60, 120])
def test_lines_fit_the_terminal(said: World, columns: int) -> None:
    with said.open() as store:
        s = store.create_session("long", workspace=said.project, title="A title that goes on and on and on " * 4)
        s.user(f"zebra {'word ' * 60}")
        s.user(f"zebra {'x' * 300}")
        s.user("zebra 斑马" + "很长的一句话" * 40)
    terminal = Terminal("search", "zebra", "--no-pager", columns=columns, env={"NO_COLOR": "1"})
    assert terminal.end() == 0
    from takeback.cli.output import width

    lines = terminal.seen.replace("\r\n", "\n").splitlines()
    assert max(map(width, lines)) <= columns
    assert len(lines) > 10 if columns == 60 else len(lines) > 6
    assert all(each.startswith("    ") for each in lines if "word word" in each)


def test_a_match_that_wraps_is_coloured_on_both_lines() -> None:
    from takeback.cli.verbs.searching import _marked, _wrapped

    rows = [*_marked(_wrapped("one «two three» four", 8))]
    assert rows == ["one «two»", "«three»", "four"]


# ---------------------------------------------------------------------- the index


def test_what_was_just_said_is_found_and_the_index_lies_beside_the_store(said: World) -> None:
    said.ok("search", "pool")
    said.ok("say", "-s", "docs", "Mention the quagga")
    assert _refs(said, "quagga") == ["docs user"]
    index = f"{said.url}-search"
    assert os.stat(index).st_mode & 0o777 == 0o600


def test_the_index_is_made_anew(said: World) -> None:
    said.ok("search", "pool")
    before = os.stat(f"{said.url}-search").st_ino
    ran = said.ok("search", "--rebuild")
    assert (ran.out, ran.err) == ("", "Search index rebuilt.\n")
    assert os.stat(f"{said.url}-search").st_ino != before or sys.platform != "linux"
    assert said.ok("search", "--rebuild", "swimming", "-a", "-q").out
    assert said.ok("search", "--rebuild", "--json").document["hits"] == []


def test_doctor_judges_the_index(said: World) -> None:
    def finding() -> tuple[str, str, str]:
        found = said.run("doctor", "--json")
        (each,) = (each for each in json.loads(found.out)["findings"] if each["id"] == "search")
        return each["kind"], each["what"], each["fix"]

    assert finding() == ("note", "no index yet: the first search makes one", "")
    assert not os.path.exists(f"{said.url}-search"), "looking makes none"
    said.ok("search", "pool")
    assert finding()[0] == "ok"
    said.ok("say", "-s", "docs", "Something new")
    kind, what, _ = finding()
    assert (kind, "behind" in what) == ("note", True)
    with open(f"{said.url}-search", "r+b") as file:
        file.write(b"x" * 4096)
    for side in ("-wal", "-shm"):
        if os.path.exists(f"{said.url}-search{side}"):
            os.unlink(f"{said.url}-search{side}")
    kind, _, fix = finding()
    assert (kind, fix) == ("problem", "takeback search --rebuild")
    assert said.run("doctor").code == 1
    said.ok("search", "--rebuild")
    assert finding()[0] == "ok"


# ---------------------------------------------------------------------- ls TEXT


def test_ls_lists_the_sessions_that_match_best_first(said: World) -> None:
    ran = said.ok("ls", "lock", "--fields", "name")
    assert sorted(ran.out.split()) == ["docs", "pool"]
    ran = said.ok("ls", "-a", "swimming", "pool")
    assert ran.lines[1].split()[-1] == "office"
    assert ran.err == "1 session with 'swimming pool' (all workspaces)\n"
    best = said.ok("search", "lock", "--sessions", "--fields", "session_id").out.split()
    assert said.ok("ls", "lock", "-q").out.split() == best


def test_ls_applies_its_other_filters(said: World) -> None:
    with said.open() as store:
        store.get_session("pool").tag("urgent")
        store.get_session("docs").archive()
    assert said.ok("ls", "lock", "--fields", "name").out == "pool\n"
    assert sorted(said.ok("ls", "lock", "--archived", "--fields", "name").out.split()) == ["docs", "pool"]
    assert said.ok("ls", "lock", "--tag", "urgent", "--fields", "name").out == "pool\n"
    assert said.ok("ls", "pool", "-a", "--agent", "coder", "--kind", "main", "--fields", "name").out.split() != []
    assert said.ok("ls", "pool", "--status", "error").out == ""
    ran = said.ok("ls", "pool", "-a", "--limit", "1")
    assert "--limit for more" in ran.err
    assert said.run("ls", "pool", "--trash").code == 2


def test_ls_says_that_nothing_matches(said: World) -> None:
    ran = said.ok("ls", "swimming", "--tag", "x")
    assert ran.err == (f"No session in {said.project} matches 'swimming', --tag. Others do: takeback ls -a swimming\n")
    assert "Other workspaces have one: takeback ls -a swimming" in said.ok("ls", "swimming").err
    assert said.ok("ls", "-a", "nosuch").err.startswith("No session matches 'nosuch'. Nor does any other")
    with said.open() as store:
        store.get_session("docs").note("A quokka smiles")
        store.get_session("docs").archive()
    assert "An archived one does: takeback ls -a --archived quokka" in said.ok("ls", "quokka").err


def test_searching_holds_up_nobody(said: World) -> None:
    """A search reads the store and writes only the index, so somebody who runs the session goes on."""
    with takeback.open(said.url) as store, store.session("running", workspace=said.project) as s:
        s.user("The ocelot sleeps")
        assert said.process("search", "ocelot", "-q", cwd=said.project).returncode == 0
        s.user("still here")
