"""Names of control directories are known in every spelling that git guards against, and no other names are."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from _forged import IGNORED, spelling
from takeback.model import names

pytestmark = [pytest.mark.trial("T1"), pytest.mark.promise("R27")]

CONTROL = [
    *(".git", ".GIT", ".Git", ".gIT", ".hg", ".HG", ".svn", ".Svn", ".jj", ".JJ"),
    *(".git ", ".git.", ".Git ", ".git . .", ".git...", ".hg ", ".svn.", ".jj . "),
    *(
        "git~1",
        "GIT~1",
        "GIT~2",
        "git~9",
        "git~10",
        "hg~1",
        "SVN~1",
        "jj~3",
        "git~1.",
        "git~1 ",
        "gi7eba~1",
        "SV12AB~1",
    ),
    *(".git::$INDEX_ALLOCATION", ".git:x", ".GIT::$DATA", "git~1::$INDEX_ALLOCATION", ".hg:$I30:$INDEX_ALLOCATION"),
    *(".git\\config", ".git\\", "a\\.git", "a\\.GIT\\hooks\\x", "git~1\\config", "x\\y\\.svn", ".git .\\config"),
    *(
        ".g\u200cit",
        "\u200c.git",
        ".git\u200d",
        ".G\u200eI\u200fT",
        ".\ufeffgit",
        ".g\u206ait",
        ".gi\u202et",
        ".h\u200cg",
    ),
    *(".j\u200bj", ".s\u00advn", ".g\u2060it", ".git\ufe0f", ".g\U000e0001it", ".\u017fvn", ".g\u0131t"),
]
OTHERS = [
    *(".gitignore", ".gitattributes", ".gitmodules", ".github", ".gitlab-ci.yml", ".hgignore", ".svnignore", ".jjx"),
    *("git", "hg", "svn", "jj", "git~", "git~a", "~1", "git-1", "git~1x", ".git-old", ".git_", ".git.bak", ".git~1"),
    *("xgit~1", "x.git", "..git", ". git", " .git", "a.git", "repo.git", ".gi", ".g", ".", "gitgit~1", "gi123~1"),
    *(
        "a\\b",
        "a\\git",
        "x:.git",
        "\u00e4.git",
        ".g\u00eft",
        ".gi\u0307t",
        ".gi\u200ct2",
        "GIT",
        "gi7eba~",
        ".git.takeback-1",
    ),
]


@pytest.mark.parametrize("name", CONTROL, ids=ascii)
def test_a_control_directory_is_known_in_any_spelling(name: str) -> None:
    assert names.is_control(name.encode())
    assert names.leads_into_control(b"a/" + name.encode() + b"/b")
    assert names.control_part(b"a/" + name.encode() + b"/b/c") == b"a/" + name.encode()


@pytest.mark.parametrize("name", OTHERS, ids=ascii)
def test_other_names_are_names(name: str) -> None:
    assert not names.is_control(name.encode())
    assert not names.leads_into_control(b"a/" + name.encode() + b"/b")


@pytest.mark.parametrize("name", [b".g\xffit", b"\xff.git", b".git\xc3", b"\xed\xa0\x80.git"])
def test_bytes_that_are_no_text_are_other_names(name: bytes) -> None:
    assert not names.is_control(name)


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"/", b"../x", b"a\0b", b"x" * 4097])
def test_what_no_file_can_be_called_is_refused_with_the_reason(name: bytes) -> None:
    assert names.fault(name)
    assert not names.fault(b"...")
    assert not names.fault(b"x" * 255)


def test_every_spelling_of_the_fuzzer_is_known(seed: int, counts: Callable[[int, int], int]) -> None:
    rng = random.Random(f"spellings {seed}")
    for _ in range(counts(2_000, 50_000)):
        name = spelling(rng)
        assert names.is_control(name), name


def test_whatever_git_takes_for_its_own_directory_we_do_too(
    tmp_path: Path, seed: int, counts: Callable[[int, int], int]
) -> None:
    """``git fsck`` judges the same names: what it reports as ``hasDotgit`` must be known here."""
    rng, tried = random.Random(f"git {seed}"), set[bytes]()
    _git(tmp_path, "init", "-q")
    wanted = {each.encode() for each in CONTROL + OTHERS} | {_mutated(rng) for _ in range(counts(500, 10_000))}
    by_id = {_loose_tree(tmp_path, name): name for name in wanted if name and b"/" not in name and b"\0" not in name}
    told = _git(tmp_path, "fsck", "--no-dangling", check=False)
    for line in told.splitlines():
        if "hasDotgit" in line:
            name = by_id[line.split()[3].rstrip(":")]
            tried.add(name)
            assert names.is_control(name), name
    assert {b".git", b".GIT", b"git~1", b".git\\config", ".g\u200cit".encode()} <= tried, told


def _mutated(rng: random.Random) -> bytes:
    text = rng.choice([".git", "git~1", ".GIT", "a\\.git", ".git::$INDEX_ALLOCATION"])
    for _ in range(rng.randint(0, 3)):
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice([*IGNORED, *". :\\~1gGx", ""]) + text[at + rng.randint(0, 1) :]
    return text.encode()


def _loose_tree(root: Path, name: bytes) -> str:
    """Write a tree of git's with one name in it; its own commands would refuse to."""
    blob = hashlib.sha1(b"blob 0\0").digest()
    data = b"100644 " + name + b"\0" + blob
    for kind, body in ((b"blob", b""), (b"tree", data)):
        whole = b"%s %d\0" % (kind, len(body)) + body
        found = hashlib.sha1(whole).hexdigest()
        path = root / ".git" / "objects" / found[:2] / found[2:]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zlib.compress(whole))
    return found


def _git(root: Path, *args: str, check: bool = True) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    clean |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C"}
    done = subprocess.run(["git", *args], cwd=root, capture_output=True, env=clean, timeout=120)
    assert not check or done.returncode == 0, done.stderr.decode()
    return (done.stdout + done.stderr).decode("utf-8", "replace")
