"""Keeping order: titles, tags, pins, archive, trash. All of it can be undone but a purge, which asks."""

import pytest
from _terminal import Terminal
from _world import World

from takeback.ops import blobs

pytestmark = pytest.mark.feature("F10")


def test_titles_tags_and_marks(work: World) -> None:
    ran = work.ok("rename", "oauth", "New title")
    assert ran.lines == ["####### New title: title 'Add OAuth, step 1' -> 'New title'"]
    assert ran.err == "Take it back with: takeback undo\n"
    work.ok("tag", "oauth", "a", "b")
    work.ok("untag", "oauth", "a")
    work.ok("pin", "oauth", "fix-retry")
    found = {each["name"]: each for each in work.ok("ls", "--json").document["sessions"]}
    assert (found["oauth"]["title"], found["oauth"]["tags"]) == ("New title", ["b"])
    assert found["oauth"]["pinned"]
    assert found["fix-retry"]["pinned"]
    assert work.ok("ls", "--tag", "b").lines[1].startswith("◆ ")
    work.ok("unpin", "oauth")
    assert work.ok("ls", "--pinned", "--fields", "name").out == "fix-retry\n"
    assert work.ok("pin", "oauth", "--json").document["operations"][0]["kind"] == "pin"


def test_the_archive(work: World) -> None:
    work.ok("archive", "oauth")
    assert work.ok("ls", "--fields", "name").out == "fix-retry\n"
    assert work.ok("ls", "--archived", "--fields", "name").out.split() == ["oauth", "fix-retry"]
    work.ok("unarchive", "oauth")
    assert work.ok("ls", "--fields", "name").out.split() == ["oauth", "fix-retry"]


def test_the_trash(work: World) -> None:
    assert work.ok("rm", "oauth", "-n").err.startswith("Dry run: would move to the trash: ")
    assert len(work.ok("ls", "-q").out.split()) == 2
    work.ok("rm", "oauth", "fix-retry")
    assert work.ok("ls", "-q").out == ""
    row = work.ok("ls", "--trash").lines[1]
    assert row.endswith("in the trash: takeback restore #######")
    work.ok("restore", "oauth")
    assert work.ok("ls", "--fields", "name").out == "oauth\n"
    assert work.run("restore", "nosuch").code == 4
    work.ok("undo")
    assert work.ok("ls", "-q").out == ""


def test_all_are_found_before_the_first_is_changed(work: World) -> None:
    assert work.run("rm", "oauth", "nosuch").code == 4
    assert len(work.ok("ls", "-q").out.split()) == 2


def test_a_purge_asks_and_cannot_be_undone(work: World) -> None:
    ran = work.run("purge", "oauth")
    assert (ran.code, ran.lines) == (5, ["Erase ####### Add OAuth, step 1 (6 messages) permanently"])
    terminal = Terminal("purge", "oauth")
    terminal.answer("Erase? [y]es [n]o ", "n\n")
    assert terminal.end() == 0
    work.ok("rm", "oauth")
    assert work.ok("purge", "oauth", "-y").lines[-1] == "1 session, 7 entries and 0 blobs erased"
    assert work.run("show", "oauth").code == 4
    document = work.ok("purge", "fix-retry", "-y", "--json").document
    assert document["sessions"] == [document["id"]]


def test_a_prune_says_how_much_asks_and_erases(work: World) -> None:
    assert work.ok("prune").out.startswith("Nothing to erase: ")
    work.ok("purge", "fix-retry", "-y")
    assert work.ok("prune", "--json").document["blobs"] == 0, "a purge takes the contents along that only it had"
    with work.open() as store:
        data = b"left behind" * 100
        packed = blobs.Packed(blobs.hash_of(data), len(data), blobs.pack(data))
        store._write(lambda tx: blobs.put_many(tx, "", [packed], now_ms=1))
    ran = work.run("prune")
    assert (ran.code, ran.out) == (5, "1 content, 1,100 bytes would be erased; nothing needs them any more\n")
    assert work.ok("prune", "-n", "--json").document == {
        "schema": "takeback.pruned/1",
        "blobs": 1,
        "bytes": 1100,
        "erased": False,
    }
    assert work.ok("prune", "-y").lines[-1] == "1 content, 1,100 bytes erased"
    assert work.ok("prune").out.startswith("Nothing to erase: ")


def test_one_help_page_says_which_is_for_what(world: World) -> None:
    for verb in ("rm", "restore", "purge", "archive", "unarchive", "prune"):
        out = world.ok(verb, "--help").out
        assert "purge    erases it permanently; nothing brings it back" in out
