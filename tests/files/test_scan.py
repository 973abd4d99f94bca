"""Looking at a directory: everything is seen, nothing is waited for, and nothing outside is ever read."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from _folders import ENVIRONMENT
from _memory import Memory

from takeback.errors import Invalid, Unsupported
from takeback.files.disk import ignore, paths, scan
from takeback.files.disk.scan import Limits, Scanner
from takeback.ids import new_id
from takeback.model.tree import DIR, FILE, GAP, LINK, Node

pytestmark = [pytest.mark.feature("F1")]


@pytest.fixture
def keep() -> Memory:
    return Memory()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / "a").write_text("a")
    (root / "src" / "b").write_text("b")
    return root


def seen(root: Path, keep: Memory, **how: object) -> dict[bytes, Node]:
    return keep.flat(Scanner(str(root), **how).scan(keep).root)  # type: ignore[arg-type]


def old(root: Path) -> None:
    """Let everything in a directory have changed long enough ago to be trusted."""
    time.sleep(0.15)


# ---------------------------------------------------------------------- what is there


def test_every_kind_of_thing_is_recorded(root: Path, keep: Memory) -> None:
    (root / "link").symlink_to("a")
    (root / "dangling").symlink_to("/nowhere/at/all")
    (root / "empty").mkdir(mode=0o700)
    (root / "none").write_bytes(b"")
    (root / "big").write_bytes(bytes(range(256)) * 8192)
    (root / "x").write_text("x")
    (root / "x").chmod(0o4751)
    Path(os.fsdecode(bytes(root) + b"/\xff\n")).write_text("n")
    found = seen(root, keep)
    assert {path: node.kind for path, node in found.items()} == {
        **dict.fromkeys((b"a", b"src/b", b"none", b"big", b"x", b"\xff\n"), FILE),
        **dict.fromkeys((b"link", b"dangling"), LINK),
        **dict.fromkeys((b"src", b"empty"), DIR),
    }
    assert (found[b"link"].content, found[b"dangling"].content) == (b"a", b"/nowhere/at/all")
    assert (found[b"x"].mode, found[b"empty"].mode) == (0o751, 0o700), "never setuid"
    assert keep.kept[found[b"big"].content] == bytes(range(256)) * 8192
    assert (found[b"none"].size, keep.kept[found[b"none"].content]) == (0, b"")


def test_pipes_sockets_and_devices_are_recorded_and_never_opened(
    root: Path, keep: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(root)
        server.bind("sock")
        os.chdir(here)
        special = {"pipe", "sock"}
        if os.geteuid() == 0:
            try:
                os.mknod(root / "null", 0o666 | 0o020000, os.makedev(1, 3))
                special.add("null")
            except PermissionError:
                pass
        opened: list[object] = []
        real = os.open
        monkeypatch.setattr(os, "open", lambda path, *args, **more: opened.append(path) or real(path, *args, **more))
        scanned = Scanner(str(root)).scan(keep)
    found = keep.flat(scanned.root)
    assert {path.decode() for path, node in found.items() if node.kind == GAP} == special
    assert not special & {str(path).rpartition("/")[2] for path in opened}
    assert {path.decode() for path, _ in scanned.missed} == special
    assert all(reason for _, reason in scanned.missed)


def test_a_pipe_that_takes_a_files_place_does_not_block(root: Path, keep: Memory) -> None:
    workspace = Scanner(str(root))
    workspace.scan(keep)
    (root / "a").unlink()
    os.mkfifo(root / "a")
    done = threading.Thread(target=workspace.scan, args=(keep,), daemon=True)
    done.start()
    done.join(60)
    assert not done.is_alive()
    assert keep.flat(workspace.seen().root)[b"a"].kind == GAP


def test_what_cannot_be_read_is_a_gap_with_its_reason(
    root: Path, keep: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Scanner(str(root))
    real = os.open

    def refused(path: object, *args: object, **more: object) -> int:
        if path in ("b", "locked"):
            raise PermissionError(13, "Permission denied")
        return real(path, *args, **more)  # type: ignore[arg-type]

    (root / "locked").mkdir()
    (root / "locked" / "in").write_text("in")
    monkeypatch.setattr(os, "open", refused)
    scanned = workspace.scan(keep)
    assert {path for path, _ in scanned.missed} == {b"src/b", b"locked/"}
    assert all("Permission denied" in reason for _, reason in scanned.missed)
    monkeypatch.undo()
    found = keep.flat(workspace.scan(keep).root)
    assert (found[b"src/b"].kind, found[b"locked/in"].kind) == (FILE, FILE), (
        "a reason that goes away is looked at again"
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_the_right_to_read_is_a_gap(root: Path, keep: Memory) -> None:
    (root / "a").chmod(0)
    assert seen(root, keep)[b"a"].kind == GAP


def test_what_is_too_large_is_a_gap_until_it_is_not(root: Path, keep: Memory) -> None:
    (root / "big").write_bytes(b"x" * 1000)
    workspace = Scanner(str(root), limits=Limits(file=999))
    scanned = workspace.scan(keep)
    assert [path for path, _ in scanned.missed] == [b"big"]
    (root / "big").write_bytes(b"x" * 999)
    assert workspace.scan(keep).missed == ()
    (root / "big").write_bytes(b"x" * 1001)
    assert [path for path, _ in workspace.scan(keep).missed] == [b"big"]
    assert Scanner(str(root), limits=Limits(file=0)).scan(keep).missed_count == 3


def test_the_whole_has_a_limit_too(root: Path, keep: Memory) -> None:
    for number in range(10):
        (root / f"f{number}").write_bytes(b"x" * 100)
    workspace = Scanner(str(root), limits=Limits(total=550))
    scanned = workspace.scan(keep)
    assert scanned.size <= 550
    assert scanned.missed_count == 5
    again = workspace.scan(keep)
    assert (again.root, again.size) == (scanned.root, scanned.size), "the same ones are left out the next time"


def test_what_went_leaves_space_for_what_came(root: Path, keep: Memory) -> None:
    (root / "big").write_bytes(b"x" * 400)
    workspace = Scanner(str(root), limits=Limits(total=550))
    workspace.scan(keep)
    (root / "big").rename(root / "src" / "moved")
    assert workspace.scan(keep).missed == ()


def test_deep_directories_are_seen_down_to_a_limit_and_loops_are_not_followed(root: Path, keep: Memory) -> None:
    (root / "loop").symlink_to(".")
    (root / "src" / "up").symlink_to("..")
    (root / "self").symlink_to("self")
    here = root
    for _ in range(90):
        here = here / "n"
        here.mkdir()
    (here / "bottom").write_text("b")
    scanned = Scanner(str(root)).scan(keep)
    found = keep.flat(scanned.root)
    assert scanned.missed == ()
    assert found[b"n/" * 90 + b"bottom"].kind == FILE
    assert {found[name].kind for name in (b"loop", b"src/up", b"self")} == {LINK}


def test_directories_deeper_than_the_limit_are_a_gap_and_no_error(root: Path, keep: Memory) -> None:
    descriptor = os.open(root, os.O_RDONLY)
    for _ in range(400):
        os.mkdir("n", dir_fd=descriptor)
        below = os.open("n", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    scanned = Scanner(str(root)).scan(keep)
    assert scanned.missed_count == 1, "a gap, not an error"


def test_a_workspace_that_is_no_directory_is_said(tmp_path: Path, keep: Memory) -> None:
    (tmp_path / "file").write_text("f")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("nosuch", "file"):
        with pytest.raises(Unsupported):
            Scanner(str(tmp_path / name)).scan(keep)
    for path in ("", "/a", "a//b", "../a", "a/../b", "a/./b", "a\0"):
        with pytest.raises(Invalid):
            paths.relative(path)


def test_the_first_few_gaps_are_named_and_all_are_counted(root: Path, keep: Memory) -> None:
    for number in range(120):
        os.mkfifo(root / f"p{number:03}")
    scanned = Scanner(str(root)).scan(keep)
    assert scanned.missed_count == 120
    assert 0 < len(scanned.missed) <= 120


# ---------------------------------------------------------------------- outside


SWAP = """
import os, sys
real, away, link = sys.argv[1:]
print("ready", flush=True)
while True:
    os.rename(real, away); os.rename(link, real); os.rename(real, link); os.rename(away, real)
"""


def test_nothing_outside_is_read_while_a_directory_is_swapped_for_a_link(
    tmp_path: Path, root: Path, counts: Callable[[int, int], int]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b").write_text("SECRET")
    (outside / ".gitignore").write_text("a\n")
    (tmp_path / "link").symlink_to(outside)
    places = [str(each) for each in (root / "src", tmp_path / "away", tmp_path / "link")]
    attacker = subprocess.Popen([sys.executable, "-c", SWAP, *places], stdout=subprocess.PIPE)
    try:
        assert attacker.stdout is not None
        attacker.stdout.readline()
        keep, workspace, met = Memory(), Scanner(str(root)), set[str | None]()
        rounds = counts(200, 5_000)
        for number in itertools.count():
            if number % 3 == 0:
                workspace = Scanner(str(root))
            scanned = workspace.scan(keep, [b"src/b", b"a"] if number % 3 == 2 else None)
            assert b"SECRET" not in keep.kept.values()
            node = keep.flat(scanned.root).get(b"src")
            met.add(node.kind if node else None)
            if number >= rounds and {DIR, LINK} <= met:
                break
        assert met <= {DIR, LINK, GAP, None}
    finally:
        attacker.kill()
        attacker.wait()
        if attacker.stdout is not None:
            attacker.stdout.close()


def test_a_repository_that_is_a_link_gives_no_rules_from_outside(tmp_path: Path, root: Path, keep: Memory) -> None:
    (tmp_path / "outside" / "info").mkdir(parents=True)
    (tmp_path / "outside" / "info" / "exclude").write_text("a\n")
    (root / ".git").symlink_to(tmp_path / "outside")
    assert seen(root, keep)[b"a"].kind == FILE


# ---------------------------------------------------------------------- looking again


def test_a_change_of_the_same_size_within_one_tick_of_the_clock_is_seen(root: Path, keep: Memory) -> None:
    workspace = Scanner(str(root))
    for number in range(200):
        data = f"{number:04}".encode()
        (root / "a").write_bytes(data)
        assert keep.kept[keep.flat(workspace.scan(keep).root)[b"a"].content] == data
    times = os.stat(root / "a")
    (root / "a").write_bytes(b"zzzz")
    os.utime(root / "a", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert keep.kept[keep.flat(workspace.scan(keep).root)[b"a"].content] == b"zzzz", "times that were set back"


def test_what_did_not_change_is_not_read_again(root: Path, keep: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = Scanner(str(root))
    old(root)
    first = workspace.scan(keep)
    read: list[object] = []
    real = os.read
    monkeypatch.setattr(os, "read", lambda *args: read.append(args) or real(*args))
    assert workspace.scan(keep).root == first.root
    assert read == []
    (root / "a").write_text("A")
    assert workspace.scan(keep).root != first.root
    assert read


def test_names_that_come_and_go_are_seen_where_directories_were_not_listed_again(
    root: Path, keep: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Scanner(str(root))
    workspace._times_tell = True  # whatever the tests run on
    old(root)
    first = workspace.scan(keep)
    listed: list[object] = []
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda *args: listed.append(args) or real(*args))
    assert workspace.scan(keep).root == first.root
    assert listed == [], "the directories' own times say that nothing came or went"

    steps: list[Callable[[], object]] = [
        lambda: (root / "src" / "new").write_text("n"),
        lambda: (root / "src" / "b").rename(root / "src" / "c"),
        lambda: (root / "src" / "b").mkdir(),
        lambda: (root / "src" / "b" / "inner").write_text("i"),
        lambda: (root / "src" / "c").unlink(),
        lambda: (root / "src" / "link").symlink_to("new"),
        lambda: (root / "a").write_text("other"),
        lambda: (root / ".gitignore").write_text("*.log\n"),
        lambda: (root / "x.log").write_text("left out"),
        lambda: (root / ".gitignore").unlink(),
        lambda: shutil.rmtree(root / "src"),
        lambda: os.mkfifo(root / "src"),
    ]
    for number, step in enumerate(steps):
        before = os.stat(root / "src") if (root / "src").exists() else None
        step()
        if before is not None and number % 2 and (root / "src").is_dir():  # the change time still tells
            os.utime(root / "src", ns=(before.st_atime_ns, before.st_mtime_ns))
        assert keep.flat(workspace.scan(keep).root) == seen(root, keep), number
        old(root)
        assert keep.flat(workspace.scan(keep).root) == seen(root, keep), number


def test_a_file_system_whose_directories_tell_nothing_is_listed_each_time(
    root: Path, keep: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan.mounts, "kind_of", lambda path: "nfs4")
    workspace = Scanner(str(root))
    old(root)
    workspace.scan(keep)
    listed: list[object] = []
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda *args: listed.append(args) or real(*args))
    workspace.scan(keep)
    assert len(listed) == 2


def test_what_is_remembered_gives_the_same_tree_and_garbage_does_not_matter(root: Path, keep: Memory) -> None:
    workspace = Scanner(str(root))
    old(root)
    first = workspace.scan(keep)
    notes = [*workspace.taken_note()]
    again = Scanner(str(root))
    for path, doc in notes:
        assert doc is not None
        again.remember(path, doc)
    assert again.scan(keep).root == first.root
    broken = Scanner(str(root))
    for path, doc in notes:
        broken.remember(path, (doc or b"")[:-3])
    assert broken.scan(keep).root == first.root
    (root / "src" / "b").unlink()
    (root / "src").rmdir()
    workspace.scan(keep)
    assert (b"src/", None) in [*workspace.taken_note()]


def test_what_is_remembered_by_another_process_saves_listing_reading_and_decoding(
    root: Path, keep: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "src" / os.fsdecode(b"no text \xff")).write_text("n")
    (root / "src" / "größe").symlink_to("b")
    (root / "src" / "pipe").unlink(missing_ok=True)
    os.mkfifo(root / "src" / "pipe")
    workspace = Scanner(str(root))
    old(root)
    first = workspace.scan(keep)
    again = Scanner(str(root))
    for path, doc in workspace.taken_note():
        assert doc is not None
        again.remember(path, doc)
    with monkeypatch.context() as without:
        without.setattr(os, "scandir", None)
        without.setattr(scan.read, "content", None)
        without.setattr(scan.cache, "_read_nodes", None)
        assert again.scan(keep) == first
    assert {path: folder.names for path, folder in again.folders.items()} == {
        path: folder.names for path, folder in workspace.folders.items()
    }
    (root / "src" / "b").write_text("another")
    assert keep.flat(again.scan(keep).root) == seen(root, keep)


def test_a_copy_that_looks_changes_nothing_here(root: Path, keep: Memory) -> None:
    workspace = Scanner(str(root))
    before = workspace.scan(keep).root
    (root / "src" / "new").write_text("n")
    (root / "a").unlink()
    assert workspace.copied().scan(keep).root != before
    assert workspace.seen().root == before


def test_a_look_at_known_paths_finds_what_a_whole_look_finds(
    root: Path, seed: int, counts: Callable[[int, int], int]
) -> None:
    random_ = random.Random(seed)
    keep, workspace = Memory(), Scanner(str(root))
    (root / ".gitignore").write_text("*.log\n/src/e\n")
    workspace.scan(keep)
    names = ["a", "b", "c.log", "d1", "e", "src"]
    for _ in range(counts(150, 3_000)):
        touched = {"/".join(random_.choices(names, k=random_.randint(1, 3))) for _ in range(random_.randint(1, 3))}
        for path in touched:
            _change(random_, root, path)
        partial = workspace.scan(keep, [path.encode() for path in touched])
        fresh = Scanner(str(root))
        for path, doc in [(os.fsencode(p), scan.cache.dump(f)) for p, f in workspace.folders.items()]:
            fresh.remember(path, doc)
        whole = fresh.scan(keep)
        assert keep.flat(partial.root) == keep.flat(whole.root), touched
        assert partial.root == whole.root


def test_a_look_at_a_file_of_rules_looks_at_what_they_named(root: Path, keep: Memory) -> None:
    (root / ".gitignore").write_text("b\n")
    workspace = Scanner(str(root))
    workspace.scan(keep)
    (root / ".gitignore").write_text("")
    assert keep.flat(workspace.scan(keep, [b".gitignore"]).root)[b"src/b"].kind == FILE


def _change(random_: random.Random, root: Path, path: str) -> None:
    """Do something to a path; what cannot be done is not."""
    place = root / path
    if any(each.is_symlink() for each in (place, *place.parents)) and random_.random() < 0.5:
        return place.unlink() if place.is_symlink() and not place.parent.is_symlink() else None
    if any(each.is_symlink() for each in (place, *place.parents)):
        return None  # through a link it would be another path that changes
    try:
        what = random_.randrange(6)
        if what == 0 and place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        elif what == 1:
            place.unlink()
        elif what == 2:
            place.mkdir()
        elif what == 3:
            place.symlink_to("a")
        elif what == 4:
            place.chmod(random_.choice([0o600, 0o755]))
        else:
            place.write_text(str(random_.random()))
    except OSError:
        pass
    return None


# ---------------------------------------------------------------------- rules


def test_nested_rules_count_below_their_directory_and_the_deeper_one_wins(root: Path, keep: Memory) -> None:
    (root / ".gitignore").write_text("*.log\n/only-here\n")
    (root / "src" / ".gitignore").write_text("!keep.log\nb\n")
    for path in ("x.log", "only-here", "src/x.log", "src/keep.log", "src/only-here"):
        (root / path).write_text("x")
    found = {path.decode(): node.kind for path, node in seen(root, keep).items()}
    ignored = {path for path, kind in found.items() if kind == GAP}
    assert ignored == {"x.log", "only-here", "src/x.log", "src/b"}


def test_takebackignore_and_given_lines_add_to_the_rules(root: Path, keep: Memory) -> None:
    (root / ".gitignore").write_text("a\n")
    (root / ".takebackignore").write_text("!a\nsrc/\n!build/\n")
    (root / "build").mkdir()
    (root / "build" / "o").write_text("o")
    (root / "t.tmp").write_text("t")
    found = seen(root, keep, more_rules=("*.tmp",))
    assert {path for path, node in found.items() if node.kind == GAP} == {b"src", b"t.tmp"}
    assert found[b"a"].kind == found[b"build/o"].kind == FILE


def test_what_was_captured_stays_captured_when_a_rule_comes_to_name_it(root: Path, keep: Memory) -> None:
    workspace = Scanner(str(root))
    workspace.scan(keep)
    (root / ".gitignore").write_text("a\nsrc/\nnew\n")
    (root / "new").write_text("n")
    (root / "a").write_text("changed")
    (root / "src" / "b").write_text("changed")
    found = keep.flat(workspace.scan(keep).root)
    assert (found[b"new"].kind, found[b"a"].kind, found[b"src/b"].kind) == (GAP, FILE, FILE)
    assert keep.kept[found[b"a"].content] == keep.kept[found[b"src/b"].content] == b"changed"
    (root / ".gitignore").unlink()
    found = keep.flat(workspace.scan(keep).root)
    assert found[b"new"].kind == FILE, "and what a rule no longer names is captured"


def test_only_folders_that_can_be_made_again_are_left_out_by_default(root: Path, keep: Memory) -> None:
    for name in ("d", "i", "s", "t", "docs", "lib", "out", "bin", "vendor", "distribution"):
        (root / name).mkdir()
        (root / name / "f").write_text("f")
    found = seen(root, keep)
    assert {path for path, node in found.items() if node.kind == GAP} == set()


def test_dist_is_left_out_as_build_is(root: Path, keep: Memory) -> None:
    for name in ("dist", "build", "node_modules", "__pycache__"):
        (root / name).mkdir()
    assert {path for path, node in seen(root, keep).items() if node.kind == GAP} == {
        b"dist",
        b"build",
        b"node_modules",
        b"__pycache__",
    }


PATTERNS = (
    *("*.log", "/a", "a/", "a/b", "/a/b/", "**/c", "a/**", "a/**/c", "!*.log", "!a/b", "b*", "?", "[ab]", "[!a]"),
    *("#x", r"\#x", r"\!x", "x ", r"x\ ", "a/*", "*/b", "*.l?g", "**", "*", "!/a", "a**", "/*", "!/b/", "c.log/"),
    *("", "   ", "b//c", "./a", "[a-c]", "a\\", "*/", "!*/", "/**/b", "**/a/**", "b/**/"),
)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_rules_mean_what_git_says_they_mean(tmp_path: Path, seed: int, counts: Callable[[int, int], int]) -> None:
    random_ = random.Random(seed)
    wrong: list[str] = []
    names = ("a", "b", "c", "x.log", "#x", "!x", "y z")
    paths = ["/".join(each) for size in (1, 2, 3) for each in itertools.product(names, repeat=size)]
    for number in range(counts(16, 800)):
        root = tmp_path / f"w{number}"
        files = _generate(random_, root, paths)
        want = _git_ignores(root, files)
        keep = Memory()
        nodes = keep.flat(Scanner(str(root)).scan(keep).root)
        got = {path for path in files if nodes.get(os.fsencode(path)) is None or nodes[os.fsencode(path)].kind == GAP}
        if got != want:
            rules = {str(p.relative_to(root)): p.read_text() for p in sorted(root.rglob(".gitignore"))}
            wrong.append(f"{rules}: we leave out {sorted(got - want)}, git {sorted(want - got)}")
        shutil.rmtree(root)
    assert not wrong, "\n".join(wrong[:10]) + f"\n{len(wrong)} in all"


def _generate(random_: random.Random, root: Path, paths: list[str]) -> list[str]:
    """Make files and rules; give the files."""
    made: list[str] = []
    for path in random_.sample(paths, 40):
        place = root / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("x")
            made.append(path)
        except OSError:
            continue  # a file is where a directory would have to be
    folders = [root, *(each for each in root.rglob("*") if each.is_dir())]
    for folder in random_.sample(folders, min(len(folders), random_.randint(1, 3))):
        (folder / ".gitignore").write_text("\n".join(random_.choices(PATTERNS, k=random_.randint(1, 4))) + "\n")
    return made


def _git_ignores(root: Path, files: list[str]) -> set[str]:
    """Ask git which of these files it leaves out."""
    subprocess.run(["git", "init", "-q", str(root)], check=True, env=ENVIRONMENT)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        env=ENVIRONMENT,
    ).stdout.split(b"\0")
    return {*files} - {os.fsdecode(each) for each in listed}


def test_classes_of_characters_mean_what_they_mean_in_git() -> None:
    rules = ignore.given(["x[[:alpha:]]", "y[[:digit:]]"])
    assert rules.ignores("xa", is_dir=False)
    assert rules.ignores("y1", is_dir=False)
    assert not rules.ignores("x1", is_dir=False)


def test_a_line_that_is_no_pattern_spoils_no_other() -> None:
    rules = ignore.given(["[", "a\\", "*.log", "!"])
    assert rules.ignores("x.log", is_dir=False)
    assert not rules.ignores("x", is_dir=False)


def test_only_names_that_are_ours_are_left_out_without_a_word(root: Path, keep: Memory) -> None:
    (root / ".takeback-mine").write_text("a person's")
    (root / ".takeback-notes").mkdir()
    (root / f".takeback-{new_id(0)}").mkdir()
    (root / f".takeback-{new_id(0)}.tmp").write_text("on its way out")
    (root / ".takeback-mark-1-1").write_text("")
    ours = {name for name in keep.flat(Scanner(str(root)).scan(keep).root) if b".takeback" in name}
    assert ours == {b".takeback-mine", b".takeback-notes"}
