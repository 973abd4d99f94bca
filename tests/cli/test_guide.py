"""The reference says of every verb what its help says; that the commands of the pages run is tested with the pages."""

import re
from pathlib import Path

import click
import pytest

from takeback.cli.app import VERBS, make
from takeback.cli.params import everywhere, for_changes

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.feature("F10")


REFERENCE = (ROOT / "docs" / "reference.md").read_text("utf-8").partition("## Command line")[2].partition("\n## ")[0]
ROWS = dict(re.findall(r"^\| `([a-z]+)(?: [^`]*)?` \| (.*) \|$", REFERENCE, re.M))
COMMON = {name for each in (*everywhere(), *for_changes()) for name in each.opts} | {"--version", "-h", "--help"}


def test_every_verb_is_in_the_reference() -> None:
    assert {*ROWS} == {*VERBS}


@pytest.mark.parametrize("verb", VERBS)
def test_the_reference_says_what_the_help_says_and_names_every_flag(verb: str) -> None:
    app = make()
    command = app.get_command(click.Context(app), verb)
    assert command is not None
    said, _, flags = ROWS[verb].rstrip("`").partition(" `")
    assert said.startswith(" ".join((command.help or "").split("\n\n")[0].split()).removesuffix("."))
    own = [param.opts for param in command.params if isinstance(param, click.Option)]
    own = [names for names in own if verb == "tail" or COMMON.isdisjoint(names)]
    named = {*flags.split()}
    assert [names for names in own if named.isdisjoint(names) and COMMON.isdisjoint(names)] == []
    assert named <= {name for names in own for name in names}


def test_the_reference_names_the_flags_of_all_verbs() -> None:
    first = REFERENCE.strip().splitlines()[0]
    for option in (*everywhere(), *for_changes()):
        assert any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", first) for name in option.opts), option.opts
