"""doctor and backup: what could bite later, and a copy of everything."""

from __future__ import annotations

import os
import shutil

import pytest
from _world import World

import takeback
from takeback.storage import migrate

pytestmark = pytest.mark.feature("F10")


def test_a_healthy_store_has_no_problems(work: World) -> None:
    lines = work.ok("doctor", "--full").lines
    assert lines[-1] in ("0 problems, 1 note", "0 problems, 2 notes")  # there is no search index yet
    assert any(each.startswith("ok records") and "0 problems" in each for each in lines)
    found = {each["id"]: each["kind"] for each in work.ok("doctor", "--json").document["findings"]}
    assert found["store"] == found["rights"] == "ok"


def test_a_store_that_others_may_read_is_a_problem_with_its_fix(work: World) -> None:
    os.chmod(work.url, 0o644)
    ran = work.run("doctor")
    assert ran.code == 1
    assert f"others can use {work.url} (mode 644)  -> chmod 600 {work.url}" in ran.out


def test_no_store_is_no_problem(world: World) -> None:
    ran = world.ok("doctor")
    assert f"there is no store at {world.url} yet  -> takeback new NAME" in ran.out
    assert not world.url.exists()


def test_damage_is_named_and_has_its_exit_code(work: World) -> None:
    with work.open() as store:
        store._backend._connection.execute("UPDATE entry SET chk = chk + 1 WHERE kind = 'message'")  # type: ignore[attr-defined]
    ran = work.run("doctor", "--full")
    assert (ran.code, "!! records" in ran.out) == (7, True)
    assert work.run("doctor").code == 0, "without --full nothing is recomputed"


def test_interrupted_sessions_and_lost_workspaces_are_noted(work: World) -> None:
    with (
        work.open() as store,
        pytest.raises(KeyboardInterrupt),
        store.session("oauth", agent="coder", workspace=work.project),
    ):
        raise KeyboardInterrupt
    lines = work.ok("doctor", "-C", "/").out
    assert "1 interrupted  -> takeback ls -a --status interrupted" in lines
    assert "1 missing: " in lines, "the directory of the support session is gone"
    shutil.rmtree(work.project)
    assert "2 missing: " in work.ok("doctor", "-C", "/").out


def test_old_tables_are_a_problem_with_its_fix(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.open().close()
    known = migrate.load()
    newer = migrate.Migration(migrate.latest(known) + 1, "next", "SELECT 1;")
    monkeypatch.setattr(migrate, "load", lambda: [*known, newer])
    ran = world.run("doctor")
    assert (ran.code, "-> takeback migrate" in ran.out) == (1, True)


# ---------------------------------------------------------------------- backup


def test_a_backup_opens_as_a_store_and_holds_everything(work: World) -> None:
    file = work.project.parent / "copy.db"
    ran = work.ok("backup", str(file))
    assert "no problems" in ran.out
    assert file.stat().st_mode & 0o777 == 0o600
    assert {each.name for each in file.parent.iterdir() if each.name.startswith("copy")} == {"copy.db"}
    assert work.ok("--store", str(file), "ls", "-a").out == work.ok("ls", "-a").out
    assert work.ok("--store", str(file), "cat", "fix-retry:1", "--", "pool.py").out == "retry(5)\n"
    with takeback.open(file) as store:
        assert not store.verify()


def test_a_backup_overwrites_nothing_and_a_dry_run_writes_nothing(work: World) -> None:
    file = work.project.parent / "copy.db"
    assert "would copy" in work.ok("backup", str(file), "-n").err
    assert not file.exists()
    file.write_text("mine")
    ran = work.run("backup", str(file))
    assert (ran.code, file.read_text()) == (5, "mine")
    document = work.ok("backup", str(file) + "2", "--json").document
    assert document["bytes"] == os.path.getsize(document["path"])


def test_a_backup_says_what_it_copied_damaged(work: World) -> None:
    with work.open() as store:
        store._backend._connection.execute("UPDATE entry SET chk = chk + 1 WHERE kind = 'message'")  # type: ignore[attr-defined]
    file = work.project.parent / "copy.db"
    assert work.run("backup", str(file)).code == 7
    assert file.exists(), "better a copy of what there is than none"
