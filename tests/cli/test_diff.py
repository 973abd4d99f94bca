"""``diff`` and ``cat``: what differs, and what was."""

import pytest
from _world import World

pytestmark = pytest.mark.feature("F10")

SINCE = [
    "+ user: Now make it fast",
    "+ tool bash: ok",
    "+ assistant: Faster. Much \\x1b[31mfaster.",
]


def test_diff_since_the_last_checkpoint(work: World) -> None:
    assert work.ok("diff").lines == [
        *SINCE,
        "--- a/new.py",
        "+++ b/new.py",
        "@@ -0,0 +1 @@",
        "+x",
        "--- a/pool.py",
        "+++ b/pool.py",
        "@@ -1 +1 @@",
        "-retry(5)",
        "+broken",
    ]


def test_diff_in_numbers_and_of_files_only(work: World) -> None:
    assert work.ok("diff", ":1", "--stat").lines == [*SINCE, "A new.py +1 -0", "M pool.py +1 -1"]
    assert work.ok("diff", "fixed", "--stat", "--files").lines == ["A new.py +1 -0", "M pool.py +1 -1"]


def test_diff_between_two_points(work: World) -> None:
    assert work.ok("diff", "oauth:1", "oauth:2").lines == ["+ user: Add OAuth, step 2", "+ assistant: Step 2 is done."]
    ran = work.ok("diff", "oauth:2", "oauth:2")
    assert (ran.out, ran.err) == ("", "No differences.\n")
    assert work.run("diff", "oauth:1", "fix-retry:1").code == 2
    assert work.run("diff", "oauth:77").code == 4


def test_diff_for_programs(work: World) -> None:
    document = work.ok("diff", "--json").document
    assert [(each["path"], each["action"]) for each in document["changes"]] == [
        ("new.py", "create"),
        ("pool.py", "overwrite"),
    ]
    assert len(document["added_messages"]) == 3
    assert work.ok("diff", "--fields", "path").out.split() == ["new.py", "pool.py"]


def test_cat_gives_a_pipe_the_very_bytes(work: World) -> None:
    data = bytes(range(256))
    (work.project / "blob").write_bytes(data)
    work.ok("checkpoint", "blob")
    ran = work.process("cat", ":blob", "--", "blob", text=False)
    assert ran.stdout == data
    assert work.process("cat", "fix-retry:fixed", "--", "pool.py").stdout == "retry(5)\n"
    assert work.process("cat", "fix-retry:fixed", "--", "new.py").returncode == 4
    (work.project / "pool.py").unlink()
    assert work.process("cat", "fix-retry", "--", "pool.py").stdout == "broken\n"


def test_bare_names_of_branches_are_points(work: World) -> None:
    work.ok("fork", ":1", "--name", "other")
    assert work.ok("diff", "main", "other").out == work.ok("diff", "@/main", "@/other").out
    assert "broken" in work.ok("diff", "main", "other").out


def test_diff_without_a_point_says_what_it_compares(work: World) -> None:
    ran = work.ok("diff")
    assert ran.err.startswith("Since checkpoint fixed, in ")
    assert "Since" not in work.ok("diff", ":1").err
