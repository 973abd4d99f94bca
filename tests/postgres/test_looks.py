"""``ls`` and ``show`` on PostgreSQL: the same sessions are shown in the same words as from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

import _postgres
import takeback
from takeback.cli import main

pytestmark = pytest.mark.feature("F10")

LOOKS = [
    ["ls", "-a"],
    ["ls"],
    ["ls", "-a", "--json", "--archived"],
    ["ls", "-a", "--status", "completed"],
    ["ls", "-a", "--agent", "nobody"],
    ["ls", "-a", "--trash"],
    ["show", "one"],
    ["show", "one/side:1", "--jsonl"],
    ["show", "nosuch"],
]


def _make(store: takeback.Store, place: Path) -> None:
    for name in ("one", "two", "three", "four"):
        s = store.create_session(name, workspace=place, tags=[name])
        s.user(f"Begin {name}")
        s.assistant("Done", usage=takeback.Usage(10, 2))
    store.get_session("one").fork(1, name="side")
    store.get_session("two").complete()
    store.get_session("three").archive()
    store.delete_session("four")
    store.create_session(store.get_session("one").id[:7])  # named like the beginning of an id


def test_looks_are_the_same_on_a_server_and_in_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, file = _postgres.url(tmp_path), str(tmp_path / "copy.db")
    monkeypatch.chdir(tmp_path)
    with takeback.open(server) as store:
        _make(store, tmp_path)
    takeback.copy(server, file)
    for arguments in LOOKS:
        said = []
        for url in (server, file):
            capsys.readouterr()
            code = main(["--store", url, *arguments])
            out, err = capsys.readouterr()
            said.append((code, out, err))
        assert said[0] == said[1], arguments
        assert said[0][0] == (4 if "nosuch" in arguments else 0)
    assert "main(2)" in _shown(capsys, "--store", server, "ls", "-a")


def _shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main([*arguments]) == 0
    return capsys.readouterr().out
