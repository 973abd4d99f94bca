"""An agent's shell at work in a large directory, a person beside it: any turn can be gone back to, byte for byte."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from test_apply import read

import takeback

pytestmark = [pytest.mark.slow, pytest.mark.feature("F1"), pytest.mark.promise("R14", "R16")]

_TURNS = 20
PERSON = "notes of a person.txt"


@pytest.fixture
def place() -> Iterator[Path]:
    """A place in memory where there is such a thing."""
    made = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    yield made
    shutil.rmtree(made)


def whole(root: Path) -> str:
    """Return the hash of everything in a directory but the person's file: names, contents, modes, links."""
    found = read(root, ours=True)
    found.pop(os.fsencode(PERSON), None)
    return sha256(repr(sorted(found.items())).encode()).hexdigest()


def fill(root: Path, files: int) -> None:
    for number in range(files):
        folder = root / f"d{number % 40}" / f"e{number % 7}"
        if number < 280:
            folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}").write_text(f"file {number}\n")
    (root / PERSON).write_text("0")


def script(rng: random.Random, turn: int, files: int) -> str:
    """Write what the agent's shell does in a turn."""

    def some() -> str:
        number = rng.randrange(files)
        return f"d{number % 40}/e{number % 7}/f{number}"

    lines = ["set +e"]
    for _ in range(4):
        lines += [
            f"echo 'turn {turn}' >> {some()}",
            f"sed -i s/file/FILE/ {some()}",
            f"rm -f {some()}",
            f"mv {some()} d{rng.randrange(40)}/moved-{turn}-{rng.randrange(9)}",
            f"chmod {rng.choice(('600', '755', '444'))} {some()}",
            f"ln -sf /etc/hostname {some()}",
            f"ln -s ../nowhere d{rng.randrange(40)}/link-{turn}-{rng.randrange(9)}",
        ]
    lines += [f"mkdir -p new-{turn}/a/b; echo x > new-{turn}/a/b/x; mkdir new-{turn}/empty"]
    lines += [f"rm -rf d{rng.randrange(40)}/e{rng.randrange(7)}", f"mv d{rng.randrange(40)} renamed-{turn}"]
    return "\n".join([*lines, "exit 0"])


# ---------------------------------------------------------------------- in processes of their own


def work(place: Path, files: int, seed: int) -> list[tuple[int, str]]:
    """Do twenty turns; give the seq at the end of each and the hash of everything then."""
    rng, root, points = random.Random(f"shown {seed}"), place / "w", list[tuple[int, str]]()
    with takeback.open(place / "s.db") as store, store.session("one", workspace=root) as session:
        for turn in range(_TURNS):
            session.user(f"turn {turn}")
            with session.tool("shell") as run:
                subprocess.run(["sh", "-c", script(rng, turn, files)], cwd=root, check=True, capture_output=True)
                run.result("done")
            points.append((session.assistant("done").seq, whole(root)))
            (root / PERSON).write_text(f"after turn {turn}")
    return points


def go(place: Path, steps: list[Any]) -> list[tuple[str, str, list[str]]]:
    """Rewind, undo or redo, one after the other; give the hash of everything and the person's file after each."""
    found = []
    with takeback.open(place / "s.db") as store:
        session = store.get_session("one")
        for step in steps:
            planned = session.preview_rewind(step) if isinstance(step, int) else getattr(session, f"preview_{step}")()
            planned.apply()
            found.append((whole(place / "w"), (place / "w" / PERSON).read_text(), list(planned.kept)))
        assert not store.verify()
    return found


def in_process(function: Callable[..., Any], *args: Any) -> Any:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, args)


def test_any_turn_can_be_gone_back_to_byte_for_byte_and_a_persons_file_stays(
    place: Path, seed: int, counts: Callable[[int, int], int], tally: Callable[..., int]
) -> None:
    files = counts(2_000, 20_000)
    (place / "w").mkdir()
    fill(place / "w", files)
    points = in_process(work, place, files, seed)
    assert len({each for _, each in points}) == _TURNS
    last, person = whole(place / "w"), f"after turn {_TURNS - 1}"

    rng = random.Random(f"shown {seed}")
    order = rng.sample(range(_TURNS - 1), counts(6, _TURNS - 1))
    for first in range(0, len(order), 7):  # each process takes some of the turns, each from the end
        steps = [step for turn in order[first : first + 7] for step in (points[turn][0], "undo")]
        found = in_process(go, place, steps)
        for turn, (there, here) in zip(
            order[first : first + 7], zip(found[::2], found[1::2], strict=True), strict=True
        ):
            assert there[:2] == (points[turn][1], person), f"turn {turn}"
            assert here[:2] == (last, person), f"undo of turn {turn}"
        tally("turns gone back to", len(found) // 2)

    back = [15, 10, 5, 0]  # further and further back, and then all the way to and fro, across restarts
    found = in_process(go, place, [points[turn][0] for turn in back])
    assert [each[0] for each in found] == [points[turn][1] for turn in back]
    for _ in range(counts(1, 3)):
        found = in_process(go, place, ["undo"] * 4)
        assert [each[0] for each in found] == [*(points[turn][1] for turn in back[2::-1]), last]
        found = in_process(go, place, ["redo"] * 4)
        assert [each[0] for each in found] == [points[turn][1] for turn in back]
    assert {each[1] for each in found} == {person}
