"""What the crash tests of rewind share: a session whose files differ in 200 paths from those of a checkpoint."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import takeback
from takeback.files.disk import _syscalls
from takeback.testing.faults import FaultyVFS, Kind

Thing = tuple[Any, ...]
Things = dict[str, Thing]


def now() -> Things:
    """Return what the agent left."""
    found: Things = {f"over{n}": ("f", 0o644, f"new {n}") for n in range(60)}
    found |= {f"come{n}": ("f", 0o600, f"come {n}") for n in range(40)}
    found |= {f"mode{n}": ("f", 0o755, "same") for n in range(20)}
    found |= {f"link{n}": ("l", f"new target {n}") for n in range(20)}
    found |= {"new": ("d", 0o755), "turned": ("d", 0o750), "turned/in": ("f", 0o644, "in"), "locked": ("d", 0o555)}
    found |= {"new/deep": ("d", 0o711), "new/deep/x": ("f", 0o644, "x"), "back": ("f", 0o644, "was a directory")}
    found |= {f"locked/{n}": ("f", 0o644, f"new {n}") for n in range(5)}
    return found | {"stays": ("f", 0o640, "untouched"), "folder": ("d", 0o755), "folder/x": ("f", 0o644, "x")}


def then() -> Things:
    """Return what there was at the checkpoint."""
    found: Things = {f"over{n}": ("f", 0o640, f"old {n}") for n in range(60)}
    found |= {f"gone{n}": ("f", 0o400, f"gone {n}") for n in range(40)}
    found |= {f"mode{n}": ("f", 0o644, "same") for n in range(20)}
    found |= {f"link{n}": ("l", f"old target {n}") for n in range(20)}
    found |= {"old": ("d", 0o755), "old/empty": ("d", 0o700), "turned": ("f", 0o644, "a file"), "locked": ("d", 0o555)}
    found |= {"back": ("d", 0o755), "back/x": ("f", 0o644, "x"), "back/y": ("l", "x")}
    found |= {f"locked/{n}": ("f", 0o644, f"old {n}") for n in range(3)}
    return found | {"stays": ("f", 0o640, "untouched"), "folder": ("d", 0o700), "folder/x": ("f", 0o644, "x")}


def build(root: Path, things: Things) -> None:
    """Make a directory hold exactly these things."""
    clear(root)
    root.mkdir(parents=True)
    for path, thing in things.items():
        at = root / path
        at.parent.mkdir(exist_ok=True)
        if thing[0] == "d":
            at.mkdir(exist_ok=True)
        elif thing[0] == "l":
            at.symlink_to(thing[1])
        else:
            at.write_text(thing[2])
            at.chmod(thing[1])
    for path, thing in sorted(things.items(), reverse=True):
        if thing[0] == "d":
            (root / path).chmod(thing[1])


def clear(root: Path) -> None:
    """Remove a directory, also where parts of it are read-only."""
    for at, _, _ in os.walk(root):
        os.chmod(at, 0o700)
    shutil.rmtree(root, ignore_errors=True)


def read(root: Path) -> Things:
    """Return what a directory holds, what is our own included."""
    found: Things = {}
    for at, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(at, name)
            status, short = os.lstat(path), os.path.relpath(path, root)
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                found[short] = ("l", os.readlink(path))
            elif stat.S_ISDIR(status.st_mode):
                found[short] = ("d", mode)
            else:
                with open(path, encoding="latin-1") as file:
                    found[short] = ("f", mode, file.read())
    return found


def make(place: Path) -> None:
    """Make the store and the workspace: the checkpoint ``then``, and one call that changed everything."""
    root = place / "w"
    build(root, then())
    with takeback.open(place / "s.db") as store, store.session("one", workspace=root) as session:
        session.user("first")
        session.checkpoint("then")
        with session.tool("shell"):
            build_inside(root, now())
        session.user("second")


def build_inside(root: Path, things: Things) -> None:
    """Replace what a directory holds, not the directory itself."""
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            clear(path)
        else:
            path.unlink()
    build(root.with_name("made"), things)
    for path in root.with_name("made").iterdir():
        mode = path.lstat().st_mode & 0o777
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)  # a directory that is renamed must be writable
            path.rename(root / path.name)
            (root / path.name).chmod(mode)
        else:
            path.rename(root / path.name)
    root.with_name("made").rmdir()


def copy(template: Path, place: Path) -> None:
    """Put a store and a workspace back to where they were made."""
    clear(place)
    shutil.copytree(template, place, symlinks=True)


@contextmanager
def places() -> Iterator[Path]:
    """Return a directory in memory where there is such a thing: syncing a disk a thousand times proves nothing more."""
    above = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    try:
        yield above
    finally:
        clear(above)


# ---------------------------------------------------------------------- faults


class Steps:
    """Counts every call that changes the workspace or a file of the store, and does something at one of them."""

    CALLS = frozenset({"mkdir", "rmdir", "rename", "link", "unlink", "symlink", "fchmod", "fsync", "write", "open"})

    def __init__(self, act: Callable[[int], None]) -> None:
        self.count, self._act, self.armed = 0, act, False

    def tick(self) -> None:
        """Count a call before it is made."""
        if self.armed:
            self.count += 1
            self._act(self.count)

    def __getattr__(self, name: str) -> Any:
        assert name in self.CALLS, name
        real = getattr(os, name)

        def call(*args: Any, **keywords: Any) -> Any:
            self.tick()
            return real(*args, **keywords)

        return call

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count what is done inside."""
        _syscalls.system = self  # type: ignore[assignment]
        self.armed = True
        try:
            yield
        finally:
            self.armed = False
            _syscalls.system = os


class CountingVFS(FaultyVFS):
    """A file system that counts the store's calls among the steps."""

    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def fails(self, kind: Kind, file: str) -> bool:
        self._steps.tick()
        return False


def killing(at: int) -> Callable[[int], None]:
    """Kill this process at a step; 0 for never."""

    def act(count: int) -> None:
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    return act


def failing(at: int, code: int, *, ever_after: bool = False) -> Callable[[int], None]:
    """Fail a step, or all from it on."""

    def act(count: int) -> None:
        if count == at or (ever_after and count > at):
            raise OSError(code, os.strerror(code))

    return act
