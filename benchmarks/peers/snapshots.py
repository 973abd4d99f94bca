"""Ways to keep the files of a project that agents use today: a git repository beside it, hard links, plain copies.

Each keeps one directory. The first git is what coding agents do: everything added and committed to a repository of its
own, ``restore`` and ``clean`` to go back. The second is git as fast as its settings make it: a tree without a commit,
nothing compressed, nothing synced. None of them records what is on disk before it goes back.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar


class Keeper:
    """A way to keep the files of a directory, with the seconds that everything took."""

    name: str
    program: str | None = None  # that must be there
    slow = False  # a few rounds must do

    def __init__(self, root: Path, store: Path) -> None:
        self.root, self.store = root, store
        self.times: dict[str, list[float]] = {}

    def time(self, what: str, call: Callable[..., Any], *given: Any) -> Any:
        """Call and keep the seconds."""
        started = perf_counter()
        found = call(*given)
        self.times.setdefault(what, []).append(perf_counter() - started)
        return found

    def begin(self) -> None:
        """Begin with an empty store."""
        self.close()
        shutil.rmtree(self.store, ignore_errors=True)
        self.store.mkdir(parents=True)
        self.open()

    def open(self) -> None:
        """Open the store, or set it up."""

    def close(self) -> None:
        """Close the store: what it keeps is in its files."""

    def warm(self) -> None:
        """Have in memory what is kept there between two snapshots, where something is."""

    def turn(self) -> None:
        """Let the conversation go on, where there is one."""

    def snapshot(self) -> Any:
        """Keep the files as they are."""
        raise NotImplementedError

    def restore(self, kept: Any) -> None:
        """Bring the files back."""
        raise NotImplementedError

    def undo(self, kept: Any) -> None:
        """Take back the last ``restore``: the files were kept before it as ``kept``."""
        self.restore(kept)

    def forget(self, kept: Any) -> None:
        """Let go of what is not needed any more, if it would fill the disk."""


class Git(Keeper):
    """A repository that nobody sees, as coding agents have it."""

    name = "shadow git"
    program = "git"
    settings: ClassVar[dict[str, str]] = {"gc.auto": "0", "commit.gpgsign": "false"}

    def open(self) -> None:
        names = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        config = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(self.store)}
        place = {"GIT_DIR": str(self.store / "git"), "GIT_WORK_TREE": str(self.root)}
        self._environment = {**os.environ, **names, **config, **place}
        self._git("init", "-q")
        for name, value in self.settings.items():
            self._git("config", name, value)

    def _git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words], check=True, capture_output=True, text=True, cwd=self.root, env=self._environment
        )
        return done.stdout.strip()

    def snapshot(self) -> Any:
        self._git("add", "-A", ".")
        self._git("commit", "-q", "--allow-empty", "--no-verify", "-m", "snapshot")
        return self._git("rev-parse", "HEAD")

    def restore(self, kept: Any) -> None:
        self._git("restore", "--source", kept, "--staged", "--worktree", ".")
        self._git("clean", "-fdq")


class TunedGit(Git):
    """The same with every setting that makes it faster."""

    name = "shadow git, tuned"
    settings: ClassVar[dict[str, str]] = {
        **Git.settings,
        "core.untrackedCache": "true",
        "index.version": "4",
        "core.looseCompression": "0",
        "feature.manyFiles": "true",
        "core.fsync": "none",
    }

    def snapshot(self) -> Any:
        self._git("add", "-A", ".")
        return self._git("write-tree")

    def restore(self, kept: Any) -> None:
        self._git("read-tree", "--reset", "-u", kept)
        self._git("clean", "-fdq")


class Copy(Keeper):
    """A copy each time."""

    name = "plain copy"
    program = "cp"
    slow = True

    def open(self) -> None:
        self._count = 0

    def _next(self) -> Path:
        self._count += 1
        return self.store / str(self._count)

    def snapshot(self) -> Any:
        kept = self._next()
        _run("cp", "-a", self.root, kept)
        return kept

    def restore(self, kept: Any) -> None:
        shutil.rmtree(self.root)
        _run("cp", "-a", kept, self.root)

    def forget(self, kept: Any) -> None:
        shutil.rmtree(kept)


class Rsync(Copy):
    """A copy each time, with hard links to the one before where nothing changed."""

    name = "rsync, hard links"
    program = "rsync"

    def open(self) -> None:
        super().open()
        self._last: Path | None = None

    def snapshot(self) -> Any:
        kept, links = self._next(), [] if self._last is None else ["--link-dest", self._last]
        _run("rsync", "-a", *links, f"{self.root}/", f"{kept}/")
        self._last = kept
        return kept

    def restore(self, kept: Any) -> None:
        _run("rsync", "-a", "--delete", f"{kept}/", f"{self.root}/")

    def forget(self, kept: Any) -> None:
        """Keep it: the next one may be made of it, and it takes little."""


PEERS: tuple[type[Keeper], ...] = (Git, TunedGit, Rsync, Copy)


def here() -> tuple[list[type[Keeper]], list[str]]:
    """Return those that this machine has, and the programs that it has not."""
    found = [kind for kind in PEERS if kind.program is None or shutil.which(kind.program)]
    return found, sorted({str(kind.program) for kind in PEERS if kind not in found})


def _run(*words: str | Path) -> None:
    subprocess.run(words, check=True, capture_output=True)
