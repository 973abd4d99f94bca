"""timeline, and back to a moment of it: this directory's files, whoever changed them; single paths; other sessions."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from _world import World, use_tool

from takeback.shell import times

pytestmark = pytest.mark.feature("F1", "F10")


def _files(world: World) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(world.project.iterdir())}


@pytest.fixture
def changed(world: World) -> World:
    """A directory in which two sessions and a person changed files, one after the other, hours apart."""
    (world.project / "a.txt").write_text("one\n")
    with world.open() as store:
        for name in ("first", "second"):
            world.clock.ms += 3_600_000
            with store.session(name, agent="coder", workspace=world.project) as s:
                s.user(f"Change it, {name}")
                use_tool(s, "bash", lambda: (world.project / "a.txt").write_text(f"by {name}\n"))  # noqa: B023
                use_tool(s, "write", lambda: (world.project / f"{name}.py").write_text("x\n"))  # noqa: B023
        (world.project / "mine.txt").write_text("mine\n")
        world.clock.ms += 3_600_000
        store.get_session("second").capture_files()
    return world


def test_it_says_when_who_and_which_paths(changed: World) -> None:
    ran = changed.ok("timeline", "--utc")
    assert ran.lines[0].split() == ["WHEN", "AGE", "WHO", "PATHS"]
    told = [re.sub(r"^[\d-]* ?[\d:]+ +\w+ +", "", line) for line in ran.lines[1:]]
    assert [re.split(r"  +", line) for line in told] == [
        ["someone outside", "A mine.txt"],
        ["write of session 'second'", "A second.py"],
        ["bash of session 'second'", "M a.txt"],
        ["write of session 'first'", "A first.py"],
        ["bash of session 'first'", "M a.txt"],
        ["first scan", "what was there"],
    ]
    assert ran.err == f"{changed.project}. Go back: takeback rewind --at TIME\n"


def test_a_timeline_for_programs_and_its_filters(changed: World) -> None:
    document = changed.ok("timeline", "--json").document
    found = [(change["path"], change["kind"]) for scan in document["scans"] for change in scan["changes"]]
    assert found == [
        ("mine.txt", "outside"),
        ("second.py", "calls"),
        ("a.txt", "calls"),
        ("first.py", "calls"),
        ("a.txt", "calls"),
    ]
    paths = changed.ok("timeline", "--path", "a.txt", "--json").document["scans"]
    assert [change["path"] for scan in paths for change in scan["changes"]] == ["a.txt", "a.txt"]
    limited = changed.ok("timeline", "--limit", "2", "--json").document
    assert (len(limited["scans"]), limited["more"]) == (2, True)
    since = document["scans"][1]["created_at"]
    assert len(changed.ok("timeline", "--since", since, "--json").document["scans"]) == 2
    assert changed.ok("timeline", str(changed.project), "-q").out.split() == [each["id"] for each in document["scans"]]


def test_an_empty_timeline_says_what_to_do(world: World) -> None:
    assert "there is no store at" in world.ok("timeline").err
    with world.open() as store:
        store.create_session("elsewhere").user("hi")
    ran = world.ok("timeline")
    assert ran.out == ""
    assert f"No scans of {world.project} yet. Watch it: takeback guard" in ran.err
    world.ok("guard", "--once")
    ran = world.ok("timeline", "--path", "nosuch")
    assert ran.err.startswith(f"Nothing matches in {world.project}. ")
    assert world.run("timeline", "--since", "whenever").code == 2
    assert world.run("timeline", "nosuch").code == 2


@pytest.mark.trial("T37")
def test_the_files_of_a_directory_go_back_to_a_time_whoever_changed_them(changed: World) -> None:
    scans = changed.ok("timeline", "--json").document["scans"]
    before_second = datetime.fromisoformat(scans[2]["created_at"]) - timedelta(minutes=1)
    ran = changed.ok("rewind", "--at", before_second.isoformat(), "-n", "--utc")
    counted = datetime.fromisoformat(scans[3]["created_at"])
    assert f"at {counted:%Y-%m-%d %H:%M:%S} UTC (" in ran.lines[0]
    assert ran.lines[1] == f"  in            {changed.project}"
    document = changed.ok("rewind", "--at", before_second.isoformat(), "-y", "--json").document
    assert (document["session_id"], document["workspace"]) == (None, str(changed.project))
    assert document["operation"]["session_id"] is None
    assert _files(changed) == {"a.txt": "by first\n", "first.py": "x\n"}
    ran = changed.run("undo")
    assert (ran.code, ran.lines[0].startswith("Undo files to how they were found at ")) == (5, True)
    changed.ok("undo", "-y")
    assert _files(changed) == {"a.txt": "by second\n", "first.py": "x\n", "mine.txt": "mine\n", "second.py": "x\n"}
    changed.ok("redo", "-y")
    assert _files(changed) == {"a.txt": "by first\n", "first.py": "x\n"}
    assert changed.ok("ops", "--fields", "kind").out.split() == ["redo", "undo", "rewind"]


def test_single_paths_go_back_to_a_time_or_to_a_point(changed: World) -> None:
    first = changed.ok("timeline", "--json").document["scans"][-1]["created_at"]
    changed.ok("rewind", "--at", first, "-y", "--", "a.txt", "mine.txt")
    assert _files(changed) == {"a.txt": "one\n", "first.py": "x\n", "second.py": "x\n"}
    changed.ok("undo", "-y")
    turns = changed.ok("ls", "--fields", "name,turn_count").out
    changed.ok("rewind", "second:1^", "-y", "--", "second.py")
    assert _files(changed) == {"a.txt": "by second\n", "first.py": "x\n", "mine.txt": "mine\n"}
    assert changed.ok("ls", "--fields", "name,turn_count").out == turns, "no conversation goes back with paths"


@pytest.mark.trial("T37")
def test_what_later_sessions_changed_goes_back_with_them(changed: World) -> None:
    plan = changed.ok("rewind", "first:1^", "-n", "--json").document
    assert ([each["path"] for each in plan["files"]], plan["others"]) == (["first.py"], ["a.txt", "second.py"])
    assert plan["other_sessions"].keys() == {"a.txt", "second.py"}
    ran = changed.ok("rewind", "first:1^", "-n")
    assert "--with " in ran.out
    for chosen in ("second", "all"):
        changed.ok("rewind", "first:1^", "--with", chosen, "-y")
        assert _files(changed) == {"a.txt": "one\n", "mine.txt": "mine\n"}
        changed.ok("undo", "-y")
    changed.ok("rewind", "first:1^", "--overwrite", "all", "-y")
    assert _files(changed) == {"a.txt": "one\n"}


@pytest.mark.trial("T41")
def test_undo_and_redo_take_the_refs_of_rewind(changed: World) -> None:
    changed.ok("rewind", "second:1^", "-y")
    changed.ok("rename", "first", "Another title")
    changed.ok("undo", "second", "-y")
    assert (changed.project / "second.py").exists()
    assert "second.py" in changed.ok("redo", "second", "-n").out
    changed.ok("redo", "second", "-y")
    assert not (changed.project / "second.py").exists()
    assert "rename" in changed.ok("undo", "first", "-n").err
    assert changed.run("undo", "first", "--all").code == 2
    assert changed.run("undo", "nosuch").code == 4
    changed.ok("undo", "first")
    ran = changed.run("undo", "first")
    assert (ran.code, ran.err) == (5, "takeback: there is nothing to undo on first\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--at", "10m", "second:1"),
        ("--at", "10m", "--with", "all"),
        ("--at", "10m", "--conversation"),
        ("--at", "25:00"),
        ("second:1", "a.txt"),
        ("second:1", "--conversation", "--", "a.txt"),
    ],
)
def test_what_does_not_fit_together_is_refused(changed: World, arguments: tuple[str, ...]) -> None:
    before = _files(changed)
    assert changed.run("rewind", *arguments).code == 2
    assert _files(changed) == before


def test_a_time_before_the_first_scan_is_not_known(changed: World) -> None:
    ran = changed.run("rewind", "--at", "2020-01-01", "-y")
    assert (ran.code, "nothing is known of the files of" in ran.err) == (4, True)


def test_times_are_read_as_people_write_them() -> None:
    now = datetime.now(UTC)
    assert abs(times.parse_moment("10m") - (now - timedelta(minutes=10))) < timedelta(minutes=1)
    for text in ("0:00", "23:59", "14:00:30"):
        found = times.parse_moment(text)
        hour, minute = text.split(":")[:2]
        assert (found.hour, found.minute) == (int(hour), int(minute))
        assert timedelta(0) <= datetime.now(UTC) - found <= timedelta(days=1, hours=1)
    assert times.parse_moment("2026-01-31T14:00+00:00") == datetime(2026, 1, 31, 14, tzinfo=UTC)
    for text in ("24:00", "12:60", "soon", ""):
        with pytest.raises(ValueError, match="is not a time"):
            times.parse_moment(text)
