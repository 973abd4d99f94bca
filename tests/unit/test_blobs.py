"""Large content goes in and out in pieces, is kept once, and is never given out damaged."""

import random
from pathlib import Path

import apsw
import pytest

import takeback
from takeback.files import contents


@pytest.mark.feature("E3")
@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_000])
def test_a_stream_comes_back_whatever_its_pieces(size: int) -> None:
    rng = random.Random(size)
    data = rng.randbytes(size // 2) + bytes(size - size // 2)
    pieces, at = [], 0
    while at < size:
        step = rng.randrange(1, 2_000_000)
        pieces.append(data[at : at + step])
        at += step
    with takeback.open(":memory:") as store:
        digest = contents.store_stream(store._runner, pieces)
        assert b"".join(contents.open_stream(store._runner, digest)) == data
        assert contents.store(store._runner, data) == digest
        assert store.stats().blobs == 1
        with pytest.raises(takeback.NotFound):
            list(contents.open_stream(store.scoped("another scope")._runner, digest))
        assert not store.verify()


@pytest.mark.feature("E3", "F5")
def test_a_damaged_chunk_is_never_given_out(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(3_000_000)
    with takeback.open(tmp_path / "s.db") as store:
        digest = contents.store(store._runner, data)
    connection = apsw.Connection(str(tmp_path / "s.db"))
    connection.execute("UPDATE chunk SET data = zeroblob(length(data)) WHERE n = 1")
    connection.close()
    with takeback.open(tmp_path / "s.db") as store:
        stream = contents.open_stream(store._runner, digest)
        assert next(stream) == data[: 1 << 20]
        with pytest.raises(takeback.Corrupt):
            next(stream)
        assert store.verify()
