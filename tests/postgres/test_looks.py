"""``ls`` and ``show`` on PostgreSQL: the same sessions are shown in the same words as from a file."""

from __future__ import annotations

from pathlib import Path

import pytest

import _postgres
import takeback
from takeback.cli import main
from takeback.client.open_to_read import open_for_reading

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
    ["search", "-a", "begin", "--in", "user"],
    ["search", "begin", "--sessions", "--jsonl"],
    ["search", "-a", "one", "--explain"],
    ["ls", "-a", "begin", "--archived"],
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


@pytest.mark.feature("E10")
def test_a_search_on_a_server_uses_its_index_and_makes_no_store(tmp_path: Path) -> None:
    url = _postgres.url(tmp_path)
    with pytest.raises(takeback.NotFound):
        open_for_reading(url, indexes=True)
    with pytest.raises(takeback.NotFound):
        takeback.open(url, read_only=True)
    with takeback.open(url) as store:
        store.create_session("one").user("Begin")
    for indexes in (True, False):
        reading = open_for_reading(url, indexes=indexes)
        assert reading.capabilities.read_only is not indexes
        assert len(reading.search("begin", roles="user")) == 1
        reading.close()


@pytest.mark.feature("E10", "F10")
def test_doctor_judges_the_index_of_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = _postgres.url(tmp_path)
    with takeback.open(url) as store:
        store.create_session("one").user("Begin")
        store.search("begin")
    assert "ok search " in _shown(capsys, "--store", url, "doctor")
    assert _shown(capsys, "--store", url, "search", "--rebuild") == ""
    assert "ok search " in _shown(capsys, "--store", url, "doctor")


def _shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main([*arguments]) == 0
    return capsys.readouterr().out
