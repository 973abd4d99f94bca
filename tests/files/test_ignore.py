"""Which names of a workspace are left out: what git leaves out and a few more; and no line of rules can fail."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from _folders import ENVIRONMENT, run
from hypothesis import given, settings
from hypothesis import strategies as st

from takeback import Session
from takeback.files.disk import ignore, patterns

pytestmark = pytest.mark.feature("F1")


def test_what_can_be_made_again_is_left_out_and_nothing_else() -> None:
    rules = ignore.given()
    for name in ("node_modules", "__pycache__", "target", "build", "dist"):
        assert rules.ignores(f"a/{name}", is_dir=True), name
    for name in ("d", "i", "s", "t", "src", "distant"):
        assert not rules.ignores(f"a/{name}", is_dir=True), name


def test_every_default_is_the_name_of_a_folder() -> None:
    assert min(map(len, ignore.DEFAULTS)) > 1


def test_rules_hold_below_a_name_with_a_line_break() -> None:
    rules = ignore.given(("*.log", "scratch/"))
    for path in ("x.log", "new\nline/x.log", "new\nline.log", "a/new\nline/b/x.log"):
        assert rules.ignores(path, is_dir=False), path
    assert rules.ignores("new\nline/scratch", is_dir=True)
    assert not rules.ignores("new\nline/x.txt", is_dir=False)


def test_what_is_in_a_directory_that_is_left_out_cannot_be_brought_back() -> None:
    rules = ignore.given(("lib/", "!lib/kept", "!*.txt")).inside("lib").inside("lib/deep")
    assert rules.ignores("lib/deep/a.txt", is_dir=False)
    assert rules.with_lines("lib/", [b"!*"]).ignores("lib/deep/a.txt", is_dir=False)


# ---------------------------------------------------------------------- no line can fail


@pytest.mark.trial("T20")
def test_a_class_that_git_passes_over_stops_no_conversation(session: Session, work: Path) -> None:
    (work / ".gitignore").write_text("[z-a]*\n[\n[[:nosuch:]]\n(\n*.log\n\\\n!\n")
    (work / "x.log").write_text("left out")
    run(session, work, "echo two > a.txt")
    point = session.checkpoint("after")
    assert session.capture_error is None
    assert session.file_at("a.txt", point) == b"two\n"
    assert point.not_captured == ("x.log (ignored)",), "the other lines count"
    session.rewind(1)
    assert (work / "a.txt").read_text() == "one\n"


LINES = st.binary(max_size=40) | st.text("*?[]!^-\\/ab:z. #\t", max_size=30).map(str.encode)
PATHS = st.lists(st.binary(min_size=1, max_size=12).filter(lambda name: not {47, 0} & {*name}), min_size=1, max_size=4)


@pytest.mark.trial("T20")
@given(st.lists(LINES, max_size=5), PATHS, st.booleans())
@settings(max_examples=200, deadline=None)
def test_no_line_raises_whatever_it_holds(lines: list[bytes], names: list[bytes], is_dir: bool) -> None:
    rules = ignore.IgnoreRules().with_lines("", lines)
    assert rules.ignores(os.fsdecode(b"/".join(names)), is_dir=is_dir) in (True, False)


@pytest.mark.trial("T20")
@pytest.mark.parametrize(
    ("line", "path"),
    [
        (b"*a" * 60 + b"b", b"a" * 250),
        (b"**/a/" * 60 + b"b", b"a/" * 900 + b"a"),
        (b"x/" + b"*?" * 60 + b"[b]", b"x/" + b"a" * 250),
        (b"**/" + b"*a*/" * 30 + b"b", b"aaaa/" * 200 + b"c"),
    ],
)
def test_no_line_takes_for_ever(line: bytes, path: bytes) -> None:
    (pattern,) = patterns.parse([line])  # with a backtracking expression these take years
    assert not pattern.matches(path, path.rpartition(b"/")[2])


# ---------------------------------------------------------------------- as git does

PIECES = (
    *(b"*", b"**", b"?", b"[", b"]", b"!", b"^", b"-", b"\\", b"/", b"a", b"b", b"z", b"A", b".", b" ", b"#", b"x"),
    *(b"[:alpha:]", b"[:space:]", b"[:", b":]", b"[a-z]", b"[z-a]", b"[!a]", b"[!z-a]", b"[]-a]", b"**/", b"/**"),
    *(b"\xc3\xa9", b"\t", b"\r", b"\xff", b"[[:digit:]-z]"),
)
NAMES = (b"a", b"b", b"ab", b"z", b"-", b"[", b"]", b"!", b"\xc3\xa9", b"a b", b"a ", b"\\", b"A", b".a", b"a\nb", b"1")


@pytest.mark.trial("T20")
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_hostile_line_means_what_git_says_it_means(
    tmp_path: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    rng, wrong = random.Random(f"lines {seed}"), list[str]()
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, env=ENVIRONMENT)
    for _ in range(tally("lines compared with git", counts(150, 10_000)) // 25):
        lines = {b"%d" % number: b"".join(rng.choices(PIECES, k=rng.randint(1, 6))) for number in range(25)}
        for folder, line in lines.items():
            (tmp_path / os.fsdecode(folder)).mkdir(exist_ok=True)
            (tmp_path / os.fsdecode(folder) / ".gitignore").write_bytes(line + b"\n")
        paths = [b"/".join((each, *rng.choices(NAMES, k=rng.randint(1, 3)))) for each in lines for _ in range(40)]
        said = _said(tmp_path, paths)
        for path in paths:
            folder = path.partition(b"/")[0]
            rules = ignore.IgnoreRules().with_lines(os.fsdecode(folder) + "/", [lines[folder]])
            if _ignored(rules, path) != (path in said):
                wrong.append(f"{lines[folder]!r} {path!r}")
    assert not wrong, "\n".join(wrong[:20])


def _ignored(rules: ignore.IgnoreRules, path: bytes) -> bool:
    """Whether a file is left out, itself or with a directory above it; none of the names is a default."""
    text = os.fsdecode(path)
    for at in [number for number, sign in enumerate(text) if sign == "/"][1:]:
        rules = rules.inside(text[:at])
    return rules.ignores(text, is_dir=False)


def _said(root: Path, paths: list[bytes]) -> set[bytes]:
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=root,
        env=ENVIRONMENT,
        input=b"\0".join(paths),
        capture_output=True,
    )
    assert done.returncode in (0, 1), done.stderr
    return {*done.stdout.split(b"\0")} - {b""}
