"""Lines of JSON: lossless, the same bytes again, and a file that is cut, changed or forged is refused."""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _made import STEPS, lines_of, play, read_into, resealed
from hypothesis import HealthCheck, given, settings

import takeback
from takeback import Conflict, Corrupt, Error, Invalid, SchemaTooNew, Session, Store
from takeback.importers.jsonl import FileLimits

pytestmark = pytest.mark.feature("F9")


@pytest.fixture
def talk(store: Store) -> Session:
    """A session with a bit of everything."""
    talk = store.create_session("talk", agent="coder")
    talk.user("hello")
    talk.assistant("hi", raw=b'{"b": 1,  "a": "\xc3\xa4"}', usage={"input_tokens": 3, "output_tokens": 1})
    talk.user("see", attachments=[b"\x00\xff binary", b"text of a file"])
    talk.append({"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "ls", "arguments": {}}]})
    talk.tool_result("c1", {"files": ["a"]})
    talk.set_tasks(["one", "two"])
    talk.checkpoint("here")
    talk.fork(2, name="aside")
    talk.rewind(4)
    talk.user("again")
    store.create_session(kind="subagent", parent=talk, label="helper").user("help")
    return talk


def is_untouched(store: Store) -> bool:
    return not [*store.iter_sessions(archived=None), *store.iter_sessions(trash=True), *store.events()]


# ---------------------------------------------------------------------- lossless


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_whatever_was_done_comes_back_and_gives_the_same_bytes(steps: list[tuple[str, Any]]) -> None:
    with takeback.open(":memory:") as source, takeback.open(":memory:") as target:
        made = play(source, steps)
        data = lines_of(source)
        read_into(target, data)
        assert not target.verify()
        assert lines_of(target) == data
        for session in [each for each in made if not each.refresh().deleted]:
            there = target.get_session(session.id)
            assert [*there.entries()] == [*session.entries()]
            assert there.branches() == session.branches()
            assert there.checkpoints() == session.checkpoints()
            assert there.operations() == session.operations()
            assert there.state.read() == session.state.read() or session.state.read() != session.state.read()  # NaN


def test_lines_are_plain_json_that_people_can_look_at(store: Store, talk: Session) -> None:
    lines = [json.loads(each) for each in lines_of(store, talk).splitlines()]
    assert lines[0] == {"type": "header", "format": "takeback", "version": 1}
    assert (lines[-1]["type"], lines[-1]["lines"]) == ("end", len(lines) - 1)
    entries = [each for each in lines if each["type"] == "entry"]
    assert entries[0]["body"] == {"role": "user", "content": "hello"}
    assert entries[1]["raw"] == {"$text": '{"b": 1,  "a": "ä"}'}, "other bytes if it were written again"
    chunks = [each["data"] for each in lines if each["type"] == "chunk"]
    assert {"$text": "text of a file"} in chunks
    assert {"$base64": base64.b64encode(b"\x00\xff binary").decode()} in chunks
    assert [each["label"] for each in lines if each["type"] == "session" and "label" in each] == ["helper"]


def test_files_of_the_workspace_travel(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("one\n")
    with takeback.open(":memory:") as source, takeback.open(":memory:") as target:
        with source.session("work", workspace=tmp_path) as s:
            s.user("go")
            point = s.checkpoint("here")
        read_into(target, lines_of(source, s))
        assert target.get_session(s.id).file_at("src/a.py", point) == b"one\n"


def test_a_session_that_went_on_there_is_left_alone_and_one_that_differs_is_a_conflict(
    store: Store, talk: Session
) -> None:
    data = lines_of(store, talk)
    with takeback.open(":memory:") as target:
        read_into(target, data)
        target.get_session(talk.id).user("on")
        done = read_into(target, data).copied
        assert done is not None
        assert done.entries == 0
        talk.user("otherwise")
        with pytest.raises(Conflict, match="was changed in both stores"):
            read_into(target, lines_of(store, talk))


def test_a_dry_run_judges_and_changes_nothing(store: Store, talk: Session) -> None:
    data = lines_of(store, talk)
    with takeback.open(":memory:") as target:
        found = read_into(target, data, dry_run=True)
        assert (talk.id in found.sessions, found.copied) == (True, None)
        assert is_untouched(target)
        with pytest.raises(Corrupt):
            read_into(target, data[:-10], dry_run=True)


# ---------------------------------------------------------------------- cut, changed, forged


def test_a_file_that_is_cut_anywhere_is_refused(store: Store, talk: Session) -> None:
    data = lines_of(store, talk)
    with takeback.open(":memory:") as target:
        ends = [at for at, byte in enumerate(data) if byte == 10]
        for cut in [0, 1, *ends[:-1], *(at + 1 for at in ends[:-1]), len(data) - 20]:
            with pytest.raises((Corrupt, Invalid)):
                read_into(target, data[:cut])
        assert is_untouched(target)


def test_a_changed_byte_is_noticed(store: Store, talk: Session, seed: int, counts: Callable[[int, int], int]) -> None:
    data, rng = lines_of(store, talk), random.Random(f"byte {seed}")
    with takeback.open(":memory:") as target:
        for _ in range(counts(150, 5000)):
            changed = bytearray(data)
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            with pytest.raises((Corrupt, Invalid, SchemaTooNew)):
                read_into(target, bytes(changed))
        assert is_untouched(target)


def test_the_line_that_is_wrong_is_named(store: Store, talk: Session) -> None:
    lines = lines_of(store, talk).splitlines(keepends=True)
    for number, wrong in ((3, b"{}\n"), (4, b"no json\n"), (5, b'{"type":"nosuch"}\n'), (6, b"\xff\n"), (2, b"\n")):
        changed = [*lines[: number - 1], wrong, *lines[number:]]
        with pytest.raises(Corrupt, match=rf"^line {number}: .*nothing was imported$"):
            read_into(takeback.open(":memory:"), b"".join(changed))


def _entry(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return next(each for each in lines if each["type"] == "entry")


def _session(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return next(each for each in lines if each["type"] == "session")


def _first(kind: str, lines: list[dict[str, Any]]) -> int:
    return next(at for at, each in enumerate(lines) if each["type"] == kind)


def _other_text(lines: list[dict[str, Any]]) -> None:
    _entry(lines)["body"]["content"] = "never said"


def _other_time(lines: list[dict[str, Any]]) -> None:
    _entry(lines)["at_ms"] += 1


def _other_totals(lines: list[dict[str, Any]]) -> None:
    _entry(lines)["totals"]["messages"] = 7


def _other_hash(lines: list[dict[str, Any]]) -> None:
    _entry(lines)["hash"] = "0" * 64


def _short_hash(lines: list[dict[str, Any]]) -> None:
    _entry(lines)["hash"] = "00"


def _other_kind(lines: list[dict[str, Any]]) -> None:
    _entry(lines)["kind"] = "note"


def _missing_entry(lines: list[dict[str, Any]]) -> None:
    del lines[_first("entry", lines)]


def _twice(lines: list[dict[str, Any]]) -> None:
    at = _first("entry", lines)
    lines.insert(at, copy.deepcopy(lines[at]))


def _session_twice(lines: list[dict[str, Any]]) -> None:
    lines.append(copy.deepcopy(_session(lines)))


def _no_agent(lines: list[dict[str, Any]]) -> None:
    lines[:] = [each for each in lines if each["type"] not in ("agent", "agent_version")]


def _no_version(lines: list[dict[str, Any]]) -> None:
    del lines[_first("agent_version", lines)]


def _no_blob(lines: list[dict[str, Any]]) -> None:
    lines[:] = [each for each in lines if each["type"] not in ("blob", "chunk")]


def _other_chunk(lines: list[dict[str, Any]]) -> None:
    lines[_first("chunk", lines)]["data"] = {"$text": "something else"}


def _bad_base64(lines: list[dict[str, Any]]) -> None:
    lines[_first("chunk", lines)]["data"] = {"$base64": "!"}


def _no_chunk(lines: list[dict[str, Any]]) -> None:
    del lines[_first("chunk", lines)]


def _other_head(lines: list[dict[str, Any]]) -> None:
    _session(lines)["head"]["branch"] = "0" * 25


def _head_too_far(lines: list[dict[str, Any]]) -> None:
    _session(lines)["head"]["seq"] = 1 << 40


def _other_counts(lines: list[dict[str, Any]]) -> None:
    _session(lines)["tasks"] = 99


def _parent_is_itself(lines: list[dict[str, Any]]) -> None:
    _session(lines)["parent"] = _session(lines)["id"]


def _path_as_id(lines: list[dict[str, Any]]) -> None:
    _session(lines)["id"] = "../../../../etc/passwd"


def _unknown_kind(lines: list[dict[str, Any]]) -> None:
    _session(lines)["kind"] = "weird"


def _unknown_status(lines: list[dict[str, Any]]) -> None:
    _session(lines)["status"] = "weird"


def _nul_in_a_title(lines: list[dict[str, Any]]) -> None:
    _session(lines)["title"] = "a \0 b"


def _endless_tree(lines: list[dict[str, Any]]) -> None:
    """Sub-agents below sub-agents, two thousand levels of them."""
    start = next(at for at, each in enumerate(lines) if each["type"] == "session" and "parent" in each)
    child, branch = lines[start], next(each for each in lines[start:] if each["type"] == "branch")
    for number in range(2000):
        above = lines[-1]["session"] if number else child["id"]
        made = {**child, "id": f"{number:025}", "parent": above, "order": 2 + number}
        made |= {"key": f"k{number}", "label": None, "head": {**child["head"], "branch": f"b{number}", "seq": 0}}
        lines += [made, {**branch, "id": f"b{number}", "session": made["id"]}]


def _huge_number(lines: list[dict[str, Any]]) -> None:
    _session(lines)["created_ms"] = 1 << 70


def _half_copied(lines: list[dict[str, Any]]) -> None:
    _session(lines)["key"] = "copying:x"


def _operation_of_nobody(lines: list[dict[str, Any]]) -> None:
    lines[_first("operation", lines)]["session"] = "0" * 25


def _undoes_nothing(lines: list[dict[str, Any]]) -> None:
    lines[_first("operation", lines)]["undoes"] = "0" * 25


def _checkpoint_elsewhere(lines: list[dict[str, Any]]) -> None:
    lines[_first("checkpoint", lines)]["seq"] = 1


def _branch_from_nowhere(lines: list[dict[str, Any]]) -> None:
    at = next(at for at, each in enumerate(lines) if each["type"] == "branch" and "parent" in each)
    lines[at]["fork_seq"] = 1000


def _unknown_field(lines: list[dict[str, Any]]) -> None:
    _entry(lines)["more"] = 1


def _hidden_tool(lines: list[dict[str, Any]]) -> None:
    _entry(lines)["calls"] = [["call", "never announced"]]


def _key_of_nothing(lines: list[dict[str, Any]]) -> None:
    lines.append({"type": "key", "key": "k", "made": {"kind": "session", "id": "nosuch"}})


def _header_again(lines: list[dict[str, Any]]) -> None:
    lines.insert(3, lines[0])


FORGERIES = [value for name, value in [*globals().items()] if name.startswith("_") and callable(value)]
FORGERIES = [each for each in FORGERIES if each.__name__ not in ("_entry", "_session", "_first")]


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__.strip("_"))
def test_what_is_not_true_is_refused_though_the_checksum_fits(
    store: Store, talk: Session, forge: Callable[[list[dict[str, Any]]], None]
) -> None:
    lines = [json.loads(each) for each in lines_of(store, talk).splitlines()][:-1]
    with takeback.open(":memory:") as target:
        read_into(target, resealed(lines), dry_run=True)
        forge(lines)
        with pytest.raises((Corrupt, Invalid)):
            read_into(target, resealed(lines))
        assert is_untouched(target)


def test_hostile_files_are_bounded(store: Store, talk: Session) -> None:
    data = lines_of(store, talk)
    target = takeback.open(":memory:")
    for limits in (FileLimits(line=100), FileLimits(lines=3), FileLimits(bytes=1000)):
        with pytest.raises(Invalid, match="larger than is read"):
            read_into(target, data, limits=limits)
    deep = b'{"type":"agent_version","version":1,"at_ms":0,"state":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    with pytest.raises(Corrupt, match="line 2: it is nested too deeply"):
        read_into(target, data.splitlines(keepends=True)[0] + deep)
    with pytest.raises(Corrupt, match="something stands behind the end"):
        read_into(target, data + b"more\n")
    assert is_untouched(target)


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"hello", b"{}", b'{"type":"header","format":"other","version":1}\n', b"\x89PNG\r\n"]
)
def test_another_file_is_none_of_ours(store: Store, data: bytes) -> None:
    with pytest.raises(Invalid):
        read_into(store, data)


def test_a_file_of_a_newer_version_says_so(store: Store) -> None:
    with pytest.raises(SchemaTooNew, match="newer Takeback"):
        read_into(store, b'{"type":"header","format":"takeback","version":2}\n')


def test_a_damaged_store_is_not_exported(tmp_path: Path) -> None:
    with takeback.open(tmp_path / "a.db") as store:
        store.create_session("talk").user("a sentence that is easy to find")
    data = bytearray((tmp_path / "a.db").read_bytes())
    data[data.index(b"easy to find")] ^= 1
    (tmp_path / "a.db").write_bytes(data)
    with takeback.open(tmp_path / "a.db") as store, pytest.raises(Error):
        lines_of(store, store.get_session("talk"))
