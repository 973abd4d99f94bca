"""Copying chosen sessions: those and what they cannot be without, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from _copied import OPENERS, assert_sound, is_empty, memory, rich, session_view

import takeback
from takeback import Invalid, NotFound, Store

pytestmark = pytest.mark.feature("F9")


def _names(store: Store) -> set[str | None]:
    return {each.name for each in store.iter_sessions(archived=None)}


@pytest.mark.parametrize("engine", ["memory", "postgres"])
@pytest.mark.parametrize("name", ["talk", "forked again", "survivor", "child"])
def test_a_chosen_session_is_the_same_in_the_copy(tmp_path: Path, engine: str, name: str) -> None:
    with OPENERS[engine](tmp_path / "a.db") as source, memory() as target:
        wanted = next(each for each in rich(source).iter_sessions(archived=None) if each.name == name)
        takeback.copy(source, target, sessions=[wanted])
        assert session_view(target.get_session(wanted.id)) == session_view(wanted)
        assert_sound(target)
        assert is_empty(takeback.copy(source, target, sessions=[wanted]))


def test_what_a_session_needs_goes_with_it_and_nothing_else() -> None:
    source = rich(memory())

    def copied(name: str, **how: bool) -> set[str | None]:
        target = memory()
        found = next(each for each in source.iter_sessions(archived=None) if each.name == name)
        takeback.copy(source, target, sessions=[found.id], **how)
        return _names(target)

    assert copied("talk") == {"talk", "child"}
    assert copied("talk", subagents=False) == {"talk"}
    assert copied("forked again") == {"talk", "forked again"}  # all that it reads lies in the first one
    assert copied("child") == {"talk", "child"}
    assert copied("survivor") == {"survivor"}  # what it was forked from was purged, and stays so


def test_content_that_only_others_need_stays() -> None:
    source, target = memory(), memory()
    one, two = source.create_session("one"), source.create_session("two")
    one.user("see", attachments=[b"mine"])
    two.user("see", attachments=[b"theirs"])
    assert takeback.copy(source, target, sessions=[one]).blobs == 1
    assert target.stats().blobs == 1


def test_files_of_a_workspace_go_with_it(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("one\n")
    source, target = memory(), memory()
    with source.session("work", workspace=tmp_path) as s:
        s.user("go")
        point = s.checkpoint("here")
    takeback.copy(source, target, sessions=[s])
    assert target.get_session(s.id).file_at("src/a.py", point) == b"one\n"
    assert_sound(target)


def test_an_agent_that_says_something_else_there_stays() -> None:
    source, target = memory(), memory()
    for store, prompt in ((source, "be brief"), (target, "be long")):
        store.create_agent("coder", system_prompt=prompt)
    mine = source.create_session("mine", agent="coder")
    mine.user("hello")
    done = takeback.copy(source, target, sessions=[mine])
    assert [each.startswith("agent 'coder' ") for each in done.left_out] == [True]
    assert target.get_session(mine.id).message_count == 1
    assert target.get_agent("coder").system_prompt == "be long"


def test_a_session_that_is_not_there_is_not_found() -> None:
    source, target = memory(), memory()
    with pytest.raises(NotFound):
        takeback.copy(source, target, sessions=["nosuch"])
    with pytest.raises(Invalid):
        takeback.copy(source, target, sessions="nosuch")
    assert not target.list_sessions()


def test_a_session_of_another_scope_is_not_found() -> None:
    source, target = memory(), memory()
    theirs = source.scoped("anna").create_session("theirs")
    with pytest.raises(NotFound):
        takeback.copy(source, target, sessions=[theirs])
    assert takeback.copy(source.scoped("anna"), target, sessions=[theirs]).sessions == 1
    assert not target.list_sessions()
    assert target.scoped("anna").get_session("theirs").id == theirs.id
