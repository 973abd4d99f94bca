"""The demo's directory: a small project, a store beside it, the agent, and the environment for a shell."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from ...shell.failures import Stop
from .shell import write_program

FILES = {
    "api.py": "from pool import take\n",
    "config.py": "TIMEOUT = 5\n",
    "notes.md": "Ask Anna before changing the pool.\n",
    "pool.py": "retry(1)\n",
    "run.sh": "sleep 0.5\ngrep -q 'retry(3)' pool.py && echo '2 passed' || echo '1 failed: test_retry'\n",
    "test_pool.py": "def test_retry(): ...\n",
}


class Kept(NamedTuple):
    """The state of a file: the start of its hash, and its mode."""

    hash: str
    mode: int

    def __str__(self) -> str:
        return f"{self.hash} {self.mode:o}"


class Scratch:
    """A directory that is created once and left behind."""

    def __init__(self, wanted: str | None) -> None:
        self.folder = _made(wanted)
        self.project, self.store = self.folder / "payments", self.folder / "work.db"
        self.project.mkdir()
        for name, text in FILES.items():
            (self.project / name).write_text(text, "utf-8")
            (self.project / name).chmod(0o755 if name == "run.sh" else 0o644)
        self._write_programs()

    def _write_programs(self) -> None:
        place, bin = self.folder / "agent.py", self.folder / "bin"
        shutil.copyfile(Path(__file__).with_name("agent.py"), place)
        bin.mkdir()
        write_program(str(bin / "agent"), str(place))
        write_program(str(bin / "takeback"), "-m", "takeback")
        store, programs = shlex.quote(str(self.store)), shlex.quote(str(bin))
        (self.folder / "env").write_text(f"export TAKEBACK_STORE={store}\nexport PATH={programs}:$PATH\n", "utf-8")

    def look(self) -> dict[str, Kept]:
        """Return the state of every file in the project."""
        found = sorted(path for path in self.project.rglob("*") if path.is_file())
        return {str(path.relative_to(self.project)): _kept(path) for path in found}


def _made(wanted: str | None) -> Path:
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="takeback-demo-")).resolve()
    place = Path(wanted).resolve()
    place.mkdir(parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise Stop(f"{wanted!r} is not empty; name a new directory, or leave it out: takeback demo")
    return place


def _kept(path: Path) -> Kept:
    return Kept(sha256(path.read_bytes()).hexdigest()[:7], os.stat(path).st_mode & 0o777)
