"""The reference names every verb; that the commands of the pages run is tested with the pages."""

import re
from pathlib import Path

import pytest

from holdfast.cli.app import VERBS

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.feature("F10")


def test_every_verb_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference.md").read_text("utf-8")
    listed = set(re.findall(r"^\| `([a-z]+)[ `]", text.partition("## Command line")[2].partition("\n## ")[0], re.M))
    assert listed == {*VERBS}
