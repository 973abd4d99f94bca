"""What the index of a repository in the workspace names is captured, whatever rules say; the index is only read."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from _folders import AUTHOR, look, run, shell
from _memory import Memory

import takeback
from takeback.files.disk import git_index
from takeback.files.disk.scan import Scanner
from takeback.model.tree import FILE, GAP

pytestmark = [
    pytest.mark.feature("F1"),
    pytest.mark.trial("T26"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]
GIT = f"git {AUTHOR}"


@pytest.fixture
def keep() -> Memory:
    return Memory()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository that tracks files which rules name, beside others of the same kind."""
    root = tmp_path / "repository"
    root.mkdir()
    shell(
        root,
        "mkdir -p build/deep dist docs; echo '*.log' > .gitignore;"
        "for f in build/kept build/deep/kept dist/kept docs/kept.log plain; do echo 1 > $f; done;"
        f"{GIT} init -q; {GIT} add -f .;"
        "mkdir build/other;"
        "for f in build/made build/deep/made build/other/made dist/made docs/made.log; do echo 2 > $f; done",
    )
    return root


def gaps_of(root: Path, keep: Memory, **how: object) -> set[str]:
    found = keep.flat(Scanner(str(root), **how).scan(keep).root)  # type: ignore[arg-type]
    return {os.fsdecode(path) for path, node in found.items() if node.kind == GAP} - {".git"}


UNTRACKED = {"build/made", "build/deep/made", "build/other", "dist/made", "docs/made.log"}


def test_tracked_files_are_captured_and_nothing_else_that_rules_name(repository: Path, keep: Memory) -> None:
    assert gaps_of(repository, keep) == UNTRACKED
    found = keep.flat(Scanner(str(repository), more_rules=("*",)).scan(keep).root)
    tracked = {b"build/kept", b"build/deep/kept", b"dist/kept", b"docs/kept.log", b"plain", b".gitignore"}
    assert {path for path, node in found.items() if node.kind == FILE} == tracked


def test_what_an_agent_does_to_a_tracked_build_directory_goes_back(tmp_path: Path, repository: Path) -> None:
    before = look(repository)
    with takeback.open(tmp_path / "s.db") as store, store.session("s", workspace=repository) as session:
        session.user("go")
        run(session, repository, "rm -r build/deep/kept dist; echo broken > build/kept; echo more >> docs/kept.log")
        session.rewind(1)
    after = look(repository)
    assert {path for path in before if before[path] != after.get(path)} == {b"dist/made"}, "it was never captured"


@pytest.mark.parametrize("format", ["sha1", "sha256"])
@pytest.mark.parametrize("version", [2, 3, 4])
def test_every_version_is_read_and_a_split_index_too(tmp_path: Path, version: int, format: str) -> None:
    make = {2: "", 3: "touch later; git add -N later;", 4: "git update-index --index-version 4;"}[version]
    shell(
        tmp_path,
        f"{GIT} init -q --object-format={format}; mkdir -p a/b; for n in $(seq 40); do echo $n > a/b/name$n; done;"
        "long=$(printf 'y%.0s' $(seq 200)); mkdir $long; touch $long/$long;"
        f"{GIT} add .; {make} git ls-files -z > ../n",
    )
    wanted = {*(tmp_path.parent / "n").read_bytes().split(b"\0")} - {b""}
    assert (tmp_path / ".git" / "index").read_bytes()[7] == version
    assert git_index._names_in(str(tmp_path / ".git")) == wanted
    shell(tmp_path, f"{GIT} update-index --split-index; touch one more; {GIT} add one; rm a/b/name1; {GIT} add -u")
    split = git_index._names_in(str(tmp_path / ".git"))
    assert {b"one", b"a/b/name2"} <= split
    assert b"more" not in split


def test_repositories_below_and_worktrees_and_submodules_count(repository: Path, keep: Memory) -> None:
    shell(
        repository,
        f"{GIT} commit -qm c; git worktree add -q ../tree; mkdir -p ../tree/target; echo 2 > ../tree/target/made;"
        "mkdir -p lib/dist build/sub/dist; echo 1 | tee lib/dist/kept build/sub/dist/kept; echo 2 > lib/dist/made;"
        f"cd lib; {GIT} init -q; {GIT} add -f dist/kept; cd ../build/sub; {GIT} init -q; {GIT} add -f dist;"
        f"{GIT} commit -qm c; cd ../..; {GIT} add -f build/sub 2> /dev/null",
    )
    assert {"lib/dist/made", "lib/.git"} <= gaps_of(repository, keep)
    found = keep.flat(Scanner(str(repository)).scan(keep).root)
    assert (found[b"lib/dist/kept"].kind, found[b"build/sub/dist/kept"].kind) == (FILE, FILE)
    tree = repository.parent / "tree"
    assert (tree / ".git").is_file()
    assert gaps_of(tree, keep) == {"target"}
    assert keep.flat(Scanner(str(tree)).scan(keep).root)[b"build/deep/kept"].kind == FILE


def test_what_is_added_or_taken_out_later_is_noticed(repository: Path, keep: Memory) -> None:
    for watches in (False, True):
        scanner = Scanner(str(repository))
        scanner._watches = watches
        for _ in range(3):
            found = keep.flat(scanner.scan(keep).root)
        assert found[b"build/other"].kind == GAP
        shell(repository, f"{GIT} add -f build/other/made; {GIT} rm -q --cached build/kept")
        found = keep.flat(scanner.scan(keep).root)
        assert found[b"build/other/made"].kind == FILE
        assert found[b"build/kept"].kind == FILE, "what was captured stays captured"
        shell(repository, f"{GIT} rm -q --cached build/other/made; {GIT} add -f build/kept")


def test_an_index_is_read_again_only_when_it_changed(
    repository: Path, keep: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, real = list[str](), git_index._names_in
    monkeypatch.setattr(git_index, "_names_in", lambda folder: read.append(folder) or real(folder))
    scanner = Scanner(str(repository))
    scanner._watches = False
    first = scanner.scan(keep).root
    assert len(read) == 1
    assert scanner.scan(keep).root == first
    fresh = Scanner(str(repository))
    for path, doc in scanner.taken_note():
        fresh.remember(path, doc or b"")
    assert fresh.scan(keep).root == first
    assert len(read) == 1, "not even by another process"
    os.utime(repository / ".git" / "index")
    assert fresh.scan(keep).root == first
    assert len(read) == 2


def test_nothing_of_the_repository_is_written_and_git_is_not_run(
    repository: Path, keep: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = look(repository)
    monkeypatch.setenv("PATH", "")
    Scanner(str(repository)).scan(keep)
    assert look(repository) == before


def test_a_damaged_or_forged_index_costs_only_itself(
    repository: Path, keep: Memory, seed: int, counts: Callable[[int, int], int]
) -> None:
    rng, place = random.Random(f"index {seed}"), repository / ".git" / "index"
    shell(repository, "git update-index --index-version 4" if seed % 2 else "true")
    sound = place.read_bytes()
    for _ in range(counts(150, 20_000)):
        data = bytearray(sound)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        data = data[: rng.randrange(len(data))] if rng.random() < 0.3 else data
        for size in (20, 32):
            found = git_index.parse(bytes(data), size)
            assert found is None or not [
                name for name in found.names if {b"..", b".", b""} & {*name.split(b"/")} or b"\0" in name
            ]
    for data in (b"", b"DIRC", sound[:40], b"DIRC\0\0\0\2\xff\xff\xff\xff" + sound[12:], b"no index at all" * 100):
        place.write_bytes(data)
        assert gaps_of(repository, keep) == {"build", "dist", "docs/kept.log", "docs/made.log"}


def test_names_that_lead_out_of_the_repository_name_nothing(repository: Path, keep: Memory) -> None:
    place = repository / ".git" / "index"
    data = place.read_bytes()
    for name in (b"build/kept", b"dist/kept"):
        data = data.replace(name, b"../" + b"x" * (len(name) - 3))
    place.write_bytes(data)
    assert b"../xxxxxx" not in git_index._names_in(str(repository / ".git"))
    assert "dist" in gaps_of(repository, keep)


def test_a_link_or_a_pipe_in_place_of_an_index_is_not_opened(tmp_path: Path, repository: Path, keep: Memory) -> None:
    place = repository / ".git" / "index"
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert "dist" in gaps_of(repository, keep)
    place.unlink()
    os.mkfifo(place)
    assert "dist" in gaps_of(repository, keep)
    shutil.rmtree(repository / ".git")
    for text in ("gitdir: /nowhere/at/all\n", "gitdir: \n", "nonsense", "gitdir: a\0b\n", "gitdir: .git\n", ""):
        (repository / ".git").write_text(text)
        assert "dist" in gaps_of(repository, keep)
