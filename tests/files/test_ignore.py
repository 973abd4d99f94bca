"""Which names of a workspace are left out without a word in a file."""

from __future__ import annotations

import pytest

from takeback.files.disk import ignore

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
