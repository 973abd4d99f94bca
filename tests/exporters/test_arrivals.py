"""A session that comes from an export has no workspace here until somebody says which; nothing finds it by its path."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _made import lines_of, resealed

import _postgres
import takeback
from takeback import Loaded, Session, Store
from takeback.ids import new_id
from takeback.model.copied import Amounts
from takeback.ops import sessions
from takeback.records import as_of
from takeback.records.incoming import Arrivals

pytestmark = [pytest.mark.feature("F9"), pytest.mark.trial("T1"), pytest.mark.promise("R27")]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory that is there on this machine, and that a file names."""
    made = tmp_path / "project"
    made.mkdir()
    (made / "pool.py").write_text("retry(1)\n")
    return made.resolve()


@pytest.fixture
def data(store: Store, project: Path) -> bytes:
    """An export of a session with files, one of a directory, one without any workspace, and a sub-agent."""
    with store.session("fix-retry", agent="coder", workspace=project) as s:
        s.user("fix it")
        with s.tool("bash", {"command": "edit"}) as running:
            (project / "pool.py").write_text("retry(5)\n")
            running.result("done")
        s.checkpoint("fixed")
        s.user("now make it slow")
        with s.tool("bash", {"command": "edit"}) as running:
            (project / "pool.py").write_text("sleep(5)\n")
            running.result("done")
        s.rewind("fixed")
        s.spawn("look around", label="helper").session.user("here?")
    store.directory_session(project, agent="coder").user("of the directory")
    store.create_session("plain", agent="coder").user("nowhere")
    return lines_of(store)


def load(store: Store, data: bytes, **how: Any) -> Loaded:
    return store.load(io.BytesIO(data), **how)


def is_nothing(loaded: Loaded) -> bool:
    assert loaded.copied is not None
    return Amounts(**{name: getattr(loaded.copied, name) for name in Amounts.__struct_fields__}) == Amounts()


def named(store: Store, name: str) -> Session:
    (found,) = [each for each in store.iter_sessions(archived=None) if each.name == name]
    return found


# ---------------------------------------------------------------------- nothing finds it by a path


def test_no_session_of_a_file_has_a_workspace(data: bytes, project: Path) -> None:
    with takeback.open(":memory:") as target:
        load(target, data)
        found = [*target.iter_sessions(archived=None)]
        assert [each.workspace for each in found] == [None] * 4
        assert sorted(each.came_from or "" for each in found) == ["", *[str(project)] * 3]
        assert not [*target.iter_sessions(workspace=project)]
        assert not target.verify()


def test_a_directory_gets_a_session_of_its_own(data: bytes, project: Path) -> None:
    with takeback.open(":memory:") as target:
        known = {*load(target, data).sessions}
        made = target.directory_session(project, agent="coder")
        assert made.id not in known
        moved = project.with_name("moved")
        project.rename(moved)
        assert target.directory_session(moved, agent="coder").id == made.id


def test_the_key_of_a_directory_becomes_that_of_any_session(store: Store, data: bytes, project: Path) -> None:
    was = store.directory_session(project, agent="coder")
    with takeback.open(":memory:") as target:
        load(target, data)
        assert target.get_session(was.id).key == f"agent:coder:session:{was.id}"
        assert target.find_session(was.key) is None


def test_a_name_in_that_workspace_is_free(data: bytes, project: Path) -> None:
    with takeback.open(":memory:") as target:
        known = {*load(target, data).sessions}
        with target.session("fix-retry", agent="coder", workspace=project) as s:
            assert s.id not in known


def test_nothing_is_captured_and_no_file_is_touched(data: bytes, project: Path) -> None:
    with takeback.open(":memory:") as target:
        load(target, data)
        before = {path: path.read_bytes() for path in project.iterdir()}
        with target.session(named(target, "fix-retry")) as s:
            s.user("go on")
            with s.tool("bash", {"command": "edit"}) as running:
                (project / "new.py").write_text("by somebody\n")
                running.result("done")
            assert s.file_at("pool.py", "fixed") == b"retry(5)\n", "what was captured there can be read here"
            s.undo()  # a rewind that moved files there
            s.redo()
            s.rewind(1)
            s.undo()
        assert {path: path.read_bytes() for path in project.iterdir()} == {
            **before,
            project / "new.py": b"by somebody\n",
        }
        assert not [each for each in s.files() if "new.py" in str(each)]


def test_an_operation_of_a_file_moves_no_session_to_a_path(store: Store, project: Path) -> None:
    s = store.create_session("plain", agent="coder")
    s.user("hello")
    s.rename("another title")
    lines = [json.loads(each) for each in lines_of(store).splitlines()][:-1]
    forged = next(each for each in lines if each["type"] == "operation")
    key = f"agent:coder:directory:{sessions.escape(str(project))}"
    forged["before"] |= {"workspace": str(project), "key": key}
    with takeback.open(":memory:") as target:
        load(target, resealed(lines))
        loaded = target.get_session(s.id)
        loaded.undo()
        assert (loaded.refresh().workspace, loaded.key, loaded.title) == (None, s.key, "hello")


@pytest.mark.parametrize("key", ["agent:coder:directory:{}", "agent:other:directory:{}"])
def test_a_forged_key_of_a_directory_is_nobodys(store: Store, project: Path, key: str) -> None:
    made = store.create_session("plain", agent="coder")
    lines = [json.loads(each) for each in lines_of(store).splitlines()][:-1]
    said = next(each for each in lines if each["type"] == "session")
    said["key"] = key.format(sessions.escape(str(project)))
    said["detail"] = {**said["detail"], "directory": "1.2.3", "came_from": {"workspace": str(project)}}
    said["detail"] |= {"told": True}
    with takeback.open(":memory:") as target:
        load(target, resealed(lines))
        loaded = target.get_session(made.id)
        assert (loaded.came_from, loaded.key) == (None, f"agent:coder:session:{made.id}")
        detail = loaded._ask(lambda tx, row: sessions.decoded(sessions.detail(tx, row)))
        assert not {"directory", "told"} & {*detail}
        for agent in ("coder", "other"):
            assert target.directory_session(project, agent=agent).id != made.id


def test_a_fork_of_it_came_from_nowhere(data: bytes) -> None:
    with takeback.open(":memory:") as target:
        load(target, data)
        fork = named(target, "fix-retry").fork(as_session=True, name="mine")
        assert (fork.workspace, fork.came_from) == (None, None)


def test_its_files_can_be_written_where_somebody_says(data: bytes, tmp_path: Path) -> None:
    with takeback.open(":memory:") as target:
        load(target, data)
        fork = named(target, "fix-retry").fork("fixed", as_session=True, name="mine", into=tmp_path / "here")
        assert (tmp_path / "here" / "pool.py").read_text() == "retry(5)\n"
        assert fork.workspace == os.path.realpath(tmp_path / "here")


# ---------------------------------------------------------------------- the same bytes again


@pytest.mark.parametrize("engine", ["memory", "postgres"])
@pytest.mark.parametrize("how", ["file", "copied on"])
def test_it_gives_the_same_lines_from_whichever_store(data: bytes, tmp_path: Path, engine: str, how: str) -> None:
    url = ":memory:" if engine == "memory" else _postgres.url(tmp_path)
    with takeback.open(url, scope="anna") as target, takeback.open(":memory:", scope="anna") as third:
        load(target, data)
        if how == "copied on":
            takeback.copy(target, third)
            target = third
        assert lines_of(target) == data
        load(third, lines_of(target))
        assert lines_of(third) == data


def test_what_is_done_here_is_in_its_lines_and_comes_home(store: Store, data: bytes, project: Path) -> None:
    home = store.directory_session(project, agent="coder")
    with takeback.open(":memory:") as target:
        load(target, data)
        target.get_session(home.id).user("said elsewhere")
        load(store, lines_of(target))
        home.refresh()
        assert home.messages()[-1].text == "said elsewhere"
        assert (home.workspace, home.came_from) == (str(project), None), "at home it is where it was"
        assert store.directory_session(project, agent="coder").id == home.id
        assert lines_of(store) == lines_of(target)


# ---------------------------------------------------------------------- twice


def test_loading_what_is_here_changes_nothing(store: Store, data: bytes, project: Path) -> None:
    before = [*store.events()]
    loaded = load(store, data)
    assert is_nothing(loaded)
    assert (loaded.new, loaded.renamed) == ((), {})
    assert [*store.events()] == before
    assert named(store, "fix-retry").workspace == str(project)


def _bound(target: Store, session: Session, place: Path) -> None:
    """Return a session a workspace, as whoever may do so later will."""
    target._write(lambda tx: sessions.write(tx, sessions.get(tx, "", session.id), workspace=str(place)))


def _renamed(target: Store, session: Session, place: Path) -> None:
    session.rename("Another title")


def _deleted(target: Store, session: Session, place: Path) -> None:
    target.delete_session(session)


def _restored(target: Store, session: Session, place: Path) -> None:
    target.delete_session(session)
    target.create_session(session.name, agent="coder")
    target.restore_session(session)


@pytest.mark.parametrize("change", [_bound, _renamed, _deleted, _restored], ids=lambda each: each.__name__)
def test_loading_again_changes_nothing_even_after_somebody_did(
    data: bytes, tmp_path: Path, change: Callable[[Store, Session, Path], None]
) -> None:
    with takeback.open(":memory:") as target:
        load(target, data)
        session = named(target, "fix-retry")
        change(target, session, tmp_path)
        before, was = [*target.events()], session.refresh()._seen
        loaded = load(target, data)
        assert is_nothing(loaded)
        assert (loaded.new, loaded.renamed) == ((), {})
        assert [*target.events()] == before
        assert session.refresh()._seen == was


def test_a_newer_file_brings_what_is_new_and_leaves_the_place(
    store: Store, data: bytes, tmp_path: Path, project: Path
) -> None:
    with takeback.open(":memory:") as target:
        target.create_session("fix-retry", agent="coder")
        load(target, data)
        session = named(target, "fix-retry (2)")
        _bound(target, session, tmp_path)
        with store.session("fix-retry", agent="coder", workspace=project) as s:
            s.user("more")
        loaded = load(target, lines_of(store))
        assert (loaded.new, loaded.renamed) == ((), {})
        session.refresh()
        assert session.messages()[-1].text == "more"
        assert (session.name, session.workspace) == ("fix-retry (2)", str(tmp_path))
        assert session.came_from == str(project)


def test_what_was_purged_here_stays_so_and_is_not_new(store: Store, data: bytes) -> None:
    purged = named(store, "plain").id
    with takeback.open(":memory:") as target:
        load(target, data)
        target.purge_session(purged)
        loaded = load(target, data)
        assert loaded.copied is not None
        assert (is_nothing(loaded), loaded.new, loaded.renamed) == (True, (), {})
        assert loaded.copied.left_out == (f"session {purged}, which was purged in the destination",)


# ---------------------------------------------------------------------- names


def test_a_name_that_is_taken_gets_a_number(store: Store, data: bytes) -> None:
    wanted = named(store, "fix-retry").id
    with takeback.open(":memory:") as target:
        for number in ("", " (2)"):
            target.create_session(f"fix-retry{number}", agent="coder")
        target.create_session("plain", agent="another agent's")
        assert load(target, data, dry_run=True).renamed == {wanted: "fix-retry (3)"}
        loaded = load(target, data)
        assert loaded.renamed == {wanted: "fix-retry (3)"}
        assert target.get_session(wanted).name == "fix-retry (3)"
        assert "is named 'fix-retry (3)' here" in str(loaded)
        again = load(target, data)
        assert (is_nothing(again), again.renamed) == (True, {})
        everything = [target.get_session(each) for each in loaded.sessions]
        again_out = lines_of(target, *everything)
        assert _sessions(again_out) == _sessions(data), "its own name is what goes out again"


def _sessions(data: bytes) -> list[bytes]:
    """Return the lines of sessions: the agent is the one that was here."""
    return [each for each in data.splitlines() if each.startswith(b'{"type":"session"')]


def test_two_of_a_file_that_had_one_name_in_two_workspaces(store: Store, tmp_path: Path) -> None:
    places = [tmp_path / each for each in ("a", "b", "c")]
    for place in places:
        place.mkdir()
    made = [store.create_session("same", agent="coder", workspace=place) for place in places]
    data = lines_of(store)
    with takeback.open(":memory:") as target:
        loaded = load(target, data)
        assert [target.get_session(each.id).name for each in made] == ["same", "same (2)", "same (3)"]
        assert loaded.renamed == {made[1].id: "same (2)", made[2].id: "same (3)"}
        assert lines_of(target) == data
        assert is_nothing(load(target, data))
        one = lines_of(store, made[2])
        assert is_nothing(load(target, one)), "alone it is the same one"


def test_a_file_that_repeats_a_name_costs_what_it_holds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, find = list[str](), sessions.find_by_name

    def counted(*asked: Any, **named: Any) -> Any:
        looks.append(named["name"])
        return find(*asked, **named)

    monkeypatch.setattr(sessions, "find_by_name", counted)
    taken = store.create_session("same", agent="coder")
    record, arrivals = taken._ask(as_of.of), Arrivals(store._read)
    looks.clear()
    names = [arrivals.place(record._replace(row=record.row._replace(id=new_id(at)))).row.name for at in range(300)]
    assert names == [f"same ({number})" for number in range(2, 302)]
    assert len(looks) <= 601


def test_what_is_in_the_trash_keeps_its_name(store: Store, data: bytes) -> None:
    trashed = named(store, "fix-retry")
    store.delete_session(trashed)
    data = lines_of(store, trashed)
    with takeback.open(":memory:") as target:
        target.create_session("fix-retry", agent="coder")
        assert load(target, data).renamed == {}
        target.restore_session(trashed.id)
        assert target.get_session(trashed.id).name == "fix-retry (2)"


# ---------------------------------------------------------------------- somebody says which


def test_sessions_that_had_a_workspace_get_the_one_that_is_named(store: Store, data: bytes, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to("here")
    with takeback.open(":memory:") as target:
        loaded = load(target, data, workspace=tmp_path / "link")
        place = os.path.realpath(tmp_path / "here")
        assert {each.name: each.workspace for each in target.iter_sessions(archived=None) if each.name} == {
            "fix-retry": place,
            "plain": None,
        }
        assert len([*target.iter_sessions(workspace=place)]) == 3
        assert target.directory_session(place, agent="coder").id not in loaded.sessions
        assert is_nothing(load(target, data)), "and they stay there"
        assert is_nothing(load(target, data, workspace=tmp_path / "elsewhere"))


def test_a_folder_of_a_mirror_is_no_other(store: Store, project: Path, tmp_path: Path) -> None:
    from takeback.exporters.mirror import Mirror

    made = store.create_session("talk", agent="coder", workspace=project)
    made.user("hello")
    with Mirror(store, tmp_path / "mirror") as mirror:
        mirror.update()
    with takeback.open(":memory:") as target, takeback.open(":memory:") as other:
        target.create_session("talk", agent="coder")
        loaded = target.load(tmp_path / "mirror")
        (found,) = (target.get_session(each) for each in loaded.sessions)
        assert (found.name, found.workspace) == ("talk (2)", None)
        assert found.metadata == {"mirrored_from": made.id, "mirrored_workspace": str(project)}
        assert (loaded.mirrored, loaded.renamed) == ({found.id: made.id}, {found.id: "talk (2)"})
        again = target.load(tmp_path / "mirror")
        assert (is_nothing(again), again.sessions, again.new) == (True, (found.id,), ())
        (bound,) = other.load(tmp_path / "mirror", workspace=tmp_path).sessions
        assert other.get_session(bound).workspace == os.path.realpath(tmp_path)
