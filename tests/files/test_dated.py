"""When a move of files is dated: by its commit, since carrying it out takes time."""

from pathlib import Path

import pytest

import takeback
from takeback.clock import to_datetime
from takeback.files.disk.apply import Changeset
from takeback.testing.clock import ManualClock


@pytest.mark.feature("F1")
def test_a_rewind_is_dated_by_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, clock = tmp_path / "work", ManualClock()
    work.mkdir()
    carry_out = Changeset.carry_out

    def slowly(self: Changeset) -> None:
        clock.advance(60_000)
        carry_out(self)

    with takeback.open(tmp_path / "s.db", clock=clock) as store, store.session("s", workspace=work) as session:
        session.user("begin")
        with session.tool("write") as run:
            work.joinpath("a.txt").write_text("one")
            run.result("done")
        monkeypatch.setattr(Changeset, "carry_out", slowly)
        began = clock.now_ms()
        done = session.rewind(1)
        assert not work.joinpath("a.txt").exists()
        assert done.created_at == session.updated_at == to_datetime(began + 60_000)
